"""Moves of groups whose topic has different partition counts in the regions, on real brokers, Cassandra and services."""

from __future__ import annotations

import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from tests.support import poll_until
from tests.worlds.live import WITHIN_S, Live
from tests.worlds.live_clients import Member
from tests.worlds.live_judgement import check_once, wait_for

BEFORE, AFTER = 2, 4
MOVED_WITHIN_S = 45.0
"""A command starts Python, fences and waits for its members; a minute is what it waits for what never comes."""


def grow(live: Live, region: str, partitions: int) -> None:
    """Give the region's topic so many partitions."""
    admin = AdminClient({"bootstrap.servers": live.bootstrap(region, "regional")})
    admin.create_partitions([NewPartitions(live.topic, partitions)])[live.topic].result(WITHIN_S)


def produce(live: Live, region: str, stream: str, partitions: range, count: int) -> dict[str, int]:
    """Write so many records into each partition; how many by stream."""
    producer = Producer({"bootstrap.servers": live.bootstrap(region, "regional"), "linger.ms": 5})
    streams = {f"{stream}-{partition}": count for partition in partitions}
    for partition in partitions:
        for number in range(count):
            producer.produce(live.topic, value=f"{stream}-{partition}:{number}", partition=partition)
    assert producer.flush(WITHIN_S) == 0
    return streams


def test_partitions_added_in_one_region_do_not_hold_up_its_consumers(regions: Live) -> None:
    live = regions.on_new_topic(partitions=BEFORE)
    group = live.group("billing")
    live.parallax("primary", group, "--set", "a")
    member = Member(live, group)
    try:
        acknowledged = produce(live, "a", "old-a", range(BEFORE), 200)
        acknowledged |= produce(live, "b", "old-b", range(BEFORE), 200)
        wait_for([member], acknowledged)
        grow(live, "a", AFTER)
        poll_until(lambda: partition_counts(live) == [AFTER, AFTER], WITHIN_S, "both targets have grown")
        acknowledged |= produce(live, "a", "new-a", range(AFTER), 300)
        wait_for([member], acknowledged)

        for command in (("failover", group, "--to", "b"), ("failback", group)):
            began_s = time.monotonic()
            moved = live.parallax(*command, "--execute")
            took_s = time.monotonic() - began_s
            moved = moved[0] if isinstance(moved, list) else moved
            outcomes = {item["outcome"] for item in moved["plan"]["partitions"]}
            assert (moved["ending"], outcomes) == ("moved", {"OK"})
            assert took_s < MOVED_WITHIN_S
            acknowledged |= produce(live, "a", f"after-{command[0]}", range(AFTER), 50)
            wait_for([member], acknowledged)

        grow(live, "b", AFTER)
        acknowledged |= produce(live, "b", "new-b", range(BEFORE), 50)
        acknowledged |= produce_once_there(live, "late-b", range(BEFORE, AFTER), 100)
        wait_for([member], acknowledged)
        assert live.parallax("failover", group, "--to", "b", "--execute")["ending"] == "moved"
        check_once([member], acknowledged)
    finally:
        member.close()


def produce_once_there(live: Live, stream: str, partitions: range, count: int) -> dict[str, int]:
    """As `produce` in region b, once its brokers show the partitions."""
    admin = AdminClient({"bootstrap.servers": live.bootstrap("b", "regional")})
    poll_until(
        lambda: len(admin.list_topics(live.topic).topics[live.topic].partitions) > max(partitions),
        WITHIN_S,
        "the partitions",
    )
    return produce(live, "b", stream, partitions, count)


def partition_counts(live: Live) -> list[int]:
    """Of the topic in both aggregate clusters."""
    return [live.cluster(region).topics()[live.topic].partitions for region in "ab"]  # type: ignore[index] # a name
