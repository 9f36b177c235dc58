"""Changes of topics at a cluster that may have stood still a moment ago."""

from __future__ import annotations

import weakref
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from lab.workload import topics as module
from lab.workload.worker import WorkerError

Answer = BaseException | None


class Admins:
    """Clients that each give one answer, and lose it if nobody holds them, as librdkafka's do.

    Attributes:
        answers: one for each client; the last one for all that follow.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.made = 0

    def __call__(self, _settings: dict[str, Any]) -> Admin:
        self.made += 1
        return Admin(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


class Admin:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def create_topics(self, topics: list[Any]) -> dict[str, Awaited]:
        return {topics[0].topic: Awaited(weakref.ref(self), self._answer)}

    def delete_topics(self, topics: list[str]) -> dict[str, Awaited]:
        return {topics[0]: Awaited(weakref.ref(self), self._answer)}


class Awaited(Future[None]):
    def __init__(self, client: weakref.ref[Admin], answer: Answer) -> None:
        super().__init__()
        self._client, self._answer = client, answer

    def result(self, timeout: float | None = None) -> None:
        assert timeout
        assert self._client() is not None, "nobody holds the client any more"
        if self._answer is not None:
            raise self._answer


def failure(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the partitions have begun when they are asked; after the last answer they have."""
    answers: list[bool] = []
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    monkeypatch.setattr(
        module.EndOffsets, "ask", lambda _self: {0: 0} if not answers or answers.pop(0) else None
    )
    return answers


def test_a_topic_is_created_once_its_partitions_have_begun(
    monkeypatch: pytest.MonkeyPatch, begun: list[bool]
) -> None:
    use(monkeypatch, None)
    begun += [False, False, True, False]
    module.create_topic("somewhere:1", "trips", 4)
    assert begun == [False]


def use(monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> Admins:
    admins = Admins(*answers)
    monkeypatch.setattr(module, "AdminClient", admins)
    return admins


def test_a_cluster_that_lets_a_request_lie_is_asked_again_by_a_new_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admins = use(monkeypatch, TimeoutError(), None)
    module.create_topic("somewhere:1", "trips", 4)
    assert admins.made == 2


@pytest.mark.parametrize("done", [KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_what_is_done_already_is_done(monkeypatch: pytest.MonkeyPatch, done: int) -> None:
    use(monkeypatch, failure(done))
    if done == KafkaError.TOPIC_ALREADY_EXISTS:
        module.create_topic("somewhere:1", "trips", 4)
    else:
        module.delete_topic("somewhere:1", "trips")


def test_a_refusal_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    admins = use(monkeypatch, failure(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(WorkerError, match="somewhere:1: topic trips was not created"):
        module.create_topic("somewhere:1", "trips", 4)
    assert admins.made == 1


def test_silence_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHANGED_S", 0.0)
    use(monkeypatch, TimeoutError())
    with pytest.raises(WorkerError, match="topic trips was not deleted: no answer"):
        module.delete_topic("somewhere:1", "trips")
