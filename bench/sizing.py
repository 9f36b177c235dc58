"""How much data a side gets, so that a round takes long enough and not too long. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

_SPARE_S = 2.0
_MUCH_TOO_LONG = 2.5
_MOST_BYTES = 6 * 2**30
_LEAST_BATCHES = 20
_PARALLAX_OF_BEST = 0.4
_MIRRORMAKER_OF_BEST = 0.2


@dataclass(frozen=True, slots=True)
class Need:
    """What a round of one data set needs.

    Attributes:
        seconds: how long copying shall take, warming up included.
        partitions: of the topic.
        batch_records, batch_bytes: means of the data set's batches (bytes as sent).
    """

    seconds: float
    partitions: int
    batch_records: float
    batch_bytes: float

    def records(self, records_per_s: float) -> int:
        """Records per partition at that speed of all partitions together; no more than the disk is given."""
        wanted = records_per_s * (self.seconds + _SPARE_S) / self.partitions
        most = _MOST_BYTES / self.partitions / self.batch_bytes * self.batch_records
        return math.ceil(max(min(wanted, most), _LEAST_BATCHES * self.batch_records))

    def fits(self, records: int, records_per_s: float) -> bool:
        """Whether so many records per partition, as they lie there, are enough at that speed, and not far too many."""
        least = min(self.records(records_per_s), records_per_s * self.seconds / self.partitions)
        return least <= records <= _MUCH_TOO_LONG * max(least, _LEAST_BATCHES * self.batch_records)


def first_guess(side: str, limit_records_per_s: float, best_limit_records_per_s: float) -> float:
    """The speed to expect of a side before its first round; too much only costs time.

    Args:
        side: which one.
        limit_records_per_s: how fast the broker takes the data set's batches.
        best_limit_records_per_s: how fast it takes the best of the row's data sets: a side that makes batches of its
            own is not bound by the smaller ones.
    """
    if side == "parallax":
        return max(limit_records_per_s, _PARALLAX_OF_BEST * best_limit_records_per_s)
    return _MIRRORMAKER_OF_BEST * best_limit_records_per_s
