"""Which records of a source cluster are copies, by the run logs of the routes that lead into it.

A run of such a log names the offsets at which copies lie, so that nothing of a record, nor of its batch, has to tell where it
comes from (docs/decisions/0019-own-records.md). Pure: `replicator.kafka.incoming` reads the run logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, RegionName, TopicId, TopicPartition
from parallax.v1.runlog_pb2 import Entry, PartitionEntry
from replicator.copying.state import lineage_of, rows_of, topic_partition_of

ORIGIN_UNKNOWN = "ORIGIN_UNKNOWN"
"""Begins the reason of a partition that is stopped at a record of which the run logs don't tell any more whose it is."""


class RecordFate(Enum):
    """What a route does with a record."""

    COPY = "copy"
    LEAVE = "leave"
    UNKNOWN = "unknown"
    """Nobody can tell any more where the record comes from: a run log does not reach far enough back."""


@dataclass(frozen=True, slots=True)
class OriginRule:
    """Which records a route copies.

    Attributes:
        own: whether those that were produced at the cluster that it reads.
        incoming: of each route into that cluster, by its source region, whether those that it brought.
    """

    own: bool
    incoming: Mapping[RegionName, bool]

    @property
    def looks_up(self) -> bool:
        """Whether records have to be told apart."""
        return any(taken != self.own for taken in self.incoming.values())


class LoggedEntry(NamedTuple):
    """An entry of an incoming route's run log, and the log's partition that it lies in."""

    source: RegionName
    shard: int
    entry: Entry


class _Span(NamedTuple):
    start: int
    end: int
    leader_epoch: int
    verdict: RecordFate


@dataclass(slots=True)
class _Part:
    """What is known of one partition of one incarnation of a topic."""

    spans: list[_Span] = field(default_factory=list)
    unknown: list[tuple[int, int]] = field(default_factory=list)
    floors: dict[RegionName, tuple[int, Lineage]] = field(default_factory=dict)
    named: set[tuple[RegionName, int, int]] = field(default_factory=set)
    """By source, run log partition and layout."""
    told_below: int = 0
    """What lies below was asked about and is forgotten."""


class Origins:
    """What run logs tell, as far as they were read.

    Args:
        rule: which records are copied.
        wanted: the partitions that will be asked about.
    """

    def __init__(self, rule: OriginRule, wanted: Callable[[TopicPartition], bool]) -> None:
        self._own = RecordFate.COPY if rule.own else RecordFate.LEAVE
        self._incoming = {
            source: RecordFate.COPY if taken else RecordFate.LEAVE for source, taken in rule.incoming.items()
        }
        self._wanted = wanted
        self._parts: dict[tuple[TopicPartition, TopicId], _Part] = {}
        self.headless: set[RegionName] = set()
        """Sources whose run log holds no snapshot any more: what it does not name may be theirs."""

    def add(self, logged: LoggedEntry, *, follows: bool = True) -> None:
        """Take in an entry; those of one partition of a run log in order.

        Args:
            logged: the entry.
            follows: whether every one before it was taken in, or will be. Else those of earlier layouts have to come first.
        """
        for part in logged.entry.partitions:
            item = topic_partition_of(part)
            if self._wanted(item):
                self._add(item, part, logged, follows=follows)

    def _add(self, item: TopicPartition, part: PartitionEntry, logged: LoggedEntry, *, follows: bool) -> None:
        rows, lineage = rows_of(part), lineage_of(part)
        known = self._parts.setdefault((item, lineage.target_topic_id), _Part())
        floor = known.floors.get(logged.source)
        name = (logged.source, logged.shard, logged.entry.layout)
        if name not in known.named and not part.closed:
            known.named.add(name)
            first_ever = part.lineage_sequence == 0 and lineage.generation == 0
            told_to = floor[0] if floor is not None else (part.lineage_target_first if first_ever else 0)
            begins = int(rows[0].target_start if rows else part.last_run_target_end)
            # A run log that was rebuilt, or taken over, goes on with what is there, whoever wrote it.
            rebuilt = logged.entry.path == "layout" and (floor is None or floor[1] != lineage)
            unread = not follows or logged.source in self.headless
            if told_to < begins and (rebuilt or unread):
                known.unknown.append((told_to, begins))
        verdict = self._incoming.get(logged.source, RecordFate.LEAVE)
        epoch = part.target_leader_epoch if part.HasField("target_leader_epoch") else UNKNOWN_EPOCH
        for row in rows:
            if row.count:
                _insert(known.spans, _Span(row.target_start, row.target_end, epoch, verdict))
        if not part.closed:
            known.floors[logged.source] = (int(part.last_run_target_end), lineage)

    def reach(self, item: TopicPartition, topic_id: TopicId, offset: int) -> bool:
        """Whether every record of the partition from the offset on can be told, as far as entries name the partition."""
        known = self._parts.get((item, topic_id))
        if known is None:
            return True
        return known.told_below <= offset and all(end <= offset for _, end in known.unknown)

    def judge(
        self, item: TopicPartition, topic_id: TopicId, leader_epoch: int, offsets: Sequence[int]
    ) -> list[tuple[int, int, RecordFate]]:
        """What becomes of records, as (first number, end, verdict) of those in a row that share one.

        Args:
            item: their partition.
            topic_id: of its topic.
            leader_epoch: under which they were written there: a run of another one was of records that are lost.
            offsets: theirs, ascending.
        """
        known = self._parts.get((item, topic_id))
        if known is None:
            return [(0, len(offsets), RecordFate.UNKNOWN if self.headless else self._own)]
        unnamed = RecordFate.UNKNOWN if self.headless - known.floors.keys() else self._own
        first, last = offsets[0], offsets[-1]
        spans = [
            span
            for span in _up_to(known.spans, last)
            if span.end > first
            and (UNKNOWN_EPOCH in (span.leader_epoch, leader_epoch) or span.leader_epoch == leader_epoch)
        ]
        unknown = [gap for gap in known.unknown if gap[0] <= last and gap[1] > first]
        if not unknown and len(spans) <= 1:
            if not spans:
                return [(0, len(offsets), unnamed)]
            if spans[0].start <= first and spans[0].end > last:
                return [(0, len(offsets), spans[0].verdict)]
        result: list[tuple[int, int, RecordFate]] = []
        for number, offset in enumerate(offsets):
            verdict = next((span.verdict for span in spans if span.start <= offset < span.end), None)
            if verdict is None:
                gap = any(start <= offset < end for start, end in unknown)
                verdict = RecordFate.UNKNOWN if gap else unnamed
            if result and result[-1][2] is verdict:
                result[-1] = (result[-1][0], number + 1, verdict)
            else:
                result.append((number, number + 1, verdict))
        return result

    def forget_below(self, item: TopicPartition, topic_id: TopicId, offset: int) -> None:
        """Nothing below the offset will be asked about any more."""
        known = self._parts.get((item, topic_id))
        if known is not None and offset > known.told_below:
            known.told_below = offset
            gone = 0
            while gone < len(known.spans) and known.spans[gone].end <= offset:
                gone += 1
            del known.spans[:gone]
            known.unknown = [gap for gap in known.unknown if gap[1] > offset]


def _insert(spans: list[_Span], span: _Span) -> None:
    place = len(spans)
    while place and spans[place - 1].start > span.start:
        place -= 1
    spans.insert(place, span)


def _up_to(spans: Iterable[_Span], last: int) -> Iterator[_Span]:
    for span in spans:
        if span.start > last:
            return
        yield span


@dataclass(frozen=True, slots=True)
class ReadPart:
    """What was read of one partition of a run log, up to its end.

    Attributes:
        entries: in order.
        from_start: whether they are all that it holds.
        trimmed: whether retention has taken earlier ones.
    """

    source: RegionName
    shard: int
    entries: Sequence[Entry]
    from_start: bool
    trimmed: bool

    def names_all(self, layout: int) -> bool:
        """Whether the entries name all that a layout, which begins with a snapshot, ever had here."""
        whole = self.from_start and not self.trimmed
        return whole or any(
            entry.snapshot and entry.piece == 0 and entry.layout == layout for entry in self.entries
        )


def take_in(
    origins: Origins, parts: Iterable[ReadPart], layouts: Mapping[RegionName, tuple[int, int]]
) -> bool:
    """Add what was read of run logs. Whether it names every partition that they ever named; if not, more has to be read.

    Args:
        origins: nothing was added to it before.
        parts: each partition of each run log.
        layouts: number and shards of each route's layout, read before them; other partitions are those of earlier layouts.
    """
    logged: list[LoggedEntry] = []
    for part in parts:
        layout, shards = layouts[part.source]
        if part.shard < shards and not part.names_all(layout):
            if not part.from_start:
                return False
            origins.headless.add(part.source)
        logged += [LoggedEntry(part.source, part.shard, entry) for entry in part.entries]
    for entry in sorted(logged, key=lambda item: item.entry.layout):
        origins.add(entry, follows=False)
    return True
