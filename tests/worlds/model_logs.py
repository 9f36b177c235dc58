"""Logs and clusters of the model: plain lists of named records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

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
from parallax.domain.runs import Run

if TYPE_CHECKING:
    from tests.worlds.model_copier import Copier

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

    Attributes:
        epoch_starts: Kafka's leader epoch cache: (epoch, offset of its first entry), ascending.
        away: log and epoch cache of a replica that was leader once and is not there; it may come back as leader.
        ever: every record that was ever written.
    """

    source: SourceId
    epoch: int = 0
    low: int = 0
    log: list[Record | None] = field(default_factory=list)
    epoch_starts: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    away: tuple[list[Record | None], list[tuple[int, int]]] | None = None
    deleted: bool = False
    ever: list[Record] = field(default_factory=list)

    def append_record(self) -> None:
        self.ever.append(Record(self.source, len(self.log), self.epoch))
        self.log.append(self.ever[-1])

    def append_hidden(self, count: int) -> None:
        """Control records, or an aborted transaction."""
        self.log += [None] * count

    def elect(self, *, steps: int = 1) -> None:
        """The next leader, with this log."""
        self.epoch += steps
        self.epoch_starts.append((self.epoch, len(self.log)))

    def elect_unclean(self, end: int) -> None:
        """Another leader, whose log ends earlier."""
        self.away = (list(self.log), list(self.epoch_starts))
        del self.log[end:]
        self.epoch_starts = [item for item in self.epoch_starts if item[1] < end]
        self.elect()

    def elect_returned(self) -> None:
        """The leader from before the last unclean election comes back, with its own log, and leads."""
        if self.away is None or len(self.away[0]) < self.low:
            return
        self.away, (self.log, self.epoch_starts) = (self.log, self.epoch_starts), self.away
        self.elect()

    def end_of(self, epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the newest epoch up to this one, and where it ends."""
        below = [item for item in self.epoch_starts if item[1] <= self.low]
        known = [*below[-1:], *self.epoch_starts[len(below) :]]  # retention takes epochs too
        end = min((max(start, self.low) for found, start in known if found > epoch), default=len(self.log))
        return max((found for found, _ in known if found <= epoch), default=epoch), end

    def agrees(self, last_run_end: int, epoch: int) -> bool:
        """Whether the log is still what was read below an offset, as one knows who saw what retention took."""
        later = [start for found, start in self.epoch_starts if found > epoch]
        return epoch in dict(self.epoch_starts) and last_run_end <= min(later, default=len(self.log))

    def parting(self, epoch: int) -> tuple[int, int]:
        """As `end_of`, for one who saw what retention took; -1: of no epoch up to this one there was anything."""
        end = min((start for found, start in self.epoch_starts if found > epoch), default=len(self.log))
        return max((found for found, _ in self.epoch_starts if found <= epoch), default=UNKNOWN_EPOCH), end

    def epoch_at(self, offset: int) -> int:
        return max(found for found, start in self.epoch_starts if start <= offset)


@dataclass
class Cluster:
    """An aggregate partition: entries are records, or None for markers and aborted records."""

    name: ClusterName
    entries: list[Record | None] = field(default_factory=list)
    low: int = 0
    leader_epoch: int = 0
    truncations: list[TargetTruncation] = field(default_factory=list)
    copiers: dict[RegionName, Copier] = field(default_factory=dict)
    topic_id: TopicId = TARGET_TOPIC

    def stable_end(self) -> int:
        """The last stable offset: what read_committed consumers may read up to."""
        starts = [copier.open_batch[0][1] for copier in self.copiers.values() if copier.open_batch]
        return min(starts, default=len(self.entries))

    def kept_since(self, leader_epoch: int) -> int:
        """Up to where the log is still what a leader with that epoch held."""
        cuts = [loss.cut for loss in self.truncations if loss.leader_epoch > leader_epoch]
        return min([*cuts, len(self.entries)])

    def log_range(self) -> LogRange:
        return LogRange(TargetOffset(self.low), TargetOffset(len(self.entries)))


@dataclass(frozen=True)
class Options:
    """What may happen in a world. Without ``truncation`` and with ``complete`` rows nothing may be read twice.

    Attributes:
        hidden: leader epochs of a source may begin with entries that no consumer sees.
        short_run_logs: retention takes the head of run logs, too.
    """

    regions: int = 2
    clusters: int = 2
    complete: bool = True
    truncation: bool = False
    retention: bool = False
    recreation: bool = False
    rewinds: bool = False
    compaction: bool = False
    epochs: bool = False
    hidden: bool = False
    short_run_logs: bool = False


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
