"""Every page of the console in a real browser, on a real stack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args
from urllib.parse import urlencode

from playwright.sync_api import Browser, expect

from tests.support import poll_until
from tests.worlds.browsing import GROUP, TOPIC, Place, Scheme, viewing

_EXPLAIN = f"/explain?{urlencode({'group': GROUP, 'topic': TOPIC, 'partition': 0, 'to': 'b'})}"
PAGES = {
    "overview": ("/", "Safe to fail over?"),
    "groups": ("/groups", GROUP),
    "group": (f"/group?name={GROUP}", "At aggregate-a"),
    "explain": (_EXPLAIN, "Sources"),
    "routes": ("/routes", "a->b"),
    "route": ("/route?route=a-%3Eb", TOPIC),
    "partition": (
        f"/partition?{urlencode({'route': 'a->b', 'topic': TOPIC, 'partition': 0})}",
        "Rows of the mapping",
    ),
    "move": (f"/move?group={GROUP}&to=b", "Carry it out"),
    "verify": (f"/verify?group={GROUP}&moves=2", "records came"),
    "drill": ("/drill", "Where it goes"),
    "moves": ("/moves", GROUP),
    "drills": ("/drills", "passed"),
    "primaries": ("/primaries", GROUP),
    "sync-problems": ("/sync-problems", "sync"),
    "regions": ("/regions", "Offset service"),
    "configuration": ("/configuration", "cassandra.contact_points"),
}
"""Where each is, and what stands on it."""
_BUILD = Path(__file__).parents[2] / "build" / "console"


def test_every_page_shows_what_it_is_for_to_everybody(place: Place, browser: Browser) -> None:
    with viewing(browser, place.console()) as viewer:
        for name, (path, told) in PAGES.items():
            viewer.open(path)
            assert viewer.grave_findings() == [], path
            for scheme in get_args(Scheme):
                viewer.turn(scheme)
                assert told in viewer.content(), (path, scheme)
                viewer.picture(_BUILD / f"{name}-{scheme}.png", whole=True)


def test_no_page_is_missing(place: Place, browser: Browser) -> None:
    with viewing(browser, place.console()) as viewer:
        viewer.open("/")
        found = viewer.page.locator(".top nav a").evaluate_all(
            "links => links.map(link => link.getAttribute('href'))"
        )
        assert set(found) <= {path for path, _ in PAGES.values()}


def test_the_picture_is_what_rest_says(place: Place, browser: Browser) -> None:
    with viewing(browser, place.console()) as viewer:
        viewer.open(_EXPLAIN)
        rest = viewer.page.request.get(
            f"{place.rest()}/v1/groups/{GROUP}/topics/{TOPIC}/partitions/0/failover-offset",
            params={"to": "b"},
        ).json()
        drawn = viewer.document(_EXPLAIN.replace("/explain?", "/explain.json?"))
        resume, position = int(rest["resume_offset"]), int(rest["from"]["next_offset"])
        assert (drawn["resume_offset"], drawn["next_offset"]) == (resume, position)
        title, words = (viewer.page.locator(f".picture > {tag}").text_content() for tag in ("title", "desc"))
        assert f"at {resume:,} in aggregate-b" in (title or "")
        assert f"(next offset {position:,})" in (words or "")
        assert rest["explanation"] in (words or "")
        table = viewer.page.get_by_role("region", name="Sources").locator("tbody tr")
        shown = [row.locator("td").first.inner_text().split("\n")[0] for row in table.all()]
        assert sorted(shown) == sorted(item["region"] for item in rest["sources"]) == ["a", "b"]


def test_lists_are_what_rest_says(place: Place, browser: Browser) -> None:
    with viewing(browser, place.console()) as viewer:
        viewer.open("/groups")
        rest = viewer.page.request.get(f"{place.rest()}/v1/groups").json()
        names = viewer.page.locator("main tbody td:first-child").all_inner_texts()
        assert names == [item["group"] for item in rest["groups"]]
        viewer.open(f"/moves?group={GROUP}")
        rest = viewer.page.request.get(f"{place.rest()}/v1/groups/{GROUP}/moves").json()
        assert viewer.page.locator("main tbody tr").count() == len(rest["moves"]) >= 2


def test_from_the_overview_to_a_groups_picture_by_the_keyboard(place: Place, browser: Browser) -> None:
    with viewing(browser, place.console()) as viewer:
        viewer.open("/")
        keys = viewer.page.keyboard
        keys.press("Tab")
        expect(viewer.page.get_by_role("link", name="To the page")).to_be_focused()
        keys.press("/")
        expect(viewer.page.get_by_label("Group")).to_be_focused()
        keys.type(GROUP)
        keys.press("Enter")
        expect(viewer.page.get_by_role("heading", level=1)).to_have_text(GROUP)
        viewer.tab_to("/explain?")
        keys.press("Enter")
        expect(viewer.page.locator(".picture")).to_be_visible()


def test_a_page_changes_by_itself_and_says_when_it_can_not(place: Place, browser: Browser) -> None:
    with viewing(browser, place.console(), hasty=True) as viewer:
        viewer.open("/routes")
        before = viewer.page.locator("#live").get_attribute("hx-get")
        poll_until(
            lambda: viewer.page.locator("#live").get_attribute("hx-get") != before, 30, "what is seen changes"
        )
        viewer.page.context.set_offline(True)
        expect(viewer.page.get_by_role("alert")).to_contain_text("does not answer", timeout=20_000)
        viewer.page.context.set_offline(False)
        expect(viewer.page.get_by_role("alert")).to_be_hidden(timeout=20_000)
        viewer.forgive_outage()


def test_pictures_of_the_documentation(place: Place, browser: Browser) -> None:
    folder = Path(os.environ.get("PARALLAX_SCREENSHOTS", _BUILD))
    with viewing(browser, place.console()) as viewer:
        viewer.open("/")
        expect(viewer.page.get_by_role("img", name="Routes between the clusters")).to_be_visible()
        viewer.picture(folder / "console-overview.png", whole=True)
        viewer.open(f"/move?group={GROUP}&to=b")
        expect(viewer.page.get_by_role("heading", name="The plan")).to_be_visible()
        viewer.picture(folder / "console-move.png")
