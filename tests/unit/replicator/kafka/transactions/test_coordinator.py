"""What a transactional id's owner makes of its coordinator's answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, ConfigError, FencedError
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.transactions import coordinator
from replicator.kafka.transactions.coordinator import Coordinator, ProducerState

DONE, UNEXPECTED, INVALID_STATE, NOT_ALLOWED, FENCED = 0, -1, 48, 53, 90


class Answers:
    """Stands for `Connections` to a cluster whose coordinator answers with these errors, the last one for good."""

    cluster = ClusterName("aggregate-b")
    any_node = 1

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.asked = 0

    def coordinator(self, _host: str, _port: int, node: int) -> int:
        return node

    def ask(self, _node: int, _request: Any, doing: str) -> Any:
        if "finding" in doing:
            return SimpleNamespace(error_code=DONE, host="", port=0, node_id=1)
        self.asked += 1
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return SimpleNamespace(API_VERSION=5, error_code=code, producer_id=7, producer_epoch=4)


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    with closing(EventLoop()) as made:
        yield made


def owner(loop: EventLoop, answers: Answers) -> Coordinator:
    return Coordinator(loop, answers, "own", 60_000, newest=True)  # type: ignore[arg-type]


def test_a_commit_that_fails_within_a_broker_which_lets_a_newer_owner_in_ends_as_fenced(
    loop: EventLoop,
) -> None:
    with pytest.raises(FencedError):
        owner(loop, Answers(UNEXPECTED, FENCED)).end(ProducerState(7, 3), committed=True)


def test_a_commit_that_failed_within_the_broker_may_have_succeeded(loop: EventLoop) -> None:
    producer = ProducerState(7, 3)
    owner(loop, Answers(UNEXPECTED, UNEXPECTED, DONE)).end(producer, committed=True)
    assert (producer.producer_id, producer.epoch) == (7, 4)


def test_a_broker_that_fails_for_good_ends_the_session(
    loop: EventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_UNEXPECTED_FOR_MS", 120)
    answers = Answers(UNEXPECTED)
    with pytest.raises(ClusterUnavailableError, match=r"committing: UnknownError \(-1\)"):
        owner(loop, answers).end(ProducerState(7, 3), committed=True)
    assert 2 <= answers.asked <= 5


def test_a_commit_of_what_is_not_open_any_more_ends_as_fenced(loop: EventLoop) -> None:
    answers = Answers(INVALID_STATE)
    with pytest.raises(FencedError):
        owner(loop, answers).end(ProducerState(7, 3), committed=True)
    assert answers.asked == 1


def test_other_errors_end_the_session_at_once(loop: EventLoop) -> None:
    answers = Answers(INVALID_STATE)
    with pytest.raises(ClusterUnavailableError):
        owner(loop, answers).end(ProducerState(7, 3), committed=False)
    assert answers.asked == 1


@pytest.mark.parametrize("codes", [(29, 55, 55), (55, 29, 55)])
def test_one_topic_that_is_not_allowed_is_named(loop: EventLoop, codes: tuple[int, ...]) -> None:
    class Adding(Answers):
        def ask(self, node: int, request: Any, doing: str) -> Any:
            if "adding" not in doing:
                return super().ask(node, request, doing)
            topics = [
                SimpleNamespace(
                    name=f"topic-of-{code}",
                    results_by_partition=[SimpleNamespace(partition_index=3, partition_error_code=code)],
                )
                for code in codes
            ]
            return SimpleNamespace(API_VERSION=3, results_by_topic_v3_and_below=topics)

    with pytest.raises(TopicsRefusedError) as caught:
        owner(loop, Adding()).add([TopicPartition(TopicName("topic-of-29"), 3)], ProducerState(7, 3))
    [(topic, reason)] = caught.value.reasons.items()
    assert topic == "topic-of-29"
    assert reason.startswith("RIGHT_MISSING: Write on topic topic-of-29 at aggregate-b")


@pytest.mark.parametrize(
    "doing", ["finding the transaction coordinator", "initialising", "adding", "committing"]
)
def test_an_id_that_is_not_allowed_is_named(loop: EventLoop, doing: str) -> None:
    class Refusing(Answers):
        def ask(self, node: int, request: Any, asked: str) -> Any:
            if not asked.startswith(doing):
                return super().ask(node, request, asked)
            part = SimpleNamespace(partition_index=3, partition_error_code=NOT_ALLOWED)
            topics = [SimpleNamespace(name="trips", results_by_partition=[part])]
            whole = {} if doing == "adding" else {"error_code": NOT_ALLOWED}
            return SimpleNamespace(API_VERSION=3, results_by_topic_v3_and_below=topics, **whole)

    it, producer = owner(loop, Refusing(DONE)), ProducerState(7, 3)
    calls = {
        "adding": lambda: it.add([TopicPartition(TopicName("trips"), 3)], producer),
        "committing": lambda: it.end(producer, committed=True),
    }
    with pytest.raises(ConfigError, match=r"^RIGHT_MISSING: Write on transactional id own at aggregate-b "):
        calls.get(doing, it.initialise)()
