"""The tables at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.workload.playing import report_table, show_verdict


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
