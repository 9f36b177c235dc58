"""Names that the offset services do not know are told once, when a service is first reached."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from parallax import EventKind
from parallax.consumer import names as module
from parallax.errors import NotFoundError, UnknownRegionError
from parallax.v1 import primaries_pb2
from tests.worlds.failover_fakes import GROUP, TOPIC, FakeService, World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


@pytest.fixture
def narrow(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Services that know region a alone, and leave out the group and the topic."""
    answered = FakeService.describe_regions

    def describe(
        service: FakeService, *, groups: Iterable[str] = (), topics: Iterable[str] = (), **_: Any
    ) -> primaries_pb2.DescribeRegionsResponse:
        found = answered(service)
        del found.regions[1:]
        found.groups_left_out.extend(groups)
        found.topics_left_out.extend(topics)
        return found

    monkeypatch.setattr(FakeService, "describe_regions", describe)
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    return world


def told(world: World) -> list[str]:
    return [event.message for event in world.events if event.kind is EventKind.UNKNOWN_NAMES]


def test_known_names_are_not_spoken_of(world: World) -> None:
    world.start("a")
    world.poll_nothing()
    assert told(world) == []


def test_every_unknown_name_is_told_in_one_event(narrow: World) -> None:
    narrow.start("a")
    narrow.poll_until(lambda: bool(told(narrow)), "the event")
    narrow.poll_nothing()
    (message,) = told(narrow)
    assert "clusters names region 'b', which has no aggregate cluster" in message
    assert "(they know a)" in message
    assert f"group {GROUP!r} is left out by `groups`" in message
    assert f"topic {TOPIC!r} is left out by `topics`" in message


def test_services_that_are_away_are_asked_until_they_answer_and_nobody_waits(narrow: World) -> None:
    narrow.service.away = True
    narrow.log("a").append(("a", 0))
    narrow.start("a")
    assert narrow.poll_records(1) == [("a", 0)]
    assert told(narrow) == []
    narrow.service.away = False
    narrow.poll_until(lambda: len(told(narrow)) == 1, "the event")


def test_another_subscription_is_checked_too(narrow: World) -> None:
    consumer = narrow.start("a", subscribe=False)
    narrow.poll_until(lambda: len(told(narrow)) == 1, "the event")
    assert "topic" not in told(narrow)[0]
    consumer.subscribe([TOPIC])
    narrow.poll_until(lambda: len(told(narrow)) == 2, "the event of the topic")
    assert told(narrow)[1].startswith(f"topic {TOPIC!r} is left out")


def test_however_often_it_subscribes_one_thread_waits_for_services(narrow: World) -> None:
    before = set(threading.enumerate())
    narrow.service.away = True
    consumer = narrow.start("a")
    for topic in ("first", "second", TOPIC):
        consumer.subscribe([topic])
        narrow.poll()
    waiting = [it for it in set(threading.enumerate()) - before if it.name == "parallax-names"]
    assert len(waiting) == 1
    narrow.service.away = False
    narrow.poll_until(lambda: len(told(narrow)) == 1, "the event")
    assert f"topic {TOPIC!r} is left out" in told(narrow)[0]
    assert "first" not in told(narrow)[0]
    consumer.subscribe(["second"])
    narrow.poll_until(lambda: len(told(narrow)) == 2, "the event of the other topic")


def test_services_of_another_release_are_let_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_service: FakeService, **_: Any) -> None:
        raise NotFoundError("no such call")

    monkeypatch.setattr(FakeService, "describe_regions", refuse)
    with capture_logs() as logs:
        world.start("a")
        world.poll_until(lambda: any(line["event"] == "names_unchecked" for line in logs), "the line")
    assert told(world) == []


def test_without_the_check_a_wrong_name_shows_at_a_move_only(
    narrow: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.NameCheck, "look", lambda *_: None)
    narrow.start("a")
    narrow.poll_nothing()
    assert told(narrow) == []


def test_a_report_that_is_refused_again_and_again_is_logged_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes, refused = world.service.report_positions, 0
    refusing = True

    def report(*arguments: Any, **named: Any) -> Any:
        nonlocal refused
        if not refusing:
            return takes(*arguments, **named)
        refused += 1
        raise UnknownRegionError("unknown region 'a'")

    monkeypatch.setattr(world.service, "report_positions", report)
    world.log("a").append(("a", 0))
    with capture_logs() as logs:
        world.start("a")
        world.poll_until(lambda: refused >= 3, "several refusals")
        refusing = False
        before = len(world.service.reports)
        world.poll_until(lambda: len(world.service.reports) > before, "a report that is taken")
        refusing, refused = True, 0
        world.poll_until(lambda: refused >= 3, "several refusals more")
    failures = [line["code"] for line in logs if line["event"] == "report_positions_failed"]
    assert failures == ["UNKNOWN_REGION"] * 2  # once more, for it was well in between
