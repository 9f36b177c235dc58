"""The batch path's source beside a cluster whose followers lag, lie, fail, lose their tails and take over.

The cluster answers as Kafka's brokers do (KIP-392, KIP-595): whoever has a partition answers readers of it, the leader names a
follower in the reader's rack that has what is asked for, and everybody compares the epoch of the record before with what he has.
"""

from __future__ import annotations

import math
import random
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from parallax.config.pace import PACES
from parallax.domain.ids import ClusterName, SourceOffset, TopicId, TopicName, TopicPartition
from replicator.copying.ports import EndReached, OutOfRange, ReadFrom, RecordBlock, SourceEvent, Trouble
from replicator.format.batch import Record, make_batch, record_body
from replicator.format.compression import Compression
from replicator.kafka.batch import nearest, source
from replicator.kafka.batch.exchange import Fetch, Fetched, FetchedPartition
from replicator.kafka.batch.nearest import LEADER_EVERY_S, Nearest
from replicator.kafka.batch.source import BatchSource

WORLDS = 60
STEPS = 120
TOPIC_ID = uuid.UUID(int=7)
TOPIC = TopicName("orders")
ITEMS = [TopicPartition(TOPIC, number) for number in range(2)]
RACK = "near"
NEAR, FAR = 2, 1
"""The broker in the reader's rack, and one elsewhere."""
ERRORS = (1, 3, 6, 9, 29, 56, 74, 75, 78, 100, 103)
"""What a broker may say that does not lead the partition."""


@dataclass
class Log:
    """One replica: the epoch of each record."""

    epochs: list[int] = field(default_factory=list)
    high_watermark: int = 0

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ends here."""
        until = [index for index, each in enumerate(self.epochs) if each <= epoch]
        return (self.epochs[until[-1]], until[-1] + 1) if until else (-1, -1)


class Partition:
    """Two replicas; what is below the leader's high watermark is committed."""

    def __init__(self) -> None:
        self.leader, self.epoch = FAR, 3
        self.logs = {FAR: Log(), NEAR: Log()}
        self.in_sync = True
        self.alarm: int | None = None
        """What the follower answers for a while."""
        self.damaged = False
        self.stuck = False

    @property
    def follower(self) -> int:
        return NEAR if self.leader == FAR else FAR

    def append(self, records: int) -> None:
        log = self.logs[self.leader]
        log.epochs += [self.epoch] * records
        if not self.in_sync:
            log.high_watermark = len(log.epochs)

    def replicate(self) -> None:
        """The follower fetches all that there is."""
        if self.stuck or self.alarm is not None:
            return
        leader, follower = self.logs[self.leader], self.logs[self.follower]
        follower.epochs = list(leader.epochs)
        self.in_sync = True
        leader.high_watermark = len(leader.epochs)

    def tell_high_watermark(self) -> None:
        log = self.logs[self.follower]
        if not self.stuck:
            log.high_watermark = min(len(log.epochs), self.logs[self.leader].high_watermark)

    def lose_tail(self, kept: int) -> None:
        """The follower comes back without what it had not written to its disk."""
        log = self.logs[self.follower]
        log.epochs = log.epochs[:kept]
        log.high_watermark = min(log.high_watermark, kept)
        self.in_sync = False
        self.commit()

    def commit(self) -> None:
        """An in-sync replica less: what the leader has is committed."""
        log = self.logs[self.leader]
        log.high_watermark = len(log.epochs)

    def damage(self) -> None:
        self.damaged = True

    def stick(self) -> None:
        """The follower fetches no more, and the leader has not noticed."""
        self.stuck = True

    def calm(self) -> None:
        self.alarm, self.damaged, self.stuck = None, False, False

    def take_over(self) -> None:
        """The follower becomes the leader; it has all that is committed, and what it lacks was not."""
        if not self.in_sync or self.stuck or self.alarm is not None:
            return
        old, new = self.logs[self.leader], self.logs[self.follower]
        self.leader, self.epoch = self.follower, self.epoch + 1
        old.epochs = old.epochs[: len(new.epochs)]
        old.high_watermark = min(old.high_watermark, len(old.epochs))
        new.high_watermark = len(new.epochs)


class Cluster:
    """Stands for `Connections`, and for the loop that turns them; time is its own."""

    cluster = ClusterName("regional-a")
    problem = ""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.now_s = 1_000.0
        self.partitions = {item: Partition() for item in ITEMS}
        self.known = dict.fromkeys(ITEMS, (FAR, 3))
        """Leaders and epochs as the reader's metadata have them."""
        self.down: set[int] = set()
        self._pending: list[Callable[[], None]] = []
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self.asked: list[tuple[int, Any]] = []

    # what the source uses

    def monotonic(self) -> float:
        return self.now_s

    def turn(self, timeout_ms: float) -> None:
        self.now_s += max(timeout_ms, 1) / 1_000
        pending, self._pending = self._pending, []
        self.draw.shuffle(pending)
        due = [action for when, action in self._timers if when <= self.now_s]
        self._timers = [item for item in self._timers if item[0] > self.now_s]
        for action in [*pending, *due]:
            action()

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._timers.append((self.now_s + delay_ms / 1_000, action))

    def leader(self, item: TopicPartition) -> int:
        return self.known[item][0]

    def leader_epoch(self, item: TopicPartition) -> int:
        return self.known[item][1]

    def topic_id(self, _topic: TopicName) -> uuid.UUID:
        return TOPIC_ID

    def watch(self, _topics: Iterable[TopicName]) -> None: ...

    def refresh(self) -> Any:
        def told() -> None:
            self.known = {item: (part.leader, part.epoch) for item, part in self.partitions.items()}
            answer.is_done = True

        answer = SimpleNamespace(is_done=False)
        self._pending.append(told)
        return answer

    def send(
        self, broker: int, request: Fetch, answered: Callable[[Any], None], failed: Callable[[Any], None]
    ) -> None:
        self.asked.append((broker, request._request))
        if broker in self.down:
            self._pending.append(lambda: failed(ConnectionError("it is down")))
        else:
            answer = self._answer(broker, request._request)
            self._pending.append(lambda: answered(answer))

    # what brokers do

    def _answer(self, broker: int, request: Any) -> Fetched:
        parts = [
            self._partition_answer(broker, ITEMS[part.partition], part, request.rack_id)
            for topic in request.topics
            for part in topic.partitions
        ]
        return Fetched(0, 0, parts)

    def _partition_answer(self, broker: int, item: TopicPartition, asked: Any, rack: str) -> FetchedPartition:
        partition = self.partitions[item]
        log, leads = partition.logs[broker], partition.leader == broker
        near = partition.logs[NEAR]
        named = partition.in_sync and len(near.epochs) >= asked.fetch_offset and NEAR not in self.down
        epoch, end = log.epoch_end(asked.last_fetched_epoch)
        compares = asked.last_fetched_epoch >= 0

        def answer(code: int = 0, **more: Any) -> FetchedPartition:
            told = {"high_watermark": log.high_watermark, "last_stable_offset": log.high_watermark} | more
            return FetchedPartition(
                TOPIC_ID,
                item.partition,
                code,
                told["high_watermark"] if not code else -1,
                told["last_stable_offset"] if not code else -1,
                more.get("diverging_from"),
                (),
                more.get("nearer_replica", -1),
                memoryview(more.get("records", b"")),
            )

        if not leads and partition.alarm is not None:
            return answer(partition.alarm)
        if 0 <= asked.current_leader_epoch != partition.epoch:
            return answer(74 if asked.current_leader_epoch < partition.epoch else 75)
        if leads and rack == RACK and broker == FAR and named:
            return answer(nearer_replica=NEAR)
        if compares and end >= 0 and (epoch < asked.last_fetched_epoch or end < asked.fetch_offset):
            return answer(diverging_from=(epoch, end))
        if asked.fetch_offset > len(log.epochs) or (compares and end < 0):
            return answer(1)
        end = min(log.high_watermark, asked.fetch_offset + self.draw.randint(1, 8))
        raw = b"".join(
            batch_at(offset, log.epochs[offset], damaged=partition.damaged and not leads)
            for offset in range(asked.fetch_offset, end)
        )
        return answer(records=raw)


_BATCH = make_batch([Record(0, 1_000, record_body(None, b"value"))], Compression.NONE)


def batch_at(offset: int, epoch: int, *, damaged: bool) -> bytes:
    raw = bytearray(_BATCH)
    raw[:8], raw[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big")
    if damaged:
        raw[-1] ^= 0x10
    return bytes(raw)


class World:
    """A source beside such a cluster, and what it may hand out."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.draw = random.Random(seed)
        self.cluster = cluster = Cluster(self.draw)
        monkeypatch.setattr(source, "time", SimpleNamespace(monotonic=cluster.monotonic))
        self.source = BatchSource(
            cluster,  # type: ignore[arg-type] # as far as the source needs one
            cluster,  # type: ignore[arg-type]
            buffer_bytes=10_000_000,
            fetch_bytes=1_000_000,
            rests=PACES["latency"],
            rack=RACK,
            whole_from_records=0,
        )
        topic_id = TopicId(urlsafe_b64encode(TOPIC_ID.bytes).decode().rstrip("="))
        self.source.take({item: ReadFrom(SourceOffset(0), -1, topic_id) for item in ITEMS})
        self.read = dict.fromkeys(ITEMS, 0)
        self.told: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, list[tuple[float, int]]] = {item: [] for item in ITEMS}
        """Where the leader's committed log ended, over time."""

    def play(self) -> None:
        for _ in range(STEPS):
            self._happen()
            self.turn()
        for partition in self.cluster.partitions.values():
            partition.append(3)
            if not partition.stuck and partition.alarm is None:
                partition.replicate()
                partition.tell_high_watermark()
            else:  # as leaders see it after a while: not yet, though
                partition.commit()
        self.cluster.down.clear()
        for _ in range(400):
            self.turn()
        for item, partition in self.cluster.partitions.items():
            end = partition.logs[partition.leader].high_watermark
            assert (item, self.read[item], self.told.get(item, 0)) == (item, end, end)

    def _happen(self) -> None:
        draw, cluster = self.draw, self.cluster
        partition = cluster.partitions[draw.choice(ITEMS)]

        def sound_alarm() -> None:
            partition.alarm = draw.choice(ERRORS)

        def go_down() -> None:
            if all(part.leader == FAR for part in cluster.partitions.values()):
                cluster.down = {NEAR}

        def wait() -> None:
            cluster.now_s += draw.choice((0.5, 3, 20))

        def calm() -> None:
            partition.calm()
            cluster.down.clear()

        events = {
            lambda: partition.append(draw.randint(1, 10)): 8,
            partition.replicate: 6,
            partition.tell_high_watermark: 6,
            lambda: partition.lose_tail(draw.randint(0, len(partition.logs[partition.follower].epochs))): 1,
            partition.take_over: 1,
            partition.damage: 1,
            partition.stick: 1,
            sound_alarm: 1,
            calm: 2,
            go_down: 1,
            wait: 2,
        }
        draw.choices(list(events), list(events.values()))[0]()

    def turn(self) -> None:
        for item, partition in self.cluster.partitions.items():
            self.ends[item].append((self.cluster.now_s, partition.logs[partition.leader].high_watermark))
        for event in self.source.poll(1_000, 20):
            self._take(event)
        for item, end in self.source.end_offsets(ITEMS).items():
            partition = self.cluster.partitions[item]
            assert end <= partition.logs[partition.leader].high_watermark, "an end that never was"

    def _take(self, event: SourceEvent) -> None:
        if isinstance(event, Trouble):
            return
        assert isinstance(event, RecordBlock | EndReached), f"believed: {event}"
        item = event.topic_partition
        if isinstance(event, RecordBlock):
            partition = self.cluster.partitions[item]
            committed = partition.logs[partition.leader]
            assert event.offsets[0] == self.read[item], "a hole, or a record twice"
            assert event.offsets[-1] < committed.high_watermark, "not committed"
            assert {event.leader_epoch} == {committed.epochs[offset] for offset in event.offsets}
            self.read[item] = event.offsets[-1] + 1
            return
        assert event.source_next == self.read[item]
        self.told[item] = event.source_next
        oldest = self.cluster.now_s - LEADER_EVERY_S - 1
        known = [end for at, end in self.ends[item] if at <= oldest]
        assert event.source_next >= max(known, default=0), "an end that was known to be none"


@pytest.mark.parametrize("seed", range(WORLDS))
def test_all_that_is_committed_comes_in_order_whatever_replicas_say(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    World(seed, monkeypatch).play()


def test_replicas_are_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1, monkeypatch)
    for _ in range(300):
        for partition in world.cluster.partitions.values():
            partition.append(1)
            partition.replicate()
            partition.tell_high_watermark()
        world.turn()
    near = [request for broker, request in world.cluster.asked if broker == NEAR]
    assert min(world.read.values()) > 200
    assert len(near) > 0.9 * len(world.cluster.asked)


def believe_all(world: World) -> None:
    """Whoever answers is taken for the leader."""
    world.source._take_in_replica = (  # type: ignore[method-assign]
        lambda reading, part: world.source._take_in_partition(reading, part) or ""  # type: ignore[func-returns-value]
    )


MUTANTS = {
    "replicas are believed": (believe_all, {}),
    "the leader is asked no more": (None, {"LEADER_EVERY_S": math.inf}),
    "a replica that lacks what the leader has is waited for": (None, {"_PATIENCE_S": math.inf}),
    "the leader may name it again at once": (None, {"ALONE_S": 0.0}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_die(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, constants = MUTANTS[name]
    for constant, value in constants.items():
        monkeypatch.setattr(nearest, constant, value)
    for seed in range(WORLDS):
        world = World(seed, monkeypatch)
        if change is not None:
            change(world)
        try:
            world.play()
        except AssertionError:
            return
    pytest.fail(f"{name}: nobody noticed")


def test_a_leader_alone_decides_that_a_tail_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1, monkeypatch)
    for partition in world.cluster.partitions.values():
        partition.append(20)
        partition.replicate()
        partition.tell_high_watermark()
    while min(world.read.values()) < 20:
        world.turn()
    lost = world.cluster.partitions[ITEMS[0]]
    lost.leader, lost.epoch = NEAR, 5  # an unclean election
    lost.logs[NEAR].epochs = [3] * 12
    lost.logs[NEAR].high_watermark = 12
    lost.append(5)
    lost.commit()
    for _ in range(400):
        for event in world.source.poll(1_000, 20):
            if isinstance(event, OutOfRange):
                assert (event.topic_partition, event.diverged_at, event.leader_epoch) == (ITEMS[0], 12, 3)
                return
    pytest.fail("nobody told of it")


def test_what_the_leader_told_is_never_lowered_by_a_replica() -> None:
    draw = random.Random(5)
    for _ in range(500):
        item, now, last = Nearest(), 0.0, -1
        for _ in range(30):
            now += draw.choice((0.1, 1.0, 6.0))
            end = draw.randint(0, 50)
            part = FetchedPartition(
                TOPIC_ID,
                0,
                0,
                end,
                draw.choice((end, -1)),
                None,
                (),
                draw.choice((-1, NEAR)),
                memoryview(b""),
            )
            if item.broker(FAR, now) == FAR:
                item.leader_answered(part, now)
                last = end
                assert (item.high_watermark, item.stable_end) == (end, end)
            elif item.replica_answered(part, draw.randint(0, 50), now):
                item.leave(now)
                assert item.broker(FAR, now) == FAR
                assert item.alone(now + nearest.ALONE_S - 0.1)
            assert min(item.high_watermark, item.stable_end) >= last
