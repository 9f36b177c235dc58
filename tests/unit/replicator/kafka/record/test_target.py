"""What the record path's producer makes of errors that can't be made on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._acl import AclOperation

from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, ConfigError, FencedError
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.record.target import KafkaTarget

ITEM = TopicPartition(TopicName("trips"), 0)


class LosingProducer:
    """A producer whose library loses the fatal error on its way out of a callback."""

    def __init__(self, repeated: KafkaError | None) -> None:
        self._repeated = repeated

    def flush(self, _timeout_s: float) -> NoReturn:
        raise SystemError("<built-in method flush> returned NULL without setting an exception")

    def begin_transaction(self) -> None:
        if self._repeated is not None:
            raise KafkaException(self._repeated)


def target_of(producer: LosingProducer) -> KafkaTarget:
    target = KafkaTarget.__new__(KafkaTarget)
    target._cluster = ClusterName("aggregate-b")
    target._transactional_id = "own"
    target._producer = producer  # type: ignore[assignment] # only what is called
    return target


def test_a_fatal_error_that_the_library_lost_is_asked_for_again() -> None:
    producer = LosingProducer(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))
    with pytest.raises(FencedError, match="fenced by a newer instance"):
        target_of(producer)._call("waiting for acknowledgements", producer.flush, 1.0)


def test_one_that_is_not_told_again_ends_the_session_all_the_same() -> None:
    producer = LosingProducer(None)
    with pytest.raises(ClusterUnavailableError, match="without saying why"):
        target_of(producer)._call("waiting for acknowledgements", producer.flush, 1.0)


class Rights:
    """An admin client of a cluster that allows these operations on topics."""

    def __init__(self, allowed: Mapping[str, Collection[AclOperation]]) -> None:
        self._allowed = allowed

    def describe_topics(self, topics: Any, **_: object) -> dict[str, Future[Any]]:
        found: dict[str, Future[Any]] = {}
        for name in topics.topic_names:
            found[name] = Future()
            found[name].set_result(SimpleNamespace(authorized_operations=self._allowed[name]))
        return found


def settled(
    purged_by: int, allowed: Mapping[str, Collection[AclOperation]], names: Iterable[str]
) -> Exception:
    """What settling raises where librdkafka has purged all records of a transaction with these topics."""
    producer = LosingProducer(KafkaError(purged_by, "Failed to add partition(s) to transaction"))
    producer.flush = lambda _timeout_s: 0  # type: ignore[method-assign, assignment, return-value]
    target = target_of(producer)
    items = [TopicPartition(TopicName(name), 0) for name in names]
    target._admin = Rights(allowed)  # type: ignore[assignment] # only what is called
    target._callbacks = dict.fromkeys(items)  # type: ignore[arg-type] # only the topics count
    target._timeout_s = target._commit_timeout_s = 1.0
    target._acknowledged = {}
    target._failed = (items[0], KafkaError(KafkaError._PURGE_QUEUE))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what is asked
        target.settle({})
    return caught.value


class Telling:
    """A producer that acknowledges each record at the next of these offsets; None: without one."""

    def __init__(self, offsets: Iterable[int | None]) -> None:
        self._offsets, self._told = iter(offsets), list[Callable[[], None]]()

    def begin_transaction(self) -> None: ...

    def commit_transaction(self, _timeout_s: float) -> None:
        self.flush(_timeout_s)

    def produce(self, _topic: str, *_: object, on_delivery: Callable[..., None], **__: object) -> None:
        offset = next(self._offsets)
        self._told.append(lambda: on_delivery(None, SimpleNamespace(offset=lambda: offset)))

    def flush(self, _timeout_s: float) -> int:
        while self._told:
            self._told.pop(0)()
        return 0


def telling(offsets: Iterable[int | None]) -> KafkaTarget:
    """A target to which a block of two records of trips-0 was sent."""
    target = target_of(Telling(offsets))  # type: ignore[arg-type] # only what is called
    target._commit_timeout_s, target._failed = 1.0, None
    target._partitions, target._run_log = {TopicName("trips"): 1}, (TopicName("run-log"), 0)
    target._leader_epochs = SimpleNamespace(confirm=lambda _logs: SimpleNamespace(wait=lambda: None))  # type: ignore[assignment] # only what is called
    target.begin()
    record = SimpleNamespace(value=lambda: b"v", key=lambda: None, timestamp=lambda: (1, 1), headers=list)
    target.produce(SimpleNamespace(topic_partition=ITEM, records=[record, record]))  # type: ignore[arg-type] # only what is read
    return target


def test_records_that_are_acknowledged_without_an_offset_may_not_be_there() -> None:
    assert telling([5, 6]).settle({}) == {ITEM: [5, 6]}
    for offsets in ([None, 0], [0, None], [None, None]):
        target = telling([*offsets, 7, 8])
        with pytest.raises(
            ClusterUnavailableError, match=r"trips-0: .* without an offset, and may not be there"
        ):
            target.settle({})
        target.begin()
        assert target.settle({}) == {}, "it was the other transaction's"


def test_so_may_a_run_log_entry() -> None:
    entry = SimpleNamespace(SerializeToString=lambda: b"entry")
    target = telling([5, 6, 7])
    target.settle({})
    assert target.commit([entry], {}) == [7]  # type: ignore[list-item] # only what is called
    target = telling([5, 6, None])
    target.settle({})
    with pytest.raises(ClusterUnavailableError, match="the run-log entry was not acknowledged"):
        target.commit([entry], {})  # type: ignore[list-item] # as above


READ, WRITE = AclOperation.READ, AclOperation.WRITE


def test_topics_that_may_not_be_written_to_are_found_though_the_library_names_none() -> None:
    allowed = {"held": [READ], "free": [READ, WRITE]}
    error = settled(KafkaError.TOPIC_AUTHORIZATION_FAILED, allowed, ["free", "held"])
    assert isinstance(error, TopicsRefusedError)
    [(topic, reason)] = error.reasons.items()
    assert topic == "held"
    assert reason.startswith("RIGHT_MISSING: Write on topic held at aggregate-b")


@pytest.mark.parametrize(
    ("purged_by", "allowed"),
    [(KafkaError.TOPIC_AUTHORIZATION_FAILED, [READ, WRITE]), (KafkaError.REQUEST_TIMED_OUT, [READ])],
    ids=["given meanwhile", "for another reason"],
)
def test_a_transaction_that_has_failed_for_no_missing_right_is_tried_again(
    purged_by: int, allowed: Collection[AclOperation]
) -> None:
    error = settled(purged_by, {"trips": allowed}, ["trips"])
    assert isinstance(error, ClusterUnavailableError)


@pytest.mark.parametrize("fatal", [True, False])
def test_an_id_that_is_not_allowed_is_named(*, fatal: bool) -> None:
    refusal = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Fatal error", fatal=fatal)
    producer = LosingProducer(refusal)
    with pytest.raises(ConfigError, match=r"^RIGHT_MISSING: Write on transactional id own at aggregate-b "):
        target_of(producer)._call("beginning a transaction", producer.begin_transaction)
    error = settled(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, {"trips": [READ, WRITE]}, ["trips"])
    assert isinstance(error, ConfigError)
    assert str(error).startswith("RIGHT_MISSING: Write on transactional id own at aggregate-b ")
