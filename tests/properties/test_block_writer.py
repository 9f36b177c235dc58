"""Owners of a lease that die at any write, come back late, and follow each other: what is stored is true all the while, and
lacks nothing once the last of them has caught up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from parallax.domain.block_history import BlockHistory, BlockTable
from parallax.domain.block_rows import StoredBlock, decode_turn, encode_turn, in_order, lineage_number
from parallax.domain.blocks import Block, encode
from parallax.domain.history import History
from parallax.domain.ids import (
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import RowBatch, index_version
from parallax.domain.place import position_of
from parallax.domain.runs import Run
from parallax.errors import StoreUnavailableError, UnreadableRowError
from parallax.index.reader import BlockIndex
from replicator.mapping import block_writer as writer_module
from replicator.mapping.block_writer import BlockWriter
from tests.memory.index import MemoryMappingIndex

ROUTE = Route.parse("a->b")
LEASE = (ROUTE, 3, 0)
ITEM = RoutePartition(ROUTE, TopicPartition(TopicName("trips"), 0))
HOUR_MS = 3_600_000


class DiedError(Exception):
    """The owner, or its way to the store."""


class DyingStore(MemoryMappingIndex):
    """Takes so many more writes; what was written stays."""

    left = 1 << 60

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise DiedError

    def write_turn(self, *arguments: Any) -> None:
        self._spend()
        super().write_turn(*arguments)

    def write_block(self, block: StoredBlock) -> None:
        self._spend()
        super().write_block(block)

    def save_blocks_to(self, *arguments: Any) -> None:
        self._spend()
        super().save_blocks_to(*arguments)


@dataclass
class LoggedRows:
    """A run-log entry: its offset, when it was committed, its rows by lineage."""

    offset: int
    at_ms: int
    rows: dict[Lineage, list[Run]]


def run_log(chance: Random) -> list[LoggedRows]:
    """Entries as a replicator commits them: runs, watermarks, holes, rising epochs, clocks that go back."""
    names = [
        Lineage(TopicId(f"source-{number}"), TopicId("target")) for number in range(chance.randint(1, 3))
    ]
    state = {name: [0, chance.randrange(50), 0, 0] for name in names}  # source, target, last run's end, epoch
    log: list[LoggedRows] = []
    offset, at_ms = 0, 1_800_000_000_000
    for _ in range(chance.randint(1, 60)):
        rows: dict[Lineage, list[Run]] = {}
        for name in chance.sample(names, chance.randint(1, len(names))):
            rows[name] = [_next_row(chance, state[name]) for _ in range(chance.randint(1, 3))]
        log.append(LoggedRows(offset, at_ms, rows))
        offset += chance.choice([1, 2])
        at_ms += chance.choice([0, 1, 100, 5_000, -50, HOUR_MS])
    return log


def _next_row(chance: Random, state: list[int]) -> Run:
    state[0] += chance.choice([0, 0, 1, 3])
    state[1] += chance.choice([1, 1, 4, 300])
    count = 0
    if chance.random() >= 0.3:
        state[3] += chance.random() < 0.08
        count = chance.choice([1, 2, 5, 200])
    row = Run(SourceOffset(state[0]), TargetOffset(state[1]), count, SourceOffset(state[2]), state[3])
    if count:
        state[0], state[1] = row.source_end, row.target_end
        state[2] = state[0]
    return row


def entries_from(log: Sequence[LoggedRows], term: int) -> int:
    return next((place for place, entry in enumerate(log) if entry.offset >= term), len(log))


def give(owner: BlockWriter, entries: Sequence[LoggedRows], *, old: bool) -> None:
    """Some entries at once, as the index feed gives them."""
    batches: dict[Lineage, list[Run]] = {}
    for entry in entries:
        for name, rows in entry.rows.items():
            for row in rows:
                known = batches.setdefault(name, [])
                if known and known[-1].is_watermark:
                    known.pop()
                known.append(row)
    at_ms = max(entry.at_ms for entry in entries)
    owner.write(
        [
            RowBatch(
                ITEM, name, tuple(rows), (), at_ms, index_version(layout=3, run_log_offset=entries[-1].offset)
            )
            for name, rows in batches.items()
        ],
        entries[0].offset,
        entries[-1].offset + 1,
        old=old,
    )


@dataclass
class Life:
    """One run log, and all who wrote what it tells."""

    log: list[LoggedRows]
    store: DyingStore
    deaths: int = 0
    late: int = 0
    compared: int = 0
    readable: int = 0
    """So many entries have been told by turns or blocks."""
    seen: int = 0
    """Of these, so many are there for readers now."""

    def play(self, chance: Random) -> None:
        sizes: dict[str, int] = {
            "most_runs": chance.choice([2, 3, 8, 1_024]),
            "interval_ms": chance.choice([0, 2_000, 60_000]),
        }
        owner, given, committed = BlockWriter(self.store, *LEASE, **sizes), 0, 0
        former: list[tuple[BlockWriter, int]] = []
        while given < len(self.log):
            committed = min(len(self.log), committed + chance.randint(0, 10))
            gone = paused = chance.random() < 0.08
            try:
                while given < committed and not gone and chance.random() < 0.9:
                    many = chance.randint(1, committed - given)
                    self.store.left = chance.choice([1 << 60] * 12 + [0, 1, 2, 3])
                    old = chance.random() < 0.2
                    give(owner, self.log[given : given + many], old=old)
                    given += many
                    self.readable = max(self.readable, 0 if old else given)
            except DiedError:
                self.deaths += 1
                gone, paused = True, False
            self.store.left = 1 << 60
            if paused:
                # It goes on when another one has taken over.
                former.append((owner, given))
            if former and chance.random() < 0.3:
                late, at = former.pop()
                if at < committed:
                    with suppress(StoreUnavailableError):  # it sees that its term is over
                        give(late, self.log[at : min(at + 3, committed)], old=False)
                    self.late += 1
            if gone:
                owner = BlockWriter(self.store, *LEASE, **sizes)
                given = entries_from(self.log, owner.begins_at)
            # What a former owner told by turns may be told anew before it is seen again.
            self.seen = min(self.readable, given)
            self.look(chance)
        owner.write_all()
        self.seen = len(self.log)
        self.look_through(self.store)
        self.look_through(BlockIndex(self.store))
        self.look_at_the_end()

    def rows_of(self, name: Lineage, entries: int | None = None) -> list[Run]:
        return [row for entry in self.log[:entries] for row in entry.rows.get(name, ())]

    def names(self) -> list[Lineage]:
        return sorted({name for entry in self.log for name in entry.rows})

    def history(self, name: Lineage) -> BlockHistory:
        """A lineage as its blocks tell it."""
        number = lineage_number(ITEM, name)
        stored = {
            name.key: block.body for name, block in self.store.stored.items() if name.key.lineage == number
        }
        return BlockHistory(name, BlockTable.of([Block(stored[key]) for key in in_order(stored)]))

    def look(self, chance: Random) -> None:
        """What is stored is true, and a place found by it never lies behind the first record that it is about."""
        for name in self.names():
            true, found = self.rows_of(name), self.history(name)
            assert set(found.rows) <= set(true)
            for _ in range(3):
                source = SourceOffset(chance.randrange(true[-1].source_end + 3))
                place = position_of(source, found)[0]
                assert (place or 0) <= first_target(true, source)
                self.compared += 1
        # Who has read all the while finds what one finds who has just begun.
        if chance.random() < 0.1:
            self.look_through(self.store)
        if chance.random() < 0.02:
            self.look_through(BlockIndex(self.store))
        for body in self.store.every_turn(*LEASE):
            for number, block in decode_turn(body).pieces.items():
                rows = {
                    row
                    for name in self.names()
                    if lineage_number(ITEM, name) == number
                    for row in self.rows_of(name)
                }
                assert rows.issuperset(block.run(place) for place in range(len(block)))

    def look_through(self, index: BlockIndex) -> None:
        """Each row that was told is found by who reads, and none that is not true."""
        for name in self.names():
            found = index.history(ITEM, name)
            true = self.rows_of(name)
            rows = set(found.rows)
            assert rows <= set(true)
            assert {row for row in self.rows_of(name, self.seen) if row.count} <= rows
            if rows:
                told = History(
                    name,
                    [row for row in true if (row.target_start, row.source_start) <= _start(found.newest)],
                )
                for source in (0, true[-1].source_end // 2, true[-1].source_end):
                    at = SourceOffset(source)
                    assert (position_of(at, found)[0] or 0) <= first_target(true, at)
                assert {epoch: end for epoch, end in found.epoch_ends if end} == {
                    epoch: end for epoch, end in told.epoch_ends if end
                }

    def look_at_the_end(self) -> None:
        """Nothing is left out but watermarks that say less than what follows."""
        assert self.store.blocks_to(*LEASE) == self.log[-1].offset + 1
        for name in self.names():
            true, found = self.rows_of(name), self.history(name)
            whole = History(name, true)
            assert {row for row in true if row.count} <= set(found.rows)
            assert found.newest == whole.newest
            told = {
                epoch: end for epoch, end in whole.epoch_ends if end
            }  # a watermark before all runs tells nothing
            assert {epoch: end for epoch, end in found.epoch_ends if end} == told
            for source in range(0, true[-1].source_end + 3, 3):
                at = SourceOffset(source)
                assert position_of(at, found)[0] == position_of(at, whole)[0]


def _start(row: Run | None) -> tuple[int, int]:
    assert row is not None
    return row.target_start, row.source_start


def first_target(rows: Sequence[Run], source: int) -> int:
    """Where the first record at or above a source offset lies."""
    beyond = (
        row.target_start + max(0, source - row.source_start)
        for row in rows
        if row.count and row.source_end > source
    )
    return min(beyond, default=1 << 62)


def play(seeds: range) -> Life:
    """Several lives; their counts together."""
    total = Life([], DyingStore())
    for seed in seeds:
        chance = Random(seed)
        life = Life(run_log(chance), DyingStore())
        life.play(chance)
        total.deaths += life.deaths
        total.late += life.late
        total.compared += life.compared
    return total


def test_owners_die_and_follow_each_other_and_nothing_is_lost() -> None:
    total = play(range(150))
    assert total.deaths > 60
    assert total.late > 10
    assert total.compared > 1_000


def test_nothing_is_lost_where_turns_can_tell_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MOST_ROWS", 2)
    total = play(range(150))
    assert total.deaths > 60
    assert total.late > 10


# --- mutants -------------------------------------------------------------------------------------------------------

WRITE_ALL = BlockWriter.write_all


def _told_first(self: BlockWriter, now_ms: int | None = None) -> int:
    self._store.save_blocks_to(*self._lease, self._term, self._next)
    return WRITE_ALL(self, now_ms)


def _full_blocks_alone(self: BlockWriter, now_ms: int | None = None) -> int:
    for block in self._growing.values():
        block.grown = False
    return WRITE_ALL(self, now_ms)


MUTANTS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "blocks are told before they are there": (BlockWriter, "write_all", _told_first),
    "growing blocks are not written": (BlockWriter, "write_all", _full_blocks_alone),
    "an owner knows nothing of those before": (writer_module, "in_order", lambda _: []),
    "blocks forget the rows before": (writer_module, "epochs_of", lambda *_: {}),
    "late blocks count": (
        writer_module.__class__,
        "",
        lambda keys: sorted(keys, key=lambda key: (key.start, key.term)),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_dies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, attribute, wrong = MUTANTS[name]
    if attribute:
        monkeypatch.setattr(where, attribute, wrong)
    else:
        monkeypatch.setitem(globals(), "in_order", wrong)
    with pytest.raises(AssertionError):
        play(range(400))


# --- bytes that are no turn ----------------------------------------------------------------------------------------


def test_a_turn_that_is_damaged_or_of_a_newer_format_is_refused() -> None:
    rows = [Run(SourceOffset(3 * n), TargetOffset(9 * n), 3, SourceOffset(3 * n), 7) for n in range(4)]
    stored = encode_turn(17, 1_800_000_000_123, {-5: encode(rows, 1), 1 << 62: encode(rows[:1], 2)})
    turn = decode_turn(stored)
    assert (turn.run_log_first, turn.committed_at_ms) == (17, 1_800_000_000_123)
    assert [turn.pieces[-5].run(place) for place in range(4)] == rows
    assert turn.pieces.keys() == {-5, 1 << 62}
    for end in range(len(stored)):
        with pytest.raises(UnreadableRowError):
            decode_turn(stored[:end])
    for at in range(len(stored)):
        with pytest.raises(UnreadableRowError):
            decode_turn(stored[:at] + bytes([stored[at] ^ 1 << at % 8]) + stored[at + 1 :])
    with pytest.raises(UnreadableRowError, match="format 02"):
        decode_turn(b"\2" + stored[1:])
