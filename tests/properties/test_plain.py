"""The plain path against the rule, to the last field: over lineages made up, and in the worlds of tests/worlds/model.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from parallax.domain import plain as plain_module
from parallax.domain import resume as resume_module
from parallax.domain.history import History
from parallax.domain.ids import (
    SourceOffset,
    TargetOffset,
)
from parallax.domain.outcome import Outcome
from parallax.domain.place import Via
from parallax.domain.plain import PlainPartition, plain_partition, resume_plainly
from parallax.domain.progress import (
    SourceHistory,
    SourcePosition,
    consumed_spans,
    with_known_epochs,
)
from parallax.domain.resume import Resume
from tests.worlds.model import options_of, run_long_world, run_world
from tests.worlds.plain_questions import question_of

RULE = resume_module.resume


def assert_equal(question: dict[str, Any]) -> Resume | None:
    """The short cut's answer, which is the rule's; None: it leaves the question to the rule."""
    plain = plain_partition(question["regions"], question["origin"], question["destination"])
    if plain is None:
        return None
    asked = {name: question[name] for name in ("commit", "destination_log", "progress")}
    found = resume_plainly(plain, **asked)
    assert found is None or found == RULE(**question)
    if found is not None:
        _assert_consumed_there(question, found)
    return found


def _assert_consumed_there(question: dict[str, Any], found: Resume) -> None:
    """What the short cut tells of the destination's own records is all that there is to say of them."""
    for answer in found.sources:
        if answer.consumed_there is None:
            continue
        here, there = (
            [item for item in question[side] if item.source == answer.source]
            for side in ("origin", "destination")
        )
        consumed = with_known_epochs(answer.consumed, here)
        assert list(consumed_spans(consumed, there[0].history)) == [(0, answer.consumed_there)]


# --- lineages made up ----------------------------------------------------------------------------------------------


def compare(seeds: range) -> Counter[Outcome]:
    """Made-up questions; what the short cut noted, a note as often as it did."""
    notes: Counter[Outcome] = Counter()
    for seed in seeds:
        found = assert_equal(question_of(seed))
        notes.update([] if found is None else found.notes)
    return notes


@pytest.mark.parametrize("part", range(2))
def test_the_short_cut_says_what_the_rule_says(part: int) -> None:
    notes = compare(range(part * 2_000, part * 2_000 + 2_000))
    assert min(notes[note] for note in NOTES) > 20


NOTES = (
    Outcome.OK,
    Outcome.PENDING,
    Outcome.TRIMMED,
    Outcome.REWOUND,
    Outcome.LINEAGE_CHANGED,
    Outcome.EARLIEST_FALLBACK,
    Outcome.CLAMPED_TO_END,
)


# --- worlds --------------------------------------------------------------------------------------------------------


class _Both:
    """Asks the rule, and the short cut as well: at the group's commit, and at others."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self.plain = self.others = 0

    def resume(self, **question: Any) -> Resume:
        ends = [item.history.newest.target_end for item in question["origin"] if item.history.rows]
        commits = [self._chance.randint(0, max(ends, default=0) + 3) for _ in range(5)]
        for commit in (question["commit"], *commits):
            found = assert_equal(question | {"commit": TargetOffset(commit)})
            self.plain += found is not None
            self.others += found is None
        return RULE(**question)


def play(seeds: range, long_seeds: range, monkeypatch: pytest.MonkeyPatch) -> _Both:
    both = _Both(seeds.start)
    monkeypatch.setattr(resume_module, "resume", both.resume)
    for seed in seeds:
        run_world(seed, options_of(seed))
    for seed in long_seeds:
        run_long_world(seed)
    return both


def test_in_worlds_the_short_cut_says_what_the_rule_says(monkeypatch: pytest.MonkeyPatch) -> None:
    both = play(range(200), range(10), monkeypatch)
    assert both.plain > 500
    assert both.others > 500


# --- mutants -------------------------------------------------------------------------------------------------------

RIGHT = {
    name: getattr(plain_module, name)
    for name in ("_told_by_rows", "consumed_end", "position_of", "records_below", "plain_partition")
}


def _wrong(name: str, change: Callable[..., object]) -> tuple[str, Callable[..., object]]:
    return name, lambda *arguments, **named: change(RIGHT[name](*arguments, **named))


def _moved_taken_for_read(moved: SourcePosition, told: SourcePosition) -> bool:
    return (moved.leader_epoch, moved.source_next) <= (told.leader_epoch, told.source_next)


def _offsets_alone(consumed: SourcePosition, history: object) -> SourceOffset:
    del history
    return consumed.source_next


def _lost_is_plain(regions: Any, origin: Any, destination: Any) -> PlainPartition | None:
    def without(items: Any) -> list[SourceHistory]:
        return [replace(item, history=History(item.history.lineage, item.history.rows, ())) for item in items]

    return RIGHT["plain_partition"](regions, without(origin), without(destination))


def _closed_is_plain(regions: Any, origin: Any, destination: Any) -> PlainPartition | None:
    def without(items: Any) -> list[SourceHistory]:
        return [replace(item, closed_at=None) for item in items]

    return RIGHT["plain_partition"](regions, without(origin), without(destination))


MUTANTS: dict[str, tuple[str, Callable[..., object]]] = {
    "one record more was consumed": _wrong(
        "_told_by_rows",
        lambda found: (replace(found[0], source_next=SourceOffset(found[0].source_next + 1)), found[1]),
    ),
    "no proof": _wrong("_told_by_rows", lambda found: (found[0], None)),
    "no epoch": _wrong("_told_by_rows", lambda found: (replace(found[0], leader_epoch=-1), found[1])),
    "no ends of epochs": _wrong("_told_by_rows", lambda found: (replace(found[0], epoch_ends=()), found[1])),
    "what a move left is taken for read": ("is_within", _moved_taken_for_read),
    "moves are forgotten": ("is_within", lambda *_: True),
    "epochs are not compared": ("consumed_end", _offsets_alone),
    "one place further": _wrong("position_of", lambda found: ((found[0] or 0) + 1, *found[1:])),
    "no row is needed": _wrong("position_of", lambda found: (found[0], Via.AFTER, found[2])),
    "nothing lies below the log start": ("records_below", lambda *_: None),
    "all may still come": ("_may_still_come", lambda *_: True),
    "nothing may still come": ("_may_still_come", lambda *_: False),
    "lost ranges are plain": ("plain_partition", _lost_is_plain),
    "closed lineages are plain": ("plain_partition", _closed_is_plain),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_dies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, wrong = MUTANTS[name]
    monkeypatch.setattr(plain_module, where, wrong)
    if where == "plain_partition":
        monkeypatch.setitem(globals(), where, wrong)
    with pytest.raises(AssertionError):
        compare(range(2_000))
