"""A Cassandra that is slow rather than dead: every call ends in time, and none holds up another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import cassandra
import pytest

from parallax.adapters.cassandra import connection as module
from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.adapters.cassandra.gate import MOST_SILENT, SilentStoreError, StoreGate
from parallax.config.config import Cassandra
from parallax.errors import ConfigError, ParallaxError, StoreUnavailableError

TIMEOUT_MS = 300
SLOW_S, LONG_S = 3.0, 20.0


class Statement:
    is_idempotent = False


class FakeFuture:
    def __init__(self, answer: Callable[[], Sequence[Any]]) -> None:
        self._answer = answer

    def result(self) -> Sequence[Any]:
        return self._answer()


class FakeSession:
    """A session of the driver, slow where it is told to be."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.slow_statements: set[str] = set()
        self.prepared: list[str] = []
        self.answer: Callable[[], Sequence[Any]] = list

    def prepare(self, cql: str) -> Statement:
        self.prepared.append(cql)
        if cql in self.slow_statements:
            self.go.wait(SLOW_S)
        if cql == "wrong":
            raise cassandra.InvalidRequest("no such table")
        return Statement()

    def execute(self, *_: object) -> Sequence[Any]:
        return self.answer()

    def execute_async(self, *_: object) -> FakeFuture:
        return FakeFuture(self.answer)


class FakeCluster:
    def __init__(self, session: FakeSession, connect: Callable[[], None]) -> None:
        self._session, self._connect = session, connect
        self.is_down = False

    def connect(self) -> FakeSession:
        self._connect()
        return self._session

    def shutdown(self) -> None:
        self.is_down = True


class Store:
    """A connection to a fake."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, points: Sequence[str] = ("one",)) -> None:
        self.session = FakeSession()
        self.clusters: list[FakeCluster] = []
        self.on_connect: Callable[[], None] = lambda: None
        monkeypatch.setattr(module, "open_cluster", self._open)
        settings = Cassandra(contact_points=tuple(points), request_timeout_ms=TIMEOUT_MS)
        self.connection = CassandraConnection(settings, lambda _session: None)

    def _open(self, _: Cassandra) -> FakeCluster:
        self.clusters.append(FakeCluster(self.session, self.on_connect))
        return self.clusters[-1]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    found = Store(monkeypatch)
    yield found
    found.session.go.set()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


# --- preparing ------------------------------------------------------------------------------------------------------


def known_while_another_is_slow(store: Store) -> None:
    """A statement that is known, and a new one, while a third can't be prepared."""
    store.session.slow_statements = {"slow"}
    store.connection.prepare("known")
    waiting = threading.Thread(target=_quietly, args=(store.connection.prepare, "slow"), daemon=True)
    waiting.start()
    while "slow" not in store.session.prepared:
        time.sleep(0.001)
    with within(TIMEOUT_MS / 2_000):
        store.connection.prepare("known")
        store.connection.prepare("new")


def _quietly(call: Callable[..., object], *args: object) -> None:
    try:
        call(*args)
    except ParallaxError:
        return


def test_a_statement_that_is_slow_to_prepare_holds_up_no_other(store: Store) -> None:
    known_while_another_is_slow(store)


def test_one_lock_around_preparing_would_be_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(self: CassandraConnection, cql: str) -> object:
        session = self._connected()
        with self._lock:
            return session.prepare(cql)

    monkeypatch.setattr(CassandraConnection, "prepare", prepare)
    with pytest.raises(AssertionError):
        known_while_another_is_slow(store)


def test_a_statement_that_is_slow_to_prepare_is_given_up_in_time_by_all_who_want_it(store: Store) -> None:
    store.session.slow_statements = {"slow"}

    def attempt() -> str:
        with pytest.raises(StoreUnavailableError) as found:
            store.connection.run("slow")
        return str(found.value)

    with within(2), ThreadPoolExecutor(10) as pool:
        texts = {future.result() for future in [pool.submit(attempt) for _ in range(10)]}
    assert texts == {"store: preparing a statement: no answer in time"}
    assert store.session.prepared == ["slow"]


def test_once_it_is_prepared_it_is_known_and_a_later_attempt_is_a_new_one(store: Store) -> None:
    store.session.slow_statements = {"slow"}
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            store.connection.prepare("slow")
    assert store.session.prepared == ["slow", "slow"]
    store.session.go.set()
    first = store.connection.prepare("slow")
    assert store.connection.prepare("slow").is_idempotent
    assert first.is_idempotent
    assert store.connection.run("slow") == []


def test_a_statement_that_the_store_refuses_is_refused_each_time_anew(store: Store) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="preparing a statement: InvalidRequest: no such table"):
            store.connection.prepare("wrong")
    assert store.session.prepared == ["wrong", "wrong"]


# --- connecting -----------------------------------------------------------------------------------------------------


def test_a_store_that_is_slow_to_connect_is_given_up_in_time_by_all_callers(store: Store) -> None:
    store.on_connect = lambda: bool(store.session.go.wait(LONG_S)) and None
    with within(3 * TIMEOUT_MS / 1_000), ThreadPoolExecutor(10) as pool:
        calls = [pool.submit(store.connection.run, "any") for _ in range(10)]
        assert {str(call.exception()) for call in calls} == {"store: connecting to one: no answer in time"}
    with within(0.1), pytest.raises(StoreUnavailableError):
        store.connection.run("any")
    assert len(store.clusters) == 1
    store.session.go.set()
    deadline = time.monotonic() + LONG_S
    while store.connection._session is None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert store.connection.run("any") == []


def test_a_connection_that_is_closed_while_it_opens_is_shut(store: Store) -> None:
    store.on_connect = lambda: bool(store.session.go.wait(LONG_S)) and None
    with pytest.raises(StoreUnavailableError):
        store.connection.connect()
    store.connection.close()
    store.session.go.set()
    deadline = time.monotonic() + LONG_S
    while not store.clusters[0].is_down and time.monotonic() < deadline:
        time.sleep(0.001)
    assert store.clusters[0].is_down
    with pytest.raises(StoreUnavailableError, match="was closed"):
        store.connection.run("any")


def test_who_asks_again_at_once_after_a_failure_hears_of_it_at_once(store: Store) -> None:
    def refused() -> None:
        raise ConnectionRefusedError("nobody there")

    store.on_connect = refused
    for _ in range(3):
        with pytest.raises(
            StoreUnavailableError, match="connecting to one: ConnectionRefusedError: nobody there"
        ):
            store.connection.connect()
    assert len(store.clusters) == 1
    assert store.clusters[0].is_down


# --- asking ---------------------------------------------------------------------------------------------------------


def no_answer() -> Sequence[Any]:
    raise cassandra.OperationTimedOut(errors={}, last_host="one")


def test_after_calls_in_a_row_without_an_answer_others_fail_at_once_and_one_a_second_tries(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(store.connection._gate, "_clock", lambda: now[0])
    store.session.answer = no_answer
    asked = 0

    def counted() -> Sequence[Any]:
        nonlocal asked
        asked += 1
        return no_answer()

    store.session.answer = counted
    for _ in range(50):
        with pytest.raises(StoreUnavailableError):
            store.connection.run("any")
    assert asked == MOST_SILENT
    with pytest.raises(
        StoreUnavailableError, match=r"the last 8 calls were not answered in time; .*OperationTimedOut"
    ):
        store.connection.run("any")
    for _ in range(3):
        now[0] += 1.0
        for _ in range(10):
            with pytest.raises(StoreUnavailableError):
                store.connection.run("any")
    assert asked == MOST_SILENT + 3
    now[0] += 1.0
    store.session.answer = lambda: [("row",)]
    assert [store.connection.run("any") for _ in range(10)] == [[("row",)]] * 10


def test_an_error_that_is_an_answer_does_not_count_as_silence(store: Store) -> None:
    def refused() -> Sequence[Any]:
        raise cassandra.InvalidRequest("no")

    store.session.answer = refused
    for _ in range(3 * MOST_SILENT):
        with pytest.raises(ConfigError, match="InvalidRequest: no"):
            store.connection.run_plain("any")


def test_calls_that_wait_already_are_only_so_many() -> None:
    gate = StoreGate(most_calls=2)
    with (
        gate.call(),
        gate.call(),
        pytest.raises(StoreUnavailableError, match="2 calls are waiting"),
        gate.call(),
    ):
        pass
    with gate.call():
        pass


def test_time_outs_of_calls_that_began_before_the_last_answer_say_nothing() -> None:
    now = [0.0]
    gate = StoreGate(clock=lambda: now[0])
    before = [gate.call() for _ in range(2 * MOST_SILENT)]
    for call in before:
        call.__enter__()
    now[0] = 5.0
    with gate.call():
        pass
    for call in before:
        with pytest.raises(SilentStoreError):
            _fail(call)
    with gate.call():
        pass


def _fail(call: Any) -> None:
    error = SilentStoreError("store: too late")
    if not call.__exit__(type(error), error, None):
        raise error


def test_some_time_outs_between_answers_stop_nobody() -> None:
    gate = StoreGate()
    for _ in range(10):
        for _ in range(MOST_SILENT - 1):
            with pytest.raises(SilentStoreError), gate.call():
                raise SilentStoreError("store: too late")
        with gate.call():
            pass
