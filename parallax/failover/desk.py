"""Moves as others than a command want them: agreed to by their plan, carried out in the background, watched, called off.

The steps are `Mover`'s, as for `parallax failover`; the journal has them, so that any process can tell how far a move is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from parallax.domain.ids import GroupName
from parallax.errors import LimitError, PlanChangedError, RefusedError
from parallax.failover.background import INTERRUPTED, BackgroundRun, silence
from parallax.failover.execute import Mover
from parallax.failover.journal import MoveJournal, MoveRecord, Step
from parallax.failover.orders import MoveOrder, digest_of
from parallax.failover.outside import Outside
from parallax.failover.plan import Ending, MoveLimits, MovePlan
from parallax.failover.rollback import plan_rollback, roll_back
from parallax.runtime.deadline import Deadline

_MOST = 32
"""Moves at a time: each holds a thread."""
_MOST_KEPT = 256
"""Moves of which this process remembers what they did."""
_LOOKED_AT = 20
"""So many of a group's newest moves may be the one that is asked for."""
_STOP_WITHIN_MS = 10_000.0


class MoveState(Enum):
    """What is to be said of a move."""

    PLANNED = "planned"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """Nobody goes on with it: plan and execute it again, or roll it back."""
    MOVED = "moved"
    ALREADY_THERE = "already_there"
    REFUSED = "refused"
    ABANDONED = "abandoned"
    ROLLED_BACK = "rolled_back"


_ENDED = {
    Step.DONE: MoveState.MOVED,
    Step.ABANDONED: MoveState.ABANDONED,
    Step.ROLLED_BACK: MoveState.ROLLED_BACK,
}


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far a move is.

    Attributes:
        record: as the journal has it; None: it has nothing of it.
        events: moments and words, of a move that this process carries out.
    """

    order: MoveOrder
    state: MoveState
    record: MoveRecord | None = None
    doing: str = ""
    problem: str = ""
    fencing_number: int = 0
    events: tuple[tuple[int, str], ...] = ()
    actor: str = ""


@dataclass(kw_only=True)
class _Run(BackgroundRun):
    """A move, or a way back, that this process has carried out or does just now."""

    order: MoveOrder
    actor: str
    state: MoveState = MoveState.RUNNING
    problem: str = ""
    fencing_number: int = 0
    ended_at_ms: int = 0
    """By the store's clock; 0: it has not. Of what is kept later, another process tells."""

    def progress(self, record: MoveRecord | None) -> MoveProgress:
        number = self.fencing_number or (0 if record is None else record.fencing_number)
        return MoveProgress(
            self.order, self.state, record, self.doing, self.problem, number, self.events, self.actor
        )


class MoveDesk:
    """Carries out moves of many groups, one of each at a time. Safe to use from many threads.

    Args:
        limits: how long planned moves wait.
    """

    def __init__(self, limits: MoveLimits | None = None) -> None:
        self._limits = limits or MoveLimits()
        self._runs: dict[GroupName, _Run] = {}
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """End moves before their next step, and begin no more."""
        with self._lock:
            self._closed = True
            runs = list(self._runs.values())
        for run in runs:
            run.stop.set()
        deadline = Deadline.after_ms(_STOP_WITHIN_MS)
        for run in runs:
            run.ended.wait(deadline.remaining_s)

    def plan(self, outside: Outside, order: MoveOrder) -> MovePlan:
        """What it would do.

        Raises:
            ParallaxError: as `Mover.plan` says.
        """
        return self._mover(outside, order).plan(order.move)

    def execute(self, outside: Outside, order: MoveOrder, digest: str) -> MoveProgress:
        """Begin with it, if its plan is still what was agreed to. What runs, or has ended well, is not begun again.

        Raises:
            PlanChangedError: it is not; nothing was changed.
            RefusedError: the plan forbids it, or another move of the group is under way here.
            LimitError: too many moves are under way here.
        """
        group = order.move.group
        with self._lock:
            run = self._runs.get(group)
        same = run is not None and run.order == order
        if run is not None and same and run.state in {MoveState.RUNNING, MoveState.MOVED}:
            return run.progress(None)
        plan = self.plan(outside, order)
        if digest_of(plan, accept_gaps=order.accept_gaps) != digest:
            raise PlanChangedError(
                f"group {group}: the plan is not what was agreed to any more; nothing was changed. Look at the new "
                "plan, and execute that"
            )
        refusals = plan.refusals(accept_gaps=order.accept_gaps)
        if refusals and not plan.arrived:
            raise RefusedError("; ".join(refusals))
        mover = self._mover(outside, order)

        def work(run: _Run) -> None:
            result = mover.move(order.move, run.tell)
            run.problem, run.fencing_number = result.problem, result.fencing_number
            run.state = MoveState(result.ending.value)
            if result.ending is Ending.INTERRUPTED and INTERRUPTED not in run.problem:
                run.problem = f"{INTERRUPTED}: {run.problem}"

        return self._begin(outside, order, work)

    def roll_back(self, outside: Outside, order: MoveOrder, *, disaster: bool = False) -> MoveProgress:
        """Begin to put the group back as it was before this move, if that is its last one.

        Raises:
            RefusedError: it is not, something forbids it, or a move of the group is under way here.
            ParallaxError: as `plan_rollback` says.
        """
        plan = plan_rollback(outside, order.move.group, disaster=disaster)
        own = _record_of(outside.journal, order)
        if own is None or own.operation_id != plan.record.operation_id:
            last = plan.record.move
            raise RefusedError(
                f"group {last.group}: this is not its last move, which went from {last.origin} to {last.target}: "
                "roll that back"
            )
        if plan.obstacles:
            raise RefusedError("; ".join(plan.obstacles))

        def work(run: _Run) -> None:
            run.tell("putting the group back")
            record = roll_back(outside, plan)
            run.fencing_number = record.fencing_number
            run.state = MoveState.ROLLED_BACK

        return self._begin(outside, order, work)

    def cancel(self, outside: Outside, order: MoveOrder) -> MoveProgress:
        """Stop it before its next step, if it runs here.

        Raises:
            RefusedError: it runs in another process.
            StoreUnavailableError: who calls it off can't be kept; it goes on.
        """
        with self._lock:
            run = self._runs.get(order.move.group)
        if run is not None and run.order == order:
            if not run.ended.is_set():
                with outside.auditor.act(
                    outside.operator,
                    "CancelMove",
                    order.move.group,
                    before={},
                    after={"move": order.operation_id},
                ):
                    run.stop.set()
            return run.progress(None)
        found = self.progress(outside.journal, order)
        if found.state is MoveState.RUNNING:
            raise RefusedError(
                f"group {order.move.group}: another process carries this move out; stop it there"
            )
        return found

    def progress(self, journal: MoveJournal, order: MoveOrder) -> MoveProgress:
        """How far it is, as this process or the journal knows it.

        Raises:
            StoreUnavailableError: the store did not answer.
            UnreadableRowError: the journal can't be read by this release.
        """
        record = _record_of(journal, order)
        with self._lock:
            run = self._runs.get(order.move.group)
        newer = run is not None and record is not None and 0 < run.ended_at_ms < record.version // 1_000
        if run is not None and run.order == order and not newer:
            return run.progress(record)
        if record is None:
            return MoveProgress(order, MoveState.PLANNED)
        state, problem = state_of(record.step, record.problem, record.version // 1_000, journal.now_ms())
        return MoveProgress(
            order,
            state,
            record,
            problem=f"{problem}{record.standing}" if state is MoveState.INTERRUPTED else problem,
            fencing_number=record.fencing_number,
            actor=record.actor,
        )

    def _mover(self, outside: Outside, order: MoveOrder) -> Mover:
        limits = MoveLimits(
            self._limits.drain_ms, self._limits.catch_up_ms, self._limits.handover_ms, order.accept_gaps
        )
        return Mover(outside, limits, order.operation_id)

    def _begin(self, outside: Outside, order: MoveOrder, work: Callable[[_Run], None]) -> MoveProgress:
        group = order.move.group
        run = _Run(
            now_ms=outside.time.now_ms, stop=outside.time.stop, order=order, actor=outside.operator.name
        )
        with self._lock:
            if self._closed:
                raise RefusedError("this service ends: ask another one")
            before = self._runs.get(group)
            if before is not None and not before.ended.is_set():
                raise RefusedError(f"group {group} is being moved already: wait for that, or call it off")
            if sum(not item.ended.is_set() for item in self._runs.values()) >= _MOST:
                raise LimitError(f"{_MOST} moves are under way here: wait until some have ended")
            self._runs.pop(group, None)  # the newest is the last one
            self._runs[group] = run
            for name in [name for name, item in self._runs.items() if item.ended.is_set()]:
                if len(self._runs) > _MOST_KEPT:
                    del self._runs[name]
        try:
            run.begin(lambda: self._work(run, work), f"move-{order.operation_id[:8]}")
        except LimitError as error:
            run.state, run.problem = MoveState.INTERRUPTED, f"{INTERRUPTED}: {error}"
            raise
        return run.progress(None)

    def _work(self, run: _Run, work: Callable[[_Run], None]) -> None:
        try:
            problem = run.attempt(lambda: work(run), "move_failed", group=run.order.move.group)
            if problem:
                run.state, run.problem = MoveState.INTERRUPTED, f"{INTERRUPTED}: {problem}"
        finally:
            run.ended_at_ms = run.now_ms()
            run.ended.set()


def _record_of(journal: MoveJournal, order: MoveOrder) -> MoveRecord | None:
    """The order's move in the journal, or the one that it went on with: the same way, and kept since it was asked for."""
    move = order.move
    for record in islice(journal.each(move.group), _LOOKED_AT):
        if record.operation_id == order.operation_id:
            return record
        same = (record.move.origin, record.move.target) == (move.origin, move.target)
        if same and record.started_at_ms < order.asked_at_ms <= record.version // 1_000:
            return record
    return None


def state_of(step: Step, problem: str, told_at_ms: int, now_ms: int) -> tuple[MoveState, str]:
    """The state of a move by what the journal has of it, and what stopped it.

    Args:
        step: how far it is.
        problem: what stopped it last; empty otherwise.
        told_at_ms: when its newest note was kept, by the store's clock.
        now_ms: by the same clock.
    """
    if step in _ENDED:
        return _ENDED[step], problem
    why = f"{INTERRUPTED}: {problem}" if problem else silence(told_at_ms, now_ms)
    return (MoveState.INTERRUPTED, why) if why else (MoveState.RUNNING, "")
