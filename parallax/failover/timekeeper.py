"""The time of one command: its clocks, its waits, and the operator's word to end it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from parallax.runtime.deadline import Deadline


class StoppedError(Exception):
    """The operator has stopped the command; what is done is done, and the next step was not begun."""


@dataclass
class Timekeeper:
    """Tells the time, waits, and ends moves between two steps.

    Attributes:
        now_ms: the clock by which moments are saved and compared: the store's.
        wait: waits so many seconds.
        clock: a monotonic clock, in seconds.
        stop: set to end moves before their next step.
    """

    now_ms: Callable[[], int]
    wait: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    stop: threading.Event = field(default_factory=threading.Event)

    def deadline(self, within_ms: float) -> Deadline:
        """So many milliseconds from now."""
        return Deadline.after_ms(within_ms, self.clock)

    def go_on(self) -> None:
        """Between two steps.

        Raises:
            StoppedError: the command is to end here.
        """
        if self.stop.is_set():
            raise StoppedError

    def pause(self, seconds: float) -> None:
        """Wait within a step that may be given up at any time.

        Raises:
            StoppedError: as `go_on` says.
        """
        self.go_on()
        self.wait(seconds)
        self.go_on()
