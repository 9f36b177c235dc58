"""A real browser before the console: what it complains of, and what an accessibility engine finds, fails the test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from lab.stack.services import PARALLAX
from tests.support import Stack

Scheme = Literal["light", "dark"]
SCREEN = {"width": 1360, "height": 900}
_VIOLATIONS = "axe.run({resultTypes: ['violations']}).then(found => found.violations)"
GRAVE = {"serious", "critical"}
"""Of axe's findings, those that shut somebody out."""
_WITHIN_MS = 30_000
expect.set_options(timeout=_WITHIN_MS)
_HASTE = """
const wait = window.setTimeout;
window.setTimeout = (act, milliseconds, ...rest) => wait(act, milliseconds / 5, ...rest);
"""
"""Before a page's own scripts: what it would do in five seconds it does in one."""
_COMMAND_WITHIN_S = 200
_MOST_TABS = 200
_OUTAGE = (
    "Failed to load resource",
    "htmx:sendError",
    "htmx:timeout",
    "htmx:afterRequest",
    "Response Status Error Code",
)
"""What the browser, and htmx in it, say of an answer that does not come or is an error."""
GROUP = TOPIC = "parallax-drill"


@dataclass(frozen=True, slots=True)
class Place:
    """A stack that people look at."""

    stack: Stack

    def console(self, region: str = "a") -> str:
        """The address of a region's console."""
        return str(self.stack.status()["regions"][region]["console"])

    def rest(self, region: str = "a") -> str:
        """The address of a region's offset service."""
        address = str(self.stack.status()["regions"][region]["rest"])
        return address if "://" in address else f"http://{address}"

    def parallax(self, *arguments: str, ok: bool = True) -> str:
        """What a command prints."""
        done = subprocess.run(
            [*PARALLAX, *arguments, "--config", str(self.stack.config_path)],
            capture_output=True,
            text=True,
            timeout=_COMMAND_WITHIN_S,
            check=False,
        )
        assert not ok or done.returncode == 0, (arguments, done.stdout[-3_000:], done.stderr[-3_000:])
        return done.stdout


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's own: Playwright brings the protocol alone."""
    program = shutil.which("chromium")
    assert program, "chromium is missing: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@dataclass
class Viewer:
    """Somebody before one console, with one tab.

    Attributes:
        page: the tab.
        address: the console's.
        complaints: what the browser has complained of: scripts that failed, what the policy of the page forbids, answers
            that are errors.
    """

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(_WITHIN_MS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.type}: {message.text}")

    def forgive_outage(self) -> None:
        """Forget that answers were errors or did not come, which was the test's own doing; nothing else."""
        self.complaints[:] = [text for text in self.complaints if not any(words in text for words in _OUTAGE)]

    def open(self, path: str) -> None:
        """Go there and wait until all of it is there."""
        answer = self.page.goto(f"{self.address}{path}", wait_until="load")
        assert answer is not None, path
        assert answer.ok, (path, answer.status)

    def document(self, path: str) -> Any:
        """What programs get there."""
        answer = self.page.request.get(f"{self.address}{path}")
        assert answer.ok, (path, answer.status)
        return answer.json()

    def content(self) -> str:
        """What stands on the page."""
        return self.page.locator("main").inner_text()

    def tab_to(self, words: str) -> None:
        """Go on with the tabulator until what has the focus is called so, or leads to such an address."""
        for _ in range(_MOST_TABS):
            self.page.keyboard.press("Tab")
            name = self.page.evaluate(
                "(at => [at.labels?.[0]?.innerText || at.innerText || '', at.getAttribute('href') || ''])(document.activeElement)"
            )
            if any(text.strip().startswith(words) for text in name):
                return
        raise AssertionError(f"the keyboard does not reach {words!r}")

    def turn(self, scheme: Scheme) -> None:
        """Look at the page in other colours, as when a screen turns dark at night."""
        self.page.emulate_media(color_scheme=scheme)

    def grave_findings(self) -> list[str]:
        """What axe finds to shut somebody out, in light and in dark colours, with the place of each."""
        self.page.evaluate(Axe().axe_script)
        found: list[str] = []
        for scheme in reversed(get_args(Scheme)):  # ends as it began: light
            self.turn(scheme)
            found += [
                f"{scheme}: {item['id']} ({item['impact']}): {item['help']}: {[node['target'] for node in item['nodes']][:3]}"
                for item in self.page.evaluate(_VIOLATIONS)
                if item["impact"] in GRAVE
            ]
        return found

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A screenshot of what the window shows, or of the whole page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path, full_page=whole)


@contextmanager
def viewing(browser: Browser, address: str, *, hasty: bool = False) -> Iterator[Viewer]:
    """A viewer whose complaints, if there are any, are raised in the end; one who is hasty has pages that ask anew five times as often."""
    context = browser.new_context(color_scheme="light", viewport=SCREEN, reduced_motion="reduce")
    if hasty:
        context.add_init_script(_HASTE)
    try:
        viewer = Viewer(context.new_page(), address)
        yield viewer
        assert not viewer.complaints, viewer.complaints
    finally:
        context.close()
