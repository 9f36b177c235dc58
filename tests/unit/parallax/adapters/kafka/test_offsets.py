from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from parallax.adapters.kafka.librdkafka import list_offsets

PLACE = TopicPartition("runs", 0)
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the library leaves it untyped

Answer = ListOffsetsResultInfo | KafkaException


def info(offset: int) -> ListOffsetsResultInfo:
    return ListOffsetsResultInfo(offset, 0, 0)  # type: ignore[no-untyped-call] # as above


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
