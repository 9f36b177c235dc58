"""The store's clock: the one by which everybody tells moments that are stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from parallax.errors import ParallaxError

_log = structlog.get_logger(__name__)

STORE_TIME_CQL = "SELECT toUnixTimestamp(now()) FROM system.local"

_LOOK_EVERY_S = 30.0
_LOOK_AGAIN_S = 1.0
"""After a look that failed, or that was too slow to be exact."""
_SLOW_S = 1.0


def steady_s() -> float:
    """Seconds that no one steps, and that go on while the machine is suspended where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look found.

    Attributes:
        ahead_ms: what the store's clock was ahead of the steady one.
        due_s: when to look again, on the steady clock.
        exact: the store answered at once.
    """

    ahead_ms: float
    due_s: float
    exact: bool


class StoreClock:
    """Tells the store's time: asked for every half minute, and told by a steady clock in between.

    Processes compare moments that others have stored, and the store keeps what was said of the latest moment. If each
    went by its own wall clock, one that was days ahead for a few seconds would for days outweigh whatever is said
    later: where a group was seen last, when it moved.

    Args:
        ask: the store's time, milliseconds since the Unix epoch.
        steady: seconds, never going back; the wall clock is not looked at.
    """

    def __init__(self, ask: Callable[[], int], steady: Callable[[], float] = steady_s) -> None:
        self._ask = ask
        self._steady = steady
        self._lock = threading.Lock()
        """Held by whoever looks."""
        self._look: _Look | None = None

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch. Waits for the store only until it has answered once.

        Raises:
            StoreUnavailableError: it never has: any time would be a guess.
        """
        look = self._look or self._first_look()
        if self._steady() >= look.due_s and self._lock.acquire(blocking=False):
            threading.Thread(target=self._look_again, name="store clock", daemon=True).start()
        return int(self._steady() * 1_000 + look.ahead_ms)

    def _first_look(self) -> _Look:
        with self._lock:
            if self._look is None:
                self._ask()  # the first question also connects, and takes longer than there and back
                self._look = self._found()
            return self._look

    def _look_again(self) -> None:
        """What was found before stays if the store does not answer, or not at once."""
        try:
            found = self._found()
        except ParallaxError:
            found = None
        except Exception as error:  # noqa: BLE001 - whoever looks next waits for the lock
            _log.error("store_time_unknown", exc_info=error)
            found = None
        if self._look is not None and (found is None or (self._look.exact and not found.exact)):
            found = _Look(self._look.ahead_ms, self._steady() + _LOOK_AGAIN_S, self._look.exact)
        self._look = found
        self._lock.release()

    def _found(self) -> _Look:
        asked_s = self._steady()
        store_ms = self._ask()
        answered_s = self._steady()
        exact = answered_s - asked_s <= _SLOW_S
        # The store told its time at some moment between the two.
        ahead_ms = store_ms - (asked_s + answered_s) / 2 * 1_000
        return _Look(ahead_ms, answered_s + (_LOOK_EVERY_S if exact else _LOOK_AGAIN_S), exact)
