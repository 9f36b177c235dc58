"""What a play as a command needs: options from a dataclass, a stack, and an end that says how it came."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.stack.access import let_in
from lab.stack.control import StackClient
from lab.stack.errors import StackError
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack, wipe
from lab.stack.supervisor import interruptible, start_detached
from parallax.errors import ParallaxError

Stack = LocalStack | StackClient
STACK = "stack"
"""The folder of a play's stack, in the play's own."""
_INTERRUPTED = 130


class PlayOptions(Protocol):
    """What every play has: a folder for what it leaves."""

    @property
    def directory(self) -> Path:
        """Where the report and the logs go."""


Options = TypeVar("Options", bound=PlayOptions)


def options_of(defaults: Options, module: str, about: str | None) -> Options:
    """The options by the command line: ``--name`` for each simple field of a dataclass.

    Args:
        defaults: an instance of the dataclass.
        module: the module that is run, for the usage line.
        about: what it does.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    for field in fields(defaults):  # type: ignore[arg-type] # a dataclass; no type says so together with a protocol
        default = getattr(defaults, field.name)
        name = "--" + field.name.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(name, action="store_true")
        elif isinstance(default, str | int | float | Path):
            kind = Path if isinstance(default, Path) else type(default)
            parser.add_argument(name, type=kind, default=default, help=f"default: {default}")
    return type(defaults)(**vars(parser.parse_args()))


@contextmanager
def running_stack(
    spec: StackSpec, directory: Path, report: Callable[[str], None], *, keep: bool
) -> Iterator[Stack]:
    """An empty stack, ready to use.

    Args:
        spec: what to run.
        directory: its folder; `play` has deleted what an earlier stack left there.
        report: gets a line for each part's progress.
        keep: leave it running when the block ends well. It is stopped in every other case.

    Raises:
        StackStateError: a stack runs in this folder.
        StackError: it did not come up; nothing is left running.
    """
    if not keep:
        with LocalStack(spec, directory, report) as stack, let_in(stack.layout.material):
            yield stack
        return
    client = start_detached(spec, directory, report)
    try:
        with let_in(client.layout.material):
            yield client
    except BaseException:
        client.down()
        raise


def play(
    options: Options,
    leftovers: Sequence[str],
    run: Callable[[Options, Console], Mapping[str, Any]],
    show: Callable[[Console, Mapping[str, Any]], None],
) -> int:
    """Run a play, write its report and show it; the exit code.

    Args:
        options: its options.
        leftovers: folders of an earlier play, deleted first; not while its stack runs, which ends this one.
        run: plays, and returns the report; its ``failures`` decide the exit code, ``seconds`` is how long it took.
        show: prints the report.
    """
    console = Console()
    options.directory.mkdir(parents=True, exist_ok=True)
    try:
        wipe(
            options.directory / STACK
        )  # first: while it runs, another play judges by the files that are deleted below
        for name in leftovers:
            shutil.rmtree(options.directory / name, ignore_errors=True)
        with interruptible():
            report = run(options, console)
    except KeyboardInterrupt:
        console.print("Interrupted; everything was stopped.")
        return _INTERRUPTED
    except (StackError, ParallaxError) as error:
        console.print(f"It could not be played: {error}", style="bold red", markup=False)
        return 1
    path = options.directory / "report.json"
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    show(console, report)
    console.print(f"{path} holds the figures; {report['seconds']:.0f} s in all.")
    return 1 if report["failures"] else 0


def report_table(title: str, words: tuple[str, ...], figures: tuple[str, ...]) -> Table:
    """An empty table: columns of words to the left, columns of figures behind them to the right."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for heading in words:
        table.add_column(heading, no_wrap=True)  # a name that is cut off is none
    for heading in figures:
        table.add_column(heading, justify="right")
    return table


def show_verdict(console: Console, report: Mapping[str, Any], well: str) -> None:
    """Every failure of the report in a line; ``well`` where there is none."""
    for failure in report["failures"]:
        console.print(Text(f"FAILED: {failure}", style="bold red"))
    if not report["failures"]:
        console.print(Text(well, style="bold green"))
