"""What happens to topics, layouts and limits while a route is replicated, on real brokers."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.cimpl import NewPartitions

from parallax.domain.ids import TopicName, TopicPartition
from parallax.domain.runs import LostRange
from parallax.errors import ConfigError, FencedError
from replicator.copying.recovery import RunLogError
from replicator.kafka.foreign_records import ForeignRecordWatch
from replicator.kafka.layout import ensure_layout, read_layout
from replicator.kafka.layout_record import LAYOUTS_TOPIC
from replicator.kafka.run_log import KafkaRunLog
from replicator.lease import shard_of
from tests.memory.index import MemoryMappingIndex
from tests.support import Stack
from tests.worlds.shard_harness import Harness, create, until


@pytest.fixture(params=["batch", "record"])
def harness(infrastructure: Stack, topic_name: str, request: pytest.FixtureRequest) -> Harness:
    return Harness(infrastructure, topic_name, request.param)


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def delete_records(harness: Harness, before: int) -> None:
    place = KafkaPartition(harness.topic, 0, before)
    harness.source_admin.delete_records([place])[place].result()


def lost(harness: Harness) -> list[LostRange]:
    return [
        gap for (item, _), (_, gaps) in harness.rows().items() if item.topic == harness.topic for gap in gaps
    ]


def test_records_gone_before_the_first_copy_are_a_lost_range(harness: Harness) -> None:
    harness.create()
    harness.produce(values("v", 10))
    delete_records(harness, 4)
    harness.copy_now()
    assert harness.copied() == {0: values("v", 10)[4:]}
    assert lost(harness) == [LostRange(0, 4, 0)]


def test_retention_that_overtakes_the_reader_leaves_a_lost_range(harness: Harness) -> None:
    harness.create()
    harness.produce(values("v", 5))
    harness.copy_now()
    harness.produce(values("w", 10))
    delete_records(harness, 12)
    harness.copy_now()
    assert harness.copied() == {0: values("v", 5) + values("w", 10)[7:]}
    [gap] = lost(harness)
    assert (gap.source_start, gap.source_end) == (5, 12)


def test_a_source_topic_created_anew_is_another_source(harness: Harness) -> None:
    harness.create()
    harness.produce(values("old", 20))
    owner = harness.own()
    harness.wait_for({0: values("old", 20)})
    harness.source_admin.delete_topics([harness.topic])[harness.topic].result()
    create(harness.source_admin, harness.topic, 1, {})
    # More records than the old topic had: a reader that went on at its old offset would miss the first ones.
    harness.produce(values("new", 50))
    harness.wait_for({0: values("old", 20) + values("new", 50)})
    owner.finish()
    lineages = [lineage for (item, lineage) in harness.rows() if item.topic == harness.topic]
    assert len({lineage.source_topic_id for lineage in lineages}) == 2


def test_a_target_topic_created_anew_gets_everything_that_the_source_holds(harness: Harness) -> None:
    harness.create()
    harness.produce(values("v", 20))
    harness.copy_now()
    harness.target_admin.delete_topics([harness.topic])[harness.topic].result()
    until(lambda: harness.topic not in harness.target_admin.list_topics().topics, "deletion")
    harness.produce(values("w", 5))
    harness.copy_now()
    assert harness.copied() == {0: values("v", 20) + values("w", 5)}


def test_nothing_is_committed_to_a_target_topic_made_anew_before_anybody_has_looked(harness: Harness) -> None:
    harness.create()
    harness.produce(values("v", 20))
    owner = harness.own(harness.config(discovery_interval_ms=30_000))
    harness.wait_for({0: values("v", 20)})
    harness.target_admin.delete_topics([harness.topic])[harness.topic].result()
    create(harness.target_admin, harness.topic, 1, {})
    others = Producer({"bootstrap.servers": harness.target})  # they hide that its log ends lower
    for value in values("other", 40):
        others.produce(harness.topic, value=value, key=value, partition=0)
    assert others.flush(10) == 0
    harness.produce(values("w", 5))
    harness.wait_for({0: values("other", 40) + values("v", 20) + values("w", 5)})
    owner.finish()
    spans = [
        [(row.target_start, row.target_end) for row in rows if row.count]
        for (item, _), (rows, _) in harness.rows().items()
        if item.topic == harness.topic
    ]
    gone, present = spans
    assert gone[-1][1] < 40 <= present[0][0], "a run of the topic that is gone speaks of the other"


def test_a_topic_that_is_gone_on_both_sides_holds_up_no_other(harness: Harness) -> None:
    gone = f"{harness.topic}.gone"
    harness.create(topic=gone)
    harness.create()
    harness.produce(["v"])
    harness.produce(["v"], topic=gone)
    harness.copy_now()
    for admin in (harness.source_admin, harness.target_admin):
        admin.delete_topics([gone])[gone].result()
        until(lambda admin=admin: gone not in admin.list_topics().topics, "deletion")  # type: ignore[misc] # mypy can't type the default
    owner = harness.own()
    # Each commit of these also looks for the ends of partitions that stand still.
    for number in range(1, 10):
        harness.produce([f"w{number}"])
        harness.wait_for({0: ["v", *values("w", number + 1)[1:]]})
    owner.finish()


def test_a_target_with_too_few_partitions_grows_whoever_created_it(harness: Harness) -> None:
    harness.create(2)
    create(harness.target_admin, harness.topic, 1, {})
    harness.produce(["v"])
    harness.produce(["w"], partition=1)
    harness.copy_now()
    assert harness.copied() == {0: ["v"], 1: ["w"]}


def test_a_partition_that_only_the_target_has_is_copied_once_the_source_has_it_too(harness: Harness) -> None:
    harness.create(1)
    create(harness.target_admin, harness.topic, 2, {})
    harness.produce(["first"])
    owner = harness.own()
    harness.wait_for({0: ["first"]})

    def lineages() -> list[tuple[str, int]]:
        """Of the partition that the source lacks at first: the source's topic id, and the first source offset told."""
        return [
            (lineage.source_topic_id, rows[0].source_start)
            for (item, lineage), (rows, _) in harness.rows().items()
            if item == (harness.topic, 1) and rows
        ]

    until(lambda: lineages() == [("", 0)], "the partition is known to hold nothing")
    harness.source_admin.create_partitions([NewPartitions(harness.topic, 2)])[harness.topic].result()
    until(lambda: len(lineages()) == 2, "the partition is seen")
    harness.produce(["second"], partition=1)
    harness.wait_for({0: ["first"], 1: ["second"]})
    owner.finish()


def test_source_partitions_added_later_are_copied_too(harness: Harness) -> None:
    harness.create(1)
    harness.produce(["first"])
    owner = harness.own()
    harness.wait_for({0: ["first"]})
    harness.source_admin.create_partitions([NewPartitions(harness.topic, 3)])[harness.topic].result()
    until(
        lambda: len(harness.source_admin.list_topics(harness.topic).topics[harness.topic].partitions) == 3,
        "growth",
    )
    harness.produce(["second"], partition=2)
    harness.wait_for({0: ["first"], 2: ["second"]})
    owner.finish()


def test_a_record_that_the_target_refuses_stops_its_partition_alone(harness: Harness) -> None:
    harness.create(2, **{"retention.ms": "-1"})  # or what is so old may be gone before it is copied
    create(harness.target_admin, harness.topic, 2, {"max.message.bytes": "20000"})
    noise = random.Random(1).randbytes(60_000).hex()
    harness.produce(["a", "b", noise, "c"])
    harness.produce(values("v", 100), partition=1)
    index = MemoryMappingIndex()
    owner = harness.own(index=index)
    harness.wait_for({0: ["a", "b"], 1: values("v", 100)})
    place = TopicPartition(TopicName(harness.topic), 0)
    until(
        lambda: "source offset 2" in index.stops(harness.route).get(place, ""), "the reason is in the store"
    )
    until(lambda: [part.lag_records for part in owner.progress[-1].partitions] == [2, 0], "the true lag")
    harness.produce(values("w", 10), partition=1)
    harness.wait_for({0: ["a", "b"], 1: values("v", 100) + values("w", 10)})
    result = owner.finish()
    [(where, reason)] = result.stopped.items()
    assert where == f"{harness.topic}-0"
    assert "source offset 2" in reason
    assert "max.message.bytes" in reason


def test_many_records_pass_a_target_whose_batches_must_be_small(harness: Harness) -> None:
    harness.create()
    create(harness.target_admin, harness.topic, 1, {"max.message.bytes": "20000"})
    noise = random.Random(2)
    expected = [noise.randbytes(1_000).hex() for _ in range(200)]
    harness.produce(expected)
    result = harness.copy_now()
    assert result.stopped == {}
    assert harness.copied() == {0: expected}


def test_a_record_outside_of_the_targets_timestamp_bounds_stops_its_partition_alone(harness: Harness) -> None:
    harness.create(2, **{"retention.ms": "-1"})  # or what is so old may be gone before it is copied
    create(harness.target_admin, harness.topic, 2, {"message.timestamp.before.max.ms": "3600000"})
    producer = Producer({"bootstrap.servers": harness.source})
    producer.produce(harness.topic, value="old", key="old", partition=0, timestamp=1_000_000)
    assert producer.flush(30) == 0
    harness.produce(["v"], partition=1)
    result = harness.copy_now()
    assert harness.copied() == {1: ["v"]}
    assert "message.timestamp.before.max.ms" in result.stopped[f"{harness.topic}-0"]


class CrashError(Exception):
    """The process that changes the layout is gone."""


@pytest.mark.parametrize("crash_after", ["announced", "fenced", "loaded", "never"])
def test_a_route_is_cut_anew_without_losing_or_repeating_a_record(harness: Harness, crash_after: str) -> None:
    config = harness.config()
    harness.create(6)
    older = harness.own(config)
    expected: dict[int, list[str]] = {}
    for partition in range(6):
        expected[partition] = values(f"{partition}a", 10)
        harness.produce(expected[partition], partition)
    harness.wait_for(expected)

    def crash(step: str) -> None:
        if step == crash_after:
            raise CrashError

    if crash_after != "never":
        with pytest.raises(CrashError):
            ensure_layout(config, harness.route, 3, reached=crash)
    assert ensure_layout(config, harness.route, 3).shards == 3
    owners = [harness.own(config, lease=harness.lease(config, shard=shard, shards=3)) for shard in range(3)]
    for partition in range(6):
        more = values(f"{partition}b", 10)
        expected[partition] += more
        harness.produce(more, partition)
    harness.wait_for(expected)
    with pytest.raises(FencedError):
        older.finish()
    for owner in owners:
        owner.finish()
    for shard in range(3):
        assert all(shard_of(item, 3) == shard for item, lineage in harness.rows(shard) if shard)
    found = read_layout(config, harness.route)
    assert found is not None
    assert (found.layout, found.shards, found.settled) == (2, 3, True)


def test_another_run_log_is_refused(harness: Harness) -> None:
    moved = harness.config(run_log_topic_prefix=f"moved.{harness.topic}")
    assert ensure_layout(harness.config(), harness.route, 2).layout == 1
    with pytest.raises(ConfigError, match="everything would be copied again"):
        ensure_layout(moved, harness.route, 2)


def test_a_tombstone_in_place_of_the_layout_is_no_new_route(harness: Harness) -> None:
    harness.create()
    harness.produce(["v"])
    harness.copy_now()
    producer = Producer({"bootstrap.servers": harness.target})
    producer.produce(LAYOUTS_TOPIC, value=None, key=str(harness.route), partition=0)
    assert producer.flush(30) == 0
    assert read_layout(harness.config(), harness.route) is None
    with pytest.raises(RunLogError, match=r"^LAYOUT_MISSING: "):
        ensure_layout(harness.config(), harness.route, 1)


def test_records_that_someone_else_wrote_into_the_target_are_found(harness: Harness) -> None:
    config = harness.config()
    harness.create()
    harness.produce(values("v", 5))
    harness.copy_now(config)
    stranger = Producer({"bootstrap.servers": harness.target})
    for value in values("x", 3):
        stranger.produce(harness.topic, value=value, partition=0)
    assert stranger.flush(30) == 0
    harness.produce(values("w", 5))
    harness.copy_now(config)
    watch = ForeignRecordWatch(config, harness.lease(config), interval_ms=100)
    reader = KafkaRunLog(config, harness.route, 0)
    for _, entry in reader.read(reader.start(), reader.end()):
        watch.note(entry)
    until(lambda: watch.records, "the foreign records are found")
    watch.close()
    assert watch.records == 3
