"""When a position is: the timestamps that record batches bear in their headers, fetched of leaders.

Kafka finds offsets by time (ListOffsets), but tells the time of an offset only with the records themselves.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest

from parallax.adapters.kafka.links import UNKNOWN_TOPIC, Link, MovedError
from parallax.domain.ids import TargetOffset, TopicPartition
from parallax.ports.clusters import PositionTime

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
        isolation_level=0,
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
            if found.error_code == UNKNOWN_TOPIC:
                raise MovedError(f"{link.cluster}: {doing}: its leader does not know it")
            link.check(found.error_code, doing)
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
