"""What a play is doing, for whoever watches: steps with their times, and remarks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Step:
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
    steps: list[Step] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """A step from here to the end of the block."""
        step = Step(text, time.monotonic())
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
