"""Three regions, two of which have producers: a group goes round all of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from tests.worlds.live import live_world, new_keyspace
from tests.worlds.live_clients import Member, Traffic
from tests.worlds.live_judgement import check_once, more

_TIMEOUT_S = 600


@pytest.mark.stack
@pytest.mark.timeout(_TIMEOUT_S)
def test_a_group_goes_round_three_regions(tmp_path: Path) -> None:
    spec = StackSpec(("a", "b", "c"), services=False)
    with LocalStack(spec, tmp_path / "stack") as stack:
        store = dict.fromkeys("abc", new_keyspace(stack.cassandra_address()))
        with live_world(dict.fromkeys("abc", stack), store, tmp_path, without_source="c") as world:
            live = world.on_new_topic()
            group = live.group("billing")
            live.parallax("primary", group, "--set", "a")
            with closing(Member(live, group)) as member, Traffic(live, {"a": 150, "b": 100}) as traffic:
                more([member], 300)
                for region in ("b", "c", "a"):
                    moved = live.parallax("failover", group, "--to", region, "--execute")
                    assert moved["ending"] == "moved"
                    more([member], 300)
                    assert member.consumer.region == live.names[region]
                check_once([member], traffic.stop())
