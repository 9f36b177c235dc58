"""`parallax failover` and consumers that follow it, on real brokers, Cassandra and services, under load."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tests.live import Live, Member, Record, Traffic, judge, live_world, record_of, wait_for_all
from tests.support import Stack, poll_until, unique_name

from devstack.workload.topics import create_topic
from offsetsvc.pb import primaries_pb2 as pb
from parallax.adapters.cassandra.schema import Schema
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.domain import ids
from parallax.ports import GroupCommit
from parallax.runtime.config import Cassandra

PARTITIONS = 3
PER_S = {"a": 150, "b": 100}


@pytest.fixture(scope="module")
def cassandra(infrastructure: Stack) -> dict[str, Any]:
    """A keyspace of this module's own, with the schema; as the configuration says it."""
    values = {
        "contact_points": [infrastructure.cassandra_address()],
        "keyspace": unique_name("failover").replace("-", "_"),
        "request_timeout_ms": 20_000,
    }
    with closing(Schema(Cassandra.model_validate(values))) as schema:
        schema.apply()
    return values


@pytest.fixture
def live(infrastructure: Stack, cassandra: dict[str, Any], tmp_path: Path) -> Iterator[Live]:
    with live_world(infrastructure, cassandra, tmp_path, partitions=PARTITIONS) as made:
        yield made
    for name in ("regional-a", "aggregate-a"):
        infrastructure.start(name)


@pytest.fixture
def members(live: Live) -> Iterator[list[Member]]:
    """Two members of one group, whose primary is a."""
    group = live.group("billing")
    live.parallax("primary", group, "--set", "a")
    with ExitStack() as stack:
        made = [live.member(group) for _ in range(2)]
        for member in made:
            stack.callback(member.close)
        yield made


def delivered(members: list[Member]) -> int:
    for member in members:
        if member.failure is not None:
            raise member.failure
    return sum(len(member.delivered) for member in members)


def more(members: list[Member], count: int) -> None:
    wanted = delivered(members) + count
    poll_until(lambda: delivered(members) >= wanted, 120, f"{count} more records")


def test_a_group_of_two_is_moved_on_purpose_and_back(live: Live, members: list[Member]) -> None:
    group = live.group("billing")
    with Traffic(live, partitions=PARTITIONS, per_s=PER_S) as traffic:
        more(members, 1_000)
        plan = live.parallax("failover", group, "--to", "b")
        assert plan["refusals"] == []
        for target in ("b", "a"):
            moved = live.parallax("failover", group, "--to", target, "--execute")
            assert moved["ending"] == "moved"
            assert moved["plan"]["pending_records"] == 0
            more(members, 1_000)
        acknowledged = traffic.stop()
    wait_for_all(members, acknowledged)
    verdict = judge(members, acknowledged)
    assert (verdict.lost, verdict.again) == ([], [])
    assert all(member.consumer.region == live.names["a"] for member in members)


def test_a_region_is_lost_and_returns(live: Live, members: list[Member]) -> None:
    with Traffic(live, partitions=PARTITIONS, per_s=PER_S) as traffic:
        more(members, 1_500)
        traffic.stop("a")
        live.kill_service("a")
        for name in ("aggregate-a", "regional-a"):
            live.stack.kill(name)
        moved = live.parallax("failover", "--region", "a", "--to", "b", "--execute", "--disaster")
        assert [item["ending"] for item in moved] == ["moved"], moved
        more(members, 500)

        for name in ("regional-a", "aggregate-a"):
            live.stack.start(name)
        live.serve("a")
        more(members, 500)

        # The killed cluster remembers its members until they have said that they left: the command waits for that.
        back = live.parallax("failback", "--region", "a", "--execute")
        assert [item["ending"] for item in back] == ["moved"], back
        more(members, 500)
        acknowledged = traffic.stop()
    wait_for_all(members, acknowledged)
    verdict = judge(members, acknowledged)
    assert (verdict.lost, verdict.again) == ([], [])


def test_a_member_that_sleeps_through_the_move_takes_nothing_back(live: Live, members: list[Member]) -> None:
    sleeper, awake = members
    with Traffic(live, partitions=PARTITIONS, per_s=PER_S) as traffic:
        more([sleeper], 200)
        more([awake], 200)
        traffic.hold()
        wait_for_all(members, traffic.sent)
        sleeper.pause()
        moved = live.parallax("failover", live.group("billing"), "--to", "b", "--execute", "--disaster")
        assert moved["ending"] == "moved"
        traffic.go_on()
        poll_until(lambda: awake.consumer.region == live.names["b"], 60, "the other one is there")
        more([awake], 1_000)
        sleeper.resume()
        more([sleeper], 200)
        acknowledged = traffic.stop()
    wait_for_all(members, acknowledged)
    verdict = judge(members, acknowledged)
    assert (verdict.lost, verdict.again) == ([], [])
    assert sleeper.consumer.region == live.names["b"]


def test_a_service_that_is_killed_in_the_middle_does_not_end_the_move(
    live: Live, members: list[Member]
) -> None:
    with Traffic(live, partitions=PARTITIONS, per_s=PER_S) as traffic:
        more(members, 300)
        group = live.group("billing")
        members[0].pause()  # it keeps the group from having left
        command = live.start("failover", group, "--to", "b", "--execute")
        with live.client() as client:
            poll_until(lambda: client.get_primary(group).decision.stage == pb.MOVING, 60, "the fence")
        live.kill_service("b")
        members[0].resume()
        out, err = command.communicate(timeout=120)
        assert command.returncode == 0, (out, err)
        more(members, 300)
        live.serve("b")
        acknowledged = traffic.stop()
    wait_for_all(members, acknowledged)
    verdict = judge(members, acknowledged)
    assert (verdict.lost, verdict.again) == ([], [])


def test_a_plain_group_reads_again_what_the_plan_foretold(live: Live) -> None:
    group = live.group("plain")
    with Traffic(live, partitions=PARTITIONS, per_s=PER_S) as traffic:
        poll_until(lambda: traffic.acknowledged.total() >= 600, 60, "records")
        acknowledged = traffic.stop()
    before = plain_records(live, group, "a", acknowledged.total() // 2)

    moved = live.parallax("failover", group, "--to", "b", "--from", "a", "--execute")

    foretold = moved["plan"]["redelivery_records"]
    after = plain_records(live, group, "b", acknowledged.total() - len(before) + foretold)
    counts = Counter([*before, *after])
    assert set(counts) == {(stream, n) for stream, end in acknowledged.items() for n in range(end)}
    assert counts.total() - len(counts) == foretold


def test_a_topic_that_nobody_has_mapped_is_moved_by_timestamp_where_the_operator_says_so(live: Live) -> None:
    """Both clusters hold its records, in orders of their own, and half a second apart from being sorted by time."""
    group, topic = live.group("unmapped"), unique_name("unmapped")
    begun_ms = time.time_ns() // 1_000_000 - 3_600_000
    numbers = list(range(60))
    for region, order in (("a", numbers), ("b", [number ^ 1 for number in numbers])):
        create_topic(live.bootstrap(region), topic, 1)
        producer = Producer({"bootstrap.servers": live.bootstrap(region), "batch.num.messages": 1})
        for number in order:
            producer.produce(topic, f"{number}", partition=0, timestamp=begun_ms + number * 500)
        assert producer.flush(30) == 0
    commit_at(live, group, {ids.TopicPartition(ids.TopicName(topic), 0): 41})
    move = ("failover", group, "--from", "a", "--to", "b")

    (plain,) = live.parallax(*move)["partitions"]
    moved = live.parallax(*move, "--by-timestamp", "--margin-ms", "1000", "--execute")

    assert (plain["outcome"], plain["resume_offset"]) == ("EARLIEST_FALLBACK", 0)
    (item,) = moved["plan"]["partitions"]
    # 41 less a second is 39, which b has before 38.
    assert (moved["ending"], item["outcome"], item["resume_offset"]) == ("moved", "BY_TIMESTAMP", 38)
    assert (item["redelivery_records"], item["redelivery_at_most_offsets"]) == (None, 22)
    settings = {"bootstrap.servers": live.bootstrap("b"), "group.id": group, "auto.offset.reset": "error"}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([KafkaPartition(topic, 0)])
        found: list[int] = []

        def all_unconsumed() -> bool:
            found.extend(int(message.value() or b"") for message in consumer.consume(100, 0.2))
            return set(numbers[41:]) <= set(found)

        poll_until(all_unconsumed, 60, "the records that were not consumed")
    assert sorted(found) == numbers[38:]


def plain_records(live: Live, group: str, region: str, count: int) -> list[Record]:
    """What a plain consumer reads, which then commits and leaves."""
    if region == "a":
        at_start(live, group)
    consumer = live.plain(group, region)
    found: list[Record] = []

    def enough() -> bool:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(record_of(message))
        return len(found) >= count

    poll_until(enough, 60, f"{count} records at {region}")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def at_start(live: Live, group: str) -> None:
    """Commit the beginning of every partition."""
    topic = ids.TopicName(live.topic)
    commit_at(live, group, {ids.TopicPartition(topic, number): 0 for number in range(PARTITIONS)})


def commit_at(live: Live, group: str, positions: Mapping[ids.TopicPartition, int]) -> None:
    """Commit for a group without members in a's aggregate cluster."""
    name = ids.ClusterName(f"aggregate-{live.names['a']}")
    writer = KafkaCluster(name, live.config.cluster(name), timeout_ms=20_000)
    commits = {
        item: GroupCommit(ids.TargetOffset(next_offset), ids.UNKNOWN_EPOCH, "")
        for item, next_offset in positions.items()
    }
    writer.commit_for(ids.GroupName(group), commits)
