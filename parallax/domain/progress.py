"""How far a source was consumed, in terms that hold in every cluster.

A source offset alone does not name a record: after an unclean leader election another record may sit at it. A
record is named by its offset and the leader epoch that wrote it, and two copies of a log that both hold records
of one epoch agree on everything below the lower of their ends in that epoch (the reasoning of KIP-101). So a
position carries, beside its offset, the consumed end of each leader epoch that is known: with these it can be
laid onto any copy of the log (`consumed_end`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from parallax.domain.ids import UNKNOWN_EPOCH, ClusterName, SourceId, SourceOffset, TargetOffset, TopicId
from parallax.domain.lineage_history import LineageHistory
from parallax.domain.runs import LostRange, Run

MAX_EPOCH_ENDS = 8
"""Leader epochs kept in a position that is stored. Forgetting an older one makes answers earlier, never wrong."""


_MAX_SPANS = 4

Span = tuple[SourceOffset, SourceOffset]
"""Source offsets ``[start, end)``."""


@dataclass(frozen=True, slots=True, order=True)
class SourcePosition:
    """How far a source was consumed.

    Attributes:
        leader_epoch: the newest source leader epoch that was read; UNKNOWN_EPOCH where brokers do not tell.
        source_next: the next offset after the last record consumed. Offsets behind it that hold no record
            (control records, aborted data) do not count.
        epoch_ends: pairs (leader epoch, source offset), ascending by epoch: of any log that holds records of
            that epoch, all records below that offset were consumed. Of an epoch that was read behind a lost range, pairs
            with the beginning and the end of what was read follow: nothing is said of what lies before or between.
    """

    leader_epoch: int
    source_next: SourceOffset
    epoch_ends: tuple[tuple[int, SourceOffset], ...] = ()

    @property
    def spans(self) -> dict[int, Sequence[Span]]:
        """What was consumed of a log, by leader epoch that it holds: spans with unread or unknown offsets between."""
        offsets: dict[int, list[SourceOffset]] = {}
        for epoch, offset in self.epoch_ends:
            offsets.setdefault(epoch, []).append(offset)
        if self.leader_epoch != UNKNOWN_EPOCH:
            offsets.setdefault(self.leader_epoch, [self.source_next])
        return {
            epoch: _paired([SourceOffset(0)] * (len(found) % 2) + found) for epoch, found in offsets.items()
        }

    @property
    def ends(self) -> dict[int, SourceOffset]:
        """The consumed end by leader epoch, ``source_next`` included."""
        ends = self.unbroken_ends
        return {epoch: spans[-1][1] for epoch, spans in self.spans.items()} if ends is None else ends

    @property
    def unbroken_ends(self) -> dict[int, SourceOffset] | None:
        """As `ends`, where each epoch was read from the source's beginning on, as nearly always; None: one was not."""
        ends = dict(self.epoch_ends)
        if len(ends) < len(self.epoch_ends):
            return None
        if self.leader_epoch != UNKNOWN_EPOCH:
            ends.setdefault(self.leader_epoch, self.source_next)
        return ends

    @property
    def starts(self) -> Sequence[SourceOffset]:
        """Where spans begin, but for the source's beginning."""
        if self.unbroken_ends is not None:
            return ()
        return sorted({start for spans in self.spans.values() for start, _ in spans if start})

    @property
    def furthest(self) -> SourceOffset:
        """The end of all that it says was consumed, whatever the leader epoch."""
        return max([self.source_next, *(end for _, end in self.epoch_ends)])

    def up_to(self, end: SourceOffset) -> SourcePosition:
        """What it says of records below an offset."""
        return SourcePosition(
            self.leader_epoch,
            min(self.source_next, end),
            tuple((epoch, min(it, end)) for epoch, it in self.epoch_ends),
        )

    def bounded(self) -> SourcePosition:
        """The position with at most `MAX_EPOCH_ENDS` epochs: what is stored.

        The newest that were read come first. Later ones, of which nothing was read, all say ``source_next``: they
        help only where a cluster knows none of the others.
        """
        if len(self.epoch_ends) <= MAX_EPOCH_ENDS and self.unbroken_ends is not None:
            return self
        named = dict(self.epoch_ends)
        spans = {epoch: found[:_MAX_SPANS] for epoch, found in self.spans.items() if epoch in named}
        all_read = [epoch for epoch in spans if epoch <= self.leader_epoch]
        read = all_read[-MAX_EPOCH_ENDS:]
        lowest = min((spans[epoch][0][0] for epoch in read if spans[epoch][0][0]), default=None)
        if lowest is not None:  # what was read behind a lost range is of use with what leads up to it
            before = [epoch for epoch in all_read if not spans[epoch][0][0] and spans[epoch][0][1] >= lowest]
            if before and not set(before) & set(read):
                read = [before[-1], *read[1:]]
        later = [epoch for epoch in spans if epoch > self.leader_epoch]
        kept = {*read, *later[: MAX_EPOCH_ENDS - len(read)]}
        return SourcePosition(
            self.leader_epoch,
            self.source_next,
            _named({epoch: found for epoch, found in spans.items() if epoch in kept}),
        )


def _paired(offsets: Sequence[SourceOffset]) -> list[Span]:
    return list(zip(offsets[::2], offsets[1::2], strict=True))


START = SourcePosition(UNKNOWN_EPOCH, SourceOffset(0))
"""Nothing consumed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a group's last move left: written once per move, never touched by later commits.

    It holds in ``cluster`` and for the topic incarnation ``topic_id`` there, and only while the group's commit
    is at or above ``resume_offset`` and has not gone back since (`parallax.domain.commits.went_back`). ``positions`` names
    older incarnations of a region's topic before newer ones. An empty ``topic_id``: the topic was not there yet, see
    `holds_for_topic`. ``moved_at_ms``: when the move was remembered, milliseconds since the Unix epoch; 0: it is not yet.
    """

    cluster: ClusterName
    topic_id: TopicId
    resume_offset: TargetOffset
    positions: Mapping[SourceId, SourcePosition]
    moved_at_ms: int = field(default=0, compare=False)

    def holds_in(self, cluster: ClusterName, topic_id: TopicId | None) -> bool:
        """Whether it was left in the cluster, for the topic that is there (None: not known, or none)."""
        return self.cluster == cluster and holds_for_topic(self.topic_id, self.resume_offset, topic_id)

    @property
    def set_back(self) -> Progress:
        """What is left of it once the group was set back where it had moved to, or begins another life there.

        Nothing counts as consumed before; but it is still there, and not where it has consumed more at another time.
        """
        return replace(self, resume_offset=TargetOffset(0), positions={})

    @property
    def is_set_back(self) -> bool:
        """Whether it says only where the group is (`set_back`)."""
        return not (self.resume_offset or self.positions)


def moved_at(now_ms: int, before: Iterable[Progress]) -> int:
    """The moment to remember of a move: later than those of the moves before, whichever process's clock told them."""
    return max([now_ms, *(progress.moved_at_ms + 1 for progress in before)])


def holds_for_topic(topic_id: TopicId, resume_offset: TargetOffset, present: TopicId | None) -> bool:
    """Whether a move to the topic incarnation ``topic_id`` was one to the topic that is there.

    A move may come before the topic does. It names no id and starts at offset 0: whichever topic comes is read from
    its first record on, and what was consumed elsewhere before is to be skipped in it.
    """
    return topic_id == present or (not topic_id and resume_offset == 0)


@dataclass(frozen=True, slots=True)
class SourceHistory:
    """The rows of one source lineage on one aggregate cluster.

    Attributes:
        closed_at: the source's next offset at which the lineage ended (topic recreated, tail lost); None while
            it goes on. The history tells of all its records if its newest row ends there.
    """

    source: SourceId
    history: LineageHistory
    closed_at: SourceOffset | None = None

    @property
    def record_end(self) -> SourceOffset | None:
        """The next offset after the lineage's last record; None while it is open or if its last rows are missing.

        What retention took before it was copied is none of its records, be it at the end of all.
        """
        newest = self.history.newest
        if self.closed_at is None or newest is None or newest.source_end < self.closed_at:
            return None
        return self.history.without_lost_before(newest) if newest.is_watermark else newest.source_end


def consumed_end(consumed: SourcePosition, history: LineageHistory) -> SourceOffset:
    """The next offset up to which the history's own records were consumed, lost ranges that lead on included.

    Each leader epoch that both sides know proves it up to the lower of their ends in it. Without a common epoch
    nothing is proven; where one side knows no epoch at all there is nothing to compare, and offsets alone count.
    """
    return _agreed(consumed, history, history.epoch_ends)


def read_end(consumed: SourcePosition, history: LineageHistory) -> SourceOffset:
    """As `consumed_end`, for what a reader of the history's log has read: nothing of a lost range."""
    return _agreed(consumed, history, history.read_ends)


def _agreed(
    consumed: SourcePosition, history: LineageHistory, known: Sequence[tuple[int, SourceOffset]]
) -> SourceOffset:
    ends = consumed.unbroken_ends
    if ends is not None:
        if not ends or not known:
            return consumed.source_next
        return max((min(end_here, ends.get(epoch, SourceOffset(0))) for epoch, end_here in known))
    spans = consumed.spans
    if not spans or not known:
        return consumed.source_next
    proven = SourceOffset(0)
    for epoch, end_here in known:
        for start, end in spans.get(epoch, ()):
            # What was read behind a lost range proves nothing where this log has other records below.
            if start <= proven or history.holds_nothing_in(proven, start):
                proven = max(proven, min(end_here, end))
    return proven


def last_consumed_end(consumed: SourcePosition, history: LineageHistory) -> SourceOffset:
    """The next offset after the history's last own record that can have been consumed, whatever lies before it."""
    ends = consumed.ends if consumed.starts else {}
    shared = (min(end, ends[epoch]) for epoch, end in history.epoch_ends if epoch in ends)
    return max([consumed_end(consumed, history), *shared])


def consumed_spans(consumed: SourcePosition, history: LineageHistory) -> Sequence[Span]:
    """Which of the history's own records were consumed: first those below `consumed_end`, then those further on.

    What was read behind a lost range is named by its leader epoch wherever that epoch's log has the same records, though
    nothing is known of what lies before. Where the history has a lost range of its own, that log begins behind it.
    """
    spans = [(SourceOffset(0), consumed_end(consumed, history))]
    if consumed.starts:
        end = last_consumed_end(consumed, history)
        here = SourcePosition(UNKNOWN_EPOCH, end, history.read_below(end)).spans
        spans += [
            (max(start, start_here), min(end, end_here))
            for epoch, found in consumed.spans.items()
            for start, end in found
            for start_here, end_here in here.get(epoch, ())
            if start and max(start, start_here) < min(end, end_here)
        ]
    return _joined(spans)


def known_spans(consumed: SourcePosition, history: LineageHistory) -> Sequence[Span]:
    """Which offsets of the history's log are known to be read, or to have been told of as lost.

    Unlike `consumed_spans` it claims nothing of what merely holds none of the history's records, such as its lost ranges. Of
    an epoch that ends before a lost range, and is followed by a later one, it is not known where in the range it ended.
    """
    spans = consumed.spans
    if not spans or not history.epoch_ends:
        # Nothing to compare: offsets alone count, if there are rows at all.
        return [(SourceOffset(0), consumed.source_next)] if history.newest is not None or not spans else []
    known = dict([*history.read_ends, history.epoch_ends[-1]])
    return _joined(
        (start, min(end, known[epoch]))
        for epoch, found in spans.items()
        for start, end in found
        if epoch in known
    )


def union_of(positions: Iterable[SourcePosition]) -> SourcePosition:
    """What was consumed if each of the positions was."""
    newest = START
    spans: dict[int, list[Span]] = {}
    for position in positions:
        read = position.source_next > 0  # a lineage that was only opened says nothing of the newest record
        if read and (position.leader_epoch, position.source_next) > (newest.leader_epoch, newest.source_next):
            newest = position
        for epoch, found in position.spans.items():
            spans.setdefault(epoch, []).extend(found)
    return SourcePosition(
        newest.leader_epoch,
        newest.source_next,
        _named({epoch: _joined(found) for epoch, found in sorted(spans.items())}),
    )


def _joined(spans: Iterable[Span]) -> list[Span]:
    """The same offsets in as few spans as possible, in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return [span for span in joined if span[0] < span[1]] or joined[:1]


def _named(spans: Mapping[int, Sequence[Span]]) -> tuple[tuple[int, SourceOffset], ...]:
    """Spans by leader epoch, as `SourcePosition.epoch_ends`."""
    return tuple(
        (epoch, offset)
        for epoch, found in spans.items()
        for span in found
        for offset in (span if span[0] else span[1:])
    )


def with_known_epochs(consumed: SourcePosition, histories: Iterable[SourceHistory]) -> SourcePosition:
    """The same position with all leader epochs that the histories know of its log.

    What was consumed of a history was consumed of each of its epochs, so a cluster that lacks the position's
    own epoch can be compared by an older one.
    """
    items, ends = list(histories), consumed.unbroken_ends
    if ends is not None and len(items) == 1 and not items[0].history.lost:
        # As below, for what nearly every position and history are.
        here = consumed_end(consumed, items[0].history)
        for epoch, end in items[0].history.epoch_ends:
            ends[epoch] = max(min(end, here), ends.get(epoch, SourceOffset(0)))
        return SourcePosition(consumed.leader_epoch, consumed.source_next, tuple(sorted(ends.items())))
    known = [consumed]
    for item, lost_before in _with_lost_before(items):
        here = read_end(consumed, item.history)
        known.append(
            prefix(
                START.leader_epoch,
                here,
                item.history,
                lost_before=lost_before,
                passed_over=bool(consumed.starts),
            )
        )
    return SourcePosition(consumed.leader_epoch, consumed.source_next, union_of(known).epoch_ends)


def _with_lost_before(
    histories: Iterable[SourceHistory],
) -> Iterator[tuple[SourceHistory, Sequence[LostRange]]]:
    """Each history, oldest first, with what older ones lost below its first row."""
    lost: list[LostRange] = []
    for item in histories:
        # The first row is asked for where it matters alone: it may have to be read.
        first = item.history.first if lost else None
        begins_at = first.source_start if first is not None else 0
        yield item, [gap for gap in lost if gap.source_end <= begins_at]
        lost += item.history.lost


def prefix(
    leader_epoch: int,
    source_next: SourceOffset,
    history: LineageHistory,
    *,
    lost_before: Sequence[LostRange] = (),
    passed_over: bool = False,
) -> SourcePosition:
    """The position of a reader that has consumed the history's log below ``source_next``.

    Args:
        leader_epoch: of a row at that place.
        source_next: the next offset after the last record consumed.
        history: the log.
        lost_before: as for `LineageHistory.read_below`,
        passed_over: this, too.
    """
    ends = history.read_below(source_next, lost_before=lost_before, passed_over=passed_over)
    if leader_epoch != UNKNOWN_EPOCH and leader_epoch not in dict(ends):
        # The row's record lies behind a lost range: the last one consumed has an older epoch, or none that is known.
        return START if not ends else SourcePosition(ends[-1][0], source_next, ends)
    return SourcePosition(leader_epoch, source_next, ends)


def records_below(target: TargetOffset, history: LineageHistory) -> tuple[SourceOffset, Run] | None:
    """The next offset after the last source record that lies below ``target``, and the row that proves it."""
    row = history.floor_by_target(target)
    if row is None:
        return None
    if row.is_watermark or target <= row.target_start:
        # Not the offset that a watermark names: what lies between may be of a later epoch than the last record. And
        # not the end of a lost range: nobody read that, nor knows its epochs.
        return history.without_lost_before(row), row
    return row.to_source(min(target, row.target_end)), row


def consumed_position(
    commit: TargetOffset, histories: Iterable[SourceHistory], moved: SourcePosition = START
) -> tuple[SourcePosition, Run | None]:
    """What a group with next offset ``commit`` has consumed of one source.

    Args:
        commit: the group's next offset at the origin.
        histories: the origin's lineages of the source.
        moved: how far the group had it when it came to the origin.

    Returns:
        The position, and the origin's row that proves it (None where only ``moved`` does).
    """
    items = list(histories)
    positions: list[tuple[SourcePosition, Run]] = []
    for item, lost_before in _with_lost_before(items):
        below = records_below(commit, item.history)
        if below is not None:
            source_next, row = below
            read = prefix(
                row.source_leader_epoch,
                source_next,
                item.history,
                lost_before=lost_before,
                passed_over=bool(moved.starts),
            )
            positions.append((read, row))
    here = union_of(position for position, _ in positions)
    if not here.ends and positions:  # no epochs known: the last place on the target decides
        here = max(positions, key=lambda item: (item[1].target_start, item[0].source_next))[0]
    both = union_of([here, moved])
    proof = next((row for position, row in positions if position.source_next == both.source_next), None)
    return with_known_epochs(both, items), proof


@dataclass(frozen=True, slots=True)
class TargetTruncation:
    """An aggregate partition that lost its tail to an unclean leader election.

    Attributes:
        cut: its end after the loss: all below is as it was.
        old_end: its end before. Offsets of ``[cut, old_end)`` have been given twice.
        leader_epoch: the aggregate partition's leader epoch that began with the loss; UNKNOWN_EPOCH if nobody
            recorded it.
    """

    cut: TargetOffset
    old_end: TargetOffset
    leader_epoch: int


def settled_commit(
    commit: TargetOffset, truncations: Iterable[TargetTruncation], commit_leader_epoch: int = UNKNOWN_EPOCH
) -> TargetOffset:
    """The part of a commit that means the same before and after the origin lost its tail.

    A commit above the cut is ambiguous as long as it could have been made before the loss. The leader epoch
    that Kafka keeps with a commit (KIP-320) settles it; without one, a commit above every offset that existed
    before was made after. What remains in doubt counts as not consumed.
    """
    for loss in truncations:
        made_before = (
            commit <= loss.old_end
            if UNKNOWN_EPOCH in {commit_leader_epoch, loss.leader_epoch}
            else commit_leader_epoch < loss.leader_epoch
        )
        if made_before:
            commit = min(commit, loss.cut)
    return commit
