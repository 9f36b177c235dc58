"""Where groups are primary: reading, deciding and watching, over a store that several regions share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from offsetsvc.names import group_named
from offsetsvc.overview.pages import MOST_ENTRIES, filled, limit_of
from parallax.config.config import Config
from parallax.domain.ids import GroupName, RegionName
from parallax.domain.primary import Assignment, Change, PrimaryDecision, Site, Stage, assignment_of, decide
from parallax.domain.rights import ANYBODY, Principal
from parallax.errors import DeadlineError, InvalidNameError, InvariantError, StoreUnavailableError
from parallax.ports.audit import Auditor
from parallax.ports.groups import NamePage, PrimaryLog, PrimaryStore, Reach
from parallax.runtime.deadline import Deadline
from parallax.runtime.retry import RetryPolicy

_MEMORY_S = 0.2
"""Watches of one group share a read: a thousand consumers of a group cost the store five reads a second."""

_MOST_REMEMBERED = 10_000
_WATCH_EVERY_S = 0.25
_READING_S = 20.0
"""Lists of what needs somebody share a reading of all decisions, which is mostly that of the gauges, every 15 s by default."""

MOST_REASON_CHARACTERS = 1_000
"""A reason is kept with its decision, and read whenever that is."""

_AFTER_A_RIVAL = RetryPolicy(first_wait_ms=20, longest_wait_ms=1_000)
"""An attempt costs the store a read and a lightweight transaction: who was overtaken waits, each time longer, and never as
long as the rivals do."""


Assignments = Mapping[GroupName, Assignment | InvariantError]
"""What holds for each group, by name; or why that can't be told."""


class Primaries:
    """Decisions about primaries. Safe to use from many threads."""

    def __init__(
        self,
        config: Config,
        region: RegionName,
        store: PrimaryStore,
        auditor: Auditor,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        regions = frozenset(RegionName(name) for name in config.regions)
        self.site = Site(regions, frozenset(config.aggregate_clusters()), region)
        self._store = store
        self._auditor = auditor
        self._now_ms = now_ms
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._memory: dict[GroupName, tuple[float, Assignment | None]] = {}
        self._reading = threading.Lock()
        self._read: tuple[float, Mapping[GroupName, Assignment | InvariantError]] | None = None

    def get(self, group: GroupName) -> Assignment | None:
        """What holds for the group; None if nothing was ever decided.

        Raises:
            InvalidNameError: the name is empty.
            InvariantError: what was decided can't be read.
            StoreUnavailableError: the store did not answer.
        """
        group_named(group)
        return assignment_of(self._store.decisions([group]).get(group, ()))

    def all(self) -> dict[GroupName, Assignment | InvariantError]:
        """What holds for every group with a decision, by name; or why that can't be told."""
        assignments = self._assignments(self._store.assigned_groups())
        self._read = (self._clock(), assignments)
        return assignments

    def page(self, page: NamePage, shown: Callable[[GroupName], bool]) -> tuple[Assignments, str]:
        """What holds for the groups of a page, and where the next one goes on; a limit of 0: for all.

        Raises:
            InvalidNameError: the limit is negative.
            LimitError: it is more than a page may have.
            StoreUnavailableError: the store did not answer.
        """
        if page.limit:
            names, next_after = filled(
                lambda after, most: self._store.assigned_page(NamePage(most, page.prefix, after)),
                str,
                shown,
                page.after,
                limit_of(page.limit),
            )
            return self._assignments(names), next_after
        found = self.all()
        return {
            group: item
            for group, item in found.items()
            if group.startswith(page.prefix) and group > page.after and shown(group)
        }, ""

    def need_somebody(self, prefix: str, shown: Callable[[GroupName], bool]) -> Assignments:
        """The groups that move, are dual active or can't be read.

        All are read for it, so whoever looks within `_READING_S` shares a reading; those that it found are read again, so that
        nobody is told of what is over.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        with self._reading:
            read_at_s, found = self._read or (0.0, {})
            anew = self._read is None or self._clock() - read_at_s >= _READING_S
            if anew:
                found = self.all()
        wanted = islice(
            (
                group
                for group, item in found.items()
                if group.startswith(prefix) and _needs_somebody(item) and shown(group)
            ),
            MOST_ENTRIES,
        )
        if anew:
            return {group: found[group] for group in wanted}
        return {group: item for group, item in self._assignments([*wanted]).items() if _needs_somebody(item)}

    def _assignments(self, groups: Sequence[GroupName]) -> dict[GroupName, Assignment | InvariantError]:
        decisions = self._store.decisions(groups)
        assignments: dict[GroupName, Assignment | InvariantError] = {}
        for group in groups:
            try:
                assignment = assignment_of(decisions.get(group, ()))
            except InvariantError as error:
                assignments[group] = error
            else:
                if assignment is not None:
                    assignments[group] = assignment
        return assignments

    def set(
        self, change: Change, deadline: Deadline, *, dry_run: bool = False, by: Principal = ANYBODY
    ) -> Assignment:
        """Carry a change out; what holds then. With ``dry_run``, what would hold.

        What changes something is audited before: a store that can't keep who decided refuses the decision.

        Args:
            change: what is wanted.
            deadline: how long it may take.
            dry_run: change nothing.
            by: who wants it.

        Raises:
            ParallaxError: see `parallax.domain.primary.decide`.
            StoreUnavailableError: too few regions answer; whether it was carried out is not known. Asking for
                the same again is safe.
            DeadlineError: others decided all the time.
        """
        group_named(change.group)
        if len(change.reason) > MOST_REASON_CHARACTERS:
            raise InvalidNameError(f"reason: longer than {MOST_REASON_CHARACTERS:,} characters")
        reach = Reach.HERE if change.disaster else Reach.EVERYWHERE
        try:
            return self._set(change, reach, deadline, None if dry_run else by)
        except StoreUnavailableError as error:
            if change.disaster:
                raise
            raise StoreUnavailableError(
                f"{error}; a planned change needs a majority of the store over all regions: if a region is gone, "
                "make it a disaster decision"
            ) from error

    def _set(self, change: Change, reach: Reach, deadline: Deadline, by: Principal | None) -> Assignment:
        for wait_ms in _AFTER_A_RIVAL.waits_ms():
            if deadline.passed:
                break
            log = self._store.read_log(change.group, reach)
            decision = decide(change, log.decisions, self.site, self._now_ms(), log.latest)
            done = any(item.fencing_number == decision.fencing_number for item in log.decisions)
            if done or by is None or self._append(decision, log, reach, by):
                with self._lock:
                    self._memory.pop(change.group, None)
                return _with(log.decisions, decision)
            self._sleep(min(wait_ms / 1_000, deadline.remaining_s))
        raise DeadlineError(
            f"group {change.group!r}: the deadline passed while others decided about it; ask again"
        )

    def _append(self, decision: PrimaryDecision, log: PrimaryLog, reach: Reach, by: Principal) -> bool:
        """Append the decision with its entry before it and what became of it after; false: a rival was faster."""
        with self._auditor.act(
            by,
            "SetPrimary",
            decision.group,
            before=_told(assignment_of(log.decisions)),
            after=_decision_told(decision),
            reason=decision.reason,
        ) as act:
            appended = self._store.append(decision, log=log, reach=reach)
            if not appended:
                act.problem = "somebody else decided at the same moment"
        return appended

    def watch(
        self, group: GroupName, deadline: Deadline, wait: Callable[[float], bool]
    ) -> Iterator[Assignment | None]:
        """What holds now, then every change, until the deadline.

        Args:
            group: the group.
            deadline: when to end.
            wait: waits so many seconds; true: end at once.

        Raises:
            InvalidNameError: the name is empty.
            StoreUnavailableError: the store did not answer.
        """
        group_named(group)
        last: list[Assignment | None] = []
        while True:
            assignment = self._remembered(group)
            if last != [assignment]:
                last = [assignment]
                yield assignment
            if deadline.passed or wait(min(_WATCH_EVERY_S, deadline.remaining_s)):
                return

    def _remembered(self, group: GroupName) -> Assignment | None:
        now_s = self._clock()
        with self._lock:
            at_s, assignment = self._memory.get(group, (-_MEMORY_S, None))
        if now_s - at_s < _MEMORY_S:
            return assignment
        assignment = self.get(group)
        with self._lock:
            if len(self._memory) >= _MOST_REMEMBERED:
                self._memory.clear()
            self._memory[group] = (now_s, assignment)
        return assignment


def _told(assignment: Assignment | None) -> dict[str, str]:
    """What holds, as the audit tells it."""
    if assignment is None:
        return {}
    told = _decision_told(assignment.decision)
    if assignment.dual_active:
        told["rivals"] = ", ".join(str(item.fencing_number) for item in assignment.rivals)
    return told


def _decision_told(decision: PrimaryDecision) -> dict[str, str]:
    told = {
        "primary": decision.primary,
        "cluster": decision.cluster or "every region",
        "mode": decision.mode.value,
        "stage": decision.stage.value,
        "fencing_number": str(decision.fencing_number),
    }
    if decision.moving_from is not None:
        told["moving_from"] = decision.moving_from
    if decision.disaster:
        told["disaster"] = "true"
    return told


def _with(known: tuple[PrimaryDecision, ...], decision: PrimaryDecision) -> Assignment:
    assignment = assignment_of({*known, decision})
    assert assignment is not None  # noqa: S101 - there is at least the decision
    return assignment


def _needs_somebody(item: Assignment | InvariantError) -> bool:
    return isinstance(item, InvariantError) or item.dual_active or item.decision.stage is Stage.MOVING
