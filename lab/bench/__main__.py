"""Runs the bench: `python -m lab.bench` (main set) or `python -m lab.bench --row NAME` (full set)."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
from confluent_kafka import KafkaException
from rich.console import Console

from lab.bench.plan import FULL, MAIN
from lab.bench.report import LEAST_MIRRORMAKER_RECORDS_PER_S
from lab.bench.rows import BenchSettings, Row
from lab.bench.run import play
from lab.bench.table import table_of
from lab.stack.layout import write_json
from parallax.errors import ParallaxError

_MAIN_ROUNDS = 5
_FULL_ROUNDS = 3
_VOID_EXIT = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code: 0, 1 (something did not work), 3 (the machine was busy: figures are void)."""
    options = _parser().parse_args(arguments)
    # The consumer of the moves tells of each step; the lines below are enough.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if options.list:
        for name, row in FULL.items():
            sys.stdout.write(f"{name:16} {row.name}\n")
        return 0
    console = Console(stderr=True)
    started = time.monotonic()

    def tell(line: str) -> None:
        seconds = int(time.monotonic() - started)
        console.print(f"[dim]{seconds // 60:02d}:{seconds % 60:02d}[/dim] {line}", soft_wrap=True)

    directory: Path = options.directory
    rounds = 1 if options.smoke else options.rounds or (_FULL_ROUNDS if options.row else _MAIN_ROUNDS)
    try:
        report = play(
            _chosen(options), BenchSettings(rounds, options.smoke), directory, tell, resume=bool(options.row)
        )
    except (ParallaxError, KafkaException) as error:
        tell(f"[red]{type(error).__name__}[/red]: {error}")
        return 1
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (f"report-{options.row}.json" if options.row else "report.json")
    write_json(path, report)
    if options.row:
        _gather_full(directory)
    console.print(table_of(report["rows"]))
    tell(str(path))
    if report["smoke"]:
        console.print("[yellow]A smoke run: it shows that everything works; no figure counts.[/yellow]")
    elif report["void"]:
        console.print(
            "[red]Void: MirrorMaker 2 stayed below "
            f"{LEAST_MIRRORMAKER_RECORDS_PER_S:,.0f} records/s on the first data set: the machine was busy. "
            "Repeat it on a quiet one.[/red]"
        )
        return _VOID_EXIT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.bench", description=__doc__)
    parser.add_argument(
        "--row",
        choices=[*FULL, "all"],
        metavar="NAME",
        help="a row of the full set (see --list), or all of them",
    )
    parser.add_argument("--list", action="store_true", help="print the rows of the full set")
    parser.add_argument("--rounds", type=int, help="other than 5 (main set) or 3 (full set)")
    parser.add_argument("--smoke", action="store_true", help="tiny data, one round: try the bench itself")
    parser.add_argument("--only", default="", help="rows of the main set whose name contains this")
    parser.add_argument(
        "--directory", type=Path, default=Path("build/bench"), help="reports, logs and brokers"
    )
    return parser


def _chosen(options: argparse.Namespace) -> list[Row]:
    if options.row == "all":
        return list(FULL.values())
    if options.row:
        return [FULL[options.row]]
    return [row for row in MAIN if options.only in row.name]


def _gather_full(directory: Path) -> None:
    """Gather the rows of the full set that were measured one by one so far in report-full.json."""
    paths = [directory / f"report-{name}.json" for name in FULL]
    reports: list[dict[str, Any]] = [
        json.loads(path.read_text(encoding="utf-8")) for path in paths if path.is_file()
    ]
    if reports:
        rows = [row for report in reports for row in report["rows"]]
        write_json(directory / "report-full.json", {"rows": rows, "machine": reports[-1]["machine"]})


if __name__ == "__main__":
    sys.exit(main())
