"""`parallax status`: a screen that says whether all is well."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from parallax.cli.main import app
from tests.contract.test_service_overview import shard
from tests.worlds.offset_servers import serving
from tests.worlds.offset_world import World


def route_line(**values: Any) -> dict[str, Any]:
    world = World()
    world.status.save_shards([shard(number, **values) for number in range(2)])
    with serving(world) as served:
        arguments = ["status", "--json", "--service", served.target]
        result = CliRunner(env={"PARALLAX_CONFIG": ""}).invoke(app, arguments)
    [found] = [item for item in json.loads(result.stdout)["findings"] if item["what"] == "route a->b"]
    return dict(found)


@pytest.mark.parametrize(
    ("values", "health", "says"),
    [
        ({}, "well", ""),
        ({"canary_age_ms": 9_000, "canary_latency_ms": 40}, "well", ""),
        (
            {"canary_age_ms": 75_000, "canary_late": True},
            "look",
            ", the canary is late: none for 75.0 s",
        ),
    ],
)
def test_a_canary_that_is_late_is_said(values: dict[str, Any], health: str, says: str) -> None:
    line = route_line(**values)
    assert (line["health"], "canary" in line["says"]) == (health, bool(says))
    assert says in line["says"]
