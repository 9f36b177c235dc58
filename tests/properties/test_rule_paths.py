"""All ways to an answer of the resume rule, in the worlds of tests/worlds/model.py: each says what the rule says over rows.

Lost ranges, lineages that were cut and followed by others, rising leader epochs: whatever the rule is asked there, it is
asked again over the same rows in blocks of a random size, of the short cut, and of arrays.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from offsetsvc.resume import plain_many
from parallax.domain import plain as plain_module
from parallax.domain.block_history import BlockHistory
from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.lineage_history import EpochRows
from tests.worlds.model import ViolationError, options_of, run_long_world, run_world
from tests.worlds.rule_paths import asking_all_paths


def play(seeds: range, long_seeds: range) -> Counter[str]:
    """What was compared in worlds, by name."""
    with asking_all_paths(seeds.start) as paths:
        for seed in seeds:
            run_world(seed, options_of(seed))
        for seed in long_seeds:
            run_long_world(seed)
    return paths.seen


@pytest.mark.parametrize("part", range(2))
def test_each_way_gives_the_answer_of_the_rule_over_rows(part: int) -> None:
    seen = play(range(part * 150, part * 150 + 150), range(part * 20, part * 20 + 20))
    assert seen["answers over blocks"] > 500
    assert seen["skip ranges over blocks"] > 500
    assert seen["lost ranges"] > 100
    assert seen["cut lineages"] > 100
    assert seen["by the short cut"] > 500
    assert seen["by arrays"] > 200
    assert seen["left to the rule"] > 500


# --- mutants -------------------------------------------------------------------------------------------------------


def _cut_forgotten(self: BlockHistory, target_end: TargetOffset) -> BlockHistory:
    del target_end
    return self


def _lost_ranges_kept(self: BlockHistory, target_end: TargetOffset) -> BlockHistory:
    cut = RIGHT["cut_at"](self, target_end)
    cut._lost = self._lost
    return cut


def _epochs_never_behind(self: BlockHistory) -> dict[int, EpochRows]:
    return {
        epoch: known._replace(first=SourceOffset(0)) for epoch, known in RIGHT["epochs"].fget(self).items()
    }


def _watermarks_tell_nothing(self: BlockHistory) -> dict[int, EpochRows]:
    return {epoch: known._replace(watermark_end=-1) for epoch, known in RIGHT["epochs"].fget(self).items()}


MUTANTS = {
    "cut_at": [_cut_forgotten, _lost_ranges_kept],
    "epochs": [property(_epochs_never_behind), property(_watermarks_tell_nothing)],
}
RIGHT: dict[str, Any] = {name: getattr(BlockHistory, name) for name in MUTANTS}


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, wrong) for name, mutants in MUTANTS.items() for wrong in mutants]
)
def test_what_the_rule_is_told_wrongly_is_found(
    name: str, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BlockHistory, name, wrong)
    with pytest.raises(ViolationError):  # which the worlds make of whatever fails in them
        play(range(150), range(100))


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [
        (plain_module, "consumed_end", lambda consumed, _history: consumed.source_next),
        (plain_many, "_consumed_there", lambda consumed, *_: consumed + 1),
    ],
    ids=["short cut", "arrays"],
)
def test_what_another_way_says_wrongly_is_found(
    module: Any, name: str, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(ViolationError):
        play(range(150), range(100))
