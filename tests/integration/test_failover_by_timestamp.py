"""A move of a topic that nobody has mapped, by record timestamps, because the operator says so."""

from __future__ import annotations

import time
from contextlib import closing

from confluent_kafka import Consumer, Producer, TopicPartition

from lab.workload.topics import create_topic
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import UNKNOWN_EPOCH, GroupName, TargetOffset, TopicName
from parallax.domain.ids import TopicPartition as Place
from tests.support import poll_until, unique_name
from tests.worlds.live import Live


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
    committed = GroupCommit(TargetOffset(41), UNKNOWN_EPOCH, "")
    live.cluster("a").commit_for(GroupName(group), {Place(TopicName(topic), 0): committed})
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
        consumer.assign([TopicPartition(topic, 0)])
        found: list[int] = []

        def all_unconsumed() -> bool:
            found.extend(int(message.value() or b"") for message in consumer.consume(100, 0.2))
            return set(numbers[41:]) <= set(found)

        poll_until(all_unconsumed, 60, "the records that were not consumed")
    assert sorted(found) == numbers[38:]
