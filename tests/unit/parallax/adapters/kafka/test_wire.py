"""Connections to brokers that are not there."""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import ExitStack, closing
from pathlib import Path

import kafka.errors
import pytest

from parallax.adapters.kafka import wire
from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Cluster
from parallax.config.security import Security
from parallax.domain.ids import ClusterName
from parallax.errors import ClusterUnavailableError, ConfigError, ParallaxError
from tests.worlds.certificates import Authority, tls_server


def nobody_there() -> str:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_cluster_that_does_not_answer_is_unavailable_and_says_why() -> None:
    loop = EventLoop()
    connections = Connections(
        loop,
        ClusterName("aggregate-b"),
        Cluster(bootstrap_servers=nobody_there()),
        client_id="test",
        largest_answer_bytes=1_000,
        timeout_ms=300,
    )
    with closing(loop), closing(connections):
        with pytest.raises(ClusterUnavailableError, match="aggregate-b: connecting: no answer within 300 ms"):
            connections.connect()
        assert connections.problem == "no broker has answered yet"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (kafka.errors.SaslAuthenticationFailedError("no"), ConfigError),
        (kafka.errors.TransactionalIdAuthorizationFailedError("no"), ConfigError),
        (kafka.errors.KafkaConnectionError("gone"), ClusterUnavailableError),
        (kafka.errors.RequestTimedOutError("late"), ClusterUnavailableError),
    ],
)
def test_what_went_wrong_is_said_in_our_own_words(error: Exception, kind: type[Exception]) -> None:
    loop = EventLoop()
    connections = Connections(
        loop,
        ClusterName("aggregate-b"),
        Cluster(bootstrap_servers=nobody_there()),
        client_id="test",
        largest_answer_bytes=1_000,
    )
    with closing(loop), closing(connections):
        found = connections._translated(error, "writing")
        assert type(found) is kind
        assert str(found).startswith("aggregate-b: writing: ")


def buffers_of_connection(loop: EventLoop) -> list[int]:
    """What the only connection of a loop sends and receives into; nothing while there is none."""
    for number in list(loop.net._selector.get_map()):
        with closing(socket.socket(fileno=os.dup(number))) as found:
            if found.family is socket.AF_INET:
                return [
                    found.getsockopt(socket.SOL_SOCKET, of) for of in (socket.SO_SNDBUF, socket.SO_RCVBUF)
                ]
    return []


@pytest.mark.parametrize("size_bytes", [None, 40_000])
def test_a_connection_has_the_buffers_that_are_asked_for(size_bytes: int | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = Cluster(
            bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}",
            socket_send_buffer_bytes=size_bytes,
            socket_receive_buffer_bytes=size_bytes,
        )
        loop = EventLoop()
        connections = Connections(
            loop, ClusterName("aggregate-b"), settings, client_id="test", largest_answer_bytes=1_000
        )
        with closing(loop), closing(connections):
            deadline_s = time.monotonic() + 10
            while not (sizes := buffers_of_connection(loop)):
                assert time.monotonic() < deadline_s
                loop.turn(20)
    for size in sizes:  # the kernel doubles what is asked for, for its own book-keeping (socket(7))
        assert size == 80_000 if size_bytes else size != 80_000


def silent_brokers_tried(within_s: float) -> int:
    """Of two brokers that take connections and say nothing: how many are tried in time."""
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as one,
        closing(socket.create_server(("127.0.0.1", 0))) as other,
        ExitStack() as accepted,
    ):
        loop = EventLoop()
        servers = [one, other]
        connections = Connections(
            loop,
            ClusterName("aggregate-b"),
            Cluster(bootstrap_servers=",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in servers)),
            client_id="test",
            largest_answer_bytes=1_000,
        )
        with closing(loop), closing(connections):
            give_up_at = time.monotonic() + within_s
            while servers and time.monotonic() < give_up_at:
                loop.turn(20)
                for each in select.select(servers, [], [], 0)[0]:
                    accepted.enter_context(closing(each.accept()[0]))
                    servers.remove(each)
        return 2 - len(servers)


def test_a_broker_that_says_nothing_leaves_time_to_try_another_one() -> None:
    assert silent_brokers_tried(8.0) == 2


def test_kafka_pythons_own_patience_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_SETUP_MS", 10_000)
    assert silent_brokers_tried(3.0) == 1


def connected_to_a_stranger(directory: Path) -> Exception:
    """How connecting to a broker ends whose authority is not trusted, within 3 s."""
    trusted, foreign = Authority(directory / "trusted"), Authority(directory / "foreign")
    security = Security(protocol="SSL", ssl_ca_location=str(trusted.certificate))
    loop = EventLoop()
    with tls_server(foreign.pair("server")) as address:
        connections = Connections(
            loop,
            ClusterName("aggregate-b"),
            Cluster(bootstrap_servers=address, security=security),
            client_id="test",
            largest_answer_bytes=1_000,
            timeout_ms=3_000,
        )
        with closing(loop), closing(connections), pytest.raises(ParallaxError) as caught:
            connections.connect()
    return caught.value


def test_a_broker_that_is_not_trusted_is_named_and_left_alone(tmp_path: Path) -> None:
    refused = connected_to_a_stranger(tmp_path)
    assert isinstance(refused, ConfigError)
    assert "its certificate is not signed by an authority that is trusted here" in str(refused)


def test_taken_for_any_other_failure_it_would_be_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "UNWELCOME", ())
    assert isinstance(connected_to_a_stranger(tmp_path), ClusterUnavailableError)
