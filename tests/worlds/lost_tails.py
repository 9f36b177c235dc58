"""A real cluster whose partitions lose their tails to an unclean election, a disk that loses them, and moves across that."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from lab.stack.stack import LocalStack
from offsetsvc.answers import FailoverAnswer
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.service import UseCases
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.config.config import Config
from parallax.domain.ids import (
    GroupName,
    Route,
    TargetOffset,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.outcome import Outcome
from parallax.runtime.deadline import Deadline, wall_clock_ms
from tests.memory.audit import MemoryAuditLog
from tests.memory.cql import MemoryKeyspace, WrittenStores
from tests.memory.groups import MemoryGroupStore, MemoryOperationJournal, MemoryPrimaryStore
from tests.memory.index import MemoryMappingIndex
from tests.support import poll_until, unique_name
from tests.worlds.shard_harness import PATIENCE_S, Harness, Owner, ends, numbered

WITHIN_S = 120.0
_LEASE_S = 400
_LEADS, _FOLLOWS = 1, 2
"""Brokers that have the partitions; the third keeps the quorum of controllers."""


def abort(bootstrap: str, topic: str) -> None:
    """Entries that no consumer sees: a record and the marker that aborts it."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique_name("aborts")})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(topic, value="aborted", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    producer.abort_transaction(WITHIN_S)


class Brokers:
    """A cluster of three, whose leaders need not have been in sync."""

    def __init__(self, stack: LocalStack, cluster: str) -> None:
        self._stack, self._cluster = stack, cluster
        self._bootstrap = stack.bootstrap(cluster)
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap})
        self._topics: list[str] = []

    def create(self, topic: str) -> None:
        """A topic of one partition on two brokers."""
        settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        new = NewTopic(topic, 1, replica_assignment=[[_LEADS, _FOLLOWS]], config=settings)
        self._admin.create_topics([new])[topic].result()
        self._topics.append(topic)
        poll_until(lambda: self._leader(topic) == _LEADS, WITHIN_S, f"broker {_LEADS} leads {topic}")

    def _known(self, topic: str) -> PartitionMetadata | None:
        """What the cluster says of the partition; None while it does not answer."""
        try:
            return self._admin.list_topics(topic, timeout=10).topics[topic].partitions.get(0)
        except KafkaException:
            return None

    def _leader(self, topic: str) -> int:
        known = self._known(topic)
        return -1 if known is None else known.leader

    def _is_behind(self, topic: str) -> bool:
        known = self._known(topic)
        return known is not None and _FOLLOWS not in known.isrs

    def fall_behind(self) -> None:
        """The follower dies: what is written from now on only the leader has."""
        self._stack.kill(f"{self._cluster}-{_FOLLOWS}")
        poll_until(
            lambda: all(self._is_behind(topic) for topic in self._topics),
            WITHIN_S,
            f"{_FOLLOWS} is not in sync",
        )

    def lose(self) -> None:
        """The leader dies, and the follower that has fallen behind leads."""
        self._stack.kill(f"{self._cluster}-{_LEADS}")
        self._stack.start(f"{self._cluster}-{_FOLLOWS}")

        def elected() -> bool:
            items = [KafkaPartition(topic, 0) for topic in self._topics]
            try:
                self._admin.elect_leaders(ElectionType.UNCLEAN, items).result(timeout=10)
            except (KafkaException, TimeoutError):
                return False
            return all(self._leader(topic) == _FOLLOWS for topic in self._topics)

        poll_until(elected, WITHIN_S, f"broker {_FOLLOWS} leads")

    def come_back(self) -> None:
        """The old leader follows, and cuts off what the new one does not have."""
        self._stack.start(f"{self._cluster}-{_LEADS}")

    def write(self, topic: str, values: Sequence[str]) -> None:
        """Records of nobody's route."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        for value in values:
            producer.produce(topic, value=value, partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def abort(self, topic: str) -> None:
        """Entries that no consumer sees."""
        abort(self._bootstrap, topic)

    def read(self, topic: str, group: str) -> list[str]:
        """What a group reads from the beginning to the end, where it commits with the leader epoch that it has read."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        values: list[str] = []
        try:
            consumer.assign([KafkaPartition(topic, 0, 0)])
            deadline = time.monotonic() + PATIENCE_S
            while True:
                assert time.monotonic() < deadline, f"{topic} can't be read to its end"
                message = consumer.poll(0.1)
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
                values.append((message.value() or b"").decode())
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return values


class Disk:
    """The disk of a cluster of one broker, which loses the tails of partitions: they are found as an election leaves them."""

    def __init__(self, stack: LocalStack, cluster: str) -> None:
        self._stack, self._cluster = stack, cluster
        self._cuts: dict[str, int] = {}

    def is_to_lose(self, topic: str, from_offset: int) -> None:
        """What the topic has from an offset on, where a batch begins."""
        self._cuts[topic] = from_offset

    def lose(self) -> None:
        """The broker goes, and comes back without these tails, as leader of a later epoch."""
        self._stack.stop(self._cluster)
        storage = self._stack.layout.storage_path(self._cluster)
        for topic, from_offset in self._cuts.items():
            (log,) = (storage / f"{topic}-0").glob("*.log")
            _cut(log, from_offset)
            for index in (
                ".index",
                ".timeindex",
            ):  # else they would tell of what is gone; the broker makes them anew
                log.with_suffix(index).unlink()
        self._stack.start(self._cluster)


_BATCH_HEAD_BYTES = 12
"""A batch begins with its first offset (8 bytes) and the length of what follows these two (4)."""


def _cut(log: Path, from_offset: int) -> None:
    """Take the batches from an offset on from a segment."""
    content, place = log.read_bytes(), 0
    while int.from_bytes(content[place : place + 8], "big") < from_offset:
        place += _BATCH_HEAD_BYTES + int.from_bytes(content[place + 8 : place + _BATCH_HEAD_BYTES], "big")
        assert place < len(content), f"{log} ends before {from_offset}"
    assert int.from_bytes(content[place : place + 8], "big") == from_offset, (
        f"{from_offset} lies within a batch"
    )
    with log.open("r+b") as file:
        file.truncate(place)


def owned(harness: Harness, index: MemoryMappingIndex | None = None) -> Owner:
    """A lease that outlasts the test."""
    config = harness.config()
    deadline_ms = int((time.time() + _LEASE_S) * 1_000)
    return harness.own(config, index, replace(harness.lease(config), deadline_unix_ms=deadline_ms))


def placed(harness: Harness) -> list[tuple[int, str]]:
    """What lies in the target: each record's offset and value."""
    return [
        (offset, (record[1] or b"").decode()) for _, offset, record in numbered(harness.target, harness.topic)
    ]


def generation(harness: Harness) -> int:
    """The newest of the topic that the run log tells of."""
    return max((lineage.generation for _, lineage in harness.rows()), default=0)


def passed(answer: FailoverAnswer, after: Iterable[tuple[int, str]]) -> set[str]:
    """What a group does not get at its destination, where ``after`` lies: below where it resumes, and what it skips."""
    assert answer.skip_ranges_continue_at is None
    skipped = {offset for skip in answer.skip_ranges for offset in range(*skip)}
    return {value for offset, value in after if offset < answer.resume_offset or offset in skipped}


class TwoCopies:
    """A topic that two targets copy, and where groups that move between them go on.

    Args:
        behind: one route.
        ahead: another one from the same source, to a target that holds records which the other has lost, or never had.
        index: where both routes are indexed.
    """

    def __init__(self, behind: Harness, ahead: Harness, index: MemoryMappingIndex) -> None:
        ahead.route = Route(behind.route.source, ahead.route.target)
        self.behind, self.ahead, self.index = behind, ahead, index
        self._groups = MemoryGroupStore()
        self._owners: dict[str, Owner] = {}

    def own(self, *harnesses: Harness) -> None:
        """Copy from now on."""
        for harness in harnesses:
            self._owners[harness.target] = owned(harness, self.index)

    def finish(self, *harnesses: Harness) -> None:
        """Copy no more: whatever an owner has noticed and not written is gone with it."""
        for harness in harnesses:
            assert self._owners.pop(harness.target).finish().stopped == {}

    def moves(
        self,
        origin: Harness,
        destination: Harness,
        positions: Iterable[int] | None,
        group: str = "moved",
        *,
        remembered: bool = False,
    ) -> list[FailoverAnswer]:
        """The offset service's answers for a group at each of the positions; None: at the one that it has committed."""
        config = self._config()
        origin_name, name = (aggregate_cluster(side.route.target) for side in (origin, destination))
        clusters = {
            item: KafkaCluster(item, config.cluster(item), timeout_ms=10_000) for item in (origin_name, name)
        }
        item = TopicPartition(TopicName(origin.topic), 0)
        asked: list[Mapping[TopicPartition, TargetOffset]] = (
            [{}] if positions is None else [{item: TargetOffset(position)} for position in positions]
        )
        found: list[FailoverAnswer] = []
        with UseCases(
            config,
            origin.route.target,
            self.index,
            self._groups,
            clusters,
            MemoryPrimaryStore(),
            MemoryOperationJournal(),
            WrittenStores(MemoryKeyspace()).status,
            now_ms=wall_clock_ms,
            audit=MemoryAuditLog(),
            cache=False,
        ) as service:
            for own in asked:
                request = FailoverRequest(GroupName(group), origin_name, name, own, only=item)
                found += service.failover.answers(request, Deadline.after_ms(30_000), record_move=remembered)
        return found

    def _config(self) -> Config:
        regions = {
            self.behind.route.source: {"regional": {"bootstrap_servers": self.behind.source}},
            self.behind.route.target: {"aggregate": {"bootstrap_servers": self.behind.target}},
            self.ahead.route.target: {"aggregate": {"bootstrap_servers": self.ahead.target}},
        }
        return Config.model_validate({"regions": regions, "cassandra": {"contact_points": ["127.0.0.1"]}})

    def check_moves(self, origin: Harness, destination: Harness, kept: int) -> None:
        """Wherever a group leaves: it passes nothing that it has not consumed, and what it gets again it is told of.

        Args:
            origin: from where.
            destination: to where.
            kept: so many records lie below all losses: what is always answered with the start would prove nothing.
        """
        before, after = placed(origin), placed(destination)
        places = [0, *(offset + 1 for offset, _ in before)]
        positions = sorted({*places[::10], *places[-3:], end(origin)})
        again: dict[int, int] = {}
        for position, answer in zip(positions, self.moves(origin, destination, positions), strict=True):
            consumed = {value for offset, value in before if offset < position}
            unread = passed(answer, after) - consumed
            assert not unread, (origin.route, position, sorted(unread)[:3])
            again[position] = len(consumed & {value for _, value in after} - passed(answer, after))
            assert not again[position] or Outcome.LINEAGE_CHANGED in answer.notes, (origin.route, position)
        # In doubt are places that were given twice, and no others.
        assert (again[places[kept // 20 * 10]], again[positions[-1]]) == (0, 0)


def end(harness: Harness) -> int:
    """Where the target's log ends."""
    (found,) = ends(harness.target, harness.topic)
    return found
