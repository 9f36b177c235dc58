"""Typed errors of the bench."""

from __future__ import annotations

from typing import ClassVar

from parallax.domain.errors import ParallaxError


class BenchError(ParallaxError):
    """Something that a measurement needs did not work; the message says what, where and what to do."""

    code: ClassVar[str] = "BENCH"
