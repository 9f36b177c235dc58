"""What a session looks at on the target before it copies: what hangs there, and what no entry tells of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from parallax.config.config import Config
from parallax.domain.ids import Route, TargetOffset, TopicId, TopicName, TopicPartition, aggregate_cluster
from parallax.errors import ClusterUnavailableError
from parallax.ports.clusters import TopicInfo
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.recovery import Shard, States
from replicator.kafka.layout_record import LAYOUTS_TOPIC, LayoutRecord
from replicator.kafka.run_log import own_entries, run_log_topic
from replicator.kafka.spans import spans_of
from replicator.kafka.survey import partitions_of_shard
from replicator.kafka.transactions import fates as fates_module
from replicator.kafka.transactions import hanging as hanging_module
from replicator.kafka.transactions.endings import TransactionEnd
from replicator.kafka.transactions.fates import Fates, fates_by_entries, fates_of
from replicator.kafka.transactions.hanging_changes import was_settled
from replicator.kafka.unexplained import counted, floor_of, without_rows
from replicator.lease import Lease, change_id, transactional_id
from tests.worlds.sim.kafka import ABORTED, COMMITTED, Cluster, Log, Slot
from tests.worlds.sim.run_logs import SimRunLog, Written, entry_of, run_log_of
from tests.worlds.sim.schedule import Schedule


def infos_of(cluster: Cluster) -> dict[TopicName, TopicInfo]:
    return {
        TopicName(name): TopicInfo(TopicName(name), TopicId(topic.topic_id), len(topic.logs))
        for name, topic in cluster.topics.items()
        if not name.startswith("parallax.")
    }


def unexplained(
    cluster: Cluster, config: Config, lease: Lease, states: States
) -> Mapping[TopicPartition, int]:
    """What `replicator.kafka.unexplained.unexplained_records` does, on logs in memory."""
    records: dict[TopicPartition, Sequence[tuple[int, int]]] = {}
    topic_ids: dict[TopicPartition, str] = {}

    def epoch_end(item: TopicPartition, epoch: int) -> int:
        return cluster.topics[item.topic].logs[item.partition].end_of_epoch(epoch)

    for item in partitions_of_shard(infos_of(cluster).values(), lease):
        topic = cluster.topics[item.topic]
        topic_ids[item] = topic.topic_id
        log, floor = topic.logs[item.partition], floor_of(states, item, topic.topic_id, epoch_end)
        if log.stable_end < log.end:
            raise ClusterUnavailableError(f"{item}: a transaction is still open")
        records[item] = spans_of(
            slot.offset
            for slot in log.committed(floor)
            if not isinstance(slot.value, tuple)  # another route's, which has no run log here
        )
    entries = [
        entry
        for route in config.routes_into(lease.route.target)
        if route != lease.route and (topic := cluster.topics.get(run_log_topic(config, route.source)))
        for log in topic.logs
        for slot in log.committed()
        if (entry := entry_of(slot.value)) is not None
    ]
    return counted(without_rows(records, entries, topic_ids, epoch_end))


def settle_changes(schedule: Schedule, cluster: Cluster) -> None:
    """What `replicator.kafka.transactions.hanging_changes.settle_changes` does, on logs in memory."""
    topic = cluster.topics.get(LAYOUTS_TOPIC)
    if topic is None:
        return
    (log,) = topic.logs
    going_on = {transaction.owner for transaction in cluster.open_transactions()}
    for owner, start in log.open_transactions().items():
        if owner not in going_on:
            _settle_change(schedule, cluster, owner, log.slots[start - log.start :])


def _settle_change(schedule: Schedule, cluster: Cluster, owner: str, slots: Sequence[Slot]) -> None:
    written = [slot.value for slot in slots if isinstance(slot.value, Written)]
    key = written[0].key or b""
    assert owner == change_id(Route.parse(key.decode()))
    record = LayoutRecord.decoded([item.value for item in written if item.key == key][-1] or b"")
    name, runs = TopicName(record.run_log), cluster.topics.get(record.run_log)
    is_gone = runs is None or runs.topic_id != record.run_log_id
    shards = [TopicPartition(name, shard) for shard in range(0 if is_gone else record.shards)]
    cluster.initialise(owner)
    hanging = _hanging_on(cluster, owner, {LAYOUTS_TOPIC, name})

    def layouts_of(item: TopicPartition) -> list[int]:
        reader = SimRunLog(schedule, cluster, item.topic, item.partition)
        read = reader.read(reader.start(), reader.stable_end())
        return [entry.layout for _, entry in read if entry is not None]

    committed = was_settled(record, shards, dict.fromkeys(hanging, TargetOffset(0)), layouts_of)
    for found in hanging.values():
        found.take_marker(owner, COMMITTED if committed else ABORTED)


def settle(schedule: Schedule, cluster: Cluster, config: Config, lease: Lease) -> None:
    """What `replicator.kafka.transactions.hanging.settle` does, on logs in memory."""
    _settle(schedule, cluster, config, lease)
    name = run_log_topic(config, lease.route.source)
    log = cluster.topics[name].logs[lease.shard]
    for owner, start in log.open_transactions().items():
        if owner == change_id(lease.route) and _is_settled_change(log, start, lease):
            cluster.initialise(owner)
            for hanging in _hanging_on(cluster, owner, {name}).values():
                hanging.take_marker(owner, COMMITTED)
    for older in hanging_module.earlier_shards(lease, len(cluster.topics[name].logs)):
        _settle(schedule, cluster, config, older)


def _is_settled_change(log: Log, start: int, lease: Lease) -> bool:
    if start < log.start:
        return True
    entry = entry_of(log.slot(start).value)
    return entry is not None and fates_module.is_settled_change(entry, lease)


def _settle(schedule: Schedule, cluster: Cluster, config: Config, lease: Lease) -> None:
    """The same for one of the ids."""
    own_id, name = (
        transactional_id(lease.route, lease.layout, lease.shard),
        TopicName(run_log_topic(config, lease.route.source)),
    )
    cluster.initialise(own_id)
    hanging = _hanging_on(cluster, own_id, cluster.topics.keys() - {LAYOUTS_TOPIC})
    starts = {item: TargetOffset(log.open_transactions()[own_id]) for item, log in hanging.items()}
    if not hanging:
        return
    run_log = TopicPartition(name, lease.shard)

    def continued(ends: Mapping[TopicPartition, TargetOffset]) -> list[TopicPartition]:
        return [item for item, end in ends.items() if hanging[item].goes_on(own_id, end)]

    def by_entries(of: Mapping[TopicPartition, TargetOffset]) -> Fates:
        reader = SimRunLog(schedule, cluster, name, lease.shard)
        shard = Shard(
            aggregate_cluster(lease.route.target), run_log, reader.topic_id() or TopicId(""), lease.layout
        )
        return fates_by_entries(
            of,
            {TopicName(name): TopicId(topic.topic_id) for name, topic in cluster.topics.items()},
            own_entries(reader, shard, end=reader.stable_end()),
            lambda epochs: {
                item: TargetOffset(cluster.topics[item.topic].logs[item.partition].end_of_epoch(epoch))
                for item, epoch in epochs.items()
            },
            continued,
        )

    def entry_at(offset: int) -> Entry | None:
        log = run_log_of(cluster, name, lease.shard)
        return None if offset >= log.end else entry_of(log.slot(offset).value)

    def endings_of(records: Mapping[TopicPartition, TargetOffset]) -> Mapping[TopicPartition, TransactionEnd]:
        logs = {
            item: topic.logs[item.partition]
            for item in records
            if (topic := cluster.topics.get(item.topic)) is not None
        }
        return {
            item: TransactionEnd(log.ending_at(records[item], own_id))
            for item, log in logs.items()
            if not log.is_joined(records[item])
        }

    fates = fates_of(
        starts,
        run_log,
        kept_from=run_log_of(cluster, name, lease.shard).start,
        entry_at=entry_at,
        by_entries=by_entries,
        endings_of=endings_of,
        continued=continued,
    )
    for items, outcome in ((fates.commit, COMMITTED), (fates.abort, ABORTED)):
        for item in items:
            hanging[item].take_marker(own_id, outcome)


def _hanging_on(cluster: Cluster, owner: str, topics: Collection[str]) -> dict[TopicPartition, Log]:
    """The logs of some topics that a producer has something open on, by partition."""
    return {
        TopicPartition(TopicName(topic), number): log
        for topic, found in cluster.topics.items()
        if topic in topics
        for number, log in enumerate(found.logs)
        if owner in log.open_transactions()
    }
