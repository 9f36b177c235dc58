"""Logs of a topic as tests write them down."""

from __future__ import annotations

from collections.abc import Iterable

from lab.oracle.logs import Placed, TopicLog


def topic_log(cluster: str, records: Iterable[tuple[int, Placed]]) -> TopicLog:
    """A log of hand-made records, each with its partition."""
    partitions: dict[int, list[Placed]] = {}
    for partition, placed in records:
        partitions.setdefault(partition, []).append(placed)
    return TopicLog(cluster, {partition: tuple(found) for partition, found in partitions.items()})
