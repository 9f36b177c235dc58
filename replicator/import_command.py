"""`parallax import`: takes over the configuration of another system."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
import yaml

from parallax.cli.options import ActorOption, ExecuteOption, ReasonOption
from parallax.cli.output import console, print_json, table, write_new
from parallax.cli.rows import OutputFormat, OutputOption
from parallax.config.config import load, parse
from parallax.config.mirror_maker import ImportedFile, import_mirror_maker
from parallax.config.mirror_maker_workers import WorkerNames
from parallax.errors import ConfigError
from parallax.ports.audit import operator_of

_STYLES = {"UNSUPPORTED": "bold red", "UNKNOWN": "bold red", "CHANGED": "yellow"}
_HEADER = """\
# Written by `parallax import mm2`. MirrorMaker 2 has no key for the store: set the section cassandra.
# `parallax topics where` shows what reaches where; `parallax replicate --dry-run` checks both ends of every route.
"""
app = typer.Typer(help="Take over the configuration of another system.", no_args_is_help=True)


@app.callback()
def _import() -> None:
    """Take over the configuration of another system."""


@app.command()
def mm2(
    file: Annotated[Path, typer.Argument(help="mm2.properties, or the properties of one of its connectors.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the configuration there; a file that is there stays.")
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            "--accept", help="A key that Parallax can't obey, and that you can do without. May be repeated."
        ),
    ] = None,
    report: Annotated[
        str, typer.Option("--report", help="table or json: what became of each key.")
    ] = "table",
    positions: Annotated[
        bool,
        typer.Option(
            "--positions",
            help="Go on where it has stopped: take its positions over into the routes of --config. MirrorMaker 2 has to be stopped.",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            envvar="PARALLAX_CONFIG",
            help="With --positions: the configuration that replicators run with.",
        ),
    ] = None,
    route: Annotated[
        list[str] | None,
        typer.Option(
            "--route",
            help="With --positions: a route, such as 'a->b'; may be repeated. Default: every flow that the file enables.",
        ),
    ] = None,
    offsets_topic: Annotated[
        str | None,
        typer.Option(
            "--offsets-topic",
            help="With --positions: where its workers keep positions, if not where the file says.",
        ),
    ] = None,
    status_topic: Annotated[
        str | None, typer.Option("--status-topic", help="With --positions: where they keep what runs.")
    ] = None,
    worker_group: Annotated[
        str | None, typer.Option("--worker-group", help="With --positions: their group.id.")
    ] = None,
    connector: Annotated[
        str | None,
        typer.Option("--connector", help="With --positions: the name of the connector that copies."),
    ] = None,
    execute: ExecuteOption = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Read MirrorMaker 2's configuration and say what becomes of each key. Exit code 1: a key is UNSUPPORTED or UNKNOWN.

    With --positions: show how each partition would go on, and with --execute write it. Exit code 1: MirrorMaker 2 still runs.
    """
    if report not in {"table", "json"}:
        raise typer.BadParameter("--report is table or json")
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: is not text in UTF-8 (byte {error.start})") from None
    try:
        found = import_mirror_maker(text, accept or ())
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    parse(found.values)
    if positions:
        if config is None:
            raise ConfigError(
                "--positions needs --config (or PARALLAX_CONFIG): the configuration that replicators run with"
            )
        given = WorkerNames(worker_group, connector, offsets_topic, status_topic)
        with _replicator_wanted():
            from replicator.takeover_command import take_over  # noqa: PLC0415

        operator = operator_of(actor, reason)
        take_over(text, found, load(config), route, given, operator, output, execute=execute)
        return
    if execute or route:
        raise typer.BadParameter("--execute and --route go with --positions")
    _show(found, as_json=report == "json")
    if found.blocks:
        sys.stderr.write(
            "nothing was written: correct these keys, or name those that you can do without by --accept\n"
        )
        raise typer.Exit(1)
    if out is not None:
        write_new(out, _HEADER + yaml.safe_dump(found.values, sort_keys=False, width=120))
        sys.stderr.write(f"{out}: written\n")


@contextmanager
def _replicator_wanted() -> Iterator[None]:
    """What is imported here needs what an import of a configuration does not."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--positions needs {error.name!r} of parallax-kafka[replicator]: pip install '.[replicator]' in a checkout"
        ) from None


def _show(found: ImportedFile, *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": not found.blocks, "keys": [key.to_json() for key in found.keys]})
        return
    rows = table(">line | ~key | verdict | ~goes to | ~why", title="what becomes of each key")
    for key in found.keys:
        word = key.ruling.verdict.value
        rows.add_row(
            "default" if key.line is None else str(key.line),
            key.key,
            f"{word}, accepted" if key.accepted else word,
            key.ruling.to,
            key.ruling.why,
            style=None if key.accepted else _STYLES.get(word),
        )
    console().print(rows)
