"""What gRPC callers may cost: half-sent calls, reflection and health streams, bombs, names. Others are answered meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from offsetsvc.transport import grpc_limits
from offsetsvc.transport.grpc_limits import CallLimits, Held
from parallax.client.targets import SERVICE
from parallax.errors import ParallaxError
from tests.support import poll_until
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, World

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
LIST_ROUTES = f"/{SERVICE}/ListRoutes"


def connected(served: Served) -> grpc.Channel:
    """A channel with a connection of its own."""
    return grpc.insecure_channel(served.target, [("grpc.use_local_subchannel_pool", 1)])


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(grpc_limits, "HALF_SENT_WITHIN_S", 6.0)
    monkeypatch.setattr(grpc_limits, "REFLECTION_WITHIN_S", 6.0)
    world = World(service={"max_concurrent_calls": 4})
    world.commit("a", 0)
    with serving(world) as running:
        yield running


def assert_answered(served: Served) -> None:
    """Somebody who behaves is answered: at once, and each time."""
    with served.client(timeout_ms=10_000) as client:
        for _ in range(3):
            began = time.monotonic()
            try:
                assert len(client.list_routes().routes) == 4
            except ParallaxError as error:
                raise AssertionError(f"refused: {error}") from error
            assert time.monotonic() - began < 4


@contextmanager
def silent_callers(served: Served, count: int, method: str = LIST_ROUTES) -> Iterator[list[Any]]:
    """Calls whose headers are there and whose message never comes."""
    stop = threading.Event()

    def never() -> Iterator[bytes]:
        stop.wait()
        yield from ()

    with connected(served) as first, connected(served) as second:
        calls = [channel.stream_unary(method) for channel in (first, second)]
        futures = [calls[number % 2].future(never()) for number in range(count)]
        try:
            yield futures
        finally:
            for future in futures:
                future.cancel()
            stop.set()


def half_sent_calls_end(served: Served) -> None:
    with silent_callers(served, 200) as calls:
        time.sleep(0.5)
        assert_answered(served)
        codes = grpc.StatusCode
        ended = {codes.CANCELLED, codes.RESOURCE_EXHAUSTED, codes.UNAVAILABLE}
        poll_until(lambda: all(call.done() for call in calls), 15, "all half-sent calls ended")
        assert {call.code() for call in calls} <= ended
    assert_answered(served)


def test_half_sent_calls_end_and_others_are_answered_meanwhile(served: Served) -> None:
    half_sent_calls_end(served)


def test_a_defect_where_calls_are_ended_ends_no_limit(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, met = Held.end_overdue, threading.Event()

    def broken_once(held: Held) -> None:
        if not met.is_set():
            met.set()
            raise RuntimeError("nobody thought of this")
        right(held)

    monkeypatch.setattr(Held, "end_overdue", broken_once)
    with capture_logs() as logs:
        assert met.wait(10)
        half_sent_calls_end(served)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["limits_not_held"]


def test_half_sent_health_checks_and_watches_end_too(served: Served) -> None:
    with (
        silent_callers(served, 100, "/grpc.health.v1.Health/Check"),
        silent_callers(served, 100, "/grpc.health.v1.Health/Watch"),
    ):
        time.sleep(0.5)
        assert_answered(served)


@contextmanager
def reflecting(channel: grpc.Channel, count: int) -> Iterator[list[Any]]:
    """Reflection streams that ask one thing and stay."""
    stop = threading.Event()

    def asks() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        stop.wait()

    streams = [
        reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asks(), timeout=8)
        for _ in range(count)
    ]
    try:
        yield streams
    finally:
        for stream in streams:
            stream.cancel()
        stop.set()


def begun(stream: Any) -> bool:
    try:
        next(stream)
    except grpc.RpcError:
        return False
    return True


def reflections_end(served: Served) -> None:
    with connected(served) as channel, reflecting(channel, 100) as streams:
        answered = sum(map(begun, streams))
        assert 1 <= answered <= grpc_limits.REFLECTIONS_OF_ONE
        assert_answered(served)
        # Somebody else may still ask what there is.
        with connected(served) as other, reflecting(other, 1) as (stream,):
            assert begun(stream)
        poll_until(lambda: all(stream.done() for stream in streams), 15, "all reflection streams ended")


def test_a_hundred_reflection_streams_block_nobody_and_end(served: Served) -> None:
    reflections_end(served)


def test_reflections_of_many_connections_block_nobody(served: Served) -> None:
    channels = [connected(served) for _ in range(30)]
    stop = threading.Event()

    def asks() -> Iterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        stop.wait()

    streams = [
        reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asks())
        for channel in channels
        for _ in range(3)
    ]
    time.sleep(1)
    assert_answered(served)
    with connected(served) as other, reflecting(other, 1) as (stream,):
        assert begun(stream)
    stop.set()
    for each in streams:
        each.cancel()
    for channel in channels:
        channel.close()


def test_health_watches_of_one_connection_are_bounded_and_hold_nobody_up(served: Served) -> None:
    with served.channel() as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(100)]
        assert sum(map(begun, watches)) == grpc_limits.HEALTH_WATCHES_OF_ONE
        assert_answered(served)
        for watch in watches:
            watch.cancel()
        poll_until(lambda: begun(stub.Watch(health_pb2.HealthCheckRequest())), 10, "room for another watch")


@pytest.mark.parametrize("megabytes", [17, 300])
def test_a_message_is_bounded_once_it_is_decompressed(served: Served, megabytes: int) -> None:
    size = megabytes << 20
    length = bytes(
        [size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21 & 127 | 128, size >> 28]
    )
    bomb = b"\xfa\x01" + length + bytes(size)  # a field that nobody knows
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(served.target, options, compression=grpc.Compression.Gzip) as channel:
        with pytest.raises(grpc.RpcError, match="larger than max") as refused:
            channel.unary_unary(LIST_ROUTES)(bomb, timeout=30)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    assert_answered(served)


def test_metadata_is_bounded(served: Served) -> None:
    with served.channel() as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(LIST_ROUTES)(b"", metadata=[("authorization", "x" * 100_000)], timeout=5)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]


def test_a_call_without_its_message_is_told_so(served: Served) -> None:
    with served.channel() as channel, pytest.raises(grpc.RpcError, match="without its message") as refused:
        channel.stream_unary(LIST_ROUTES)(iter(()), timeout=5)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]


def test_connections_that_say_nothing_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    sooner = [
        (name, 1_000 if name == "grpc.server_handshake_timeout_ms" else value)
        for name, value in grpc_limits.OPTIONS
    ]
    monkeypatch.setattr("offsetsvc.transport.grpc_server.OPTIONS", sooner)
    with serving(World()) as served:
        host, _, port = served.target.rpartition(":")
        callers = [socket.create_connection((host, int(port)), timeout=10) for _ in range(100)]
        assert_answered(served)
        for caller in callers:
            while caller.recv(1_000):
                pass
            caller.close()


@pytest.mark.parametrize("bounded", [True, False])
def test_strangers_who_connect_take_no_file_from_those_who_are_there(
    monkeypatch: pytest.MonkeyPatch,
    bounded: bool,  # noqa: FBT001 - a case
) -> None:
    """A thousand that say nothing: each is a file of the process until it is ended."""
    name = "grpc.max_allowed_incoming_connections"
    fewer = [(key, 20 if key == name else value) for key, value in grpc_limits.OPTIONS]
    if not bounded:
        fewer = [(key, value) for key, value in fewer if key != name]
    monkeypatch.setattr("offsetsvc.transport.grpc_server.OPTIONS", fewer)
    with serving(World()) as served, served.client(timeout_ms=30_000) as client:
        client.list_routes()
        host, _, port = served.target.rpartition(":")
        callers = [socket.create_connection((host, int(port)), timeout=10) for _ in range(60)]
        if bounded:
            poll_until(lambda: sum(map(is_ended, callers)) >= 41, 10, "those beyond the limit are ended")
        else:
            time.sleep(0.5)
            assert not any(map(is_ended, callers))
        assert len(client.list_routes().routes) == 4
        for caller in callers:
            caller.close()
        with served.client(timeout_ms=30_000) as newcomer:
            assert len(newcomer.list_routes().routes) == 4


def is_ended(caller: socket.socket) -> bool:
    caller.settimeout(0.0)
    try:
        while caller.recv(1_000):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


def test_connections_leave_files_for_all_else() -> None:
    assert [grpc_limits.connections_within(files) for files in (1_024, 20_000, -1)] == [512, 5_000, 5_000]


def test_the_page_tells_what_the_server_is_told() -> None:
    """Of limits too long, or too many, to be waited for."""
    told, page = dict(grpc_limits.OPTIONS), PAGE.read_text(encoding="utf-8")
    begin_s, idle_min, age_min, grace_min = (
        told[f"grpc.{name}"] // unit
        for name, unit in (
            ("server_handshake_timeout_ms", 1_000),
            ("max_connection_idle_ms", 60_000),
            ("max_connection_age_ms", 60_000),
            ("max_connection_age_grace_ms", 60_000),
        )
    )
    assert told["grpc.max_metadata_size"] == told["grpc.absolute_max_metadata_size"]
    assert grace_min == 1
    for row in (
        f"connections | {grpc_limits.MOST_CONNECTIONS:,}, and no more than half of the files",
        f"streams of one connection | {told['grpc.max_concurrent_streams']} |",
        f"metadata of a call | {told['grpc.max_metadata_size'] >> 10} KiB |",
        f"a message | {told['grpc.max_receive_message_length'] >> 20} MiB, decompressed too |",
        f"a connection | {begin_s} s to begin; {idle_min} minutes without a call; {age_min} minutes in all, and a minute for what",
        f"pings without a call | one in {told['grpc.http2.min_ping_interval_without_data_ms'] // 1_000} s |",
    ):
        assert f"\n| {row}" in page


def test_a_deadline_of_an_hour_is_shortened(served: Served) -> None:
    given = []
    right = served.service.describe_regions

    def describe(groups: Any, topics: Any, deadline: Any) -> Any:
        given.append(deadline.remaining_ms)
        return right(groups, topics, deadline)

    served.service.describe_regions = describe  # type: ignore[method-assign]
    with served.client(timeout_ms=3_600_000) as client:
        client.describe_regions()

    assert given[0] <= grpc_limits.LONGEST_CALL_MS


def test_watches_and_positions_work_within_the_limits(served: Served) -> None:
    with served.client() as client:
        assert client.get_group_positions(GROUP)
    with served.channel() as channel:
        watch = channel.unary_stream("/parallax.v1.PrimaryService/WatchPrimary")
        stream = watch(b"\x0a\x01g", timeout=5)
        assert next(stream)
        stream.cancel()


Mutant = Callable[[pytest.MonkeyPatch], None]


def _half_sent_calls_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Held, "end_overdue", lambda _: None)


def _nobody_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Held, "take", lambda *_: None)


def _reflection_is_a_call_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def unbounded(_: CallLimits, behaviour: Any, requests: Any, context: Any) -> Any:
        yield from behaviour(requests, context)

    monkeypatch.setattr(CallLimits, "_reflection", unbounded)


@pytest.mark.parametrize(
    ("mutant", "scene"),
    [
        (_half_sent_calls_stay, half_sent_calls_end),
        (_nobody_is_ended, half_sent_calls_end),
        (_reflection_is_a_call_like_others, reflections_end),
    ],
    ids=lambda item: item.__name__.strip("_"),
)
def test_each_limit_is_needed(
    served: Served, monkeypatch: pytest.MonkeyPatch, mutant: Mutant, scene: Callable[[Served], None]
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        scene(served)
