"""`parallax schema`: creates and upgrades the keyspace in Cassandra."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Annotated

import structlog
import typer

from parallax.adapters.cassandra.migrations import AUDIT_VERSION, LATEST_VERSION, Migration
from parallax.adapters.cassandra.schema import Schema
from parallax.cli.options import ActorOption, ConfigOption, JsonOption, ReasonOption
from parallax.cli.output import print_json
from parallax.config.config import load
from parallax.domain.audit import NO_GROUP
from parallax.domain.rights import Principal
from parallax.errors import ConfigError, ParallaxError
from parallax.ports.audit import Auditor, operator_of
from parallax.runtime.process import process_name

_log = structlog.get_logger(__name__)

app = typer.Typer(help="Create and upgrade the keyspace in Cassandra.", no_args_is_help=True)


@app.command()
def apply(
    config: ConfigOption,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the statements, change nothing.")] = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
) -> None:
    """Bring the keyspace to the version that this program needs; may be run again at any time."""
    operator, settings = operator_of(actor, reason), load(config)
    with closing(Schema(settings.cassandra)) as schema:
        if dry_run:
            statements = schema.planned()
            sys.stdout.write("".join(f"{statement};\n" for statement in statements) or "nothing to do\n")
            return
        log = schema.audit(settings.audit)
        auditor = Auditor(log, schema.clock.now_ms, process=process_name("parallax"))
        taken = apply_audited(schema, auditor, operator)
        for step in taken:
            sys.stdout.write(f"applied {step.version}: {step.description}\n")
        status = schema.status()
        newer = f", newer than this program's {LATEST_VERSION}" if status.version > LATEST_VERSION else ""
        sys.stdout.write(f"keyspace {status.keyspace}: schema version {status.version}, up to date{newer}\n")
    if status.problem:
        raise ConfigError(status.problem)


def apply_audited(schema: Schema, auditor: Auditor, operator: Principal) -> Sequence[Migration]:
    """Take the missing steps, and keep whose they are: as soon as there is a table that keeps it.

    Raises:
        StoreUnavailableError: see `Schema.apply`; or it could not be kept, and nothing was done.
    """
    before = schema.status()
    if not before.missing:
        return ()
    act = partial(
        auditor.act,
        operator,
        "schema apply",
        NO_GROUP,
        before={"version": str(before.version)},
        after={"version": str(LATEST_VERSION)},
    )
    if before.version >= AUDIT_VERSION:
        with act() as kept:
            taken = schema.apply()
            kept.after = {"steps": _told(taken)}
        return taken
    taken = schema.apply()
    try:
        with act() as kept:
            kept.after = {"steps": _told(taken)}
    except ParallaxError as error:  # it is done, and is told of all the same
        _log.warning("audit_end_lost", act="schema apply", problem=f"[{error.code}] {error}")
    return taken


def _told(taken: Sequence[Migration]) -> str:
    return ", ".join(f"{step.version} {step.description}" for step in taken) or "none: others took them"


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
