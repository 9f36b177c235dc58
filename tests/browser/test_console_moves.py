"""Groups moved by clicks and by keys, on a real stack; and what becomes of a move whose console, or service, is killed."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.worlds.browsing import GROUP, Place, Viewer, viewing
from tests.worlds.consuming import Work

MOVE_WITHIN_MS = 60_000


def planned(viewer: Viewer, group: str, to: str, *, disaster: bool = False) -> None:
    """From the group's page to a plan."""
    viewer.open(f"/group?name={group}")
    viewer.page.get_by_role("link", name="Move this group").click()
    viewer.page.get_by_label("Where to").select_option(to)
    viewer.page.get_by_label("Disaster").set_checked(disaster)
    viewer.page.get_by_role("button", name="Plan").click()
    expect(viewer.page.get_by_role("heading", name="The plan")).to_be_visible()


def executed(viewer: Viewer, group: str) -> None:
    """From a plan to a move that runs."""
    viewer.page.get_by_label("type the group's name").fill(group)
    viewer.page.get_by_role("button", name="Move the group").click()
    expect(viewer.page.get_by_role("status")).to_be_visible()


def ends(viewer: Viewer, words: str) -> None:
    expect(viewer.page.get_by_role("status")).to_contain_text(words, timeout=MOVE_WITHIN_MS)


def test_a_planned_failover_and_back_by_clicks(place: Place, browser: Browser) -> None:
    work = Work(place.stack, "clicked")
    with work.following(), viewing(browser, place.console()) as viewer:
        work.produce(100)
        work.all_seen()
        planned(viewer, work.group, "b")
        assert viewer.grave_findings() == []
        expect(viewer.page.get_by_text("aggregate-a to aggregate-b")).to_be_visible()
        viewer.page.get_by_label("type the group's name").fill("another")
        viewer.page.get_by_role("button", name="Move the group").click()
        expect(viewer.page.get_by_text("That is not the group's name")).to_be_visible()
        viewer.forgive_outage()  # the answer's status is 400
        executed(viewer, work.group)
        ends(viewer, "moved")
        assert viewer.grave_findings() == []
        work.produce(100)
        work.all_seen()
        viewer.page.get_by_role("link", name="Plan a move").click()
        expect(viewer.page.get_by_text("aggregate-b to aggregate-a")).to_be_visible()
        executed(viewer, work.group)
        ends(viewer, "moved")
        work.produce(100)
        work.all_seen()
        viewer.open(f"/verify?group={work.group}&moves=2")
        expect(viewer.page.get_by_role("status")).to_contain_text("once", timeout=MOVE_WITHIN_MS)
        assert viewer.grave_findings() == []
        viewer.open(f"/moves?group={work.group}")
        assert viewer.page.locator("main tbody tr").count() == 2
    place.parallax("verify", work.group, "--moves", "2", "--consumers", "failover")


def test_a_failover_by_the_keyboard_alone(place: Place, browser: Browser) -> None:
    with viewing(browser, place.console()) as viewer:
        keys = viewer.page.keyboard
        viewer.open("/")
        keys.press("/")
        keys.type(GROUP)
        keys.press("Enter")
        expect(viewer.page.get_by_role("heading", level=1)).to_have_text(GROUP)
        viewer.tab_to("Move this group")
        keys.press("Enter")
        expect(viewer.page.get_by_role("heading", level=1)).to_have_text(f"Move {GROUP}")
        viewer.tab_to("Where to")
        keys.type("region b")
        viewer.tab_to("Plan")
        keys.press("Enter")
        expect(viewer.page.get_by_role("heading", name="The plan")).to_be_visible()
        viewer.tab_to("To go on, type the group's name")
        keys.type(GROUP)
        viewer.tab_to("Move the group to aggregate-b")
        keys.press("Enter")
        ends(viewer, "moved")
        viewer.tab_to("Put the group back as it was")
        keys.press("Enter")
        ends(viewer, "put back")


def test_a_move_goes_on_when_its_console_is_killed(place: Place, browser: Browser) -> None:
    work = Work(place.stack, "orphaned")
    work.produce(20)
    with viewing(browser, place.console(), hasty=True) as viewer:
        with work.staying():
            work.all_seen()
            planned(viewer, work.group, "b")
            executed(viewer, work.group)
            ends(viewer, "waiting for the group to leave")
            place.stack.kill("console-a")
            expect(viewer.page.get_by_role("alert")).to_contain_text("does not answer", timeout=20_000)
            place.stack.start("console-a")
            expect(viewer.page.get_by_role("alert")).to_be_hidden(timeout=MOVE_WITHIN_MS)
            ends(viewer, "waiting for the group to leave")
        ends(viewer, "moved")
        viewer.forgive_outage()


def test_a_move_whose_service_is_killed_says_run_again(place: Place, browser: Browser) -> None:
    work = Work(place.stack, "interrupted")
    work.produce(20)
    with viewing(browser, place.console(), hasty=True) as viewer:
        with work.staying():
            work.all_seen()
            planned(viewer, work.group, "b")
            executed(viewer, work.group)
            ends(viewer, "waiting for the group to leave")
            place.stack.kill("offsetsvc-a")
            ends(viewer, "interrupted")
            expect(viewer.page.get_by_text("interrupted: run again")).to_be_visible()
            place.stack.start("offsetsvc-a")
        viewer.page.get_by_role("link", name="Plan it again").click()
        executed(viewer, work.group)
        ends(viewer, "moved")
        viewer.forgive_outage()
