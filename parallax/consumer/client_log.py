"""What librdkafka logs of one cluster, each line once a minute: a dead one is told of some twenty times a second else."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

import structlog

_log = structlog.get_logger("parallax.failover_consumer")

AGAIN_S = 60.0
"""A line that is said again and again is logged so often, with how many there were."""

_MOST_LINES = 256
_VARYING = re.compile(r"\(after \d+ms[^)]*\)|\d+ identical error\(s\) suppressed")


class ClientLog:
    """A logger as librdkafka's ``logger`` setting takes it: called by ``poll``, in the thread that polls.

    Args:
        region: whose cluster the handle is for.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, region: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._region = region
        self._clock = clock
        self._lines: dict[str, tuple[float, int]] = {}
        """When a line was logged, and how often it was said since."""

    def log(self, level: int, _format: str, facility: str, _handle: str, text: str) -> None:
        """Log a line, unless it was logged a moment ago.

        Args:
            level: as the standard library numbers them.
            facility: librdkafka's word for the kind of line, such as ``FAIL``.
            text: the line. What differs from one repetition to the next does not count.
        """
        line = f"{facility} {_VARYING.sub('', text)}"
        now_s = self._clock()
        logged_at_s, said = self._lines.get(line, (float("-inf"), 0))
        if now_s - logged_at_s < AGAIN_S:
            self._lines[line] = (logged_at_s, said + 1)
            return
        if len(self._lines) >= _MOST_LINES:
            self._lines.clear()
        self._lines[line] = (now_s, 0)
        say = _log.warning if level >= logging.WARNING else _log.info
        say("librdkafka", region=self._region, facility=facility, text=text, repeated=said or None)
