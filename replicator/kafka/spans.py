"""Spans of target offsets: where records lie, and which of them no row of a run log holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from parallax.domain.ids import TopicPartition
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import rows_of, topic_partition_of

Span = tuple[int, int]
"""Target offsets ``[start, end)``."""

EpochEnd = Callable[[TopicPartition, int], int]
"""Where a leader epoch ends in the log that the target has now of a partition."""


def spans_of(offsets: Iterable[int]) -> Sequence[Span]:
    """Ascending offsets as spans."""
    found: list[Span] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


def row_spans(entries: Iterable[Entry], *, watermarks: bool = False) -> Mapping[TopicPartition, list[Span]]:
    """What the runs of run-log entries hold on the target, in the order of the entries; watermarks as empty spans."""
    rows: dict[TopicPartition, list[Span]] = defaultdict(list)
    for entry in entries:
        for part in entry.partitions:
            rows[topic_partition_of(part)] += [
                (row.target_start, row.target_end) for row in rows_of(part) if row.count or watermarks
            ]
    return rows


def kept_spans(
    entries: Iterable[Entry], topic_ids: Mapping[TopicPartition, str], epoch_end: EpochEnd
) -> Mapping[TopicPartition, list[Span]]:
    """The same of some partitions, without what the target has lost since.

    Lost is what lies above the end of the leader epoch under which it was written, and what was on another topic.

    Args:
        entries: of run logs.
        topic_ids: of the partitions' topics on the target.
        epoch_end: asks the target.
    """
    rows: dict[TopicPartition, list[Span]] = defaultdict(list)
    for part in (part for entry in entries for part in entry.partitions):
        item, runs = topic_partition_of(part), [row for row in rows_of(part) if row.count]
        if not runs or part.target_topic_id != topic_ids.get(item):
            continue
        told = part.HasField("target_leader_epoch")
        end = epoch_end(item, part.target_leader_epoch) if told else max(row.target_end for row in runs)
        rows[item] += [(row.target_start, min(row.target_end, end)) for row in runs if row.target_start < end]
    return rows


def without(spans: Iterable[Span], rows: Iterable[Span]) -> Iterator[Span]:
    """What of ascending spans no row holds; the rows may come in any order, and overlap."""
    held = sorted(row for row in rows if row[0] < row[1])
    place = 0
    for start, end in spans:
        begin = start
        while begin < end:
            while place < len(held) and held[place][1] <= begin:
                place += 1
            if place == len(held) or held[place][0] >= end:
                yield begin, end
                break
            if held[place][0] > begin:
                yield begin, held[place][0]
            begin = held[place][1]


def count_of(spans: Iterable[Span]) -> int:
    """How many offsets they hold."""
    return sum(end - start for start, end in spans)
