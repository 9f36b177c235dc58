"""Keys behind an address: found when they are new, without a call that waits long or an issuer that is asked too often."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from parallax.errors import UnauthenticatedError, UnavailableError
from parallax.identity import key_sets as module
from parallax.identity.key_sets import FetchedKeys, fetch_from
from tests.support import poll_until
from tests.worlds.authority import Issuer, rsa_key, serving_document
from tests.worlds.dripping import HEADS, LASTS_S, dripping

KEYS = {"first": rsa_key(), "second": rsa_key()}


class Document:
    """What an issuer serves, with a door that can be shut."""

    def __init__(self) -> None:
        self.issuer = Issuer(keys={"first": KEYS["first"]})
        self.fetches = 0
        self.door = threading.Event()
        self.door.set()
        self.away = False

    def fetch(self) -> bytes:
        self.fetches += 1
        assert self.door.wait(10)
        if self.away:
            raise OSError("connection refused")
        return self.issuer.document()


@pytest.fixture
def document() -> Iterator[Document]:
    made = Document()
    yield made
    made.door.set()


def found(keys: FetchedKeys, key_id: str | None) -> list[str | None]:
    return [key.key_id for key in keys.find(key_id)]


def test_keys_are_fetched_once_while_they_are_young(document: Document) -> None:
    keys = FetchedKeys(document.fetch)
    for _ in range(50):
        assert found(keys, "first") == ["first"]
    assert document.fetches == 1


def test_an_unknown_key_is_looked_for_but_not_all_the_time(document: Document) -> None:
    now_s = [0.0]
    keys = FetchedKeys(document.fetch, clock=lambda: now_s[0])
    assert found(keys, "first") == ["first"]
    document.issuer.keys["second"] = KEYS["second"]
    for _ in range(50):
        assert found(keys, "second") == []
    assert document.fetches == 1
    now_s[0] = 10.0
    assert found(keys, "second") == ["second"]
    assert document.fetches == 2


def test_a_key_that_signs_at_once_is_found_though_somebody_has_just_asked_for_nonsense(
    document: Document,
) -> None:
    now_s, rests_s = [0.0], list[float]()

    def rest(seconds: float) -> None:
        rests_s.append(round(seconds, 3))
        now_s[0] += seconds

    keys = FetchedKeys(document.fetch, clock=lambda: now_s[0], rest=rest)
    assert found(keys, "first") == ["first"]
    now_s[0] = 5.0
    assert found(keys, "nonsense") == []
    document.issuer.keys = {"second": KEYS["second"]}
    now_s[0] = 5.25
    assert found(keys, "second") == ["second"]
    assert (document.fetches, rests_s) == (3, [0.75])


def test_an_unknown_key_is_not_refused_while_the_issuer_is_away(document: Document) -> None:
    now_s = [0.0]
    keys = FetchedKeys(document.fetch, clock=lambda: now_s[0])
    assert found(keys, "first") == ["first"]
    document.away = True
    now_s[0] = 5.0
    with pytest.raises(UnavailableError, match="connection refused"):
        keys.find("second")
    assert found(keys, "first") == ["first"]


def test_keys_that_were_taken_back_are_forgotten(document: Document) -> None:
    now_s = [0.0]
    keys = FetchedKeys(document.fetch, clock=lambda: now_s[0])
    assert found(keys, "first") == ["first"]
    document.issuer.keys = {"second": KEYS["second"]}
    now_s[0] = 300.0
    keys.find("first")  # the fetch that it begins is not waited for
    poll_until(lambda: document.fetches == 2 and found(keys, "first") == [], 5, "forgotten")


def test_no_call_waits_while_the_known_keys_are_fetched_again(document: Document) -> None:
    now_s = [0.0]
    keys = FetchedKeys(document.fetch, clock=lambda: now_s[0], patience_s=30)
    assert found(keys, "first") == ["first"]
    document.door.clear()
    now_s[0] = 300.0
    began_s = time.monotonic()
    assert found(keys, "first") == ["first"]
    assert time.monotonic() - began_s < 1


def test_a_slow_issuer_holds_few_calls_and_none_for_long(document: Document) -> None:
    document.door.clear()
    keys = FetchedKeys(document.fetch, patience_s=2)
    began_s = time.monotonic()
    with ThreadPoolExecutor(40) as callers:
        errors = [future.exception() for future in [callers.submit(keys.find, "first") for _ in range(40)]]
    assert all(isinstance(error, UnavailableError) for error in errors)
    assert sum("slow" in str(error) for error in errors) <= 4
    assert time.monotonic() - began_s < 9
    assert document.fetches == 1


def test_an_issuer_that_is_away_is_named_until_it_answers_and_its_keys_stand_afterwards(
    document: Document,
) -> None:
    now_s = [0.0]
    document.away = True
    keys = FetchedKeys(document.fetch, clock=lambda: now_s[0])
    with pytest.raises(UnavailableError, match="connection refused"):
        keys.find("first")
    document.away = False
    now_s[0] = 10.0
    assert found(keys, "first") == ["first"]
    document.away = True
    now_s[0] = 400.0
    assert found(keys, "first") == ["first"]
    poll_until(lambda: document.fetches == 3, 5, "asked again")
    assert found(keys, "first") == ["first"]


def test_keys_come_over_http_and_a_document_without_end_is_refused() -> None:
    issuer = Issuer(keys={"first": KEYS["first"]})
    with serving_document(issuer.document) as (address, asked):
        assert found(FetchedKeys(fetch_from(address, None)), "first") == ["first"]
        assert asked == ["/keys"]
    with serving_document(lambda: b" " * (1024 * 1024 + 1)) as (address, _):
        keys = FetchedKeys(fetch_from(address, None))
        with pytest.raises(UnavailableError, match="more than 1048576 bytes"):
            keys.find("first")


@HEADS
def test_an_answer_that_drips_is_given_up_so_that_a_later_fetch_may_begin(
    head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FETCH_TIMEOUT_S", 0.3)
    began_s = time.monotonic()
    with dripping(head) as address, pytest.raises(TimeoutError, match="not there after"):
        fetch_from(address, None)()
    assert time.monotonic() - began_s < LASTS_S / 2


def test_keys_that_are_too_old_prove_nobody_until_they_are_fetched_again(document: Document) -> None:
    now_s = [0.0]
    keys = FetchedKeys(document.fetch, max_age_s=1_000, clock=lambda: now_s[0])
    assert found(keys, "first") == ["first"]
    document.away = True
    now_s[0] = 1_000.0
    assert found(keys, "first") == ["first"]
    poll_until(lambda: document.fetches == 2, 5, "asked again")
    now_s[0] = 1_011.0
    for key_id in ("first", "second", None):
        with pytest.raises(UnauthenticatedError, match=r"1011 s old .*keys_max_age_s.*connection refused"):
            keys.find(key_id)
    document.away = False
    now_s[0] = 1_022.0
    assert found(keys, "first") == ["first"]
    assert keys.age_ms() == 0


def test_keys_that_stand_for_ever_are_noticed(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    known = FetchedKeys._known
    monkeypatch.setattr(FetchedKeys, "_known", lambda keys: (known(keys)[0], 0.0))
    with pytest.raises(pytest.fail.Exception):
        test_keys_that_are_too_old_prove_nobody_until_they_are_fetched_again(document)


def test_keys_that_nobody_needed_for_long_are_fetched_before_the_next_answer(document: Document) -> None:
    now_s = [0.0]
    keys = FetchedKeys(document.fetch, max_age_s=1_000, clock=lambda: now_s[0])
    assert found(keys, "first") == ["first"]
    now_s[0] = 100_000.0
    assert found(keys, "first") == ["first"]


def test_whoever_asks_for_their_age_keeps_them_young(document: Document) -> None:
    now_s = [0.0]
    document.away = True
    keys = FetchedKeys(document.fetch, clock=lambda: now_s[0])
    poll_until(lambda: document.fetches == 1, 5, "asked")
    assert keys.age_ms() is None
    document.away = False
    now_s[0] = 300.0
    poll_until(lambda: keys.age_ms() == 0, 5, "fetched")
    now_s[0] = 302.0
    assert keys.age_ms() == 2_000
