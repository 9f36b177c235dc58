"""A partition of the target loses its tail on real brokers: an unclean election, and somebody else writes first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.cimpl import NewTopic

from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from tests.support import poll_until, unique_name
from tests.worlds.shard_harness import PATIENCE_S, Harness, Owner, numbered, seen

_OWN_STACK_TIMEOUT_S = 600
_WITHIN_S = 120.0
_LEASE_S = 400
_LEADS, _FOLLOWS = 1, 2
"""Brokers that have the partition; the third keeps the quorum of controllers."""
_OTHERS = 900


class Target:
    """One partition on two brokers of three, whose leader need not have been in sync."""

    def __init__(self, stack: LocalStack, harness: Harness) -> None:
        self._stack = stack
        self._harness = harness
        self._admin = harness.target_admin
        settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        topic = NewTopic(harness.topic, 1, replica_assignment=[[_LEADS, _FOLLOWS]], config=settings)
        self._admin.create_topics([topic])[harness.topic].result()
        self.wait_for_leader(_LEADS)

    def _leader(self) -> int:
        known = self._admin.list_topics(self._harness.topic, timeout=10).topics[self._harness.topic]
        return int(known.partitions[0].leader) if known.partitions else -1

    def _in_sync(self) -> Sequence[int]:
        known = self._admin.list_topics(self._harness.topic, timeout=10).topics[self._harness.topic]
        return list(known.partitions[0].isrs)

    def wait_for_leader(self, broker: int) -> None:
        def leads() -> bool:
            try:
                return self._leader() == broker
            except KafkaException:
                return False

        poll_until(leads, _WITHIN_S, f"broker {broker} leads")

    def fall_behind(self, follower: int) -> None:
        """The follower dies: what is written from now on only the leader has."""
        self._stack.kill(f"aggregate-m-{follower}")
        poll_until(lambda: follower not in self._in_sync(), _WITHIN_S, f"{follower} is not in sync")

    def lose(self, leader: int, follower: int) -> None:
        """The leader dies, and the follower that has fallen behind leads."""
        self._stack.kill(f"aggregate-m-{leader}")
        self._stack.start(f"aggregate-m-{follower}")

        def elected() -> bool:
            item = KafkaPartition(self._harness.topic, 0)
            try:
                self._admin.elect_leaders(ElectionType.UNCLEAN, [item]).result(timeout=10)
            except (KafkaException, TimeoutError):
                return False
            return self._leader() == follower

        poll_until(elected, _WITHIN_S, f"broker {follower} leads")

    def write(self, values: Sequence[str]) -> None:
        """Another route's records."""
        producer = Producer({"bootstrap.servers": self._harness.target, "enable.idempotence": True})
        for value in values:
            producer.produce(self._harness.topic, value=value, partition=0)
        assert producer.flush(PATIENCE_S) == 0

    def values(self) -> list[str]:
        return [
            (record[1] or b"").decode()
            for _, _, record in numbered(self._harness.target, self._harness.topic)
        ]


def check_newest_rows(harness: Harness) -> None:
    """Each run of the newest generation points at the same record on both sides."""
    there = {offset: record for _, offset, record in numbered(harness.source, harness.topic)}
    here = {offset: record for _, offset, record in numbered(harness.target, harness.topic)}
    (_, newest), (rows, _) = max(harness.rows().items(), key=lambda item: item[0][1].generation)
    assert newest.generation > 0
    pairs = [(row.source_start + at, row.target_start + at) for row in rows for at in range(row.count)]
    assert pairs
    for source, target in pairs:
        assert seen(here[target]) == seen(there[source])


@pytest.mark.stack
@pytest.mark.timeout(_OWN_STACK_TIMEOUT_S)
@pytest.mark.parametrize("copy_path", ["batch", "record"])
def test_what_an_unclean_election_took_is_copied_again_though_others_have_filled_the_log_up(
    tmp_path: Path, copy_path: str
) -> None:
    spec = StackSpec(("m",), brokers={"aggregate-m": 3}, services=False)
    with LocalStack(spec, tmp_path) as stack:
        harness = Harness(stack, unique_name("tails"), copy_path, clusters=("regional-m", "aggregate-m"))
        harness.create(1)
        target, produced = Target(stack, harness), list[str]()

        def produce(count: int) -> None:
            values = [f"value {len(produced) + number}" for number in range(count)]
            produced.extend(values)
            harness.produce(values)

        def all_there(what: str) -> None:
            def once() -> bool:
                found = Counter(value for value in target.values() if not value.startswith("other"))
                return found == Counter(produced)

            poll_until(once, _WITHIN_S, f"each record once {what}")

        def own() -> Owner:
            config = harness.config()
            deadline_ms = int((time.time() + _LEASE_S) * 1_000)
            return harness.own(config, lease=replace(harness.lease(config), deadline_unix_ms=deadline_ms))

        owner = own()
        produce(300)
        all_there("at first")
        target.fall_behind(_FOLLOWS)
        produce(300)
        all_there("on the leader alone")
        owner.finish()  # whatever it has noticed is gone with it

        target.lose(_LEADS, _FOLLOWS)
        target.write([f"other {number}" for number in range(_OTHERS)])
        stack.start(f"aggregate-m-{_LEADS}")
        owner = own()
        all_there("after the loss")
        produce(300)
        all_there("as it goes on")
        check_newest_rows(harness)
        assert owner.finish().stopped == {}
