"""`parallax drill`: a synthetic group goes to another region and back, once or on a schedule, with a report."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from parallax.cli import completion
from parallax.cli.options import ActorOption, ConfigOption, JsonOption, ReasonOption
from parallax.cli.output import console, log_beside_result, print_json
from parallax.config.config import Config, load
from parallax.domain.rights import Principal
from parallax.errors import ConfigError, InvalidNameError, ParallaxError, StoreUnavailableError
from parallax.failover.drill.canary import KafkaCanary
from parallax.failover.drill.history import DrillEnding, DrillRecord, kept, seen, values_of
from parallax.failover.drill.planning import plan_of, proof, steps_of
from parallax.failover.drill.report import html, markdown
from parallax.failover.drill.run import DrillPlan, DrillRun
from parallax.failover.opening import open_outside, open_verifier
from parallax.failover.outside import Outside
from parallax.failover.waiting import Tell
from parallax.ports.audit import operator_of
from parallax.runtime.process import stopping

_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def drill(
    config: ConfigOption,
    origin: Annotated[
        str | None,
        typer.Option("--from", help="Where the drill's group is at home.", autocompletion=completion.regions),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Where it goes, and comes back from.", autocompletion=completion.regions),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", help="Again after so long, from beginning to beginning: 30m, 24h."),
    ] = None,
    times: Annotated[
        int | None, typer.Option("--times", min=1, help="With --every: how often. Default: until stopped.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Only write the report on the drills so far.")
    ] = False,
    directory: Annotated[
        Path, typer.Option("--directory", help="Where parallax-drill.md and parallax-drill.html are written.")
    ] = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the steps and do nothing.")] = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Practise a planned failover and the way back with canary records; exit code 1 if a drill did not pass.

    Only the drill's own group moves. The report is written after each drill too.
    """
    log_beside_result(json=as_json)
    settings = load(config)
    if times is not None and every is None:
        raise InvalidNameError("--times goes with --every")
    every_s = None if every is None else seconds_of(every)
    if report:
        _check_directory(directory)
        with open_outside(settings) as outside:
            records = _all(outside)
        _write(directory, records)
        if as_json:
            print_json([values_of(record) for record in records])
        return
    plan = plan_of(settings, origin, to)
    if dry_run:
        steps = [*steps_of(settings, plan), "nothing was done: leave --dry-run out to do it"]
        if as_json:
            print_json({"steps": steps})
        else:
            sys.stdout.writelines(f"{line}\n" for line in steps)
        return
    _check_directory(directory)
    if not _run_all(settings, plan, every_s, times, directory, operator_of(actor, reason), as_json=as_json):
        raise typer.Exit(1)


def seconds_of(text: str) -> float:
    """The seconds in a duration such as 90s, 30m, 24h or 7d.

    Raises:
        InvalidNameError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    every_s = 0.0 if found is None else float(found[1]) * _UNITS_S[found[2]]
    if not 0 < every_s <= threading.TIMEOUT_MAX:
        raise InvalidNameError(f"--every {text!r}: a duration is a number and s, m, h or d, such as 24h")
    return every_s


def _run_all(
    config: Config,
    plan: DrillPlan,
    every_s: float | None,
    times: int | None,
    directory: Path,
    operator: Principal,
    *,
    as_json: bool,
) -> bool:
    """Run drills until enough or stopped; whether all passed."""
    stop = threading.Event()
    passed = True
    done = 0
    with stopping(stop):
        while not stop.is_set():
            began_s = time.monotonic()
            try:
                record, before = _run_once(config, plan, stop, operator, as_json=as_json)
            except ParallaxError as error:
                if every_s is None:
                    raise
                # The next one may find what is away now.
                sys.stderr.write(f"no drill [{error.code}]: {error}\n")
                passed = False
            else:
                passed = passed and record.ending is DrillEnding.PASSED
                if as_json:
                    print_json(values_of(record), indent=2 if every_s is None else None)
                else:
                    console().print(markdown([record]), markup=False, highlight=False)
                _write(directory, [record, *before])
            done += 1
            if every_s is None or done == times:
                break
            stop.wait(max(0.0, began_s + every_s - time.monotonic()))
    return passed


def _run_once(
    config: Config, plan: DrillPlan, stop: threading.Event, operator: Principal, *, as_json: bool
) -> tuple[DrillRecord, list[DrillRecord]]:
    """The drill, and those before it as far as the store tells."""
    with open_outside(config, target=plan.to, operator=operator) as outside:
        outside.time.stop = stop
        with console(stderr=True, quiet=as_json).status("drill") as status:
            record = run_drill(config, outside, plan, lambda words: status.update(f"drill: {escape(words)}"))
        try:
            records = _all(outside)
        except StoreUnavailableError as error:
            sys.stderr.write(f"the report lacks the drills before [{error.code}]: {error}\n")
            records = []
    return record, [item for item in records if item.drill_id != record.drill_id]


def _all(outside: Outside) -> list[DrillRecord]:
    return [seen(record, outside.time.now_ms()) for record in kept(outside.journal.notes)]


def run_drill(config: Config, outside: Outside, plan: DrillPlan, tell: Tell) -> DrillRecord:
    """One drill on live clusters.

    Raises:
        StoreUnavailableError: the drill could not be noted before it began; nothing was done.
    """

    def prove() -> str:
        with open_verifier(config) as verifier:
            return proof(verifier, plan)

    return DrillRun(outside, KafkaCanary(config, plan, outside), plan, prove=prove, tell=tell).run()


def _check_directory(directory: Path) -> None:
    """Before a drill, not after it.

    Raises:
        ConfigError: the report can't be written there.
    """
    if not (directory.is_dir() and os.access(directory, os.W_OK)):
        raise ConfigError(f"--directory {directory}: no directory that can be written to")


def _write(directory: Path, records: Sequence[DrillRecord]) -> None:
    for suffix, text in (("md", markdown(records)), ("html", html(records))):
        path = directory / f"parallax-drill.{suffix}"
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: can't be written: {error.strerror}") from error
        sys.stderr.write(f"wrote {path}\n")
