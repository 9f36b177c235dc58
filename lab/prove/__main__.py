"""`python -m lab.prove`: prove every record and every answer, write build/prove/report.json."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from rich import progress as bars
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.prove.options import ProveOptions
from lab.prove.scenario import Proof
from lab.workload.playing import STACK, options_of, play, running_stack, show_verdict


class _Bars:
    """`lab.prove.scenario.ProofProgress` as bars; as plain lines where there is no terminal."""

    def __init__(self, console: Console, shown: bars.Progress) -> None:
        self._console, self._shown = console, shown
        self._task: bars.TaskID | None = None

    def begin(self, text: str, total: int | None = None) -> None:
        if self._task is not None:
            task = self._shown.tasks[self._task]
            self._shown.update(self._task, total=task.total or 1, completed=task.total or 1)
        self._task = self._shown.add_task(text, total=total)
        if not self._console.is_terminal:
            self._console.print(text)

    def reach(self, parts: int) -> None:
        if self._task is not None:
            self._shown.update(self._task, completed=parts)

    def advance(self, parts: int) -> None:
        if self._task is not None:
            self._shown.advance(self._task, parts)

    def remark(self, text: str) -> None:
        self._console.print(Text(f"  {text}", style="dim"))


def _run(options: ProveOptions, console: Console) -> dict[str, Any]:
    started = time.monotonic()
    columns = (bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.BarColumn())
    counters = (bars.MofNCompleteColumn(), bars.TimeElapsedColumn())
    with bars.Progress(*columns, *counters, console=console, disable=not console.is_terminal) as shown:
        progress = _Bars(console, shown)
        progress.begin("two regions start")
        with running_stack(
            options.stack, options.directory / STACK, progress.remark, keep=options.keep
        ) as stack:
            report = Proof(options, stack, progress).run()
        progress.begin("done", 1)
        progress.advance(1)
    report["seconds"] = round(time.monotonic() - started, 1)
    return report


def _show(console: Console, report: Mapping[str, Any]) -> None:
    table = Table.grid(padding=(0, 2))
    for label, key in (
        ("records in both regions", "records"),
        ("lost in an aggregate", "lost_records"),
        ("duplicated in an aggregate", "duplicates"),
        ("pairs of records that the aggregates hold in opposite order", "inversions"),
        ("offsets asked", "offsets_asked"),
        ("wrong answers", "violations"),
        ("skip ranges in the answers", "skip_ranges"),
        ("seconds that readers stalled after the kill of Spark", "stalled_s"),
        ("answers a second", "asked_per_s"),
    ):
        table.add_row(label, f"{report[key]:,}")
    console.print(table)
    show_verdict(console, report, "Every record once, every answer right.")


def main() -> int:
    """Run the proof; returns the exit code."""
    options = options_of(ProveOptions(), "lab.prove", __doc__)
    return play(options, ("aggregate-a", "aggregate-b"), _run, _show)


if __name__ == "__main__":
    sys.exit(main())
