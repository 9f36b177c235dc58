"""`parallax sync`: publishes resume offsets on passive clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from parallax.cli.lists import sync_problems
from parallax.cli.options import JsonLogsOption
from parallax.cli.output import console, print_json, table
from parallax.config.config import Config, load
from parallax.runtime.process import configure_logging
from syncjob.decide import Decision
from syncjob.report import CycleReport
from syncjob.run import run_once
from syncjob.status import SyncBoard

app = typer.Typer(help="Publish offsets, or show what can't be published.", pretty_exceptions_enable=False)
app.command("problems")(sync_problems)


@app.callback(invoke_without_command=True)
def sync(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", envvar="PARALLAX_CONFIG", help="The configuration file.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Publish once, show what was done, and end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, write nothing; implies --once.")
    ] = False,
    as_json: JsonLogsOption = False,
) -> None:
    """Publish where each consumer group would resume on the clusters where it is passive.

    Without --once it runs on Spark until stopped. `parallax replicate --with-sync` does the same inside the
    replicator's application.
    """
    if context.invoked_subcommand is not None:
        return
    if config is None:
        raise typer.BadParameter("name the configuration (or set PARALLAX_CONFIG)", param_hint="--config")
    configure_logging(json=as_json)
    settings = load(config)
    if not once and not dry_run:
        _run_on_spark(settings, json_logs=as_json)
        return
    report = run_once(settings, dry_run=dry_run)
    _show(report, as_json=as_json)
    if report.failures:
        raise typer.Exit(1)


def _run_on_spark(config: Config, *, json_logs: bool) -> None:
    # Spark is heavy, and a sync that runs once does without.
    from parallax.adapters.spark.application import Application  # noqa: PLC0415
    from syncjob.query import sync_query  # noqa: PLC0415

    application = Application(
        name="sync",
        queries=[sync_query(config)],
        status=[SyncBoard(config.sync.interval_ms, old_names=config.metrics.old_names)],
        status_address=config.sync.status_address,
        status_tls=config.sync.status_tls,
        service=config.service,
        master=config.replicator.spark_master,
        checkpoint_directory=config.replicator.checkpoint_directory,
        json_logs=json_logs,
        secret=config.replicator.secret_of_spark(),
        insecure=config.replicator.spark_insecure,
    )
    application.run()


def _show(report: CycleReport, *, as_json: bool) -> None:
    if as_json:
        values = {
            "decisions": [_values_of(decision) for decision in report.decisions],
            "failures": dict(report.failures),
            "away": list(report.away),
            "counts": report.counts,
            "unreadable_rows": report.unreadable,
        }
        print_json(values, indent=None)
        return
    out = console()
    if report.decisions:
        out.print(_table(report))
    else:
        out.print("no group has a commit on an aggregate cluster")
    for cluster in report.away:
        out.print(f"{cluster} does not answer; what was last seen there was used", style="yellow")
    for row in report.unreadable:
        out.print(row, style="bold red", markup=False)
    for group, problem in report.failures.items():
        out.print(f"group {group}: {problem}", style="bold red", markup=False)


def _values_of(decision: Decision) -> dict[str, Any]:
    """A decision as JSON types."""
    return {
        "group": decision.group,
        "topic": decision.topic_partition.topic,
        "partition": decision.topic_partition.partition,
        "from": decision.origin,
        "to": decision.target,
        "offset": decision.offset,
        "reason": decision.reason.value,
        "outcome": decision.outcome.name,
    }


def _table(report: CycleReport) -> Table:
    decisions = table("~group | ~topic | ~partition | ~from | ~to | ~offset | ~what was done | ~outcome")
    for decision in report.decisions:
        values = _values_of(decision)
        decisions.add_row(
            *(
                "-" if value is None else str(value).replace("_", " ") if key == "reason" else str(value)
                for key, value in values.items()
            )
        )
    return decisions
