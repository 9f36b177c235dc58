"""A drill by clicks, on a real stack: planned, run, watched to its end, and found again in the list."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.worlds.browsing import Place, viewing

DRILL_WITHIN_MS = 180_000
_BUILD = Path(__file__).parents[2] / "build" / "console"


def test_a_drill_by_clicks(place: Place, browser: Browser) -> None:
    with viewing(browser, place.console()) as viewer:
        viewer.open("/drills")
        viewer.page.get_by_role("link", name="Practise a failover").click()
        viewer.page.get_by_label("Where the drill's group is at home").select_option("a")
        viewer.page.get_by_label("Where it goes").select_option("b")
        viewer.page.get_by_role("button", name="Plan").click()
        expect(viewer.page.get_by_role("heading", name="What it would do")).to_be_visible()
        assert viewer.grave_findings() == []
        viewer.page.get_by_role("button", name="Run the drill from a to b").click()
        expect(viewer.page.get_by_role("status")).to_contain_text("running")
        assert viewer.grave_findings() == []
        expect(viewer.page.get_by_role("status")).to_contain_text("passed", timeout=DRILL_WITHIN_MS)
        expect(viewer.page.get_by_text("records came once")).to_be_visible()
        timeline = viewer.page.get_by_role("region", name="The timeline")
        expect(timeline.get_by_text("delivered in b")).to_be_visible()
        expect(timeline.get_by_text("a to b, RTO")).to_be_visible()
        assert viewer.grave_findings() == []
        viewer.picture(_BUILD / "drilling.png")
        viewer.open("/drills")
        assert viewer.page.locator("main tbody tr").count() >= 2
        viewer.page.get_by_role("link", name="passed").first.click()
        expect(viewer.page.get_by_text("records came once")).to_be_visible()
