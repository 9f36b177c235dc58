"""A region is killed, and its groups are moved by clicks in the console of the other one."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.test_console_moves import ends, executed, planned
from tests.worlds.browsing import Place, viewing
from tests.worlds.consuming import Work


def test_a_disaster_by_clicks(place: Place, browser: Browser) -> None:
    work = Work(place.stack, "lost")
    with viewing(browser, place.console("b"), hasty=True) as viewer:
        with work.following():
            work.produce(100)
            work.all_seen()
            place.stack.kill("region-a")
            try:
                viewer.open("/")
                expect(viewer.page.get_by_text("does not answer").first).to_be_visible(timeout=30_000)
                planned(viewer, work.group, "b", disaster=True)
                expect(viewer.page.get_by_role("heading", name="What can't be known")).to_be_visible()
                executed(viewer, work.group)
                ends(viewer, "moved")
                work.produce(50, "b")
                work.all_seen()
            finally:
                place.stack.start("region-a")
        viewer.open(f"/moves?group={work.group}")
        expect(viewer.page.get_by_role("cell", name="disaster")).to_be_visible()
        viewer.forgive_outage()
