"""Layouts: into how many shards a route is cut, and how that changes without a record copied twice or missed.

The layout record of a route lies in the compacted topic `parallax.layouts` on the target cluster. A shard's owner
reads it after it has initialised its transactional id, and leaves if the layout is newer than its own. To change
the number of shards: write layout L+1 as *moving*, initialise every transactional id of L (which ends its owners;
one that comes later finds L+1), merge the states of L's shards, write them as the first snapshots of L+1, write
L+1 as *settled*. Each step can be done again after a crash; leases of L+1 start only when it is settled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Self

import structlog
from confluent_kafka import KafkaException, Producer

from parallax.adapters.kafka.librdkafka import Settings, client_settings, translated
from parallax.config.config import Config
from parallax.domain.ids import Route, TopicName, TopicPartition, aggregate_cluster
from parallax.errors import ConfigError, NotFoundError
from parallax.runtime.deadline import Deadline
from replicator.copying.state import PartitionState, encode
from replicator.kafka.run_log import KafkaRunLog, SystemClock, load_states, read_partition, run_log_topic
from replicator.kafka.topics import TopicAdmin, compacted_plan, run_log_plan
from replicator.kafka.transactions.hanging import settle
from replicator.lease import Lease, shard_of, transactional_id

log = structlog.get_logger(__name__)

LAYOUTS_TOPIC = TopicName("parallax.layouts")
FIRST_LAYOUT = 1
PATHS = ("record", "batch")
"""Every copy path has a transactional id of its own in each shard."""
_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class LayoutRecord:
    """A route's layout.

    Attributes:
        layout: its number, growing.
        shards: into how many shards it cuts the route.
        settled: whether every shard's first snapshot is written; leases start only then.
        run_log: the topic that holds the shards' states; under another one they would all begin anew.
        previous_shards: how many the layout before had; 0 for the first.
    """

    layout: int
    shards: int
    settled: bool
    run_log: str
    previous_shards: int = 0

    def encoded(self) -> bytes:
        """The record's value."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decoded(cls, value: bytes) -> LayoutRecord:
        """The record of a value that `encoded` made.

        Raises:
            ConfigError: the value is something else.
        """
        try:
            return cls(**json.loads(value))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"a record of {LAYOUTS_TOPIC} can't be read: {value!r}: {error}") from error


def read_layout(config: Config, route: Route, *, timeout_ms: int = _TIMEOUT_MS) -> LayoutRecord | None:
    """The route's layout, or None if it has none yet (or a tombstone took it away: the route begins anew).

    Raises:
        ClusterUnavailableError: the target cluster did not answer in time.
        ConfigError: the route's states are in another run log than the configuration names.
    """
    cluster = aggregate_cluster(route.target)
    settings = client_settings(config.cluster(cluster), client_id="parallax-layouts")
    admin = TopicAdmin(cluster, config.cluster(cluster), timeout_ms=5_000)
    place = TopicPartition(LAYOUTS_TOPIC, 0)
    try:
        span = admin.log_ranges([place]).get(place)
    except NotFoundError:
        span = None
    if span is None:
        return None
    layout = None
    bounds = (span.low_watermark, span.high_watermark)
    for _, key, value in read_partition(settings, cluster, LAYOUTS_TOPIC, 0, bounds, timeout_ms=timeout_ms):
        if key == str(route).encode():
            layout = None if value is None else LayoutRecord.decoded(value)
    topic = run_log_topic(config, route.source)
    if layout is not None and layout.run_log != topic:
        raise ConfigError(
            f"replicator.run_log_topic_prefix: {cluster} keeps the states of {route} in {layout.run_log}, and by the "
            f"configuration they were in {topic}: everything would be copied again. Put the prefix back; to begin "
            f"anew on purpose, write a tombstone with the key {route} to {LAYOUTS_TOPIC} on {cluster}"
        )
    return layout


def ensure_layout(
    config: Config, route: Route, shards: int, *, reached: Callable[[str], None] = lambda _step: None
) -> LayoutRecord:
    """Cut the route into so many shards, if it is not so already; owners of an older layout are fenced.

    Also creates the route's run log and the topic of layouts where they are missing. Safe to call again after a
    crash, and from several processes at once: one of them goes through.

    Args:
        config: all configuration.
        route: the route.
        shards: how many shards it shall have.
        reached: told of each step, so that a test may crash between two.

    Raises:
        ClusterUnavailableError: the target cluster did not answer in time.
        ConfigError: the route's states are in another run log than the configuration names.
        FencedError: another process is changing the layout of the same route.
    """
    cluster = aggregate_cluster(route.target)
    settings = client_settings(config.cluster(cluster), client_id="parallax-layout")
    admin = TopicAdmin(cluster, config.cluster(cluster), timeout_ms=10_000)
    topic = run_log_topic(config, route.source)
    admin.create(compacted_plan(LAYOUTS_TOPIC), Deadline.after_ms(_TIMEOUT_MS))
    plan = run_log_plan(topic, shards, config.replicator.run_log_retention_ms)
    run_log = admin.create(plan, Deadline.after_ms(_TIMEOUT_MS))
    current = read_layout(config, route)
    if current is not None and current.settled and current.shards == shards:
        return current
    with _Writer(settings, route, f"parallax.{route.source}.{route.target}.layout") as writer:
        current = read_layout(config, route)  # again: this process is now the only one that writes it
        if run_log.partitions < shards:  # one for each shard; they never become fewer
            admin.grow(topic, shards, Deadline.after_ms(_TIMEOUT_MS))
        if current is None:
            current = LayoutRecord(FIRST_LAYOUT, shards, settled=True, run_log=topic)
            writer.write_layout(current)
        if not current.settled:
            _move(config, route, settings, current, reached)
            current = replace(current, settled=True)
            writer.write_layout(current)
        if current.shards != shards:
            following = LayoutRecord(
                current.layout + 1, shards, settled=False, run_log=topic, previous_shards=current.shards
            )
            writer.write_layout(following)
            reached("announced")
            _move(config, route, settings, following, reached)
            current = replace(following, settled=True)
            writer.write_layout(current)
            reached("settled")
    log.info("layout_settled", route=str(route), layout=current.layout, shards=current.shards)
    return current


def _move(
    config: Config, route: Route, settings: Settings, to: LayoutRecord, reached: Callable[[str], None]
) -> None:
    """Fence the owners of the layout before, and write its states as the first snapshots of this one."""
    before = [
        Lease(route, shard, to.previous_shards, to.layout - 1, epoch=0, deadline_unix_ms=0)
        for shard in range(to.previous_shards)
    ]
    for lease in before:
        for path in PATHS:
            fence(config, lease, path)
    reached("fenced")
    states: dict[TopicPartition, PartitionState] = {}
    for lease in before:
        settle(config, lease, PATHS)
        states |= load_states(KafkaRunLog(config, route, lease.shard), lease.layout)[0]
    for shard in range(to.shards):
        entry = encode(
            layout=to.layout,
            shard=shard,
            path=PATHS[0],
            changes=(),
            everything={item: state for item, state in states.items() if shard_of(item, to.shards) == shard},
            committed_at_ms=SystemClock().now_ms(),
        )
        with _Writer(settings, route, transactional_id(route, to.layout, shard)) as writer:
            writer.write(run_log_topic(config, route.source), shard, None, entry.SerializeToString())
        reached(f"snapshot {shard}")


def fence(config: Config, lease: Lease, path: str) -> None:
    """Fence whoever copies the lease's shard on this path.

    Raises:
        ClusterUnavailableError: the target cluster did not answer in time.
    """
    cluster = aggregate_cluster(lease.route.target)
    settings = client_settings(config.cluster(cluster), client_id=f"parallax-{lease.route.source}")
    with _Writer(settings, lease.route, transactional_id(lease.route, lease.layout, lease.shard, path)):
        pass


class _Writer:
    """A transactional producer for single records; initialising it fences whoever had its id before."""

    def __init__(self, settings: Settings, route: Route, transactional: str) -> None:
        self._route = route
        self._cluster = aggregate_cluster(route.target)
        self._producer = Producer({**settings, "transactional.id": transactional, "acks": "all"})

    def __enter__(self) -> Self:
        self._try("initialising a transactional id", self._producer.init_transactions, _TIMEOUT_MS / 1_000)
        return self

    def __exit__(self, *_: object) -> None:
        del self._producer  # letting go of it waits for nothing, which close() does

    def write_layout(self, record: LayoutRecord) -> None:
        """Write the route's layout record."""
        self.write(LAYOUTS_TOPIC, 0, str(self._route).encode(), record.encoded())

    def write(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        """Write one record in a transaction of its own."""
        self._try("beginning a transaction", self._producer.begin_transaction)
        self._producer.produce(topic, value=value, key=key, partition=partition)
        self._try(f"writing to {topic}-{partition}", self._producer.commit_transaction, _TIMEOUT_MS / 1_000)

    def _try(self, doing: str, method: Callable[..., object], *args: object) -> None:
        try:
            method(*args)
        except KafkaException as error:
            raise translated(error, self._cluster, doing) from error
