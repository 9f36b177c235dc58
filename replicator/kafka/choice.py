"""Opens the doors of the copy loop for the batch path."""

from __future__ import annotations

from contextlib import ExitStack

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Config
from parallax.domain.ids import TopicName, TopicPartition, aggregate_cluster, regional_cluster
from parallax.errors import InvariantError
from replicator.copying.ports import SourceReader, TargetWriter
from replicator.kafka.batch.sender import LARGEST_REQUEST_BYTES
from replicator.kafka.batch.source import BatchSource
from replicator.kafka.batch.target import BatchTarget
from replicator.kafka.connector import Connector, KafkaConnector
from replicator.kafka.layout import PATHS
from replicator.kafka.run_log import run_log_topic
from replicator.kafka.survey import EnsureTargetTopic
from replicator.kafka.transactions.coordinator import Coordinator, has_newest_transactions
from replicator.lease import Lease, transactional_id

FETCH_SHARE = 8
"""One answer brings no more than this part of what may be fetched ahead."""

LARGEST_ANSWER_BYTES = 128 * 1024 * 1024
"""A fetch answer holds at least one batch, however large."""


class BatchConnector(KafkaConnector):
    """`Connector` whose source and target pass batches on, both turned by one event loop."""

    def __init__(self, config: Config, ensure_target_topic: EnsureTargetTopic) -> None:
        super().__init__(config, ensure_target_topic)
        self._loop: EventLoop | None = None
        self._limits: dict[TopicName, int] = {}

    def target(self, lease: Lease) -> TargetWriter:
        """A transactional producer; the ids of both paths are initialised, this path's last."""
        loop = self._loop = EventLoop()
        cluster = aggregate_cluster(lease.route.target)
        timeout_ms = self._config.replicator.transaction_timeout_ms
        with ExitStack() as unfinished:
            unfinished.callback(loop.close)
            connections = Connections(
                loop,
                cluster,
                self._config.cluster(cluster),
                client_id=f"parallax-{lease.route.source}",
                largest_answer_bytes=LARGEST_REQUEST_BYTES,
            )
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
        cluster = regional_cluster(lease.route.source)
        connections = Connections(
            self._loop,
            cluster,
            self._config.cluster(cluster),
            client_id=f"parallax-{lease.route.target}",
            largest_answer_bytes=LARGEST_ANSWER_BYTES,
        )
        return BatchSource(
            self._loop,
            connections,
            buffer_bytes=ahead,
            fetch_bytes=ahead // FETCH_SHARE,
        )


def connector_for(config: Config, ensure_target_topic: EnsureTargetTopic) -> Connector:
    """The doors of the configured path (``replicator.copy_path``)."""
    path = BatchConnector if config.replicator.copy_path == "batch" else KafkaConnector
    return path(config, ensure_target_topic)
