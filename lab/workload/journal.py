"""What a play is doing, for whoever watches: steps with their times, and remarks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class JournalStep:
    """One step: ``took_s`` is None while it runs; ``failed`` when it raised."""

    text: str
    started_s: float
    took_s: float | None = None
    failed: bool = False


@dataclass(slots=True)
class Journal:
    """Steps and remarks in order. Safe to read from another thread.

    Attributes:
        echo: gets each line as well (for output that is not a terminal).
    """

    echo: Callable[[str], None] = lambda _line: None
    started_s: float = field(default_factory=time.monotonic)
    steps: list[JournalStep] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """A step from here to the end of the block."""
        step = JournalStep(text, time.monotonic())
        self.steps.append(step)
        self.echo(f"{self.clock()} {text}")
        try:
            yield
        except BaseException:
            step.failed = True
            raise
        finally:
            step.took_s = time.monotonic() - step.started_s

    def remark(self, text: str) -> None:
        """Something worth a line."""
        with self._lock:
            self.remarks.append(f"{self.clock()} {text}")
        self.echo(f"{self.clock()}   {text}")

    @property
    def elapsed_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.started_s

    def clock(self) -> str:
        """Minutes and seconds since the beginning."""
        return f"{int(self.elapsed_s) // 60:02d}:{int(self.elapsed_s) % 60:02d}"


class Lines:
    """A line on how things stand now and then, from a thread of its own, where no live view can be drawn.

    Args:
        journal: its clock goes before each line.
        line: how things stand; an empty one is left out.
        tell: gets the lines.
        every_s: seconds between two.
    """

    def __init__(
        self, journal: Journal, line: Callable[[], str], tell: Callable[[str], None], every_s: float
    ) -> None:
        self._journal, self._line, self._tell, self._every_s = journal, line, tell, every_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            if line := self._line():
                self._tell(f"{self._journal.clock()}   {line}")
