"""Moves as things of their own, over gRPC and REST."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from parallax.client.client import OffsetClient
from parallax.client.json import to_json
from parallax.domain.ids import GroupName, RegionName
from parallax.domain.primary import Change
from parallax.errors import (
    InvalidNameError,
    NotFoundError,
    PlanChangedError,
    RefusedError,
    UnknownRegionError,
)
from parallax.runtime.deadline import Deadline
from parallax.v1 import moves_pb2 as pb
from tests.support import poll_until
from tests.worlds.failover_bench import two_sources
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, World


@pytest.fixture
def served() -> Iterator[Served]:
    world = World()
    world.let_write()
    two_sources(world)
    world.commit("a", 15)
    with serving(world) as found:
        yield found


def ended(client: OffsetClient, planned: pb.PlannedMove) -> pb.MoveStatus:
    def look() -> pb.MoveStatus | None:
        found = client.get_move(planned.group, planned.move_id)
        return None if found.state == "running" else found

    return poll_until(look, 20, "the move ends")


def test_there_and_back_by_grpc(client: OffsetClient) -> None:
    there = client.plan_move(GROUP, to_region="b")
    assert (there.origin, there.target, there.kind) == ("aggregate-a", "aggregate-b", "planned")
    assert [(item.next_offset, item.resume_offset) for item in there.partitions] == [(15, 5)]
    assert client.get_move(GROUP, there.move_id).state == "planned"
    client.execute_move(there, actor="ada")
    found = ended(client, there)
    assert (found.state, found.step, found.actor) == ("moved", "done", "ada")
    assert found.events[-1].words == "switching"
    assert client.get_primary(GROUP).decision.cluster == "aggregate-b"
    assert [(item.actor, item.step) for item in client.list_moves(GROUP).moves] == [("ada", "done")]
    back = client.plan_move(GROUP, back=True)
    assert (back.origin, back.target) == ("aggregate-b", "aggregate-a")
    client.execute_move(back)
    assert ended(client, back).state == "moved"
    assert client.verify_group(GROUP, moves=2).way == ["aggregate-a", "aggregate-b", "aggregate-a"]
    client.roll_back_move(GROUP, back.move_id)
    assert ended(client, back).state == "rolled_back"
    with pytest.raises(RefusedError):
        client.roll_back_move(GROUP, back.move_id)


def test_by_rest_with_events(http: httpx.Client) -> None:
    planned = http.post("/v1/moves", json={"group": GROUP, "to_region": "b"})
    assert planned.status_code == 200, planned.text
    move, digest = planned.json()["move_id"], planned.json()["digest"]
    begun = http.post(f"/v1/moves/{move}/execute", json={"digest": digest, "actor": "ada"})
    assert (begun.status_code, begun.json()["move_id"]) == (200, move)
    with http.stream("GET", f"/v1/moves/{move}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in stream.iter_lines() if line]
    assert set(lines[::2]) == {"event: move"}
    told = [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
    assert (told[-1]["state"], told[-1]["actor"]) == ("moved", "ada")
    assert http.get(f"/v1/moves/{move}").json() == told[-1]
    for body in ({}, {"json": {}}, {"json": {"actor": "ada"}}):
        again = http.post(f"/v1/moves/{move}/cancel", **body)
        assert (again.status_code, again.json()["state"]) == (200, "moved")


def test_a_plan_that_has_changed_comes_with_the_refusal(
    served: Served, http: httpx.Client, client: OffsetClient
) -> None:
    planned = client.plan_move(GROUP, to_region="b")
    served.service.primaries.set(Change(GROUP, RegionName("a")), Deadline.after_ms(5_000))
    with pytest.raises(PlanChangedError, match="nothing was changed"):
        client.execute_move(planned)
    answer = http.post(f"/v1/moves/{planned.move_id}/execute", json={"digest": planned.digest})
    assert (answer.status_code, answer.json()["code"]) == (409, "PLAN_CHANGED")
    new = answer.json()["plan"]
    assert (new["move_id"], new["fencing_number"]) == (planned.move_id, 2)
    assert new["digest"] != planned.digest
    assert (
        http.post(f"/v1/moves/{planned.move_id}/execute", json={"digest": new["digest"]}).status_code == 200
    )
    assert ended(client, planned).state == "moved"


def test_rest_answers_with_the_messages_of_grpc(http: httpx.Client, client: OffsetClient) -> None:
    planned = client.plan_move(GROUP, to_region="b", disaster=True)
    told = http.post("/v1/moves", json={"group": GROUP, "to_region": "b", "disaster": True}).json()
    assert told == to_json(planned)
    assert http.get(f"/v1/moves/{planned.move_id}").json() == to_json(client.get_move(GROUP, planned.move_id))


def test_what_can_not_be_asked_is_told(http: httpx.Client, client: OffsetClient) -> None:
    planned = client.plan_move(GROUP, to_region="b")
    with pytest.raises(InvalidNameError, match="exactly one"):
        client.plan_move(GROUP)
    with pytest.raises(InvalidNameError, match="exactly one"):
        client.plan_move(GROUP, to_region="b", back=True)
    with pytest.raises(UnknownRegionError):
        client.plan_move(GROUP, to_region="z")
    with pytest.raises(NotFoundError, match="no move to go back from"):
        client.plan_move(GROUP, back=True)
    with pytest.raises(InvalidNameError, match="another group"):
        client.get_move("other", planned.move_id)
    with pytest.raises(InvalidNameError, match="as it was planned"):
        client.execute_move(pb.PlannedMove(group=GROUP, move_id=planned.move_id, kind="disaster"))
    with pytest.raises(NotFoundError):
        client.verify_group(GroupName("never"))
    assert http.get("/v1/moves/nonsense").status_code == 404
    assert http.get("/v1/moves/nonsense/events").status_code == 404
    assert http.post(f"/v1/moves/{planned.move_id}/execute", json={"digest": ""}).status_code == 400
    assert http.post("/v1/moves", json={"group": GROUP, "to": "b"}).status_code == 400
