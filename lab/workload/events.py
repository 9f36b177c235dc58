"""Trip events: every record carries the region that produced it and its number there.

The number is what the oracle counts by. A producer numbers what it sends, aborted records included, and never uses
a number twice: a record that turns up unasked, twice or out of order shows by itself, without any offset.
"""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

_EVENTS = ("requested", "accepted", "arrived", "started", "completed")
_EVENTS_PER_TRIP = len(_EVENTS)

_BEGINNING = re.compile(rb'\{"region":"([^"]+)","seq":(\d+),')
"""An oracle reads a million events: all of the JSON would take it ten times as long."""


class RecordId(NamedTuple):
    """Which record it is, wherever it is found."""

    region: str
    seq: int


class MalformedEventError(ValueError):
    """A record that no producer of ours has written."""


def trip_event(region: str, seq: int, at_ms: int, draw: Random) -> tuple[bytes, bytes]:
    """Key and value (JSON, about 170 bytes) of one record.

    Args:
        region: where it is produced.
        seq: its number there.
        at_ms: when the event happened, milliseconds since the Unix epoch.
        draw: chooses place and fare.
    """
    trip = f"{region}-{seq // _EVENTS_PER_TRIP:07d}"
    value = (
        f'{{"region":"{region}","seq":{seq},"trip":"{trip}","event":"{_EVENTS[seq % _EVENTS_PER_TRIP]}",'
        f'"rider":"r{draw.randrange(10_000_000):07d}","driver":"d{draw.randrange(100_000):05d}","lat":{37 + draw.random():.6f},"lon":{-122 - draw.random():.6f},'
        f'"fare_cents":{draw.randrange(300, 9_000)},"at_ms":{at_ms}}}'
    )
    return trip.encode(), value.encode()


def record_id(value: bytes | None) -> RecordId:
    """Which record this value is.

    Raises:
        MalformedEventError: the value is no trip event.
    """
    found = _BEGINNING.match(value or b"")
    if found is None:
        raise MalformedEventError(f"not a trip event: {value!r}")
    return RecordId(found[1].decode(), int(found[2]))
