"""Drills that a service carries out, over gRPC and REST."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from parallax.client.client import OffsetClient
from parallax.client.json import to_json
from parallax.config.config import Config
from parallax.domain.primary import Assignment
from parallax.errors import InvalidNameError, NotFoundError, RefusedError, UnknownRegionError
from parallax.failover.drill.run import DrillPlan
from parallax.failover.outside import Outside
from parallax.v1 import moves_pb2 as pb
from tests.support import poll_until
from tests.worlds.drill_bench import FakeCanary
from tests.worlds.failover_bench import two_sources
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, TOPIC, World


class QuickCanary(FakeCanary):
    """Records enough at each look, wherever the group of the drill is primary."""

    def __init__(self, _config: Config, plan: DrillPlan, outside: Outside) -> None:
        super().__init__(cast("Any", None))
        self.plan, self.outside = plan, outside

    def decided(self) -> Assignment | None:
        return self.outside.services.assignment(self.plan.group)

    def _come(self) -> None:
        for _ in range(self.plan.records):
            super()._come()


@pytest.fixture
def served() -> Iterator[Served]:
    world = World(drill={"group": GROUP, "topic": TOPIC})
    world.let_write()
    two_sources(world)
    world.commit("a", 15)
    with serving(world, canary=QuickCanary) as found:
        yield found


def ended(client: OffsetClient, drill_id: str) -> pb.DrillStatus:
    def look() -> pb.DrillStatus | None:
        found = client.get_drill(GROUP, drill_id)
        return None if found.ending == "running" else found

    return poll_until(look, 60, "the drill ends")


def test_a_drill_is_planned_run_and_kept(client: OffsetClient) -> None:
    plan = client.plan_drill(origin="a", to="b")
    assert (plan.group, plan.topic, plan.origin, plan.to) == (GROUP, TOPIC, "a", "b")
    assert any("aggregate-b" in step for step in plan.steps)
    assert client.list_drills().drills == []
    begun = client.run_drill(plan, actor="ada")
    assert (begun.ending, begun.here) == ("running", True)
    with pytest.raises(RefusedError, match="under way here already"):
        client.run_drill(plan)
    found = ended(client, begun.drill_id)
    assert [leg.to for leg in found.drill.legs] == ["b", "a"], found
    assert (found.drill.drill_id, found.drill.actor) == (begun.drill_id, "ada")
    line = found.timeline
    assert sum(line.acknowledged_records) == found.drill.produced_records > 0
    assert sorted(item.region for item in line.delivered) == ["a", "b"]
    assert all(0 < leg.asked_ms <= leg.ended_ms for leg in found.drill.legs)
    assert client.list_drills().drills == [found.drill]
    assert client.get_primary(GROUP).decision.cluster == "aggregate-a"


def test_by_rest(http: httpx.Client, client: OffsetClient) -> None:
    plan = http.get("/v1/drills/plan?origin=b&to=a")
    assert (plan.status_code, plan.json()) == (200, to_json(client.plan_drill(origin="b", to="a")))
    begun = http.post("/v1/drills", json={"origin": "a", "to": "b", "actor": "ada"})
    assert begun.status_code == 200, begun.text
    drill = begun.json()["drill_id"]
    stopped = http.post(f"/v1/drills/{drill}/stop", json={"actor": "eve"})
    assert (stopped.status_code, stopped.json()["drill_id"]) == (200, drill)
    found = ended(client, drill)
    assert http.get(f"/v1/drills/{drill}").json() == to_json(found)


def test_what_can_not_be_asked_is_told(http: httpx.Client, client: OffsetClient) -> None:
    plan = client.plan_drill(origin="a", to="b")
    with pytest.raises(InvalidNameError, match="the same region"):
        client.plan_drill(origin="a", to="a")
    with pytest.raises(UnknownRegionError):
        client.plan_drill(origin="z")
    with pytest.raises(InvalidNameError, match="no other group"):
        client.run_drill(pb.PlannedDrill(group="billing-2", origin=plan.origin, to=plan.to))
    with pytest.raises(NotFoundError):
        client.get_drill(GROUP, "never")
    assert http.get("/v1/drills/never").status_code == 404
    assert http.post("/v1/drills", json={"from": "a"}).status_code == 400
    assert client.list_drills().drills == []
