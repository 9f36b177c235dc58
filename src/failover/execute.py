"""Carries a move out, step by step. Every step may be taken again, so an interrupted move is simply run again.

1. Keep a snapshot of the group.
2. Fence: record that the group moves. FailoverConsumers stop and report, the syncjob leaves the group alone.
3. Planned: wait until the origin has no member and its commits stand still, then until all that was consumed is at
   the target and indexed. If that takes too long the fence is lifted and nothing has changed.
4. Ask for the final offsets, write them at the target, read them back.
5. Record the target as primary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import structlog

from failover.facts import Kind, Move, PartitionFacts
from failover.outside import Outside
from failover.plan import MovePlan, make_plan
from failover.record import Commits, MoveRecord, Step
from parallax.domain.errors import FencedError, ParallaxError, RefusedError, UnavailableError
from parallax.domain.ids import UNKNOWN_EPOCH, GroupName
from parallax.ports import GroupCommit
from parallax.runtime.deadline import Deadline
from syncjob.plan import metadata_for

_log = structlog.get_logger(__name__)

_POLL_S = 0.25
_WRITE_ATTEMPTS = 3

Tell = Callable[[str], None]
"""Called with a few words at each step."""


class Ending(Enum):
    """What became of a group's move."""

    MOVED = "moved"
    ALREADY_THERE = "already_there"
    REFUSED = "refused"
    """Nothing was changed."""
    ABANDONED = "abandoned"
    """It took too long; the fence was lifted, and the group goes on where it was."""
    INTERRUPTED = "interrupted"
    """Something did not answer: run the same command again."""


@dataclass(frozen=True, slots=True)
class Result:
    """A group's move as it ended.

    Attributes:
        plan: the last one made; with MOVED, of the offsets that were written.
        fencing_number: that holds now; 0 if it is not known.
        problem: why it was not moved; empty otherwise.
    """

    move: Move
    ending: Ending
    plan: MovePlan | None
    fencing_number: int = 0
    problem: str = ""
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a planned move waits, and what it may cross.

    Attributes:
        drain_ms: for the group to leave its cluster.
        catch_up_ms: for the target to have all that was consumed.
        handover_ms: disaster: for FailoverConsumers to hear of the fence and report what they have delivered, so
            that whoever gets their partitions goes on from there.
        accept_gaps: go on although records will never be delivered; the plan names them.
    """

    drain_ms: float = 60_000
    catch_up_ms: float = 60_000
    handover_ms: float = 1_000
    accept_gaps: bool = False


class Mover:
    """Moves one group at a time; several may be at work in threads of their own."""

    def __init__(self, outside: Outside, limits: Limits) -> None:
        self._outside = outside
        self._limits = limits
        self._fenced_at_s: dict[GroupName, float] = {}

    def fence_ahead(self, move: Move) -> None:
        """Fence a group that `move` will move: many groups' consumers then report at the same time.

        What is in the way is met again, and told, by `move`.
        """
        try:
            plan = make_plan(self._outside.facts(move))
            if not plan.arrived and not plan.refusals(accept_gaps=self._limits.accept_gaps):
                self._moving(self._open_record(move), lambda _words: None).fence()
        except ParallaxError as error:
            _log.info("fencing_ahead_failed", group=move.group, problem=f"[{error.code}] {error}")

    def move(self, move: Move, tell: Tell = lambda _words: None) -> Result:
        """Carry the move out, or go on with it where it was interrupted."""
        began_ms = self._outside.now_ms()
        result = self._attempt(move, tell)
        took_ms = self._outside.now_ms() - began_ms
        _log.info(
            "failover",
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
        record: MoveRecord | None = None
        try:
            tell("planning")
            plan = make_plan(self._outside.facts(move))
            if plan.arrived:
                self._close_open_record(move, plan.fencing_number)
                return Result(move, Ending.ALREADY_THERE, plan, plan.fencing_number)
            refusals = plan.refusals(accept_gaps=self._limits.accept_gaps)
            if refusals:
                return Result(move, Ending.REFUSED, plan, problem="; ".join(refusals))
            record = self._open_record(move)
            return self._moving(record, tell).run()
        except ParallaxError as error:
            problem = f"[{error.code}] {error}"
            if isinstance(error, UnavailableError):
                return Result(move, Ending.INTERRUPTED, plan, problem=problem)
            return Result(
                move, Ending.REFUSED if record is None else Ending.INTERRUPTED, plan, problem=problem
            )

    def _moving(self, record: MoveRecord, tell: Tell) -> _Moving:
        return _Moving(self._outside, self._limits, record, tell, self._fenced_at_s)

    def _open_record(self, move: Move) -> MoveRecord:
        """The record of this move, taken up again if it was interrupted: its snapshot is that of the beginning."""
        newest = next(iter(self._outside.records(move.group)), None)
        same = newest is not None and (newest.move.origin, newest.move.target) == (move.origin, move.target)
        if newest is not None and same and not newest.ended:
            return self._outside.keep(replace(newest, move=move, problem=""))
        snapshot = self._outside.snapshot(move, self._outside.assignment(move.group))
        return self._outside.begin(move, snapshot)

    def _close_open_record(self, move: Move, fencing_number: int) -> None:
        """A move that was interrupted between its last decision and its last note."""
        newest = next(iter(self._outside.records(move.group)), None)
        if newest is not None and newest.step is Step.WRITTEN and newest.move.target == move.target:
            self._outside.keep(replace(newest, step=Step.DONE, fencing_number=fencing_number))


class _AbandonedError(Exception):
    """The move can't go on, and nothing was written yet."""


class _Moving:
    """One move under way."""

    def __init__(
        self,
        outside: Outside,
        limits: Limits,
        record: MoveRecord,
        tell: Tell,
        fenced_at_s: dict[GroupName, float],
    ) -> None:
        self._outside = outside
        self._limits = limits
        self._record = record
        self._move = record.move
        self._tell = tell
        self._fenced_at_s = fenced_at_s
        self._reason = f"failover {record.operation_id}"

    def run(self) -> Result:
        """Take the steps that are left."""
        try:
            self.fence()
            if self._move.kind is Kind.PLANNED:
                self._drain()
                self._catch_up()
            else:
                self._hand_over()
            plan = self._write()
        except _AbandonedError as error:
            return self._abandon(str(error))
        except ParallaxError as error:
            self._outside.keep(replace(self._record, problem=f"[{error.code}] {error}"))
            raise
        self._switch()
        return Result(self._move, Ending.MOVED, plan, self._record.fencing_number)

    def fence(self) -> None:
        """Record that the group moves."""
        self._tell("fencing")
        number = self._outside.fence(self._move, self._reason)
        self._keep(step=Step.FENCED, fencing_number=number)
        self._fenced_at_s.setdefault(self._move.group, self._outside.clock())

    def _hand_over(self) -> None:
        """Let FailoverConsumers hear of the fence and report what they have delivered."""
        since_s = self._outside.clock() - self._fenced_at_s[self._move.group]
        remaining_s = self._limits.handover_ms / 1_000 - since_s
        if remaining_s > 0:
            self._tell("waiting for consumers to report")
            self._outside.wait(remaining_s)

    def _drain(self) -> None:
        """Wait until nobody consumes at the origin: no members, and commits that stand still."""
        origin = self._move.origin
        deadline = Deadline.after_ms(self._limits.drain_ms, self._outside.clock)
        before: Commits | None = None
        while True:
            members = self._outside.members(self._move.group, origin)
            commits = self._outside.commits(self._move.group, origin)
            if members == 0 and commits is not None and commits == before:
                return
            before = commits
            if deadline.passed:
                raise _AbandonedError(self._still_there(members))
            self._tell(
                "waiting for the group to leave" if members else "waiting for its commits to stand still"
            )
            self._outside.wait(_POLL_S)

    def _still_there(self, members: int | None) -> str:
        group, origin = self._move.group, self._move.origin
        if members is None:
            return f"{origin} stopped answering; with --disaster the move goes by what was last seen of it"
        if members:
            return (
                f"group {group} still has {members} member(s) in {origin}: stop them and run the command again "
                "(a FailoverConsumer that follows the primary stops by itself)"
            )
        return f"group {group} goes on committing in {origin} without members: stop its consumers"

    def _catch_up(self) -> None:
        """Wait until all that was consumed is at the target, and the index knows it."""
        deadline = Deadline.after_ms(self._limits.catch_up_ms, self._outside.clock)
        while not all(item.settled for item in self._offsets()):
            if deadline.passed:
                waiting = [str(item.topic_partition) for item in self._offsets() if not item.settled]
                raise _AbandonedError(
                    f"{', '.join(waiting[:5])}: {self._move.target} does not have all that was consumed, or the "
                    "index does not tell: look whether replication runs (parallax routes)"
                )
            self._tell("waiting for consumed records to arrive")
            self._outside.wait(_POLL_S)

    def _offsets(self) -> tuple[PartitionFacts, ...]:
        return self._outside.offsets(self._move)

    def _write(self) -> MovePlan:
        self._tell("writing offsets")
        writer = self._outside.writer(self._move.target)
        for _ in range(_WRITE_ATTEMPTS):
            plan, final = self._final()
            number = self._record.fencing_number
            wanted = {
                item.topic_partition: GroupCommit(
                    item.answer.resume_offset, UNKNOWN_EPOCH, metadata_for(item.answer, number)
                )
                for item in final
            }
            try:
                writer.commit_for(self._move.group, wanted)
            except FencedError as error:
                raise _AbandonedError(
                    f"group {self._move.group} has joined in {self._move.target} meanwhile: stop it there "
                    f"and run the command again ({error})"
                ) from error
            found = writer.committed(self._move.group)
            if all(_stands(found.get(item), commit) for item, commit in wanted.items()):
                self._outside.save_progress(self._move, final)
                self._keep(step=Step.WRITTEN, written=wanted)
                return plan
        raise RefusedError(
            f"group {self._move.group}: somebody else commits in {self._move.target}: its offsets did not stay "
            f"as written in {_WRITE_ATTEMPTS} attempts; stop those consumers and run the command again"
        )

    def _final(self) -> tuple[MovePlan, tuple[PartitionFacts, ...]]:
        """The offsets to write, judged once more: the group may have gone on since the plan.

        Whether it has members at the target is said by the target itself when the offsets are written.
        """
        facts = self._outside.facts(self._move)
        alone = None if facts.members_at_target is None else 0
        plan = make_plan(replace(facts, members_at_target=alone))
        refusals = plan.refusals(accept_gaps=self._limits.accept_gaps)
        if refusals:
            raise _AbandonedError("; ".join(refusals))
        return plan, facts.partitions

    def _switch(self) -> None:
        self._tell("switching")
        number = self._outside.settle(self._move, self._reason, self._record.fencing_number)
        self._keep(step=Step.DONE, fencing_number=number)

    def _abandon(self, problem: str) -> Result:
        """Lift the fence: the group goes on where it was."""
        number = self._record.fencing_number
        if self._record.step is Step.FENCED:
            back = self._move.reversed(self._record.snapshot.primary)
            number = self._outside.settle(back, f"{self._reason} abandoned")
        self._keep(step=Step.ABANDONED, fencing_number=number, problem=problem)
        return Result(self._move, Ending.ABANDONED, None, number, problem)

    def _keep(self, **changes: object) -> None:
        self._record = self._outside.keep(replace(self._record, **changes))  # type: ignore[arg-type] # by name


def _stands(found: GroupCommit | None, wanted: GroupCommit) -> bool:
    return found is not None and (found.next_offset, found.metadata) == (wanted.next_offset, wanted.metadata)
