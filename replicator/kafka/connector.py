"""Opens the doors of the copy loop (`replicator.copying.ports`) onto real clusters, for both copy paths."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Protocol

from confluent_kafka.admin import AdminClient

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Config
from parallax.domain.ids import TopicName, TopicPartition, aggregate_cluster
from parallax.errors import InvariantError
from replicator.copying.own_records import OwnRecords
from replicator.copying.ports import Clock, RunLogReader, SourceReader, Surveyor, TargetWriter
from replicator.copying.recovery import States
from replicator.copying.renamed import RenamedSource
from replicator.kafka.batch.source import BatchSource
from replicator.kafka.batch.target import BatchTarget
from replicator.kafka.foreign_records import ForeignRecordWatch
from replicator.kafka.incoming import IncomingRunLogs
from replicator.kafka.layout import PATHS, fence, read_layout
from replicator.kafka.layout_record import LayoutRecord
from replicator.kafka.leader_epochs import LeaderEpochs
from replicator.kafka.record.nearest import AskedLeaders, NearestSource
from replicator.kafka.record.source import KafkaSource
from replicator.kafka.record.target import KafkaTarget, batch_limit
from replicator.kafka.run_log import KafkaRunLog, SystemClock, run_log_topic
from replicator.kafka.survey import FORGETFUL, Beginnings, KafkaSurveyor
from replicator.kafka.transactions.coordinator import Coordinator, has_newest_transactions
from replicator.kafka.transactions.hanging import settle
from replicator.kafka.transactions.hanging_changes import settle_changes
from replicator.kafka.unexplained import unexplained_records
from replicator.lease import Lease, transactional_id
from replicator.origin_rules import origin_rule

FETCH_SHARE = 8
"""One answer brings no more than this part of what may be fetched ahead."""

LARGEST_ANSWER_BYTES = 128 * 1024 * 1024
"""A fetch answer holds at least one batch, however large."""

_TOPIC_TIMEOUT_MS = 10_000
_ENDS_TIMEOUT_S = 5.0


class Connector(Protocol):
    """Opens the doors that a session needs; `KafkaConnector` on real clusters, the simulation in memory."""

    @property
    def clock(self) -> Clock:
        """Time."""

    def settle(self, lease: Lease) -> None:
        """End what earlier owners' transactions were left hanging; older owners are fenced from now on."""

    def target(self, lease: Lease) -> TargetWriter:
        """The target, initialised: older owners are fenced from now on."""

    def source(self, lease: Lease) -> SourceReader:
        """The source."""

    def surveyor(self, lease: Lease) -> Surveyor:
        """The survey of both."""

    def run_log(self, lease: Lease) -> RunLogReader:
        """The shard's partition of the run log."""

    def layout(self, lease: Lease) -> LayoutRecord | None:
        """The route's layout, as the target has it now."""

    def unexplained(self, lease: Lease, states: States) -> Mapping[TopicPartition, int]:
        """How many records of which partitions lie above what these states tell of, and are no other route's."""

    def foreign_records(self, lease: Lease) -> ForeignRecordWatch | None:
        """Looks for records that no route wrote; None where nobody looks."""


def connector_for(config: Config) -> Connector:
    """The doors of the configured path (``replicator.copy_path``)."""
    return BatchConnector(config) if config.replicator.copy_path == "batch" else KafkaConnector(config)


class KafkaConnector:
    """`Connector` on confluent-kafka, whose source and target pass records on one by one."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clock = SystemClock()
        self._beginnings = Beginnings()

    @property
    def clock(self) -> Clock:
        """This machine's time."""
        return self._clock

    def settle(self, lease: Lease) -> None:
        """Ask the partitions' leaders."""
        settle_changes(self._config, aggregate_cluster(lease.route.target))
        settle(self._config, lease, PATHS)

    def target(self, lease: Lease) -> TargetWriter:
        """A transactional producer, initialised; so are the ids of the other copy paths, before it."""
        cluster = aggregate_cluster(lease.route.target)
        for path in PATHS:
            if path != KafkaTarget.path:
                fence(self._config, lease, path)
        admin = KafkaCluster(cluster, self._config.cluster(cluster), timeout_ms=_TOPIC_TIMEOUT_MS)
        names = self._config.route_topics(lease.route)
        topics = [name for name in admin.topics() if names.make(name)]
        settings = client_settings(self._config.cluster(cluster), client_id=f"parallax-{lease.route.source}")
        with ExitStack() as unfinished:
            loop = EventLoop()
            unfinished.callback(loop.close)
            connections = self._connections(loop, lease)
            unfinished.callback(connections.close)
            connections.connect()
            target = KafkaTarget(
                settings,
                cluster,
                largest_batch_bytes=batch_limit(
                    AdminClient(settings), topics, timeout_s=_TOPIC_TIMEOUT_MS / 1_000
                ),
                run_log_topic=run_log_topic(self._config, lease.route.source),
                shard=lease.shard,
                transactional_id=transactional_id(lease.route, lease.layout, lease.shard),
                transaction_timeout_ms=self._config.replicator.transaction_timeout_ms,
                leader_epochs=LeaderEpochs(loop, connections, timeout_ms=_TOPIC_TIMEOUT_MS),
            )
            unfinished.pop_all()
        return target

    def _connections(self, loop: EventLoop, lease: Lease) -> Connections:
        """To the target, not connected yet."""
        cluster = aggregate_cluster(lease.route.target)
        return Connections(
            loop,
            cluster,
            self._config.cluster(cluster),
            client_id=f"parallax-{lease.route.source}",
            largest_answer_bytes=LARGEST_ANSWER_BYTES,
        )

    def source(self, lease: Lease) -> SourceReader:
        """A consumer without a group; with a rack there are two (`NearestSource`)."""
        cluster = self._config.source_cluster(lease.route)
        of = self._config.cluster(cluster)
        settings = client_settings(of, client_id=f"parallax-{lease.route.target}")
        if of.client_rack is None:
            return self._chosen(lease, KafkaSource(settings, cluster))
        ends = AskedLeaders(AdminClient({**settings, **FORGETFUL}), timeout_s=_ENDS_TIMEOUT_S)
        near = KafkaSource({**settings, "client.rack": of.client_rack}, cluster)
        return self._chosen(lease, NearestSource(near, lambda: KafkaSource(settings, cluster), ends))

    def _chosen(self, lease: Lease, source: SourceReader) -> SourceReader:
        """The source's records that the route copies, by the names of their copies."""
        rule = origin_rule(self._config, lease.route)
        if rule is not None:
            incoming = IncomingRunLogs(self._config, lease, rule)
            cluster = self._config.source_cluster(lease.route)
            source = OwnRecords(source, incoming, cluster, self._clock)
        names = self._config.route_topics(lease.route)
        return source if names.naming.keeps else RenamedSource(source, names)

    def surveyor(self, lease: Lease) -> Surveyor:
        """A thread with two admin clients."""
        return KafkaSurveyor(self._config, lease, self._beginnings)

    def run_log(self, lease: Lease) -> RunLogReader:
        """The shard's partition of the run log."""
        return KafkaRunLog(self._config, lease.route, lease.shard)

    def unexplained(self, lease: Lease, states: States) -> Mapping[TopicPartition, int]:
        """Read the target, and what other routes' run logs say of it."""
        return unexplained_records(self._config, lease, states)

    def layout(self, lease: Lease) -> LayoutRecord | None:
        """The layout record."""
        return read_layout(self._config, lease.route)

    def foreign_records(self, lease: Lease) -> ForeignRecordWatch | None:
        """A thread that looks now and then; none where producers write to the target, too."""
        if self._config.is_produced_at(aggregate_cluster(lease.route.target)):
            return None
        return ForeignRecordWatch(self._config, lease)


class BatchConnector(KafkaConnector):
    """`Connector` whose source and target pass whole batches on, both turned by one event loop."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._loop: EventLoop | None = None
        self._limits: dict[TopicName, int] = {}

    def target(self, lease: Lease) -> TargetWriter:
        """A transactional producer; the ids of both paths are initialised, this path's last."""
        loop = self._loop = EventLoop()
        timeout_ms = self._config.replicator.transaction_timeout_ms
        with ExitStack() as unfinished:
            unfinished.callback(loop.close)
            connections = self._connections(loop, lease)
            unfinished.callback(connections.close)
            connections.connect()
            newest = has_newest_transactions(connections)
            for path in sorted(PATHS, key=lambda path: path == BatchTarget.path):
                own_id = transactional_id(lease.route, lease.layout, lease.shard, path)
                coordinator = Coordinator(loop, connections, own_id, timeout_ms, newest=newest)
                producer = coordinator.initialise()
            unfinished.pop_all()
        return BatchTarget(
            loop,
            connections,
            coordinator,
            producer,
            run_log=TopicPartition(run_log_topic(self._config, lease.route.source), lease.shard),
            timeout_ms=timeout_ms,
            limits=self._limits,
        )

    def source(self, lease: Lease) -> SourceReader:
        """A reader of raw batches; call `target` first."""
        if self._loop is None:
            raise InvariantError("the source is opened after the target, whose event loop turns it too")
        ahead = self._config.replicator.fetch_ahead_max_bytes
        cluster = self._config.source_cluster(lease.route)
        connections = Connections(
            self._loop,
            cluster,
            self._config.cluster(cluster),
            client_id=f"parallax-{lease.route.target}",
            largest_answer_bytes=LARGEST_ANSWER_BYTES,
        )
        source = BatchSource(
            self._loop,
            connections,
            buffer_bytes=ahead,
            fetch_bytes=ahead // FETCH_SHARE,
            rests=self._config.replicator.rests,
            rack=self._config.cluster(cluster).client_rack or "",
        )
        return self._chosen(lease, source)
