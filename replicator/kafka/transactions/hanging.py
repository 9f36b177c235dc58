"""Ends what transactions of a shard's earlier owners were left hanging: decided by the cluster, and never ended.

A coordinator that comes back with its whole cluster may take partitions whose leader is not elected yet for deleted
ones, leave out their markers and call the transaction complete (KAFKA-20734, brokers 4.2 and 4.3; unclean leader
elections do the same). Their last stable offset then stands still for ever, and the next transaction of the same
producer would end the old one as it ends itself: records of an aborted transaction would appear.

A shard's transaction is whole once its run-log entry is appended: the entry, or the last of its pieces, is written after every record
of it was acknowledged. So an entry that is neither committed nor aborted anywhere may be committed, whatever the coordinator
had decided: nobody has acted on it. Where one partition has its marker, the others follow it
(docs/decisions/0008-hanging-transactions.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import structlog
from google.protobuf.message import DecodeError
from kafka.errors import for_code
from kafka.protocol.admin import DescribeProducersRequest

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Config
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.errors import ClusterUnavailableError, FencedError
from parallax.runtime.deadline import Deadline
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.recovery import Shard
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.leader_epochs import LeaderEpochs
from replicator.kafka.run_log import KafkaRunLog, own_entries, read_partition, run_log_topic
from replicator.kafka.survey import partitions_of_shard
from replicator.kafka.transactions.coordinator import Coordinator, by_topic
from replicator.kafka.transactions.endings import Found, Sought, TransactionEnd
from replicator.kafka.transactions.fates import Fates, fates_by_entries, fates_of, is_settled_change
from replicator.lease import Lease, change_id, transactional_id

log = structlog.get_logger(__name__)

_LARGEST_ANSWER_BYTES = 128 * 1024 * 1024
_TIMEOUT_MS = 10_000
_NONE = 0
_LAYOUTS_BACK = 3
"""Of so many layouts before the present one transactions are looked for: each id costs two requests."""
_LEADER_AWAY = frozenset({3, 5, 6, 74, 76})
"""Unknown partition, leader not available, not the leader, fenced or unknown epoch: another moment tells more."""


def settle(config: Config, lease: Lease, paths: Sequence[str]) -> None:
    """Fence the shard's owners, and end every transaction of theirs that the cluster believes to have ended.

    To be called before the shard's run log is read: up to a transaction that hangs there it can't be.

    Args:
        config: all configuration.
        lease: the shard.
        paths: the copy paths, each with a transactional id of its own.

    Raises:
        ClusterUnavailableError: the target cluster did not answer in time.
        FencedError: another owner has taken over meanwhile.
    """
    cluster = aggregate_cluster(lease.route.target)
    with connected(config, cluster, f"parallax-settle-{lease.route.source}") as (loop, connections):
        topics = KafkaCluster(cluster, config.cluster(cluster), timeout_ms=_TIMEOUT_MS).topics()
        names = config.route_topics(lease.route)
        chosen = [info for name, info in topics.items() if names.make(name)]
        own = [_run_log_of(config, lease), *partitions_of_shard(chosen, lease)]
        settled = {_settle(config, lease, path, own, loop, connections) for path in paths}
        strangers = open_transactions(connections, own)
        strangers = {producer: starts for producer, starts in strangers.items() if producer not in settled}
        if not strangers:
            return
        run_log = run_log_topic(config, lease.route.source)
        shards = 0 if (info := topics.get(run_log)) is None else info.partitions
        everything = [
            *(TopicPartition(run_log, shard) for shard in range(shards)),
            *partitions_of_shard(chosen, replace(lease, shard=0, shard_count=1)),
        ]
        try:
            # Other routes don't write to the run log. A change of the layout that goes on is left alone: fencing it would end it.
            if any(_is_settled_change(config, lease, starts) for starts in strangers.values()):
                _settle(config, lease, None, everything, loop, connections)
            for older in earlier_shards(lease, shards):
                for path in paths:
                    _settle(config, older, path, everything, loop, connections)
        except FencedError as error:  # nobody owns these: another shard settles them, too
            raise ClusterUnavailableError(f"{connections.cluster}: {error}") from error


def earlier_shards(lease: Lease, shards: int) -> Iterator[Lease]:
    """The shards of layouts before the lease's, of which a transaction may hang where it copies.

    Args:
        lease: the shard.
        shards: no layout had more: a run log has a partition for each shard, and they never become fewer.
    """
    for layout in range(max(1, lease.layout - _LAYOUTS_BACK), lease.layout):
        for shard in range(shards):
            yield replace(lease, layout=layout, shard=shard)


def _settle(
    config: Config,
    lease: Lease,
    path: str | None,
    candidates: Collection[TopicPartition],
    loop: EventLoop,
    connections: Connections,
) -> int:
    """Fence one of the shard's ids, and end what it was left hanging: the id's producer.

    Args:
        config: all configuration.
        lease: whose ids they are.
        path: the copy path; None: the id of changes of the layout.
        candidates: partitions that it may have written to.
        loop: turned while answers are awaited.
        connections: to the target.
    """
    name = (
        change_id(lease.route)
        if path is None
        else transactional_id(lease.route, lease.layout, lease.shard, path)
    )
    coordinator = Coordinator(
        loop,
        connections,
        name,
        config.replicator.transaction_timeout_ms,
        newest=False,  # so that partitions can join a transaction without a record
    )
    producer = coordinator.initialise()
    producer_id = producer.producer_id
    hanging = open_transactions(connections, candidates).get(producer_id)
    if not hanging:
        return producer_id
    leader_epochs = LeaderEpochs(loop, connections, timeout_ms=_TIMEOUT_MS)
    fates = (
        Fates(commit=tuple(sorted(hanging)))  # the lease is of a layout that was told to be settled
        if path is None
        else _fates(config, lease, hanging, producer_id, leader_epochs)
    )
    log.warning(
        "hanging_transaction",
        lease=str(lease),
        transactional_id=name,
        since={str(item): int(start) for item, start in sorted(hanging.items())},
        committed=[str(item) for item in fates.commit],
        aborted=[str(item) for item in fates.abort],
    )
    for items, committed in ((fates.commit, True), (fates.abort, False)):
        if items:
            try:
                coordinator.add(items, producer)
            except (
                TopicsRefusedError
            ) as error:  # what hangs has to be ended before anything else: all of it waits
                raise ClusterUnavailableError(str(error)) from error
            coordinator.end(producer, committed=committed)
    return producer_id


@contextmanager
def connected(
    config: Config, cluster: ClusterName, client_id: str
) -> Iterator[tuple[EventLoop, Connections]]:
    """Connections to a target, and what turns them."""
    with ExitStack() as doors:
        loop = EventLoop()
        doors.callback(loop.close)
        connections = Connections(
            loop,
            cluster,
            config.cluster(cluster),
            client_id=client_id,
            largest_answer_bytes=_LARGEST_ANSWER_BYTES,
            timeout_ms=_TIMEOUT_MS,
        )
        doors.callback(connections.close)
        connections.connect()
        yield loop, connections


def _run_log_of(config: Config, lease: Lease) -> TopicPartition:
    return TopicPartition(run_log_topic(config, lease.route.source), lease.shard)


def open_transactions(
    connections: Connections, items: Collection[TopicPartition]
) -> dict[int, dict[TopicPartition, TargetOffset]]:
    """Where producers have transactions open, by their ids.

    Raises:
        ClusterUnavailableError: a leader did not answer in time, or a partition has had none for so long.
    """
    deadline = Deadline.after_ms(_TIMEOUT_MS)
    starts: dict[int, dict[TopicPartition, TargetOffset]] = {}
    asked = items
    while asked:
        missing = connections.learn_leaders(asked, timeout_ms=deadline.remaining_ms)
        if missing:
            raise ClusterUnavailableError(
                f"{connections.cluster}: {', '.join(map(str, sorted(missing)[:5]))}: no leader"
            )
        away: dict[TopicPartition, int] = {}
        for item, part in _producers_of(connections, asked):
            if part.error_code in _LEADER_AWAY:
                away[item] = part.error_code
                continue
            for producer_id, start in _starts(part, item):
                before = starts.setdefault(producer_id, {}).get(item, start)
                starts[producer_id][item] = min(start, before)
        if away and deadline.passed:
            item, code = min(away.items())
            raise ClusterUnavailableError(
                f"{connections.cluster}: {item}: open transactions: {for_code(code).__name__}"
            )
        asked = away
        if asked:  # of a topic that was just created its leader may not have heard itself
            connections.learn_anew(timeout_ms=deadline.remaining_ms)
    return starts


def _producers_of(
    connections: Connections, items: Collection[TopicPartition]
) -> Iterator[tuple[TopicPartition, Any]]:
    """What the leaders tell of the partitions' producers."""
    for leader, led in connections.by_leader(items).items():
        request = DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(led).items()
            ]
        )
        answer = connections.ask(leader, request, "asking for open transactions")
        for topic in answer.topics:
            for part in topic.partitions:
                yield TopicPartition(TopicName(topic.name), part.partition_index), part


def _starts(part: Any, item: TopicPartition) -> Iterator[tuple[int, TargetOffset]]:
    if part.error_code != _NONE:
        # Not allowed to look (Describe needs Read on the topic): copying goes on as without this precaution.
        log.warning(
            "open_transactions_unknown", partition=str(item), problem=for_code(part.error_code).__name__
        )
        return
    starts = [
        (producer.producer_id, TargetOffset(producer.current_txn_start_offset))
        for producer in part.active_producers
        if producer.current_txn_start_offset >= 0
    ]
    yield from starts


def _is_settled_change(config: Config, lease: Lease, starts: Mapping[TopicPartition, TargetOffset]) -> bool:
    run_log, cluster = _run_log_of(config, lease), aggregate_cluster(lease.route.target)
    start = starts.get(run_log)
    if start is None:
        return False
    if start < KafkaRunLog(config, lease.route, lease.shard).start():
        return True  # no change goes on for as long as retention keeps entries
    settings, span = (
        client_settings(config.cluster(cluster), client_id="parallax-settle"),
        (int(start), int(start) + 1),
    )
    found = read_partition(
        settings, cluster, run_log.topic, run_log.partition, span, timeout_ms=_TIMEOUT_MS, committed=False
    )
    for _, _, value in found:
        try:
            return is_settled_change(Entry.FromString(value or b""), lease)
        except DecodeError:  # somebody else's: what it is shows when the run log is read
            return False
    return False


def _fates(
    config: Config,
    lease: Lease,
    hanging: Mapping[TopicPartition, TargetOffset],
    producer_id: int,
    leader_epochs: LeaderEpochs,
) -> Fates:
    """Read what the decision needs, and decide."""
    cluster, run_log = aggregate_cluster(lease.route.target), _run_log_of(config, lease)
    settings = client_settings(config.cluster(cluster), client_id="parallax-settle")
    # Looked up now: what a topic of before was told of says nothing of what hangs in its successor.
    topics = KafkaCluster(cluster, config.cluster(cluster), timeout_ms=_TIMEOUT_MS).topics()
    ids = {name: info.topic_id for name, info in topics.items()}
    found = _Producer(producer_id, ids, leader_epochs)

    def ends_of(epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, TargetOffset]:
        ends = leader_epochs.ends_of({item: (UNKNOWN_EPOCH, epoch) for item, epoch in epochs.items()})
        if silent := epochs.keys() - ends.keys():
            raise ClusterUnavailableError(
                f"{cluster}: {min(silent)}: its leader does not tell what it has kept"
            )
        return ends

    def entry_at(offset: int) -> Entry | None:
        if offset >= reader.end():  # to wait there would be to wait for ever
            return None
        span = (offset, offset + 1)
        records = read_partition(
            settings,
            cluster,
            run_log.topic,
            run_log.partition,
            span,
            timeout_ms=_TIMEOUT_MS,
            committed=False,
        )
        first = next(records, None)
        return None if first is None or first[0] != offset else Entry.FromString(first[2] or b"")

    def by_entries(starts: Mapping[TopicPartition, TargetOffset]) -> Fates:
        # Whether this is the run log that the layout knows is seen before anything is copied: another holds no snapshot.
        shard = Shard(cluster, run_log, reader.topic_id() or TopicId(""), lease.layout)
        # Nothing of the shard's own that is decided lies above, and a change of the layout that hangs there is ended afterwards.
        entries = own_entries(reader, shard, end=reader.stable_end())
        return fates_by_entries(starts, ids, entries, ends_of, found.continued)

    reader = KafkaRunLog(config, lease.route, lease.shard)
    return fates_of(
        hanging,
        run_log,
        kept_from=reader.start() if run_log in hanging else 0,
        entry_at=entry_at,
        by_entries=by_entries,
        endings_of=found.endings,
        continued=found.continued,
    )


class _Producer:
    """What the target's logs have of a producer.

    Args:
        producer_id: its id.
        topic_ids: of the target's present topics.
        leader_epochs: asks the leaders.
    """

    def __init__(
        self, producer_id: int, topic_ids: Mapping[TopicName, TopicId], leader_epochs: LeaderEpochs
    ) -> None:
        self._producer_id = producer_id
        self._topic_ids = topic_ids
        self._leader_epochs = leader_epochs

    def endings(
        self, records: Mapping[TopicPartition, TargetOffset]
    ) -> Mapping[TopicPartition, TransactionEnd]:
        """How its transactions ended of which these are the last records, as far as the logs tell.

        Those of topics that are gone are missing, and those that the producer's next one has joined: a marker behind that is its own.
        """
        present = {item: offset for item, offset in records.items() if item.topic in self._topic_ids}
        found = self._found(present).items()
        return {item: told.ending for item, told in found if told.records_end <= present[item] + 1}

    def continued(self, ends: Mapping[TopicPartition, TargetOffset]) -> Collection[TopicPartition]:
        """Of partitions on which it has something open, those where it has records from an offset on, or has had some."""
        found = self._found(ends).items()
        return [
            item
            for item, told in found
            if told.records_end > ends[item] or told.ending is not TransactionEnd.OPEN
        ]

    def _found(self, offsets: Mapping[TopicPartition, TargetOffset]) -> Mapping[TopicPartition, Found]:
        sought = {
            item: Sought(self._topic_ids[item.topic], offset, self._producer_id)
            for item, offset in offsets.items()
        }
        found = self._leader_epochs.endings_of(sought)
        if silent := sought.keys() - found.keys():
            raise ClusterUnavailableError(
                f"{min(silent)}: its leader does not tell how a transaction ended there"
            )
        return found
