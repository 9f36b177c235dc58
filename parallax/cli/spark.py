"""`parallax spark`: keeps the classes of Spark's JVM ready, so that `replicate` and `sync` start sooner."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from parallax.adapters.spark.preparing import forget, preparation, prepare
from parallax.cli.options import JsonOption
from parallax.cli.output import console, log_beside_result, print_json

app = typer.Typer(
    help="Keep the classes of Spark's JVM ready, so that it starts sooner.", no_args_is_help=True
)


@app.command("prepare")
def prepare_command(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where it would lie, and whether it is there.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Also where it is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the archive of classes for this Java and this Spark: about a minute, some 185 MB in the user's cache."""
    log_beside_result(json=as_json)
    wanted, began_s = preparation(), time.monotonic()
    makes = again or not wanted.ready
    if makes and not dry_run:
        prepare(wanted)
    values = {
        "archive": str(wanted.place.archive),
        "java": str(wanted.java_home),
        "ready": wanted.ready,
        "made": makes and not dry_run,
        "bytes": wanted.place.archive.stat().st_size if wanted.ready else None,
    }
    if as_json:
        print_json(values, indent=None)
        return
    what = "would be made" if makes else "is there"
    if values["made"]:
        what = f"made in {time.monotonic() - began_s:.0f} s"
    console().print(f"{wanted.place.archive} of the Java in {wanted.java_home}: {what}", markup=False)


@app.command("forget")
def forget_command(as_json: JsonOption = False) -> None:
    """Remove every archive that was made; Spark then starts without."""
    removed = [str(path) for path in forget()]
    if as_json:
        print_json({"removed": removed}, indent=None)
        return
    for path in removed:
        console().print(f"removed {path}", markup=False)
    if not removed:
        console().print("there is none")
