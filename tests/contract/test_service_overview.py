"""What there is, and how it is, over gRPC and REST: pages, what is unknown, and whom lists show what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from structlog.testing import capture_logs

from offsetsvc.overview.pages import filled
from offsetsvc.overview.replication import ReplicationLists
from parallax.client.client import OffsetClient
from parallax.client.json import to_json
from parallax.domain.ids import ClusterName, GroupName, RegionName, Route, TopicName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Change, Stage
from parallax.domain.replication_status import STARTING, ShardPartition, ShardReport, ShardStatus
from parallax.domain.sync_status import GroupSyncStatus, SyncCycle, SyncTrouble
from parallax.errors import InvalidNameError, LimitError, UnknownRegionError, UnknownRouteError
from parallax.failover.drill import history
from parallax.failover.drill.history import DrillEnding, DrillRecord
from parallax.failover.facts import Move, MoveKind
from parallax.failover.journal import MoveRecord, Snapshot, Step, note_of
from parallax.ports.status import StatusStore
from parallax.runtime.deadline import Deadline
from parallax.v1 import overview_pb2 as pb
from tests.golden.stored_formats import DRILL
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, NOW_MS, World

A_TO_B = Route(RegionName("a"), RegionName("b"))
A_TO_A = Route(RegionName("a"), RegionName("a"))
ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
STRANGE = GroupName("Straße/ 1%?#🙂")
GROUPS = [GroupName(name) for name in ("billing", "billing-2", "payments", STRANGE)]


def part(topic: str, number: int, **values: Any) -> ShardPartition:
    return ShardPartition(TopicPartition(TopicName(topic), number), values.pop("state", "copying"), **values)


def shard(number: int, *parts: ShardPartition, **values: Any) -> ShardReport:
    told = {"told_at_ms": NOW_MS - 2_000, "owner": "replicator@host:1", "partitions": len(parts)} | values
    return ShardReport(ShardStatus(A_TO_B, number, 2, **told), parts)


def move(group: GroupName, number: int, step: Step = Step.DONE) -> MoveRecord:
    return MoveRecord(
        Move(group, ON_A, ON_B, RegionName("b"), MoveKind.PLANNED),
        f"move-{number}",
        NOW_MS + number,
        (NOW_MS + number) * 1_000,
        step,
        Snapshot({}, {}, 0, None),
        fencing_number=number,
    )


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    world = World()
    world.commit("a", 0)
    for group in GROUPS:
        world.status.save_groups([GroupSyncStatus(group, Outcome.OK, NOW_MS - 9_000, NOW_MS - 5_000)])
    trouble = SyncTrouble(
        TopicPartition(TopicName("trips"), 3), ON_B, "no_topic", Outcome.PARTITION_MISMATCH, "", "create it"
    )
    world.status.save_groups(
        [
            GroupSyncStatus(
                GROUPS[1],
                Outcome.PARTITION_MISMATCH,
                NOW_MS - 9_000,
                NOW_MS - 8_000,
                {"no_topic": 1, "published": 4},
                (ON_A,),
                5,
                troubles=(trouble,),
                count_troubles=1,
            )
        ]
    )
    world.status.save_cycle(SyncCycle("sync@host:2", NOW_MS - 1_000, 4, 1))
    stopped = part(
        "trips", 1, state="stopped", reason="RIGHT_MISSING: trips at regional-a", lag_records=7, records=1
    )
    world.status.save_shards(
        [
            shard(
                0, part("trips", 0, lag_records=0, watermark_age_ms=100), part("trips", 2, state="waiting")
            ),
            shard(1, stopped, part("tolls", 10, lag_records=90, latency_ms=4), stopped=1, lag_records=97),
        ]
    )
    for number in range(5):
        world.operations.save_operation(note_of(move(GROUPS[number % 2], number)))
    history.keep(world.operations, replace(DRILL, started_at_ms=NOW_MS))
    history.keep(world.operations, DrillRecord("drill-2", GROUP, "t", "a", "b", NOW_MS + 1, 1))
    with serving(world) as found:
        for group in GROUPS:
            found.service.primaries.set(Change(group, RegionName("a")), Deadline.after_ms(5_000))
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[OffsetClient]:
    with served.client() as found:
        yield found


@pytest.fixture(scope="module")
def http(served: Served) -> Iterator[httpx.Client]:
    with served.http() as found:
        yield found


def test_rest_answers_with_the_messages_of_grpc(http: httpx.Client, client: OffsetClient) -> None:
    answers = {
        "/v1/groups?prefix=bill&limit=1": client.list_groups(prefix="bill", limit=1),
        "/v1/groups?with_lag=true": client.list_groups(with_lag=True),
        "/v1/replication?region=b": client.list_replication(region="b"),
        "/v1/replication/a-%3Eb/partitions?state=stopped&sort=lag": client.list_replication_partitions(
            "a->b", state=pb.PARTITION_STOPPED, sort=pb.BY_LAG
        ),
        "/v1/groups/billing/moves": client.list_moves("billing"),
        "/v1/moves?limit=2": client.list_moves(limit=2),
        "/v1/drills": client.list_drills(),
        "/v1/sync/problems": client.list_sync_problems(),
        "/v1/config?prefix=regions": client.describe_configuration(prefix="regions"),
    }
    for path, message in answers.items():
        response = http.get(path)
        assert response.status_code == 200, response.text
        assert response.json() == to_json(message), path


# --- groups -----------------------------------------------------------------------------------------------------------


def test_groups_tell_where_they_are_primary_and_how_they_are_synced(client: OffsetClient) -> None:
    answer = client.list_groups()
    assert [item.group for item in answer.groups] == sorted(GROUPS)
    found = {item.group: item for item in answer.groups}
    troubled = found[GROUPS[1]]
    assert troubled.primary.decision.region == "a"
    assert (pb_outcome(troubled.sync.outcome), troubled.sync.partitions) == ("PARTITION_MISMATCH", 5)
    assert {item.reason: item.count for item in troubled.sync.reasons} == {"no_topic": 1, "published": 4}
    # It was told 8 s ago, and the sync job has found nothing else 1 s ago.
    assert troubled.sync.age_ms == 1_000
    assert not any(item.HasField("lag_offsets") for item in answer.groups)


def pb_outcome(number: int) -> str:
    return Outcome(number).name


def test_a_lag_is_told_where_it_is_known_and_is_else_null(http: httpx.Client) -> None:
    found = {item["group"]: item for item in http.get("/v1/groups?with_lag=true").json()["groups"]}
    assert found[GROUP]["lag_offsets"] == 0
    assert found["payments"]["lag_offsets"] is None


def test_no_lag_is_told_of_a_group_that_is_on_its_way() -> None:
    """At the target it is that of an offset that was published; there nobody consumes yet."""
    world = World()
    for region in ("a", "b"):
        world.commit(region, 0)
    with serving(world) as served, served.http() as http:

        def lag() -> object:
            [found] = http.get("/v1/groups?with_lag=true").json()["groups"]
            return found["lag_offsets"]

        served.service.primaries.set(Change(GROUP, RegionName("a")), Deadline.after_ms(5_000))
        assert lag() == 0
        served.service.primaries.set(
            Change(GROUP, RegionName("b"), stage=Stage.MOVING), Deadline.after_ms(5_000)
        )
        assert lag() is None
        served.service.primaries.set(Change(GROUP, RegionName("b")), Deadline.after_ms(5_000))
        assert lag() == 0


def test_a_verdict_about_a_lag_is_told_from_the_second_question_on() -> None:
    world = World()
    world.commit("a", 0)
    with serving(world) as served, served.http() as http:
        served.service.primaries.set(Change(GROUP, RegionName("a")), Deadline.after_ms(5_000))

        def verdict() -> object:
            [found] = http.get("/v1/groups?with_lag=true").json()["groups"]
            return found["lag_verdict"]

        assert verdict() is None
        served.service.lags.remember()
        told = verdict()
        assert told == {
            "state": "LAG_OK",
            "topic": "trips",
            "partition": 0,
            "lag_offsets": 0,
            "partitions_not_ok": 0,
            "partitions_known": 1,
            "partitions": 1,
        }
        clusters = http.get(f"/v1/groups/{GROUP}/positions").json()["clusters"]
        assert [item["lag_verdict"] for item in clusters if item["cluster"] == ON_A] == [told]


def test_of_a_group_without_a_word_the_sync_is_unknown() -> None:
    world = World()
    with serving(world) as served, served.http() as http:
        served.service.primaries.set(Change(GROUP, RegionName("a")), Deadline.after_ms(5_000))
        [item] = http.get("/v1/groups").json()["groups"]
        assert item["sync"] is None
        assert http.get("/v1/sync/problems").json() == {"groups": [], "next_after": "", "job": None}
        routes = http.get("/v1/replication").json()["routes"]
        assert {route["state"] for route in routes} == {"ROUTE_STATE_UNKNOWN"}
        assert {route["lag_records"] for route in routes} == {None}
        assert http.get("/v1/moves").json() == {"moves": [], "next_after": ""}


@pytest.mark.parametrize("limit", [1, 2, 3, 1_000])
def test_pages_adjoin(client: OffsetClient, limit: int) -> None:
    names: list[str] = []
    after, pages = "", count()
    while next(pages) < 10:
        answer = client.list_groups(after=after, limit=limit)
        assert len(answer.groups) <= limit
        names += [item.group for item in answer.groups]
        after = answer.next_after
        if not after:
            break
    assert names == sorted(GROUPS)


def test_names_of_every_kind_are_found(http: httpx.Client) -> None:
    answer = http.get("/v1/groups", params={"prefix": STRANGE[:8]}).json()
    assert [item["group"] for item in answer["groups"]] == [STRANGE]
    after = http.get("/v1/groups", params={"after": STRANGE}).json()
    assert [item["group"] for item in after["groups"]] == [name for name in sorted(GROUPS) if name > STRANGE]


# --- replication ------------------------------------------------------------------------------------------------------


def test_routes_tell_what_their_driver_told(client: OffsetClient) -> None:
    answer = client.list_replication()
    assert [item.route for item in answer.routes] == ["a->a", "a->b", "b->a", "b->b"]
    assert [item.route for item in client.list_replication(prefix="a", limit=1).routes] == ["a->a"]
    told = answer.routes[1]
    assert (told.state, told.owner, told.age_ms) == (pb.ROUTE_PARTLY_STOPPED, "replicator@host:1", 2_000)
    assert (told.shards, told.shards_running, told.partitions, told.partitions_stopped) == (2, 2, 4, 1)
    assert told.lag_records == 97


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({}, pb.ROUTE_COPYING),
        ({"waiting_for": "aggregate-b"}, pb.ROUTE_WAITING),
        ({"problem": "has not reported yet"}, pb.ROUTE_NOT_RUNNING),
        ({"problem": STARTING}, pb.ROUTE_STARTING),
        ({"told_at_ms": NOW_MS - 31_000}, pb.ROUTE_SILENT),
    ],
)
def test_a_route_is_as_its_worst_shard(values: dict[str, Any], state: int) -> None:
    world = World()
    world.status.save_shards([shard(0), shard(1, **values)])
    with world.service() as service:
        [told] = service.replication.routes(pb.ListReplicationRequest(prefix="a->b")).routes
    assert told.state == state
    words = [str(value) for value in values.values() if isinstance(value, str)]
    assert all(any(word in problem for problem in told.problems) for word in words)


def test_what_starts_does_not_hide_what_is_broken() -> None:
    world = World()
    world.status.save_shards([shard(0, problem=STARTING), shard(1, problem="has been silent for 40 s")])
    with world.service() as service:
        [told] = service.replication.routes(pb.ListReplicationRequest(prefix="a->b")).routes
    assert told.state == pb.ROUTE_NOT_RUNNING


def test_a_shard_that_was_never_told_of_is_missed() -> None:
    world = World()
    world.status.save_shards([shard(1)])
    with world.service() as service:
        [told] = service.replication.routes(pb.ListReplicationRequest(prefix="a->b")).routes
    assert (told.state, list(told.problems)) == (pb.ROUTE_NOT_RUNNING, ["1 shards were never told of"])


def test_a_route_tells_its_lag_as_it_went_and_a_silent_one_that_it_is_unknown() -> None:
    world = World()
    request = pb.ListReplicationRequest(prefix="a->b")
    with world.service() as service:

        def history() -> list[tuple[int, int | None]]:
            [told] = service.replication.routes(request).routes
            return [
                (item.at_ms - NOW_MS, item.lag_records if item.HasField("lag_records") else None)
                for item in told.lag_history
            ]

        assert history() == []
        service.replication.look()
        for lag in (0, 7):
            world.status.save_shards([shard(0, lag_records=lag), shard(1, lag_records=lag)])
            service.replication.look()
        world.status.save_shards([shard(1, lag_records=7, told_at_ms=NOW_MS - 31_000)])
        service.replication.look()
        assert history() == [(0, None), (0, 0), (0, 14), (0, None)]
        for _ in range(100):
            service.replication.look()
        assert len(history()) == 40


def test_a_route_tells_how_fast_it_copies_as_long_as_one_driver_counts() -> None:
    world = World()
    request = pb.ListReplicationRequest(prefix="a->b")
    with world.service() as service:

        def rate(*told: tuple[int, int, str]) -> float | None:
            """After two shards have told: records, and how long ago."""
            world.status.save_shards(
                [
                    shard(number, records=records, told_at_ms=NOW_MS - ago_ms, owner=owner)
                    for number, (records, ago_ms, owner) in enumerate(told)
                ]
            )
            service.replication.look()
            [found] = service.replication.routes(request).routes
            return found.records_per_s if found.HasField("records_per_s") else None

        assert rate((100, 25_000, "x"), (0, 25_000, "x")) is None, "nothing is known of before"
        assert rate((600, 15_000, "x"), (5, 15_000, "x")) == 50.5
        assert rate((600, 15_000, "x"), (5, 15_000, "x")) == 50.5, "nothing was told meanwhile"
        assert rate((700, 10_000, "x"), (5, 15_000, "x")) == 50.5, "nor by all"
        assert rate((600, 5_000, "x"), (5, 5_000, "x")) == 0.0
        assert rate((3, 4_000, "y"), (5, 4_000, "x")) is None, "another driver counts anew"
        assert rate((5, 3_000, "y"), (4, 3_000, "x")) is None, "a count that falls is another one"


def test_a_group_that_is_looked_at_tells_its_lag_as_it_went(
    served: Served, client: OffsetClient, http: httpx.Client
) -> None:
    def history() -> list[int]:
        [on_a] = [item for item in client.get_group_positions(GROUP).clusters if item.cluster == ON_A]
        return [item.lag_records for item in on_a.lag_history]

    assert history() == []
    served.service.lags.remember()
    assert history() == [0]
    [told] = [
        item
        for item in http.get(f"/v1/groups/{GROUP}/positions").json()["clusters"]
        if item["cluster"] == ON_A
    ]
    assert told["lag_history"] == [{"at_ms": NOW_MS, "lag_records": 0}]


def test_partitions_come_by_name_by_lag_and_the_worst_first(client: OffsetClient) -> None:
    by_name = client.list_replication_partitions("a->b")
    assert [(item.topic, item.partition) for item in by_name.partitions] == [
        ("tolls", 10),
        ("trips", 0),
        ("trips", 1),
        ("trips", 2),
    ]
    assert (by_name.total, by_name.age_ms) == (4, 2_000)
    # What does not know its lag comes last, not among those that have none.
    assert _in_pages_of_one(client, pb.BY_LAG) == [("tolls", 10), ("trips", 1), ("trips", 0), ("trips", 2)]
    assert _in_pages_of_one(client, pb.WORST_FIRST) == [
        ("trips", 1),  # it is stopped
        ("tolls", 10),
        ("trips", 0),
        ("trips", 2),
    ]
    with pytest.raises(InvalidNameError, match="of the same order"):
        client.list_replication_partitions("a->b", sort=pb.WORST_FIRST, after="90/tolls/10")


def _in_pages_of_one(client: OffsetClient, sort: pb.PartitionOrder) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    after = ""
    for _ in range(5):
        page = client.list_replication_partitions("a->b", sort=sort, limit=1, after=after)
        found += [(item.topic, item.partition) for item in page.partitions]
        after = page.next_after
        if not after:
            break
    return found


def test_partitions_that_can_not_be_read_are_logged_once() -> None:
    status = SimpleNamespace(shard_reports=lambda _: ([], ["shard 1: format 9"]))
    lists = ReplicationLists(
        World().config, cast("StatusStore", status), lambda: NOW_MS, clock=count(step=10).__next__
    )
    with capture_logs() as logs:
        for _ in range(2):
            lists.partitions(A_TO_B, pb.ListReplicationPartitionsRequest())
    assert [(line["event"], line["route"], line["problems"]) for line in logs] == [
        ("unreadable_rows", "a->b", ["shard 1: format 9"])
    ]


def test_a_stopped_partition_says_why_and_what_to_do(http: httpx.Client) -> None:
    [stopped] = http.get("/v1/replication/a-%3Eb/partitions?state=stopped").json()["partitions"]
    assert stopped["reason"].startswith("RIGHT_MISSING")
    assert "right" in stopped["remedy"]
    [waiting] = http.get("/v1/replication/a-%3Eb/partitions?state=waiting").json()["partitions"]
    assert (waiting["lag_records"], waiting["watermark_age_ms"], waiting["remedy"]) == (None, None, "")


def test_a_watermark_grows_older_with_the_word_of_it(client: OffsetClient) -> None:
    partitions = client.list_replication_partitions("a->b", prefix="trips").partitions
    assert partitions[0].watermark_age_ms == 2_100


# --- operations -------------------------------------------------------------------------------------------------------


def test_moves_come_the_newest_first(client: OffsetClient) -> None:
    every: list[str] = []
    after = ""
    for _ in range(5):
        page = client.list_moves(after=after, limit=2)
        every += [item.move_id for item in page.moves]
        after = page.next_after
        if not after:
            break
    assert every == [f"move-{number}" for number in (4, 3, 2, 1, 0)]
    newest = client.list_moves(GROUPS[1]).moves
    assert [(item.move_id, item.group, item.step, item.kind) for item in newest] == [
        ("move-3", GROUPS[1], "done", "planned"),
        ("move-1", GROUPS[1], "done", "planned"),
    ]
    assert newest[0].ended
    assert not client.list_moves("billing").moves[-1].HasField("fencing_number")


def test_a_move_that_cant_be_read_is_listed_with_why() -> None:
    world = World()
    note = note_of(move(GROUP, 1))
    world.operations.save_operation(replace(note, summary=note.summary.replace("done", "new_word")))
    with world.service() as service:
        [told] = service.operations.moves(pb.ListMovesRequest(), lambda _: True).moves
    assert (told.group, told.step) == (GROUP, "")
    assert "new_word" in told.problem


def test_a_move_of_an_older_release_is_read_from_its_record() -> None:
    world = World()
    world.operations.save_operation(replace(note_of(move(GROUP, 1)), summary=""))
    with world.service() as service:
        [told] = service.operations.moves(pb.ListMovesRequest(group=GROUP), lambda _: True).moves
    assert (told.move_id, told.step, told.target) == ("move-1", "done", ON_B)


def test_drills_tell_what_was_measured(http: httpx.Client) -> None:
    silent, failed = http.get("/v1/drills").json()["drills"]
    assert (silent["ending"], silent["took_ms"], silent["lost_records"]) == ("interrupted", None, None)
    assert silent["problem"].startswith("interrupted: run again: no process has told of it for ")
    assert (failed["ending"], failed["lost_records"], failed["legs"][0]["rto_ms"]) == (
        DrillEnding.FAILED.value,
        2,
        round(DRILL.figures.legs[0].rto_ms) if DRILL.figures and DRILL.figures.legs[0].rto_ms else None,
    )


# --- sync problems, configuration -------------------------------------------------------------------------------------


def test_groups_with_problems_say_what_to_do(client: OffsetClient) -> None:
    answer = client.list_sync_problems()
    [group] = answer.groups
    assert (group.group, group.count, group.problems[0].remedy) == (GROUPS[1], 1, "create it")
    assert (answer.job.owner, answer.job.age_ms, answer.job.groups_with_problems) == ("sync@host:2", 1_000, 1)


def test_the_configuration_is_told_without_secrets() -> None:
    world = World()
    hidden = {
        "protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "u",
        "sasl_password": "s3cret",
    }
    cluster = {"bootstrap_servers": "127.0.0.1:1", "security": hidden}
    values = world.config.model_dump(exclude_unset=True)
    values["regions"]["a"]["aggregate"] = cluster
    values["cassandra"] |= {"username": "u", "password": "s3cret"}
    world.config = type(world.config).model_validate(values)
    with world.service() as service:
        answer = service.describe_configuration("")
    assert "s3cret" not in str(answer)
    found = {item.key: item for item in answer.settings}
    assert (found["cassandra.password"].value, found["cassandra.password"].secret) == ('"**********"', True)
    assert found["regions.a.aggregate.security.sasl_username"].value == '"u"'
    assert found["regions.a.aggregate.security.sasl_username"].given
    assert not found["service.stale_after_ms"].given


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/groups?limit=1001", 400, "INVALID_NAME"),
        ("/v1/groups?limit=-1", 400, "INVALID_NAME"),
        ("/v1/groups?limit=101&with_lag=true", 429, "LIMIT"),
        ("/v1/replication?region=nowhere", 404, "UNKNOWN_REGION"),
        ("/v1/replication/x-%3Ey/partitions", 404, "UNKNOWN_ROUTE"),
        ("/v1/replication/a-%3Eb/partitions?state=broken", 400, "INVALID_NAME"),
        ("/v1/replication/a-%3Eb/partitions?sort=lag&after=trips/0", 400, "INVALID_NAME"),
        ("/v1/replication/a-%3Eb/partitions?after=trips", 400, "INVALID_NAME"),
        ("/v1/moves?after=yesterday", 400, "INVALID_NAME"),
        ("/v1/drills?after=99999999999999999999/x", 400, "INVALID_NAME"),
        pytest.param(f"/v1/drills?after={'9' * 5_000}/x", 400, "INVALID_NAME", id="many digits"),
    ],
)
def test_what_cant_be_asked_is_refused(http: httpx.Client, path: str, status: int, code: str) -> None:
    response = http.get(path)
    assert (response.status_code, response.json()["code"]) == (status, code)


def test_grpc_refuses_the_same(client: OffsetClient) -> None:
    refusals: list[tuple[type[Exception], Callable[[], object]]] = [
        (LimitError, lambda: client.list_groups(limit=1_001)),
        (InvalidNameError, lambda: client.list_moves(limit=-1)),
        (InvalidNameError, lambda: client.list_moves("")),
        (UnknownRegionError, lambda: client.list_replication(region="nowhere")),
        (UnknownRouteError, lambda: client.list_replication_partitions("x->y")),
    ]
    for error, call in refusals:
        with pytest.raises(error):
            call()


# --- what a page costs ------------------------------------------------------------------------------------------------


def test_a_page_of_which_nothing_may_be_shown_ends_and_goes_on() -> None:
    names = [f"{number:05}" for number in range(10_000)]
    reads = 0

    def read(after: str, limit: int) -> list[str]:
        nonlocal reads
        reads += 1
        return [name for name in names if name > after][:limit]

    assert filled(read, str, lambda _: False, "", 10) == ([], names[109])
    assert reads == 10
    found, after = filled(read, str, lambda name: name.endswith("7"), "", 5)
    assert (found, after) == (["00007", "00017", "00027", "00037", "00047"], "00056")
    assert filled(read, str, lambda name: name > "09998", "09990", 5) == (["09999"], "")


def test_of_ten_thousand_groups_a_page_reads_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    asked: list[int] = []

    read = world.status.group_statuses

    def counting(groups: Any) -> Any:
        asked.append(len(groups))
        return read(groups)

    monkeypatch.setattr(world.status, "group_statuses", counting)
    world.groups._groups.update(GroupName(f"group-{number:05}") for number in range(10_000))
    with world.service() as service:
        request = pb.ListGroupsRequest(after="group-04999")
        answer = service.lists.page(request, lambda _: True, Deadline.after_ms(5_000))
    assert [answer.groups[0].group, answer.groups[-1].group] == ["group-05000", "group-05099"]
    assert (answer.next_after, asked) == ("group-05099", [100])
