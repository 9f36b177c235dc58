"""A partition loses its tail on real brokers: an unclean election, and somebody else writes first.

One election strikes topics that were copied to the cluster, and one that is copied from it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from offsetsvc.resume.request import FailoverRequest
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
from parallax.runtime.deadline import Deadline, wall_clock_ms
from tests.memory.audit import MemoryAuditLog
from tests.memory.groups import MemoryGroupStore, MemoryPrimaryStore
from tests.memory.index import MemoryMappingIndex
from tests.support import poll_until, unique_name
from tests.worlds.shard_harness import PATIENCE_S, Harness, Owner, ends, numbered, seen

_OWN_STACK_TIMEOUT_S = 600
_WITHIN_S = 120.0
_LEASE_S = 400
_CUT = "aggregate-m"
_LEADS, _FOLLOWS = 1, 2
"""Brokers that have the partitions; the third keeps the quorum of controllers."""
_OTHERS = 900


class Brokers:
    """A cluster of three, whose leaders need not have been in sync."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack
        self._bootstrap = stack.bootstrap(_CUT)
        self._admin = AdminClient({"bootstrap.servers": self._bootstrap})
        self._topics: list[str] = []

    def create(self, topic: str) -> None:
        """A topic of one partition on two brokers."""
        settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        new = NewTopic(topic, 1, replica_assignment=[[_LEADS, _FOLLOWS]], config=settings)
        self._admin.create_topics([new])[topic].result()
        self._topics.append(topic)
        poll_until(lambda: self._leader(topic) == _LEADS, _WITHIN_S, f"broker {_LEADS} leads {topic}")

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
        self._stack.kill(f"{_CUT}-{_FOLLOWS}")
        poll_until(
            lambda: all(self._is_behind(topic) for topic in self._topics),
            _WITHIN_S,
            f"{_FOLLOWS} is not in sync",
        )

    def lose(self) -> None:
        """The leader dies, and the follower that has fallen behind leads."""
        self._stack.kill(f"{_CUT}-{_LEADS}")
        self._stack.start(f"{_CUT}-{_FOLLOWS}")

        def elected() -> bool:
            items = [KafkaPartition(topic, 0) for topic in self._topics]
            try:
                self._admin.elect_leaders(ElectionType.UNCLEAN, items).result(timeout=10)
            except (KafkaException, TimeoutError):
                return False
            return all(self._leader(topic) == _FOLLOWS for topic in self._topics)

        poll_until(elected, _WITHIN_S, f"broker {_FOLLOWS} leads")

    def come_back(self) -> None:
        """The old leader follows, and cuts off what the new one does not have."""
        self._stack.start(f"{_CUT}-{_LEADS}")

    def write(self, topic: str, values: Sequence[str]) -> None:
        """Records of nobody's route."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})
        for value in values:
            producer.produce(topic, value=value, partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def abort(self, topic: str) -> None:
        """Entries that no consumer sees: a record and the marker that aborts it."""
        settings = {"bootstrap.servers": self._bootstrap, "transactional.id": unique_name("aborts")}
        producer = Producer(settings)
        producer.init_transactions(_WITHIN_S)
        producer.begin_transaction()
        producer.produce(topic, value="aborted", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        producer.abort_transaction(_WITHIN_S)


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


class CutTarget:
    """A topic whose copy is struck; others fill the log up before it is copied on."""

    def __init__(self, stack: LocalStack, brokers: Brokers, copy_path: str) -> None:
        self._brokers, self._produced = brokers, list[str]()
        self._harness = Harness(
            stack, unique_name(f"target-{copy_path}"), copy_path, clusters=("regional-m", _CUT)
        )
        self._harness.create(1)
        brokers.create(self._harness.topic)
        self._owner = owned(self._harness)

    def _produce(self, count: int) -> None:
        values = [f"value {len(self._produced) + number}" for number in range(count)]
        self._produced.extend(values)
        self._harness.produce(values)

    def _all_there(self, what: str) -> None:
        def once() -> bool:
            found = Counter(value for _, value in placed(self._harness) if not value.startswith("other"))
            return found == Counter(self._produced)

        poll_until(once, _WITHIN_S, f"each record of {self._harness.topic} once {what}")

    def begin(self) -> None:
        self._produce(300)
        self._all_there("at first")

    def go_ahead(self) -> None:
        self._produce(300)
        self._all_there("on the leader alone")
        self._owner.finish()  # whatever it has noticed is gone with it

    def go_on(self) -> None:
        self._brokers.write(self._harness.topic, [f"other {number}" for number in range(_OTHERS)])
        self._owner = owned(self._harness)

    def end(self) -> None:
        self._all_there("after the loss")
        self._produce(300)
        self._all_there("as it goes on")
        self._check_newest_rows()
        assert self._owner.finish().stopped == {}

    def _check_newest_rows(self) -> None:
        """Each run of the newest generation points at the same record on both sides."""
        harness = self._harness
        there = {offset: record for _, offset, record in numbered(harness.source, harness.topic)}
        here = {offset: record for _, offset, record in numbered(harness.target, harness.topic)}
        (_, newest), (rows, _) = max(harness.rows().items(), key=lambda item: item[0][1].generation)
        assert newest.generation > 0
        pairs = [(row.source_start + at, row.target_start + at) for row in rows for at in range(row.count)]
        assert pairs
        for source, target in pairs:
            assert seen(here[target]) == seen(there[source])


class CutSource:
    """A topic that is struck where it is copied from: of its tail one target has a copy, and the other has none."""

    def __init__(self, stack: LocalStack, brokers: Brokers) -> None:
        self._brokers = brokers
        topic = unique_name("source")
        brokers.create(topic)
        self._behind, self._ahead = (
            Harness(stack, topic, clusters=(_CUT, target)) for target in ("aggregate-n", "regional-n")
        )
        self._ahead.route = Route(self._behind.route.source, self._ahead.route.target)
        self._index = MemoryMappingIndex()
        self._owners = {"behind": self._own(self._behind), "ahead": self._own(self._ahead)}
        self._kept = [f"kept {number}" for number in range(200)]
        self._tail = [f"tail {number}" for number in range(100)]
        self._new = [f"new {number}" for number in range(100)]

    def _own(self, harness: Harness) -> Owner:
        return owned(harness, self._index)

    def begin(self) -> None:
        self._behind.produce(self._kept)
        self._behind.wait_for({0: self._kept})
        self._ahead.wait_for({0: self._kept})
        self._owners.pop("behind").finish()

    def go_ahead(self) -> None:
        self._behind.produce(self._tail)
        self._ahead.wait_for({0: self._kept + self._tail})
        self._owners.pop("ahead").finish()

    def go_on(self) -> None:
        """The new leader begins with what no consumer sees; one target says that it has all of that."""
        self._brokers.abort(self._behind.topic)
        self._owners["behind"] = self._own(self._behind)

        def said() -> bool:
            rows = [row for runs, _ in self._behind.rows().values() for row in runs]
            return max(row.source_end for row in rows) > len(self._kept)

        poll_until(said, _WITHIN_S, "a watermark beyond what the new leader began with")
        lost_at = next(offset for offset, value in placed(self._ahead) if value == self._tail[0])
        end = self._end(self._behind)
        assert self._moves(self._behind, self._ahead, [end]) == {end: (lost_at, set())}

    def end(self) -> None:
        self._owners["ahead"] = self._own(self._ahead)
        self._behind.produce(self._new)
        self._behind.wait_for({0: self._kept + self._new})
        self._ahead.wait_for({0: self._kept + self._tail + self._new})
        for owner in self._owners.values():
            assert owner.finish().stopped == {}
        self._check_moves(self._behind, self._ahead)
        self._check_moves(self._ahead, self._behind)

    def _end(self, harness: Harness) -> int:
        (end,) = ends(harness.target, harness.topic)
        return end

    def _moves(
        self, origin: Harness, destination: Harness, positions: Iterable[int]
    ) -> dict[int, tuple[int, set[int]]]:
        """By position: where the offset service has a group resume, and what it has it skip."""
        config = self._config()
        origin_name, name = (aggregate_cluster(side.route.target) for side in (origin, destination))
        clusters = {
            item: KafkaCluster(item, config.cluster(item), timeout_ms=10_000) for item in (origin_name, name)
        }
        stores = MemoryGroupStore(), clusters, MemoryPrimaryStore()
        item = TopicPartition(TopicName(origin.topic), 0)
        found: dict[int, tuple[int, set[int]]] = {}
        with UseCases(
            config,
            origin.route.target,
            self._index,
            *stores,
            now_ms=wall_clock_ms,
            audit=MemoryAuditLog(),
            cache=False,
        ) as service:
            for position in positions:
                moved = {item: TargetOffset(position)}
                request = FailoverRequest(GroupName("moved"), origin_name, name, moved, only=item)
                (answer,) = service.failover.answers(request, Deadline.after_ms(30_000))
                assert answer.skip_ranges_continue_at is None
                skipped = {offset for skip in answer.skip_ranges for offset in range(skip.start, skip.end)}
                found[position] = answer.resume_offset, skipped
        return found

    def _config(self) -> Config:
        regions = {
            self._behind.route.source: {"regional": {"bootstrap_servers": self._behind.source}},
            self._behind.route.target: {"aggregate": {"bootstrap_servers": self._behind.target}},
            self._ahead.route.target: {"aggregate": {"bootstrap_servers": self._ahead.target}},
        }
        return Config.model_validate({"regions": regions, "cassandra": {"contact_points": ["127.0.0.1"]}})

    def _check_moves(self, origin: Harness, destination: Harness) -> None:
        """Wherever a group leaves: it passes nothing that it has not consumed."""
        before, after = placed(origin), placed(destination)
        places = [0, *(offset + 1 for offset, _ in before)]
        again: dict[int, int] = {}
        positions = {*places[::10], *places[-3:], self._end(origin)}
        for position, (resume, skipped) in self._moves(origin, destination, positions).items():
            consumed = {value for offset, value in before if offset < position}
            passed = {value for offset, value in after if offset < resume or offset in skipped}
            assert passed <= consumed, (origin.route, position, sorted(passed - consumed)[:3])
            again[position] = len(consumed & {value for _, value in after} - passed)
        # What lies below the loss is passed: an answer that is always the start would prove nothing.
        assert again[places[len(self._kept) // 2]] == 0


@pytest.mark.stack
@pytest.mark.timeout(_OWN_STACK_TIMEOUT_S)
def test_what_an_unclean_election_takes_is_lost_to_nobody(tmp_path: Path) -> None:
    spec = StackSpec(("m", "n"), brokers={_CUT: 3}, services=False)
    with LocalStack(spec, tmp_path) as stack:
        brokers = Brokers(stack)
        cases = [
            CutTarget(stack, brokers, "batch"),
            CutTarget(stack, brokers, "record"),
            CutSource(stack, brokers),
        ]
        for case in cases:
            case.begin()
        brokers.fall_behind()
        for case in cases:
            case.go_ahead()
        brokers.lose()
        for case in cases:
            case.go_on()
        brokers.come_back()
        for case in cases:
            case.end()
