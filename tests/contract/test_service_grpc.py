"""The gRPC service and its client as they behave on a socket."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from lab.soak.watch import threads_of
from offsetsvc.service import READ_POOL
from offsetsvc.transport.grpc_server import CALL_POOL
from parallax.client import mapped, messages
from parallax.client.answer import answer_from_pb
from parallax.client.client import OffsetClient, at_cluster, at_region
from parallax.client.targets import SERVICE
from parallax.domain.ids import ClusterName, Route, TopicName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.errors import (
    DeadlineError,
    InvalidNameError,
    InvalidOffsetError,
    LimitError,
    ParallaxError,
    ServiceUnavailableError,
    StoreUnavailableError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownRegionError,
    UnknownRouteError,
    UnknownTopicError,
)
from parallax.v1 import offsets_pb2 as pb
from tests.support import poll_until
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, TOPIC, World
from tests.worlds.replication import free_port

CLOSED_PORT = "127.0.0.1:1"


@pytest.fixture
def served() -> Iterator[Served]:
    world = World()
    for target in ("a", "b"):
        for _ in range(3):
            world.copy("a", target, 2)
            world.copy("b", target, 2)
    world.watermarks()
    world.commit("a", 12)
    with serving(world) as running:
        yield running


def test_every_call_of_the_service_is_a_method_of_the_client() -> None:
    service = pb.DESCRIPTOR.services_by_name["OffsetService"]
    names = {re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower() for method in service.methods}

    assert service.full_name == SERVICE
    assert names <= set(dir(OffsetClient))


def test_every_outcome_has_the_same_name_and_number_in_the_proto() -> None:
    assert dict(pb.Outcome.items()) == {
        "OUTCOME_UNSPECIFIED": 0,
        **{outcome.name: outcome.value for outcome in Outcome},
    }
    assert [messages.outcome_from_pb(messages.outcome_to_pb(item)) for item in Outcome] == list(Outcome)


def test_the_kernel_knows_threads_of_calls_and_of_reads_by_their_pools(client: OffsetClient) -> None:
    client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"), origin=at_cluster("aggregate-a"))
    client.describe_regions()
    assert {CALL_POOL, READ_POOL} <= set(threads_of(os.getpid()))


def test_a_partition_is_answered(client: OffsetClient) -> None:
    answer = client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"), origin=at_cluster("aggregate-a"))

    assert (answer.resume_offset, answer.outcome) == (12, pb.OK)
    assert getattr(answer, "from").basis == "committed"
    assert not answer.HasField("complete_to")
    assert {part.region: part.consumed_next_offset for part in answer.sources} == {"a": 6, "b": 6}
    assert {run.cluster for run in answer.sources[0].runs} == {"aggregate-a", "aggregate-b"}


@pytest.mark.parametrize("most", [1, 4, 20_000])
def test_many_positions_are_answered_together(
    client: OffsetClient, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(mapped, "MOST_POSITIONS", most)
    pair = ClusterName("aggregate-a"), ClusterName("aggregate-b")
    item, positions = TopicPartition(TOPIC, 0), [mapped.NO_COMMIT, 0, 3, 7, 12, 40]
    found = mapped.map_positions(client, pair, {item: positions})

    assert list(found[item]) == positions
    for position in positions[1:]:
        alone = answer_from_pb(
            client.get_failover_offset(
                GROUP, TOPIC, 0, to=at_region("b"), origin=at_region("a"), next_offset=position
            )
        )
        told = found[item][position]
        assert (told.resume_offset, told.vector, told.skips, told.notes) == (
            alone.resume_offset,
            alone.vector,
            alone.skips,
            alone.notes,
        )
    assert found[item][mapped.NO_COMMIT].notes == {Outcome.NO_COMMIT}


def test_timestamps_decide_where_the_caller_chose_them() -> None:
    world = World()
    for region in ("a", "b"):
        world.cluster(region).lay(TopicPartition(TOPIC, 0), [1_000, 2_000, 3_000])
    world.commit("a", 2)
    policy, to = pb.TimestampPolicy(margin_ms=1_000), at_region("b")
    with serving(world) as served, served.client() as client:
        answers = [
            client.get_failover_offset(GROUP, TOPIC, 0, to=to, by_timestamp=policy),
            *client.get_group_failover_offsets(GROUP, to=to, by_timestamp=policy).offsets,
        ]
        unasked = client.get_failover_offset(GROUP, TOPIC, 0, to=to)
        negative = pb.TimestampPolicy(margin_ms=-1)
        with pytest.raises(InvalidOffsetError, match="margin_ms -1"):
            client.get_failover_offset(GROUP, TOPIC, 0, to=to, by_timestamp=negative)

    for answer in answers:
        assert (answer.outcome, answer.resume_offset) == (pb.BY_TIMESTAMP, 1)
        assert not answer.HasField("redelivery_records")
        assert answer.by_timestamp.redelivery_at_most_offsets == 2
    assert (unasked.outcome, unasked.resume_offset) == (pb.EARLIEST_FALLBACK, 0)
    assert not unasked.HasField("by_timestamp")


def test_the_origin_may_be_left_out_where_there_is_one(client: OffsetClient) -> None:
    answer = client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"), next_offset=0)

    assert getattr(answer, "from").cluster == "aggregate-a"
    assert answer.resume_offset == 0


def test_a_group_is_answered_and_its_move_recorded(client: OffsetClient, served: Served) -> None:
    answer = client.get_group_failover_offsets(
        GROUP,
        to=at_region("b"),
        positions=[pb.PartitionPosition(topic=TOPIC, partition=0, next_offset=4)],
        record_move=True,
    )

    assert [item.resume_offset for item in answer.offsets] == [4]
    assert answer.outcome == pb.OK
    stored = served.world.groups.progress(GROUP, TOPIC)[0]
    told = pb.FailoverOffset(progress=messages.progress_to_pb(stored.positions))
    assert told.progress == answer.offsets[0].progress


def test_skip_ranges_are_packed_for_those_who_ask(client: OffsetClient, served: Served) -> None:
    served.world.copy("a", "a", 4)
    served.world.copy("b", "b", 2)
    served.world.copy("a", "b", 4)
    plain = client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"), next_offset=16)
    packed = client.get_failover_offset(
        GROUP, TOPIC, 0, to=at_region("b"), next_offset=16, pack_skip_ranges=True
    )
    (ours,) = client.get_group_failover_offsets(
        GROUP,
        to=at_region("b"),
        positions=[pb.PartitionPosition(topic=TOPIC, partition=0, next_offset=16)],
        pack_skip_ranges=True,
    ).offsets

    assert [(item.start, item.end) for item in plain.skip_ranges] == [(14, 18)]
    assert list(packed.packed_skip_ranges) == [14, 4]
    assert not plain.packed_skip_ranges
    for told in (packed, ours):
        assert not told.skip_ranges
        assert messages.skips_from_pb(told) == messages.skips_from_pb(plain)
        assert answer_from_pb(told).skips == answer_from_pb(plain).skips
        told.ClearField("packed_skip_ranges")
        told.skip_ranges.extend(plain.skip_ranges)
        told.freshness_ms = plain.freshness_ms
        assert told == plain


def test_a_move_may_be_reported_as_its_answer_told_it(client: OffsetClient, served: Served) -> None:
    answer = client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"), next_offset=4)
    move = pb.PartitionMove(
        topic=TOPIC,
        partition=0,
        target_topic_id=answer.to.topic_id,
        resume_offset=answer.resume_offset,
        progress=answer.progress,
    )

    client.report_positions(GROUP, at=at_region("b"), moves=[move])

    stored = served.world.groups.progress(GROUP, TOPIC)[0]
    assert stored.resume_offset == 4
    assert stored.positions == messages.progress_from_pb(answer.progress)
    move.target_topic_id = "former"
    with pytest.raises(UnknownTopicError, match="created anew"):
        client.report_positions(GROUP, at=at_region("b"), moves=[move])


def test_reported_positions_stand_in_for_a_cluster_that_is_away(client: OffsetClient, served: Served) -> None:
    position = pb.PartitionPosition(topic=TOPIC, partition=0, next_offset=8)
    client.report_positions("fresh", at=at_region("a"), positions=[position])
    served.world.cluster("a").away = True

    answer = client.get_failover_offset("fresh", TOPIC, 0, to=at_region("b"))

    assert answer.resume_offset == 8
    assert answer.outcome == pb.UNREACHABLE


def test_skips_are_watched_until_nothing_is_pending(client: OffsetClient, served: Served) -> None:
    world = served.world
    world.copy("a", "a", 4)
    answer = client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"), next_offset=16)
    assert (answer.resume_offset, answer.complete_to, answer.pending_records) == (12, 12, 4)

    with client.watch_skips(
        TOPIC,
        0,
        at=at_region("b"),
        origin=at_region("a"),
        target_topic_id=answer.to.topic_id,
        progress=answer.progress,
        start=answer.complete_to,
    ) as watch:
        first = next(watch)
        world.copy("b", "b", 1)
        world.copy("a", "b", 3)
        second = next(watch)
        world.copy("a", "b", 5)
        rest = list(watch)

    assert (list(first.skip_ranges), first.complete_to, first.pending_records) == ([], 12, 4)
    updates = [second, *rest]
    assert [(item.start, item.end) for update in updates for item in update.skip_ranges] == [
        (13, 16),
        (16, 17),
    ]
    assert not updates[-1].HasField("complete_to")
    assert updates[-1].pending_records == 0


def test_a_watch_that_is_closed_elsewhere_ends(client: OffsetClient, served: Served) -> None:
    served.world.copy("a", "a", 4)
    answer = client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"), next_offset=16)
    watch = client.watch_skips(
        TOPIC, 0, at=at_region("b"), target_topic_id=answer.to.topic_id, progress=answer.progress, start=12
    )
    assert next(watch).complete_to == 12

    closer = threading.Timer(0.1, watch.close)
    closer.start()

    assert list(watch) == []
    closer.join()


def test_a_watch_of_a_topic_created_anew_is_an_error(client: OffsetClient) -> None:
    watch = client.watch_skips(TOPIC, 0, at=at_region("b"), target_topic_id="former", progress=[], start=0)

    with pytest.raises(UnknownTopicError, match="created anew"):
        next(watch)


def test_offsets_are_translated_both_ways(client: OffsetClient) -> None:
    there = client.translate_offset("a->b", TOPIC, 0, source_next_offset=3)
    back = client.translate_offset("a->b", TOPIC, 0, target_next_offset=there.target_next_offset)

    assert (there.target_next_offset, there.via) == (5, "exact")
    assert (back.source_next_offset, back.via) == (3, "exact")
    with pytest.raises(InvalidNameError):
        client.translate_offset("a->b", TOPIC, 0)
    with pytest.raises(InvalidOffsetError):
        client.translate_offset("a->b", TOPIC, 0, source_next_offset=-1)


def test_a_path_is_one_that_records_take(client: OffsetClient) -> None:
    with pytest.raises(UnknownRouteError, match="b->a does not begin where a->b leads to"):
        client.translate_offset("a->b", TOPIC, 0, source_next_offset=3, then=["b->a"])
    with pytest.raises(InvalidNameError):
        client.translate_offset("a->b", TOPIC, 0, then=["b->a"])


def test_a_record_is_traced_to_its_source(client: OffsetClient, served: Served) -> None:
    for place, record in enumerate(served.world.records("b")):
        found = client.lookup_origin(TOPIC, 0, place, at=at_region("b"))
        assert record == (found.route[0], found.source_record_offset)
        assert [hop.source_record_offset for hop in found.hops] == [found.source_record_offset]
    beyond = client.lookup_origin(TOPIC, 0, 500, at=at_region("b"))
    assert (beyond.found, beyond.complete) == (False, False)


def test_watermarks_and_positions(client: OffsetClient) -> None:
    (newest,) = client.list_watermarks("a->b", TOPIC, 0).watermarks
    here, there = client.get_group_positions(GROUP).clusters

    assert (newest.source_next_offset, newest.closed) == (newest.last_record_end, False)
    assert [(item.topic, item.next_offset, item.basis) for item in here.positions] == [
        (TOPIC, 12, "committed")
    ]
    assert (list(there.positions), there.HasField("failure")) == ([], False)


def test_routes_and_runs_are_listed(client: OffsetClient) -> None:
    routes = client.list_routes().routes
    page = client.list_runs("a->b", TOPIC, 0, limit=2)
    runs = list(page.lineages[0].runs)
    while page.HasField("continue_at"):
        page = client.list_runs("a->b", TOPIC, 0, limit=2, start=page.continue_at)
        runs += page.lineages[0].runs

    assert {route.route for route in routes} == {"a->a", "a->b", "b->a", "b->b"}
    assert [(item.topic, item.partitions) for item in routes[0].topics] == [(TOPIC, 1)]
    assert [run.source_start for run in runs if run.count_records] == [0, 2, 4]


def test_stopped_partitions_stand_among_the_routes_even_of_topics_that_were_never_copied() -> None:
    world = World()
    route, never = Route.parse("a->b"), TopicName("never-copied")
    stops = {TopicPartition(TOPIC, 0): "too large", TopicPartition(never, 2): "PARTITION_MISMATCH: why"}
    world.index.write_stops(route, stops, ())
    with serving(world) as served, served.client() as client:
        shown = {item.route: item for item in client.list_routes().routes}
    told = {
        (item.topic, item.partitions): [(stop.partition, stop.reason) for stop in item.stopped]
        for item in shown["a->b"].topics
    }
    assert told == {(TOPIC, 1): [(0, "too large")], (never, 0): [(2, "PARTITION_MISMATCH: why")]}
    assert all(not item.stopped for item in shown["b->b"].topics)


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda it: it.get_failover_offset(GROUP, TOPIC, 0, to=at_region("x")), UnknownRegionError),
        (lambda it: it.get_failover_offset(GROUP, TOPIC, 0, to=pb.Place()), InvalidNameError),
        (lambda it: it.get_failover_offset(GROUP, TOPIC, 0, to=at_cluster("regional-b")), InvalidNameError),
        (lambda it: it.get_failover_offset(GROUP, TOPIC, 9, to=at_region("b")), UnknownPartitionError),
        (lambda it: it.get_failover_offset(GROUP, TOPIC, -1, to=at_region("b")), UnknownPartitionError),
        (lambda it: it.get_failover_offset(GROUP, "tripz", 0, to=at_region("b")), UnknownTopicError),
        (lambda it: it.get_failover_offset("nobody", TOPIC, 0, to=at_region("b")), UnknownGroupError),
        (lambda it: it.get_failover_offset("", TOPIC, 0, to=at_region("b")), InvalidNameError),
        (
            lambda it: it.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"), next_offset=-5),
            InvalidOffsetError,
        ),
        (lambda it: it.list_runs("a->x", TOPIC, 0), UnknownRouteError),
        (lambda it: it.list_runs("nonsense", TOPIC, 0), InvalidNameError),
        (lambda it: it.list_runs("a->b", TOPIC, 0, limit=10**6), LimitError),
        (lambda it: it.lookup_origin(TOPIC, 0, -1, at=at_region("b")), InvalidOffsetError),
    ],
)
def test_bad_input_is_a_typed_error(client: OffsetClient, ask: Any, error: type[ParallaxError]) -> None:
    with pytest.raises(ParallaxError) as caught:
        ask(client)

    assert type(caught.value) is error
    assert str(caught.value)


def test_a_store_that_is_away_is_told_once_the_deadline_leaves_no_retry(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.world.index, "lineages", _raise_store_away)

    with served.client(timeout_ms=1_500) as client, pytest.raises(StoreUnavailableError, match="Cassandra"):
        client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"))


def test_what_a_service_said_outweighs_that_a_later_attempt_came_too_late(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[None] = []
    ended = threading.Event()

    def away_then_silent(*_args: object) -> Any:
        attempts.append(None)
        if len(attempts) > 1:
            ended.wait(10)
        _raise_store_away()

    monkeypatch.setattr(served.world.index, "lineages", away_then_silent)
    try:
        with (
            served.client(timeout_ms=1_500) as client,
            pytest.raises(StoreUnavailableError, match="Cassandra"),
        ):
            client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"))
    finally:
        ended.set()
    assert len(attempts) == 2


def test_an_unexpected_error_tells_nothing_of_the_inside(
    served: Served, client: OffsetClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.world.index, "lineages", _raise_secret)

    with pytest.raises(ParallaxError) as caught:
        client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"))

    assert type(caught.value) is ParallaxError
    assert "secret" not in str(caught.value)


def test_a_target_that_is_away_is_passed_over(served: Served) -> None:
    with OffsetClient([CLOSED_PORT, served.target], timeout_ms=5_000) as client:
        assert client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b")).resume_offset == 12
        assert client._targets._preferred == 1


def test_a_target_that_is_silent_is_passed_over(served: Served) -> None:
    import socket  # noqa: PLC0415 - a listener that accepts and never answers

    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with OffsetClient([target, served.target], timeout_ms=4_000) as client:
            assert client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b")).resume_offset == 12


def test_without_any_service_the_error_names_the_targets() -> None:
    with (
        OffsetClient([CLOSED_PORT], timeout_ms=1_500) as client,
        pytest.raises(ServiceUnavailableError, match=CLOSED_PORT),
    ):
        client.list_routes()


def test_a_service_that_starts_late_is_found_by_the_retries() -> None:
    world, port = World(), free_port()
    found: list[pb.ListRoutesResponse] = []
    with OffsetClient([f"127.0.0.1:{port}"], timeout_ms=20_000) as client:
        asking = threading.Thread(target=lambda: found.append(client.list_routes()))
        asking.start()
        from offsetsvc.metrics import ServiceMetrics  # noqa: PLC0415 - as above
        from offsetsvc.transport.grpc_server import GrpcServer  # noqa: PLC0415 - only this test starts one by hand

        with world.service() as service:
            server = GrpcServer(service, ServiceMetrics(), address=f"127.0.0.1:{port}")
            server.start()
            asking.join()
            server.stop(0)

    assert len(found[0].routes) == 4


def test_a_closed_client_says_so(client: OffsetClient) -> None:
    client.close()

    with pytest.raises(ServiceUnavailableError, match="closed"):
        client.list_routes()


def test_the_deadline_of_the_caller_ends_the_call(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def stuck(*_: object) -> list[object]:
        released.wait(30)
        return []

    monkeypatch.setattr(served.world.index, "lineages", stuck)

    try:
        with served.client(timeout_ms=300) as client, pytest.raises(DeadlineError):
            client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b"))
    finally:
        released.set()


def test_calls_beyond_the_limit_are_refused_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(service={"max_concurrent_calls": 1})
    released = threading.Event()

    def stuck(*_: object) -> list[object]:
        released.wait(60)
        return []

    monkeypatch.setattr(world.index, "topics", stuck)
    with serving(world) as served, served.channel() as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ListRoutes",
            request_serializer=pb.ListRoutesRequest.SerializeToString,
            response_deserializer=pb.ListRoutesResponse.FromString,
        )
        try:
            waiting = [call.future(pb.ListRoutesRequest(), timeout=60) for _ in range(20)]
            refused = poll_until(
                lambda: [item for item in waiting if item.done()], 30, "some calls are refused"
            )
            assert {item.code() for item in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        finally:
            released.set()
        answered = [item for item in waiting if item.exception() is None]
        assert len(answered) + len([item for item in waiting if item.exception()]) == 20
        assert answered


def test_calls_that_all_wait_for_the_store_leave_health_and_status_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without turns for calls, they would take every thread."""
    world = World(service={"max_concurrent_calls": 2})
    world.copy("a", "b", 2)
    world.copy("a", "a", 2)
    world.commit("a", 2)
    released, stuck_calls = threading.Event(), threading.Semaphore(0)

    def stuck(*_: object) -> list[object]:
        stuck_calls.release()
        released.wait(60)
        return []

    monkeypatch.setattr(world.index, "lineages", stuck)
    path = f"/v1/groups/{GROUP}/failover-offsets?to=b"
    with serving(world) as served, served.channel() as channel, served.http() as http:
        call = channel.unary_unary(
            f"/{SERVICE}/GetFailoverOffset",
            request_serializer=pb.GetFailoverOffsetRequest.SerializeToString,
            response_deserializer=pb.FailoverOffset.FromString,
        )
        request = pb.GetFailoverOffsetRequest(group=GROUP, topic=TOPIC, to=pb.Place(region="b"))
        with ThreadPoolExecutor(4) as pool:
            try:
                waiting = [call.future(request, timeout=60) for _ in range(50)]
                asked = [pool.submit(http.get, path, timeout=60) for _ in range(4)]
                assert stuck_calls.acquire(timeout=30)
                refused = poll_until(
                    lambda: [item for item in waiting if item.done()], 30, "some calls are refused"
                )
                assert {item.code() for item in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
                busy = poll_until(lambda: [item for item in asked if item.done()], 30, "some are refused")
                assert {(item.result().status_code, item.result().json()["code"]) for item in busy} == {
                    (503, "SERVICE_UNAVAILABLE")
                }
                stub = health_pb2_grpc.HealthStub(channel)
                for _ in range(5):
                    stub.Check(health_pb2.HealthCheckRequest(service=""), timeout=2)
                    assert http.get("/livez", timeout=2).status_code == 200
                    assert http.get("/readyz", timeout=2).status_code == 200
            finally:
                released.set()


def test_a_request_beyond_the_size_limit_is_refused(client: OffsetClient) -> None:
    with pytest.raises(LimitError, match="limit is"):
        client.get_failover_offset("g" * (17 * 1024 * 1024), TOPIC, 0, to=at_region("b"))


def test_health_is_told_for_each_dependency(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with served.channel() as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def status(name: str) -> int:
            return int(stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5).status)

        serving_now = health_pb2.HealthCheckResponse.SERVING
        poll_until(lambda: status("store") == serving_now, 10, "the store is healthy")
        served.world.cluster("a").away = True
        poll_until(lambda: status("aggregate-a") != serving_now, 10, "the cluster is not")
        assert status("") == status(SERVICE) == serving_now
        monkeypatch.setattr(served.world.index, "topics", _raise_store_away)
        poll_until(lambda: status("") != serving_now, 10, "without the store nothing is served")


def test_reflection_names_the_service(served: Served) -> None:
    with served.channel() as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        answer = next(stub.ServerReflectionInfo(iter([asked]), timeout=5))

    names = {item.name for item in answer.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names


def _raise_store_away(*_: object) -> Any:
    raise StoreUnavailableError("Cassandra did not answer")


def _raise_secret(*_: object) -> Any:
    raise RuntimeError("secret")
