"""Blocks against plain rows: every look-up is the same; and against bytes that are no block."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from zlib import crc32

import pytest

from parallax.domain.block_history import BlockHistory, BlockTable
from parallax.domain.blocks import MOST_ROWS, Block, encode
from parallax.domain.history import History
from parallax.domain.ids import Lineage, SourceOffset, TargetOffset, TopicId
from parallax.domain.lineage_history import LineageHistory, epochs_of
from parallax.domain.runs import Run
from parallax.errors import InvariantError, UnreadableRowError
from tests.worlds.block_worlds import blocks_of, in_blocks, made_up

LINEAGE = Lineage(TopicId("source"), TopicId("target"))


def assert_equal(history: LineageHistory, other: LineageHistory, chance: Random) -> None:
    assert list(other.rows) == list(history.rows)
    assert (other.first, other.newest) == (history.first, history.newest)
    assert list(other.lost) == list(history.lost)
    assert dict(other.epochs) == dict(history.epochs)
    assert tuple(other.epoch_ends) == tuple(history.epoch_ends)
    assert tuple(other.read_ends) == tuple(history.read_ends)
    near = [0, *(row.source_start + part for row in history.rows for part in (-1, 0, row.count))]
    far = [0, *(row.target_start + part for row in history.rows for part in (-1, 0, row.count))]
    for _ in range(40):
        source, target = SourceOffset(chance.choice(near)), TargetOffset(chance.choice(far))
        assert other.floor_by_source(source) == history.floor_by_source(source)
        assert other.floor_by_target(target) == history.floor_by_target(target)
        assert other.last_proven_by(source) == history.last_proven_by(source)
        passed_over = chance.random() < 0.5
        assert other.read_below(source, passed_over=passed_over) == history.read_below(
            source, passed_over=passed_over
        )
        end = TargetOffset(chance.choice(far))
        assert list(other.between_targets(target, end)) == list(history.between_targets(target, end))
        assert list(other.numbers_between(target, end)) == list(history.numbers_between(target, end))
        asked = (source, target, end, chance.choice([None, 1, 2, 9]))
        assert other.stretches_below(*asked) == history.stretches_below(*asked)


def compare(seeds: range) -> int:
    """Random lineages, whole and cut, in blocks of any size; how many rows were compared."""
    compared = 0
    for seed in seeds:
        chance = Random(seed)
        rows, lost = made_up(chance, chance.choice([3, 12, 60]))
        history = History(LINEAGE, rows, lost)
        blocks = in_blocks(history, chance.choice([2, 3, 4, 9, 1_024]))
        assert_equal(history, blocks, chance)
        for _ in range(3):
            cut = TargetOffset(chance.choice([0, *(row.target_start for row in rows)]) + chance.randint(0, 3))
            assert_equal(history.cut_at(cut), blocks.cut_at(cut), chance)
            again = TargetOffset(cut - chance.randint(-2, 2))
            assert_equal(history.cut_at(cut).cut_at(again), blocks.cut_at(cut).cut_at(again), chance)
        compared += len(rows)
    return compared


@pytest.mark.parametrize("part", range(2))
def test_every_look_up_in_blocks_is_the_one_in_rows(part: int) -> None:
    assert compare(range(part * 250, (part + 1) * 250)) > 2_000


def test_a_block_that_is_read_is_the_rows_that_were_written() -> None:
    for seed in range(300):
        chance = Random(seed)
        rows, _ = made_up(chance, 80)
        rows = History(LINEAGE, rows).rows[:]
        if rows:
            block = Block(encode(rows, 1_800_000_000_123))
            assert [block.run(place) for place in range(len(block))] == rows
            assert block.committed_at_ms == 1_800_000_000_123
            assert block.epochs(len(block)) == epochs_of(rows)


def test_a_run_takes_a_few_bytes() -> None:
    rows = [Run(SourceOffset(3 * n), TargetOffset(9 * n), 3, SourceOffset(3 * n), 7) for n in range(1_000)]
    assert Block(encode(rows, 0)).nbytes < 5_200


def test_blocks_of_an_owner_that_began_anew_in_between() -> None:
    """Its blocks begin at other rows; those before hold some of the same."""
    for seed in range(200):
        chance = Random(seed)
        rows = History(LINEAGE, made_up(chance, 40)[0]).rows[:]
        if len(rows) < 3:
            continue
        begun = chance.randrange(len(rows) - 1)
        former = blocks_of(rows[: chance.randint(begun + 1, len(rows))], chance.choice([2, 4, 9]))
        present = blocks_of(rows[begun:], chance.choice([2, 4, 9]))
        blocks = sorted([*former, *present], key=lambda block: (block.target_base, block.source_base))
        # Of two that begin alike the later owner's comes last: sorting is stable.
        history = BlockHistory(LINEAGE, BlockTable.of(blocks))
        newest = history.newest
        assert newest is not None
        # Rows of an owner that wrote further than its successor has by now are missing: earlier, never wrong.
        assert set(history.rows) <= set(rows)
        whole = History(LINEAGE, rows)
        for row in rows:
            place, right = history.last_proven_by(row.source_start), whole.last_proven_by(row.source_start)
            assert right is not None
            assert place is None or place.target_start <= right.target_start


# --- bytes that are no block ---------------------------------------------------------------------------------------


def _sound() -> bytes:
    rows = History(LINEAGE, made_up(Random(5), 60)[0]).rows
    return encode(rows, 77, epochs_of(rows[:3]))


def test_nothing_at_all_and_parts_of_a_block_are_refused() -> None:
    stored = _sound()
    for end in range(len(stored)):
        with pytest.raises(UnreadableRowError):
            Block(stored[:end])
    with pytest.raises(UnreadableRowError):
        Block(stored + b"\0")


def test_every_flipped_bit_is_noticed() -> None:
    stored = _sound()
    for at in range(len(stored)):
        for bit in range(8):
            with pytest.raises(UnreadableRowError):
                Block(stored[:at] + bytes([stored[at] ^ 1 << bit]) + stored[at + 1 :])


def test_a_newer_format_is_named() -> None:
    stored = _sound()
    with pytest.raises(UnreadableRowError, match="format 02"):
        Block(b"\2" + stored[1:])


def test_a_made_up_block_with_a_right_checksum_raises_nothing_but_typed_errors() -> None:
    read = refused = 0
    for seed in range(1_000):
        chance = Random(seed)
        forged = bytearray(_sound() if seed % 3 else chance.randbytes(chance.randint(1, 300)))
        forged[0] = 1
        for _ in range(chance.randint(1, 5)):
            forged[chance.randrange(1, len(forged)) if len(forged) > 1 else 0] = chance.randrange(256)
        forged[0] = 1
        if len(forged) > 8:
            forged[4:8] = crc32(forged[8:], crc32(forged[:4])).to_bytes(4, "little")
        try:
            history = BlockHistory(LINEAGE, BlockTable.of([Block(bytes(forged))]))
        except UnreadableRowError:
            refused += 1
            continue
        read += 1
        for offset in (0, chance.randrange(1 << 40), (1 << 63) - 1):
            source, target = SourceOffset(offset), TargetOffset(offset)
            looks: list[Callable[[BlockHistory], object]] = [
                lambda forged, source=source: forged.floor_by_source(source),
                lambda forged, target=target: forged.floor_by_target(target),
                lambda forged, source=source: forged.last_proven_by(source),
                lambda forged: forged.epoch_ends,
                lambda forged: forged.rows,
                lambda forged, target=target: forged.cut_at(target).newest,
            ]
            for look in looks:
                try:
                    look(history)
                except InvariantError:
                    refused += 1
    assert read > 200
    assert refused > 200


def test_no_rows_too_many_and_those_out_of_order_are_refused() -> None:
    row = Run(SourceOffset(0), TargetOffset(0), 0, SourceOffset(0))
    later = Run(SourceOffset(7), TargetOffset(0), 1, SourceOffset(7))
    for rows in ([], [row] * (MOST_ROWS + 1), [later, row]):
        with pytest.raises(InvariantError):
            encode(rows, 0)


# --- mutants -------------------------------------------------------------------------------------------------------


def _previous_of_the_row_before(self: Block, place: int) -> int:
    return self.source_start(place - 1) + self.counts[place - 1] if place else self.source_start(0)


def _first_stretch(self: Block, _place: int) -> int:
    return self._epochs[0]


def _strictly_below(self: Block, target: int) -> int:
    return RIGHT[Block, "floor_by_target"](self, target - 1)


def _strictly_below_source(self: Block, source: int) -> int:
    return RIGHT[Block, "floor_by_source"](self, source - 1)


def _only_these_rows(self: Block, end: int) -> object:
    return epochs_of(self.run(place) for place in range(end))


def _one_block_alone(self: BlockHistory, source: SourceOffset) -> Run | None:
    floor = self.floor_by_source(source)
    return (
        floor if floor is not None and floor.source_end >= source else RIGHT[BlockHistory, "first"].fget(self)
    )


def _not_shortened(self: BlockHistory, number: int, place: int) -> Run:
    return self._table.get(number).run(place)


def _whole_last_block(self: BlockHistory) -> tuple[int, int]:
    number = self._table.last
    return (number, len(self._table.get(number))) if number >= 0 else (-1, 0)


def _lost_ranges_hide(_self: BlockHistory, end: int) -> int:
    return end


def _carried_row_twice(self: BlockTable, number: int) -> int:
    return len(self.get(number))


MUTANTS: dict[tuple[type, str], Callable[..., object]] = {
    (Block, "previous_source_end"): _previous_of_the_row_before,
    (Block, "leader_epoch"): _first_stretch,
    (Block, "floor_by_target"): _strictly_below,
    (Block, "floor_by_source"): _strictly_below_source,
    (Block, "epochs"): _only_these_rows,
    (BlockHistory, "last_proven_by"): _one_block_alone,
    (BlockHistory, "_run"): _not_shortened,
    (BlockHistory, "_find_last"): _whole_last_block,
    (BlockHistory, "_before_lost"): _lost_ranges_hide,
    (BlockTable, "rows_of"): _carried_row_twice,
}
RIGHT = {(owner, name): getattr(owner, name) for owner, name in [*MUTANTS, (BlockHistory, "first")]}


@pytest.mark.parametrize(("owner", "name"), MUTANTS)
def test_a_look_up_that_is_wrong_is_found(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, MUTANTS[owner, name])
    with pytest.raises((AssertionError, InvariantError)):
        compare(range(250))
