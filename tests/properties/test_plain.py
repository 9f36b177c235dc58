"""The plain path against the rule, to the last field, over lineages made up; in worlds: test_rule_paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from parallax.domain import plain as plain_module
from parallax.domain.history import History
from parallax.domain.ids import (
    SourceOffset,
)
from parallax.domain.outcome import Outcome
from parallax.domain.place import Via
from parallax.domain.plain import PlainPartition
from parallax.domain.progress import (
    SourceHistory,
    SourcePosition,
)
from tests.worlds.plain_questions import question_of
from tests.worlds.rule_paths import short_cut

# --- lineages made up ----------------------------------------------------------------------------------------------


def compare(seeds: range) -> Counter[Outcome]:
    """Made-up questions; what the short cut noted, a note as often as it did."""
    notes: Counter[Outcome] = Counter()
    for seed in seeds:
        found = short_cut(question_of(seed))
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
    with pytest.raises(AssertionError):
        compare(range(2_000))
