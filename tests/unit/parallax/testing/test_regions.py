"""The regions in memory that applications test with."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message, TopicPartition

from parallax import (
    AIOFailoverConsumer,
    EventKind,
    FailoverConsumer,
    FailoverEvent,
    OffsetServiceAwayError,
    UnknownRegionError,
    UnknownTopicError,
)
from parallax.testing import MemoryRegions, read
from parallax.v1 import offsets_pb2 as pb

PAGE = (Path(__file__).parents[4] / "docs/testing.md").read_text(encoding="utf-8")
TOPIC = "trips"


def two_regions() -> MemoryRegions:
    """On a: a0 a1 b0 b1, on b: b0 b1 a0 a1."""
    regions = MemoryRegions()
    regions.create_topic(TOPIC)
    for region in ("a", "b"):
        for number in range(2):
            regions.produce(TOPIC, f"{region}{number}", region=region)
    regions.replicate()
    return regions


def values(messages: list[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]


def test_the_example_of_the_page() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    space: dict[str, Any] = {}
    exec(example, space)  # noqa: S102 - the page's own code
    space["test_a_region_is_lost_under_the_consumer"]()


def test_the_page_names_every_method() -> None:
    public = {name for name in vars(MemoryRegions) if not name.startswith("_")}
    assert public - {"make_consumer"} <= set(re.findall(r"`(\w+)\(", PAGE))


def test_a_record_is_consumed_as_it_was_produced() -> None:
    regions = MemoryRegions("here")
    regions.create_topic(TOPIC, partitions=2)
    assert regions.produce(TOPIC, "v", "k", 1, region="here", headers=[("h", b"x")], timestamp_ms=7) == 0
    assert regions.produce(TOPIC, b"w", region="here", partition=1, timestamp_ms=9) == 1
    assert regions.replicate() == 2
    with regions.consumer("g", region="here") as consumer:
        consumer.subscribe([TOPIC])
        first, second = read(consumer, 2)
        assert (first.topic(), first.partition(), first.offset()) == (TOPIC, 1, 0)
        assert (first.value(), first.key(), first.headers()) == (b"v", b"k", [("h", b"x")])
        assert first.timestamp() == (1, 7)
        assert (second.value(), second.key()) == (b"w", None)


def test_each_aggregate_has_an_order_of_its_own() -> None:
    regions = two_regions()
    for region, order in (("a", ["a0", "a1", "b0", "b1"]), ("b", ["b0", "b1", "a0", "a1"])):
        with regions.consumer(f"of-{region}", region=region) as consumer:
            consumer.subscribe([TOPIC])
            assert values(read(consumer, 4)) == order
    assert regions.replicate() == 0
    for _ in range(3):
        regions.produce(TOPIC, "x", region="b")
    assert regions.replicate("a", sources=["a"]) == 0
    assert regions.replicate("a", limit=1) == 1
    assert regions.replicate(sources=["b"]) == 5


def test_lost_regions_neither_give_nor_get() -> None:
    regions = two_regions()
    regions.lose("a")
    regions.produce(TOPIC, "a2", region="a")
    regions.produce(TOPIC, "b2", region="b")
    assert regions.replicate() == 1, "b2 into b"
    regions.restore("a")
    assert regions.replicate() == 3, "a2 into both, b2 into a"


def test_names_that_do_not_exist_are_refused() -> None:
    regions = two_regions()
    with pytest.raises(UnknownRegionError, match="'c' is none of a, b"):
        regions.lose("c")
    with pytest.raises(UnknownTopicError, match="no partition 1 of a topic 'trips'"):
        regions.produce(TOPIC, "v", partition=1, region="a")
    with pytest.raises(UnknownTopicError, match="create_topic"):
        regions.produce("payments", "v", region="a")


def test_an_application_makes_its_own_consumer() -> None:
    regions = two_regions()
    consumer = FailoverConsumer({"group.id": "g"}, region="b", **regions.connection())
    consumer.subscribe([TOPIC])
    assert values(read(consumer, 1)) == ["b0"]
    consumer.close()
    assert regions.committed("g", "b") == {(TOPIC, 0): 1}
    assert regions.committed("other", "b") == regions.committed("g", "a") == {}


def test_a_consumer_follows_its_primary() -> None:
    regions = two_regions()
    regions.decide("g", "a")
    events: list[FailoverEvent] = []
    with regions.consumer("g", region="b", follow_primary=True, on_event=events.append) as consumer:
        consumer.subscribe([TOPIC])
        assert values(read(consumer, 3)) == ["a0", "a1", "b0"]
        assert consumer.region == "a"
        regions.decide("g", "b", moving=True)
        late = []  # what was delivered before the consumer had heard of it
        while EventKind.FENCED not in [event.kind for event in events]:
            late += [message for message in [consumer.poll(0.01)] if message is not None]
        regions.produce(TOPIC, "b2", region="b")
        regions.replicate()
        with pytest.raises(TimeoutError, match="0 of 1 records"):
            read(consumer, 1, within_s=0.05)
        regions.decide("g", "b")
        assert values(late + read(consumer, 2 - len(late))) == ["b1", "b2"]
        assert consumer.primary is not None
        assert consumer.primary.decision.fencing_number == 3
        assert consumer.primary.is_primary(consumer.primary.decision.primary)
    assert "a" in {report.at.region for report in regions.service.reports}


def test_groups_know_nothing_of_each_other() -> None:
    regions = two_regions()
    for group, before, after in (("one", 3, ["b1"]), ("two", 1, ["b0", "b1", "a1"])):
        with regions.consumer(group, region="a") as consumer:
            consumer.subscribe([TOPIC])
            read(consumer, before)
            consumer.move_to("b")
            assert values(read(consumer, len(after))) == after


def test_a_silent_service_is_met_by_the_policy() -> None:
    regions = two_regions()
    with regions.consumer("g", region="a", on_service_away="stop", service_timeout_ms=50) as consumer:
        consumer.subscribe([TOPIC])
        read(consumer, 1)
        regions.service.away = True
        consumer.move_to("b")
        with pytest.raises(OffsetServiceAwayError):
            read(consumer, 4)
        assert consumer.region == "a"


def test_a_dead_cluster_answers_no_question() -> None:
    regions = two_regions()
    with regions.consumer("g", region="a") as consumer:
        consumer.subscribe([TOPIC])
        message = read(consumer, 1)[0]
        assert consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 1.0) == (0, 6)
        regions.lose("a")
        for call in (
            lambda: consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 1.0),
            lambda: consumer.list_topics(timeout=1.0),
            lambda: consumer.commit(message, asynchronous=False),
        ):
            with pytest.raises(KafkaException):
                call()
        regions.restore("a")


def test_topics_by_a_pattern() -> None:
    regions = two_regions()
    regions.create_topic("parcels")
    regions.produce("parcels", "p", region="a")
    regions.replicate()
    with regions.consumer("g", region="a") as consumer:
        consumer.subscribe(["^tr.p"])
        assert values(read(consumer, 4)) == ["a0", "a1", "b0", "b1"]
        assert {item.topic for item in consumer.assignment()} == {TOPIC}


def test_with_asyncio() -> None:
    regions = two_regions()

    async def consume() -> list[str]:
        async with AIOFailoverConsumer(regions.consumer("g", region="a")) as consumer:
            await consumer.subscribe([TOPIC])
            messages: list[Message] = []
            while len(messages) < 4:
                messages += await consumer.consume(4, 1.0)
            return values(messages)

    assert asyncio.run(consume()) == ["a0", "a1", "b0", "b1"]


@pytest.mark.parametrize("ending", ["deleted", "reset"])
def test_a_group_id_that_is_used_again_inherits_nothing(ending: str) -> None:
    """The first life read b0, moved to a, where b0 is skipped, and read all; the second one has read a0 a1 alone."""
    regions = two_regions()
    service, home = regions.service, regions.clusters["a"]
    key, here, there = (TOPIC, 0), pb.Place(region="a"), pb.Place(region="b")
    moved = pb.PartitionMove(
        topic=TOPIC,
        partition=0,
        target_topic_id="a-id",
        progress=[pb.SourceProgress(region="b", source_next_offset=2)],
    )
    service.report_positions("g", at=here, positions=[], moves=[moved])
    home.groups["g"][key] = (4, "")
    service.report_positions("g", at=here, positions=[])

    home.groups["g"] = {} if ending == "deleted" else {key: (0, "")}
    if ending == "deleted":
        service.report_positions("g", at=here, positions=[])
    home.groups["g"][key] = (2, "")

    (answer,) = service.get_group_failover_offsets("g", to=there, origin=here).offsets
    assert (answer.resume_offset, [(item.start, item.end) for item in answer.skip_ranges]) == (0, [(3, 5)])


def test_a_group_without_a_position_is_told_so() -> None:
    answer = two_regions().service.get_group_failover_offsets(
        "nobody", to=pb.Place(region="b"), origin=pb.Place(region="a")
    )
    assert (list(answer.offsets), answer.outcome) == ([], pb.NO_COMMIT)
