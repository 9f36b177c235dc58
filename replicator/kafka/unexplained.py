"""Which records on the target no row explains: what is left of entries that a run log has lost.

An election at the run log may take its newest entries while their records survive: on disk it is as if they had never
been written. Where the leader epoch is another than the newest entry's, nobody can tell by the run log itself: the
epoch before ends where the new leader's log ended, whether that lacked anything or not (OffsetForLeaderEpoch). So the target
is looked at: above what the entries tell of, every record must be another route's (docs/decisions/0004-run-log.md).
The target may have lost its own tail, and the entry that said so may be among the lost ones: what entries tell, this
route's and the others', holds as far as the target has kept the leader epoch that they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from parallax.adapters.kafka.librdkafka import client_settings
from parallax.config.config import Config
from parallax.domain.ids import UNKNOWN_EPOCH, TopicPartition, aggregate_cluster
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.recovery import States
from replicator.kafka.leader_epochs import epoch_ends
from replicator.kafka.run_log import KafkaRunLog, read_partition, run_log_topic
from replicator.kafka.spans import EpochEnd, Span, count_of, kept_spans, spans_of, without
from replicator.kafka.survey import partitions_of_shard
from replicator.kafka.topics import TopicAdmin, TopicConfig
from replicator.lease import Lease

_TIMEOUT_MS = 30_000
_FIRST_REACH_OFFSETS = 3_000


def unexplained_records(config: Config, lease: Lease, states: States) -> Mapping[TopicPartition, int]:
    """How many records lie on the target above what the shard's entries tell of, and are no other route's.

    Args:
        config: all configuration.
        lease: the shard, whose owners are fenced: nothing of it is written meanwhile.
        states: its partitions, as its entries tell.

    Returns:
        Partitions with such records; none where no election takes entries from the run log: then they are somebody's who
        writes there beside the routes; none either where producers write to the target, whose records no entry explains.

    Raises:
        ClusterUnavailableError: the target did not answer in time, or somebody's transaction stays open there.
    """
    cluster = aggregate_cluster(lease.route.target)
    if config.is_produced_at(cluster):
        return {}
    admin = TopicAdmin(cluster, config.cluster(cluster), timeout_ms=_TIMEOUT_MS)
    settings = client_settings(config.cluster(cluster), client_id="parallax-unexplained")
    run_log = run_log_topic(config, lease.route.source)
    if not loses_by_election(
        admin.configs([run_log]).get(run_log, {}), admin.replication().replicas.get(run_log, 1)
    ):
        return {}
    topics = admin.topics()
    names = config.route_topics(lease.route)
    items = partitions_of_shard((info for name, info in topics.items() if names.make(name)), lease)
    others = [
        KafkaRunLog(config, route, shard)
        for route in config.routes_into(lease.route.target)
        if route != lease.route and (info := topics.get(run_log_topic(config, route.source))) is not None
        for shard in range(info.partitions)
    ]
    topic_ids = {item: topics[item.topic].topic_id for item in items}
    with epoch_ends(config.cluster(cluster), cluster, timeout_ms=_TIMEOUT_MS) as epoch_end:
        records: dict[TopicPartition, Sequence[Span]] = {}
        for item, held in admin.log_ranges(items).items():
            floor = floor_of(states, item, topic_ids[item], epoch_end)
            span = (max(floor, held.low_watermark), int(held.high_watermark))
            found = read_partition(
                settings, cluster, item.topic, item.partition, span, timeout_ms=_TIMEOUT_MS
            )
            records[item] = spans_of(offset for offset, _, _ in found)
        reach = _FIRST_REACH_OFFSETS
        whole = False
        left = counted(records)
        while left and not whole:
            # Only now, when the records' transactions have ended: whatever they are, their entries are there.
            whole = True
            entries: list[Entry] = []
            for reader in others:
                first, end = reader.start(), reader.end()
                whole = whole and end - reach <= first
                entries += [
                    entry for _, entry in reader.read(max(first, end - reach), end) if entry is not None
                ]
            left = counted(without_rows(records, entries, topic_ids, epoch_end))
            reach *= 4
    return left


def loses_by_election(settings: TopicConfig, replicas: int) -> bool:
    """Whether another leader may lack entries that were committed: an unclean one, or the only replica with a new disk."""
    return replicas < 2 or settings.get("unclean.leader.election.enable") != "false"  # noqa: PLR2004 - more than one


def floor_of(states: States, item: TopicPartition, target_topic_id: str, epoch_end: EpochEnd) -> int:
    """Above which target offset the shard's entries tell nothing of a partition, or of what is there no more."""
    state = states.get(item)
    if state is None or state.lineage.target_topic_id != target_topic_id:
        return 0
    if state.target_leader_epoch == UNKNOWN_EPOCH:
        return int(state.target_floor)
    return min(int(state.target_floor), epoch_end(item, state.target_leader_epoch))


def without_rows(
    records: Mapping[TopicPartition, Sequence[Span]],
    entries: Iterable[Entry],
    topic_ids: Mapping[TopicPartition, str],
    epoch_end: EpochEnd,
) -> Mapping[TopicPartition, Sequence[Span]]:
    """The records that no row of the entries holds; rows of what the target has lost since hold none."""
    ids = {item: topic_ids[item] for item, spans in records.items() if spans}
    rows = kept_spans(entries, ids, epoch_end)
    return {item: list(without(spans, rows.get(item, ()))) for item, spans in records.items()}


def counted(records: Mapping[TopicPartition, Sequence[Span]]) -> dict[TopicPartition, int]:
    """How many there are, of partitions that have any."""
    return {item: count_of(spans) for item, spans in records.items() if spans}
