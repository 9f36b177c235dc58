"""`parallax import`: takes over the configuration of another system."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from parallax.cli.output import console, print_json, table, write_new
from parallax.config.config import parse
from parallax.config.mirror_maker import ImportedFile, import_mirror_maker
from parallax.errors import ConfigError

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
) -> None:
    """Read MirrorMaker 2's configuration and say what becomes of each key. Exit code 1: a key is UNSUPPORTED or UNKNOWN."""
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
    _show(found, as_json=report == "json")
    if found.blocks:
        sys.stderr.write(
            "nothing was written: correct these keys, or name those that you can do without by --accept\n"
        )
        raise typer.Exit(1)
    if out is not None:
        write_new(out, _HEADER + yaml.safe_dump(found.values, sort_keys=False, width=120))
        sys.stderr.write(f"{out}: written\n")


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
