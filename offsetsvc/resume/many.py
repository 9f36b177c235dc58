"""Answers for many positions of a partition at once, of groups that have not moved to where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from offsetsvc.resume.columns import Flags, Numbers
from offsetsvc.resume.partition import Question
from offsetsvc.resume.plain_many import NONE, ManyAnswers, bit_of, resume_many
from offsetsvc.resume.plans import PartitionPlan
from parallax.client.messages import NO_COMMIT
from parallax.domain.ids import TopicPartition
from parallax.domain.outcome import Outcome

_MOST_RANGES = 1_000_000
"""Skip ranges of a partition's answers in one message, some 5 MB; further positions are left out."""

_OF_A_START = (Outcome.EARLIEST_FALLBACK, Outcome.TRIMMED, Outcome.NEVER_DELIVERED)
"""What the rows say of a group that has consumed nothing: it starts at the log's beginning, whatever that is."""


@dataclass(frozen=True, slots=True)
class ManyMapped:
    """Answers for positions of a partition.

    Attributes:
        topic_partition: the partition.
        question: about it; its commit is nobody's. None: rows that it takes can't be read.
        answers: one for each position; None: none can be answered.
        positions: how many there were.
        origin_known_to: as `Resume.origin_known_to`.
    """

    topic_partition: TopicPartition
    question: Question | None
    answers: ManyAnswers | None
    positions: int
    origin_known_to: int

    @property
    def left_out(self) -> Sequence[int]:
        """The places of positions that are not answered."""
        if self.answers is None:
            return range(self.positions)
        found: list[int] = np.flatnonzero(~self.answers.answered).tolist()
        return found

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """How many answers there are of each outcome."""
        if self.answers is None:
            return {}
        notes, counts = np.unique(self.answers.notes[self.answers.answered], return_counts=True)
        found: Counter[Outcome] = Counter()
        for bits, count in zip(notes.tolist(), counts.tolist(), strict=True):
            found[Outcome(bits.bit_length() - 1) if bits else Outcome.OK] += count
        return found


def answer_many(question: Question, plan: PartitionPlan, positions: Sequence[int], now_ms: int) -> ManyMapped:
    """What the resume rule answers to each position as the commit of a group that has not moved; left out where it is not plain.

    Args:
        question: about the partition.
        plan: made of `Question.plan`.
        positions: next offsets at the origin, ascending, each once; `NO_COMMIT` first.
        now_ms: the wall clock.

    Raises:
        StoreUnavailableError: the index did not answer in time.
    """
    origin, destination = question.origin.log, question.destination.log
    partition = question.topic_partition.partition
    if (
        plan.plain is None
        or not plan.plain_alone
        or question.own.at_all
        or origin is None
        or destination is None
        or question.origin.lineages.truncations(partition)
    ):
        return ManyMapped(question.topic_partition, question, None, len(positions), NONE)
    asked = np.array(positions, np.int64)
    without = asked == NO_COMMIT
    commits = np.minimum(np.maximum(asked, 0), origin.high_watermark)
    found = resume_many(plan.plain, commits, destination, question.limits)
    if found is not None:
        shared = sum(bit_of(note) for note in question.notes if note is not Outcome.OK)
        notes = found.notes | shared | _stale(question, plan, commits, without, now_ms)
        notes[asked > commits] |= bit_of(Outcome.CLAMPED_TO_END)
        found = replace(found, notes=notes)
        if without.any():
            found = _from_the_start(found, without, destination.low_watermark)
            if question.starts_at_end:
                found = replace(found, answered=found.answered & ~without)
        found = _within_a_message(found)
    return ManyMapped(question.topic_partition, question, found, len(positions), plan.plain.origin_known_to)


def _stale(question: Question, plan: PartitionPlan, commits: Numbers, without: Flags, now_ms: int) -> Numbers:
    """STALE, where rows that would matter are missing for longer than a healthy replicator takes."""
    bound = question.stale_after_ms
    sources = [] if plan.plain is None else [item.origin.source.region for item in plan.plain.sources]
    there = [plan.newest_at_destination.get(region) for region in sources]
    if any(item is not None and now_ms - item.committed_at_ms > bound for item in there):
        return np.full(len(commits), bit_of(Outcome.STALE))
    silent = [
        item.row.target_end
        for item in plan.newest_at_origin.values()
        if now_ms - item.committed_at_ms > bound
    ]
    behind = ~without & (commits > min(silent)) if silent else np.zeros(len(commits), bool)
    return np.where(behind, bit_of(Outcome.STALE), 0)


def _from_the_start(found: ManyAnswers, without: Flags, low_watermark: int) -> ManyAnswers:
    """The answers, where a group without a commit begins as the policy says."""
    notes, resume = found.notes.copy(), found.resume_offsets.copy()
    notes[without] &= ~sum(map(bit_of, _OF_A_START))
    notes[without] |= bit_of(Outcome.NO_COMMIT)
    resume[without] = low_watermark
    kept = ~np.repeat(without, found.skip_counts)
    return replace(
        found,
        notes=notes,
        resume_offsets=resume,
        complete_to=np.where(
            without & (found.complete_to != NONE), np.maximum(found.complete_to, resume), found.complete_to
        ),
        skip_counts=np.where(without, 0, found.skip_counts),
        skip_starts=found.skip_starts[kept],
        skip_ends=found.skip_ends[kept],
    )


def _within_a_message(found: ManyAnswers) -> ManyAnswers:
    """The answers, but for those whose skip ranges would make a message too large."""
    fitting = np.cumsum(found.skip_counts) <= _MOST_RANGES
    if fitting.all():
        return found
    kept = np.repeat(fitting, found.skip_counts)
    return replace(
        found,
        skip_counts=np.where(fitting, found.skip_counts, 0),
        skip_starts=found.skip_starts[kept],
        skip_ends=found.skip_ends[kept],
        answered=found.answered & fitting,
    )
