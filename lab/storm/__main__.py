"""`python -m lab.storm --seed 7`: play the storm of a seed, judge it, write build/storm/report.json."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.stack.errors import StackError
from lab.stack.spec import StackSpec
from lab.storm.facts import StormFacts
from lab.storm.options import GROUPS, StormOptions
from lab.storm.scenario import Storm
from lab.storm.schedule import Schedule
from lab.storm.verdict import judge, story
from lab.workload.journal import Journal, Lines
from lab.workload.playing import STACK, options_of, play, report_table, running_stack, show_verdict
from parallax.errors import ParallaxError

_LINE_EVERY_S = 10.0


def show_report(console: Console, report: Mapping[str, Any]) -> None:
    """What happened, and what became of the records."""
    console.print(_acts(report))
    if "groups" in report:
        console.print(_groups(report))
    show_verdict(console, report, "Nothing lost, nothing read twice but what was set back, by any group.")
    console.print(f"The same storm again: make storm SEED={report['seed']}", highlight=False)


def _acts(report: Mapping[str, Any]) -> Table:
    table = report_table(f"storm {report['seed']}", ("what happened",), ("at", "took"))
    for found in report["happened"]:
        style = "red" if found["problem"] else ""
        table.add_row(
            Text(found["act"], style=style), f"{found['began_s']:.0f} s", f"{found['took_s']:.1f} s"
        )
    return table


def _groups(report: Mapping[str, Any]) -> Table:
    counted = ("produced", "consumed", "lost", "redelivered", "rewound", "skipped")
    table = report_table("what the groups saw", ("group",), counted)
    for name, found in report["groups"].items():
        table.add_row(name, *(f"{found[figure]:,}" for figure in counted))
    return table


def _run(options: StormOptions, console: Console) -> dict[str, Any]:
    def tell(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    schedule = options.schedule
    _tell_schedule(schedule, tell)
    journal = Journal(echo=tell)
    facts: StormFacts | None = None
    problem = ""
    with ExitStack() as stack_up:
        with journal.step("two regions start: four Kafka clusters, Cassandra, Spark, offset services"):
            stack = stack_up.enter_context(
                running_stack(
                    StackSpec(steerable=True), options.directory / STACK, journal.remark, keep=options.keep
                )
            )
        storm = Storm(options, schedule, stack, journal)
        try:
            with Lines(journal, storm.line, tell, _LINE_EVERY_S):
                facts = storm.run()
        except (StackError, ParallaxError) as error:  # what happened until then is told all the same
            problem = str(error)
        if not options.keep:
            with journal.step("the stack stops"):
                stack_up.close()
    report = story(schedule, storm.happened)
    if facts is None:
        report["failures"] = [f"the storm ended early: {problem}"]
    else:
        with journal.step("the judge counts"):
            report |= judge(facts, options.records)
    report["seconds"] = round(journal.elapsed_s, 1)
    return report


def _tell_schedule(schedule: Schedule, tell: Callable[[str], None]) -> None:
    tell(f"Storm {schedule.seed}: {len(schedule.faults)} faults.")
    for line in schedule.lines():
        tell(line)


def main() -> int:
    """Play a storm, or print its schedule; returns the exit code."""
    options = options_of(StormOptions(), "lab.storm", __doc__)
    if options.dry_run:
        _tell_schedule(options.schedule, print)
        return 0
    return play(options, tuple(GROUPS), _run, show_report)


if __name__ == "__main__":
    sys.exit(main())
