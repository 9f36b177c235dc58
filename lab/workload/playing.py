"""What a play as a command needs: options from a dataclass, and an end that says how it came."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console

from lab.stack.errors import DevstackError
from lab.workload.running import interruptible
from parallax.errors import ParallaxError

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


def play(
    options: Options,
    leftovers: Sequence[str],
    run: Callable[[Options, Console], Mapping[str, Any]],
    show: Callable[[Console, Mapping[str, Any]], None],
) -> int:
    """Run a play, write its report and show it; the exit code.

    Args:
        options: its options.
        leftovers: folders of an earlier play, deleted first.
        run: plays, and returns the report; its ``failures`` decide the exit code, ``seconds`` is how long it took.
        show: prints the report.
    """
    console = Console()
    for name in leftovers:
        shutil.rmtree(options.directory / name, ignore_errors=True)
    options.directory.mkdir(parents=True, exist_ok=True)
    try:
        with interruptible():
            report = run(options, console)
    except KeyboardInterrupt:
        console.print("Interrupted; everything was stopped.")
        return _INTERRUPTED
    except (DevstackError, ParallaxError) as error:
        console.print(f"It could not be played: {error}", style="bold red", markup=False)
        return 1
    path = options.directory / "report.json"
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    show(console, report)
    console.print(f"{path} holds the figures; {report['seconds']:.0f} s in all.")
    return 1 if report["failures"] else 0
