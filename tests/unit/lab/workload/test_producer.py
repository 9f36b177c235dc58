"""Transactions of the workload's producer over a cluster that is killed and comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from lab.workload import producer as module
from lab.workload.events import record_id
from lab.workload.plan import Phase, Plan, PlannedTransactions
from lab.workload.producer import TripProducer

AGAIN = KafkaError(KafkaError._TIMED_OUT, "not yet", fatal=False, retriable=True)
ABORT = KafkaError(KafkaError._TIMED_OUT, "too late", fatal=False, retriable=False, txn_requires_abort=True)
FATAL = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
ABORTED = KafkaError(KafkaError.INVALID_TXN_STATE, "ended by the cluster", fatal=True)


class Broker:
    """A producer's cluster.

    ``refusals`` are the errors of the next commits, ``abort_refusals`` those of aborts, which end the client; ``lose``
    the next records are not delivered. With ``unheard`` the refused commits are made all the same.
    """

    def __init__(
        self,
        *refusals: KafkaError,
        lose: int = 0,
        abort_refusals: Sequence[KafkaError] = (),
        unheard: bool = False,
    ) -> None:
        self._unheard = unheard
        self.committed: list[int] = []
        self.commits = self.aborts = self.clients = 0
        self._ended = False
        self._abort_refusals = list(abort_refusals)
        self._refusals, self._lose = list(refusals), lose
        self._open: list[int] = []
        self._reports: list[Callable[[], None]] = []

    def __call__(self, settings: dict[str, Any]) -> Broker:
        assert settings["transactional.id"]
        assert not self._reports
        self.clients += 1
        self._ended = False
        return self

    def init_transactions(self, _timeout_s: float) -> None:
        self._open = []

    def begin_transaction(self) -> None:
        assert not self._open
        assert not self._ended

    def produce(
        self, _topic: str, value: bytes, _key: bytes, *, timestamp: int, on_delivery: Callable[..., None]
    ) -> None:
        assert timestamp
        lost, self._lose = self._lose > 0, self._lose - 1
        self._open.append(record_id(value).seq)
        self._reports.append(lambda: on_delivery(ABORT if lost else None, None))

    def commit_transaction(self, _timeout_s: float) -> None:
        self.commits += 1
        if self._refusals:
            if self._unheard:
                self.committed += self._open
                self._open = []
            self._ended = self._refusals[0].fatal()
            raise KafkaException(self._refusals.pop(0))
        self.committed += self._open
        self._open = []

    def abort_transaction(self, _timeout_s: float) -> None:
        self.aborts += 1
        if self._abort_refusals:
            self._ended = True
            raise KafkaException(self._abort_refusals.pop(0))
        self._open = []

    def purge(self) -> None:
        assert self._ended

    def flush(self, _timeout_s: float) -> int:
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        return 0

    def poll(self, _timeout_s: float) -> None:
        """Nothing but reports, which `flush` gives."""

    def __len__(self) -> int:
        return len(self._reports)


class SlowBroker(Broker):
    """A cluster that acknowledges one record at each poll, to a producer without transactions."""

    def __call__(self, settings: dict[str, Any]) -> Broker:
        assert "transactional.id" not in settings
        return self

    def poll(self, _timeout_s: float) -> None:
        if self._reports:
            self._reports.pop(0)()


class Parent:
    """A channel to a parent that lives and says nothing."""

    def take(self) -> None:
        """No command."""

    def say(self, event: str, **_fields: Any) -> None:
        assert event in {"phase", "done"}

    def status_is_due(self) -> bool:
        return False


def produced(monkeypatch: pytest.MonkeyPatch, broker: Broker, *, abort_every: int = 0) -> dict[str, int]:
    monkeypatch.setattr(module, "Producer", broker)
    plan = Plan((Phase(6),), PlannedTransactions(2, abort_every=abort_every))
    made = TripProducer(
        bootstrap_servers="",
        topic="t",
        region="a",
        plan=plan,
        channel=Parent(),  # type: ignore[arg-type] # stands in for a Channel
    )
    made.run()
    return made._figures()


def test_every_other_transaction_is_aborted_on_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    figures = produced(monkeypatch, broker, abort_every=2)
    assert broker.committed == [0, 1, 4, 5, 6, 7]
    assert (figures["acked"], figures["aborted"]) == (8, 2)


def test_a_commit_that_is_not_answered_yet_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(AGAIN, AGAIN)
    figures = produced(monkeypatch, broker)
    assert broker.committed == [0, 1, 2, 3, 4, 5]
    assert (broker.commits, broker.aborts) == (5, 0)
    assert figures["acked"] - figures["aborted"] == 6


def test_what_can_not_be_committed_is_sent_again_under_new_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(ABORT, lose=1)
    figures = produced(monkeypatch, broker)
    assert broker.committed == [2, 3, 4, 5, 6, 7]
    assert broker.aborts == 1
    assert figures["acked"] - figures["aborted"] == 6


def test_an_abort_that_ends_the_client_is_followed_by_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(ABORT, lose=2, abort_refusals=[ABORTED])
    figures = produced(monkeypatch, broker)
    assert broker.committed == [2, 3, 4, 5, 6, 7]
    assert broker.clients == 2
    assert figures["acked"] - figures["aborted"] == 6


@pytest.mark.parametrize(
    ("refusals", "abort_refusals", "clients"),
    [([ABORT], [ABORTED], 2), ([AGAIN, ABORTED], [], 2), ([ABORT], [], 1)],
    ids=["an abort that is refused", "a commit that is refused", "an abort that is not"],
)
def test_a_commit_whose_answer_failed_is_told_as_doubtful(
    monkeypatch: pytest.MonkeyPatch,
    refusals: list[KafkaError],
    abort_refusals: list[KafkaError],
    clients: int,
) -> None:
    broker = Broker(*refusals, abort_refusals=abort_refusals, unheard=True)
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(Parent, "say", lambda _self, event, **fields: said.append({"event": event, **fields}))
    figures = produced(monkeypatch, broker)
    assert broker.committed == [0, 1, 2, 3, 4, 5, 6, 7]
    assert broker.clients == clients
    assert figures["acked"] - figures["aborted"] == 6
    assert (said[-1]["event"], said[-1]["doubtful"]) == ("done", [(0, 2)])


def test_an_abort_of_a_fenced_producer_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException, match="fenced"):
        produced(monkeypatch, Broker(ABORT, abort_refusals=[FATAL]))


def test_a_producer_that_was_fenced_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException, match="fenced"):
        produced(monkeypatch, Broker(FATAL))


def test_a_phase_begins_once_all_of_a_backlog_has_been_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Producer", SlowBroker())
    begun: list[tuple[int, int]] = []

    class Watched(Parent):
        def say(self, event: str, **fields: Any) -> None:
            if event == "phase":
                begun.append((fields["number"], made._figures()["acked"]))

    made = TripProducer(
        bootstrap_servers="",
        topic="t",
        region="a",
        plan=Plan((Phase(20), Phase(5, seconds=0.05))),
        channel=Watched(),  # type: ignore[arg-type] # stands in for a Channel
    )
    made.run()
    assert begun == [(0, 0), (1, 20)]
    assert made._figures()["acked"] == 25
