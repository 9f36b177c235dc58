"""How long a call to a Kafka cluster may take, by what librdkafka told of its connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from parallax.adapters.kafka.librdkafka import AdminLink
from parallax.adapters.kafka.links import DOWN_TIMEOUT_S

LONG_S = 10.0
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
REFUSED = KafkaError(KafkaError._TRANSPORT)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def silent_broker() -> Iterator[str]:
    """Takes connections and says nothing, so that librdkafka tells of no error by itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def link(broker: str, clock: Clock, timeout_s: float = LONG_S) -> AdminLink:
    return AdminLink({"bootstrap.servers": broker, "log_level": 0}, timeout_s=timeout_s, clock=clock)


def test_one_broker_that_refuses_says_nothing_of_the_cluster(silent_broker: str) -> None:
    some = link(silent_broker, Clock())
    some.on_error(REFUSED)
    assert some.timeout_s() == LONG_S


def test_a_cluster_without_any_connection_gets_little_time_for_as_long_as_connecting_fails(
    silent_broker: str,
) -> None:
    clock = Clock()
    some = link(silent_broker, clock)
    some.on_error(ALL_DOWN)
    for _ in range(5):
        clock.now_s += 1.0
        some.on_error(REFUSED)
        assert some.timeout_s() == DOWN_TIMEOUT_S
    clock.now_s += 2.0
    assert some.timeout_s() == LONG_S
    some.on_error(REFUSED)
    assert some.timeout_s() == LONG_S


def test_a_shorter_time_out_stays_shorter(silent_broker: str) -> None:
    some = link(silent_broker, Clock(), timeout_s=0.2)
    some.on_error(ALL_DOWN)
    assert some.timeout_s() == 0.2
