"""The resume rule: where a group that consumed one aggregate cluster goes on in another.

The *origin* is the aggregate cluster that the group consumed, the *destination* the one that it moves to. For
each source: what of it was consumed at the origin (`consumed_position`), and where the first record beyond that
lies at the destination (`place_of`). The smallest of these places is the resume offset; a skip range that begins there
moves it up (`after_skips`). Every step takes the largest floor that the rows prove and never a ceiling, so that missing
rows make the answer earlier, never later than an unconsumed record (docs/decisions/0002-resume-rule.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from parallax.domain.ids import UNKNOWN_EPOCH, RegionName, SourceId, SourceOffset, TargetOffset, TopicId
from parallax.domain.lineage_history import LineageHistory
from parallax.domain.outcome import Outcome, gravest
from parallax.domain.place import LogRange, Via, place_of, rows_end
from parallax.domain.progress import (
    START,
    Progress,
    SourceHistory,
    SourcePosition,
    Span,
    consumed_end,
    consumed_position,
    known_spans,
    records_below,
)
from parallax.domain.runs import LostRange, Run, within, without


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """One source's part of an answer.

    Attributes:
        consumed: how far the source was consumed.
        position: the first place at the destination where an unconsumed record of the source can lie;
            None when the source holds nothing back.
        reached_next: how far the destination has the source, as the rows tell.
        pending: consumed source records ``[start, end)`` that the destination does not have yet, or None.
        lost: ranges that retention took before they were copied, less what the group has read of them: it never gets
            them. Those of the destination that the origin has not lost as well, and those of the origin that it has passed.
        rows: the rows that were used: the one that proves ``consumed``, then those that prove ``position``.
        trimmed: unconsumed source records ``[start, end)`` that the destination had and whose retention took
            them, or None. To the group they count as passed, here and in later moves.
        consumed_there: the end of the destination's own records that were consumed, if that is all there is to say of them
            (`parallax.domain.plain`).
    """

    source: SourceId
    consumed: SourcePosition
    position: TargetOffset | None
    via: Via
    reached_next: SourceOffset
    pending: tuple[SourceOffset, SourceOffset] | None
    lost: tuple[LostRange, ...] = ()
    rows: tuple[Run, ...] = ()
    trimmed: tuple[SourceOffset, SourceOffset] | None = None
    consumed_there: SourceOffset | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to resume, and why.

    Attributes:
        resume_offset: nothing unconsumed lies below it.
        sources: what each source contributed, older incarnations of a region's topic first.
        complete_to: below this target offset the rows tell of every record whether it was consumed; None when
            nothing is pending, so that whatever follows is unconsumed.
        notes: all that applies, the gravest first; ``outcome`` is the first of them.
        origin_known_to: the origin's rows tell of every record below this offset (None: some region has no
            row). While it is lower than the group's commit, a caller that can wait gets a later answer.
        without_rows: the regions of which the origin has no row.
    """

    resume_offset: TargetOffset
    sources: tuple[SourceAnswer, ...]
    complete_to: TargetOffset | None
    notes: tuple[Outcome, ...]
    origin_known_to: TargetOffset | None = None
    without_rows: tuple[RegionName, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The gravest of the notes."""
        return gravest(self.notes)

    @property
    def positions(self) -> dict[SourceId, SourcePosition]:
        """The progress vector that a move by this answer leaves behind.

        A configured region of which nothing is known, not even its topic's id, has no part in it.
        """
        return {answer.source: answer.consumed.bounded() for answer in self.sources if answer.source.topic_id}


@dataclass(slots=True)
class _Region:
    """The rows of one region's sources, and what all regions add to."""

    commit: TargetOffset
    origin: Sequence[SourceHistory]
    destination: Sequence[SourceHistory]
    log: LogRange
    answers: list[SourceAnswer]
    complete_to: list[TargetOffset]
    notes: set[Outcome]


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
        commit: the group's next offset at the origin (`settled_commit` if the origin ever lost its tail).
        regions: every region that the topic has as a source, by configuration: one without rows counts too.
        origin: rows of the origin, oldest lineage first, those included of which no row was found.
        destination: the same of the destination.
        destination_log: the offsets that the destination's partition holds.
        progress: what the group's last move to the origin left; the caller has checked its topic id.
    """
    rewound = progress is not None and commit < progress.resume_offset
    moved = progress.positions if progress is not None and not rewound else {}
    notes = {Outcome.REWOUND} if rewound else set()
    answers: list[SourceAnswer] = []
    complete_to: list[TargetOffset] = []
    known_to: dict[RegionName, TargetOffset] = {}
    named = {item.source.region for item in (*origin, *destination)} | {source.region for source in moved}
    for region in sorted({*regions, *named}):
        part = _Region(
            commit,
            [item for item in origin if item.source.region == region],
            [item for item in destination if item.source.region == region],
            destination_log,
            answers,
            complete_to,
            notes,
        )
        incarnations = Incarnations(
            [item.source for item in part.destination],
            [item.source for item in part.origin],
            [source for source in moved if source.region == region],
        )
        for source in incarnations.sources:
            _add_source(part, source, incarnations, moved.get(source, START))
        if not incarnations.sources:
            unknown = SourceId(region, TopicId(""))
            _add_source(part, unknown, Incarnations([unknown]), START)
        known_to[region] = rows_end(part.origin)
    resume_offset = min((place for answer in answers if (place := answer.position) is not None), default=None)
    if resume_offset is None:
        resume_offset = destination_log.high_watermark
    elif resume_offset > destination_log.high_watermark:
        resume_offset = destination_log.high_watermark
        notes.add(Outcome.CLAMPED_TO_END)
    resume_offset = max(resume_offset, destination_log.low_watermark)
    return Resume(
        resume_offset,
        tuple(answers),
        max(min(complete_to), resume_offset) if complete_to else None,
        tuple(sorted(notes or {Outcome.OK}, key=lambda note: note.value, reverse=True)),
        min(known_to.values()) if known_to and min(known_to.values()) >= 0 else None,
        tuple(region for region, end in known_to.items() if end < 0),
    )


def _precedes_the_topic(region: _Region, source: SourceId, newer: Sequence[SourceHistory]) -> bool:
    """Whether a lineage stands for the time before the source had the topic, and the destination has copied it since.

    It holds no record, so it asks for no row: often only one of the two clusters saw that time.
    """
    known = [item.history.newest for item in (*region.origin, *region.destination) if item.source == source]
    return (
        not source.topic_id
        and bool(newer)
        and all(newest is None or newest.source_end == 0 for newest in known)
    )


def _add_source(region: _Region, source: SourceId, incarnations: Incarnations, moved: SourcePosition) -> None:
    newer = [item for item in region.destination if incarnations.is_newer(item.source, source)]
    older = [item for item in region.destination if incarnations.is_newer(source, item.source)]
    if _precedes_the_topic(region, source, newer):
        return
    at_origin = [item for item in region.origin if item.source == source]
    at_destination = [item for item in region.destination if item.source == source]
    consumed, proof = consumed_position(region.commit, at_origin, moved)
    place = place_of(consumed, at_destination, older, newer, region.log.low_watermark)
    if place.lineage_matters:
        region.notes.add(Outcome.LINEAGE_CHANGED)
    newest = at_destination[-1].history.newest if at_destination else None
    reached = SourceOffset(0) if newest is None else newest.source_end
    if place.via is Via.LOG_START:
        region.notes.add(Outcome.EARLIEST_FALLBACK)
    pending = None
    may_still_come = not newer and _may_still_come(consumed, at_destination)
    if may_still_come and reached < consumed.source_next:
        pending = (reached, consumed.source_next)
        region.notes.add(Outcome.PENDING)
        region.complete_to.append(max(rows_end(region.destination), TargetOffset(0)))
    lost = _never_delivered(region.commit, consumed, moved, at_origin, at_destination)
    if lost:
        region.notes.add(Outcome.NEVER_DELIVERED)
    trimmed = _trimmed(region.log.low_watermark, consumed, at_destination)
    if trimmed is not None:
        region.notes.add(Outcome.TRIMMED)
    rows = tuple(used for used in (proof, place.row) if used is not None)
    region.answers.append(
        SourceAnswer(source, consumed, place.offset, place.via, reached, pending, lost, rows, trimmed)
    )


def _trimmed(
    low_watermark: TargetOffset, consumed: SourcePosition, at_destination: Sequence[SourceHistory]
) -> tuple[SourceOffset, SourceOffset] | None:
    """Unconsumed source records that lay below the destination's log start."""
    ranges = [
        (here, below[0])
        for item in at_destination
        if (below := records_below(low_watermark, item.history)) is not None
        and (here := consumed_end(consumed, item.history)) < below[0]
    ]
    return (min(start for start, _ in ranges), max(end for _, end in ranges)) if ranges else None


def _may_still_come(consumed: SourcePosition, at_destination: Sequence[SourceHistory]) -> bool:
    """Whether consumed records that the destination lacks can still reach it.

    They can't once the lineage has ended, or once the destination has read a later leader epoch.
    """
    if not at_destination:
        return True
    open_lineage = at_destination[-1]
    ends = open_lineage.history.epoch_ends
    if open_lineage.closed_at is not None:
        return False
    return consumed.leader_epoch == UNKNOWN_EPOCH or not ends or ends[-1][0] <= consumed.leader_epoch


def _never_delivered(
    commit: TargetOffset,
    consumed: SourcePosition,
    moved: SourcePosition,
    at_origin: Sequence[SourceHistory],
    at_destination: Sequence[SourceHistory],
) -> tuple[LostRange, ...]:
    """What was lost and the group has not read, as far as this move makes it final.

    At the origin what it has passed since it came there, so that it counts as consumed from now on. At the destination all of
    it, but for what the origin has lost as well and the group has yet to pass there: staying would not deliver that either.
    """
    passed = [
        part
        for item in at_origin
        for gap in item.history.lost
        for part in _passed(gap, item.history, commit, consumed, moved)
    ]
    to_pass = [
        (gap.source_start, gap.source_end)
        for item in at_origin
        for gap in item.history.lost
        if gap.target_at >= commit
    ]
    ahead = [
        part
        for item in at_destination
        for gap in item.history.lost
        for part in without([gap], [*known_spans(consumed, item.history), *to_pass])
    ]
    told: list[LostRange] = []
    for gap in [*ahead, *passed]:
        told += without([gap], [(other.source_start, other.source_end) for other in told])
    return tuple(told)


def _passed(
    gap: LostRange,
    history: LineageHistory,
    commit: TargetOffset,
    consumed: SourcePosition,
    moved: SourcePosition,
) -> Sequence[LostRange]:
    """The parts of a range at the origin that count as consumed since the group came there."""
    newest = history.newest
    if newest is not None and newest.last_record_end > gap.source_end:
        return without(within(gap, known_spans(consumed, history)), known_spans(moved, history))
    # No row tells of a record behind the range (the watermark at its end does not): such rows are missing, or a later lineage
    # has them. Its place on the target tells, and what has been consumed of each leader epoch, of which the newest that was
    # read need not be the one that goes on behind it.
    if gap.target_at > commit:
        return []
    before = _spans(moved)
    return [
        part
        for epoch, found in _spans(consumed).items()
        for part in without(within(gap, found), [*before.get(epoch, ()), *before.get(UNKNOWN_EPOCH, ())])
    ]


def _spans(position: SourcePosition) -> Mapping[int, Sequence[Span]]:
    """What was consumed by leader epoch; where none is known, offsets alone count."""
    return position.spans or {UNKNOWN_EPOCH: [(SourceOffset(0), position.source_next)]}


# --- incarnations ----------------------------------------------------------------------------------------------


class Incarnations:
    """The incarnations of one region's topic that two clusters and a progress vector name, each of them partly.

    What none of them tells stays open: nothing follows for this answer from the place in `sources` then. A progress vector
    has that place, though, and later moves read it as an order. So it is the likelier one: what only the destination names
    may have come at any time, and what the origin names and the vector does not came since the group was moved there.

    Args:
        destination: older incarnations first, here and below; the most trustworthy order. A source without a topic id stands
            for the time before the topic was there: every other one came after it.
        origin: trusted next.
        moved: trusted last, the progress vector's.
    """

    def __init__(
        self,
        destination: Sequence[SourceId],
        origin: Sequence[SourceId] = (),
        moved: Sequence[SourceId] = (),
    ) -> None:
        orders = (destination, origin, moved)
        elsewhere = {*origin, *moved}
        destination_alone = [source for source in destination if source not in elsewhere]
        named = list(dict.fromkeys([*destination_alone, *moved, *origin]))
        self._later: dict[SourceId, set[SourceId]] = {
            source: set() if source.topic_id else {other for other in named if other.topic_id}
            for source in named
        }
        for order in orders:
            for place, source in enumerate(order):
                for other in order[place + 1 :]:
                    self._learn(source, other)
        self.sources = self._sorted(named)
        """Each once, older ones first; where nothing is known, as is likely."""

    def is_newer(self, source: SourceId, than: SourceId) -> bool:
        """Whether a source is known to have come after another one."""
        return source in self._later[than]

    def _learn(self, older: SourceId, newer: SourceId) -> None:
        """An order came to tell that; unless one that is trusted more has told otherwise."""
        if older == newer or newer in self._later[older] or older in self._later[newer]:
            return
        following = {newer, *self._later[newer]}
        for source, later in self._later.items():
            if source == older or older in later:
                later.update(following)

    def _sorted(self, named: Sequence[SourceId]) -> list[SourceId]:
        result: list[SourceId] = []
        for source in named:
            later = [place for place, other in enumerate(result) if self.is_newer(other, source)]
            result.insert(min(later, default=len(result)), source)
        return result
