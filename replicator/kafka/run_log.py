"""The run log: where a shard's owner finds what its predecessors did (proto/parallax/v1/runlog.proto)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import structlog
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec
from google.protobuf.message import DecodeError

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import (
    EARLIEST,
    LATEST,
    Settings,
    client_settings,
    list_offsets,
    translated,
)
from parallax.config.config import Config
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    Lineage,
    RegionName,
    Route,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.errors import ClusterUnavailableError
from parallax.runtime.deadline import Deadline
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.ports import RunLogReader
from replicator.copying.recovery import LoggedRecord, RunLogProblem, Shard, States, leader_epoch_of, states_of
from replicator.copying.state import (
    PartitionChange,
    PartitionState,
    lineage_of,
    lost_of,
    rows_of,
    state_of,
    topic_partition_of,
)

log = structlog.get_logger(__name__)

_TOPIC_TIMEOUT_MS = 10_000
_READS_NO_MORE = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001 - librdkafka's name for it
_FIRST_LOOK_OFFSETS = 4_500
"""Far enough back for a snapshot every 1,000 entries, each in two pieces and followed by its transaction marker."""


def run_log_topic(config: Config, source: RegionName) -> TopicName:
    """The run log of a route, on the target's aggregate cluster."""
    return TopicName(f"{config.replicator.run_log_topic_prefix}.{source}")


def load_states(
    reader: RunLogReader,
    shard: Shard,
    *,
    unexplained: Callable[[States], Mapping[TopicPartition, int]],
    known_end: int = 0,
) -> tuple[dict[TopicPartition, PartitionState], int]:
    """Every partition of the shard as committed, and the run log's end that this holds for.

    Reads back to a snapshot of the layout.

    Args:
        reader: the shard's partition of the run log.
        shard: whose entries count.
        unexplained: counts the records on the target above what these states tell of, which are no other route's. Asked
            only if the run log has another leader than the newest entry was written under.
        known_end: the run log is known to have reached to here.

    Raises:
        FencedError: a newer layout has taken over.
        RunLogError: the run log is not what was written: nothing may be copied from there.
        ClusterUnavailableError: the cluster did not answer in time.
    """
    leader_epoch = reader.leader_epoch()  # before anything is read: a later one is noticed the next time
    end, first = reader.end(), reader.start()
    if end < known_end:
        what = f"it ends at {end}, and entries up to {known_end} are known: it has lost its tail"
        raise shard.refused(RunLogProblem.RUN_LOG_TRUNCATED, what)
    reach = _FIRST_LOOK_OFFSETS
    while True:
        start = max(first, end - reach)
        records = list(reader.read(start, end))
        states = states_of(records, shard)
        if states is not None:
            written_under = leader_epoch_of(records)
            if UNKNOWN_EPOCH in {written_under, leader_epoch} or written_under != leader_epoch:
                _refuse_unexplained(shard, (written_under, leader_epoch), unexplained(states))
            return dict(states), end
        if start == first:
            what = (
                f"none of its records [{first}, {end}) is a snapshot of layout {shard.layout}, which begins with one: they were "
                "deleted (retention, a wrong clock, a lost disk)"
            )
            raise shard.refused(RunLogProblem.RUN_LOG_HEADLESS, what)
        reach *= 4


def _refuse_unexplained(shard: Shard, epochs: tuple[int, int], found: Mapping[TopicPartition, int]) -> None:
    log.info("run_log_leader_changed", run_log=str(shard.run_log), unexplained=sum(found.values()))
    if found:
        where = ", ".join(f"{item}: {count}" for item, count in sorted(found.items())[:5])
        what = (
            f"its newest entry was written under leader epoch {epochs[0]}, its leader has epoch {epochs[1]}, and above what "
            f"its entries tell of the target holds {sum(found.values())} record(s) that no route's entry explains ({where}): "
            "it has lost its tail"
        )
        raise shard.refused(RunLogProblem.RUN_LOG_TRUNCATED, what)


def snapshot_of(reader: RunLogReader, shard: Shard) -> tuple[Sequence[Entry], int]:
    """The pieces of the shard's last snapshot, and how many entries there are from its beginning on; none without one."""
    pieces: list[Entry] = []
    entries = 0
    for entry in own_entries(reader, shard, reach=_FIRST_LOOK_OFFSETS):
        if entry.snapshot and entry.piece == 0:
            pieces, entries = [], 0
        if entry.snapshot:
            pieces.append(entry)
        entries += entry.piece == 0
    return pieces, entries


def own_entries(
    reader: RunLogReader, shard: Shard, *, reach: int | None = None, end: int | None = None
) -> Iterator[Entry]:
    """Every entry of the shard that the run log still holds in its last ``reach`` offsets (None: in all), in order.

    Args:
        reader: the shard's partition of the run log.
        shard: whose entries count.
        reach: how far back.
        end: none from this offset on; None: up to the end.
    """
    start, end = reader.start(), reader.end() if end is None else end
    for _, entry in reader.read(start if reach is None else max(start, end - reach), end):
        if entry is not None and shard.owns(entry):
            yield entry


def changes_of_lineages(
    readers: Iterable[RunLogReader], item: TopicPartition, lineage: Lineage, *, known_end: int = 0
) -> Iterator[PartitionChange]:
    """Every change of a partition that the run log still holds under the lineage's topic ids, whatever the generation.

    In the order in which they were committed.

    Args:
        readers: every partition of the run log, the shard's own first: earlier layouts had the partition in other shards.
        item: the partition.
        lineage: the present one.
        known_end: the first reader's partition is known to have reached to here.

    Raises:
        ClusterUnavailableError: the cluster did not answer in time, or tells an end that can't be.
    """
    entries: list[Entry] = []
    for number, reader in enumerate(readers):
        # What this shard has committed last may lack its marker, and is waited for. What other shards have not decided yet is
        # none of an earlier layout: its owners were fenced.
        end = reader.stable_end() if number else reader.end()
        if (
            not number and end < known_end
        ):  # rows would be missed, and what they tell of would be copied again
            raise ClusterUnavailableError(
                f"{item}: its run log is told to end at {end}, and entries up to {known_end} are known"
            )
        records = reader.read(reader.start(), end)
        entries += [entry for _, entry in records if entry is not None and _tells_of(entry, item)]
    for entry in sorted(entries, key=lambda entry: entry.layout):  # a layout has the partition in one shard
        for part in entry.partitions:
            same = lineage_of(part)._replace(generation=lineage.generation) == lineage
            if same and topic_partition_of(part) == item:
                yield PartitionChange(state_of(part), rows_of(part), lost_of(part), part.closed)


def _tells_of(entry: Entry, item: TopicPartition) -> bool:
    return any(topic_partition_of(part) == item for part in entry.partitions)


def read_partition(
    settings: Settings,
    cluster: ClusterName,
    topic: str,
    partition: int,
    span: tuple[int, int],
    *,
    timeout_ms: int,
    committed: bool = True,
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Records of ``[span[0], span[1])`` as (offset, key, value).

    Waits for transactions that are not decided yet: what is read is all that will ever be there. Unless
    ``committed`` is false: then records of open and aborted transactions are read, too.

    Raises:
        ClusterUnavailableError: nothing came for ``timeout_ms``.
        ConfigError: this client may not read the topic.
    """
    place = TopicPartition(TopicName(topic), partition)
    records = read_partitions(settings, cluster, {place: span}, timeout_ms=timeout_ms, committed=committed)
    for _, offset, key, value in records:
        yield offset, key, value


def read_partitions(
    settings: Settings,
    cluster: ClusterName,
    spans: Mapping[TopicPartition, tuple[int, int]],
    *,
    timeout_ms: int,
    committed: bool = True,
) -> Iterator[tuple[TopicPartition, int, bytes | None, bytes | None]]:
    """The same for many partitions, by one client: (partition, offset, key, value), each partition's in order.

    Raises:
        ClusterUnavailableError: nothing came of any of them for ``timeout_ms``.
        ConfigError: this client may not read one of them.
    """
    left = {place: end for place, (start, end) in spans.items() if start < end}
    if not left:
        return
    consumer = Consumer(
        {
            **settings,
            "group.id": "parallax.replicator",  # asked for, never used
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        consumer.assign([KafkaPartition(place.topic, place.partition, spans[place][0]) for place in left])
        patience = Deadline.after_ms(timeout_ms)
        while left:
            if patience.passed:
                place, end = next(iter(left.items()))
                raise ClusterUnavailableError(
                    f"{cluster}: {place} could not be read up to {end}: a transaction is still open, or "
                    "the cluster does not answer"
                )
            for message in consumer.consume(1_000, 0.01):
                place = TopicPartition(TopicName(message.topic() or ""), message.partition() or 0)
                offset, error = message.offset() or 0, message.error()
                if error is not None and error.code() in _READS_NO_MORE:
                    raise translated(KafkaException(error), cluster, f"reading {place}")
                if place not in left:
                    continue
                if error is None:
                    patience = Deadline.after_ms(timeout_ms)
                    if offset < left[place]:
                        yield place, offset, _bytes(message.key()), _bytes(message.value())
                at_end = error is None or error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
                if at_end and offset >= left[place]:
                    del left[place]
                    consumer.incremental_unassign([KafkaPartition(place.topic, place.partition)])
    finally:
        consumer.close()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class KafkaRunLog:
    """`RunLogReader` over one shard's partition of a route's run log."""

    def __init__(self, config: Config, route: Route, shard: int, *, timeout_ms: int = 30_000) -> None:
        self._cluster = aggregate_cluster(route.target)
        self._settings = client_settings(
            config.cluster(self._cluster), client_id=f"parallax-run-log-{route.source}"
        )
        self._topic = run_log_topic(config, route.source)
        self._shard = shard
        self._timeout_ms = timeout_ms
        self._admin = AdminClient(self._settings)
        self._cluster_reader = KafkaCluster(
            self._cluster, config.cluster(self._cluster), timeout_ms=_TOPIC_TIMEOUT_MS
        )

    def end(self) -> int:
        """The high watermark."""
        return self._offset(LATEST)

    def stable_end(self) -> int:
        """The last stable offset."""
        return self._offset(LATEST, IsolationLevel.READ_COMMITTED)

    def leader_epoch(self) -> int:
        """The leader's epoch, as it tells with its end."""
        epoch = self._told(LATEST).leader_epoch
        return UNKNOWN_EPOCH if epoch is None else int(epoch)

    def start(self) -> int:
        """The first offset left."""
        return self._offset(EARLIEST)

    def topic_id(self) -> TopicId | None:
        """The topic's id, asked now."""
        info = self._cluster_reader.topics().get(self._topic)
        return None if info is None else info.topic_id

    def partitions(self) -> int:
        """The topic's number of partitions, asked now."""
        info = self._cluster_reader.topics().get(self._topic)
        if info is None:
            raise ClusterUnavailableError(f"{self._cluster}: the run log {self._topic} is not there")
        return info.partitions

    def read(self, start: int, end: int) -> Iterable[LoggedRecord]:
        """Committed records of ``[start, end)``."""
        records = read_partition(
            self._settings, self._cluster, self._topic, self._shard, (start, end), timeout_ms=self._timeout_ms
        )
        for offset, _, value in records:
            yield offset, _entry(value)

    def close(self) -> None:
        """Nothing is held between calls."""

    def _offset(self, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        return int(self._told(spec, isolation).offset)

    def _told(
        self, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> ListOffsetsResultInfo:
        place = KafkaPartition(self._topic, self._shard)
        futures = list_offsets(self._admin, {place: spec}, isolation_level=isolation, request_timeout=5.0)
        try:
            told: ListOffsetsResultInfo = futures[place].result(timeout=6.0)
        except (KafkaException, TimeoutError) as error:
            raise translated(
                error, self._cluster, f"reading the ends of {self._topic}-{self._shard}"
            ) from error
        return told


def _entry(value: bytes | None) -> Entry | None:
    try:
        return Entry.FromString(value or b"")
    except DecodeError:
        return None


class SystemClock:
    """`Clock` of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back."""
        return time.monotonic() * 1_000

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""
        time.sleep(duration_ms / 1_000)
