"""What librdkafka tells of offsets and of its connections, and what becomes of it."""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from parallax.adapters.kafka.librdkafka import (
    DOWN_TIMEOUT_S,
    LATEST,
    AdminLink,
    client_settings,
    list_offsets,
)
from parallax.config.config import Cluster
from parallax.runtime.deadline import Deadline

PLACE = TopicPartition("runs", 0)
LONG_S = 10.0
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
REFUSED = KafkaError(KafkaError._TRANSPORT)

Answer = ListOffsetsResultInfo | KafkaException


# --- settings --------------------------------------------------------------------------------------------------


def test_buffers_are_set_where_they_are_asked_for() -> None:
    names = {"socket.send.buffer.bytes", "socket.receive.buffer.bytes"}
    plain = Cluster(bootstrap_servers="a:9092")
    assert names.isdisjoint(client_settings(plain, client_id="test"))
    asked_for = plain.model_copy(update={"socket_receive_buffer_bytes": 70_000})
    found = client_settings(asked_for, client_id="test")
    assert {name: found[name] for name in names & found.keys()} == {"socket.receive.buffer.bytes": 70_000}
    AdminClient(found)  # librdkafka takes it


# --- offsets ---------------------------------------------------------------------------------------------------


def info(offset: int) -> ListOffsetsResultInfo:
    return ListOffsetsResultInfo(offset, 0, 0)  # type: ignore[no-untyped-call] # the library leaves it untyped


class Answering:
    """An admin client with prepared answers, one a call."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.metadata_asked = 0

    def list_offsets(self, request: dict[TopicPartition, OffsetSpec], **_: Any) -> dict[Any, Future[Any]]:
        future: Future[Any] = Future()
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return dict.fromkeys(request, future)

    def list_topics(self, **_: Any) -> None:
        self.metadata_asked += 1


def asked(admin: Answering) -> Future[Any]:
    return list_offsets(
        cast("AdminClient", admin),
        {PLACE: LATEST},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=1.0,
    )[PLACE]


def test_an_offset_is_passed_on() -> None:
    assert asked(Answering(info(7))).result(1).offset == 7


def test_an_answer_without_an_offset_is_an_error() -> None:
    with pytest.raises(KafkaException) as caught:
        asked(Answering(info(OFFSET_INVALID))).result(1)
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT


def test_outdated_metadata_are_fetched_and_the_question_asked_again() -> None:
    admin = Answering(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)), info(7))
    assert asked(admin).result(1).offset == 7
    assert admin.metadata_asked == 1


def test_another_error_is_passed_on() -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert asked(Answering(refused)).exception(1) is refused


# --- time-outs -------------------------------------------------------------------------------------------------


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


# --- the end ---------------------------------------------------------------------------------------------------


def test_a_link_that_nobody_holds_is_gone_at_once_with_its_client(silent_broker: str) -> None:
    gc.disable()
    try:
        some = link(silent_broker, Clock())
        gone = weakref.ref(some)
        del some
        assert gone() is None
    finally:
        gc.enable()


def test_a_client_tells_its_link_of_connections_that_fail() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        refusing = f"127.0.0.1:{server.getsockname()[1]}"
    some = link(refusing, Clock())
    deadline = Deadline.after_ms(10_000)
    while some.timeout_s() == LONG_S and not deadline.passed:
        some.client.poll(0.05)
    assert some.timeout_s() == DOWN_TIMEOUT_S
