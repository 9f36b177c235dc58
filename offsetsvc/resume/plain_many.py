"""The resume rule's short cut for many positions of a plain partition at once, over arrays.

It says what `parallax.domain.plain.resume_plainly` says of each position of a group that has not moved there, and which ranges
follow to be skipped: that is the rule, this is arithmetic for a sync job that asks for a hundred thousand positions in a cycle. Where it would
have to look at too much at once, or a limit would cut what it finds, it leaves a position to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offsetsvc.resume.columns import Columns, Flags, Numbers, columns_of
from offsetsvc.resume.skips import Limits
from parallax.domain.block_history import BlockHistory
from parallax.domain.ids import UNKNOWN_EPOCH, SourceId
from parallax.domain.outcome import Outcome
from parallax.domain.place import LogRange
from parallax.domain.plain import PlainPartition, PlainSource

NONE = -1
"""Instead of an offset that there is not."""

MOST_BLOCKS = 64
"""Of a lineage that are looked at together: some 4 MB of arrays."""

_MOST_STRETCHES = 500_000
"""Rows above resume offsets that are looked at together."""

_HIGHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ManySource:
    """How far positions have consumed a source: the next offset after its last record, and of which leader epoch that was.

    Attributes:
        ends: what the origin's rows tell of each leader epoch: each position has consumed it up to there, or to its own next offset.
    """

    source: SourceId
    consumed: Numbers
    epochs: Numbers
    ends: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ManyAnswers:
    """Answers for positions, each a place in every array.

    Attributes:
        resume_offsets: moved to the end of a skip range that they lie in.
        complete_to: as `Resume.complete_to`; `NONE`.
        notes: `bit_of` each that applies; 0 instead of `Outcome.OK`.
        pending: source offsets that were consumed and are not at the destination yet, all sources together.
        sources: by region.
        skip_counts: how many skip ranges each has.
        skip_starts, skip_ends: these ranges, one answer's after the other's.
        answered: for which of the positions all this was found; of others it means nothing.
    """

    resume_offsets: Numbers
    complete_to: Numbers
    notes: Numbers
    pending: Numbers
    sources: Sequence[ManySource]
    skip_counts: Numbers
    skip_starts: Numbers
    skip_ends: Numbers
    answered: Flags

    def packed_skips(self) -> Numbers:
        """Start and end of each range as the distance from the number before it, of each answer's first from 0."""
        bounds = np.stack((self.skip_starts, self.skip_ends), axis=1).reshape(-1)
        distances = np.diff(bounds, prepend=0)
        first = 2 * (np.cumsum(self.skip_counts) - self.skip_counts)[self.skip_counts > 0]
        distances[first] = bounds[first]
        return distances


def bit_of(note: Outcome) -> int:
    """How a note is told in `ManyAnswers.notes`."""
    return 1 << note.value


def resume_many(
    plain: PlainPartition, commits: Numbers, destination_log: LogRange, limits: Limits
) -> ManyAnswers | None:
    """What `resume_plainly` answers to each position; None: the rows are not in blocks.

    Args:
        plain: the partition.
        commits: next offsets at the origin, ascending.
        destination_log: the offsets that the destination's partition holds.
        limits: of skip ranges; where one would cut some off, the position is not answered.

    Raises:
        StoreUnavailableError: a block had to be read, and the index did not answer in time.
    """
    lineages = [_lineages(item) for item in plain.sources]
    if not all(isinstance(history, BlockHistory) for pair in lineages for history in pair):
        return None
    parts: list[ManyAnswers] = []
    waiting = [commits] if len(commits) else []
    while waiting:
        part = waiting.pop()
        found = _Part(plain, lineages, part, destination_log, limits).answers()
        if found is not None:
            parts.append(found)
        elif len(part) > 1:
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
        else:
            parts.append(_unanswered(plain))
    return _joined(plain, parts)


def _lineages(item: PlainSource) -> tuple[BlockHistory, BlockHistory]:
    return item.origin.history, item.destination.history  # type: ignore[return-value]


class _Part:
    """Some positions that follow each other, of which few blocks tell."""

    def __init__(
        self,
        plain: PlainPartition,
        lineages: Sequence[tuple[BlockHistory, BlockHistory]],
        commits: Numbers,
        log: LogRange,
        limits: Limits,
    ) -> None:
        self._plain = plain
        self._lineages = lineages
        self._commits = commits
        self._log = log
        self._limits = limits
        self._notes = np.zeros(len(commits), np.int64)
        self._pending = np.zeros(len(commits), np.int64)
        self._complete_to = np.full(len(commits), _HIGHEST)

    def answers(self) -> ManyAnswers | None:
        """The answers; None: too many blocks tell of them."""
        places: list[Numbers] = []
        told: list[ManySource] = []
        here: list[Numbers] = []
        rows: list[Columns] = []
        for item, (origin, destination) in zip(self._plain.sources, self._lineages, strict=True):
            consumed, epochs = self._consumed(origin) or (None, None)
            if consumed is None or epochs is None:
                return None
            ends = origin.epoch_ends
            told.append(ManySource(item.origin.source, consumed, epochs, ends))
            here.append(_consumed_there(consumed, epochs, ends, destination.epoch_ends))
            found = self._places(item, destination, told[-1], here[-1])
            if found is None:
                return None
            places.append(found[0])
            rows.append(found[1])
        log = self._log
        resume = np.min(places, axis=0)
        self._note(Outcome.CLAMPED_TO_END, resume > log.high_watermark)
        resume = np.maximum(np.minimum(resume, log.high_watermark), log.low_watermark)
        complete_to = np.where(self._complete_to == _HIGHEST, NONE, np.maximum(self._complete_to, resume))
        skips = self._skips(resume, here, rows)
        if skips is None:
            return None
        counts, starts, ends_of, answered = skips
        first = np.cumsum(counts) - counts
        begins_there = np.zeros(len(resume), bool)
        begins_there[counts > 0] = starts[first[counts > 0]] <= resume[counts > 0]
        resume[begins_there] = ends_of[first[begins_there]]
        kept = np.ones(len(starts), bool)
        kept[first[begins_there]] = False
        counts = counts - begins_there
        return ManyAnswers(
            resume,
            np.where(complete_to == NONE, NONE, np.maximum(complete_to, resume)),
            self._notes,
            self._pending,
            told,
            counts,
            starts[kept],
            ends_of[kept],
            answered,
        )

    def _note(self, note: Outcome, where: Flags) -> None:
        self._notes[where] |= bit_of(note)

    def _consumed(self, origin: BlockHistory) -> tuple[Numbers, Numbers] | None:
        """How far the source was consumed at the origin, and of which leader epoch its last record was."""
        commits = self._commits
        first, last = origin.block_by_target(int(commits[0])), origin.block_by_target(int(commits[-1]))
        if last - first >= MOST_BLOCKS:
            return None
        rows = columns_of(origin, first, last)
        floor = rows.targets.searchsorted(commits, "right") - 1
        known, floor = floor >= 0, np.maximum(floor, 0)
        if not len(rows.targets):
            return np.zeros_like(commits), np.full_like(commits, UNKNOWN_EPOCH)
        into, count = commits - rows.targets[floor], rows.counts[floor]
        held = (into > 0) & (count > 0)
        consumed = np.where(held, rows.sources[floor] + np.minimum(into, count), rows.previous[floor])
        consumed = np.where(known, consumed, 0)
        return consumed, np.where(consumed > 0, rows.epochs[floor], UNKNOWN_EPOCH)

    def _places(
        self, item: PlainSource, history: BlockHistory, told: ManySource, consumed_there: Numbers
    ) -> tuple[Numbers, Columns] | None:
        """Where the first record that was not consumed can lie at the destination, and the rows that tell of it."""
        newest, consumed = item.newest, told.consumed
        self._note(Outcome.LINEAGE_CHANGED, consumed_there < np.minimum(consumed, newest.last_record_end))
        here = consumed_there
        below = item.below(self._log.low_watermark)
        if below is not None:
            self._note(Outcome.TRIMMED, here < below[0])
            here = np.maximum(here, below[0])
        rows = _around(history, int(here.min()), int(here.max()))
        if rows is None:
            return None
        floor = np.maximum(rows.sources.searchsorted(here, "right") - 1, 0)
        exact = (rows.sources[floor] <= here) & (here < rows.sources[floor] + rows.counts[floor])
        proven = rows.proven().searchsorted(here, "right") - 1
        by = np.maximum(proven, 0)
        near = rows.targets[by] + np.where(rows.sources[by] > here, 0, rows.counts[by])
        places = np.where(
            exact, rows.targets[floor] + here - rows.sources[floor], np.where(proven < 0, 0, near)
        )
        self._note(Outcome.EARLIEST_FALLBACK, ~exact & (proven < 0))
        pending = consumed > newest.source_end
        last_epoch = history.epoch_ends[-1][0] if history.epoch_ends else UNKNOWN_EPOCH
        pending &= (told.epochs == UNKNOWN_EPOCH) | (last_epoch <= told.epochs)
        self._note(Outcome.PENDING, pending)
        self._pending += np.where(pending, consumed - newest.source_end, 0)
        self._complete_to[pending] = np.minimum(self._complete_to[pending], newest.target_end)
        return places, rows

    def _skips(
        self, resume: Numbers, here: Sequence[Numbers], around: Sequence[Columns]
    ) -> tuple[Numbers, Numbers, Numbers, Flags] | None:
        """How many skip ranges each answer has, where they begin and end, and for which answers that is all."""
        answered = np.ones(len(resume), bool)
        budget = max(1, self._limits.rows // max(1, len(here)))
        stretches: list[tuple[Numbers, Numbers, Numbers]] = []
        for item, (_, history), consumed, rows in zip(
            self._plain.sources, self._lineages, here, around, strict=True
        ):
            first = min(history.block_by_target(int(resume.min())), rows.first)
            if rows.last - first >= MOST_BLOCKS:
                return None
            if first < rows.first:
                rows = columns_of(history, first, rows.last)  # noqa: PLW2901 - the same, and rows before it
            start = np.maximum(rows.targets.searchsorted(resume, "right") - 1, 0)
            stop = np.minimum(
                rows.sources.searchsorted(consumed, "left"),
                rows.targets.searchsorted(item.newest.target_end, "left"),
            )
            number = np.maximum(stop - start, 0)
            number[item.newest.target_end <= resume] = 0
            answered &= number <= budget
            number[~answered] = 0
            if number.sum() > _MOST_STRETCHES and len(resume) > 1:
                return None
            of = np.repeat(np.arange(len(resume)), number)
            at = np.arange(len(of)) + np.repeat(start - (np.cumsum(number) - number), number)
            low = rows.targets[at]
            high = low + np.minimum(rows.counts[at], consumed[of] - rows.sources[at])
            low, high = np.maximum(low, resume[of]), np.minimum(high, item.newest.target_end)
            held = low < high
            stretches.append((of[held], low[held], high[held]))
        of, low, high = (np.concatenate(column) for column in zip(*stretches, strict=True))
        ranges = _merged(of, low, high, len(resume))
        if ranges is None:
            return None
        of, low, high = ranges
        counts = np.bincount(of, minlength=len(resume))
        answered &= counts <= self._limits.skip_ranges
        kept = answered[of]
        return np.where(answered, counts, 0), low[kept], high[kept], answered


def _consumed_there(
    consumed: Numbers,
    epochs: Numbers,
    here: Sequence[tuple[int, int]],
    there: Sequence[tuple[int, int]],
) -> Numbers:
    """As `parallax.domain.progress.consumed_end`: what both sides' leader epochs prove, or offsets alone.

    Each epoch that both know proves the records up to the lower of its ends, as far as they were consumed: so the greatest of these does.
    """
    if not there:
        return consumed
    theirs = dict(there)
    shared = max((min(end, theirs[epoch]) for epoch, end in here if epoch in theirs), default=0)
    proven = np.minimum(consumed, shared)
    ours = dict(here)
    for epoch in set(np.unique(epochs).tolist()) - ours.keys():
        # Of rows whose epoch says nothing of others.
        end = theirs.get(epoch, 0)
        alone = (
            consumed if epoch == UNKNOWN_EPOCH and not ours else np.maximum(proven, np.minimum(consumed, end))
        )
        proven = np.where(epochs == epoch, alone, proven)
    return proven


def _around(history: BlockHistory, lowest: int, highest: int) -> Columns | None:
    """The rows by which `position_of` finds places of source offsets; None: they are in too many blocks."""
    first, last = history.block_by_source(lowest), history.block_by_source(highest)
    while last - first < MOST_BLOCKS:
        rows = columns_of(history, first, last)
        if rows.at_end or rows.run_end > highest:
            return rows
        last += 1
    return None


def _merged(
    of: Numbers, low: Numbers, high: Numbers, answers: int
) -> tuple[Numbers, Numbers, Numbers] | None:
    """Stretches of each answer in as few as possible, in order; None: the numbers are too large for that."""
    if not len(of):
        return of, low, high
    width = int(high.max()) + 2
    if width > _HIGHEST // (answers + 1):
        return None
    low, high = low + of * width, high + of * width
    order = np.argsort(low, kind="stable")
    low, reach = low[order], np.maximum.accumulate(high[order])
    begins = np.flatnonzero(np.concatenate(([True], low[1:] > reach[:-1])))
    ends = np.concatenate((begins[1:], [len(low)])) - 1
    low, high = low[begins], reach[ends]
    of = low // width
    return of, low - of * width, high - of * width


def _unanswered(plain: PlainPartition) -> ManyAnswers:
    nothing, none = np.zeros(1, np.int64), np.empty(0, np.int64)
    sources = [ManySource(item.origin.source, nothing, nothing, ()) for item in plain.sources]
    return ManyAnswers(nothing, nothing, nothing, nothing, sources, nothing, none, none, np.zeros(1, bool))


def _joined(plain: PlainPartition, parts: Sequence[ManyAnswers]) -> ManyAnswers:
    def of(name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([np.empty(0, np.int64), *(getattr(part, name) for part in parts)])

    sources = []
    for place, item in enumerate(plain.sources):
        mine = [part.sources[place] for part in parts]
        sources.append(
            ManySource(
                item.origin.source,
                np.concatenate([np.empty(0, np.int64), *(one.consumed for one in mine)]),
                np.concatenate([np.empty(0, np.int64), *(one.epochs for one in mine)]),
                item.origin.history.epoch_ends,
            )
        )
    return ManyAnswers(
        of("resume_offsets"),
        of("complete_to"),
        of("notes"),
        of("pending"),
        sources,
        of("skip_counts"),
        of("skip_starts"),
        of("skip_ends"),
        np.concatenate([np.empty(0, bool), *(part.answered for part in parts)]),
    )
