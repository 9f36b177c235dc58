"""Primaries and regions as clients see them: gRPC, REST and the command line, on sockets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parallax.cli.main import app
from parallax.client.client import OffsetClient
from parallax.client.primary_messages import change_from_pb, change_to_pb, primary_from_pb, primary_to_pb
from parallax.client.targets import PRIMARY_SERVICE
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import (
    Assignment,
    Change,
    Mode,
    PrimaryDecision,
    Site,
    Stage,
    assignment_of,
    decide,
)
from parallax.errors import (
    DeadlineError,
    FencedError,
    InvalidNameError,
    InvariantError,
    LimitError,
    ParallaxError,
    RefusedError,
    StoreUnavailableError,
    UnknownRegionError,
)
from parallax.ports.groups import PrimaryLog, Reach
from parallax.v1 import primaries_pb2 as pb
from tests.memory.groups import MemoryPrimaryStore
from tests.support import poll_until
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, World

A, B = RegionName("a"), RegionName("b")
ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(World()) as running:
        yield running


def decided_elsewhere(world: World) -> PrimaryDecision:
    """Region b decides without seeing this one, then they see each other."""
    there = MemoryPrimaryStore()
    site = Site(frozenset({A, B}), frozenset({ON_A, ON_B}), B)
    decision = decide(Change(GROUP, B, disaster=True), [], site, 1)
    assert there.append(decision, log=PrimaryLog((), 0), reach=Reach.HERE)
    world.primaries.absorb(there)
    return decision


def test_every_call_of_the_service_is_a_method_of_the_client() -> None:
    service = pb.DESCRIPTOR.services_by_name["PrimaryService"]
    names = {re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower() for method in service.methods}

    assert service.full_name == PRIMARY_SERVICE
    assert names <= set(dir(OffsetClient))


def test_a_group_that_nobody_decided_about_has_no_decision(client: OffsetClient) -> None:
    found = client.get_primary(GROUP)

    assert found == pb.Primary(group=GROUP)
    assert primary_from_pb(found) is None
    assert not client.list_primaries().primaries


def test_what_was_set_is_told_and_listed(client: OffsetClient) -> None:
    answer = client.set_primary(Change(GROUP, B, reason="planned"))

    assert (answer.decision.region, answer.decision.cluster, answer.decision.reason) == ("b", ON_B, "planned")
    assert answer.decision.fencing_number == 2  # (0 + 1) * 2 regions + index 0
    assert client.get_primary(GROUP) == answer
    assert list(client.list_primaries().primaries) == [answer]
    assert client.set_primary(Change(GROUP, B)) == answer


def test_a_dry_run_decides_nothing(client: OffsetClient) -> None:
    assert client.set_primary(Change(GROUP, B), dry_run=True).decision.region == "b"
    assert not client.get_primary(GROUP).HasField("decision")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Change(GROUP, RegionName("x")), UnknownRegionError),
        (Change(GROUP, RegionName("")), InvalidNameError),
        (Change(GroupName(""), A), InvalidNameError),
        (Change(GROUP, A, expected_number=7), FencedError),
        (Change(GROUP, A, stage=Stage.MOVING), RefusedError),
        (Change(GROUP, A, cluster=ClusterName("regional-a")), UnknownRegionError),
    ],
)
def test_errors_arrive_as_they_were_raised(
    client: OffsetClient, change: Change, error: type[ParallaxError]
) -> None:
    with pytest.raises(error):
        client.set_primary(change)


def test_a_watch_tells_what_holds_then_every_change(client: OffsetClient) -> None:
    client.set_primary(Change(GROUP, A))
    with client.watch_primary(GROUP) as watch:
        assert next(watch).decision.region == "a"
        client.set_primary(Change(GROUP, B, stage=Stage.MOVING))
        moving = next(watch)
        assert (moving.decision.stage, moving.decision.moving_from) == (pb.MOVING, ON_A)
        client.set_primary(Change(GROUP, B))
        assert next(watch).decision.stage == pb.SETTLED
        watch.close()
        assert list(watch) == []


def test_a_watch_goes_on_at_another_service_and_never_back() -> None:
    """The second service is of a region that is cut off: it tells what held before."""
    with ExitStack() as stack:
        behind = stack.enter_context(serving(World()))
        ahead = stack.enter_context(ExitStack())
        first = ahead.enter_context(serving(World()))
        with behind.client() as old:
            old.set_primary(Change(GROUP, A))
        both = stack.enter_context(OffsetClient([first.target, behind.target]))
        with first.client() as new:
            new.set_primary(Change(GROUP, A))
            number = new.set_primary(Change(GROUP, B, disaster=True)).decision.fencing_number
        watch = stack.enter_context(both.watch_primary(GROUP))
        assert next(watch).decision.fencing_number == number
        ahead.close()
        with behind.client() as late:
            late.set_primary(Change(GROUP, B))
            site = Site(frozenset({A, B}), frozenset({ON_A, ON_B}), A)
            known = behind.world.primaries.read_log(GROUP, Reach.HERE)
            later = decide(Change(GROUP, A, disaster=True), known.decisions, site, 5)
            assert later.fencing_number > number
            assert behind.world.primaries.append(later, log=known, reach=Reach.HERE)
        assert next(watch).decision.fencing_number == later.fencing_number


def test_without_room_for_a_watch_the_client_asks_instead() -> None:
    world = World(service={"max_concurrent_calls": 1})
    with serving(world) as served, served.client() as client:
        client.set_primary(Change(GROUP, A))
        with client.watch_primary(GROUP) as first, client.watch_primary(GROUP) as second:
            assert next(first).decision.region == "a"
            assert next(second).decision.region == "a"
            client.set_primary(Change(GROUP, B))
            assert next(second).decision.region == "b"
            assert next(first).decision.region == "b"


def test_a_watch_of_what_cannot_be_is_an_error(client: OffsetClient) -> None:
    with client.watch_primary("") as watch, pytest.raises(InvalidNameError):
        next(watch)


def test_dual_active_is_told_counted_and_settled(client: OffsetClient, served: Served) -> None:
    client.set_primary(Change(GROUP, A))
    decision = decided_elsewhere(served.world)

    found = client.get_primary(GROUP)
    assert found.dual_active
    assert (found.decision.fencing_number, [item.region for item in found.rivals]) == (
        decision.fencing_number,
        ["a"],
    )
    served.gauges.refresh()
    with served.http() as http:
        metrics = http.get("/metrics").text
    assert f'parallax_offsetsvc_dual_active{{group="{GROUP}"}} 1.0' in metrics
    assert 'parallax_offsetsvc_primary_groups{mode="active_passive",region="b"} 1.0' in metrics
    assert not client.set_primary(Change(GROUP, B)).dual_active
    served.gauges.refresh()
    with served.http() as http:
        assert f'parallax_offsetsvc_dual_active{{group="{GROUP}"}} 0.0' in http.get("/metrics").text


class _Alone(MemoryPrimaryStore):
    """A store whose other regions are gone."""

    def read_log(self, group: GroupName, reach: Reach) -> PrimaryLog:
        if reach is Reach.EVERYWHERE:
            raise StoreUnavailableError("store: no majority")
        return super().read_log(group, reach)


def test_without_the_other_regions_only_a_disaster_decision_is_made() -> None:
    world = World()
    world.primaries = _Alone()
    with serving(world) as served, served.client(timeout_ms=1_000) as client:
        with pytest.raises(StoreUnavailableError, match="make it a disaster decision"):
            client.set_primary(Change(GROUP, B))
        assert client.set_primary(Change(GROUP, B, disaster=True)).decision.disaster


class _AloneAndLate(_Alone):
    """Says once that the others are away; later attempts find that there is no time left."""

    def __init__(self) -> None:
        super().__init__()
        self._told = False

    def read_log(self, group: GroupName, reach: Reach) -> PrimaryLog:
        if self._told:
            raise DeadlineError("the deadline passed")
        self._told = True
        return super().read_log(group, reach)


def test_that_a_later_attempt_came_too_late_does_not_hide_why_the_first_one_failed() -> None:
    world = World()
    world.primaries = _AloneAndLate()
    with (
        serving(world) as served,
        served.client(timeout_ms=1_000) as client,
        pytest.raises(StoreUnavailableError, match="make it a disaster decision"),
    ):
        client.set_primary(Change(GROUP, B))


class _Contested(MemoryPrimaryStore):
    """Somebody else appends first, a few times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def append(self, decision: PrimaryDecision, *, log: PrimaryLog, reach: Reach) -> bool:
        if self.times:
            self.times -= 1
            return False
        return super().append(decision, log=log, reach=reach)


def test_a_lost_race_is_run_again() -> None:
    world = World()
    world.primaries = _Contested(3)
    with serving(world) as served, served.client() as client:
        assert client.set_primary(Change(GROUP, B)).decision.region == "b"
        assert world.primaries.times == 0


def test_a_group_whose_decisions_cant_be_read_is_told_beside_the_others(
    client: OffsetClient, served: Served, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = GroupName("other")
    for group in (GROUP, other):
        client.set_primary(Change(group, A))
    whole = served.world.primaries.decisions

    def with_one_unreadable(groups: Collection[GroupName]) -> Any:
        return {**whole(groups), **({GROUP: InvariantError("of a newer release")} if GROUP in groups else {})}

    monkeypatch.setattr(served.world.primaries, "decisions", with_one_unreadable)

    found = {item.group: item for item in client.list_primaries().primaries}

    assert (found[GROUP].problem, found[GROUP].HasField("decision")) == ("of a newer release", False)
    assert found[other].decision.region == "a"
    with pytest.raises(InvariantError, match="newer release"):
        primary_from_pb(found[GROUP])
    with pytest.raises(InvariantError, match="newer release"):
        client.get_primary(GROUP)
    assert f"group {GROUP}: of a newer release" in run("primary").stdout
    served.gauges.refresh()
    with served.http() as http:
        metrics = http.get("/metrics").text
    assert "parallax_offsetsvc_unreadable_primaries 1.0" in metrics
    assert 'parallax_offsetsvc_primary_groups{mode="active_passive",region="a"} 1.0' in metrics


def test_primaries_come_page_by_page_on_both_transports(client: OffsetClient, served: Served) -> None:
    names = [f"paged-{letter}" for letter in "abcde"]
    for name in (*names, "other"):
        client.set_primary(Change(GroupName(name), A))
    found: list[str] = []
    after, pages = "", 0
    while pages == 0 or after:
        answer = client.list_primaries(prefix="paged-", after=after, limit=2)
        found += [item.group for item in answer.primaries]
        after, pages = answer.next_after, pages + 1
    assert (found, pages) == (names, 3)
    assert [
        item.group for item in client.list_primaries(prefix="paged-", after="paged-c").primaries
    ] == names[3:]
    with served.http() as http:
        page = http.get("/v1/primaries", params={"prefix": "paged-", "after": "paged-c", "limit": 1}).json()
    assert ([item["group"] for item in page["primaries"]], page["next_after"]) == (["paged-d"], "paged-d")
    with pytest.raises(LimitError, match="1,000 at most"):
        client.list_primaries(limit=1_001)


def test_groups_that_need_somebody_are_asked_for_alone(
    client: OffsetClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (GROUP, "well", "moving", "unreadable"):
        client.set_primary(Change(GroupName(name), A))
    client.set_primary(Change(GroupName("moving"), B, stage=Stage.MOVING, moving_from=ON_A))
    rival = decided_elsewhere(served.world)
    whole = served.world.primaries.decisions
    readings: list[int] = []

    def with_one_unreadable(groups: Collection[GroupName]) -> Any:
        readings.append(len(groups))
        found = dict(whole(groups))
        return found | (
            {GroupName("unreadable"): InvariantError("of a newer release")} if "unreadable" in found else {}
        )

    monkeypatch.setattr(served.world.primaries, "decisions", with_one_unreadable)
    for _ in range(3):
        found = client.list_primaries(attention=True).primaries
        assert [item.group for item in found] == sorted({"moving", "unreadable", rival.group})
    whole_readings = [count for count in readings if count > 3]
    assert len(whole_readings) == 1, "who looks within a few seconds shares a reading"
    assert [item.group for item in client.list_primaries(attention=True, prefix="m").primaries] == ["moving"]
    client.set_primary(Change(GroupName("moving"), B))
    assert not client.list_primaries(attention=True, prefix="m").primaries, "what is over is told no more"


def test_regions_are_described_without_secrets(client: OffsetClient, served: Served) -> None:
    served.world.cluster("b").away = True

    found = client.describe_regions()

    assert found.answered_in == "a"
    here, there = found.regions
    assert (here.aggregate.cluster, here.aggregate.bootstrap_servers) == (ON_A, "127.0.0.1:1")
    assert (here.aggregate.health, here.regional.health) == (pb.UP, pb.NOT_ASKED)
    assert (there.aggregate.health, there.aggregate.problem) == (pb.AWAY, "aggregate-b: no broker answered")
    fields = {field.name for field in pb.ClusterDescription.DESCRIPTOR.fields}
    assert not {name for name in fields if "password" in name or "key" in name or "username" in name}


def test_who_is_left_out_by_the_configuration_is_named(served: Served) -> None:
    names = {"include": ["t.*"], "exclude": ["tmp"]}
    served.world.config = served.world.config.model_copy(
        update={key: type(served.world.config.topics).model_validate(names) for key in ("topics", "groups")}
    )
    asked = ["trips", "tmp", "orders"]
    with serving(served.world) as narrow, narrow.client() as client, narrow.http() as http:
        found = client.describe_regions(groups=asked, topics=["trips"])
        shown = http.get("/v1/regions", params={"topic": asked}).json()
    assert (list(found.groups_left_out), list(found.topics_left_out)) == (["tmp", "orders"], [])
    assert (shown["groups_left_out"], shown["topics_left_out"]) == ([], ["tmp", "orders"])


def test_rest_sets_and_shows_primaries(served: Served) -> None:
    with served.http() as http:
        assert http.get(f"/v1/groups/{GROUP}/primary").json()["decision"] is None
        answer = http.put(f"/v1/groups/{GROUP}/primary", json={"region": "b", "reason": "drill"})
        assert answer.status_code == 200, answer.text
        shown = answer.json()
        assert (shown["decision"]["region"], shown["decision"]["mode"]) == ("b", "ACTIVE_PASSIVE")
        assert http.get(f"/v1/groups/{GROUP}/primary").json() == shown
        assert http.get("/v1/primaries").json() == {"primaries": [shown], "next_after": ""}
        regions = http.get("/v1/regions").json()["regions"]
        assert [item["aggregate"]["health"] for item in regions] == ["UP", "UP"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"region": "b", "expected_fencing_number": 8}, 409, "FENCED"),
        ({"region": "b", "stage": "MOVING"}, 409, "REFUSED"),
        ({"region": "x"}, 404, "UNKNOWN_REGION"),
        ({"region": ""}, 400, "INVALID_NAME"),
        ({"region": "b", "regoin": "a"}, 400, "INVALID_NAME"),
        ({"region": "b", "mode": "BOTH"}, 400, "INVALID_NAME"),
        ({"region": "b", "expected_fencing_number": 2**63}, 400, "INVALID_NAME"),
        ({"region": "b", "reason": "half a pair: \ud800"}, 400, "INVALID_NAME"),
        ({"region": "b", "cluster": "\ud800"}, 400, "INVALID_NAME"),
        ({"region": "b", "moving_from": "\ud800"}, 400, "INVALID_NAME"),
    ],
)
def test_rest_refuses_with_a_problem(served: Served, body: dict[str, Any], status: int, code: str) -> None:
    with served.http() as http:
        answer = http.put(
            f"/v1/groups/{GROUP}/primary",
            content=json.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        assert (answer.status_code, answer.json()["code"]) == (status, code)


Run = Callable[..., Any]


@pytest.fixture
def run(served: Served) -> Run:
    def invoke(*arguments: str) -> Any:
        with capture_logs():  # of the service, which is in this process
            result = CliRunner().invoke(app, [*arguments, "--service", served.target])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def test_the_command_line_sets_and_shows(run: Run) -> None:
    assert "no primary is recorded" in run("primary", GROUP).stdout
    assert "would be decided; nothing was" in run("primary", GROUP, "--set", "b", "--dry-run").stdout
    assert "no primary is recorded" in run("primary", GROUP).stdout

    shown = json.loads(run("primary", GROUP, "--set", "b", "--reason", "drill", "--json").stdout)

    assert (shown["decision"]["region"], shown["decision"]["reason"]) == ("b", "drill")
    assert json.loads(run("primary", GROUP, "--json").stdout) == shown
    assert json.loads(run("primary", "--json").stdout) == [shown]
    table = run("primary").stdout
    assert "aggregate-b" in table
    assert "active/passive" in table


def test_the_command_line_says_that_setting_moves_nothing(run: Run) -> None:
    told = run("primary", GROUP, "--set", "b").stdout
    assert "no offsets were moved" in told
    assert "parallax failover" in told
    assert "no offsets" not in run("primary", GROUP).stdout
    assert "no offsets" not in run("primary", GROUP, "--set", "a", "--mode", "active_active").stdout


def test_the_command_line_shows_both_sides_of_a_dual(run: Run, served: Served) -> None:
    run("primary", GROUP, "--set", "a")
    decided_elsewhere(served.world)

    shown = run("primary", GROUP).stdout

    assert "DUAL_ACTIVE" in shown
    assert f"parallax primary {GROUP} --set REGION" in shown


def test_the_command_line_takes_an_active_active_group(run: Run) -> None:
    shown = run("primary", GROUP, "--set", "a", "--mode", "active_active").stdout
    assert "every region" in shown


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("primary", "--set", "b"), InvalidNameError),
        (("primary", GROUP, "--disaster"), InvalidNameError),
        (("primary", GROUP, "--set", "x"), UnknownRegionError),
        (("primary", GROUP, "--set", "b", "--expect", "9"), FencedError),
    ],
)
def test_the_command_line_refuses(run: Run, arguments: tuple[str, ...], error: type[ParallaxError]) -> None:
    with pytest.raises(error):
        run(*arguments)


def test_the_command_line_lists_regions(run: Run, served: Served) -> None:
    served.world.cluster("b").away = True

    shown = run("regions").stdout

    assert "aggregate-b: no broker answered" in shown
    assert "answered by the service of region a" in shown
    assert json.loads(run("regions", "--json").stdout)["answered_in"] == "a"


def test_changes_and_assignments_survive_the_wire() -> None:
    change = Change(
        GROUP,
        B,
        mode=Mode.ACTIVE_PASSIVE,
        cluster=ON_A,
        stage=Stage.MOVING,
        moving_from=ON_B,
        expected_number=0,
        disaster=True,
        renew=True,
        reason="drill",
    )
    assert change_from_pb(change_to_pb(change)) == change
    assert change_from_pb(change_to_pb(Change(GROUP, A))) == Change(GROUP, A)
    site = Site(frozenset({A, B}), frozenset({ON_A, ON_B}), A)
    decision = decide(Change(GROUP, B, stage=Stage.MOVING, moving_from=ON_A), [], site, 5)
    rival = decide(Change(GROUP, A), [], Site(site.regions, site.clusters, B), 6)
    found = assignment_of([decision, rival])
    assert found is not None
    assert found == Assignment(rival, (decision,))
    assert primary_from_pb(primary_to_pb(GROUP, found)) == found


def test_words_of_a_newer_server_are_refused(served: Served) -> None:
    with pytest.raises(InvalidNameError, match="mode 9 is unknown"):
        change_from_pb(pb.SetPrimaryRequest(group=GROUP, region="a", mode=9))  # type: ignore[arg-type] # not ours
    with pytest.raises(InvalidNameError, match="without mode or stage"):
        primary_from_pb(pb.Primary(group=GROUP, decision=pb.PrimaryDecision(fencing_number=1)))
    with served.channel() as channel:
        call = channel.unary_unary(
            f"/{PRIMARY_SERVICE}/SetPrimary",
            request_serializer=pb.SetPrimaryRequest.SerializeToString,
            response_deserializer=pb.Primary.FromString,
        )
        with pytest.raises(grpc.RpcError) as raised:
            call(pb.SetPrimaryRequest(group=GROUP, region="a", stage=9), timeout=5)  # type: ignore[arg-type] # as above
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_watch_ends_with_its_server(served: Served) -> None:
    with served.client() as client:
        client.set_primary(Change(GROUP, A))
        watch = client.watch_primary(GROUP)
        assert next(watch).decision.region == "a"
        served.grpc.stop(0.0)
        watch.close()
        poll_until(lambda: list(watch) == [], within_s=5, what="the watch's end")
