"""How differently two aggregate clusters interleave the same records."""

from __future__ import annotations

from collections.abc import Sequence

from devstack.oracle.logs import TopicLog


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
    """Pairs ``i < j`` with ``values[i] > values[j]``, counted in a Fenwick tree over the ranks."""
    ranks = {value: rank for rank, value in enumerate(sorted(set(values)), start=1)}
    tree = [0] * (len(ranks) + 1)
    found = 0
    for seen, value in enumerate(values):
        rank = ranks[value]
        not_greater, node = 0, rank
        while node:
            not_greater += tree[node]
            node -= node & -node
        found += seen - not_greater
        node = rank
        while node < len(tree):
            tree[node] += 1
            node += node & -node
    return found
