"""The resume rule: where a group that consumed one aggregate cluster goes on in another.

The *origin* is the aggregate cluster that the group consumed, the *destination* the one that it moves to. For
each source: what of it was consumed at the origin (`consumed_positions`), and where the first record beyond that
lies at the destination (`position_of`). The smallest of these places is the resume offset. Every step takes the
largest floor that the rows prove and never a ceiling, so that missing rows make the answer earlier, never later
than an unconsumed record (docs/decisions/0002-resume-rule.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from parallax.domain.history import History
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
)
from parallax.domain.outcome import Outcome, gravest
from parallax.domain.run import LostRange, Run


@dataclass(frozen=True, slots=True, order=True)
class SourcePosition:
    """How far a source was consumed: everything below ``source_next``, read under ``leader_epoch``."""

    leader_epoch: int
    source_next: SourceOffset


START = SourcePosition(UNKNOWN_EPOCH, SourceOffset(0))


@dataclass(frozen=True, slots=True)
class Progress:
    """What a group's last move left: written once per move, never touched by later commits.

    It holds in ``cluster`` and for the topic incarnation ``topic_id`` there, and only while the group's commit
    is at or above ``resume_offset``.
    """

    cluster: ClusterName
    topic_id: TopicId
    resume_offset: TargetOffset
    positions: Mapping[SourceId, SourcePosition]


@dataclass(frozen=True, slots=True)
class SourceHistory:
    """The rows of one source lineage on one aggregate cluster.

    Attributes:
        closed_at: the source's next offset at which the lineage ended (topic recreated, tail lost); None while
            it goes on.
    """

    source: SourceId
    history: History
    closed_at: SourceOffset | None = None


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets that a partition holds: ``[low_watermark, high_watermark)``."""

    low_watermark: TargetOffset
    high_watermark: TargetOffset


class Via(Enum):
    """How a position at the destination was found, the strongest first."""

    EXACT = "exact"
    """A run holds the offset."""
    AFTER = "after"
    """The end of the last row that is wholly consumed."""
    BEFORE = "before"
    """The start of the first row that is not, nothing lying between."""
    CONSUMED = "consumed"
    """A lineage that has ended and was consumed to its end: it holds nothing back."""
    LOG_START = "log_start"
    """No row proves anything better."""


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """One source's part of an answer.

    Attributes:
        consumed: how far the source was consumed.
        position: the first place at the destination where an unconsumed record of the source can lie;
            None when the source holds nothing back.
        reached_next: how far the destination has the source, as the rows tell.
        pending: consumed source records ``[start, end)`` that the destination does not have yet, or None.
        lost: ranges between what was consumed and what comes next that retention took first.
        rows: the rows that were used: the one that proves ``consumed``, then those that prove ``position``.
    """

    source: SourceId
    consumed: SourcePosition
    position: TargetOffset | None
    via: Via
    reached_next: SourceOffset
    pending: tuple[SourceOffset, SourceOffset] | None
    lost: tuple[LostRange, ...] = ()
    rows: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to resume, and why.

    Attributes:
        resume_offset: nothing unconsumed lies below it.
        complete_to: below this target offset the rows tell of every record whether it was consumed; None when
            nothing is pending, so that whatever follows is unconsumed.
        notes: all that applies, the gravest first; ``outcome`` is the first of them.
    """

    resume_offset: TargetOffset
    sources: tuple[SourceAnswer, ...]
    complete_to: TargetOffset | None
    notes: tuple[Outcome, ...]

    @property
    def outcome(self) -> Outcome:
        """The gravest of the notes."""
        return gravest(self.notes)

    @property
    def positions(self) -> dict[SourceId, SourcePosition]:
        """The progress vector that a move by this answer leaves behind."""
        return {answer.source: answer.consumed for answer in self.sources}


def consumed_position(
    commit: TargetOffset, histories: Iterable[SourceHistory]
) -> tuple[SourcePosition, Run | None, SourceOffset]:
    """What a group with next offset ``commit`` has consumed of one source.

    Returns:
        The position, the row that proves it, and the next offset after the last *record* consumed (which is
        lower where only control or aborted records follow).
    """
    floors = [row for item in histories if (row := item.history.floor_by_target(commit)) is not None]
    if not floors:
        return START, None, START.source_next
    row = max(floors, key=lambda floor: (floor.target_start, floor.source_start, floor.count))
    source_next = SourceOffset(row.source_start + min(row.count, commit - row.target_start))
    last_record_end = row.previous_source_end if source_next == row.source_start else source_next
    return SourcePosition(row.source_leader_epoch, source_next), row, last_record_end


def comparable_position(
    consumed: SourcePosition, origin: Iterable[SourceHistory], destination: History
) -> SourceOffset:
    """``consumed``, cut to where origin and destination saw the same source leader epochs.

    After an unclean leader election one side may hold records that the source has thrown away, at offsets that
    hold other records on the other side. The two agree up to the end of the last epoch that both know.
    """
    if consumed.source_next == 0:
        return consumed.source_next
    row = destination.floor_by_source(SourceOffset(consumed.source_next - 1))
    if row is None or row.source_leader_epoch == consumed.leader_epoch:
        return consumed.source_next
    if row.source_leader_epoch > consumed.leader_epoch:
        bound = destination.last_of_epoch(consumed.leader_epoch)
    else:
        bounds = [item.history.last_of_epoch(row.source_leader_epoch) for item in origin]
        known = [bound for bound in bounds if bound is not None]
        bound = max(known, key=lambda run: (run.source_leader_epoch, run.source_end), default=None)
    agreed = SourceOffset(0) if bound is None else bound.source_end
    return min(consumed.source_next, agreed)


def position_of(
    source_next: SourceOffset, history: History
) -> tuple[TargetOffset | None, Via, tuple[Run, ...]]:
    """The largest place that provably has no record of the source at or above ``source_next`` below it.

    Returns:
        The place (None: nothing is proven), how it was found, and the rows that prove it.
    """
    floor = history.floor_by_source(source_next)
    if floor is not None and source_next < floor.source_end:
        return floor.to_target(source_next), Via.EXACT, (floor,)
    successor = history.successor_by_source(source_next)
    if successor is not None and history.without_lost_before(successor) > source_next:
        successor = None
    if successor is not None and (floor is None or successor.target_start >= floor.target_end):
        via = Via.EXACT if successor.source_start == source_next and successor.count else Via.BEFORE
        return successor.target_start, via, (successor,)
    if floor is not None:
        return floor.target_end, Via.AFTER, (floor,)
    return None, Via.LOG_START, ()


@dataclass(slots=True)
class _Terms:
    """The parts of one answer while it is put together."""

    answers: list[SourceAnswer] = field(default_factory=list)
    notes: set[Outcome] = field(default_factory=set)


def resume(
    *,
    commit: TargetOffset,
    regions: Collection[RegionName],
    origin: Sequence[SourceHistory],
    destination: Sequence[SourceHistory],
    destination_log: LogRange,
    progress: Progress | None = None,
) -> Resume:
    """The minimum-safe resume offset.

    Args:
        commit: the group's next offset at the origin.
        regions: every region that the topic has as a source, by configuration: one without rows counts too.
        origin: rows of the origin, oldest lineage first.
        destination: rows of the destination, oldest lineage first.
        destination_log: the offsets that the destination's partition holds.
        progress: what the group's last move to the origin left; the caller has checked its topic id.
    """
    terms = _Terms()
    if progress is not None and commit < progress.resume_offset:
        terms.notes.add(Outcome.REWOUND)
        progress = None
    moved = progress.positions if progress is not None else {}
    known = {item.source for item in (*origin, *destination)} | set(moved)
    for region in sorted({*regions, *(source.region for source in known)}):
        sources = [source for source in _in_order(origin, destination, moved) if source.region == region]
        if not any(item.source.region == region for item in destination):
            sources = sources or [SourceId(region, TopicId(""))]
            terms.notes.add(Outcome.EARLIEST_FALLBACK)
        if len(sources) > 1:
            terms.notes.add(Outcome.LINEAGE_CHANGED)
        for source in sources:
            _add_source(terms, source, commit, moved.get(source, START), origin, destination)
    return _put_together(terms, destination, destination_log)


def _in_order(
    origin: Sequence[SourceHistory],
    destination: Sequence[SourceHistory],
    moved: Mapping[SourceId, SourcePosition],
) -> list[SourceId]:
    """Every source that some row or the progress vector names, once."""
    return list(dict.fromkeys([*(item.source for item in (*destination, *origin)), *moved]))


def _add_source(
    terms: _Terms,
    source: SourceId,
    commit: TargetOffset,
    moved_to: SourcePosition,
    origin: Sequence[SourceHistory],
    destination: Sequence[SourceHistory],
) -> None:
    at_origin = [item for item in origin if item.source == source]
    at_destination = [item for item in destination if item.source == source]
    consumed, proof, last_record_end = consumed_position(commit, at_origin)
    if moved_to > consumed:
        consumed, last_record_end = moved_to, moved_to.source_next
    reached = max(
        (newest.source_end for item in at_destination if (newest := item.history.newest) is not None),
        default=SourceOffset(0),
    )
    open_ended = not at_destination or at_destination[-1].closed_at is None
    pending = (reached, last_record_end) if reached < last_record_end and open_ended else None
    if pending is not None:
        terms.notes.add(Outcome.PENDING)
    also_lost_at_origin = [gap for item in at_origin for gap in item.history.lost]
    lost = [
        gap
        for item in at_destination
        for gap in item.history.lost_from(consumed.source_next)
        if not any(
            other.source_start <= gap.source_start and gap.source_end <= other.source_end
            for other in also_lost_at_origin
        )
    ]
    if lost:
        terms.notes.add(Outcome.NEVER_DELIVERED)
    if len(at_destination) > 1 or len(at_origin) > 1:
        terms.notes.add(Outcome.LINEAGE_CHANGED)
    position: TargetOffset | None
    rows: tuple[Run, ...]
    position, via, rows = None, Via.CONSUMED, ()
    for item in at_destination:
        here = comparable_position(consumed, at_origin, item.history)
        if item.closed_at is not None and here >= item.closed_at:
            continue
        found, how, proofs = position_of(here, item.history)
        found = TargetOffset(0) if found is None else found
        if how is Via.LOG_START:
            terms.notes.add(Outcome.EARLIEST_FALLBACK)
        if position is None or found < position:
            position, via, rows = found, how, proofs
    if not at_destination:
        position, via = _before_first_row(source, destination)
    terms.answers.append(
        SourceAnswer(
            source=source,
            consumed=consumed,
            position=position,
            via=via,
            reached_next=reached,
            pending=pending,
            lost=tuple(lost),
            rows=((proof,) if proof is not None else ()) + rows,
        )
    )


def _before_first_row(source: SourceId, destination: Sequence[SourceHistory]) -> tuple[TargetOffset, Via]:
    """Where the first record of a source without rows can lie.

    One fenced writer copies all incarnations of a region's topic, one after the other, and the index holds an
    unbroken prefix of what it wrote: an incarnation without rows comes after every row of the others.
    """
    ends = [
        newest.target_end
        for item in destination
        if item.source.region == source.region and (newest := item.history.newest) is not None
    ]
    return (max(ends), Via.AFTER) if ends else (TargetOffset(0), Via.LOG_START)


def _put_together(terms: _Terms, destination: Sequence[SourceHistory], log: LogRange) -> Resume:
    positions = [answer.position for answer in terms.answers if answer.position is not None]
    resume_offset = min(positions, default=log.high_watermark)
    if resume_offset > log.high_watermark:
        resume_offset = log.high_watermark
        terms.notes.add(Outcome.CLAMPED_TO_END)
    if resume_offset < log.low_watermark:
        if Outcome.EARLIEST_FALLBACK not in terms.notes:
            terms.notes.add(Outcome.TRIMMED)
        resume_offset = log.low_watermark
    complete_to: TargetOffset | None = None
    for answer in terms.answers:
        if answer.pending is None:
            continue
        covered = max(
            (
                newest.target_end
                for item in destination
                if item.source == answer.source and (newest := item.history.newest) is not None
            ),
            default=resume_offset,
        )
        covered = max(covered, resume_offset)
        complete_to = covered if complete_to is None else min(complete_to, covered)
    notes = terms.notes or {Outcome.OK}
    ordered = tuple(sorted(notes, key=lambda note: note.value, reverse=True))
    return Resume(resume_offset, tuple(terms.answers), complete_to, ordered)
