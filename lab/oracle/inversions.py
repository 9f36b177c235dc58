"""How differently two aggregate clusters interleave the same records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lab.oracle.logs import TopicLog

_BLOCK = 512


def count_inversions(first: TopicLog, second: TopicLog) -> int:
    """Pairs of records of one partition that the two clusters hold in opposite order.

    Records that only one of them holds don't count.
    """
    places = second.places()
    total = 0
    for partition, records in first.partitions.items():
        there = [
            place[1]
            for placed in records
            if (place := places.get(placed.record)) is not None and place[0] == partition
        ]
        total += _inversions(there)
    return total


def _inversions(values: Sequence[int]) -> int:
    """Pairs ``i < j`` with ``values[i] > values[j]``: counted within blocks, then while merging them."""
    numbers = np.asarray(values, dtype=np.int64)
    blocks = [numbers[start : start + _BLOCK] for start in range(0, len(numbers), _BLOCK)]
    found = sum(int(np.count_nonzero(np.triu(block[:, None] > block[None, :], 1))) for block in blocks)
    blocks = [np.sort(block) for block in blocks]
    while len(blocks) > 1:
        merged = []
        for left, right in zip(blocks[::2], blocks[1::2], strict=False):
            not_greater = int(np.searchsorted(left, right, side="right").sum())
            found += len(left) * len(right) - not_greater
            merged.append(np.sort(np.concatenate((left, right)), kind="stable"))
        blocks = merged + blocks[2 * len(merged) :]
    return found
