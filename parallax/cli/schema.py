"""`parallax schema`: creates and upgrades the keyspace in Cassandra."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer

from parallax.adapters.cassandra.migrations import LATEST_VERSION
from parallax.adapters.cassandra.schema import Schema
from parallax.cli.options import ConfigOption, JsonOption
from parallax.cli.output import print_json
from parallax.config.config import load
from parallax.errors import ConfigError

app = typer.Typer(help="Create and upgrade the keyspace in Cassandra.", no_args_is_help=True)


@app.command()
def apply(
    config: ConfigOption,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the statements, change nothing.")] = False,
) -> None:
    """Bring the keyspace to the version that this program needs; may be run again at any time."""
    with closing(Schema(load(config).cassandra)) as schema:
        if dry_run:
            statements = schema.planned()
            sys.stdout.write("".join(f"{statement};\n" for statement in statements) or "nothing to do\n")
            return
        taken = schema.apply()
        for step in taken:
            sys.stdout.write(f"applied {step.version}: {step.description}\n")
        status = schema.status()
        newer = f", newer than this program's {LATEST_VERSION}" if status.version > LATEST_VERSION else ""
        sys.stdout.write(f"keyspace {status.keyspace}: schema version {status.version}, up to date{newer}\n")
    if status.problem:
        raise ConfigError(status.problem)


@app.command()
def status(config: ConfigOption, as_json: JsonOption = False) -> None:
    """Show which version the keyspace has; exit code 1 if this program can't use it."""
    with closing(Schema(load(config).cassandra)) as schema:
        found = schema.status()
    if as_json:
        missing = [step.version for step in found.missing]
        values = {
            "keyspace": found.keyspace,
            "version": found.version,
            "needed": LATEST_VERSION,
            "missing": missing,
            "problem": found.problem,
        }
        print_json(values, indent=None)
    else:
        sys.stdout.write(
            f"keyspace {found.keyspace}: schema version {found.version}, this program needs {LATEST_VERSION}\n"
        )
        for step in found.missing:
            sys.stdout.write(f"missing {step.version}: {step.description} (run `parallax schema apply`)\n")
        if found.problem and not found.missing:
            sys.stdout.write(f"{found.problem}\n")
    if found.problem:
        raise typer.Exit(1)
