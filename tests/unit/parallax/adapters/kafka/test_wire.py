"""Connections to brokers that are not there."""

from __future__ import annotations

import socket
from contextlib import closing

import kafka.errors
import pytest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName
from parallax.errors import ClusterUnavailableError, ConfigError


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
