"""The resume rule over blocks in the worlds of tests/worlds/model.py: each answer is the one over rows.

Lost ranges, lineages that were cut and followed by others, rising leader epochs: whatever the rule is asked there, it is
asked again over the same rows in blocks of a random size.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from parallax.domain import resume as resume_module
from parallax.domain import skips as skips_module
from parallax.domain.block_history import BlockHistory
from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.lineage_history import EpochRows
from parallax.domain.resume import Resume
from parallax.domain.skips import SkipRange
from tests.worlds import model_replication
from tests.worlds.block_worlds import CutHistory, side_in_blocks
from tests.worlds.model import ViolationError, options_of, run_long_world, run_world

Question = dict[str, Any]


class _Both:
    """Asks the rule twice, over rows and over blocks, and holds the answers equal."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._resume, self._skip_ranges = resume_module.resume, skips_module.skip_ranges
        self.answers = self.ranges = self.lost = self.cut = 0

    def resume(self, **question: Any) -> Resume:
        answer = self._resume(**question)
        assert self._resume(**self._in_blocks(question)) == answer
        self.answers += 1
        return answer

    def skip_ranges(self, **question: Any) -> list[SkipRange]:
        ranges = self._skip_ranges(**question)
        assert self._skip_ranges(**self._in_blocks(question)) == ranges
        self.ranges += len(ranges)
        return ranges

    def _in_blocks(self, question: Question) -> Question:
        size = self._chance.choice([2, 3, 4, 8, 64])
        for item in (*question["origin"], *question["destination"]):
            self.lost += bool(item.history.lost)
            self.cut += hasattr(item.history, "uncut")
        sides = {side: side_in_blocks(question[side], size) for side in ("origin", "destination")}
        return question | sides


def play(seeds: range, long_seeds: range, monkeypatch: pytest.MonkeyPatch) -> _Both:
    both = _Both(seeds.start)
    monkeypatch.setattr(model_replication, "History", CutHistory)
    monkeypatch.setattr(resume_module, "resume", both.resume)
    monkeypatch.setattr(skips_module, "skip_ranges", both.skip_ranges)
    for seed in seeds:
        run_world(seed, options_of(seed))
    for seed in long_seeds:
        run_long_world(seed)
    return both


@pytest.mark.parametrize("part", range(2))
def test_each_answer_over_blocks_is_the_one_over_rows(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    both = play(range(part * 150, part * 150 + 150), range(part * 20, part * 20 + 20), monkeypatch)
    assert both.answers > 500
    assert both.ranges > 500
    assert both.lost > 100
    assert both.cut > 100


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
        play(range(150), range(100), monkeypatch)
