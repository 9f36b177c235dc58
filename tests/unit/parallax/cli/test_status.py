"""`parallax status`: a screen that says whether all is well."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from parallax.cli.main import app
from parallax.cli.status import Health, _drills, _moves, _route
from parallax.client.client import OffsetClient
from parallax.v1 import overview_pb2 as pb
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


def test_a_state_of_a_newer_service_is_a_number() -> None:
    line = _route(pb.RouteReplication(route="a->b", state=cast("pb.RouteState", 99)))
    assert (line.health, line.says) == (Health.BROKEN, "99")


def moved(*, newer: int, older: int = 0) -> OffsetClient:
    """The client of a service that knows one interrupted move between such ones that have ended."""
    ended = pb.MoveSummary(group="payments", state="moved", ended=True)
    open_ = pb.MoveSummary(group="billing", state="interrupted")
    every = [*[ended] * newer, open_, *[ended] * older]

    def page(*, after: str, limit: int) -> pb.ListMovesResponse:
        start = int(after or 0)
        end = start + limit
        return pb.ListMovesResponse(moves=every[start:end], next_after=str(end) if end < len(every) else "")

    return cast("OffsetClient", SimpleNamespace(list_moves=page))


@pytest.mark.parametrize("newer", [0, 100, 1_500])
def test_an_interrupted_move_is_said_however_many_are_newer(newer: int) -> None:
    (line,) = _moves(moved(newer=newer))
    assert (line.health, "billing" in line.says) == (Health.LOOK, True)


def test_moves_that_were_not_looked_at_are_said() -> None:
    (none,) = _moves(moved(newer=5_000))
    assert "newest 5,000 alone were looked at: none" in none.says
    said, line = _moves(moved(newer=0, older=6_000))
    assert "5,000 alone were looked at: 1 of them" in said.says
    assert line.health is Health.LOOK


@pytest.mark.parametrize(
    ("ending", "health"),
    [
        ("passed", Health.WELL),
        ("running", Health.WELL),
        ("failed", Health.LOOK),
        ("interrupted", Health.LOOK),
        ("", Health.LOOK),  # can't be read
        ("postponed", Health.LOOK),
    ],
)
def test_a_drill_of_which_nobody_knows_that_it_passed_is_to_be_looked_at(ending: str, health: Health) -> None:
    answer = pb.ListDrillsResponse(drills=[pb.DrillSummary(drill_id="x", ending=ending)])
    client = cast("OffsetClient", SimpleNamespace(list_drills=lambda **_: answer))
    (line,) = _drills(client)
    assert (line.health, bool(line.do)) == (health, health is Health.LOOK)
