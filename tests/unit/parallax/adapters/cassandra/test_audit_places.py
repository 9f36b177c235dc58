"""Where entries of the audit lie among each other."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta

from cassandra.util import max_uuid_from_time, min_uuid_from_time, uuid_from_time

from parallax.adapters.cassandra.audit import place_of

MOMENT = datetime(2023, 11, 14, 12, 0, 0, 3_000, tzinfo=UTC)


def entry_at(moment: datetime, chance: random.Random) -> uuid.UUID:
    entry: uuid.UUID = uuid_from_time(moment, chance.randrange(1 << 48), chance.randrange(1 << 14))
    return entry


def test_what_is_of_a_moment_lies_between_its_first_place_and_its_last() -> None:
    """One in some hundred entries would lie before the first one if bytes were taken as they are written."""
    chance = random.Random(7)
    first, last = place_of(min_uuid_from_time(MOMENT)), place_of(max_uuid_from_time(MOMENT))
    entries = [entry_at(MOMENT, chance) for _ in range(2_000)]
    assert all(first <= place_of(entry) <= last for entry in entries)
    assert any(entry.bytes < min_uuid_from_time(MOMENT).bytes for entry in entries)


def test_time_decides_first() -> None:
    chance = random.Random(8)
    for _ in range(200):
        earlier = entry_at(MOMENT - timedelta(microseconds=1), chance)
        assert place_of(earlier) < place_of(entry_at(MOMENT, chance))
