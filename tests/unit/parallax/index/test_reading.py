"""What readers see while a store changes under them: never a hole behind which they read on, never a row that is void."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from offsetsvc.index.memory import IndexMemory, LineageRows
from parallax.domain.block_rows import BlockKey, lineage_number
from parallax.domain.blocks import encode
from parallax.domain.ids import (
    ClusterName,
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
from parallax.domain.index_rows import LineageRecord, RouteTopic, RowBatch, index_version
from parallax.domain.lineages import lineages_that_count
from parallax.domain.runs import LostRange, Run
from parallax.errors import StoreUnavailableError, UnreadableRowError
from parallax.index import directory as directory_module
from parallax.index.directory import Blocks, StoredTable
from parallax.index.reader import BlockIndex
from parallax.index.tails import Generation
from parallax.ports.blocks import BlockName, BlocksOf, Reached, TurnsWanted
from replicator.mapping.block_writer import BlockWriter
from tests.memory.index import MemoryMappingIndex

ROUTE = Route.parse("a->b")
LEASE = (ROUTE, 3, 0)
TOPIC = TopicName("trips")
ITEM = RoutePartition(ROUTE, TopicPartition(TOPIC, 0))
TARGET_ID = TopicId("t")
LINEAGE = Lineage(TopicId("s"), TARGET_ID)


class InterruptedStore(MemoryMappingIndex):
    """Lets something happen, or fails, when turns or topics are read."""

    before_turns: Callable[[], None] | None = None
    after_topics: Callable[[], None] | None = None

    def turns(self, wanted: Sequence[TurnsWanted]) -> Any:
        happens, self.before_turns = self.before_turns, None
        if happens is not None:
            happens()
        return super().turns(wanted)

    def told_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        found = super().told_topics(routes, topic)
        happens, self.after_topics = self.after_topics, None
        if happens is not None:
            happens()
        return found


def record(
    lineage: Lineage = LINEAGE, sequence: int = 0, first: int = 0, closed: int | None = None
) -> LineageRecord:
    ends = None if closed is None else SourceOffset(closed)
    return LineageRecord(
        ITEM, lineage, sequence, SourceOffset(first), TargetOffset(first), ends, sequence + 1
    )


def write(writer: BlockWriter, number: int) -> None:
    """One turn: ten records, at every other target offset."""
    rows = (Run(SourceOffset(10 * number), TargetOffset(20 * number), 10, SourceOffset(10 * number), 0),)
    version = index_version(layout=3, run_log_offset=number)
    writer.write([RowBatch(ITEM, LINEAGE, rows, (), 1_000 + number, version)], number, number + 1)


@pytest.fixture
def store() -> InterruptedStore:
    """Five turns in blocks, 45 behind them."""
    store = InterruptedStore()
    store.write_lineages([record()])
    writer = BlockWriter(store, *LEASE)
    for number in range(5):
        write(writer, number)
    writer.write_all()
    for number in range(5, 50):
        write(writer, number)
    return store


def floor(index: BlockIndex) -> Run | None:
    """The last row at or below target offset 700."""
    newest = index.route_topics([ROUTE], TOPIC)[ROUTE].newest[0, LINEAGE]
    return index.history(ITEM, LINEAGE, newest).floor_by_target(TargetOffset(700))


def test_turns_are_there_while_another_term_is_read(store: InterruptedStore) -> None:
    index = BlockIndex(store, max_age_ms=10_000)
    whole = floor(index)
    assert whole is not None
    assert whole.target_start == 700
    seen: list[Run | None] = []
    BlockWriter(store, *LEASE)  # the next owner begins its term
    store.before_turns = lambda: seen.append(index.history(ITEM, LINEAGE).floor_by_target(TargetOffset(700)))
    assert floor(index) == whole
    assert seen == [whole]


def test_turns_are_there_after_another_term_could_not_be_read(store: InterruptedStore) -> None:
    def fail() -> None:
        raise StoreUnavailableError("store: slow")

    index = BlockIndex(store, max_age_ms=10_000)
    whole = floor(index)
    BlockWriter(store, *LEASE)
    store.before_turns = fail
    with pytest.raises(StoreUnavailableError):
        floor(index)
    assert index.history(ITEM, LINEAGE).floor_by_target(TargetOffset(700)) == whole


@pytest.mark.parametrize("happens", ["before_turns", "after_topics"])
def test_the_newest_row_is_known_where_blocks_take_over_in_the_midst_of_a_read(
    store: InterruptedStore, happens: str
) -> None:
    writer = BlockWriter(store, *LEASE)
    for number in range(5, 60):
        write(writer, number)
    setattr(store, happens, writer.write_all)
    index = BlockIndex(store, max_age_ms=10_000)
    assert index.newest(ROUTE, TOPIC)[0, LINEAGE].row.target_end == 59 * 20 + 10


def test_rows_that_a_target_has_lost_are_void_while_the_index_is_filled_again() -> None:
    store = MemoryMappingIndex()
    later = Lineage(TopicId("s"), TARGET_ID, 1)
    store.write_lineages([record(closed=50), record(later, 1, 50)])  # the target lost its tail at 50
    writer = BlockWriter(store, *LEASE, most_runs=8)
    rows = tuple(
        Run(SourceOffset(10 * at), TargetOffset(10 * at), 10, SourceOffset(10 * at), 0) for at in range(10)
    )
    batch = RowBatch(ITEM, LINEAGE, rows, (), 1, index_version(layout=3, run_log_offset=9))
    writer.write([batch], 0, 10, old=True)

    memory = IndexMemory(store, max_age_ms=0)
    views = lineages_that_count(memory.route_topics([ROUTE], TOPIC), TARGET_ID)
    (first,) = [item for item in memory.rows_of(views.of(0)) if item.view.lineage == LINEAGE]
    newest = first.history().history.newest
    assert newest is not None
    assert newest.target_end == 50
    (loss,) = views.truncations(0)
    assert loss.cut == 50


def test_a_lineage_that_ended_in_peace_has_lost_nothing() -> None:
    store = MemoryMappingIndex()
    later = Lineage(TopicId("s2"), TARGET_ID)
    store.write_lineages([record(closed=50), record(later, 1, 50)])
    writer = BlockWriter(store, *LEASE)
    rows = (Run(SourceOffset(0), TargetOffset(0), 50, SourceOffset(0), 0),)
    writer.write([RowBatch(ITEM, LINEAGE, rows, (), 1, index_version(layout=3, run_log_offset=9))], 0, 10)
    views = lineages_that_count(IndexMemory(store, max_age_ms=0).route_topics([ROUTE], TOPIC), TARGET_ID)
    assert views.truncations(0) == []


def test_a_lost_range_is_never_older_than_the_rows_behind_it(store: InterruptedStore) -> None:
    memory = IndexMemory(store, max_age_ms=60_000)
    assert not memory.lost_ranges([(ITEM, LINEAGE)])[ITEM, LINEAGE]
    gap = LostRange(SourceOffset(480), SourceOffset(490), TargetOffset(970))
    version = index_version(layout=3, run_log_offset=60)
    store.write_lost([RowBatch(ITEM, LINEAGE, (), (gap,), 2_000, version)])
    views = lineages_that_count(memory.route_topics([ROUTE], TOPIC), TARGET_ID)
    (rows,) = memory.rows_of(views.of(0))
    assert list(rows.history().history.lost) == [gap]


def test_rows_are_the_same_until_their_route_tells_something_new(store: InterruptedStore) -> None:
    now_s = [0.0]
    memory = IndexMemory(store, max_age_ms=100, clock=lambda: now_s[0])

    def rows() -> LineageRows:
        now_s[0] += 1
        views = memory.counting_lineages(
            ClusterName("aggregate-b"), TOPIC, memory.route_topics([ROUTE], TOPIC), TARGET_ID
        )
        (found,) = memory.rows_of(views.of(0))
        return found

    first = rows()
    assert rows() is first
    gap = LostRange(SourceOffset(480), SourceOffset(490), TargetOffset(970))
    version = index_version(layout=3, run_log_offset=60)
    store.write_lost([RowBatch(ITEM, LINEAGE, (), (gap,), 2_000, version)])
    assert rows() is first
    write(BlockWriter(store, *LEASE), 60)
    assert rows() is not first
    assert list(rows().history().history.lost) == [gap]


def test_a_lease_that_is_quiet_is_asked_less_often_but_by_who_must_not_wait(store: InterruptedStore) -> None:
    now_s, asked = [0.0], []
    turns = store.turns
    store.turns = lambda wanted: (asked.append(len(wanted)), turns(wanted))[1]  # type: ignore[method-assign]

    def known(index: BlockIndex) -> int:
        now_s[0] += 0.1
        return index.newest(ROUTE, TOPIC)[0, LINEAGE].row.target_start

    index = BlockIndex(store, max_age_ms=500, clock=lambda: now_s[0])
    assert {known(index) for _ in range(40)} == {49 * 20}
    assert 8 <= len(asked) <= 13
    write(BlockWriter(store, *LEASE), 60)
    assert [known(index) for _ in range(6)][-1] == 60 * 20
    asked.clear()
    at_once = BlockIndex(store, clock=lambda: now_s[0])
    for _ in range(40):
        known(at_once)
    assert len(asked) == 40


class LosableStore:
    """A store in whose place another one may come."""

    def __init__(self) -> None:
        self.now = MemoryMappingIndex()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


class IndexWithLosses(BlockIndex):
    """Tells what was lost as well."""

    def lost_ranges(self, wanted: Any) -> Any:
        return self._store.lost_ranges(wanted)


@pytest.fixture
def losable() -> LosableStore:
    """Ten turns by the fifth owner of a lease, all of them in blocks."""
    store = LosableStore()
    store.write_lineages([record()])
    for _ in range(5):
        writer = BlockWriter(store, *LEASE)  # type: ignore[arg-type]
    for number in range(10):
        write(writer, number)
    writer.write_all()
    return store


def test_a_store_that_has_lost_all_is_believed_what_it_is_told_again(losable: LosableStore) -> None:
    index = BlockIndex(losable)  # type: ignore[arg-type]
    newest = index.route_topics([ROUTE], TOPIC)[ROUTE].newest[0, LINEAGE]
    assert index.history(ITEM, LINEAGE, newest).rows
    losable.now = MemoryMappingIndex()
    losable.write_lineages([record()])
    writer = BlockWriter(losable, *LEASE)  # type: ignore[arg-type]
    for number in range(200):
        write(writer, number)
        if number % 20 == 19:
            writer.write_all()
        assert floor(index) == floor(BlockIndex(losable))  # type: ignore[arg-type]
    _, pieces = index._tails.pieces(ROUTE, lineage_number(ITEM, LINEAGE))
    assert len(pieces) <= 20


def test_a_store_that_knows_nothing_of_a_lease_any_more_is_believed(losable: LosableStore) -> None:
    index = BlockIndex(losable)  # type: ignore[arg-type]
    assert index.history(ITEM, LINEAGE).newest is not None
    losable.now = MemoryMappingIndex()
    assert index.history(ITEM, LINEAGE).newest is None


def test_a_replica_that_lags_behind_is_not_believed(losable: LosableStore) -> None:
    index = BlockIndex(losable)  # type: ignore[arg-type]
    rows = index.history(ITEM, LINEAGE).rows
    read = losable.now.reached
    for less in ([Reached(3, 0, 4, 10)], [Reached(3, 0, 5, 9)], []):
        answers: list[Any] = [{ROUTE: less}]
        losable.now.reached = lambda routes, left=answers: (  # type: ignore[method-assign]
            left.pop() if left else read(routes)
        )
        before = index.told([(ITEM, LINEAGE)])
        assert index.history(ITEM, LINEAGE).rows == rows
        assert index.told([(ITEM, LINEAGE)]) == before
        assert not answers


def test_who_is_overtaken_by_others_while_reading_takes_no_store_for_lost(
    store: MemoryMappingIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = BlockIndex(store)
    writers = [BlockWriter(store, ROUTE, 3, shard) for shard in (0, 1)]
    write(writers[0], 0)
    assert index.history(ITEM, LINEAGE).rows
    read, entries = store.reached, iter(range(1, 100))

    def overtaken(routes: Any) -> Any:
        told = read(routes)
        with monkeypatch.context() as others:
            others.setattr(store, "reached", read)
            for writer in writers:
                write(writer, next(entries))
                writer.write_all()
            index.history(ITEM, LINEAGE)
        return told

    before = index.told([(ITEM, LINEAGE)])
    monkeypatch.setattr(store, "reached", overtaken)
    for _ in range(5):
        index.history(ITEM, LINEAGE)
    assert index._tails.generation(ROUTE).losses == 0
    assert index.told([(ITEM, LINEAGE)]) != before


def test_an_owner_that_begins_where_the_one_before_stood_is_no_lost_store(losable: LosableStore) -> None:
    index = BlockIndex(losable)  # type: ignore[arg-type]
    rows = index.history(ITEM, LINEAGE).rows
    losable.now.reached = lambda _: {ROUTE: [Reached(3, 0, 6, 9)]}  # type: ignore[method-assign]
    assert index.history(ITEM, LINEAGE).rows == rows
    assert index._tails.generation(ROUTE).losses == 0


def test_rows_from_before_the_store_was_lost_are_not_taken_without_what_was_lost_between_them(
    losable: LosableStore,
) -> None:
    """A lost range is told again before the rows behind it: until then these would tell that it was consumed."""
    memory = IndexMemory(IndexWithLosses(losable), max_age_ms=0)  # type: ignore[arg-type]
    gap = LostRange(SourceOffset(100), SourceOffset(110), TargetOffset(200))
    behind = Run(SourceOffset(110), TargetOffset(220), 10, SourceOffset(110), 0)
    batch = RowBatch(ITEM, LINEAGE, (behind,), (gap,), 2_000, index_version(layout=3, run_log_offset=10))

    def rows() -> LineageRows:
        views = lineages_that_count(memory.route_topics([ROUTE], TOPIC), TARGET_ID)
        (found,) = memory.rows_of(views.of(0))
        return found

    losable.write_lost([batch])
    BlockWriter(losable, *LEASE).write([batch], 10, 11)  # type: ignore[arg-type]
    assert rows().history().history.newest == behind
    losable.now = MemoryMappingIndex()
    losable.write_lineages([record()])
    write(BlockWriter(losable, *LEASE), 0)  # type: ignore[arg-type]
    found = rows().history().history
    assert list(found.lost) == []
    assert found.newest != behind


class OldKeys:
    """A store of twenty blocks, of which few keys are told at once."""

    def __init__(self) -> None:
        self.bodies = {
            BlockKey(1, at * 10, at * 10, 5): encode(
                [Run(SourceOffset(at * 10), TargetOffset(at * 10), 10, SourceOffset(at * 10), 0)], 1
            )
            for at in range(20)
        }
        self.away: set[BlockKey] = set()

    def keys_below(self, wanted: Any, limit: int) -> Any:
        return [
            [item for item in self.bodies.items() if below is None or item[0].target_start <= below][-limit:]
            for _, below in wanted
        ]

    def keys_from(self, wanted: Any) -> Any:
        return [
            [item for item in self.bodies.items() if item[0].target_start >= start] for _, start in wanted
        ]

    def blocks(self, names: Any) -> Any:
        return {name: self.bodies[name.key] for name in names if name.key not in self.away}


PLACE = BlocksOf(RegionName("b"), TopicPartition(TOPIC, 0), 1)


def test_two_that_learn_of_older_blocks_at_once_learn_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "_KEYS_AT_ONCE", 8)
    blocks = Blocks(OldKeys())  # type: ignore[arg-type]
    (known,) = blocks.directories([(PLACE, Generation())])
    table = StoredTable(blocks, PLACE, known, (0, ()))
    both, first_done, asked = threading.Barrier(2), threading.Event(), []
    read = blocks.with_older

    def with_older(place: BlocksOf, directory: Any) -> Any:
        found = read(place, directory)
        asked.append(1)
        late = len(asked) == 2
        both.wait(10)
        if late:
            assert first_done.wait(10)
        return found

    monkeypatch.setattr(blocks, "with_older", with_older)
    places: list[int] = []

    def learn() -> None:
        places.append(table.by_target(115))
        first_done.set()

    threads = [threading.Thread(target=learn) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [table.get(place).target_base for place in places] == [110, 110]
    assert table.get(table.last).target_base == 190


def test_a_block_that_has_not_come_yet_is_asked_for_again() -> None:
    store = OldKeys()
    late = BlockKey(1, 100, 100, 5)
    whole = encode([Run(SourceOffset(at), TargetOffset(at), 5, SourceOffset(at), 0) for at in (100, 105)], 1)
    store.bodies[late] = encode([Run(SourceOffset(100), TargetOffset(100), 5, SourceOffset(100), 0)], 1)
    store.away.add(late)
    blocks = Blocks(store)  # type: ignore[arg-type]
    (known,) = blocks.directories([(PLACE, Generation())])
    table = StoredTable(blocks, PLACE, known, (0, ()))
    assert len(table.get(table.by_target(105))) == 1
    store.away.clear()
    store.bodies[late] = whole
    (known,) = blocks.directories([(PLACE, Generation((Reached(3, 0, 1, 5),)))])
    table = StoredTable(blocks, PLACE, known, (0, ()))
    assert len(table.get(table.by_target(105))) == 2


def test_a_block_whose_last_writing_comes_later_than_the_next_ones_key_is_read_again() -> None:
    """From another datacenter, each row by itself."""
    store = MemoryMappingIndex()
    store.write_lineages([record()])
    writer = BlockWriter(store, *LEASE, most_runs=20)
    for number in range(5):
        write(writer, number)
    writer.write_all()
    blocks = store.blocks
    early = blocks(store.stored.keys())
    for number in range(5, 60):
        write(writer, number)
    writer.write_all()
    store.blocks = lambda names: {  # type: ignore[method-assign]
        name: early.get(name, body) for name, body in blocks(names).items()
    }
    index = BlockIndex(store)
    found = index.history(ITEM, LINEAGE).floor_by_target(TargetOffset(300))
    assert found is not None
    assert found.target_start == 80
    store.blocks = blocks  # type: ignore[method-assign]
    write(writer, 60)
    writer.write_all()
    found = index.history(ITEM, LINEAGE).floor_by_target(TargetOffset(300))
    assert found is not None
    assert found.target_start == 300


def test_blocks_that_others_follow_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full ones, those with which a term ended or had only a watermark, and those of rows that came after a pause."""
    store = MemoryMappingIndex()
    store.write_lineages([record()])
    number = 0

    def tell(row: Run) -> None:
        nonlocal number
        version = index_version(layout=3, run_log_offset=number)
        writer.write([RowBatch(ITEM, LINEAGE, (row,), (), 1_000, version)], number, number + 1)
        number += 1

    end = TargetOffset(0)
    for owner in range(6):
        writer = BlockWriter(store, *LEASE, most_runs=4)
        if owner % 2:
            tell(Run(SourceOffset(end + owner), end, 0, SourceOffset(end)))
            writer.write_all()
        for _ in range(owner * 3):
            start = TargetOffset(end + (owner % 3))  # control records between
            tell(Run(SourceOffset(start), start, 5, SourceOffset(end)))
            end = TargetOffset(start + 5)
        writer.write_all()
    index = BlockIndex(store)
    assert len(index.history(ITEM, LINEAGE).rows) > 45
    tell(Run(SourceOffset(end), end, 5, SourceOffset(end)))
    writer.write_all()
    read: list[BlockName] = []
    blocks = store.blocks
    monkeypatch.setattr(store, "blocks", lambda names: read.extend(names) or blocks(names))
    rows = index.history(ITEM, LINEAGE).rows
    assert [name.key for name in read] == [max(name.key for name in store.stored)]
    assert rows == BlockIndex(store).history(ITEM, LINEAGE).rows


def test_blocks_and_keys_take_no_more_memory_than_they_may() -> None:
    store, memory_bytes = OldKeys(), 50_000
    blocks = Blocks(store, memory_bytes=memory_bytes)  # type: ignore[arg-type]
    places = [PLACE._replace(lineage=number) for number in range(200)]
    for item in places:
        (directory,) = blocks.directories([(item, Generation())])
        table = StoredTable(blocks, item, directory, (0, ()))
        assert [table.get(number).target_base for number in range(len(directory.keys))] == [
            key.target_start for key in directory.keys
        ]
    assert sum(known.memory_bytes for known in blocks._blocks._values.values()) <= memory_bytes
    assert 1 < len(blocks._directories._values) < 200
    assert sum(known.memory_bytes for known in blocks._directories._values.values()) <= memory_bytes


def test_an_owner_whose_term_is_over_tells_nothing_behind_what_no_turn_tells_of(
    store: InterruptedStore,
) -> None:
    former = BlockWriter(store, *LEASE)
    version = index_version(layout=3, run_log_offset=5)
    rows = (Run(SourceOffset(50), TargetOffset(100), 10, SourceOffset(50), 0),)
    former.write([RowBatch(ITEM, LINEAGE, rows, (), 1, version)], 5, 6, old=True)
    BlockWriter(store, *LEASE)
    with pytest.raises(StoreUnavailableError, match="another owner"):
        write(former, 6)


def test_a_lease_of_a_later_layout_hides_nothing_that_the_one_between_has_written() -> None:
    store = MemoryMappingIndex()
    store.write_lineages([record()])

    def told(layout: int, at: int, row: Run) -> RowBatch:
        return RowBatch(
            ITEM, LINEAGE, (row,), (), 1_000 + at, index_version(layout=layout, run_log_offset=at)
        )

    between = BlockWriter(store, ROUTE, 2, 1)
    row = Run(SourceOffset(0), TargetOffset(0), 30, SourceOffset(0), 0)
    between.write([told(2, 5, row)], 5, 6)
    between.write_all()
    later = BlockWriter(
        store, ROUTE, 3, 0
    )  # finds in another partition of the run log what the first layout left
    watermark = Run(SourceOffset(0), TargetOffset(0), 0, SourceOffset(0), 0)
    later.write([told(1, 2, watermark)], 2, 3)
    for _ in range(2):
        history = BlockIndex(store).history(ITEM, LINEAGE)
        assert history.floor_by_target(TargetOffset(20)) == row
        later.write_all()


@pytest.mark.parametrize("dies", [False, True])
def test_what_a_layout_has_left_is_found_by_who_knows_what_the_next_one_has_written_behind_it(
    *, dies: bool
) -> None:
    """The partition is in another shard now: what its former owner did not come to writing, the owner of that one's successor writes."""
    store = MemoryMappingIndex()
    store.write_lineages([record()])
    rows = [
        Run(SourceOffset(10 * at), TargetOffset(20 * at), 10, SourceOffset(10 * at), 0) for at in range(8)
    ]

    def give(writer: BlockWriter, layout: int, numbers: Collection[int]) -> None:
        for at in numbers:
            version = index_version(layout=layout, run_log_offset=at)
            writer.write([RowBatch(ITEM, LINEAGE, (rows[at],), (), 1_000 + at, version)], at, at + 1)

    def found() -> Sequence[Run]:
        return index.rows_from_target(ITEM, LINEAGE, TargetOffset(0), 100).rows

    give(BlockWriter(store, ROUTE, 1, 0), 1, range(3))
    index = BlockIndex(store)
    assert found() == tuple(rows[:3])
    moved = BlockWriter(store, ROUTE, 2, 1, most_runs=2)
    give(moved, 2, range(5, 8))
    moved.write_all()
    assert rows[7] in found()
    left = BlockWriter(store, ROUTE, 2, 0)
    give(left, 1, range(2))
    left.write_all()
    assert rows[1] in found()
    if dies:
        left = BlockWriter(store, ROUTE, 2, 0)
        assert left.begins_at == 2
    give(left, 1, range(2, 5))
    left.write_all()
    assert found() == tuple(rows)


def test_what_cant_be_read_is_named_by_table_and_key(store: InterruptedStore) -> None:
    index = BlockIndex(store)
    turns = store.turns
    store.turns = (
        lambda wanted: [  # type: ignore[method-assign]
            [(upto, b"\x02" + body[1:]) for upto, body in item] for item in turns(wanted)
        ]
    )
    with pytest.raises(
        UnreadableRowError, match=r"^turns of a->b, layout 3, shard 0, run_log_next 6, can't .*02"
    ):
        index.history(ITEM, LINEAGE)
    store.turns = turns  # type: ignore[method-assign]
    (name,) = store.stored
    store.stored[name] = replace(store.stored[name], body=b"\x02" + store.stored[name].body[1:])
    where = f"^blocks of target b, trips-0, section 0, lineage {name.key.lineage}, target_start 0, source_start 0, term "
    with pytest.raises(UnreadableRowError, match=where):
        index.history(ITEM, LINEAGE)
    for number in range(2):  # so it is for the next owner
        with pytest.raises(UnreadableRowError, match=where):
            write(BlockWriter(store, *LEASE), 60 + number)
