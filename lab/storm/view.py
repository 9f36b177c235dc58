"""The tables at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def show_report(console: Console, report: Mapping[str, Any]) -> None:
    """What happened, and what became of the records."""
    console.print(_acts(report))
    if "groups" in report:
        console.print(_groups(report))
    for failure in report["failures"]:
        console.print(Text(f"FAILED: {failure}", style="bold red"))
    if not report["failures"]:
        console.print(
            Text("Nothing lost, nothing read twice but what was set back, by any group.", style="bold green")
        )
    console.print(f"The same storm again: make storm SEED={report['seed']}", highlight=False)


def _table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for heading in left:
        table.add_column(heading)
    for heading in right:
        table.add_column(heading, justify="right")
    return table


def _acts(report: Mapping[str, Any]) -> Table:
    table = _table(f"storm {report['seed']}", ("what happened",), ("at", "took"))
    for found in report["happened"]:
        style = "red" if found["problem"] else ""
        table.add_row(
            Text(found["act"], style=style), f"{found['began_s']:.0f} s", f"{found['took_s']:.1f} s"
        )
    return table


def _groups(report: Mapping[str, Any]) -> Table:
    counted = ("produced", "consumed", "lost", "redelivered", "rewound", "skipped")
    table = _table("what the groups saw", ("group",), counted)
    for name, found in report["groups"].items():
        table.add_row(name, *(f"{found[figure]:,}" for figure in counted))
    return table
