"""``parallax``: every command of the product."""

from __future__ import annotations

import sys

import typer

from parallax.cli import schema, stack
from parallax.cli.offsets import explain, offsets, routes, runs
from parallax.cli.replicate import replicate
from parallax.cli.serve import serve
from parallax.cli.sync import sync
from parallax.domain.errors import ParallaxError

app = typer.Typer(
    name="parallax",
    help="Exact offsets across aggregate Kafka clusters: replicate, map, answer, publish.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(stack.app, name="stack")
app.add_typer(schema.app, name="schema")
app.command()(replicate)
app.command()(serve)
app.command()(sync)
app.command()(offsets)
app.command()(explain)
app.command()(routes)
app.command()(runs)


def run() -> None:
    """The console entry: a `ParallaxError` becomes one clear line and exit code 1, never a traceback."""
    try:
        app()
    except ParallaxError as error:
        sys.stderr.write(f"error [{error.code}]: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    run()
