"""`python -m devstack.demo`: play the demonstration, judge it, write build/demo/report.json."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path

from rich.console import Console

from devstack.demo.journal import Journal
from devstack.demo.options import DemoOptions
from devstack.demo.scenario import Scenario
from devstack.demo.verdict import judge
from devstack.demo.view import Stage, live, show_report
from devstack.errors import DevstackError
from devstack.spec import StackSpec
from devstack.workload.running import interruptible, running_stack
from parallax.domain.errors import ParallaxError

_LINE_EVERY_S = 5.0
_INTERRUPTED = 130


def _options() -> DemoOptions:
    defaults = DemoOptions()
    parser = argparse.ArgumentParser(prog="python -m devstack.demo", description=__doc__)
    for field in fields(DemoOptions):
        default = getattr(defaults, field.name)
        name = "--" + field.name.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(name, action="store_true")
        else:
            parser.add_argument(
                name, type=type(default) if not isinstance(default, Path) else Path, default=default
            )
    return DemoOptions(**vars(parser.parse_args()))


def _play(options: DemoOptions, console: Console) -> int:
    journal = Journal(echo=(lambda _line: None) if console.is_terminal else console.print)
    stage = Stage(journal)
    with ExitStack() as clean_up:
        if console.is_terminal:
            clean_up.enter_context(live(stage, console))
        else:
            clean_up.enter_context(_Lines(stage, console))
        with ExitStack() as stack_up:
            with journal.step("two regions start: four Kafka clusters, Cassandra, Spark, offset services"):
                stack = stack_up.enter_context(
                    running_stack(StackSpec(), options.directory / "stack", journal.remark, keep=options.keep)
                )
            facts, logs = Scenario(options, stack, journal, stage).run()
            stage.gauges = None
            if not options.keep:
                with journal.step("the stack stops"):
                    stack_up.close()
        with journal.step("the oracle counts"):
            report = judge(facts, logs)
        report["seconds"] = round(journal.elapsed_s, 1)
    (options.directory / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    show_report(console, report)
    console.print(f"{options.directory / 'report.json'} holds the figures; {report['seconds']:.0f} s in all.")
    if options.keep:
        parallax, folder = _shortest(Path(sys.executable).with_name("parallax")), options.directory / "stack"
        config = f"--config {folder / 'parallax.yaml'}"
        console.print("The stack is still up. Look at it:")
        for command in (f"stack status --dir {folder}", f"routes {config}", f"offsets plain --to b {config}"):
            console.print(f"  {parallax} {command}", soft_wrap=True, highlight=False)
        console.print(f"Take it down: {parallax} stack down --dir {folder}", soft_wrap=True, highlight=False)
    return 1 if report["failures"] else 0


def _shortest(path: Path) -> Path:
    """The path as one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class _Lines:
    """A line of figures now and then, where no live view can be drawn."""

    def __init__(self, stage: Stage, console: Console) -> None:
        self._stage, self._console = stage, console
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(_LINE_EVERY_S):
            if line := self._stage.line():
                self._console.print(f"{self._stage.journal.clock()}   {line}", soft_wrap=True)


def main() -> int:
    """Run the demonstration; returns the exit code."""
    options, console = _options(), Console()
    for name in ("failover", "plain"):
        shutil.rmtree(options.directory / name, ignore_errors=True)
    options.directory.mkdir(parents=True, exist_ok=True)
    try:
        with interruptible():
            return _play(options, console)
    except KeyboardInterrupt:
        console.print("Interrupted; everything was stopped.")
        return _INTERRUPTED
    except (DevstackError, ParallaxError) as error:
        console.print(f"The demonstration could not be played: {error}", style="bold red", markup=False)
        return 1


if __name__ == "__main__":
    sys.exit(main())
