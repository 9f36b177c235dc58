"""Side-by-side runs of Parallax and MirrorMaker 2 on brokers of their own (lab/bench/README.md)."""

from __future__ import annotations

from typing import ClassVar

from parallax.errors import ParallaxError


class BenchError(ParallaxError):
    """Something that a measurement needs did not work; the message says what and where."""

    code: ClassVar[str] = "BENCH"
