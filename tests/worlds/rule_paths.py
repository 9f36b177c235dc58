"""All ways to an answer of the resume rule, held against the rule over rows: blocks, the short cut, and arrays of positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from offsetsvc.resume import plain_many
from offsetsvc.resume.plain_many import ManyAnswers
from offsetsvc.resume.skips import Limits
from parallax.domain import plain as plain_module
from parallax.domain import resume as resume_module
from parallax.domain import skips as skips_module
from parallax.domain.ids import SourceId, SourceOffset, TargetOffset
from parallax.domain.outcome import Outcome
from parallax.domain.progress import SourcePosition, consumed_spans, with_known_epochs
from parallax.domain.resume import Resume
from parallax.domain.skips import SkipRange
from tests.worlds import model_replication
from tests.worlds.block_worlds import CutHistory, side_in_blocks

RULE = resume_module.resume
SKIP_RANGES = skips_module.skip_ranges
NO_LIMITS = Limits(1 << 30, 1 << 30)
_BLOCK_ROWS = (2, 3, 4, 8, 64)
_OTHER_POSITIONS = 5

Question = dict[str, Any]


# --- the short cut -------------------------------------------------------------------------------------------------


def short_cut(question: Question, rule: Resume | None = None) -> Resume | None:
    """The short cut's answer, held against the rule's; None: it leaves the question to the rule."""
    plain = plain_module.plain_partition(question["regions"], question["origin"], question["destination"])
    if plain is None:
        return None
    asked = {name: question[name] for name in ("commit", "destination_log", "progress")}
    found = plain_module.resume_plainly(plain, **asked)
    assert found is None or found == (rule or RULE(**question))
    if found is not None:
        _assert_consumed_there(question, found)
    return found


def _assert_consumed_there(question: Question, found: Resume) -> None:
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


# --- arrays --------------------------------------------------------------------------------------------------------


def asked_by_rule(question: Question, commit: int) -> tuple[Resume, list[SkipRange]]:
    """What the rule says at a position, and which ranges are to be skipped."""
    found = RULE(**question | {"commit": TargetOffset(commit)})
    ranges = SKIP_RANGES(
        positions={item.source: item.consumed for item in found.sources},
        origin=question["origin"],
        destination=question["destination"],
        start=found.resume_offset,
        end=TargetOffset(1 << 62),
    )
    return found, ranges


def answers_of(many: ManyAnswers) -> Iterator[dict[str, Any]]:
    """Each answer of arrays in plain values."""
    ends = np.cumsum(many.skip_counts)
    for place in range(len(many.resume_offsets)):
        own = slice(ends[place] - many.skip_counts[place], ends[place])
        yield {
            "resume_offset": int(many.resume_offsets[place]),
            "complete_to": int(many.complete_to[place]),
            "notes": int(many.notes[place]),
            "pending": int(many.pending[place]),
            "skips": list(zip(many.skip_starts[own].tolist(), many.skip_ends[own].tolist(), strict=True)),
            "consumed": [_position(item, place) for item in many.sources],
        }


def _position(item: plain_many.ManySource, place: int) -> tuple[SourceId, SourcePosition]:
    consumed = SourceOffset(int(item.consumed[place]))
    ends = tuple((epoch, SourceOffset(min(end, consumed))) for epoch, end in item.ends)
    return item.source, SourcePosition(int(item.epochs[place]), consumed, ends)


def by_the_rule(found: Resume, ranges: Sequence[SkipRange]) -> dict[str, Any]:
    """The same of what the rule says."""
    first, start = list(ranges), found.resume_offset
    if first and first[0].start <= start:
        start = first.pop(0).end
    return {
        "resume_offset": start,
        "complete_to": plain_many.NONE if found.complete_to is None else max(found.complete_to, start),
        "notes": sum(plain_many.bit_of(note) for note in found.notes if note is not Outcome.OK),
        "pending": sum(end - begin for begin, end in (it.pending for it in found.sources if it.pending)),
        "skips": [tuple(item) for item in first],
        "consumed": [(item.source, item.consumed) for item in found.sources],
    }


# --- in worlds -----------------------------------------------------------------------------------------------------


class RulePaths:
    """What a world asks the rule over rows it asks in all other ways too: at the group's position, where it is plain at others.

    Attributes:
        seen: how often what was compared, by name.

    Args:
        seed: decides what is drawn.
        share: of the questions that are not plain, so many are asked over blocks.
    """

    def __init__(self, seed: int, share: float = 1.0) -> None:
        self._chance, self._share = Random(seed), share
        self.seen: Counter[str] = Counter()

    def resume(self, **question: Any) -> Resume:
        """The rule's answer, which all other ways give too."""
        found = RULE(**question)
        plain = plain_module.plain_partition(question["regions"], question["origin"], question["destination"])
        in_blocks = self._in_blocks(question, always=plain is not None)
        if in_blocks is not None:
            assert RULE(**in_blocks) == found
            self.seen["answers over blocks"] += 1
        if plain is None or in_blocks is None:
            self.seen["left to the rule"] += 1
            return found
        ends = [item.history.newest.target_end for item in question["origin"] if item.history.rows]
        others = [self._chance.randint(0, max(ends, default=0) + 3) for _ in range(_OTHER_POSITIONS)]
        for commit in (question["commit"], *others):
            at = {"commit": TargetOffset(commit)}
            said = RULE(**question | at)
            for asked in (question | at, in_blocks | at):
                self.seen["by the short cut"] += short_cut(asked, said) is not None
        self._ask_arrays(question, in_blocks, sorted({question["commit"], *others}))
        return found

    def skip_ranges(self, **question: Any) -> list[SkipRange]:
        """The ranges over rows, which those over blocks are too."""
        ranges = SKIP_RANGES(**question)
        in_blocks = self._in_blocks(question)
        if in_blocks is not None:
            assert SKIP_RANGES(**in_blocks) == ranges
            self.seen["skip ranges over blocks"] += len(ranges)
        return ranges

    def _in_blocks(self, question: Question, *, always: bool = False) -> Question | None:
        """The question over blocks; None: it is not asked so, for making blocks takes longer than the rule."""
        if not always and self._chance.random() >= self._share:
            return None
        for item in (*question["origin"], *question["destination"]):
            self.seen["lost ranges"] += bool(item.history.lost)
            self.seen["cut lineages"] += hasattr(item.history, "uncut")
        size = self._chance.choice(_BLOCK_ROWS)
        return question | {side: side_in_blocks(question[side], size) for side in ("origin", "destination")}

    def _ask_arrays(self, question: Question, in_blocks: Question, commits: Sequence[int]) -> None:
        """Arrays answer those that have not moved before."""
        plain = plain_module.plain_partition(
            in_blocks["regions"], in_blocks["origin"], in_blocks["destination"]
        )
        if plain is None:
            return
        found = plain_many.resume_many(
            plain, np.array(commits, np.int64), question["destination_log"], NO_LIMITS
        )
        if found is None:
            return
        unmoved = question | {"progress": None}
        for commit, answer, is_answered in zip(commits, answers_of(found), found.answered, strict=True):
            if is_answered:
                assert answer == by_the_rule(*asked_by_rule(unmoved, commit))
                self.seen["by arrays"] += 1


@contextmanager
def asking_all_paths(seed: int, share: float = 1.0) -> Iterator[RulePaths]:
    """Let the worlds that are played meanwhile ask in all ways; where one says something else, they are violated."""
    paths = RulePaths(seed, share)
    with (
        patch.object(model_replication, "History", CutHistory),
        patch.object(resume_module, "resume", paths.resume),
        patch.object(skips_module, "skip_ranges", paths.skip_ranges),
    ):
        yield paths
