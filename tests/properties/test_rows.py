"""Runs and histories against naive models."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.domain.history import History, check_invariants
from parallax.domain.ids import Lineage, SourceOffset, TargetOffset, TopicId
from parallax.domain.runs import LostRange, Run, watermark
from parallax.errors import InvariantError
from replicator.copying.offset_ranges import OffsetRanges, runs_of
from tests.worlds.model_logs import build_runs

LINEAGE = Lineage(TopicId("source"), TopicId("target"))

steps = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=60)
long_stretches = st.lists(
    st.tuples(st.sampled_from([1] * 20 + [2]), st.sampled_from([1] * 20 + [4])), max_size=400
)


def ascending(pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    sources, targets = [], []
    source = target = -1
    for source_step, target_step in pairs:
        source, target = source + source_step, target + target_step
        sources.append(source)
        targets.append(target)
    return sources, targets


@given(st.one_of(steps, long_stretches))
def test_runs_are_those_of_a_record_by_record_walk(pairs: list[tuple[int, int]]) -> None:
    sources, targets = ascending(pairs)
    found = runs_of(
        OffsetRanges(sources),
        OffsetRanges(targets),
        previous_source_end=SourceOffset(0),
        source_leader_epoch=4,
    )
    walked = build_runs(sources, targets, previous_source_end=SourceOffset(0), source_leader_epoch=4)
    assert list(found) == walked


@given(steps, st.data())
def test_runs_refuse_records_out_of_order(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    sources, targets = ascending([*pairs, (1, 1), (1, 1)])
    broken = data.draw(st.integers(1, len(sources) - 1))
    side = data.draw(st.sampled_from([sources, targets]))
    side[broken] = side[broken - 1]
    ranges = OffsetRanges(sources), OffsetRanges(targets)
    with pytest.raises(InvariantError):
        list(runs_of(*ranges, previous_source_end=SourceOffset(0), source_leader_epoch=0))


def sound(rows: Sequence[Run]) -> bool:
    """Invariants A to E for every pair of rows, offset by offset: written apart from the production check."""
    for index, later in enumerate(rows):
        if not 0 <= later.previous_source_end <= later.source_start or later.target_start < 0:
            return False
        for before in rows[:index]:
            holds = {
                "A": before.source_start <= later.source_start and before.target_start <= later.target_start,
                "B": all(
                    before.source_start + i < later.source_start
                    and before.target_start + i < later.target_start
                    for i in range(before.count)
                ),
                "C": not before.count or before.source_end <= later.previous_source_end,
                "E": not (before.count and later.count)
                or before.source_leader_epoch <= later.source_leader_epoch,
            }
            if not all(holds.values()):
                return False
    return True


small = st.integers(0, 12)
any_rows = st.lists(
    st.builds(
        lambda start, target, count, back, epoch: Run(
            SourceOffset(start), TargetOffset(target), count, SourceOffset(max(start - back, 0)), epoch
        ),
        small,
        small,
        st.integers(0, 3),
        st.integers(0, 4),
        st.integers(-1, 2),
    ),
    max_size=4,
)


@given(any_rows)
def test_check_invariants_agrees_with_the_independent_checker(rows: list[Run]) -> None:
    try:
        check_invariants(rows)
    except InvariantError:
        taken = False
    else:
        taken = True
    assert taken == sound(rows)


@given(any_rows, any_rows)
def test_a_history_holds_its_invariants_or_refuses(first: list[Run], second: list[Run]) -> None:
    try:
        history = History(LINEAGE, first)
    except InvariantError:
        return
    assert sound(history.rows)
    before = list(history.rows)
    try:
        history.add(*second)
    except InvariantError:
        assert history.rows == before, "a refused row was taken all the same"
        with pytest.raises(InvariantError):
            History(LINEAGE, [*before, *second])
        return
    assert sound(history.rows)
    assert history.rows == History(LINEAGE, [*before, *second]).rows


@st.composite
def copies(draw: st.DrawFn) -> list[Run]:
    """Rows as a replicator writes them: runs, watermarks between, epochs that rise."""
    rows: list[Run] = []
    source = target = last = 0
    epoch = 0
    for _ in range(draw(st.integers(0, 12))):
        source += draw(st.integers(0, 3))
        target += draw(st.integers(0, 3))
        if draw(st.booleans()):
            rows.append(
                watermark(
                    source_next=SourceOffset(source),
                    target_end=TargetOffset(target),
                    last_run_end=SourceOffset(last),
                    source_leader_epoch=epoch,
                )
            )
        else:
            epoch += draw(st.integers(0, 1))
            count = draw(st.integers(1, 4))
            rows.append(Run(SourceOffset(source), TargetOffset(target), count, SourceOffset(last), epoch))
            source, target = source + count, target + count
            last = source
    return rows


@given(copies(), st.randoms(use_true_random=False))
def test_order_repetition_and_batches_of_rows_do_not_matter(rows: list[Run], shuffler: object) -> None:
    whole = History(LINEAGE, rows)
    one_by_one = History(LINEAGE)
    for row in rows:
        one_by_one.add(row)
    mixed = [*rows, *rows[::2]]
    shuffler.shuffle(mixed)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    for other in (one_by_one, History(LINEAGE, mixed)):
        assert other.rows == whole.rows
        assert other.epoch_ends == whole.epoch_ends
        for offset in range(-1, 60):
            at = SourceOffset(offset)
            assert other.last_proven_by(at) == whole.last_proven_by(at)
            assert other.floor_by_source(at) == whole.floor_by_source(at)


@given(copies(), st.integers(0, 60))
def test_look_ups_are_what_a_scan_finds(rows: list[Run], offset: int) -> None:
    history = History(LINEAGE, rows)
    by_source = [row for row in history.rows if row.source_start <= offset]
    by_target = [row for row in history.rows if row.target_start <= offset]
    proven = [row for row in history.rows if row.previous_source_end <= offset]
    assert history.floor_by_source(SourceOffset(offset)) == (by_source[-1] if by_source else None)
    assert history.floor_by_target(TargetOffset(offset)) == (by_target[-1] if by_target else None)
    assert history.last_proven_by(SourceOffset(offset)) == (proven[-1] if proven else None)


@given(copies(), st.integers(0, 60))
def test_cut_history_holds_exactly_the_records_below_the_cut(rows: list[Run], cut: int) -> None:
    def records(items: Sequence[Run]) -> set[tuple[int, int]]:
        return {(row.source_start + i, row.target_start + i) for row in items for i in range(row.count)}

    kept = History(LINEAGE, rows).cut_at(TargetOffset(cut))
    assert records(kept.rows) == {pair for pair in records(rows) if pair[1] < cut}
    assert all(row.target_end <= cut for row in kept.rows)


def test_a_part_of_a_run_is_the_same_fact() -> None:
    """Rows are packed and replayed: a longer version of a run, a piece of it, a watermark inside it."""
    whole = Run(SourceOffset(10), TargetOffset(50), 5, SourceOffset(8), 1)
    longer = Run(SourceOffset(10), TargetOffset(50), 7, SourceOffset(10), 1)
    inside = Run(SourceOffset(12), TargetOffset(52), 0, SourceOffset(12), 1)
    assert History(LINEAGE, [inside, longer, whole]).rows == [
        Run(SourceOffset(10), TargetOffset(50), 7, SourceOffset(8), 1)
    ]


def test_lost_records_hide_nothing_between_rows() -> None:
    before = Run(SourceOffset(0), TargetOffset(0), 4, SourceOffset(0))
    after = Run(SourceOffset(9), TargetOffset(20), 1, SourceOffset(8))
    lost = LostRange(SourceOffset(4), SourceOffset(8), TargetOffset(4))
    assert History(LINEAGE, [before, after], [lost]).last_proven_by(SourceOffset(4)) == after
    assert History(LINEAGE, [before, after]).last_proven_by(SourceOffset(4)) == before
