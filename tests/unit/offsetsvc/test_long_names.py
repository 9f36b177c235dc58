"""Names and reasons of any length: refused before anything is asked or stored."""

from __future__ import annotations

import pytest

from offsetsvc.names import MOST_GROUP_BYTES, group_named
from offsetsvc.primaries import MOST_REASON_CHARACTERS
from parallax.domain.ids import GroupName, RegionName
from parallax.domain.primary import Change
from parallax.errors import InvalidNameError
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import World


@pytest.mark.parametrize("name", ["g" * (10 << 20), "ö" * (MOST_GROUP_BYTES // 2 + 1)])
def test_a_group_has_a_name_that_kafka_takes(name: str) -> None:
    with pytest.raises(InvalidNameError, match=r"longer than 32767 bytes") as refused:
        group_named(name)
    assert len(str(refused.value)) < 200
    assert group_named("g" * MOST_GROUP_BYTES)


def test_a_reason_of_5_mb_is_not_stored() -> None:
    world = World()
    with world.service() as service:
        change = Change(GroupName("g"), RegionName("a"), reason="x" * 5_000_000)
        with pytest.raises(InvalidNameError, match=r"reason: longer than 1,000 characters"):
            service.primaries.set(change, Deadline.after_ms(1_000))
        assert not world.primaries.assigned_groups()
        kept = Change(GroupName("g"), RegionName("a"), reason="x" * MOST_REASON_CHARACTERS)
        assert service.primaries.set(kept, Deadline.after_ms(1_000)).decision.reason == kept.reason
