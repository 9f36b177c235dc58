"""Is an answer right? Held against where every record lies in both aggregate clusters, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.oracle.logs import Placed
from lab.workload.events import RecordId

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Violation:
    """An answer that would harm the group.

    Attributes:
        next_offset: the group's position that the answer is for.
        lost: unconsumed records below the answer or in a skip range, some of them.
        redelivered: consumed records from the answer on that no skip range holds, some of them.
    """

    partition: int
    next_offset: int
    lost: tuple[RecordId, ...]
    redelivered: tuple[RecordId, ...]


class TrueMapping:
    """One partition as both aggregate clusters hold it.

    Args:
        partition: its number.
        origin: its records where the group was.
        destination: its records where the group goes.
    """

    _EXAMPLES = 3

    def __init__(self, partition: int, origin: Sequence[Placed], destination: Sequence[Placed]) -> None:
        at_origin = {placed.record: placed.record_offset for placed in origin}
        self._partition = partition
        self._records = [placed.record for placed in destination]
        self._places: npt.NDArray[np.int64] = np.array(
            [placed.record_offset for placed in destination], dtype=np.int64
        )
        # Where the record of each place lies in the origin: it is consumed once the group is beyond that.
        self._origin_places: npt.NDArray[np.int64] = np.array(
            [at_origin.get(placed.record, _NEVER) for placed in destination], dtype=np.int64
        )
        self._size = int(self._places[-1]) + 2 if len(destination) else 1

    def check(
        self, next_offset: int, resume_offset: int, skip_ranges: Sequence[tuple[int, int]]
    ) -> Violation | None:
        """Hold one answer against the truth.

        Args:
            next_offset: the group has consumed every record of the origin below.
            resume_offset: where it would go on in the destination.
            skip_ranges: what it would skip there: starts and ends, ends excluded.
        """
        consumed = self._origin_places < next_offset
        passed = (self._places < resume_offset) | self._inside(skip_ranges)
        lost, redelivered = ~consumed & passed, consumed & ~passed
        if not lost.any() and not redelivered.any():
            return None
        return Violation(self._partition, next_offset, self._some(lost), self._some(redelivered))

    def _inside(self, ranges: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
        if not ranges:
            return np.zeros(len(self._places), dtype=np.bool_)
        bounds = np.clip(np.array(ranges, dtype=np.int64), 0, self._size)
        depth = np.bincount(bounds[:, 0], minlength=self._size + 1).astype(np.int64)
        depth -= np.bincount(bounds[:, 1], minlength=self._size + 1)
        inside: npt.NDArray[np.bool_] = np.cumsum(depth)[self._places] > 0
        return inside

    def _some(self, which: npt.NDArray[np.bool_]) -> tuple[RecordId, ...]:
        return tuple(self._records[int(index)] for index in np.flatnonzero(which)[: self._EXAMPLES])
