"""Ends what changes of layouts were left hanging: while one hangs on `parallax.layouts`, no route into the cluster can begin or go on.

Nobody reads that topic beyond it, so that the next change, whose marker would end it, is never begun.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import structlog

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, Route, TargetOffset, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, ConfigError, FencedError, InvalidNameError
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.layout_record import LAYOUTS_TOPIC, LayoutRecord
from replicator.kafka.run_log import KafkaRunLog, read_partition
from replicator.kafka.transactions.coordinator import Coordinator
from replicator.kafka.transactions.hanging import connected, open_transactions
from replicator.lease import change_id

log = structlog.get_logger(__name__)

LAYOUTS = TopicPartition(LAYOUTS_TOPIC, 0)
_TIMEOUT_MS = 10_000
_LOOKED_BACK_OFFSETS = 3_000


def settle_changes(config: Config, cluster: ClusterName) -> None:
    """End every change of a layout, of whatever route into the cluster, that its coordinator takes for ended.

    To be called before the topic of layouts is read. A change that goes on is left alone.

    Raises:
        ClusterUnavailableError: the cluster did not answer in time, or somebody else is at it.
    """
    admin = KafkaCluster(cluster, config.cluster(cluster), timeout_ms=_TIMEOUT_MS)
    if LAYOUTS_TOPIC not in admin.topics():  # that it is gone shows, by name, when it is read
        return
    with connected(config, cluster, "parallax-settle-layouts") as (loop, connections):
        for producer_id, starts in open_transactions(connections, [LAYOUTS]).items():
            found = _newest_record(config, admin, starts[LAYOUTS])
            if found is None:
                log.warning("hanging_layout_unknown", cluster=cluster, offset=starts[LAYOUTS])
                continue
            try:
                _settle(config, admin, loop, connections, producer_id, *found)
            except (FencedError, TopicsRefusedError) as error:
                raise ClusterUnavailableError(
                    f"{cluster}: {LAYOUTS_TOPIC}: a change that hangs: {error}"
                ) from error


def _settle(
    config: Config,
    admin: KafkaCluster,
    loop: EventLoop,
    connections: Connections,
    producer_id: int,
    route: Route,
    record: LayoutRecord,
) -> None:
    coordinator = Coordinator(
        loop, connections, change_id(route), config.replicator.transaction_timeout_ms, newest=False
    )
    if coordinator.is_open():
        return
    topic = admin.topics().get(TopicName(record.run_log))
    shards = [
        TopicPartition(TopicName(record.run_log), shard)
        for shard in range(0 if topic is None or topic.topic_id != record.run_log_id else record.shards)
    ]
    producer = coordinator.initialise()
    hanging = open_transactions(connections, [LAYOUTS, *shards]).get(producer_id, {})
    if LAYOUTS not in hanging or producer.producer_id != producer_id:
        return
    committed = was_settled(
        record, shards, hanging, lambda item: _layouts_of(KafkaRunLog(config, route, item.partition))
    )
    log.warning(
        "hanging_layout", route=str(route), layout=record.layout, settled=record.settled, committed=committed
    )
    coordinator.add(sorted(hanging), producer)
    coordinator.end(producer, committed=committed)


def _newest_record(
    config: Config, admin: KafkaCluster, start: TargetOffset
) -> tuple[Route, LayoutRecord] | None:
    """The route of the change that hangs from an offset on, and the last layout of it that was written; None: it is nothing of this release's."""
    settings = client_settings(config.cluster(admin.cluster), client_id="parallax-settle-layouts")
    ranges = admin.log_ranges([LAYOUTS])
    if LAYOUTS not in ranges:
        raise ClusterUnavailableError(f"{admin.cluster}: {LAYOUTS}: no leader")
    span = (int(start), int(ranges[LAYOUTS].high_watermark))
    records = read_partition(settings, admin.cluster, *LAYOUTS, span, timeout_ms=_TIMEOUT_MS, committed=False)
    written = [(key, value) for _, key, value in records if key is not None and value is not None]
    if not written:
        return None
    own = written[0][0]
    try:
        record = LayoutRecord.decoded([value for key, value in written if key == own][-1])
        return Route.parse(own.decode()), record
    except (ConfigError, InvalidNameError, UnicodeDecodeError):  # what it is shows when it is read
        return None


def _layouts_of(reader: KafkaRunLog) -> Collection[int]:
    """The layouts of the entries at the end of a partition of a run log, as far as their transactions are decided."""
    end = reader.stable_end()
    entries = reader.read(max(reader.start(), end - _LOOKED_BACK_OFFSETS), end)
    return {entry.layout for _, entry in entries if entry is not None}


def was_settled(
    record: LayoutRecord,
    shards: Collection[TopicPartition],
    hanging: Mapping[TopicPartition, TargetOffset],
    layouts_of: Callable[[TopicPartition], Collection[int]],
) -> bool:
    """Whether a change that hangs is to be committed.

    A layout is settled in one transaction with the first snapshots of its shards. If a run log has such a one, or what came
    after it, it was committed. If all of them hang, it is whole, and nobody can have acted on its being aborted. What is announced alone
    is aborted: whoever did that is fenced, and nothing has changed but that.

    Args:
        record: the last layout record of the transaction.
        shards: the partitions of its run log; none: that is gone, which whoever reads the layout has to know.
        hanging: where the transaction hangs.
        layouts_of: tells the layouts of the entries at the end of a shard's run log.
    """
    if not record.settled:
        return False
    ended = [item for item in shards if item not in hanging]
    return not ended or any(max(layouts_of(item), default=0) >= record.layout for item in ended)
