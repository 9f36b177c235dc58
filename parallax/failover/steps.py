"""One move of one group, step by step. Every step may be taken again, so an interrupted move is simply run again.

1. Keep a snapshot of the group.
2. Fence: record that the group moves. FailoverConsumers stop and report, the syncjob leaves the group alone.
3. Planned: wait until the origin has no member and its commits stand still, then until all that was consumed is at
   the target and indexed. If that takes too long the fence is lifted and nothing has changed.
4. Ask for the final offsets (those of the plan do if nothing has changed), write them at the target, read them back.
5. Record the target as primary.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import structlog

from parallax.client.answer import ResumeAnswer
from parallax.domain.commits import Commits, ObservedCommit
from parallax.domain.formats import apart
from parallax.domain.ids import UNKNOWN_EPOCH
from parallax.domain.primary import Assignment, Stage
from parallax.errors import (
    ClusterUnavailableError,
    FencedError,
    ParallaxError,
    RefusedError,
    UnavailableError,
)
from parallax.failover.facts import MoveKind, origin_positions
from parallax.failover.journal import MoveRecord, Snapshot, Step, mark_of, own_reason, reason_of
from parallax.failover.outside import Outside
from parallax.failover.plan import Ending, MoveLimits, MovePlan, Result, make_plan, redelivered_beyond
from parallax.failover.put_back import put_back_progress
from parallax.failover.services import Positions
from parallax.failover.waiting import POLL_S, AbandonedError, Tell, Waiting, behind
from parallax.runtime.tracing import span

_log = structlog.get_logger(__name__)
_WRITE_ATTEMPTS = 3
_FENCE_HOLDS_S = 2.0
"""A fence this young is not asked about again before the offsets are written."""
_SIGN_EVERY_S = 2.0
"""While it waits, a move says in the journal that it goes on: others tell it from one whose process has ended."""
_PLAN_HOLDS_MS = 10_000
"""A plan that was made longer ago is asked about again: retention goes on."""


class Moving:
    """One move under way.

    Args:
        outside: all that it touches.
        limits: how long it waits, and what it may cross.
        record: what it has done so far.
        plan: its answers stand if the group has stood still since, and it is off if somebody has decided since.
        after_unfinished: an earlier attempt, or a move elsewhere, did not come to its end: what it has replaced is put back.
    """

    def __init__(
        self,
        outside: Outside,
        limits: MoveLimits,
        record: MoveRecord,
        plan: MovePlan,
        *,
        after_unfinished: bool = False,
    ) -> None:
        self._outside = outside
        self._limits = limits
        self._record = record
        self._move = record.move
        self._waiting = Waiting(outside.time, outside.clusters, outside.services, record.move)
        self._begun_at_s = outside.time.clock()
        self._fenced_at_s: float | None = None
        self._fenced_as: Assignment | None = None
        self._plan = plan
        self._answers = plan.partitions
        self._after_unfinished = after_unfinished
        self._reason = own_reason(reason_of(record.operation_id))
        self._kept_at_s = self._begun_at_s

    @property
    def plan(self) -> MovePlan:
        """By which it began."""
        return self._plan

    @property
    def record(self) -> MoveRecord:
        """How far it has come."""
        return self._record

    def run(self, tell: Tell) -> Result:
        """Take the steps that are left.

        Args:
            tell: called with a few words at each step.

        Raises:
            ParallaxError, StoppedError: it ends here; `record` says how far it has come.
        """
        self._waiting.tell = partial(self._tell, tell)
        try:
            fenced_at_s = self.fence() if self._fenced_at_s is None else self._fenced_at_s
            self._outside.time.go_on()
            left: Commits = {}
            if self._move.kind is MoveKind.PLANNED:
                before = self._record.snapshot.commits.get(self._move.origin)
                with self._step("wait for members to leave"):
                    left = self._waiting.for_members_to_leave(
                        self._limits.drain_ms, seen=(self._begun_at_s, before)
                    )
                with self._step("wait for all to arrive"):
                    arrived = self._plan_unless_consumed(left) or self._waiting.for_all_to_arrive(
                        left, self._limits.catch_up_ms, self._record.assigned
                    )
            else:
                with self._step("wait for reports"):
                    self._waiting.for_reports(fenced_at_s + self._limits.handover_ms / 1_000)
                    arrived = self._plan_unless_reported()
            self._outside.time.go_on()
            with self._step("write offsets"):
                plan = self._write(arrived, left)
            self._outside.time.go_on()
        except AbandonedError as error:
            return self._abandon(str(error))
        except ParallaxError as error:
            self._note(error)
            raise
        self._switch()
        return Result(self._move, Ending.MOVED, plan, self._record.fencing_number)

    def fence(self) -> float:
        """Record that the group moves; since when, on the command's clock."""
        self._waiting.tell("fencing")
        with self._step("fence"):
            self._fenced_as = self._outside.services.fence(
                self._move, self._reason, self._plan.fencing_number
            )
        self._keep(step=Step.FENCED, fencing_number=self._fenced_as.decision.fencing_number)
        self._fenced_at_s = fenced_at_s = self._outside.time.clock()
        # Not before the fence: whoever else carries the move out may come to its end until then.
        if self._after_unfinished and put_back_progress(self._outside, self._record):
            self._answers = ()
        return fenced_at_s

    # --- whether the plan's answers are final --------------------------------------------------------------

    def _plan_unless_consumed(self, left: Commits) -> tuple[ResumeAnswer, ...]:
        """The plan's answers, if the group has stood still since; else none."""
        return self._plan_at({item: commit.next_offset for item, commit in left.items()})

    def _plan_unless_reported(self) -> tuple[ResumeAnswer, ...]:
        """The plan's answers, if its origin is gone and nobody has reported more of it since; else none."""
        group, origin = self._move.group, self._move.origin
        if self._outside.clusters.commits(group, origin) is not None:
            return ()
        # Where the service asked the cluster itself, and this command can't, it may know more by now.
        if not all(item.basis == "observed" for item in self._answers):
            return ()
        seen, unreadable = apart(self._outside.groups.observed(group, origin))
        if unreadable:
            return ()
        return self._plan_at({item.topic_partition: item.next_offset for item in seen})

    def _plan_at(self, positions: Positions) -> tuple[ResumeAnswer, ...]:
        """The plan's answers, if asking again from the positions would give the same: the index only grows."""
        answers = self._answers
        young = 0 <= self._outside.time.now_ms() - self._plan.facts.now_ms < _PLAN_HOLDS_MS
        final = bool(answers) and all(item.final for item in answers)
        unmoved = origin_positions(answers) == positions
        return answers if young and final and unmoved and self._target_has(answers) else ()

    def _target_has(self, answers: Collection[ResumeAnswer]) -> bool:
        """Whether the places that the answers name are still there: retention goes on, a topic may be made anew."""
        target = self._outside.clusters.view(self._move.target)
        try:
            topics = target.topics()
            logs = target.log_ranges([item.topic_partition for item in answers])
        except ClusterUnavailableError:
            return False
        return all(
            (info := topics.get(item.topic_partition.topic)) is not None
            and info.topic_id == item.target_topic_id
            and (log := logs.get(item.topic_partition)) is not None
            and log.low_watermark <= item.resume_offset <= log.high_watermark
            for item in answers
        )

    # --- the steps -----------------------------------------------------------------------------------------

    def _write(self, arrived: tuple[ResumeAnswer, ...], left: Commits) -> MovePlan:
        """Write the final offsets: ``arrived``, if there are any and the group has not gone on since it ``left``."""
        self._waiting.tell("writing offsets")
        why = ""
        for attempt in range(_WRITE_ATTEMPTS):
            if attempt:
                self._outside.time.pause(POLL_S)
            before = self._origin_commits() if attempt else left
            plan = self._final(() if attempt else arrived)
            final = plan.facts.partitions
            late = behind(final, before)
            if late:
                why = f"the services do not know the group's newest commits yet ({', '.join(late[:5])})"
                continue
            wanted, target = self._commit(final), self._outside.clusters.writer(self._move.target)
            present = target.committed(self._move.group)
            if not all(commit.is_same(present.get(item)) for item, commit in wanted.items()):
                why = f"somebody else commits in {self._move.target}; stop those consumers"
                continue
            if self._origin_commits() != before:
                why = self._waiting.still_there(0)
                continue
            left_behind = {item.topic_partition: item.progress for item in final}
            self._outside.services.report_progress(self._move.group, left_behind)
            self._note_seen(final)
            marks = {item: mark_of(commit) for item, commit in wanted.items()}
            left_at, snapshot = origin_positions(final), self._snapshot(before)
            self._keep(step=Step.WRITTEN, written=marks, left_at=left_at, snapshot=snapshot)
            return plan
        raise RefusedError(
            f"group {self._move.group}: its offsets did not stand in {self._move.target} after {_WRITE_ATTEMPTS} "
            f"attempts: {why}; then run the command again"
        )

    def _note_seen(self, final: Collection[ResumeAnswer]) -> None:
        """Remember that these offsets stand at the target: if they are gone later, the group has been deleted since."""
        at_ms = self._outside.time.now_ms()
        self._outside.groups.save_observed(
            [
                ObservedCommit(
                    self._move.group,
                    self._move.target,
                    item.topic_partition,
                    item.target_topic_id,
                    item.resume_offset,
                    UNKNOWN_EPOCH,
                    at_ms,
                )
                for item in final
            ]
        )

    def _snapshot(self, last: Commits) -> Snapshot:
        """With what the group has committed while it was being stopped: a rollback reads none of that again."""
        snapshot = self._record.snapshot
        return replace(snapshot, commits={**snapshot.commits, self._move.origin: last}) if last else snapshot

    def _origin_commits(self) -> Commits:
        """Planned: what the final offsets must go by. In a disaster nothing of the origin is asked."""
        if self._move.kind is MoveKind.DISASTER:
            return {}
        commits = self._outside.clusters.commits(self._move.group, self._move.origin)
        if commits is None:
            raise AbandonedError(self._waiting.still_there(None))
        return commits

    def _final(self, arrived: tuple[ResumeAnswer, ...]) -> MovePlan:
        """The offsets to write, judged once more: the group may have gone on since the plan.

        Whether it has members at the target is said by the target itself when the offsets are written.
        """
        reported = {} if arrived else self._reported()
        facts = self._outside.facts(
            self._move, reported, self._record.assigned, known=arrived, decided=self._decided_just_now()
        )
        alone = None if facts.members_at_target is None else 0
        plan = make_plan(replace(facts, members_at_target=alone))
        if plan.fencing_number != self._record.fencing_number:
            raise AbandonedError(
                f"group {self._move.group} has fencing number {plan.fencing_number}, this move's is "
                f"{self._record.fencing_number}: somebody else has decided meanwhile"
            )
        refusals = plan.refusals(accept_gaps=self._limits.accept_gaps)
        if refusals:
            raise AbandonedError("; ".join(refusals))
        if too_many := redelivered_beyond(plan, self._limits):
            raise AbandonedError(
                f"{too_many}, from where the group has stopped: start its consumers in {self._move.origin} again and "
                "run the command again"
            )
        if self._move.kind is MoveKind.PLANNED and facts.members:
            raise AbandonedError(self._waiting.still_there(facts.members))
        return plan

    def _decided_just_now(self) -> Assignment | None:
        """What the fence has said, unless others have had time to decide since; the end of the move would tell."""
        if self._fenced_at_s is None or self._outside.time.clock() - self._fenced_at_s > _FENCE_HOLDS_S:
            return None
        return self._fenced_as

    def _reported(self) -> Positions:
        """In a disaster consumers don't commit when they are stopped, for the cluster may be dead: they report."""
        if self._move.kind is MoveKind.PLANNED:
            return {}
        assignment = self._decided_just_now() or self._outside.services.assignment(self._move.group)
        if assignment is None:
            return {}
        since_ms, before = assignment.decision.decided_at_ms, self._plan.facts.assignment
        if (
            before is not None and before.decision.stage is Stage.MOVING
        ):  # they may have reported to the first fence
            since_ms = min(since_ms, before.decision.decided_at_ms)
        return self._outside.reported_since(self._move, since_ms)

    def _commit(self, final: tuple[ResumeAnswer, ...]) -> Commits:
        wanted = {item.topic_partition: item.commit(self._record.fencing_number) for item in final}
        self._raise_if_overtaken()
        try:
            self._outside.clusters.writer(self._move.target).commit_for(self._move.group, wanted)
        except FencedError as error:
            raise AbandonedError(
                f"group {self._move.group} has joined in {self._move.target} meanwhile: stop it there "
                f"and run the command again ({error})"
            ) from error
        return wanted

    def _switch(self) -> None:
        self._waiting.tell("switching")
        with self._step("switch"):
            number = self._outside.services.settle(self._move, self._reason, self._record.fencing_number)
        self._keep(step=Step.DONE, fencing_number=number)
        if self._after_unfinished:
            self._supersede()

    def _supersede(self) -> None:
        """End those that led elsewhere: not before this one is done, for what is to be put back is found by them."""
        try:
            self._outside.journal.supersede(self._record)
        except ParallaxError as error:  # the group has arrived
            _log.info("supersede_lost", group=self._move.group, problem=f"[{error.code}] {error}")

    def _step(self, name: str) -> AbstractContextManager[object]:
        return span(
            f"parallax.move: {name}",
            parallax__group=self._move.group,
            parallax__move_id=self._record.operation_id,
        )

    def _abandon(self, problem: str) -> Result:
        """Lift the fence: the group goes on where it was, unless somebody else has decided about it since."""
        number = self._record.fencing_number
        if self._record.step is Step.FENCED:
            back = self._move.reversed(self._record.snapshot.primary)
            try:
                number = self._outside.services.settle(back, f"{self._reason} abandoned", number)
            except FencedError as error:
                problem = f"{problem}; {error}"
                self._raise_if_overtaken()
        self._keep(step=Step.ABANDONED, fencing_number=number, problem=problem)
        return Result(self._move, Ending.ABANDONED, None, number, problem)

    def _note(self, error: ParallaxError) -> None:
        problem = f"[{error.code}] {error}"
        if isinstance(error, FencedError):  # the record may be another's by now
            return
        try:
            self._keep(problem=problem)
        except ParallaxError as second:  # the cause itself is raised by the caller
            _log.warning(
                "note_lost", group=self._move.group, problem=problem, why=f"[{second.code}] {second}"
            )

    def _raise_if_overtaken(self) -> None:
        """The record is left as it is then: it tells of the other's steps.

        Raises:
            FencedError: another process has gone on with this very move.
        """
        newest, number = self._outside.journal.newest(self._move.group), self._record.fencing_number
        if newest is None or newest.operation_id != self._record.operation_id:
            return
        if newest.fencing_number > number:
            raise FencedError(
                f"group {self._move.group}: another process has gone on with this move, by fencing number "
                f"{newest.fencing_number}, not {number}; this one leaves it alone"
            )

    def _tell(self, tell: Tell, words: str) -> None:
        tell(words)
        if self._outside.time.clock() - self._kept_at_s >= _SIGN_EVERY_S:
            try:
                self._raise_if_overtaken()
                self._keep()
            except UnavailableError as error:  # the next step will say so if it has to
                _log.info("sign_lost", group=self._move.group, problem=f"[{error.code}] {error}")

    def _keep(self, **changes: object) -> None:
        self._kept_at_s = self._outside.time.clock()
        self._record = self._outside.journal.keep(replace(self._record, **changes))  # type: ignore[arg-type] # by name
