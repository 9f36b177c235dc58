"""Runs the bench: `python -m bench` (main set) or `python -m bench --row NAME` (full set)."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from confluent_kafka import KafkaException
from rich.console import Console

from bench.report import LEAST_MIRRORMAKER_RECORDS_PER_S
from bench.results import slug
from bench.rows import FULL, MAIN, Row, Settings, SteadyRow
from bench.run import Bench, rounds_of
from bench.view import View, table_of
from bench.wire import ProduceRefusedError
from devstack.layout import write_json
from parallax.domain.errors import ParallaxError

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
    rows = _chosen(options)
    directory: Path = options.directory
    console = Console(stderr=True)
    with View(sum(rounds_of(row, settings) for row, settings in rows), console) as view:
        try:
            report = Bench(directory, view, resume=bool(options.row)).play(rows)
        except (ParallaxError, ProduceRefusedError, KafkaException) as error:
            view.tell(f"[red]{type(error).__name__}[/red]: {error}")
            return 1
    name = "report.json" if not options.row else f"report-{slug(options.row)}.json"
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / name, report)
    _merge_full(directory)
    console.print(table_of(report["rows"]))
    console.print(f"{directory / name}")
    if report["smoke"]:
        console.print("[yellow]A smoke run: it shows that everything works; no figure counts.[/yellow]")
        return 0
    if report["void"]:
        console.print(
            "[red]Void: MirrorMaker 2 stayed below "
            f"{LEAST_MIRRORMAKER_RECORDS_PER_S:,.0f} records/s on the first data set: the machine was busy. "
            "Repeat it on a quiet one.[/red]"
        )
        return _VOID_EXIT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--row", choices=[*FULL, "all"], metavar="NAME", help="a row of the full set (see --list)"
    )
    parser.add_argument("--list", action="store_true", help="print the rows of the full set")
    parser.add_argument("--rounds", type=int, help="other than 5 (main set) or 3 (full set)")
    parser.add_argument("--copy-path", choices=["batch", "record"], help="Parallax's copy path")
    parser.add_argument("--smoke", action="store_true", help="tiny data: try the bench itself")
    parser.add_argument("--only", help="rows of the main set whose name contains this")
    parser.add_argument(
        "--directory", type=Path, default=Path("build/bench"), help="reports, logs and brokers"
    )
    return parser


def _chosen(options: argparse.Namespace) -> list[tuple[Row, Settings]]:
    rounds = options.rounds or (_FULL_ROUNDS if options.row else _MAIN_ROUNDS)
    settings = Settings(rounds, options.copy_path, options.smoke)
    if options.row == "all":
        return [(row, settings) for row in FULL.values()]
    if options.row:
        return [(FULL[options.row], settings)]
    # A minute each of a steady stream is one round: its figures come from 120,000 records.
    once = replace(settings, rounds=1)
    return [
        (row, once if isinstance(row, SteadyRow) else settings)
        for row in MAIN
        if not options.only or options.only in row.name
    ]


def _merge_full(directory: Path) -> None:
    """Gather the rows of the full set that were measured so far in report-full.json."""
    reports: list[dict[str, Any]] = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(directory.glob("report-*.json"))
        if path.name != "report-full.json"
    ]
    if reports:
        rows = [row for report in reports for row in report["rows"]]
        write_json(directory / "report-full.json", {"rows": rows, "machine": reports[-1]["machine"]})


if __name__ == "__main__":
    sys.exit(main())
