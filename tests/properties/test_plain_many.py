"""The rule over arrays against the rule itself, position by position: resume offsets, notes, what was consumed and what is to be skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from offsetsvc.resume import plain_many
from offsetsvc.resume.columns import Columns, columns_of
from offsetsvc.resume.plain_many import ManyAnswers, resume_many
from offsetsvc.resume.skips import Limits
from parallax.domain.block_history import BlockHistory
from parallax.domain.history import History
from parallax.domain.outcome import Outcome
from parallax.domain.plain import plain_partition
from parallax.domain.resume import Resume
from parallax.domain.skips import SkipRange
from tests.worlds.block_worlds import in_blocks
from tests.worlds.plain_questions import question_of
from tests.worlds.rule_paths import NO_LIMITS, answers_of, asked_by_rule, by_the_rule


class _Asked:
    """A made-up question, asked of the arrays for many positions at once: those around all rows, and a few more."""

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        self.question = question_of(seed) | {"progress": None}
        size = chance.choice([2, 3, 4, 8, 64])
        self.sides = {
            side: [
                replace(item, history=in_blocks(item.history, size))
                for item in self.question[side]
                if isinstance(item.history, History)
            ]
            for side in ("origin", "destination")
        }
        self.plain = plain_partition(
            self.question["regions"], self.sides["origin"], self.sides["destination"]
        )
        places = {0, self.question["commit"]}
        for item in self.question["origin"]:
            for row in item.history.rows:
                places |= {row.target_start, row.target_start + 1, row.target_end, row.target_end + 1}
        self.commits = sorted(chance.sample(sorted(places), chance.randint(1, len(places))))

    def many(self, limits: Limits = NO_LIMITS) -> ManyAnswers | None:
        if self.plain is None:
            return None
        commits = np.array(self.commits, np.int64)
        return resume_many(self.plain, commits, self.question["destination_log"], limits)

    def rule(self, commit: int) -> tuple[Resume, list[SkipRange]]:
        return asked_by_rule(self.question, commit)


def compare(seeds: range) -> Counter[str]:
    """Made-up questions; how often something was found, by its name."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        asked = _Asked(seed)
        many = asked.many()
        if many is None:
            seen["not plain"] += 1
            continue
        assert many.answered.all()
        for commit, answer in zip(asked.commits, answers_of(many), strict=True):
            found, ranges = asked.rule(commit)
            assert answer == by_the_rule(found, ranges), (seed, commit)
            seen.update(note.name for note in found.notes)
            seen["skip ranges"] += len(answer["skips"])
    return seen


NOTES = (
    Outcome.OK,
    Outcome.PENDING,
    Outcome.TRIMMED,
    Outcome.LINEAGE_CHANGED,
    Outcome.EARLIEST_FALLBACK,
    Outcome.CLAMPED_TO_END,
)


@pytest.mark.parametrize("part", range(2))
def test_arrays_say_what_the_rule_says(part: int) -> None:
    seen = compare(range(part * 500, part * 500 + 500))
    assert min(seen[note.name] for note in NOTES) > 50
    assert seen["skip ranges"] > 1_000


def test_what_is_too_much_to_look_at_together_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_many, "_MOST_STRETCHES", 3)
    seen = compare(range(300))
    assert seen["skip ranges"] > 100


def test_what_many_blocks_tell_of_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_many, "MOST_BLOCKS", 3)
    left = answered = 0
    for seed in range(400):
        asked = _Asked(seed)
        many = asked.many()
        if many is None:
            continue
        for commit, answer, is_answered in zip(asked.commits, answers_of(many), many.answered, strict=True):
            left += not is_answered
            answered += is_answered
            assert not is_answered or answer == by_the_rule(*asked.rule(commit)), (seed, commit)
    assert left > 100
    assert answered > 100


def test_what_a_limit_would_cut_is_left_to_others() -> None:
    left = answered = 0
    for seed in range(400):
        asked = _Asked(seed)
        many = asked.many(Limits(skip_ranges=2, rows=12))
        if many is None:
            continue
        for commit, answer, is_answered in zip(asked.commits, answers_of(many), many.answered, strict=True):
            found, ranges = asked.rule(commit)
            left += not is_answered
            answered += is_answered
            assert not is_answered or answer == by_the_rule(found, ranges), (seed, commit)
            assert not is_answered or len(ranges) <= 2
    assert left > 100
    assert answered > 100


def test_no_position_is_no_answer() -> None:
    for seed in range(20):
        asked = _Asked(seed)
        asked.commits = []
        many = asked.many()
        assert many is None or not len(many.resume_offsets)


# --- mutants -------------------------------------------------------------------------------------------------------

RIGHT: dict[str, Callable[..., Any]] = {
    "columns_of": columns_of,
    "_consumed_there": plain_many._consumed_there,
    "_merged": plain_many._merged,
    "_around": plain_many._around,
}


def _changed(**changes: Callable[[Columns], Any]) -> Callable[..., Columns]:
    def columns(history: BlockHistory, first: int, last: int) -> Columns:
        rows = columns_of(history, first, last)
        return replace(rows, **{name: change(rows) for name, change in changes.items()})

    return columns


def _beyond(*arguments: Any) -> Any:
    found = RIGHT["_merged"](*arguments)
    return found and (found[0], found[1], found[2] + 1)


def _apart(of: Any, low: Any, high: Any, answers: int) -> Any:
    del answers
    order = np.lexsort((low, of))
    return of[order], low[order], high[order]


def _without_more(history: BlockHistory, lowest: int, highest: int) -> Columns:
    return columns_of(history, history.block_by_source(lowest), history.block_by_source(highest))


MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "one record more was consumed": ("columns_of", _changed(sources=lambda rows: rows.sources + 1)),
    "one place further": ("columns_of", _changed(targets=lambda rows: rows.targets + 1)),
    "every row has a record more": ("columns_of", _changed(counts=lambda rows: rows.counts + 1)),
    "watermarks hold a record": ("columns_of", _changed(counts=lambda rows: np.maximum(rows.counts, 1))),
    "nothing lies between rows": ("columns_of", _changed(previous=lambda rows: rows.previous * 0)),
    "a row's predecessor ends where it starts": ("columns_of", _changed(previous=lambda rows: rows.sources)),
    "all is of one epoch": ("columns_of", _changed(epochs=lambda rows: rows.epochs * 0)),
    "epochs are not compared": ("_consumed_there", lambda consumed, *_: consumed),
    "nothing is known of epochs": (
        "_consumed_there",
        lambda consumed, epochs, _, there: RIGHT["_consumed_there"](consumed, epochs, (), there),
    ),
    "ranges are one too long": ("_merged", _beyond),
    "ranges that touch stay apart": ("_merged", _apart),
    "no row behind is looked at": ("_around", _without_more),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_dies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, wrong = MUTANTS[name]
    monkeypatch.setattr(plain_many, where, wrong)
    with pytest.raises((AssertionError, IndexError)):
        compare(range(500))
