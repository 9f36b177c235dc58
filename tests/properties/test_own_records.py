"""What a route of which `copies` is ``own`` hands out, held against a cluster where every record knows who wrote it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parallax.domain.ids import ClusterName, RegionName, SourceOffset, TopicPartition
from parallax.errors import PartitionStoppedError
from replicator.copying import own_records
from replicator.copying.origins import OriginRule, Origins, RecordFate
from replicator.copying.own_records import OwnRecords
from replicator.copying.ports import Damaged, EndReached, PassedOver, ReadFrom, RecordBlock
from tests.worlds.incoming_world import ITEMS, PRODUCED, TOPIC_ID, DataReader, LogReader, World

WORLDS = 200
STEPS = 150


class StillClock:
    """Time that only a wait moves."""

    def __init__(self) -> None:
        self._now_ms = 0.0

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        return self._now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._now_ms += duration_ms


class Reading:
    """Reads the world's cluster to its end, with restarts, and notes what comes of it."""

    def __init__(self, seed: int, rule: OriginRule) -> None:
        self.world = World(seed)
        self.rule = rule
        self.taken = {PRODUCED} if rule.own else set[RegionName]()
        self.taken |= {source for source, taken in rule.incoming.items() if taken}
        self.positions = dict.fromkeys(ITEMS, 0)
        self.stopped: dict[TopicPartition, PartitionStoppedError] = {}
        self._begin()

    def _begin(self) -> None:
        """A session: it reads on from where the one before had come to."""
        world = self.world
        for (
            item,
            log,
        ) in world.data.items():  # a source finds by leader epochs what is lost, before it reads on
            self.positions[item] = min(self.positions[item], log.end)
        self.begun_at = dict(self.positions)
        self.handed_out: dict[TopicPartition, list[object]] = {item: [] for item in ITEMS}
        self.logs = LogReader(world, self.rule, reach=world.draw.randint(1, 30))
        self.source = DataReader(world)
        self.reader = OwnRecords(self.source, self.logs, ClusterName("aggregate-here"), StillClock())
        self.reader.take(
            {item: ReadFrom(SourceOffset(at), -1, TOPIC_ID) for item, at in self.positions.items()}
        )
        self.stopped = {}

    def step(self) -> None:
        draw = self.world.draw
        self.world.happen()
        read = self.positions | self.source.positions
        lost = any(read[item] > log.end for item, log in self.world.data.items())
        if lost or draw.random() < 0.05:
            self._begin()
        elif draw.random() < 0.4:
            self.logs.turn()
        else:
            self._poll()

    def _poll(self) -> None:
        for event in self.reader.poll(100, 0):
            if isinstance(event, RecordBlock):
                assert event.offsets[0] >= self.positions[event.topic_partition]
                self.positions[event.topic_partition] = event.offsets[-1] + 1
                self.handed_out[event.topic_partition] += event.records
                strange = [record for record in event.records if record[0] not in self.taken]
                assert not strange, f"copied back: {strange}"
            elif isinstance(event, PassedOver | EndReached):
                at = max(self.positions[event.topic_partition], int(event.source_next))
                self.positions[event.topic_partition] = at
            elif isinstance(event, Damaged):
                self.stopped[event.topic_partition] = event.problem
                self.reader.drop([event.topic_partition])

    def finish(self) -> None:
        """Nothing happens any more: all that is to be copied is handed out."""
        self.world.write_all_markers()
        for _ in range(60):
            self.logs.turn()
            self._poll()
        for item, log in self.world.data.items():
            wanted = [
                slot.value
                for _, slot in log.visible(self.begun_at[item], log.end)
                if isinstance(slot.value, tuple) and slot.value[0] in self.taken
            ]
            got = self.handed_out[item]
            if item in self.stopped:
                assert any(log.start for route in self.world.routes for log in route.run_log)
                assert got == wanted[: len(got)]
            else:
                assert got == wanted
                assert self.positions[item] == log.end


def play(seed: int, rule: OriginRule) -> Reading:
    reading = Reading(seed, rule)
    for _ in range(STEPS):
        reading.step()
    reading.finish()
    return reading


OWN = OriginRule(own=True, incoming={})
FIRST_OF_TWO = OriginRule(own=False, incoming={RegionName("r0"): True, RegionName("r1"): False})


@pytest.mark.parametrize("rule", [OWN, FIRST_OF_TWO], ids=["own", "one region's"])
def test_what_was_produced_there_is_handed_out_once_and_nothing_else(rule: OriginRule) -> None:
    stopped = sum(bool(play(seed, rule).stopped) for seed in range(WORLDS))
    assert 0 < stopped < WORLDS / 3


def _play_all() -> None:
    for seed in range(WORLDS):
        play(seed, OWN)


Mutant = Callable[[pytest.MonkeyPatch], None]


def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogReader, "settled", lambda self: self._requested)


def all_for_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Origins, "judge", lambda _self, _item, _id, _epoch, offsets: [(0, len(offsets), RecordFate.COPY)]
    )


def any_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Origins.judge
    monkeypatch.setattr(
        Origins, "judge", lambda self, item, of, _epoch, offsets: right(self, item, of, -1, offsets)
    )


def what_is_trimmed_was_own(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Origins.judge

    def wrong(self: Origins, *args: object) -> object:
        return [
            (begin, end, RecordFate.COPY if verdict is RecordFate.UNKNOWN else verdict)
            for begin, end, verdict in right(self, *args)  # type: ignore[arg-type] # as they came
        ]

    monkeypatch.setattr(Origins, "judge", wrong)


def reads_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Origins, "reach", lambda *_: True)


@pytest.mark.parametrize(
    "mutant", [no_wait, all_for_own, any_leader_epoch, what_is_trimmed_was_own, reads_too_little]
)
def test_mutants_die(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        _play_all()


def test_a_stop_says_its_name_and_where() -> None:
    reading = next(found for seed in range(WORLDS) if (found := play(seed, OWN)).stopped)
    for item, problem in reading.stopped.items():
        assert str(problem).startswith(f"ORIGIN_UNKNOWN: aggregate-here: {item}: ")
        assert isinstance(problem, own_records.OriginUnknownError)
