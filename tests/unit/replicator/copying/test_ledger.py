"""When a shard commits: not at once after a commit, and never later than the bounds say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from parallax.config.config import Replicator
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    RegionName,
    Route,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.runs import Run
from parallax.v1.runlog_pb2 import Entry, PartitionEntry
from replicator.copying import ledger as ledger_module
from replicator.copying import openings as openings_module
from replicator.copying.ledger import Ledger
from replicator.copying.openings import MOST_PARTITIONS_OPENED, MOST_RUNS_OPENED
from replicator.copying.ports import RecordBlock, TargetEnd, TargetLog
from replicator.copying.recovery import Shard
from replicator.copying.session_end import Counts
from replicator.copying.state import PartitionChange, PartitionState, fold, pieces_of, whole_entry
from replicator.lease import Lease
from tests.worlds.clocks import StandingClock

SHARD = Shard(
    ClusterName("aggregate-b"), TopicPartition(TopicName("parallax.runs.a"), 0), TopicId("log"), layout=1
)


class Target:
    """Appends everything at the end of one partition after the other."""

    path = "batch"

    def __init__(self, *, opens_run_log: bool = False) -> None:
        self.opens_run_log = opens_run_log
        self.calm_ms = 0.0
        self.openings: list[Entry | None] = []
        self._sent: dict[TopicPartition, list[int]] = {}
        self._ends: dict[TopicPartition, int] = {}
        self.entries: list[Entry] = []
        self.confirmed: list[dict[TopicPartition, TargetLog]] = []
        self.leaders: dict[TopicPartition, int] = {}
        """Their epochs, where they are not 3."""
        self.gone: set[TopicPartition] = set()
        """Of these no end is known."""
        self.asked: list[TopicPartition] = []

    def begin(self, opening: Entry | None = None) -> None:
        self._sent = {}
        self.openings.append(opening)
        self.entries += [] if opening is None else [opening]

    def produce(self, block: RecordBlock) -> None:
        item = block.topic_partition
        end = self._ends.get(item, 0)
        self._ends[item] = end + len(block.offsets)
        self._sent.setdefault(item, []).extend(range(end, self._ends[item]))

    def serve(self) -> None: ...

    def settle(self, _logs: Mapping[TopicPartition, TargetLog]) -> Mapping[TopicPartition, Sequence[int]]:
        return self._sent

    def commit(self, entries: Sequence[Entry], logs: Mapping[TopicPartition, TargetLog]) -> Sequence[int]:
        self.confirmed.append(dict(logs))
        self.entries += entries
        count = len(entries) + (self.openings[-1] is not None)
        return range(len(self.entries) - count, len(self.entries))

    def ends(
        self, partitions: Mapping[TopicPartition, int], *, patient: bool = False
    ) -> Mapping[TopicPartition, TargetEnd]:
        assert not patient
        self.asked += partitions
        return {
            item: TargetEnd(TargetOffset(self._ends.get(item, 0)), self.leaders.get(item, 3))
            for item in partitions
            if item not in self.gone
        }

    def cut(self, item: TopicPartition, end: int) -> None:
        self._ends[item] = end

    def close(self) -> None: ...


class World:
    """A shard of many partitions."""

    def __init__(self, partitions: int, *, opens_run_log: bool = False, **settings: Any) -> None:
        self.clock, self.target = StandingClock(), Target(opens_run_log=opens_run_log)
        self.settings = Replicator(**settings)
        self.items = [TopicPartition(TopicName("orders"), number) for number in range(partitions)]
        lineage = Lineage(TopicId("s"), TopicId("t"))
        states = {
            item: PartitionState(
                item,
                lineage,
                0,
                SourceOffset(0),
                TargetOffset(0),
                SourceOffset(0),
                SourceOffset(0),
                TargetOffset(0),
            )
            for item in self.items
        }
        self.ledger = Ledger(
            Lease(Route(RegionName("a"), RegionName("b")), 0, 1, 1, 1, 10**9),
            self.settings,
            shard=SHARD,
            run_log_leader_epoch=-1,
            target=self.target,
            clock=self.clock,
            states=states,
            counts=Counts(),
            committed=lambda offset, entry: self.told.append((offset, entry)),
        )
        self.told: list[tuple[int, Entry]] = []

    def send(self, partitions: int, *, after: int = 0) -> None:
        """One record of each of so many partitions."""
        for item in self.items[after : after + partitions]:
            position = self.ledger.states[item].source_next
            self.ledger.send(RecordBlock(item, 0, range(position, position + 1), [b"x"], 1))

    def commit(self) -> None:
        self.ledger.commit(lambda item: self.ledger.states[item].source_next)


@pytest.mark.parametrize(("partitions", "pause_ms"), [(1, 2), (20, 2), (21, 2.1), (40, 4), (400, 40)])
def test_the_pause_after_a_commit_grows_with_its_partitions(partitions: int, pause_ms: float) -> None:
    world = World(400, commit_min_interval_ms=2)
    world.send(partitions)
    world.commit()
    assert world.ledger.rest_ms == pause_ms
    world.clock.sleep_ms(pause_ms - 0.5)
    assert world.ledger.rest_ms == pytest.approx(0.5)
    world.clock.sleep_ms(100)
    assert world.ledger.rest_ms == 0


def test_the_pause_lasts_as_long_as_the_target_had_better_be_left_alone() -> None:
    world = World(1)
    assert world.settings.rests.between_commits_ms == 0
    world.send(1)
    world.commit()
    world.target.calm_ms = 1.5
    assert world.ledger.rest_ms == 1.5
    world.target.calm_ms = 0.0
    world.clock.sleep_ms(1)
    assert world.ledger.rest_ms == 0


def test_watermarks_are_no_reason_to_pause() -> None:
    world = World(400, commit_min_interval_ms=2)
    world.send(1)
    world.clock.sleep_ms(world.settings.watermark_interval_ms)
    world.commit()
    assert len(world.target.entries[0].partitions) == 400
    assert world.ledger.rest_ms == 2


def test_a_commit_of_nothing_leaves_the_pause_as_it_is() -> None:
    world = World(400)
    world.send(400)
    world.commit()
    world.clock.sleep_ms(10)
    world.commit()
    assert len(world.target.entries) == 1
    assert world.ledger.rest_ms == 30


def test_a_transaction_is_full_when_its_time_is_over() -> None:
    world = World(1)
    assert world.ledger.left_ms == float("inf")
    world.send(1)
    longest_ms = world.settings.commit_max_interval_ms
    assert world.ledger.left_ms == longest_ms
    world.clock.sleep_ms(longest_ms - 1)
    assert (world.ledger.left_ms, world.ledger.full()) == (1, False)
    world.clock.sleep_ms(2)
    assert (world.ledger.left_ms, world.ledger.full()) == (0, True)


def test_a_partition_without_an_end_is_asked_about_less_and_less_often() -> None:
    world = World(3)
    gone = world.items[1]
    world.target.gone = {gone}
    asked_at = []
    for _ in range(100):
        world.clock.sleep_ms(world.settings.watermark_interval_ms / 4)
        world.target.asked = []
        world.commit()
        if gone in world.target.asked:
            asked_at.append(world.clock.at_ms)
    pauses_ms = [later - earlier for earlier, later in pairwise(asked_at)]
    assert pauses_ms[:6] == [250, 250, 500, 1_000, 2_000, 4_000]
    assert set(pauses_ms[6:]) == {world.settings.discovery_interval_ms}
    world.target.gone = set()
    world.clock.sleep_ms(world.settings.discovery_interval_ms)
    world.commit()
    assert any(part.partition == gone.partition for part in world.target.entries[-1].partitions)


def test_leaders_not_known_yet_delay_no_watermark() -> None:
    world = World(3)
    for known in (False, True):
        world.target.gone = set() if known else set(world.items)
        world.clock.sleep_ms(world.settings.watermark_interval_ms / 4)
        world.commit()
    assert {part.partition for part in world.target.entries[-1].partitions if part.source_start} == {0, 1, 2}
    world.target.gone = {world.items[0]}
    for _ in range(8):
        world.clock.sleep_ms(world.settings.watermark_interval_ms / 4)
        world.commit()
    world.target.gone = set()
    world.send(1)  # copied meanwhile: nothing is held against it any more
    world.commit()
    asked_at = []
    for _ in range(6):
        world.clock.sleep_ms(world.settings.watermark_interval_ms / 4)
        world.target.asked = []
        world.commit()
        asked_at += [world.clock.at_ms] if world.items[0] in world.target.asked else []
    assert asked_at


def test_a_commit_names_the_logs_of_what_was_written_and_of_what_begins() -> None:
    world = World(3)
    written, begun, idle = world.items
    run_log = {SHARD.run_log: TargetLog(TopicId("log"))}
    world.send(1)
    world.commit()
    assert world.target.confirmed == [run_log | {written: TargetLog(TopicId("t"))}]
    world.ledger.write([PartitionChange(replace(world.ledger.states[idle], target_leader_epoch=7))])
    assert world.target.confirmed[1:] == [run_log]
    state = world.ledger.states[begun]
    anew = replace(state, lineage=state.lineage._replace(target_topic_id=TopicId("n")), target_leader_epoch=0)
    world.ledger.write([PartitionChange(state, closed=True), PartitionChange(anew)])
    assert world.target.confirmed[2:] == [run_log | {begun: TargetLog(TopicId("n"), 0)}]


@pytest.mark.parametrize(("partitions", "told"), [(50, []), (1_000, ["snapshot_large"])])
def test_a_snapshot_is_written_in_records_that_a_broker_takes_and_a_very_large_one_is_told_once(
    monkeypatch: pytest.MonkeyPatch, partitions: int, told: list[str]
) -> None:
    monkeypatch.setattr(openings_module, "pieces_of", partial(pieces_of, largest_bytes=1_000))
    world = World(partitions)
    with capture_logs() as logs:
        for _ in range(2):
            world.clock.sleep_ms(world.settings.snapshot_interval_ms)
            world.commit()
    assert len(world.target.entries) > 2
    assert max(entry.ByteSize() for entry in world.target.entries) < 1_100
    assert fold({}, world.target.entries) == world.ledger.states
    assert [line["event"] for line in logs] == told


@pytest.mark.parametrize("cut", ["its leader is another", "it ends lower"])
def test_a_target_that_may_have_lost_its_tail_gets_no_watermark(cut: str) -> None:
    """What lies there now may be somebody else's: nothing may be said to be copied below its end."""
    world = World(2)
    struck, sound = world.items
    world.send(2)
    world.commit()
    world.clock.sleep_ms(world.settings.watermark_interval_ms)
    world.commit()  # and takes note of the leader
    if cut == "it ends lower":
        world.target.cut(struck, 0)
    else:
        world.target.leaders[struck] = 4
    world.target.entries.clear()
    world.clock.sleep_ms(world.settings.watermark_interval_ms)
    assert world.ledger.commit(lambda item: world.ledger.states[item].source_next) == [struck]
    told = [
        part.partition for entry in world.target.entries for part in entry.partitions if part.source_start
    ]
    assert told == [sound.partition]


def test_an_entry_is_opened_with_its_records_and_closed_with_what_they_became() -> None:
    world = World(2, opens_run_log=True)
    world.send(2)
    world.commit()  # a snapshot: it shows that this owner has begun
    assert (world.target.openings, len(world.target.entries)) == ([None], 1)
    world.send(1)
    [snapshot, opening] = world.target.entries
    world.commit()
    closing = world.target.entries[-1]
    assert not opening.partitions
    assert (opening.piece, closing.piece, opening.pieces, closing.pieces) == (0, 1, 2, 2)
    assert SHARD.owns(opening)
    whole = whole_entry([opening, closing])
    assert whole is not None
    assert [part.partition for part in whole.partitions] == [0]
    assert not whole.snapshot
    assert fold({}, [snapshot, opening, closing]) == world.ledger.states
    assert world.ledger.attempted == [opening, closing]
    assert world.told[1:] == [(2, closing)]


def test_a_snapshot_waits_for_a_transaction_that_is_not_opened() -> None:
    world = World(2, opens_run_log=True)
    world.send(1)
    world.commit()
    world.send(1)
    world.clock.sleep_ms(world.settings.snapshot_interval_ms)
    world.commit()
    assert [entry.snapshot for entry in world.target.entries] == [True, False, False]
    world.send(1)
    world.commit()
    assert [opening is not None for opening in world.target.openings] == [False, True, False]
    assert world.target.entries[-1].snapshot


def test_watermarks_are_not_opened() -> None:
    world = World(2, opens_run_log=True)
    for _ in range(3):
        world.clock.sleep_ms(world.settings.watermark_interval_ms)
        world.commit()
    assert world.target.openings == [None] * 3
    assert [entry.pieces for entry in world.target.entries] == [0] * 3


def most_runs_opened(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    for module in (ledger_module, openings_module):
        monkeypatch.setattr(module, "MOST_RUNS_OPENED", runs)


def test_nothing_that_may_outgrow_a_record_follows_an_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(4, opens_run_log=True)
    world.send(1)
    world.commit()
    most_runs_opened(monkeypatch, 3)
    world.send(2)
    assert not world.ledger.full()
    world.send(1, after=2)
    assert world.ledger.full()
    world.commit()
    world.send(4)
    assert world.target.openings[-1] is None, "one that was full is followed by another"
    assert not world.ledger.full()
    most_runs_opened(monkeypatch, 5)
    world.commit()
    for most_partitions, opened in ((4, True), (3, False)):
        monkeypatch.setattr(openings_module, "MOST_PARTITIONS_OPENED", most_partitions)
        world.send(1)
        assert (world.target.openings[-1] is not None) is opened
        world.commit()


def test_after_a_large_transaction_readers_of_the_run_log_do_not_wait_for_the_next_one() -> None:
    world = World(1, opens_run_log=True)
    opened = []
    for size_bytes in (1, 1, 2**20, 1, 1):
        position = world.ledger.states[world.items[0]].source_next
        world.ledger.send(RecordBlock(world.items[0], 0, range(position, position + 1), [b"x"], size_bytes))
        opened.append(world.target.openings[-1] is not None)
        world.commit()
    assert opened == [False, True, True, False, True]


def test_the_largest_entry_that_closes_one_is_taken_by_a_broker() -> None:
    """Names of the greatest length, numbers of the greatest size, and every record a run of its own."""
    run_bytes = (
        PartitionEntry(
            source_start=[2**62] * 100,
            target_start=[2**62] * 100,
            count=[1] * 100,
            previous_source_end=[2**62] * 100,
            run_leader_epoch=[2**30] * 100,
        ).ByteSize()
        / 100
    )
    state = replace(
        World(1).ledger.states[TopicPartition(TopicName("orders"), 0)],
        topic_partition=TopicPartition(TopicName("o" * 249), 2**31 - 1),
        lineage=Lineage(TopicId("s" * 22), TopicId("t" * 22), 2**30),
        source_next=SourceOffset(2**62),
        source_first=SourceOffset(2**62),
        last_run_end=SourceOffset(2**62),
        target_first=TargetOffset(2**62),
        target_floor=TargetOffset(2**62),
        source_leader_epoch=2**30,
        target_leader_epoch=2**30,
    )
    watermark = Run(SourceOffset(2**62), TargetOffset(2**62), 0, SourceOffset(2**62), 2**30)
    partition_bytes = PartitionChange(state, (watermark,)).encoded().ByteSize() + 10
    most_bytes = MOST_RUNS_OPENED * run_bytes + MOST_PARTITIONS_OPENED * partition_bytes
    assert most_bytes < 1_000_000
