"""Topics and their logs, asked of brokers and leaders: where a log begins and ends, and which time is where.

Kafka finds offsets by time (ListOffsets), but tells the time of an offset only with the records themselves: in the
headers of their batches.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest

from parallax.adapters.kafka.links import UNKNOWN_TOPIC, Link, MovedError
from parallax.domain.ids import UNKNOWN_EPOCH, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.place import KeptEpoch, LogRange
from parallax.errors import ClusterUnavailableError
from parallax.ports.clusters import PositionTime, TopicInfo

LATEST, EARLIEST = -1, -2
NOT_ALLOWED = 29
"""Kafka's TOPIC_AUTHORIZATION_FAILED, where it is an answer and no error."""
_READ_AND_WRITE = frozenset({3, 4})
"""Kafka's numbers of operations."""
_READ_UNCOMMITTED = 0
_CONSUMER = -1
"""Neither a follower nor a debugger."""
_OUT_OF_RANGE = 1
_FETCH_BYTES = 64 * 1024
"""A broker sends the first batch whole, however large it is."""
_NEAR = 64
"""So many offsets below the end of a log are looked at first: control records lie there, at the end of transactions."""
_WIDER = 8

_HEADER = struct.Struct(">qiibIhiqq")
"""The beginning of a record batch (version 2): offset, length, epoch, version, checksum, attributes, offsets, times."""
_LENGTH_END = 12
_MAGIC = 2
_LOG_APPEND_TIME, _CONTROL, _DELETE_HORIZON = 0x08, 0x20, 0x40


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


def read_hidden(link: Link, topics: Collection[TopicName]) -> frozenset[TopicName]:
    """Those of the topics that this client may not see: the cluster does not say whether they exist.

    Raises:
        ClusterUnavailableError: no answer in time.
    """
    answer = link.metadata(topics, "looking for topics")
    return frozenset(TopicName(topic.name) for topic in answer.topics if topic.error_code == NOT_ALLOWED)


def read_usable(link: Link, topics: Collection[TopicName]) -> frozenset[TopicName]:
    """Those of the topics that this client may read and write to.

    Raises:
        ClusterUnavailableError: no answer in time.
    """
    answer = link.metadata(topics, "asking for rights to topics", rights=True)
    return frozenset(
        TopicName(topic.name)
        for topic in answer.topics
        if not topic.error_code and set(topic.authorized_operations or ()) >= _READ_AND_WRITE
    )


def read_cluster_id(link: Link) -> str:
    """The cluster's id; empty if it does not say.

    Raises:
        ClusterUnavailableError: no answer in time.
    """
    return str(link.metadata((), "asking for the cluster's id").cluster_id or "")


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
    items = _worth_asking(link, items, "reading offsets", patient=patient)
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


def list_offsets_request(items: Iterable[TopicPartition], which: int, *, timeout_ms: int) -> Any:
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
        answer = link.ask(node, list_offsets_request(places, which, timeout_ms=left_ms), "reading offsets")
        for topic in answer.topics:
            for part in topic.partitions:
                place = TopicPartition(TopicName(topic.name), part.partition_index)
                doing = f"reading offsets of {place}"
                _check_leader(link, part.error_code, doing)
                offset = part.offset if part.offset >= 0 else otherwise.get(place, -1)
                if offset < 0:
                    raise ClusterUnavailableError(f"{link.cluster}: {doing}: an answer without an offset")
                found[place] = offset
    return found


def _worth_asking(
    link: Link, items: Collection[TopicPartition], doing: str, *, patient: bool
) -> Collection[TopicPartition]:
    """Those of the partitions that have a leader, or all where there is time to wait for one."""
    if patient:
        return items
    leaderless = set(link.leaderless(items, doing))
    return [item for item in items if item not in leaderless]


def _check_leader(link: Link, code: int, doing: str) -> None:
    if code == UNKNOWN_TOPIC:
        raise MovedError(f"{link.cluster}: {doing}: its leader does not know it")
    link.check(code, doing)


def read_kept_epochs(
    link: Link, epochs: Mapping[TopicPartition, int], *, patient: bool = True
) -> Mapping[TopicPartition, KeptEpoch]:
    """What the leaders' logs have of a leader epoch of each partition; what does not exist or is not known is left out.

    Args:
        link: asks.
        epochs: by partition.
        patient: as for `read_log_ranges`.

    Raises:
        MovedError: a partition has no leader now.
        ClusterUnavailableError: no answer in time.
    """
    doing = "asking where leader epochs end"
    items = _worth_asking(link, list(epochs), doing, patient=patient)
    found = {}
    for node, places in link.by_leader(items, doing).items():
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        topics: dict[TopicName, list[Any]] = {}
        for place in places:
            part = asked.OffsetForLeaderPartition(
                partition=place.partition, current_leader_epoch=UNKNOWN_EPOCH, leader_epoch=epochs[place]
            )
            topics.setdefault(place.topic, []).append(part)
        request = OffsetForLeaderEpochRequest(
            replica_id=_CONSUMER,
            topics=[asked(topic=str(topic), partitions=parts) for topic, parts in topics.items()],
            min_version=3,  # the first that tells a consumer from a follower
            max_version=4,
        )
        for topic in link.ask(node, request, doing).topics:
            for part in topic.partitions:
                place = TopicPartition(TopicName(topic.topic), part.partition)
                _check_leader(link, part.error_code, f"{doing} in {place}")
                if part.leader_epoch >= 0 and part.end_offset >= 0:
                    found[place] = KeptEpoch(part.leader_epoch, TargetOffset(part.end_offset))
    return found


# --- the time of a position ------------------------------------------------------------------------------------


class _Batch(NamedTuple):
    """What a batch's header says; ``timestamp_ms`` is its first record's, None where the header does not tell it."""

    base_offset: int
    next_offset: int
    is_control: bool
    timestamp_ms: int | None


def read_time_at(link: Link, place: TopicPartition, position: TargetOffset) -> PositionTime | None:
    """When the position is; None: it lies outside of the log, or no record there bears a timestamp.

    Raises:
        ConfigError: this client may not read the topic.
        ClusterUnavailableError: no answer in time.
    """
    log = _fetch(link, place, position)
    if log is None:
        return None
    at_or_above = (
        batch for batch in _batches(link, place, position, log.high_watermark) if not batch.is_control
    )
    found, below = next(at_or_above, None), False
    reach, start = _NEAR, int(position)
    while found is None and start > log.log_start_offset:
        start, below = max(log.log_start_offset, position - reach), True
        records = (batch for batch in _batches(link, place, start, position) if not batch.is_control)
        found, reach = max(records, default=None), reach * _WIDER
    if found is None or found.timestamp_ms is None:
        return None
    return PositionTime(found.timestamp_ms, below)


def _batches(link: Link, place: TopicPartition, start: int, end: int) -> Iterator[_Batch]:
    """The batches that hold offsets of ``[start, end)``, in order."""
    while start < end:
        part = _fetch(link, place, start)
        behind = start
        for batch in _headers(b"" if part is None else part.records or b""):
            if batch.base_offset >= end:
                return
            yield batch
            behind = batch.next_offset
        if behind <= start:
            return
        start = behind


def _fetch(link: Link, place: TopicPartition, start: int) -> Any:
    """The leader's answer from an offset on; None if the partition does not exist or its log does not hold that."""
    doing = f"reading timestamps of {place}"
    asked = FetchRequest.FetchTopic
    part = asked.FetchPartition(
        partition=place.partition, fetch_offset=start, partition_max_bytes=_FETCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_FETCH_BYTES,
        isolation_level=_READ_UNCOMMITTED,
        topics=[asked(topic=str(place.topic), partitions=[part])],
        min_version=5,  # the first to tell the log's start
        max_version=12,  # the last to go by names
    )
    for node in link.by_leader([place], doing):
        answer = link.ask(node, request, doing)
        link.check(answer.error_code, doing)
        for found in (item for topic in answer.responses for item in topic.partitions):
            if found.error_code == _OUT_OF_RANGE:
                return None
            _check_leader(link, found.error_code, doing)
            return found
    return None


def _headers(buffer: bytes) -> Iterator[_Batch]:
    """The headers of fetched batches, up to the first that is cut off or of an older format."""
    begin = 0
    while begin + _HEADER.size <= len(buffer):
        base, length, _epoch, magic, _crc, attributes, last_delta, first_ms, greatest_ms = (
            _HEADER.unpack_from(buffer, begin)
        )
        if magic != _MAGIC or length <= 0:
            return
        timestamp_ms = greatest_ms if attributes & _LOG_APPEND_TIME else first_ms
        # Compaction puts a time of its own where the first record's was.
        unknown = timestamp_ms < 0 or attributes & (_DELETE_HORIZON | _LOG_APPEND_TIME) == _DELETE_HORIZON
        yield _Batch(
            base, base + last_delta + 1, bool(attributes & _CONTROL), None if unknown else timestamp_ms
        )
        begin += _LENGTH_END + length
