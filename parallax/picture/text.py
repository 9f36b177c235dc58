"""What every picture writes: text that people can read and XML hold, names that fit, and coordinates."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any


def visible(text: str) -> str:
    """The text; what a screen does not show, or would be moved by, is shown by its number."""
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def visible_lines(text: str) -> str:
    """The same line by line, for a text that may have several."""
    return "\n".join(map(visible, text.split("\n")))


def safe(text: str) -> str:
    """Within XML."""
    return escape(visible(text))


def name_of(names: Callable[[Any], str], number: int) -> str:
    """The name of an enum's number; the number itself where a newer service has one that is not known here.

    Args:
        names: such as ``pb.Outcome.Name``.
        number: as the message has it.
    """
    try:
        return names(number)
    except ValueError:
        return str(number)


def short(text: str, most: int) -> str:
    """So many letters at most."""
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def at(number: float) -> str:
    """A coordinate: a tenth of a pixel is enough."""
    return f"{number:.1f}".removesuffix(".0")
