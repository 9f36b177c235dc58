"""The judge of a storm against groups that do everything right, and against each way of doing one thing wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lab.oracle.logs import Placed, TopicLog
from lab.oracle.once import GroupRewind, OnceVerdict, judge_once
from lab.workload.delivered import DeliveredRecord
from lab.workload.events import RecordId
from tests.worlds.topic_logs import topic_log

PARTITIONS = 2
CLUSTERS = ("aggregate-a", "aggregate-b")


@dataclass
class World:
    """A group that gets every record once, wherever it is moved to, and again what it is set back for."""

    draw: Random
    logs: dict[str, TopicLog]
    at: str = CLUSTERS[0]
    clock_ms: int = 1_000
    consumed: set[RecordId] = field(default_factory=set)
    deliveries: list[DeliveredRecord] = field(default_factory=list)
    rewinds: list[GroupRewind] = field(default_factory=list)

    @property
    def produced(self) -> set[RecordId]:
        return self.logs[CLUSTERS[0]].records()

    def verdict(self, deliveries: list[DeliveredRecord] | None = None) -> OnceVerdict:
        return judge_once(
            self.deliveries if deliveries is None else deliveries, self.produced, self.rewinds, self.logs
        )

    def consume(self, partition: int, most: int) -> None:
        for placed in self.logs[self.at].partitions[partition]:
            if most and placed.record not in self.consumed:
                most -= 1
                self.deliver(partition, placed)

    def deliver(self, partition: int, placed: Placed) -> None:
        self.clock_ms += self.draw.randrange(3)  # some records share a millisecond
        self.consumed.add(placed.record)
        self.deliveries.append(
            DeliveredRecord(0, placed.record, self.at, partition, placed.record_offset, self.clock_ms)
        )

    def move(self) -> None:
        self.at = next(name for name in CLUSTERS if name != self.at)

    def set_back(self, partition: int, offsets: int) -> None:
        """Only where nothing that was consumed elsewhere lies ahead."""
        records = self.logs[self.at].partitions[partition]
        done = [placed.record in self.consumed for placed in records]
        end = done.index(False) if False in done else len(done)
        if any(done[end:]) or not end:
            return
        at_offset = records[end - 1].record_offset + 1
        to_offset = max(0, at_offset - offsets)
        self.clock_ms += 1
        self.rewinds.append(GroupRewind(self.at, partition, to_offset, at_offset, self.clock_ms))
        again = [placed for placed in records if to_offset <= placed.record_offset < at_offset]
        for placed in again:
            self.deliver(partition, placed)


def log(cluster: str, draw: Random, records: list[list[RecordId]]) -> TopicLog:
    """The records of each partition in an order of the cluster's own, with gaps where markers lie."""
    found = []
    for partition, ids in enumerate(records):
        offset = 0
        for record in draw.sample(ids, len(ids)):
            offset += draw.choice((1, 1, 1, 2))
            found.append((partition, Placed(offset, record, 0)))
    return topic_log(cluster, found)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    chance = Random(draw(st.integers(0, 2**32)))
    records = [
        [
            RecordId(region, PARTITIONS * seq + partition)
            for region in "ab"
            for seq in range(chance.randrange(4, 25))
        ]
        for partition in range(PARTITIONS)
    ]
    world = World(chance, {name: log(name, chance, records) for name in CLUSTERS})
    for _ in range(chance.randrange(12)):
        step = chance.choice(("consume", "consume", "move", "rewind"))
        if step == "move":
            world.move()
        elif step == "rewind":
            world.set_back(chance.randrange(PARTITIONS), chance.randrange(1, 20))
        else:
            world.consume(chance.randrange(PARTITIONS), chance.randrange(1, 20))
    for partition in range(PARTITIONS):
        world.consume(partition, 10**6)
        world.set_back(partition, chance.randrange(1, 8))
    return world


@given(worlds())
def test_a_group_that_does_everything_right_is_found_faultless(world: World) -> None:
    verdict = world.verdict()
    assert verdict.faultless
    assert verdict.delivered_records == len(world.produced)
    assert verdict.rewound_records == len(world.deliveries) - len(world.produced) > 0
    assert verdict.examples == {}


@given(worlds(), st.data())
def test_a_delivery_that_is_missing_is_seen(world: World, data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(range(len(world.deliveries))))
    left = [delivery for number, delivery in enumerate(world.deliveries) if number != gone]
    record = world.deliveries[gone].record
    verdict = world.verdict(left)
    lost = record not in {delivery.record for delivery in left}
    assert (verdict.lost_records, verdict.unrepeated_records) == ((1, 0) if lost else (0, 1))
    assert not verdict.redelivered_records
    assert list(verdict.examples) == [record]


@given(worlds(), st.data())
def test_a_delivery_too_many_is_seen_whenever_it_comes(world: World, data: st.DataObject) -> None:
    again = data.draw(st.sampled_from(world.deliveries))
    at_ms = data.draw(st.integers(0, world.clock_ms + 1_000))
    cluster = data.draw(st.sampled_from(CLUSTERS))
    verdict = world.verdict([*world.deliveries, again._replace(at_ms=at_ms, cluster=cluster)])
    assert (verdict.redelivered_records, verdict.lost_records, verdict.unrepeated_records) == (1, 0, 0)


@given(worlds(), st.data())
def test_a_repetition_on_the_wrong_side_of_its_rewind_is_seen(world: World, data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(range(len(world.rewinds))))
    rewind = world.rewinds[number]
    early = next(
        index
        for index, delivery in enumerate(world.deliveries)
        if delivery.at_ms >= rewind.at_ms
        and delivery.cluster == rewind.cluster
        and delivery.partition == rewind.partition
        and rewind.to_offset <= delivery.record_offset < rewind.from_offset
    )
    deliveries = list(world.deliveries)
    deliveries[early] = deliveries[early]._replace(at_ms=rewind.at_ms - 1)
    verdict = world.verdict(deliveries)
    assert (verdict.redelivered_records, verdict.unrepeated_records) == (1, 1)


@given(worlds())
def test_a_rewind_excuses_no_record_beyond_it(world: World) -> None:
    """A rewind that went one record further than it says."""
    rewind = world.rewinds[-1]
    behind = next(
        delivery
        for delivery in world.deliveries
        if delivery.at_ms >= rewind.at_ms
        and delivery.cluster == rewind.cluster
        and delivery.partition == rewind.partition
    )
    world.rewinds[-1] = rewind._replace(to_offset=behind.record_offset + 1)
    verdict = world.verdict()
    assert (verdict.redelivered_records, verdict.unrepeated_records) == (1, 0)


@given(worlds())
def test_a_record_that_nobody_produced_is_seen(world: World) -> None:
    foreign = world.deliveries[0]._replace(record=RecordId("a", 10**9))
    verdict = world.verdict([*world.deliveries, foreign])
    assert (verdict.foreign_records, verdict.lost_records, verdict.redelivered_records) == (1, 0, 0)
