"""A lost run log is rebuilt from the index and the clusters: nothing is lost, and no more comes twice than was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest

from parallax.domain.history import History
from parallax.domain.ids import (
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import LineageRecord, RowBatch
from parallax.domain.runs import Run
from parallax.errors import ClusterUnavailableError, FencedError, RefusedError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying import rebuild as rules
from replicator.copying.rebuild import GoingOn
from replicator.copying.recovery import RunLogError
from replicator.kafka import layout as layout_module
from replicator.kafka import rebuild as rebuild_module
from replicator.kafka import run_log_check
from replicator.kafka.kept_records import KeptRecords
from replicator.kafka.layout import ensure_layout, read_layout
from replicator.kafka.layout_record import LAYOUTS_TOPIC
from replicator.kafka.rebuild import Rebuild, RebuildPlan
from replicator.kafka.run_log_check import check_route
from replicator.lease import shard_of
from tests.memory.index import MemoryMappingIndex
from tests.worlds.sim.doors import Faults
from tests.worlds.sim.kafka import ABORTED, MARKER, Transaction
from tests.worlds.sim.layouts import SimAdmin
from tests.worlds.sim.route import Owner
from tests.worlds.sim.sides import TOPIC, SourceRecord
from tests.worlds.sim.world import FlakyIndex, World


class Bench:
    """A route that has copied what its source held, with its run log about to be lost."""

    def __init__(self, world: World) -> None:
        self.world, self.life = world, world.lives[0]
        self.target = world.aggregates[0].cluster

    def rebuild(self, *, anew: bool = False) -> Rebuild:
        return self.world.rebuild_of(self.life.route, anew=anew)

    def in_turn(self, work: Any) -> Any:
        """Do it as one of the world's processes, while the others stand still or not as the seed says."""
        results: list[Any] = []
        actor = self.world.schedule.spawn("operator", lambda: results.append(work()))
        self.world.schedule.run(lambda: actor.over, at_most_steps=30_000)
        return results[0]

    def execute(self, *, anew: bool = False) -> RebuildPlan:
        return self.in_turn(self.rebuild(anew=anew).execute)

    def lose(self) -> None:
        self.life.run_log_harmed = True
        del self.target.topics[self.life.run_log]

    def end_owners(self) -> None:
        for owner in self.life.owners:
            owner.actor.doomed = True
        self.world.schedule.run(lambda: not self.world.owners(), at_most_steps=30_000)

    def produce(self, times: int = 5) -> None:
        for _ in range(times):
            self.world.regionals[0].produce()

    def go_on(self) -> None:
        self.life.plan(1)
        self.world.schedule.run(self.life.caught_up, at_most_steps=30_000)

    def two_shards_caught_up(self) -> bool:
        layout = self.life.layout()
        return layout is not None and layout.shards == 2 and self.life.caught_up()

    def copies(self) -> Counter[int]:
        return Counter(
            slot.value.serial
            for log in self.target.topics[TOPIC].logs
            for slot in log.committed()
            if isinstance(slot.value, SourceRecord)
        )

    def twice(self) -> int:
        return sum(count - 1 for count in self.copies().values())

    def lost(self) -> set[int]:
        return {record.serial for record in self.world.regionals[0].records} - set(self.copies())

    def copy_without_index(self) -> int:
        """Copy some more records, of which the index never hears; how many."""
        before = sum(self.copies().values())
        with unheard(self.world.index):
            self.produce()
            total = len(self.world.regionals[0].records)
            self.world.schedule.run(lambda: sum(self.copies().values()) == total, at_most_steps=30_000)
            self.end_owners()
        return sum(self.copies().values()) - before

    def check_answers(self) -> None:
        """Every lineage's rows fit together, and point at what they say."""
        for record in self.world.index.lineages(self.life.route, TopicName(TOPIC)):
            if record.lineage.target_topic_id != self.target.topics[TOPIC].topic_id:
                continue
            partition = RoutePartition(self.life.route, record.partition.topic_partition)
            page = self.world.index.rows_from_target(partition, record.lineage, TargetOffset(0), 100_000)
            History(record.lineage, page.rows)
            log = self.target.topics[TOPIC].logs[record.partition.topic_partition.partition]
            for row in page.rows:
                for number in range(row.count):
                    value = log.slot(row.target_start + number).value
                    assert isinstance(value, SourceRecord)
                    assert value.offset == row.source_start + number

    def untold(self) -> int:
        """How many copies lie where the index tells of none."""
        told: set[tuple[int, int]] = set()
        for record in self.world.index.lineages(self.life.route, TopicName(TOPIC)):
            number = record.partition.topic_partition.partition
            partition = RoutePartition(self.life.route, record.partition.topic_partition)
            page = self.world.index.rows_from_target(partition, record.lineage, TargetOffset(0), 100_000)
            told |= {(number, row.target_start + at) for row in page.rows for at in range(row.count)}
        copies = {
            (number, slot.offset)
            for number, log in enumerate(self.target.topics[TOPIC].logs)
            for slot in log.committed()
            if isinstance(slot.value, SourceRecord)
        }
        return len(copies - told)


@pytest.fixture
def bench() -> Iterator[Bench]:
    world = World(3, Faults(0.0), only=())
    world.lease_ms = 10**12
    world.schedule.calm = True
    world.regionals[0].begin_anew()
    for _ in range(20):
        world.regionals[0].produce()
    with world.in_memory(), ExitStack() as patches:
        patches.enter_context(mock.patch.object(run_log_check, "KafkaRunLog", layout_module.KafkaRunLog))
        world.lives[0].plan(1)
        world.schedule.run(world.caught_up, at_most_steps=30_000)
        yield Bench(world)


def test_a_run_log_that_was_deleted_under_its_owner_is_rebuilt_and_nothing_comes_twice(bench: Bench) -> None:
    bench.lose()
    bench.produce()
    bench.end_owners()
    plan = bench.in_turn(bench.rebuild().plan)
    assert bench.life.run_log not in bench.target.topics, "a plan changes nothing"
    done = bench.execute()
    assert [item.going_on for item in done.partitions] == [GoingOn.EXACT] * 2
    assert plan.twice == done.twice == 0
    assert "RUN_LOG_MISSING" in str(done.refused[0])
    bench.go_on()
    assert bench.twice() == 0
    assert not bench.lost()
    bench.check_answers()


def test_a_target_partition_that_nobody_leads_is_not_taken_for_one_that_is_not_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.lose()
    bench.end_owners()
    ask = SimAdmin.log_ranges

    def one_is_leaderless(admin: SimAdmin, places: Any) -> Any:
        return {
            item: log
            for item, log in ask(admin, places).items()
            if (item.topic, item.partition) != (TOPIC, 1)
        }

    with monkeypatch.context() as leaderless:
        leaderless.setattr(SimAdmin, "log_ranges", one_is_leaderless)
        with pytest.raises(ClusterUnavailableError, match="-1 has no leader"):
            bench.in_turn(bench.rebuild().plan)
    bench.execute()
    bench.go_on()
    assert bench.twice() == 0
    assert not bench.lost()


def test_what_the_index_never_heard_of_comes_twice_and_the_plan_says_how_much(bench: Bench) -> None:
    unindexed = bench.copy_without_index()
    assert unindexed
    bench.lose()
    done = bench.execute()
    assert done.twice == unindexed
    assert GoingOn.NEW_GENERATION in {item.going_on for item in done.partitions}
    bench.go_on()
    assert bench.twice() == unindexed
    assert not bench.lost()
    bench.check_answers()


def test_records_of_another_writer_make_a_rebuild_careful_and_lose_nothing(bench: Bench) -> None:
    bench.end_owners()
    for log in bench.target.topics[TOPIC].logs:
        log.append("typed by somebody")
    bench.lose()
    done = bench.execute()
    assert done.twice == 2
    bench.go_on()
    assert bench.twice() == 0, "it was told as an upper bound"
    assert not bench.lost()
    bench.check_answers()


def test_everything_begins_anew_on_the_operators_word_under_a_generation_of_its_own(bench: Bench) -> None:
    bench.end_owners()
    held = sum(bench.copies().values())
    bench.lose()
    done = bench.execute(anew=True)
    assert [item.going_on for item in done.partitions] == [GoingOn.ANEW] * 2
    assert done.twice == held
    bench.go_on()
    assert bench.twice() == held
    assert not bench.lost()
    assert bench.untold() == 0
    bench.check_answers()


def test_what_a_source_no_longer_holds_of_a_partition_that_was_never_indexed_is_told_as_lost(
    bench: Bench,
) -> None:
    bench.end_owners()
    bench.lose()
    bench.world.index = FlakyIndex(bench.world)
    for log in bench.world.regionals[0].cluster.topics[TOPIC].logs:
        log.retain_from(5)
    done = bench.execute()
    assert [item.going_on for item in done.partitions] == [GoingOn.NEW_GENERATION] * 2
    told = [lost for item in done.partitions for change in item.changes for lost in change.lost]
    assert [(lost.source_start, lost.source_end) for lost in told] == [(0, 5)] * 2


def test_what_was_copied_to_a_topic_made_anew_of_which_the_index_never_heard_is_told(bench: Bench) -> None:
    with unheard(bench.world.index):
        del bench.target.topics[TOPIC]
        bench.target.create(TOPIC, 2)
        bench.world.schedule.run(lambda: not bench.lost(), at_most_steps=30_000)
        bench.end_owners()
    held = sum(bench.copies().values())
    bench.lose()
    done = bench.execute()
    assert done.twice == held
    assert [item.going_on for item in done.partitions] == [GoingOn.NEW_GENERATION] * 2
    bench.go_on()
    assert bench.twice() == held
    bench.check_answers()


@contextmanager
def unheard(index: FlakyIndex) -> Iterator[None]:
    """Let nothing that is written arrive at the index."""
    writes = ("lineages", "lost", "newest", "turn", "blocks")
    with ExitStack() as stack:
        for name in (*(f"write_{what}" for what in writes), "save_blocks_to", "drop_turns"):
            stack.enter_context(mock.patch.object(type(index), name, return_value=None))
        yield


OTHER = Route(RegionName("c"), RegionName("b"))


def another_route_copied(
    bench: Bench, number: int, spans: list[tuple[int, int]], target_firsts: list[int]
) -> None:
    """Let the index have a run of another route for each span, each of a lineage of its own."""
    partition = RoutePartition(OTHER, TopicPartition(TopicName(TOPIC), number))
    target_id = TopicId(bench.target.topics[TOPIC].topic_id)
    index = bench.world.index
    for place, ((start, end), first) in enumerate(zip(spans, target_firsts, strict=True)):
        lineage = Lineage(TopicId("c's"), target_id, place)
        record = LineageRecord(partition, lineage, place, SourceOffset(0), TargetOffset(first), None, 1)
        row = Run(SourceOffset(0), TargetOffset(start), end - start, SourceOffset(0), 0)
        MemoryMappingIndex.write_lineages(index, [record])
        MemoryMappingIndex.write_rows(index, [RowBatch(partition, lineage, (row,), (), 1, 1)])


def lose_tails_and_fill_them(bench: Bench, monkeypatch: pytest.MonkeyPatch, *, aborted: int) -> int:
    """Lose the run log and the ends of the target's logs, which another route fills; how many records are gone."""
    bench.end_owners()
    bench.lose()
    monkeypatch.setattr(Rebuild, "_others", lambda _: iter([OTHER]))
    for number, log in enumerate(bench.target.topics[TOPIC].logs):
        end = log.end
        # Whole transactions, so that none hangs.
        log.elect_unclean(next(at for at in range(end - 6, 0, -1) if log.slot(at - 1).value is MARKER))
        failed = Transaction()
        for _ in range(aborted):
            log.append("copied in vain", failed)
        failed.decide(ABORTED)
        first = log.end
        while log.end < end + 4:
            log.append("copied by another route")
        another_route_copied(bench, number, [(first, log.end)], [0])
    return len(bench.lost())


@pytest.mark.parametrize("aborted", [0, 2])
def test_a_tail_that_the_target_lost_and_another_route_filled_is_copied_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, aborted: int
) -> None:
    """One lost disk may take the ends of both logs; the target is written to before anybody rebuilds the other."""
    assert lose_tails_and_fill_them(bench, monkeypatch, aborted=aborted)
    done = bench.execute()
    assert [item.going_on for item in done.partitions] == [GoingOn.NEW_GENERATION] * 2
    assert done.twice == 0
    bench.go_on()
    assert bench.twice() == 0
    assert not bench.lost()


def test_without_a_look_at_other_routes_rows_such_a_tail_is_lost_for_good(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeptRecords, "kept_to", lambda *_, **__: None)
    gone = lose_tails_and_fill_them(bench, monkeypatch, aborted=0)
    bench.execute()
    bench.go_on()
    assert len(bench.lost()) == gone


def test_what_another_route_lost_there_long_ago_sends_nobody_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.end_owners()
    bench.lose()
    monkeypatch.setattr(Rebuild, "_others", lambda _: iter([OTHER]))
    for number, log in enumerate(bench.target.topics[TOPIC].logs):
        another_route_copied(bench, number, [(2, log.end), (log.end, log.end + 1)], [0, 2])
    done = bench.execute()
    assert [item.going_on for item in done.partitions] == [GoingOn.EXACT] * 2
    assert done.twice == 0


def rebuild_beside_an_owner(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Owner:
    """Lose one of two shards, and let an owner of the sound one begin just before the new layout is written."""
    bench.life.plan(2)
    bench.world.schedule.run(bench.two_shards_caught_up, at_most_steps=30_000)
    bench.end_owners()
    before = bench.life.layout()
    assert before is not None
    sound_partition = 0
    sound = shard_of(TopicPartition(TopicName(TOPIC), sound_partition), 2)
    bench.life.run_log_harmed = True
    harmed = bench.target.topics[bench.life.run_log].logs[1 - sound]
    harmed.retain_from(harmed.end)
    right, beside = rebuild_module.snapshots, list[Owner]()

    def as_an_owner_begins(*args: Any) -> Any:
        source = bench.world.regionals[0].cluster.topics[TOPIC].logs[sound_partition]
        end = source.end
        while source.end == end:  # without a record of the sound shard there is nothing to copy twice
            bench.produce()
        bench.life.own(before, sound)
        beside.append(bench.life.owners[-1])
        for _ in range(40):
            bench.world.schedule.sleep(100)
        # What it writes behind the new layout's snapshot would be refused, and hide what it has copied before.
        beside[0].actor.asleep_until = bench.world.schedule.now_ms + 60_000
        return right(*args)

    monkeypatch.setattr(rebuild_module, "snapshots", as_an_owner_begins)
    bench.execute()
    monkeypatch.setattr(rebuild_module, "snapshots", right)
    bench.life.plan(2)
    bench.world.schedule.run(bench.two_shards_caught_up, at_most_steps=30_000)
    return beside[0]


def test_who_begins_to_copy_a_sound_shard_during_a_rebuild_finds_its_layout_and_leaves(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = rebuild_beside_an_owner(bench, monkeypatch)
    assert (owner.over, owner.lease.layout) == (True, 2)
    assert bench.twice() == 0
    assert not bench.lost()
    bench.check_answers()


def test_without_that_announcement_what_it_copies_comes_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rebuild, "_announced", lambda self, *_: read_layout(self._config, self._route))
    rebuild_beside_an_owner(bench, monkeypatch)
    assert bench.twice() > 0


class CrashError(Exception):
    """An operator's computer is switched off."""


@pytest.mark.parametrize("again", [True, False])
def test_a_rebuild_that_was_begun_is_to_be_finished_by_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    """Also if what was wrong is right again by then (``again`` is False): nobody else may say what follows."""
    bench.end_owners()
    bench.life.run_log_harmed = True
    log = bench.target.topics[bench.life.run_log].logs[0]
    kept, start = log.slots, log.start
    log.retain_from(log.end)
    with monkeypatch.context() as crashing:
        crashing.setattr(rebuild_module, "snapshots", mock.Mock(side_effect=CrashError))
        with pytest.raises(CrashError):
            bench.execute()
    if not again:
        log.slots, log.start = kept, start
    announced = bench.life.layout()
    assert announced is not None
    assert (announced.layout, announced.settled, announced.is_rebuilt) == (2, False, True)
    found = bench.in_turn(lambda: check_route(bench.world.config, bench.life.route))
    assert any(problem.startswith("REBUILD_UNFINISHED: aggregate-b: a->b: ") for problem in found.problems)
    with pytest.raises(RunLogError, match=r"^REBUILD_UNFINISHED"):
        bench.in_turn(lambda: ensure_layout(bench.world.config, bench.life.route, 1))
    assert bench.in_turn(bench.rebuild().plan).layout == 2
    done = bench.execute()
    assert (done.layout, bool(done.refused), done.twice) == (2, again, 0)
    with pytest.raises(RefusedError, match="nothing to rebuild"):
        bench.execute()
    bench.produce()
    bench.go_on()
    assert bench.twice() == 0
    assert not bench.lost()
    bench.check_answers()


@pytest.mark.parametrize("kind", ["headless", "truncated", "foreign", "replaced", "no layout"])
def test_each_kind_of_loss_is_mended(bench: Bench, kind: str) -> None:
    bench.end_owners()
    bench.life.run_log_harmed = True
    log = bench.target.topics[bench.life.run_log].logs[0]
    if kind == "headless":
        log.retain_from(log.end)
    elif kind == "truncated":
        log.elect_unclean(log.end - 4)
    elif kind == "foreign":
        log.append("typed by somebody")
    elif kind == "replaced":
        del bench.target.topics[bench.life.run_log]
        bench.target.create(bench.life.run_log)
    else:
        del bench.target.topics[LAYOUTS_TOPIC]
    bench.produce()
    done = bench.execute()
    assert done.twice == 0
    bench.go_on()
    assert bench.twice() == 0
    assert not bench.lost()
    bench.check_answers()
    bench.world.finish = True  # nothing is undecided while it is looked at
    bench.world.schedule.run(lambda: not bench.world.owners(), at_most_steps=30_000)
    index = bench.world.index
    assert not bench.in_turn(
        lambda: check_route(bench.world.config, bench.life.route, index.indexed_up_to)
    ).problems


@pytest.mark.parametrize("run_log", ["truncated", "truncated with the marker of its layout", "gone"])
def test_a_transaction_that_hangs_where_its_entry_is_lost_is_copied_again(bench: Bench, run_log: str) -> None:
    """One unclean election takes the end of the run log, and markers from the target: what the entry told is indexed."""
    bench.end_owners()
    bench.life.run_log_harmed = True
    logs = bench.target.topics[TOPIC].logs
    for log in logs:
        log.elect_unclean(log.end - 1)
    assert any(log.open_transactions() for log in logs)
    if run_log == "gone":
        bench.lose()
    else:
        entries = bench.target.topics[bench.life.run_log].logs[0]
        entries.elect_unclean(entries.start + (2 if run_log == "truncated" else 1))
    if run_log.endswith("layout"):
        with pytest.raises(
            FencedError
        ):  # it ends the change that hangs under that one's id, which is its own
            bench.execute()
    done = bench.execute()
    bench.go_on()
    assert not any(log.open_transactions() for log in logs)
    assert not bench.lost()
    assert bench.twice() == done.twice == 0


def test_an_entry_that_hangs_and_that_retention_has_taken_hides_not_what_is_wrong(bench: Bench) -> None:
    """It hung for as long as nothing was copied; what has no entry is nobody's any more."""
    bench.end_owners()
    log = bench.target.topics[bench.life.run_log].logs[0]
    log.elect_unclean(log.end - 1)
    assert log.open_transactions()
    bench.life.run_log_harmed = True
    log.retain_from(log.end)
    layout = bench.life.layout()
    assert layout is not None
    problems: list[str] = []
    bench.world.report = lambda progress: problems.append(progress.waiting_for)
    bench.life.own_all(layout)
    bench.world.schedule.run(lambda: bench.life.refused, at_most_steps=30_000)
    assert problems[-1].startswith("RUN_LOG_HEADLESS: ")
    assert not log.open_transactions()
    bench.end_owners()
    bench.produce()
    done = bench.execute()
    bench.go_on()
    assert not bench.lost()
    assert bench.twice() == done.twice == 0


def test_an_owner_that_was_paused_while_its_run_log_was_rebuilt_writes_nothing_more(bench: Bench) -> None:
    owner = bench.life.owners[-1]
    owner.actor.asleep_until = bench.world.schedule.now_ms + 5_000
    bench.produce()
    bench.lose()
    bench.execute()
    bench.go_on()
    bench.world.schedule.run(lambda: owner.over, at_most_steps=30_000)
    assert bench.twice() == 0
    assert not bench.lost()


def test_a_sound_run_log_is_left_alone(bench: Bench) -> None:
    with pytest.raises(RefusedError, match="there is nothing to rebuild"):
        bench.execute()
    index = bench.world.index
    found = bench.in_turn(lambda: check_route(bench.world.config, bench.life.route, index.indexed_up_to))
    [shard] = found.shards
    assert not found.problems
    assert (shard.start, shard.partitions) == (0, 2)
    assert shard.entries
    assert shard.snapshot_bytes


@pytest.mark.parametrize("anew", [True, False])
def test_what_only_a_newer_release_can_read_is_not_rebuilt(*, bench: Bench, anew: bool) -> None:
    bench.end_owners()
    bench.life.run_log_harmed = True
    log = bench.target.topics[bench.life.run_log].logs[0]
    newest = [slot.value for slot in log.committed() if isinstance(slot.value, Entry)][-1]
    newer = Entry()
    newer.CopyFrom(newest)
    newer.format = 2
    log.append(newer)
    layouts_before = bench.target.topics[LAYOUTS_TOPIC].logs[0].end
    for work in (bench.rebuild(anew=anew).plan, bench.rebuild(anew=anew).execute):
        with pytest.raises(RunLogError, match=r"^RUN_LOG_NEWER: "):
            bench.in_turn(work)
    assert bench.target.topics[LAYOUTS_TOPIC].logs[0].end == layouts_before


def test_without_looking_at_the_target_records_come_twice_that_nobody_told_of(bench: Bench) -> None:
    """The mutant: the newest row is taken for the end of what was copied."""
    unindexed = bench.copy_without_index()
    bench.lose()
    with mock.patch.object(Rebuild, "_unexplained", return_value=0):
        done = bench.execute()
    bench.go_on()
    assert done.twice == 0
    assert bench.twice() == unindexed


def test_under_the_old_generation_new_rows_hide_those_of_before(bench: Bench) -> None:
    """The mutant: everything begins anew under the lineage that it had."""
    bench.end_owners()
    bench.lose()
    begin = rules.begin

    def same_lineage(item: Any, beginning: Any, old: Any, end: Any) -> Any:
        changes = begin(item, beginning, old, end)
        return tuple(
            rules.PartitionChange(rules.replace(change.state, lineage=old.lineage), change.rows, change.lost)
            for change in changes
            if not change.closed
        )

    with mock.patch.object(rules, "begin", same_lineage):
        bench.execute(anew=True)
    bench.go_on()
    assert bench.untold() > 0
