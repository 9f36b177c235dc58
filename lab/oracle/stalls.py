"""How long readers stood still after their writers were killed in the middle of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lab.workload.delivered import Delivery


def stalls_s(
    deliveries: Iterable[Delivery], stable_ends: Mapping[int, int], killed_at_ms: int
) -> dict[int, float | None]:
    """Seconds from the kill to the first record that a reader got from beyond the unfinished transaction.

    Args:
        deliveries: of a read_committed reader of the cluster.
        stable_ends: the last stable offset, after the kill, of each partition that an unfinished transaction holds.
        killed_at_ms: when the writers were killed, milliseconds since the Unix epoch.

    Returns:
        By partition; None where the reader never got beyond it.
    """
    found: dict[int, float | None] = dict.fromkeys(stable_ends)
    for delivery in deliveries:
        held = stable_ends.get(delivery.partition)
        if held is None or delivery.record_offset < held or found[delivery.partition] is not None:
            continue
        found[delivery.partition] = max(0, delivery.at_ms - killed_at_ms) / 1_000
    return found
