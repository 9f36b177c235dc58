"""One drill: canary records flow, the drill's group goes to another region and back, and nothing may be missing."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import structlog

from parallax.domain.audit import AuditStage
from parallax.domain.ids import ClusterName, GroupName, RegionName, aggregate_cluster, region_of
from parallax.domain.primary import Stage
from parallax.errors import ParallaxError, RefusedError
from parallax.failover.drill.figures import DrillFigures, Leg, Samples, figures, outstanding, timeline
from parallax.failover.drill.history import DrillEnding, DrillRecord, keep, kept, seen
from parallax.failover.execute import Mover
from parallax.failover.facts import Move, MoveKind
from parallax.failover.outside import Outside
from parallax.failover.plan import Ending, MoveLimits
from parallax.failover.timekeeper import StoppedError
from parallax.failover.waiting import POLL_S, Tell

_log = structlog.get_logger(__name__)

_STAGES = {
    DrillEnding.PASSED: AuditStage.DONE,
    DrillEnding.FAILED: AuditStage.FAILED,
    DrillEnding.INTERRUPTED: AuditStage.UNKNOWN,
}
_POLL_S = 0.1
_SIGN_EVERY_S = 2.0
_MEMBERLESS_S = 10.0
"""A drill that runs has no members for moments only, while it begins and between two clusters."""


class Canary(Protocol):
    """Records that are produced everywhere, and the group that consumes them."""

    def open(self, drill_id: str) -> None:
        """Begin to produce and to consume.

        Raises:
            RefusedError: a cluster does not let it.
            UnavailableError: a cluster does not answer.
        """

    def check(self) -> None:
        """Whether all goes on.

        Raises:
            ParallaxError: the consumer ended by itself, or a cluster refuses records.
        """

    def samples(self) -> Samples:
        """What has happened so far; after `close`, all of it."""

    def now_ms(self) -> float:
        """Milliseconds since `open`."""

    def stop_producing(self) -> None:
        """Produce no more; all that is under way is acknowledged or given up then."""

    def close(self) -> None:
        """End; no member is left behind."""


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """What a drill does.

    Attributes:
        origin: where the group is at home.
        to: where it goes, and comes back from.
        regions: that produce.
        flow_ms: how long records may take to begin to flow, and to come in after a move.
        records: of every producing region that have to be delivered before each move and after the last one.
        quiet_ms: how long to wait for repetitions once every record has come.
    """

    group: GroupName
    topic: str
    origin: RegionName
    to: RegionName
    regions: tuple[RegionName, ...]
    flow_ms: float = 90_000
    records: int = 20
    quiet_ms: float = 1_000
    limits: MoveLimits = field(default_factory=MoveLimits)

    @property
    def home(self) -> ClusterName:
        """The cluster that the group begins and ends in."""
        return aggregate_cluster(self.origin)

    def move(self, *, back: bool = False) -> Move:
        """There, or back."""
        away = aggregate_cluster(self.to)
        there = Move(self.group, self.home, away, self.to, MoveKind.PLANNED)
        return there.reversed(self.origin) if back else there


class _Signs:
    """Says in the journal that a drill goes on, whatever it waits for, until this is left.

    Attributes:
        version: of the newest note.
    """

    def __init__(self, outside: Outside, record: DrillRecord) -> None:
        self._outside = outside
        self._record = record
        self.version = record.version
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drill-signs", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_SIGN_EVERY_S):
            self.version = max(self.version + 1, self._outside.time.now_ms() * 1_000)
            try:
                keep(self._outside.journal.notes, replace(self._record, version=self.version))
            except ParallaxError as error:  # the next one may be kept
                _log.info("sign_lost", drill=self._record.drill_id, problem=f"[{error.code}] {error}")


class DrillRun:
    """Carries a drill out.

    Args:
        outside: services, clusters, store.
        canary: the records and their consumer.
        plan: what to do.
        prove: the verdict of a proof after the fact over the last two moves, asked once the consumer has left.
        tell: called with a few words at each step.
        drill_id: by which it is found again; empty: a new one.
    """

    def __init__(
        self,
        outside: Outside,
        canary: Canary,
        plan: DrillPlan,
        *,
        prove: Callable[[], str],
        tell: Tell = lambda _words: None,
        drill_id: str = "",
    ) -> None:
        self._outside = outside
        self._canary = canary
        self._plan = plan
        self._prove = prove
        self._tell = tell
        self._drill_id = drill_id or uuid.uuid4().hex
        self._legs: list[Leg] = []
        self._alone = False

    def run(self) -> DrillRecord:
        """The drill as it ended; whatever happens, the group is taken home as far as that is possible.

        Raises:
            StoreUnavailableError: the drill could not be noted before it began; nothing was done.
        """
        plan = self._plan
        began_ms = self._outside.time.now_ms()
        record = DrillRecord(
            self._drill_id,
            plan.group,
            plan.topic,
            plan.origin,
            plan.to,
            began_ms,
            began_ms * 1_000,
            actor=self._outside.operator.name,
        )
        act = self._outside.auditor.begin(
            self._outside.operator,
            "drill",
            plan.group,
            before={"region": plan.origin},
            after={"region": plan.to, "drill_id": record.drill_id},
        )
        try:
            keep(self._outside.journal.notes, record)
        except ParallaxError as error:
            self._outside.auditor.end(act, AuditStage.FAILED, f"[{error.code}] {error}")
            raise
        with _Signs(self._outside, record) as signs:
            record = self._carry_out(record)
        ended_ms = self._outside.time.now_ms()
        record = replace(
            record, version=max(signs.version + 1, ended_ms * 1_000), took_ms=ended_ms - began_ms
        )
        try:
            keep(self._outside.journal.notes, record)
        except ParallaxError as error:  # the drill itself is over: its result must not be lost with the note
            record = replace(
                record, problem=f"{record.problem or 'passed'}; not kept: [{error.code}] {error}"
            )
        act.after = {"ending": record.ending.value}
        self._outside.auditor.end(act, _STAGES[record.ending], record.problem)
        _log.info("drill_ended", ending=record.ending.value, problem=record.problem, left=record.left)
        return record

    def _carry_out(self, record: DrillRecord) -> DrillRecord:
        """The drill with how it ended, why, what it left, and what was measured."""
        plan = self._plan
        complete = False
        ending, problem, proof = DrillEnding.PASSED, "", ""
        try:
            self._wait_to_be_alone(record)
            self._bring_home(self._outside)
            self._tell("beginning to produce and to consume canary records")
            self._canary.open(record.drill_id)
            self._there_and_back()
            self._wait_for_the_rest()
            complete = True
        except StoppedError:
            ending, problem = DrillEnding.INTERRUPTED, "the command was stopped"
        except ParallaxError as error:
            ending, problem = DrillEnding.FAILED, f"[{error.code}] {error}"
        except Exception as error:  # noqa: BLE001 - whatever it is, no consumer and no moved group may stay behind
            _log.error("drill_broke_off", exc_info=error, drill=record.drill_id)
            ending = DrillEnding.FAILED
            problem = f"an error of Parallax itself ({type(error).__name__}), which the log has"
        left = self._clean_up()
        samples = self._canary.samples()
        measured = figures(samples, self._legs, complete=complete)
        if ending is DrillEnding.PASSED:
            proof, unproven = self._proven()
            problem = "; ".join(filter(None, (_shortfall(measured), unproven)))
            ending = DrillEnding.FAILED if problem else ending
        return replace(
            record,
            ending=ending,
            problem=problem,
            left=left,
            proof=proof,
            figures=measured if samples.acknowledged else None,
            timeline=timeline(samples, (plan.origin, plan.to)) if samples.acknowledged else None,
        )

    def _wait_to_be_alone(self, record: DrillRecord) -> None:
        """Members of a killed drill go when their sessions end; those of one that runs stay, and must not be moved."""
        plan, group, time = self._plan, self._plan.group, self._outside.time
        before = kept(self._outside.journal.notes)[1:2]
        memberless_s = _MEMBERLESS_S if any(item.ending is DrillEnding.RUNNING for item in before) else 0.0
        since_s = time.clock()
        deadline = time.deadline(plan.limits.drain_ms)
        clusters = [plan.home, aggregate_cluster(plan.to)]
        while True:
            there = [cluster for cluster in clusters if self._outside.clusters.members(group, cluster)]
            earlier = self._earlier_one_that_runs(record)
            if deadline.passed and earlier is not None:
                raise RefusedError(
                    f"drill {earlier.drill_id} {f'of {earlier.actor} ' if earlier.actor else ''}runs and has group {group}, "
                    "which belongs to one drill at a time: wait until it has ended (parallax drills), or stop it"
                )
            if deadline.passed and there:
                raise RefusedError(
                    f"group {group} has members in {' and '.join(there)}: does another drill run? It belongs to one "
                    "drill at a time"
                )
            since_s = time.clock() if there else since_s
            if earlier is None and not there and time.clock() - since_s >= memberless_s:
                break
            self._tell("waiting for an earlier drill to end, or for its members to vanish")
            self._outside.time.pause(POLL_S)
        self._alone = True

    def _earlier_one_that_runs(self, record: DrillRecord) -> DrillRecord | None:
        """A drill of the same group that began before this one and goes on: it may have no member yet for as long as its topic is made."""
        now_ms = self._outside.time.now_ms()
        ours = (record.started_at_ms, record.drill_id)
        return next(
            (
                item
                for item in kept(self._outside.journal.notes)
                if item.group == record.group
                and (item.started_at_ms, item.drill_id) < ours
                and seen(item, now_ms).ending is DrillEnding.RUNNING
            ),
            None,
        )

    def _there_and_back(self) -> None:
        plan = self._plan
        self._wait_for_records(plan.origin, 0.0)
        for back in (False, True):
            move = plan.move(back=back)
            to = region_of(move.target)
            asked_ms = self._canary.now_ms()
            result = Mover(self._outside, plan.limits).move(move, self._tell)
            self._legs.append(Leg(region_of(move.origin), to, asked_ms, self._canary.now_ms()))
            self._outside.time.go_on()
            if result.ending is not Ending.MOVED:
                raise RefusedError(f"the move to {to} ended as {result.ending.value}: {result.problem}")
            self._wait_for_records(to, asked_ms)

    def _wait_for_records(self, region: RegionName, since_ms: float) -> None:
        """Until enough records of every producing region were delivered in a region."""
        self._tell(f"waiting for records of all regions in {region}")
        deadline = self._outside.time.deadline(self._plan.flow_ms)
        while True:
            counts = dict.fromkeys(self._plan.regions, 0)
            self._canary.check()
            for item in self._canary.samples().delivered:
                if item.region == region and item.at_ms > since_ms:
                    counts[RegionName(item.record[0])] += 1
            short = [name for name, count in counts.items() if count < self._plan.records]
            if not short:
                return
            if deadline.passed:
                raise RefusedError(
                    f"records of {', '.join(short)} did not reach the drill's consumer in {region} within "
                    f"{self._plan.flow_ms / 1_000:g} s: is {self._plan.topic} replicated there (parallax routes)?"
                )
            self._outside.time.pause(_POLL_S)

    def _wait_for_the_rest(self) -> None:
        """Until all that was acknowledged is delivered, or had its time; then for what may come twice."""
        self._tell("waiting for the last records")
        self._canary.stop_producing()
        deadline = self._outside.time.deadline(self._plan.flow_ms)
        while outstanding(self._canary.samples()) and not deadline.passed:
            self._canary.check()
            self._outside.time.pause(_POLL_S)
        self._outside.time.pause(self._plan.quiet_ms / 1_000)
        self._canary.check()

    def _clean_up(self) -> str:
        """End producing and consuming and take the group home, a stopped command's too; the state left."""
        self._tell("cleaning up")
        self._canary.close()
        if not self._alone:
            return f"group {self._plan.group} was not touched"
        calm = replace(self._outside, time=replace(self._outside.time, stop=threading.Event()))
        try:
            self._bring_home(calm)
        except ParallaxError as error:
            return (
                f"group {self._plan.group} could not be taken home to {self._plan.home} ([{error.code}] {error}); it "
                "belongs to drills alone, and the next one begins by that"
            )
        members = calm.clusters.members(self._plan.group, self._plan.home)
        how = {None: "whose members can't be listed", 0: "without members"}
        return f"group {self._plan.group} is in {self._plan.home}, {how.get(members, f'with {members} member(s)')}"

    def _proven(self) -> tuple[str, str]:
        try:
            proof = self._prove()
        except ParallaxError as error:
            return "", f"no proof: [{error.code}] {error}"
        if proof == "once":
            return proof, ""
        return proof, f"`parallax verify {self._plan.group} --moves 2` says {proof!r}"

    def _bring_home(self, outside: Outside) -> None:
        """End a move of the group that was interrupted, and take it home.

        Raises:
            RefusedError: it can't be moved now; the message says why.
            UnavailableError: services or store do not answer.
        """
        group, home = self._plan.group, self._plan.home
        assignment = outside.services.assignment(group)
        if assignment is None:
            return
        decision = assignment.decision
        if (
            decision.stage is Stage.MOVING
            and decision.moving_from is not None
            and decision.cluster is not None
        ):
            self._move(outside, decision.moving_from, decision.cluster, decision.primary)
            assignment = outside.services.assignment(group)
        consumed = None if assignment is None else assignment.consumed_cluster
        if consumed is not None and consumed != home:
            self._move(outside, consumed, home, self._plan.origin)

    def _move(self, outside: Outside, origin: ClusterName, target: ClusterName, region: RegionName) -> None:
        move = Move(self._plan.group, origin, target, region, MoveKind.PLANNED)
        result = Mover(outside, self._plan.limits).move(move, self._tell)
        if result.ending not in {Ending.MOVED, Ending.ALREADY_THERE, Ending.ABANDONED}:
            raise RefusedError(f"group {move.group} can't be moved to {target}: {result.problem}")


def _shortfall(measured: DrillFigures) -> str:
    if not measured.lost and not measured.redelivered:
        return ""
    return f"{measured.lost} record(s) lost, {measured.redelivered} delivered again"
