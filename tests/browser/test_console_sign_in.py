"""Signing in and out in a real browser: its rules of cookies and the pages' own policy let the way there and back through."""

from __future__ import annotations

from contextlib import ExitStack

from playwright.sync_api import Browser, expect

from tests.worlds.browsing import viewing
from tests.worlds.offset_servers import serving
from tests.worlds.offset_world import World
from tests.worlds.people_issuer import PeopleIssuer
from tests.worlds.signed_console import starting


def test_signing_in_and_out_by_clicks(browser: Browser) -> None:
    with PeopleIssuer() as issuer, ExitStack() as stack:
        served = stack.enter_context(serving(World()))
        url = starting(stack, issuer, target=served.target)
        with viewing(browser, url, hasty=True) as viewer:
            page = viewer.page
            viewer.open("/groups?prefix=x")
            expect(page).to_have_url(f"{url}/groups?prefix=x")
            expect(page.get_by_text("ada admin")).to_be_visible()
            assert page.evaluate("document.cookie") == ""
            assert viewer.grave_findings() == []
            page.get_by_role("button", name="Sign out").click()
            expect(page.get_by_role("heading", name="You have signed out")).to_be_visible()
            assert viewer.grave_findings() == []
            page.get_by_role("link", name="Sign in again").click()
            expect(page).to_have_url(f"{url}/")
            page.context.clear_cookies()
            expect(page.get_by_role("alert")).to_contain_text("not signed in any more", timeout=20_000)
            viewer.forgive_outage()
            page.reload()
            expect(page.get_by_text("ada admin")).to_be_visible()


def test_who_has_no_role_is_told_so(browser: Browser) -> None:
    with PeopleIssuer(who={"sub": "eve"}) as issuer, ExitStack() as stack:
        url = starting(stack, issuer)
        with viewing(browser, url) as viewer:
            viewer.page.goto(f"{url}/groups")
            expect(viewer.page.get_by_text("eve has no role here")).to_be_visible()
            assert viewer.grave_findings() == []
            viewer.forgive_outage()
            issuer.who = {"sub": "ada"}
            viewer.page.get_by_role("link", name="Sign in as somebody else").click()
            expect(viewer.page.get_by_text("ada admin")).to_be_visible()
            viewer.forgive_outage()  # no offset service is up
