"""What a service says is to be skipped, against the records one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from random import Random
from typing import Any

import pytest

from offsetsvc.resume import skips as skips_of_service
from offsetsvc.resume.skips import Limits, Skips, collect_skips
from parallax.domain import skips as skips_module
from parallax.domain.history import History
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    Lineage,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
)
from parallax.domain.progress import SourceHistory, SourcePosition, consumed_spans, with_known_epochs
from parallax.domain.runs import Run
from tests.worlds.block_worlds import in_blocks, made_up


def question_of(seed: int) -> dict[str, Any]:
    """Rows of up to three sources merged into one partition, and a position in each of some of them."""
    chance = Random(seed)
    names = [RegionName(name) for name in "abc"[: chance.randint(1, 3)]]
    lineages = {name: Lineage(TopicId(f"{name}-1"), TopicId("t")) for name in names}
    rows: dict[RegionName, list[Run]] = {name: [] for name in names}
    at = dict.fromkeys(names, 0)
    epoch, target = chance.choice([UNKNOWN_EPOCH, 0]), 0
    for _ in range(chance.randint(0, 40)):
        name, count = chance.choice(names), chance.choice([0, 1, 2, 5])
        if chance.random() < 0.1:
            epoch += 1
        rows[name].append(
            Run(SourceOffset(at[name]), TargetOffset(target), count, SourceOffset(at[name]), epoch)
        )
        at[name] += count + chance.choice([0, 0, 2])
        target += count + chance.choice([0, 0, 1, 3])
    destination = []
    for name in names:
        history = in_blocks(History(lineages[name], rows[name]), chance.choice([2, 5, 64]))
        destination.append(SourceHistory(SourceId(name, lineages[name].source_topic_id), history))
    others, lost = made_up(chance, 10, small=True)
    origin = [
        SourceHistory(SourceId(name, TopicId(f"{name}-1")), History(lineages[name], others, lost))
        for name in names
        if chance.random() < 0.5
    ]
    positions = {
        item.source: _position(chance, at[item.source.region])
        for item in destination
        if chance.random() < 0.9
    }
    return {
        "positions": positions,
        "origin": origin,
        "destination": destination,
        "start": TargetOffset(chance.randint(0, target + 2)),
        "limits": Limits(chance.choice([1, 2, 5, 1_000]), chance.choice([1, 3, 9, 40, 10_000])),
    }


def _position(chance: Random, most: int) -> SourcePosition:
    end = SourceOffset(chance.randint(0, most + 2))
    if chance.random() < 0.5:
        return SourcePosition(UNKNOWN_EPOCH, end)
    ends = [
        (epoch, SourceOffset(min(end, chance.randint(0, most + 2)))) for epoch in range(chance.randint(0, 3))
    ]
    if ends and chance.random() < 0.3:  # the last was read behind a lost range
        ends.append((ends[-1][0], SourceOffset(ends[-1][1] + chance.randint(1, 9))))
    return SourcePosition(ends[-1][0] if ends else UNKNOWN_EPOCH, end, tuple(ends))


def by_records(question: dict[str, Any]) -> Skips:
    """The same, record by record."""
    start, limits = question["start"], question["limits"]
    concerned = [item for item in question["destination"] if item.source in question["positions"]]
    budget = max(1, limits.rows // max(1, len(concerned)))
    consumed: dict[int, SourceId] = {}
    cuts: list[int] = []
    for concerned_one in concerned:
        source, history = concerned_one.source, concerned_one.history
        if not any(row.target_end > start for row in history.rows):
            continue
        same = [item for item in question["origin"] if item.source == source]
        spans = consumed_spans(with_known_epochs(question["positions"][source], same), history)
        looked_at = [
            row
            for row, after in zip_longest(history.rows, history.rows[1:])
            if row.source_start < spans[-1][1] and (after is None or after.target_start > start)
        ]
        end = history.rows[-1].target_end
        further = [row for row in looked_at[budget:] if start < row.target_start < end]
        cuts += [further[0].target_start] if further else []
        for row in looked_at:
            for number in range(row.count):
                if any(first <= row.source_start + number < last for first, last in spans):
                    consumed[row.target_start + number] = source
    kept = sorted(offset for offset in consumed if offset >= start and offset < min(cuts, default=1 << 62))
    begins = [offset for offset in kept if offset - 1 not in kept]
    cut = min(cuts, default=None)
    if len(begins) > limits.skip_ranges:
        cut = begins[limits.skip_ranges]
        kept = [offset for offset in kept if offset < cut]
        begins = begins[: limits.skip_ranges]
    first_new = start
    while first_new in kept:
        first_new += 1
    held = [consumed[offset] for offset in kept if offset >= first_new]
    ranges = []
    for begin in begins:
        end = begin
        while end in kept:
            end += 1
        ranges.append((begin, end))
    return Skips(
        ranges,
        first_new,
        {source: held.count(source) for source in question["positions"]},
        None if cut is None else TargetOffset(cut),
    )


def compare(seeds: range) -> tuple[int, int]:
    """How many ranges were the same, and how many answers were cut short."""
    ranges = cut = 0
    for seed in seeds:
        question = question_of(seed)
        found = collect_skips(**question)
        assert found == by_records(question), seed
        ranges += len(found.ranges)
        cut += found.cut_at is not None
    return ranges, cut


def test_skips_are_the_records_that_were_consumed() -> None:
    ranges, cut = compare(range(2_000))
    assert ranges > 800
    assert cut > 200


# --- mutants -------------------------------------------------------------------------------------------------------

RIGHT = skips_module.consumed_stretches


def _beyond_the_limit(spans: Any, history: Any, start: Any, end: Any, most_rows: Any = None) -> Any:
    return RIGHT(spans, history, start, end, None if most_rows is None else most_rows + 1)


def _from_the_start(spans: Any, history: Any, start: Any, end: Any, most_rows: Any = None) -> Any:
    found, cut = RIGHT(spans, history, start, end, most_rows)
    return [(low, high + 1) for low, high in found], cut


def _first_span_alone(spans: Any, history: Any, start: Any, end: Any, most_rows: Any = None) -> Any:
    return RIGHT(spans[:1], history, start, end, most_rows)


def _never_cut(stretches: Sequence[Any], end: int) -> list[Any]:
    del end
    return list(stretches)


MUTANTS: dict[str, tuple[str, Callable[..., object]]] = {
    "a row more than the limit": ("consumed_stretches", _beyond_the_limit),
    "a record more of each run": ("consumed_stretches", _from_the_start),
    "nothing behind a lost range": ("consumed_stretches", _first_span_alone),
    "what a limit cuts off is told": ("_below", _never_cut),
    "ranges that touch stay apart": ("merge_stretches", sorted),
    "nothing is known of the origin's epochs": ("with_known_epochs", lambda consumed, _: consumed),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_dies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, wrong = MUTANTS[name]
    monkeypatch.setattr(skips_of_service, where, wrong)
    with pytest.raises(AssertionError):
        compare(range(2_000))
