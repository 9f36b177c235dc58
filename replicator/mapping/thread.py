"""The thread that carries committed entries into the mapping index (`replicator.mapping.feed`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import structlog

from parallax.errors import ParallaxError
from replicator.mapping.feed import IndexFeed

log = structlog.get_logger(__name__)

_LONGEST_PAUSE_MS = 5_000
_LONGEST_STRETCH_MS = 1_500
"""The budget makes a pause no longer: however many partitions there are, the index stays seconds behind, not minutes."""


class IndexThread:
    """Turns an `IndexFeed` over and over until it is closed, whatever error a turn ends with.

    Args:
        feed: what to turn.
        earlier: finds the feeds of an earlier layout, which are turned first, until they are complete.
        interval_ms: pause between turns.
        max_rows_per_s: budget; see `index_pause_ms`.
    """

    def __init__(
        self,
        feed: IndexFeed,
        *,
        earlier: Callable[[], Sequence[IndexFeed]],
        interval_ms: int,
        max_rows_per_s: int,
        name: str,
    ) -> None:
        self._feed = feed
        self._find_earlier = earlier
        self._earlier: list[IndexFeed] | None = None
        self._interval_ms = interval_ms
        self._max_rows_per_s = max_rows_per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"index {name}", daemon=True)
        self._thread.start()

    def close(self, patience_ms: int) -> None:
        """Write what is left, for as long as that takes but no longer than ``patience_ms``."""
        self._stop.set()
        self._thread.join(patience_ms / 1_000)

    def _turn(self) -> int:
        if self._earlier is None:
            self._earlier = list(self._find_earlier())
        while self._earlier:
            written = self._earlier[0].turn()
            if not self._earlier[0].complete:
                return written
            self._earlier.pop(0)
        return self._feed.turn()

    def _work(self) -> None:
        pause_ms: float = self._interval_ms
        problem = ""
        while True:
            last = self._stop.wait(pause_ms / 1_000)
            began_s = time.monotonic()
            try:
                written = self._turn()
            except Exception as error:
                # The copy loop goes on, and so must its mapping.
                if repr(error) != problem:
                    defect = None if isinstance(error, ParallaxError) else error
                    log.warning("index is away; replication goes on", problem=str(error), exc_info=defect)
                problem = repr(error)
                if last:
                    return
                pause_ms = min(max(pause_ms, 100) * 2, _LONGEST_PAUSE_MS)
                continue
            if problem:
                log.info("index is back")
            problem = ""
            if last and self._feed.complete:
                return
            spent_ms = (time.monotonic() - began_s) * 1_000
            pause_ms = index_pause_ms(written, spent_ms, self._interval_ms, self._max_rows_per_s)


def index_pause_ms(written_rows: int, spent_ms: float, interval_ms: int, max_rows_per_s: int) -> float:
    """The pause after a turn: the interval, stretched so that turn and pause together keep the budget.

    Args:
        written_rows: in the turn.
        spent_ms: on it.
        interval_ms: the shortest pause.
        max_rows_per_s: the budget, which is exceeded rather than that the pause takes more than `_LONGEST_STRETCH_MS`.
    """
    return max(interval_ms, min(written_rows * 1_000 / max_rows_per_s - spent_ms, _LONGEST_STRETCH_MS))
