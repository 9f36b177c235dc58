"""A real Prometheus watches the stack by the rules of deploy/: what it has answers to, and which alerts a lost broker fires."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support import poll_until
from tests.worlds.browsing import Place
from tests.worlds.consuming import Work
from tests.worlds.watched import NOT_ALWAYS, prometheus, unanswered, unexcused

FIRES_WITHIN_S = 60.0
"""So long after a broker's death somebody has to know of it."""
CLEARS_WITHIN_S = 120.0
_TURN_S = 0.5

Alert = tuple[str, str, str]
"""Its name, and the ends of the route that it is about."""
LOST = {("ParallaxClusterAway", source, "a") for source in ("a", "b")}


@pytest.fixture(scope="module")
def watching(place: Place) -> Iterator[str]:
    """A Prometheus that scrapes every process of the stack."""
    regions = place.stack.status()["regions"].values()
    pages = {addresses[name] for addresses in regions for name in ("rest", "replicator", "console")}
    with prometheus([urlsplit(page).netloc for page in sorted(pages)]) as address:
        yield address


def firing(address: str) -> set[Alert]:
    """What Prometheus tells somebody of now."""
    with urllib.request.urlopen(f"{address}/api/v1/alerts", timeout=10) as reply:  # noqa: S310 - a test's own
        found: list[dict[str, Any]] = json.load(reply)["data"]["alerts"]
    return {
        (labels["alertname"], labels.get("source", ""), labels.get("target", ""))
        for labels in (item["labels"] for item in found if item["state"] == "firing")
    }


def test_every_query_of_dashboards_and_rules_has_an_answer(place: Place, watching: str) -> None:
    Work(place.stack, "watched").produce(100)  # a rate needs something that grows
    assert unexcused(unanswered(watching, None, NOT_ALWAYS), NOT_ALWAYS) == []


def test_a_killed_broker_fires_what_is_about_it_within_a_minute_and_nothing_else(
    place: Place, watching: str
) -> None:
    poll_until(lambda: not firing(watching), CLEARS_WITHIN_S, "nothing fires")
    place.stack.kill("aggregate-a")
    give_up_at, fired = time.monotonic() + FIRES_WITHIN_S, set[Alert]()
    try:
        while fired != LOST and time.monotonic() < give_up_at:
            time.sleep(_TURN_S)
            fired = firing(watching)
            assert fired <= LOST
    finally:
        place.stack.start("aggregate-a")
    assert fired == LOST
    poll_until(lambda: not firing(watching), CLEARS_WITHIN_S, "nothing fires any more")
