"""Finds records that someone else wrote into an aggregate topic: counted and reported, never taken for a source.

A look at a sample: now and then, the newest gap between two runs of this shard is read, and whatever no run log
of any route explains is foreign. Where a run log does not reach far enough back, nothing is said.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route, TopicPartition, aggregate_cluster
from parallax.errors import ParallaxError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import topic_partition_of
from replicator.kafka.run_log import KafkaRunLog, read_partition, run_log_topic
from replicator.kafka.spans import Span, count_of, row_spans, spans_of, without
from replicator.lease import Lease

log = structlog.get_logger(__name__)

_INTERVAL_MS = 30_000
_TAIL_OFFSETS = 4_000
_GAP_OFFSETS = 2_000
_TIMEOUT_MS = 5_000

_Tail = tuple[bool, Mapping[TopicPartition, Sequence[Span]]]
"""Whether a run log was read from its start on, and its newest runs."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Target offsets ``[start, end)`` of a partition between two runs of this shard."""

    topic_partition: TopicPartition
    start: int
    end: int


class Gaps:
    """The newest gap of each partition that is longer than a transaction's marker."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._newest: dict[TopicPartition, Gap] = {}
        self._lock = threading.Lock()

    def note(self, entry: Entry) -> None:
        """Take note of a committed entry."""
        with self._lock:
            for part in entry.partitions:
                item = topic_partition_of(part)
                if part.closed:
                    self._ends.pop(item, None)
                for start, count in zip(part.target_start, part.count, strict=True):
                    end = self._ends.get(item)
                    if count and end is not None and start - end > 1:
                        self._newest[item] = Gap(item, max(end, start - _GAP_OFFSETS), start)
                    if count:
                        self._ends[item] = start + count

    def take(self) -> Sequence[Gap]:
        """The gaps that came up since the last call."""
        with self._lock:
            gaps, self._newest = list(self._newest.values()), {}
        return gaps


def unexplained(
    offsets: Iterable[int], spans_by_log: Iterable[tuple[int, Sequence[Span]]], gap: Gap
) -> list[Span]:
    """The records that no run holds.

    Args:
        offsets: of the records that are visible in the gap.
        spans_by_log: for each run log, the target offset from which on it is known, and its runs ``[start, end)``.
        gap: where the records lie.

    Returns:
        Where they lie; nothing if some run log is not known from the gap's start on.
    """
    logs = list(spans_by_log)
    if any(known_from > gap.start for known_from, _ in logs):
        return []
    return list(without(spans_of(offsets), (span for _, spans in logs for span in spans)))


class ForeignRecordWatch:
    """Looks for foreign records in a thread of its own.

    Args:
        config: all configuration.
        lease: the shard whose gaps are looked into.
        interval_ms: between two looks.
    """

    def __init__(self, config: Config, lease: Lease, *, interval_ms: int = _INTERVAL_MS) -> None:
        self._config = config
        self._lease = lease
        self._cluster = aggregate_cluster(lease.route.target)
        self._gaps = Gaps()
        self._interval_ms = interval_ms
        self.records = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"foreign records {lease}", daemon=True)
        self._thread.start()

    def note(self, entry: Entry) -> None:
        """Take note of a committed entry."""
        self._gaps.note(entry)

    def close(self) -> None:
        """End the thread; a read that it is busy with ends by itself."""
        self._end.set()

    def _work(self) -> None:
        while not self._end.wait(self._interval_ms / 1_000):
            try:
                self._look(self._gaps.take())
            except ParallaxError as error:
                log.info("foreign_records_unknown", lease=str(self._lease), problem=str(error))
            except Exception:
                log.exception(
                    "foreign_records_failed", lease=str(self._lease)
                )  # the next look may be spared it

    def _look(self, gaps: Sequence[Gap]) -> None:
        if not gaps:
            return
        tails = [
            tail
            for route in self._config.routes_into(self._lease.route.target)
            for tail in self._tails(route)
        ]
        settings = client_settings(self._config.cluster(self._cluster), client_id="parallax-foreign-records")
        for gap in gaps:
            item = gap.topic_partition
            records = read_partition(
                settings,
                self._cluster,
                item.topic,
                item.partition,
                (gap.start, gap.end),
                timeout_ms=_TIMEOUT_MS,
            )
            offsets = [offset for offset, _, _ in records]
            strange = unexplained(offsets, (_known(tail, item) for tail in tails), gap)
            if strange:
                self.records += (count := count_of(strange))
                log.warning(
                    "foreign_records",
                    cluster=self._cluster,
                    partition=str(item),
                    count=count,
                    first_offset=strange[0][0],
                )

    def _tails(self, route: Route) -> Iterator[_Tail]:
        """For each shard of a route, what its run log ends with."""
        for shard in range(self._shards(route.source)):
            reader = KafkaRunLog(self._config, route, shard, timeout_ms=_TIMEOUT_MS)
            first, end = reader.start(), reader.stable_end()
            start = max(first, end - _TAIL_OFFSETS)
            yield (
                start == first,
                row_spans(
                    (entry for _, entry in reader.read(start, end) if entry is not None), watermarks=True
                ),
            )

    def _shards(self, source: RegionName) -> int:
        admin = KafkaCluster(self._cluster, self._config.cluster(self._cluster), timeout_ms=_TIMEOUT_MS)
        run_log = admin.topics().get(run_log_topic(self._config, source))
        return 0 if run_log is None else run_log.partitions


def _known(tail: _Tail, item: TopicPartition) -> tuple[int, Sequence[Span]]:
    """From which target offset of the partition on the tail tells, and its runs there."""
    whole, spans = tail
    ours = spans.get(item, ())
    return 0 if whole or not ours else ours[0][0], ours
