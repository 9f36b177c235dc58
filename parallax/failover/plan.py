"""What a move would do, what forbids it, and what became of it. Pure: the same facts give the same plan.

A *gap* is a record that the group would never get although it has not consumed it. No move crosses one unless the
operator accepts it by name: an answer may be early, which costs a repetition, and is never silently late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from parallax.client.answer import ResumeAnswer
from parallax.domain.ids import TopicPartition
from parallax.domain.outcome import Outcome, gravest
from parallax.domain.primary import Assignment, Mode, Stage
from parallax.failover.facts import Move, MoveFacts, MoveKind


class GapKind(Enum):
    """Why records would never be delivered."""

    UNREADABLE = "unreadable"
    """The target has no such partition, or no leader of it."""
    TRIMMED = "trimmed"
    """Retention at the target has taken them."""
    LOST = "lost"
    """Retention at the source has taken them before they were copied."""
    NEVER_DELIVERED = "never_delivered"


@dataclass(frozen=True, slots=True)
class MoveGap:
    """Records of a partition that would never be delivered; ``words`` says which and why, in a sentence."""

    topic_partition: TopicPartition
    kind: GapKind
    words: str

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A group's move as foreseen.

    Attributes:
        facts: what it was made of.
        partitions: where each goes on, and what FailoverConsumers skip and plain clients read again.
        gaps: what would never be delivered.
        unknown: what can't be known, one sentence each.
        obstacles: what forbids to carry it out, one sentence each with what to do; gaps come on top.
        waits_for: what carrying it out will wait for.
        remnants: members that the target still lists although the group is recorded elsewhere: a cluster that was away
            remembers those it had until they say that they left, or their sessions end. They are waited for.
        arrived: the group is where it shall go: there is nothing to do.
        publisher_only: an active/active group: it goes on consuming everywhere, and another region publishes.
    """

    facts: MoveFacts
    obstacles: tuple[str, ...]
    partitions: tuple[ResumeAnswer, ...] = ()
    gaps: tuple[MoveGap, ...] = ()
    unknown: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    remnants: int = 0
    arrived: bool = False
    publisher_only: bool = False

    @property
    def move(self) -> Move:
        """Which move it is."""
        return self.facts.move

    @property
    def fencing_number(self) -> int:
        """That held; the move is off if somebody has decided since."""
        return self.facts.fencing_number

    @property
    def outcome(self) -> Outcome:
        """The gravest of any partition."""
        return gravest(item.outcome for item in self.partitions)

    @property
    def pending_records(self) -> int:
        """Over all partitions."""
        return sum(item.pending_records for item in self.partitions)

    @property
    def redelivery_records(self) -> int | None:
        """Over all partitions, for plain clients; None if that of some partition can't be known."""
        counts = [item.redelivery_records for item in self.partitions]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def freshness_ms(self) -> int | None:
        """The oldest; None if that of some partition is unknown."""
        ages = [item.freshness_ms for item in self.partitions]
        known = [age for age in ages if age is not None]
        return max(known) if known and len(known) == len(ages) else None

    def refusals(self, *, accept_gaps: bool) -> tuple[str, ...]:
        """What forbids to carry it out."""
        gaps = () if accept_gaps else tuple(f"{gap} (accept it with --accept-gaps)" for gap in self.gaps)
        return self.obstacles + gaps

    def with_gaps_open(self) -> MovePlan:
        """The plan of a group whose progress was replaced by a move that did not come to its end.

        It is put back behind the fence only, and the answer without it is earlier: whether its gaps are any is judged then.
        """
        again = (
            f"{gap}: judged again once what an unfinished move has replaced is put back" for gap in self.gaps
        )
        return replace(self, gaps=(), unknown=(*self.unknown, *again))


class Ending(Enum):
    """What became of a group's move."""

    MOVED = "moved"
    ALREADY_THERE = "already_there"
    REFUSED = "refused"
    """Nothing was changed."""
    ABANDONED = "abandoned"
    """It took too long; the fence was lifted, and the group goes on where it was."""
    INTERRUPTED = "interrupted"
    """Something did not answer, or the command was stopped: run the same command again."""


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
class MoveLimits:
    """How long a planned move waits, and what it may cross.

    Attributes:
        drain_ms: for the group to leave its cluster.
        catch_up_ms: for the target to have all that was consumed.
        handover_ms: disaster: for FailoverConsumers to hear of the fence and report what they have delivered, so
            that whoever gets their partitions goes on from there.
        accept_gaps: go on although records will never be delivered; the plan names them.
        max_redelivered: planned: move only once plain clients read at most so many records again; None: however many.
        redelivered_ms: how long to wait for that, while the group reads on where it is.
    """

    drain_ms: float = 60_000
    catch_up_ms: float = 60_000
    handover_ms: float = 1_000
    accept_gaps: bool = False
    max_redelivered: int | None = None
    redelivered_ms: float = 60_000


def make_plan(facts: MoveFacts) -> MovePlan:
    """The plan of a move."""
    assignment = facts.assignment
    if assignment is not None and assignment.decision.mode is Mode.ACTIVE_ACTIVE:
        return _publisher_plan(facts, assignment)
    return MovePlan(
        facts,
        obstacles=tuple(_obstacles(facts)),
        partitions=facts.partitions,
        gaps=tuple(gap for item in facts.partitions for gap in _gaps(facts, item)),
        unknown=tuple(text for item in facts.partitions for text in _unknown(facts, item)),
        waits_for=tuple(_waits(facts)),
        remnants=_remnants(facts),
        arrived=assignment is not None
        and assignment.consumed_cluster == facts.move.target
        and assignment.decision.primary == facts.move.region,
    )


def _publisher_plan(facts: MoveFacts, assignment: Assignment) -> MovePlan:
    move, dual = facts.move, assignment.dual_active
    return MovePlan(
        facts,
        obstacles=(_dual(move),) if dual and move.kind is MoveKind.PLANNED else (),
        arrived=assignment.decision.primary == move.region and not dual,
        publisher_only=True,
    )


def redelivered_beyond(plan: MovePlan, limits: MoveLimits) -> str:
    """Why plain clients would read more again than they may, as a clause; empty if they would not."""
    most, count = limits.max_redelivered, plan.redelivery_records
    planned = plan.move.kind is MoveKind.PLANNED
    if most is None or not planned or plan.arrived or plan.publisher_only:
        return ""
    if count is None:
        return f"how many records plain clients would read again can't be known, and {most} are allowed"
    return f"plain clients would read {count} record(s) again, and {most} are allowed" if count > most else ""


def outdated(move: Move, number: int, decided: int) -> str:
    """Why a group that the services believe to be there is not: a store that was away answers from before."""
    return (
        f"the services answer for group {move.group} from before its last move (fencing number {number}, "
        f"{decided} was decided since): the store of a region that was away has not caught up; run the command again"
    )


def _dual(move: Move) -> str:
    return f"group {move.group} is DUAL_ACTIVE: settle where it is primary first (parallax primary --set)"


def _gaps(facts: MoveFacts, item: ResumeAnswer) -> Iterable[MoveGap]:
    name, target = item.topic_partition, facts.move.target
    untold = item.high_watermark is None and not _out_of_reach(facts)
    if not item.target_topic_id or untold:
        words = f"{name}: {target} has no such partition, or no leader of it, so that its records can't be read there"
        yield MoveGap(name, GapKind.UNREADABLE, words)
    if Outcome.TRIMMED in item.notes:
        words = f"{name}: retention at {target} has taken unconsumed records below its log start {item.low_watermark}"
        yield MoveGap(name, GapKind.TRIMMED, words)
    for gap in item.lost:
        words = (
            f"{name}: records [{gap.start}, {gap.end}) of region {gap.region} were lost to retention before "
            f"they were copied to {target}"
        )
        yield MoveGap(name, GapKind.LOST, words)
    if Outcome.NEVER_DELIVERED in item.notes and not item.lost:
        yield MoveGap(name, GapKind.NEVER_DELIVERED, f"{name}: {item.explanation}")


def _out_of_reach(facts: MoveFacts) -> bool:
    """Whether the services themselves could not ask the target."""
    return (
        bool(facts.partitions)
        and all(item.high_watermark is None for item in facts.partitions)
        and any(Outcome.UNREACHABLE in item.notes and item.target_topic_id for item in facts.partitions)
    )


def _unknown(facts: MoveFacts, item: ResumeAnswer) -> Iterable[str]:
    name, origin = item.topic_partition, facts.move.origin
    if item.basis == "observed":
        age = "" if item.observed_at_ms is None else f" {max(0, facts.now_ms - item.observed_at_ms)} ms ago"
        yield (
            f"{name}: {origin} can't be asked; the position {item.origin_next_offset} was seen{age}, and what "
            "the group committed after that is read again"
        )
    if not item.origin_answers:
        yield f"{name}: how much {origin} holds beyond that can't be known"
    if not item.indexed and item.lacks:
        yield f"{name}: {item.lacks}: which records were consumed can't be known yet"
    if item.freshness_ms is None:
        yield f"{name}: some source has no row at {facts.move.target}: how fresh the answer is can't be known"
    if item.redelivery_at_most_offsets is not None:
        yield f"{name}: {item.explanation}"
    if item.timestamp_problem:
        yield f"{name}: record timestamps could not decide: {item.timestamp_problem}"
    if item.skips_cut:
        yield f"{name}: there are more skip ranges than one answer holds"
    if item.basis == "policy":
        yield f"{name}: the group never committed there; it starts where the policy says"


def _obstacles(facts: MoveFacts) -> Iterable[str]:
    move, assignment = facts.move, facts.assignment
    planned = move.kind is MoveKind.PLANNED
    if facts.problem:
        yield facts.problem
    elif not facts.partitions:
        yield f"group {move.group} has no position to move"
    if assignment is not None:
        yield from _obstacles_of_record(facts)
    if planned and facts.members is None:
        yield (
            f"{move.origin} does not answer, and a planned move needs it: with --disaster the move goes by what "
            "was last seen of it"
        )
    if facts.members_at_target is not None and _out_of_reach(facts):
        yield f"the offset services do not reach {move.target}: run the command again in a moment"
    if facts.members_at_target is None:
        yield f"{move.target} does not answer: offsets can't be written there"
    elif facts.members_at_target and not _remnants(facts):
        yield (
            f"group {move.group} has {facts.members_at_target} member(s) in {move.target} already: stop them, "
            "or their commits would be overwritten"
        )


def _remnants(facts: MoveFacts) -> int:
    """Members at the target that, by the record, are not the group at work."""
    assignment = facts.assignment
    if assignment is None or assignment.dual_active or facts.members_at_target is None:
        return 0
    decision = assignment.decision
    consumed = decision.moving_from if decision.stage is Stage.MOVING else decision.cluster
    return facts.members_at_target if consumed == facts.move.origin else 0


def _obstacles_of_record(facts: MoveFacts) -> Iterable[str]:
    move, assignment = facts.move, facts.assignment
    if assignment is None:
        return
    decision = assignment.decision
    if assignment.dual_active and move.kind is MoveKind.PLANNED:
        yield _dual(move)
    elif decision.stage is Stage.MOVING:
        if decision.cluster != move.target and move.kind is MoveKind.PLANNED:
            yield (
                f"group {move.group} is on its way from {decision.moving_from} to {decision.cluster}: finish or "
                "roll back that move first"
            )
    elif decision.cluster not in {move.origin, move.target}:
        yield f"group {move.group} consumes {decision.cluster}, not {move.origin}"
    elif assignment.consumed_cluster == move.target and decision.primary != move.region:
        # Its commits in the origin are from before: going by them would set it back.
        without = " --disaster" if move.kind is MoveKind.DISASTER else ""
        yield (
            f"group {move.group} consumes {move.target} already, with its home in region {decision.primary}: to make "
            f"{move.region} its primary region, run parallax primary {move.group} --set {move.region}{without}"
        )


def _waits(facts: MoveFacts) -> Iterable[str]:
    move, remnants = facts.move, _remnants(facts)
    if remnants:
        yield (
            f"until the {remnants} member(s) that {move.target} still lists have left it, or their sessions "
            "have ended"
        )
    if move.kind is MoveKind.DISASTER:
        return
    if facts.members:
        yield f"until the group's {facts.members} member(s) have left {move.origin}"
    elif facts.members is not None:
        yield (
            f"until its commits in {move.origin} stand still; it has no member there: consumers that assign "
            "partitions without joining can't be seen, so stop them first"
        )
    pending = sum(item.pending_records for item in facts.partitions)
    if pending:
        yield f"until {pending} consumed record(s) have reached {move.target}"
    behind = sum(not item.settled for item in facts.partitions)
    if behind:
        yield f"until the index covers the positions of {behind} partition(s)"
