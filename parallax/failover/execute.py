"""Carries moves out: plans each, and goes on with what was interrupted (`parallax.failover.steps` has the steps)."""

from __future__ import annotations

from dataclasses import replace

import structlog

from parallax.domain.audit import AuditStage
from parallax.domain.ids import GroupName, TopicName
from parallax.errors import FencedError, ParallaxError, UnavailableError, UnreadableRowError
from parallax.failover.facts import Move
from parallax.failover.journal import MoveRecord, Snapshot, Step, home_of, own_reason, reason_of
from parallax.failover.outside import Outside
from parallax.failover.plan import (
    Ending,
    MoveLimits,
    MovePlan,
    Result,
    make_plan,
    outdated,
    redelivered_beyond,
)
from parallax.failover.put_back import replaced_progress
from parallax.failover.steps import Moving
from parallax.failover.timekeeper import StoppedError
from parallax.failover.waiting import AbandonedError, Tell, Waiting
from parallax.ports.audit import AuditedAct
from parallax.runtime.tracing import span

_log = structlog.get_logger(__name__)

_LOOK_AGAIN_S = 1.0
"""A plan costs services more than a look at a cluster."""

_STAGES = {
    Ending.MOVED: AuditStage.DONE,
    Ending.ALREADY_THERE: AuditStage.DONE,
    Ending.REFUSED: AuditStage.FAILED,
    Ending.ABANDONED: AuditStage.FAILED,
    Ending.INTERRUPTED: AuditStage.UNKNOWN,
}


class Mover:
    """Moves one group at a time; several may be at work in threads of their own.

    Args:
        outside: all that moves touch.
        limits: how long they wait, and what they may cross.
        operation_id: what a move that begins is called in the journal; empty: each has a name of its own.
    """

    def __init__(self, outside: Outside, limits: MoveLimits, operation_id: str = "") -> None:
        self._outside = outside
        self._limits = limits
        self._operation_id = operation_id
        self._ahead: dict[GroupName, Moving] = {}
        self._acts: dict[GroupName, AuditedAct] = {}

    def plan(self, move: Move) -> MovePlan:
        """What `move` would do, or go on with.

        Raises:
            UnavailableError: services or store do not answer.
            UnreadableRowError: the group's newest move can't be read by this release.
        """
        return self._plan(move)[0]

    def fence_ahead(self, move: Move) -> None:
        """Fence a group that `move` will move: many groups' consumers then report at the same time.

        `move` then goes on from there, without planning again. What is in the way is met again, and told, by `move`.
        """
        try:
            plan, newest = self._plan(move)
            refusals = plan.refusals(accept_gaps=self._limits.accept_gaps)
            if not plan.arrived and not plan.publisher_only and not refusals:
                self._outside.time.go_on()
                moving = self._moving(plan, newest)
                moving.fence()
                self._ahead[move.group] = moving
        except StoppedError:
            _log.info("fencing_ahead_stopped", group=move.group)
        except AbandonedError as error:
            _log.info("fencing_ahead_abandoned", group=move.group, problem=str(error))
        except ParallaxError as error:
            _log.info("fencing_ahead_failed", group=move.group, problem=f"[{error.code}] {error}")

    def move(self, move: Move, tell: Tell = lambda _words: None) -> Result:
        """Carry the move out, or go on with it where it was interrupted."""
        began_ms = self._outside.time.now_ms()
        with span(
            "parallax.move",
            parallax__group=move.group,
            parallax__origin=move.origin,
            parallax__target=move.target,
        ):
            result = self._attempt(move, tell)
        took_ms = self._outside.time.now_ms() - began_ms
        self._end_act(result)
        _log.info(
            "move_ended",
            group=move.group,
            origin=move.origin,
            to=move.target,
            kind=move.kind.value,
            ending=result.ending.value,
            problem=result.problem,
            took_ms=took_ms,
        )
        return replace(result, took_ms=took_ms)

    def _attempt(self, move: Move, tell: Tell) -> Result:
        plan: MovePlan | None = None
        moving: Moving | None = None
        try:
            self._outside.time.go_on()
            moving = self._ahead.pop(move.group, None)
            if moving is not None and moving.record.move == move:
                plan, newest = moving.plan, None
            else:
                moving = None
                tell("planning")
                plan, newest = self._plan_within_limits(move, tell)
                ended = self._without_moving(plan, newest)
                if ended is not None:
                    return ended
                self._outside.time.go_on()
            waiting = Waiting(self._outside.time, self._outside.clusters, self._outside.services, move, tell)
            waiting.for_remnants_to_leave(plan.remnants, self._limits.drain_ms)
            moving = moving or self._moving(plan, newest)
            return moving.run(tell)
        except StoppedError:
            return self._untouched(move, plan, "the command was stopped")
        except AbandonedError as error:
            return self._untouched(move, plan, str(error))
        except ParallaxError as error:
            problem = f"[{error.code}] {error}"
            fenced = moving is not None and moving.record.fenced
            if not fenced and not isinstance(error, UnavailableError):
                return Result(move, Ending.REFUSED, plan, problem=problem)
            if moving is not None:
                problem += moving.record.standing
            return Result(move, Ending.INTERRUPTED, plan, problem=problem)

    def _without_moving(self, plan: MovePlan, newest: MoveRecord | None) -> Result | None:
        """The ending of a plan by which no consumer has to move; None: it has to."""
        move = plan.move
        if plan.arrived:
            return self._arrived(plan, newest)
        refusals = plan.refusals(accept_gaps=self._limits.accept_gaps)
        if refusals:
            return self._untouched(move, plan, "; ".join(refusals))
        if plan.publisher_only:
            return Result(move, Ending.MOVED, plan, self._publish_from(plan, newest))
        return None

    def _untouched(self, move: Move, plan: MovePlan | None, problem: str) -> Result:
        """This command has not begun; an earlier one may have."""
        try:
            begun = _interrupted(move, self._outside.journal.newest(move.group))
        except (UnavailableError, UnreadableRowError) as error:
            unknown = f"{problem}; whether the group is fenced already is not known ([{error.code}] {error})"
            return Result(move, Ending.INTERRUPTED, plan, problem=unknown)
        if begun is None or not begun.fenced:
            return Result(move, Ending.REFUSED, plan, problem=problem)
        return Result(move, Ending.INTERRUPTED, plan, begun.fencing_number, f"{problem}{begun.standing}")

    def _publish_from(self, plan: MovePlan, newest: MoveRecord | None) -> int:
        """An active/active group consumes everywhere already: only who publishes its results changes."""
        assignment, journal = plan.facts.assignment, self._outside.journal
        region = None if assignment is None else assignment.decision.primary
        self._begin_act(plan)
        record = journal.begin(
            plan.move,
            Snapshot({}, {}, plan.fencing_number, region),
            newest,
            actor=self._outside.operator.name,
            operation_id=self._operation_id,
        )
        reason = own_reason(reason_of(record.operation_id))
        try:
            number = self._outside.services.publish_from(plan.move, reason, plan.fencing_number)
        except FencedError as error:
            journal.keep(replace(record, step=Step.ABANDONED, problem=f"[{error.code}] {error}"))
            raise
        journal.keep(replace(record, step=Step.DONE, fencing_number=number))
        return number

    def _plan(self, move: Move) -> tuple[MovePlan, MoveRecord | None]:
        """The plan, and the group's newest move until now.

        The members' topics are those of the beginning too: an interrupted move has made its members leave.
        """
        newest = self._outside.journal.newest(move.group)
        begun = _interrupted(move, newest)
        topics = frozenset[TopicName]() if begun is None else self._still_there(move, begun.assigned)
        plan = make_plan(self._outside.facts(move, topics=topics))
        unfinished = _unfinished(plan, newest) if plan.gaps else None
        if unfinished is not None and replaced_progress(self._outside, unfinished):
            plan = plan.with_gaps_open()
        return plan, newest

    def _still_there(self, move: Move, topics: frozenset[TopicName]) -> frozenset[TopicName]:
        """Those of the topics that either cluster has; all of them unless both answer. What is gone has no place to go on at."""
        if not topics:
            return topics
        known = set[TopicName]()
        for cluster in (move.origin, move.target):
            found = self._outside.clusters.topics(cluster)
            if found is None:
                return topics
            known.update(found)
        return topics & known

    def _plan_within_limits(self, move: Move, tell: Tell) -> tuple[MovePlan, MoveRecord | None]:
        """The plan once plain clients would read few enough records again; the group reads on until then.

        If it is fenced by an earlier attempt it reads nothing, so that waiting would change nothing.

        Raises:
            AbandonedError: it took longer.
        """
        deadline = self._outside.time.deadline(self._limits.redelivered_ms)
        while True:
            plan, newest = self._plan(move)
            too_many = redelivered_beyond(plan, self._limits)
            refused = plan.refusals(accept_gaps=self._limits.accept_gaps)
            begun = _interrupted(move, newest)
            if not too_many or refused or (begun is not None and begun.fenced):
                return plan, newest
            if deadline.passed:
                raise AbandonedError(
                    f"{too_many}, and that has not changed within {self._limits.redelivered_ms / 1_000:g} s: let the "
                    f"group read on in {move.origin}, wait longer (--within-s), or allow more (--max-redelivered)"
                )
            tell(f"letting the group read on: {too_many}")
            self._outside.time.pause(_LOOK_AGAIN_S)

    def _moving(self, plan: MovePlan, newest: MoveRecord | None) -> Moving:
        """The move, taken up again if it was interrupted: its snapshot is that of the beginning."""
        move, facts, journal = plan.move, plan.facts, self._outside.journal
        self._begin_act(plan)
        begun, unfinished = _interrupted(move, newest), _unfinished(plan, newest)
        if begun is None:
            self._note_done(plan, newest)
            record = journal.begin(
                move,
                self._snapshot(plan, newest, unfinished),
                newest,
                facts.assigned,
                actor=self._outside.operator.name,
                operation_id=self._operation_id,
            )
        # Members at the target may have been waited for since it was read.
        elif journal.newest(move.group) != begun:
            raise AbandonedError("another command has gone on with this move meanwhile; run this one again")
        else:
            record = journal.keep(
                replace(
                    begun,
                    move=move,
                    assigned=facts.assigned,
                    problem="",
                    actor=self._outside.operator.name,
                )
            )
        return Moving(self._outside, self._limits, record, plan, after_unfinished=unfinished is not None)

    def _snapshot(self, plan: MovePlan, newest: MoveRecord | None, unfinished: MoveRecord | None) -> Snapshot:
        """The group before it was moved: one that is under way to another place was somewhere else before that."""
        assignment = plan.facts.assignment
        snapshot = self._outside.snapshot(plan.move, assignment)
        progress = {} if unfinished is None else replaced_progress(self._outside, unfinished)
        return replace(
            snapshot, progress={**snapshot.progress, **progress}, primary=home_of(assignment, newest)
        )

    def _note_done(self, plan: MovePlan, newest: MoveRecord | None) -> None:
        """The last note of the move before, if that is missing: what holds shows no more that it has arrived, once this one begins."""
        if newest is not None and not newest.ended and newest.done(plan.facts.assignment):
            self._outside.journal.keep(
                replace(newest, step=Step.DONE, fencing_number=plan.fencing_number, problem="")
            )

    def _begin_act(self, plan: MovePlan) -> None:
        """Keep whose move it is, before its first write.

        Raises:
            StoreUnavailableError: it can't be kept: nothing is moved.
        """
        move = plan.move
        if move.group in self._acts:  # fenced ahead
            return
        decided = plan.facts.assignment
        before = {"cluster": move.origin, "fencing_number": str(plan.fencing_number)}
        if decided is not None:
            before["primary"] = decided.decision.primary
        self._acts[move.group] = self._outside.auditor.begin(
            self._outside.operator,
            "failover",
            move.group,
            before=before,
            after={"cluster": move.target, "primary": move.region, "kind": move.kind.value},
        )

    def _end_act(self, result: Result) -> None:
        act = self._acts.pop(result.move.group, None)
        if act is None:  # nothing was changed
            return
        act.after = {"ending": result.ending.value, "fencing_number": str(result.fencing_number)}
        self._outside.auditor.end(act, _STAGES[result.ending], result.problem)

    def _arrived(self, plan: MovePlan, newest: MoveRecord | None) -> Result:
        """There already, unless the journal knows a later decision than the services, whose store was away."""
        move, number = plan.move, plan.fencing_number
        if newest is not None and newest.fencing_number > number:
            return Result(move, Ending.REFUSED, plan, problem=outdated(move, number, newest.fencing_number))
        if newest is not None and not newest.ended and _led_here(plan, newest):
            self._outside.journal.keep(replace(newest, step=Step.DONE, fencing_number=number, problem=""))
        return Result(move, Ending.ALREADY_THERE, plan, number)


def _interrupted(move: Move, newest: MoveRecord | None) -> MoveRecord | None:
    """The group's newest operation, if it is this move and has not ended."""
    if newest is None or newest.ended:
        return None
    same = (newest.move.origin, newest.move.target) == (move.origin, move.target)
    return newest if same else None


def _led_here(plan: MovePlan, record: MoveRecord) -> bool:
    """Whether an unfinished move is what brought the group to where it has arrived: no offsets are written if only who publishes moves."""
    same = record.move.target == plan.move.target
    return same and bool(record.written or (plan.publisher_only and record.move.origin == plan.move.origin))


def _unfinished(plan: MovePlan, newest: MoveRecord | None) -> MoveRecord | None:
    """The group's newest operation, if it left the same cluster, has not ended, and the group is not where it led."""
    if newest is None or newest.ended or newest.move.origin != plan.move.origin:
        return None
    assignment = plan.facts.assignment
    consumed = None if assignment is None else assignment.consumed_cluster
    return None if newest.move.target == consumed else newest
