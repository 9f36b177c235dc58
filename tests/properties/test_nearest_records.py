"""The record path's reader of near replicas, beside a leader and a replica that lags, lies, stands still and comes back."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pytest

from parallax.domain.ids import SourceOffset, TopicId, TopicName, TopicPartition
from parallax.errors import PartitionStoppedError
from replicator.copying.ports import (
    Damaged,
    EndReached,
    NotAllowed,
    OutOfRange,
    ReadFrom,
    RecordBlock,
    SourceEvent,
    Trouble,
)
from replicator.kafka.batch.nearest import ALONE_S, LEADER_EVERY_S
from replicator.kafka.record import nearest
from replicator.kafka.record.nearest import PATIENCE_S, LogEnds, NearestSource

WORLDS = 150
STEPS = 120
LONGEST_WAIT_S = PATIENCE_S + 1
TOPIC = TopicName("orders")
ITEMS = [TopicPartition(TOPIC, number) for number in range(3)]
AT_START = ReadFrom(SourceOffset(0), -1, TopicId("id"))


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Reader:
    """Hands out what its log holds; the log of a leader, or of a replica, by partition."""

    def __init__(self, clock: Clock, held: Mapping[TopicPartition, int], *, most: int) -> None:
        self._clock = clock
        self.held = held
        self.at: dict[TopicPartition, int] = {}
        self.told_end: dict[TopicPartition, int] = {}
        self.lies: dict[TopicPartition, SourceEvent] = {}
        self._most = most
        self.taken: list[tuple[TopicPartition, int]] = []
        self.closed = False

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        for item, place in positions.items():
            assert item not in self.at, "it is being read already"
            self.at[item] = place.source_next
            self.told_end.pop(item, None)
            self.taken.append((item, place.source_next))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        for item in partitions:
            self.at.pop(item)

    def poll(self, max_records: int, timeout_ms: float) -> Sequence[SourceEvent]:
        events: list[SourceEvent] = []
        for item in list(self.at):
            if (lie := self.lies.pop(item, None)) is not None:
                events.append(lie)
            begin, end = self.at[item], min(self.held[item], self.at[item] + self._most)
            if begin < end <= begin + max_records:
                events.append(RecordBlock(item, 3, range(begin, end), [None] * (end - begin), 1))
                self.at[item] = end
            elif begin == self.held[item] and self.told_end.get(item) != begin:
                self.told_end[item] = begin
                events.append(EndReached(item, SourceOffset(begin)))
        if not events:
            self._clock.now_s += timeout_ms / 1_000
        return events

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {item: self.held[item] for item in partitions if item in self.at}

    def close(self) -> None:
        self.closed = True


class Ends:
    """Answers the next time that somebody looks."""

    def __init__(self, held: Mapping[TopicPartition, int]) -> None:
        self._held = held
        self._asked: Collection[TopicPartition] = ()
        self.silent = False

    def ask(self, partitions: Collection[TopicPartition]) -> None:
        self._asked = list(partitions)

    def told(self) -> Mapping[TopicPartition, LogEnds]:
        asked, self._asked = self._asked, ()
        return {} if self.silent else {item: LogEnds(self._held[item], self._held[item]) for item in asked}

    def close(self) -> None:
        """Nothing to do."""


LIES: Sequence[Any] = (
    lambda item: OutOfRange(item, None),
    lambda item: OutOfRange(item, SourceOffset(1), 2),
    lambda item: Damaged(item, PartitionStoppedError("damaged")),
    lambda item: NotAllowed(item, "RIGHT_MISSING"),
)


class World:
    """Three partitions, each with a leader and one near replica."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.clock = Clock()
        self.at_leader, self.at_replica = dict.fromkeys(ITEMS, 0), dict.fromkeys(ITEMS, 0)
        self.near = Reader(self.clock, self.at_replica, most=self.draw.randint(1, 5))
        self.leaders = Reader(self.clock, self.at_leader, most=5)
        self.ends = Ends(self.at_leader)
        self.source = NearestSource(self.near, lambda: self.leaders, self.ends, now_s=self.clock)
        self.read = dict.fromkeys(ITEMS, 0)
        self.stopped: list[SourceEvent] = []
        self.standing: set[TopicPartition] = set()
        """Partitions that the replica gets nothing of."""
        self.source.take(dict.fromkeys(ITEMS, AT_START))

    def turn(self) -> None:
        self.clock.now_s += self.draw.choice((0.0, 0.1, 1.0))
        for event in self.source.poll(100, self.draw.choice((0, 50))):
            assert not {*self.near.at} & {*self.leaders.at}, "read twice at a time"
            if isinstance(event, RecordBlock):
                item = event.topic_partition
                assert event.offsets[0] == self.read[item], "a record is missing, or comes twice"
                self.read[item] = event.offsets[-1] + 1
            elif isinstance(event, EndReached):
                assert event.source_next <= self.read[event.topic_partition]
            elif not isinstance(event, Trouble):
                self.stopped.append(event)

    def step(self) -> None:
        item = self.draw.choice(ITEMS)
        match self.draw.randrange(6):
            case 0 | 1:
                self.at_leader[item] += self.draw.randint(1, 8)
            case 2:
                self.standing ^= {item}
            case 3:
                self.near.lies[item] = self.draw.choice(LIES)(item)
            case 4:
                again = ReadFrom(SourceOffset(self.read[item]), 3, AT_START.topic_id)
                if self.draw.random() < 0.5:
                    self.source.drop([item])
                self.source.take({item: again})
            case _:
                self.ends.silent = not self.ends.silent
        for each in (item for item in ITEMS if item not in self.standing):
            behind = self.at_leader[each] - self.at_replica[each]
            self.at_replica[each] += self.draw.randint(0, behind)
        self.turn()

    def play(self) -> None:
        for _ in range(STEPS):
            self.step()
        self.near.lies.clear()
        self.ends.silent = False
        until_s = self.clock.now_s + 3 * LEADER_EVERY_S + LONGEST_WAIT_S
        while self.clock.now_s < until_s:
            self.turn()
        assert self.read == self.at_leader, "the replica holds it up"
        assert self.stopped == [], "a replica was believed"
        assert self.source.end_offsets(ITEMS) == self.at_leader


@pytest.mark.parametrize("seed", range(WORLDS))
def test_all_comes_in_order_whatever_the_replica_says(seed: int) -> None:
    World(seed).play()


def test_the_replica_is_read_from_and_gone_back_to() -> None:
    world = World(1)
    for _ in range(50):
        for item in ITEMS:
            world.at_leader[item] += 1
            world.at_replica[item] += 1
        world.turn()
    assert (world.leaders.taken, min(world.read.values())) == ([], 50)
    world.near.lies[ITEMS[0]] = LIES[0](ITEMS[0])
    world.turn()
    assert world.leaders.taken == [(ITEMS[0], 50)]
    world.clock.now_s += ALONE_S
    world.turn()
    assert world.near.taken[-1] == (ITEMS[0], 50)
    assert world.leaders.at == {}


def test_what_the_leader_says_is_handed_out() -> None:
    world = World(2)
    world.near.lies[ITEMS[1]] = LIES[2](ITEMS[1])
    world.turn()
    said = NotAllowed(ITEMS[1], "RIGHT_MISSING")
    world.leaders.lies[ITEMS[1]] = said
    world.turn()
    assert world.stopped == [said]
    world.source.close()
    assert (world.near.closed, world.leaders.closed) == (True, True)


def _believe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "_UNBELIEVED", ())


def _wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "PATIENCE_S", math.inf)


def _go_on_from_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a replica that was asked had handed out all that its leader has told of."""
    leave = NearestSource._leave

    def leaving(self: NearestSource, item: TopicPartition, why: str) -> None:
        reading = self._reading.get(item)
        if reading is not None and reading.high_watermark > reading.place.source_next:
            reading.place = ReadFrom(SourceOffset(reading.high_watermark), 3, reading.place.topic_id)
        leave(self, item, why)

    monkeypatch.setattr(NearestSource, "_leave", leaving)


def _take_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "drop", lambda *_: None)


@pytest.mark.parametrize("mutant", [_believe, _wait_for_ever, _go_on_from_what_was_seen, _take_both])
def test_mutants_die(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    for seed in range(WORLDS):
        try:
            World(seed).play()
        except AssertionError:
            return
    pytest.fail("nobody noticed")
