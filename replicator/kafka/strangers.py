"""Finds records that someone else wrote into an aggregate topic: counted and reported, never taken for a source.

A look at a sample: now and then, the newest gap between two runs of this shard is read, and whatever no run log
of any route explains is a stranger's. Where a run log does not reach far enough back, nothing is said.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route, TopicPartition, aggregate_cluster
from parallax.errors import ParallaxError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import rows_of, topic_partition_of
from replicator.kafka.run_log import KafkaRunLog, read_partition, run_log_topic
from replicator.lease import Lease

log = structlog.get_logger(__name__)

_INTERVAL_MS = 30_000
_TAIL_OFFSETS = 4_000
_GAP_OFFSETS = 2_000
_TIMEOUT_MS = 5_000


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
        """The gaps found since the last call."""
        with self._lock:
            found, self._newest = list(self._newest.values()), {}
        return found


def unexplained(
    offsets: Iterable[int], spans_by_log: Iterable[tuple[int, Sequence[tuple[int, int]]]], gap: Gap
) -> list[int]:
    """The record offsets that no run holds.

    Args:
        offsets: of the records that are visible in the gap.
        spans_by_log: for each run log, the target offset from which on it is known, and its runs ``[start, end)``.
        gap: where the records lie.

    Returns:
        The offsets; none if some run log is not known from the gap's start on.
    """
    logs = list(spans_by_log)
    if any(known_from > gap.start for known_from, _ in logs):
        return []
    return [
        offset
        for offset in offsets
        if not any(start <= offset < end for _, spans in logs for start, end in spans)
    ]


class StrangerWatch:
    """Looks for strangers' records in a thread of its own.

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
        self.found_records = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"strangers {lease}", daemon=True)
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
                log.info("strangers", lease=str(self._lease), problem=str(error))

    def _look(self, gaps: Sequence[Gap]) -> None:
        if not gaps:
            return
        logs = [
            (known, rows)
            for route in self._config.routes_into(self._lease.route.target)
            for known, rows in self._tails(route)
        ]
        settings = client_settings(self._config.cluster(self._cluster), client_id="parallax-strangers")
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
            spans = [(known(item), rows.get(item, ())) for known, rows in logs]
            strange = unexplained(offsets, spans, gap)
            if strange:
                self.found_records += len(strange)
                log.warning(
                    "records that no route wrote",
                    cluster=self._cluster,
                    partition=str(item),
                    count=len(strange),
                    first_offset=strange[0],
                )

    def _tails(
        self, route: Route
    ) -> Iterator[tuple[Callable[[TopicPartition], int], Mapping[TopicPartition, Sequence[tuple[int, int]]]]]:
        """For each shard of a route: from where on its run log is known, and its newest runs."""
        for shard in range(self._shards(route.source)):
            reader = KafkaRunLog(self._config, route, shard, timeout_ms=_TIMEOUT_MS)
            first, end = reader.start(), reader.stable_end()
            start = max(first, end - _TAIL_OFFSETS)
            rows: dict[TopicPartition, list[tuple[int, int]]] = {}
            seen: dict[TopicPartition, int] = {}
            for _, entry in reader.read(start, end):
                for part in entry.partitions:
                    item = topic_partition_of(part)
                    for row in rows_of(part):
                        seen.setdefault(item, row.target_start)
                        rows.setdefault(item, []).append((row.target_start, row.target_end))
            whole = start == first
            yield (lambda item, seen=seen, whole=whole: 0 if whole else seen.get(item, 0)), rows  # type: ignore[misc] # mypy can't type defaults

    def _shards(self, source: RegionName) -> int:
        admin = KafkaCluster(self._cluster, self._config.cluster(self._cluster), timeout_ms=_TIMEOUT_MS)
        found = admin.topics().get(run_log_topic(self._config, source))
        return 0 if found is None else found.partitions
