"""What becomes of a page that stands open while the world changes below it, in a real browser; no stack is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from playwright.sync_api import Browser, expect

from console.command import start
from parallax.config.config import parse
from parallax.domain.ids import GroupName, RegionName
from tests.worlds.browsing import Viewer, viewing
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, World

SOON_MS = 20_000


@contextmanager
def looking(browser: Browser, world: World) -> Iterator[tuple[Viewer, Served]]:
    """Somebody before the console of a world."""
    with ExitStack() as stack:
        served = stack.enter_context(serving(world))
        region = {"aggregate": {"bootstrap_servers": "127.0.0.1:1"}, "offsetsvc": {"grpc": served.target}}
        config = parse({"regions": {"a": region}, "cassandra": {"contact_points": ["127.0.0.1"]}})
        address = start(config, RegionName("a"), "127.0.0.1:0", stack)
        yield stack.enter_context(viewing(browser, address, hasty=True)), served


def test_a_group_that_vanishes_while_its_page_is_open_is_said_to_be_gone(browser: Browser) -> None:
    world = World()
    world.commit("a", 0)
    with looking(browser, world) as (viewer, _):
        viewer.open(f"/group?name={GROUP}")
        expect(viewer.page.get_by_role("heading", name="At aggregate-a")).to_be_visible()
        alert = viewer.page.get_by_role("alert")
        expect(alert).to_be_hidden()
        for cluster in world.clusters.values():
            cluster.commits.clear()
        expect(alert).to_contain_text("What this page shows is not there any more.", timeout=SOON_MS)
        expect(viewer.page.get_by_role("heading", name="At aggregate-a")).to_be_visible()
        world.commit("a", 0)
        expect(alert).to_be_hidden(timeout=SOON_MS)
        viewer.forgive_outage()


def test_a_service_that_goes_away_is_said_to_be_away(browser: Browser) -> None:
    world = World()
    world.commit("a", 0)
    with looking(browser, world) as (viewer, served):
        viewer.open("/groups")
        served.grpc.stop(grace_s=0)
        alert = viewer.page.get_by_role("alert")
        expect(alert).to_contain_text("The offset service does not answer", timeout=2 * SOON_MS)
        viewer.forgive_outage()


def test_ten_thousand_groups_are_turned_page_by_page_by_the_keyboard(browser: Browser) -> None:
    world = World()
    world.groups._groups.update(GroupName(f"group-{number:05}") for number in range(10_000))
    with looking(browser, world) as (viewer, _):
        viewer.open("/groups")
        names = viewer.page.locator("main tbody td:first-child")
        expect(names).to_have_count(100)
        expect(names.last).to_have_text("group-00099")
        viewer.page.keyboard.press("n")
        expect(names.first).to_have_text("group-00100")
        viewer.page.get_by_label("Names that begin with").fill("group-099")
        viewer.page.keyboard.press("Enter")
        expect(names.last).to_have_text("group-09999")
        assert viewer.grave_findings() == []
