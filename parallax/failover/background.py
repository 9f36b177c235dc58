"""What moves and drills in the background share: a thread of their own, the words that they tell, and whether anybody goes on with one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from parallax.errors import LimitError, ParallaxError

_log = structlog.get_logger(__name__)

_EVENTS = 100
SILENT_MS = 15_000
"""Whoever carries out a move or a drill says so in the journal at least this often, but for a cluster that lets it wait."""
INTERRUPTED = "interrupted: run again"
"""Nobody goes on with it."""


@dataclass(kw_only=True)
class BackgroundRun:
    """Something that this process carries out, or has.

    Attributes:
        now_ms: the clock of its events: the store's.
        stop: set to end it before its next step.
        ended: set once it has.
    """

    now_ms: Callable[[], int]
    stop: threading.Event
    ended: threading.Event = field(default_factory=threading.Event)
    _told: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_EVENTS))

    def tell(self, words: str) -> None:
        """Note a step; the same words again are no other one."""
        if not self._told or self._told[-1][1] != words:
            self._told.append((self.now_ms(), words))

    @property
    def events(self) -> tuple[tuple[int, str], ...]:
        """Moments and words, the newest 100."""
        return tuple(self._told)

    @property
    def doing(self) -> str:
        """Its step just now; empty: it has ended, or not begun."""
        events = self.events
        return events[-1][1] if events and not self.ended.is_set() else ""

    def begin(self, work: Callable[[], None], name: str) -> None:
        """Carry it out in a thread; ``work`` sets `ended`.

        Raises:
            LimitError: no thread could be started.
        """
        thread = threading.Thread(target=work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self.ended.set()
            raise LimitError(f"no thread could be started here ({error}): ask another service") from error

    def attempt(self, work: Callable[[], None], event: str, **about: str) -> str:
        """Do the work of the thread.

        Args:
            work: may raise whatever it likes: whoever watches hears of it.
            event: for the log, of an error that is none of ours.
            about: what it is about, for the log.

        Returns:
            Why it could not be done; empty: it was.
        """
        try:
            work()
        except ParallaxError as error:
            return f"[{error.code}] {error}"
        except Exception as error:  # noqa: BLE001 - see above
            _log.error(event, exc_info=error, **about)
            return "an error of the service, which its log has"
        return ""


def silence(told_at_ms: int, now_ms: int) -> str:
    """Why nobody seems to go on with what was told of last at a moment; empty: somebody does.

    Args:
        told_at_ms: when its newest note was kept, by the store's clock.
        now_ms: by the same clock.
    """
    silent_ms = now_ms - told_at_ms
    if silent_ms < SILENT_MS:
        return ""
    return f"{INTERRUPTED}: no process has told of it for {silent_ms // 1_000} s"
