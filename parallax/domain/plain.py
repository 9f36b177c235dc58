"""The resume rule where it is plain: one open lineage of each region on either side, none of them cut, nothing lost.

Nearly every partition is plain, nearly always, and the rule comes down to a few look-ups and comparisons of whole numbers
there. What is said here is what `parallax.domain.resume.resume` says, to the last field: that is the rule, and this is its
short cut for a service that answers thousands of questions a second.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from parallax.domain.ids import UNKNOWN_EPOCH, RegionName, SourceOffset, TargetOffset
from parallax.domain.lineage_history import MissingBlock
from parallax.domain.outcome import Outcome
from parallax.domain.place import LogRange, Via, position_of
from parallax.domain.progress import (
    START,
    Progress,
    SourceHistory,
    SourcePosition,
    consumed_end,
    consumed_position,
    records_below,
)
from parallax.domain.resume import Resume, SourceAnswer
from parallax.domain.runs import Run


@dataclass(slots=True)
class PlainSource:
    """A region of a plain partition: its one lineage on either side, and the destination's newest row of it."""

    origin: SourceHistory
    destination: SourceHistory
    newest: Run
    _below: tuple[TargetOffset, tuple[SourceOffset, Run] | None] | None = field(default=None, compare=False)

    def missing_below(self, target: TargetOffset) -> MissingBlock | None:
        """The block that has to be read before `below` answers; None: none."""
        known = self._below
        return (
            None
            if known is not None and known[0] == target
            else self.destination.history.missing_at_target(target)
        )

    def below(self, target: TargetOffset) -> tuple[SourceOffset, Run] | None:
        """As `records_below`, at the destination: one question asks for what lies below its log start as the other."""
        known = self._below
        if known is None or known[0] != target:
            known = self._below = target, records_below(target, self.destination.history)
        return known[1]


@dataclass(frozen=True, slots=True)
class PlainPartition:
    """What all questions about a plain partition share.

    Attributes:
        sources: by region.
        origin_known_to: as `Resume.origin_known_to`.
    """

    sources: Sequence[PlainSource]
    origin_known_to: TargetOffset


def plain_partition(
    regions: Collection[RegionName], origin: Sequence[SourceHistory], destination: Sequence[SourceHistory]
) -> PlainPartition | None:
    """The partition, if it is plain; None: ask `resume`.

    Args:
        regions: every region that the topic has as a source.
        origin: rows of the origin, each lineage once.
        destination: the same of the destination.
    """
    if not len(regions) == len(origin) == len(destination) > 0:
        return None
    here = {item.source.region: item for item in origin}
    there = {item.source.region: item for item in destination}
    if here.keys() != there.keys() or here.keys() != set(regions):
        return None
    sources: list[PlainSource] = []
    known_to: list[TargetOffset] = []
    for region in sorted(regions):
        a, b = here[region], there[region]
        told, newest = a.history.newest, b.history.newest
        if a.source != b.source or not a.source.topic_id or told is None or newest is None:
            return None
        if a.closed_at is not None or b.closed_at is not None or a.history.lost or b.history.lost:
            return None
        sources.append(PlainSource(a, b, newest))
        known_to.append(told.target_end)
    return PlainPartition(sources, min(known_to))


def resume_plainly(
    plain: PlainPartition,
    *,
    commit: TargetOffset,
    destination_log: LogRange,
    progress: Progress | None = None,
) -> Resume | None:
    """What `resume` answers; None: the group has consumed other sources before, ask that one.

    Args:
        plain: the partition.
        commit: the group's next offset at the origin.
        destination_log: the offsets that the destination's partition holds.
        progress: what the group's last move to the origin left.
    """
    rewound = progress is not None and commit < progress.resume_offset
    moved = progress.positions if progress is not None and not rewound else {}
    if moved and not moved.keys() <= {item.origin.source for item in plain.sources}:
        return None
    notes = {Outcome.REWOUND} if rewound else set()
    answers: list[SourceAnswer] = []
    complete_to: list[TargetOffset] = []
    places: list[TargetOffset] = []
    for item in plain.sources:
        before = moved.get(item.origin.source, START)
        answer, place = _answer(item, commit, destination_log.low_watermark, before, notes)
        answers.append(answer)
        places.append(place)
        if answer.pending is not None:
            complete_to.append(item.newest.target_end)
    resume_offset = min(places)
    if resume_offset > destination_log.high_watermark:
        resume_offset = destination_log.high_watermark
        notes.add(Outcome.CLAMPED_TO_END)
    resume_offset = max(resume_offset, destination_log.low_watermark)
    return Resume(
        resume_offset,
        tuple(answers),
        max(min(complete_to), resume_offset) if complete_to else None,
        tuple(sorted(notes or {Outcome.OK}, key=lambda note: note.value, reverse=True)),
        plain.origin_known_to,
    )


def _answer(
    item: PlainSource,
    commit: TargetOffset,
    low_watermark: TargetOffset,
    moved: SourcePosition,
    notes: set[Outcome],
) -> tuple[SourceAnswer, TargetOffset]:
    """The source's part, and where the first record of it that was not consumed can lie at the destination."""
    history, newest = item.destination.history, item.newest
    consumed, proof = told, _ = _told_by_rows(commit, item.origin)
    if not is_within(moved, told):
        consumed, proof = consumed_position(commit, [item.origin], moved)
    here = consumed_there = consumed_end(consumed, history)
    if here < min(consumed.source_next, newest.last_record_end):
        notes.add(Outcome.LINEAGE_CHANGED)
    trimmed = None
    below = item.below(low_watermark)
    if below is not None and here < below[0]:
        trimmed = (here, below[0])
        here = below[0]
        notes.add(Outcome.TRIMMED)
    place, via, row = position_of(here, history)
    if via is Via.LOG_START:
        notes.add(Outcome.EARLIEST_FALLBACK)
    pending = None
    if newest.source_end < consumed.source_next and _may_still_come(consumed, item):
        pending = (newest.source_end, consumed.source_next)
        notes.add(Outcome.PENDING)
    rows = tuple([used for used in (proof, row) if used is not None])
    position = TargetOffset(0) if place is None else place
    reached = newest.source_end
    # The origin's rows can add nothing to what they told themselves.
    there = consumed_there if consumed is told else None
    return SourceAnswer(
        item.origin.source, consumed, position, via, reached, pending, (), rows, trimmed, there
    ), position


def _may_still_come(consumed: SourcePosition, item: PlainSource) -> bool:
    ends = item.destination.history.epoch_ends
    return consumed.leader_epoch == UNKNOWN_EPOCH or not ends or ends[-1][0] <= consumed.leader_epoch


def consumed_plainly(
    commit: TargetOffset, item: SourceHistory, moved: SourcePosition = START
) -> tuple[SourcePosition, Run | None]:
    """As `consumed_position`, of a source whose one lineage at the origin has lost nothing."""
    told, row = _told_by_rows(commit, item)
    return (told, row) if is_within(moved, told) else consumed_position(commit, [item], moved)


def _told_by_rows(commit: TargetOffset, item: SourceHistory) -> tuple[SourcePosition, Run | None]:
    """What the origin's rows tell, and the row that proves it."""
    row = item.history.floor_by_target(commit)
    source_next, epoch = SourceOffset(0), UNKNOWN_EPOCH
    if row is not None:
        into, count = commit - row.target_start, row.count
        held = into > 0 and count > 0
        source_next = SourceOffset(row.source_start + min(into, count)) if held else row.previous_source_end
        epoch = row.source_leader_epoch if source_next else UNKNOWN_EPOCH
    ends = tuple([(known, min(end, source_next)) for known, end in item.history.epoch_ends])
    return SourcePosition(epoch, source_next, ends), row


def is_within(moved: SourcePosition, told: SourcePosition) -> bool:
    """Whether an earlier move left nothing that the origin's rows don't tell by now."""
    if moved is START:
        return True
    if moved.starts or (
        moved.source_next and (moved.leader_epoch, moved.source_next) > (told.leader_epoch, told.source_next)
    ):
        return False
    ends = dict(told.epoch_ends)
    return all(known in ends and end <= ends[known] for known, end in moved.ends.items())
