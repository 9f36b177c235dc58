"""Viewers of one page share what was looked at and drawn for it."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from console import sharing
from console.sharing import KEPT_S, SharedLooks
from parallax.errors import ServiceUnavailableError


class Clock:
    """Stands until it is set."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def looks(clock: Clock) -> SharedLooks[str]:
    return SharedLooks(clock)


def test_within_a_moment_it_is_made_once(looks: SharedLooks[str], clock: Clock) -> None:
    made = iter(("first", "second"))
    assert [looks.get("page", lambda: next(made), anew=False) for _ in range(3)] == ["first"] * 3
    clock.now_s += KEPT_S
    assert looks.get("page", lambda: next(made), anew=False) == "second"


def test_another_key_is_another_look(looks: SharedLooks[str]) -> None:
    assert looks.get(("page", True), lambda: "operator's", anew=False) == "operator's"
    assert looks.get(("page", False), lambda: "viewer's", anew=False) == "viewer's"


def test_whoever_opens_a_page_sees_it_as_it_is_now_and_others_share_that(looks: SharedLooks[str]) -> None:
    assert looks.get("page", lambda: "before", anew=False) == "before"
    assert looks.get("page", lambda: "after", anew=True) == "after"
    assert looks.get("page", lambda: "never made", anew=False) == "after"


def test_many_at_once_wait_for_one(looks: SharedLooks[str]) -> None:
    begun, go_on = threading.Event(), threading.Event()
    calls: list[int] = []

    def make() -> str:
        calls.append(1)
        begun.set()
        assert go_on.wait(30)
        return "made"

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(looks.get, "page", make, anew=False)
        assert begun.wait(30)
        others = [threads.submit(looks.get, "page", make, anew=False) for _ in range(7)]
        go_on.set()
        assert {item.result(30) for item in (first, *others)} == {"made"}
    assert len(calls) == 1


def test_an_error_is_that_of_all_who_waited_each_with_its_own(
    looks: SharedLooks[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Semaphore(0)

    class Watched(Future[str]):
        def result(self, timeout: float | None = None) -> str:
            waiting.release()
            return super().result(timeout)

    monkeypatch.setattr(sharing, "Future", Watched)
    begun, go_on = threading.Event(), threading.Event()
    calls: list[int] = []

    def fails() -> str:
        calls.append(1)
        begun.set()
        assert go_on.wait(30)
        raise ServiceUnavailableError("nobody answers")

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(looks.get, "page", fails, anew=False)
        assert begun.wait(30)
        others = [threads.submit(looks.get, "page", fails, anew=False) for _ in range(7)]
        assert all(waiting.acquire(timeout=30) for _ in others)
        go_on.set()
        errors = [item.exception(30) for item in (first, *others)]
    assert {(type(error), str(error)) for error in errors} == {(ServiceUnavailableError, "nobody answers")}
    assert len({id(error) for error in errors}) == len(errors)
    assert len(calls) == 1


def test_an_error_is_not_told_to_who_comes_after_it(looks: SharedLooks[str]) -> None:
    def fails() -> str:
        raise ServiceUnavailableError("nobody answers")

    with pytest.raises(ServiceUnavailableError, match="nobody answers"):
        looks.get("page", fails, anew=False)
    assert looks.get("page", lambda: "again", anew=False) == "again"


def test_an_error_takes_nothing_from_a_look_that_began_later(looks: SharedLooks[str]) -> None:
    def overtaken() -> str:
        assert looks.get("page", lambda: "of who opened it meanwhile", anew=True)
        raise ServiceUnavailableError("nobody answers")

    with pytest.raises(ServiceUnavailableError):
        looks.get("page", overtaken, anew=False)
    assert looks.get("page", lambda: "never made", anew=False) == "of who opened it meanwhile"


def test_what_nobody_asks_for_any_more_is_forgotten(looks: SharedLooks[str], clock: Clock) -> None:
    for number in range(100):
        looks.get(number, lambda: "made", anew=False)
        clock.now_s += KEPT_S / 10
    assert len(looks._looks) <= 11
