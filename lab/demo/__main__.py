"""`python -m lab.demo`: play the demonstration, judge it, write build/demo/report.json."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from lab.demo.commands import shortest
from lab.demo.options import ONE_MEMBER, PLAIN, THREE_MEMBERS, DemoOptions
from lab.demo.scenario import Scenario
from lab.demo.verdict import judge, too_slow
from lab.demo.view import DemoView, live, show_report
from lab.stack.control import StackClient
from lab.stack.spec import StackSpec
from lab.workload.journal import Journal, Lines
from lab.workload.playing import STACK, options_of, play, running_stack

_LINE_EVERY_S = 5.0


def _run(options: DemoOptions, console: Console) -> dict[str, Any]:
    def tell(line: str) -> None:
        console.print(line, soft_wrap=True)

    journal = Journal(echo=(lambda _line: None) if console.is_terminal else console.print)
    stage = DemoView(journal)
    with ExitStack() as clean_up:
        if console.is_terminal:
            clean_up.enter_context(live(stage, console))
        else:
            clean_up.enter_context(Lines(journal, stage.line, tell, _LINE_EVERY_S))
        with ExitStack() as stack_up:
            spec = StackSpec(mode=options.mode, secure=options.secure, consoles=options.keep)
            clusters = f"{len(spec.clusters)} Kafka clusters"
            with journal.step(f"two regions start: {clusters}, Cassandra, Spark, offset services"):
                stack = stack_up.enter_context(
                    running_stack(
                        spec,
                        options.directory / STACK,
                        journal.remark,
                        keep=options.keep,
                    )
                )
            facts, logs = Scenario(options, stack, journal, stage).run()
            stage.gauges = None
            if not options.keep:
                with journal.step("the stack stops"):
                    stack_up.close()
        with journal.step("the oracle counts"):
            report = judge(facts, logs)
            if not options.b_stands_by:  # there is nothing new at a standby before the region returns
                within = options.failover_within_ms, options.failover_within_starts
                report["failures"] += too_slow(report, *within)
        report["seconds"] = round(journal.elapsed_s, 1)
    return report


def _tell_what_stays(options: DemoOptions, console: Console) -> None:
    parallax, folder = shortest(Path(sys.executable).with_name("parallax")), options.directory / STACK
    config = f"--config {folder / 'parallax.yaml'}"
    status = StackClient(folder).status()
    console.print("The stack is still up. Look at it:")
    for region, addresses in status["regions"].items():
        console.print(
            f"  {addresses['console']} (the console of region {region})", soft_wrap=True, highlight=False
        )
    for command in (
        f"stack status --dir {folder}",
        f"routes {config}",
        f"offsets {PLAIN} --to b {config}",
        f"verify {ONE_MEMBER} --moves 2 --consumers failover {config}",
    ):
        console.print(f"  {parallax} {command}", soft_wrap=True, highlight=False)
    console.print(f"Take it down: {parallax} stack down --dir {folder}", soft_wrap=True, highlight=False)


def main() -> int:
    """Run the demonstration; returns the exit code."""
    options = options_of(DemoOptions(), "lab.demo", __doc__)

    def show(console: Console, report: Mapping[str, Any]) -> None:
        show_report(console, report)
        if options.keep:
            _tell_what_stays(options, console)

    return play(options, (ONE_MEMBER, THREE_MEMBERS, PLAIN, "producer-a"), _run, show)


if __name__ == "__main__":
    sys.exit(main())
