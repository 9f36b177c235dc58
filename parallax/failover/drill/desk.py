"""Drills as others than a command want them: run in the background, watched, called off. The steps are `DrillRun`'s."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from parallax.domain.ids import GroupName
from parallax.errors import LimitError, NotFoundError, RefusedError
from parallax.failover.background import BackgroundRun
from parallax.failover.drill.history import DrillEnding, DrillRecord, kept, seen
from parallax.failover.journal import MoveJournal
from parallax.failover.outside import Outside
from parallax.failover.waiting import Tell

_STOP_WITHIN_S = 10.0

DrillWork = Callable[[str, Tell], DrillRecord]
"""Carries out the drill of an id, and tells of its steps."""


@dataclass(frozen=True, slots=True)
class DrillProgress:
    """How far a drill is.

    Attributes:
        ending: ``running`` until it has ended.
        record: as it is kept; None: it is not yet, or could not be.
        here: whether this process has carried it out, or does.
        doing: what it does just now.
        problem: why it did not pass.
        events: moments and words, if ``here``.
    """

    drill_id: str
    group: GroupName
    ending: DrillEnding
    record: DrillRecord | None = None
    here: bool = False
    doing: str = ""
    problem: str = ""
    events: tuple[tuple[int, str], ...] = ()


@dataclass(kw_only=True)
class _Run(BackgroundRun):
    """The drill that this process has carried out last, or does just now."""

    drill_id: str
    group: GroupName
    ending: DrillEnding = DrillEnding.RUNNING
    record: DrillRecord | None = None
    problem: str = ""

    def progress(self) -> DrillProgress:
        return DrillProgress(
            self.drill_id,
            self.group,
            self.ending,
            self.record,
            here=True,
            doing=self.doing,
            problem=self.problem,
            events=self.events,
        )


class DrillDesk:
    """Carries out one drill at a time. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._closed = False

    def close(self) -> None:
        """Let the drill take its group home and end, as far as that goes within seconds; begin no more."""
        with self._lock:
            self._closed = True
            run = self._run
        if run is not None:
            run.stop.set()
            run.ended.wait(_STOP_WITHIN_S)

    def begin(self, outside: Outside, group: GroupName, work: DrillWork) -> DrillProgress:
        """Begin with a drill.

        Args:
            outside: all that it touches.
            group: the drill's.
            work: carries it out.

        Raises:
            RefusedError: another one is under way here, or the process ends.
            LimitError: no thread could be started.
        """
        run = _Run(now_ms=outside.time.now_ms, stop=outside.time.stop, drill_id=uuid.uuid4().hex, group=group)
        with self._lock:
            if self._closed:
                raise RefusedError("this service ends: ask another one")
            if self._run is not None and not self._run.ended.is_set():
                raise RefusedError("a drill is under way here already: wait for that, or stop it")
            before, self._run = self._run, run
        try:
            run.begin(lambda: self._work(run, work), f"drill-{run.drill_id[:8]}")
        except LimitError:
            with self._lock:
                self._run = before
            raise
        return run.progress()

    def stop(self, outside: Outside, drill_id: str) -> DrillProgress:
        """Let a drill end before its next step, if it runs here; its group goes home.

        Raises:
            RefusedError: it runs in another process.
            NotFoundError: there is no such drill.
            StoreUnavailableError: who stops it can't be kept; it goes on.
        """
        run = self._of(drill_id)
        if run is None:
            found = self.progress(outside.journal, drill_id)
            if found.ending is DrillEnding.RUNNING:
                raise RefusedError(f"drill {drill_id}: another process carries it out; stop it there")
            return found
        if not run.ended.is_set():
            with outside.auditor.act(
                outside.operator, "StopDrill", run.group, before={}, after={"drill_id": drill_id}
            ):
                run.stop.set()
        return run.progress()

    def progress(self, journal: MoveJournal, drill_id: str) -> DrillProgress:
        """How far a drill is, as this process or the journal knows it; one of which nobody tells any more is interrupted.

        Raises:
            NotFoundError: there is no such drill among the newest.
            StoreUnavailableError: the store did not answer.
        """
        run = self._of(drill_id)
        if run is not None:
            return run.progress()
        found = next((item for item in kept(journal.notes) if item.drill_id == drill_id), None)
        if found is None:
            raise NotFoundError(f"no drill {drill_id!r} among the newest")
        found = seen(found, journal.now_ms())
        return DrillProgress(drill_id, found.group, found.ending, found, problem=found.problem)

    def _of(self, drill_id: str) -> _Run | None:
        with self._lock:
            return self._run if self._run is not None and self._run.drill_id == drill_id else None

    def _work(self, run: _Run, work: DrillWork) -> None:
        def drill() -> None:
            run.record = work(run.drill_id, run.tell)

        ending, problem = DrillEnding.FAILED, ""
        try:
            problem = run.attempt(drill, "drill_failed", drill_id=run.drill_id)
            if run.record is not None and not problem:
                ending, problem = run.record.ending, run.record.problem
        finally:
            run.ending, run.problem = ending, problem
            run.ended.set()
