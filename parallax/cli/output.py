"""What commands print: JSON for scripts, tables for people."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from parallax.cli.fitting import FittingTable
from parallax.errors import ConfigError, RefusedError
from parallax.picture.text import name_of, visible_lines
from parallax.runtime.process import configure_logging
from parallax.v1 import offsets_pb2 as pb

_PIPE_WIDTH = 160
_STYLES = ((pb.EARLIEST_FALLBACK, "bold red"), (pb.STALE, "yellow"))


def print_json(values: Any, *, indent: int | None = 2) -> None:
    """One JSON document on standard output, at once."""
    sys.stdout.write(json.dumps(values, indent=indent) + "\n")
    sys.stdout.flush()


def write_new(path: Path, text: str) -> None:
    """Write a configuration; nobody but its owner reads it, for it may hold passwords.

    Raises:
        RefusedError: there is such a file already.
        ConfigError: it can't be written.
    """
    try:
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
    except FileExistsError:
        raise RefusedError(f"{path} is there already, and is left as it is: name another file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


class _Screen(Console):
    """A console whose cursor no letter of a name moves."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible_lines(text), **options)


def console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Standard output, wide where it is no terminal, so that scripts and logs get whole rows; or standard error.

    Colons stay colons: a group may be called `orders:x:billing`.
    """
    wide = not stderr and not sys.stdout.isatty()
    return _Screen(width=_PIPE_WIDTH if wide else None, stderr=stderr, quiet=quiet, emoji=False)


def log_beside_result(*, json: bool) -> None:
    """Set up the log of a command that ends with a result.

    Before somebody who sees both, only warnings are logged: the result tells the rest, and its lines would be torn apart.

    Args:
        json: JSON was asked for.
    """
    seen = not json and sys.stdout.isatty() and sys.stderr.isatty()
    configure_logging(json=json, level=logging.WARNING if seen else logging.INFO)


def on_a_terminal() -> bool:
    """Whether somebody sits there who reads and types; a script's commands have one end or the other elsewhere."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm_by_name(name: str, lines: Sequence[str], *, yes: bool) -> None:
    """On a terminal, let whoever runs a command type what it is about to change.

    Args:
        name: has to be typed.
        lines: what is about to be done.
        yes: it was confirmed beforehand.

    Raises:
        RefusedError: something else was typed, or nothing.
    """
    if yes or not on_a_terminal():
        return
    out = console(stderr=True)
    for line in lines:
        out.print(line, markup=False, highlight=False)
    out.print(f"type {name} to go on: ", end="", markup=False, highlight=False)
    if sys.stdin.readline().strip() != name:
        raise RefusedError(f"that is not {name!r}: nothing was changed")


def table(headings: str, *, title: str | None = None) -> FittingTable:
    """A table under ``first | second | ...``: ``>`` before one of numbers, ``~`` before one of sentences, which may be folded."""
    made = FittingTable(title)
    for heading in headings.split(" | "):
        if heading.startswith(">"):
            made.add_column(heading[1:], justify="right")
        elif heading.startswith("~"):
            made.add_column(heading[1:], overflow="fold")
        else:
            made.add_column(heading)
    return made


def known(value: int | None) -> str:
    """A number; a dash where it is unknown, which is not 0."""
    return "-" if value is None else str(value)


def number(message: Message, field: str) -> str:
    """The field's number; a dash where it is unknown."""
    return known(getattr(message, field) if message.HasField(field) else None)


def outcome_word(outcome: int) -> Text:
    """An outcome by its number, coloured by its gravity."""
    style = next((style for least, style in _STYLES if outcome >= least), "green")
    return Text(name_of(pb.Outcome.Name, outcome), style)


def progress_bar(*, shown: bool) -> Progress:
    """On standard error, so that standard output is the result alone."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(stderr=True),
        disable=not shown,
        transient=True,
    )
