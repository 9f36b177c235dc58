"""Logs and clusters of the model: plain lists of named records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
)
from parallax.domain.place import LogRange
from parallax.domain.progress import TargetTruncation
from parallax.domain.runs import LostRange, Run

TARGET_TOPIC = TopicId("t0")


class ViolationError(AssertionError):
    """A property does not hold; the message says which."""


@dataclass(frozen=True)
class Record:
    """A record's name: offset and leader epoch are unique within one incarnation of a topic."""

    source: SourceId
    offset: int
    epoch: int


@dataclass
class SourceLog:
    """One incarnation of a region's topic. ``log`` holds None where no consumer could ever see a record.

    ``epoch_starts`` is Kafka's leader epoch cache: (epoch, offset of its first entry), ascending.
    """

    source: SourceId
    epoch: int = 0
    low: int = 0
    log: list[Record | None] = field(default_factory=list)
    truncations: list[tuple[int, int]] = field(default_factory=list)  # (end, epoch that began with it)
    epoch_starts: list[tuple[int, int]] = field(default_factory=list)
    deleted: bool = False

    def append(self, entries: Sequence[Record | None]) -> None:
        if entries and (not self.epoch_starts or self.epoch_starts[-1][0] < self.epoch):
            self.epoch_starts.append((self.epoch, len(self.log)))
        self.log += entries

    def truncate(self, end: int) -> None:
        """Another leader, whose log ends earlier."""
        self.epoch += 1
        self.truncations.append((end, self.epoch))
        self.epoch_starts = [item for item in self.epoch_starts if item[1] < end]
        del self.log[end:]

    def epoch_up_to(self, epoch: int) -> int:
        """The newest epoch of the log that is not above ``epoch``: what OffsetForLeaderEpoch answers."""
        return max((found for found, _ in self.epoch_starts if found <= epoch), default=UNKNOWN_EPOCH)

    def records(self, start: int, limit: int) -> list[Record]:
        found: list[Record] = []
        for record in self.log[max(start, self.low) :]:
            if len(found) == limit:
                break
            if record is not None:
                found.append(record)
        return found


@dataclass
class Copier:
    """A replicator's state for one source lineage on one aggregate cluster; all of it as committed."""

    source: SourceLog
    generation: int
    rows: list[Run] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    source_next: int = 0
    last_record_end: int = 0
    last_epoch: int = -1
    epoch_seen: int = 0
    closed_at: int | None = None
    cut: int | None = None
    open_batch: list[tuple[Record, int]] = field(default_factory=list)


@dataclass
class Cluster:
    """An aggregate partition: entries are records, or None for markers and aborted records."""

    name: ClusterName
    entries: list[Record | None] = field(default_factory=list)
    low: int = 0
    leader_epoch: int = 0
    truncations: list[TargetTruncation] = field(default_factory=list)
    copiers: dict[RegionName, list[Copier]] = field(default_factory=dict)
    topic_id: TopicId = TARGET_TOPIC

    def stable_end(self) -> int:
        """The last stable offset: what read_committed consumers may read up to."""
        starts = [
            item.open_batch[0][1] for items in self.copiers.values() for item in items if item.open_batch
        ]
        return min(starts, default=len(self.entries))

    def log_range(self) -> LogRange:
        return LogRange(TargetOffset(self.low), TargetOffset(len(self.entries)))


@dataclass(frozen=True)
class Options:
    """What may happen in a world. Without ``truncation`` and with ``complete`` rows nothing may be read twice."""

    regions: int = 2
    clusters: int = 2
    complete: bool = True
    truncation: bool = False
    retention: bool = False
    recreation: bool = False
    rewinds: bool = False
    compaction: bool = False
    epochs: bool = False


def build_runs(
    sources: Sequence[int],
    targets: Sequence[int],
    *,
    previous_source_end: SourceOffset,
    source_leader_epoch: int,
) -> list[Run]:
    """The runs of records copied one after the other: ``sources[i]`` became ``targets[i]``; both ascend strictly."""
    found: list[Run] = []
    for source, target in zip(sources, targets, strict=True):
        if found and (source, target) == (found[-1].source_end, found[-1].target_end):
            found[-1] = replace(found[-1], count=found[-1].count + 1)
            continue
        before = found[-1].source_end if found else previous_source_end
        found.append(Run(SourceOffset(source), TargetOffset(target), 1, before, source_leader_epoch))
    return found
