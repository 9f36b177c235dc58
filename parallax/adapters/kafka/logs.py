"""Topics and the ends of their logs, asked of brokers and leaders."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from parallax.adapters.kafka.links import UNKNOWN_TOPIC, Link, MovedError
from parallax.domain.ids import TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.place import LogRange
from parallax.errors import ClusterUnavailableError
from parallax.ports.clusters import TopicInfo

LATEST, EARLIEST = -1, -2
_READ_UNCOMMITTED = 0


def read_topics(link: Link) -> dict[TopicName, TopicInfo]:
    """Every topic but internal ones.

    Raises:
        ClusterUnavailableError: no answer in time.
    """
    found = {}
    for topic in link.metadata(None, "listing topics").topics:
        if topic.name.startswith("__") or topic.error_code == UNKNOWN_TOPIC:
            continue  # the latter was deleted just now
        link.check(topic.error_code, f"describing topic {topic.name!r}")
        name = TopicName(topic.name)
        identity = urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("=")
        found[name] = TopicInfo(name, TopicId(identity), len(topic.partitions))
    return found


def read_log_ranges(
    link: Link, items: Collection[TopicPartition], *, patient: bool = True
) -> Mapping[TopicPartition, LogRange]:
    """Log start and high watermark of the partitions; one that does not exist is left out.

    Args:
        link: asks.
        items: the partitions.
        patient: a partition without a leader is worth being asked about again; else it is left out, too.

    Raises:
        MovedError: a partition has no leader now.
        ClusterUnavailableError: no answer in time.
    """
    if not patient:
        leaderless = set(link.leaderless(items, "reading offsets"))
        items = [item for item in items if item not in leaderless]
    lows, highs = (_offsets(link, items, which) for which in (EARLIEST, LATEST))
    return {
        item: LogRange(TargetOffset(lows[item]), TargetOffset(highs[item]))
        for item in items
        if item in lows and item in highs
    }


def read_offset_at(link: Link, place: TopicPartition, timestamp_ms: int) -> TargetOffset | None:
    """The first offset whose record is of that time or later; without one, the end as it was before the search.

    Raises:
        ClusterUnavailableError: no answer in time.
    """
    # In this order: what is appended between the two questions lies at or above the end.
    end = _offsets(link, [place], LATEST)
    found = _offsets(link, [place], timestamp_ms, otherwise=end).get(place)
    return None if found is None else TargetOffset(found)


def list_offsets(items: Iterable[TopicPartition], which: int, *, timeout_ms: int) -> Any:
    """ListOffsets with isolation level 0, by which `LATEST` is the high watermark. ``which`` may be a timestamp, too.

    Level 1 would give the last stable offset, below which an open transaction of another source may already hold
    records.
    """
    asked = ListOffsetsRequest.ListOffsetsTopic
    topics: dict[str, list[Any]] = {}
    for item in items:
        part = asked.ListOffsetsPartition(partition_index=item.partition, timestamp=which)
        topics.setdefault(str(item.topic), []).append(part)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=_READ_UNCOMMITTED,
        topics=[asked(name=name, partitions=parts) for name, parts in topics.items()],
        timeout_ms=timeout_ms,
        max_version=10,
    )


def _offsets(
    link: Link,
    items: Collection[TopicPartition],
    which: int,
    otherwise: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[TopicPartition, int]:
    """Offsets by partition; ``otherwise`` has those of partitions without a record of that time."""
    found = {}
    for node, places in link.by_leader(items, "reading offsets").items():
        left_ms = max(1, round(link.deadline.remaining_s * 1_000))
        answer = link.ask(node, list_offsets(places, which, timeout_ms=left_ms), "reading offsets")
        for topic in answer.topics:
            for part in topic.partitions:
                place = TopicPartition(TopicName(topic.name), part.partition_index)
                doing = f"reading offsets of {place}"
                if part.error_code == UNKNOWN_TOPIC:
                    raise MovedError(f"{link.cluster}: {doing}: its leader does not know it")
                link.check(part.error_code, doing)
                offset = part.offset if part.offset >= 0 else otherwise.get(place, -1)
                if offset < 0:
                    raise ClusterUnavailableError(f"{link.cluster}: {doing}: an answer without an offset")
                found[place] = offset
    return found
