"""``parallax``: every command of the product."""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any, NamedTuple

try:
    import typer
    from typer.core import TyperGroup
except ModuleNotFoundError as error:
    if sys.argv[1:] == ["--version"]:  # an application's environment has no more than the base install
        sys.stdout.write(f"parallax {metadata.version('parallax-kafka')}\n")
        raise SystemExit(0) from None
    raise SystemExit(
        f"parallax: {error.name} is not installed: commands need parallax-kafka[services]: "
        "pip install '.[services]' in a checkout (replicator, server and lab bring more commands)"
    ) from None

from parallax.errors import (
    ConfigError,
    DeadlineError,
    FencedError,
    ParallaxError,
    RefusedError,
    UnavailableError,
)
from parallax.picture.text import visible_lines
from parallax.runtime.process import configure_logging, made_for_good

OUR_PACKAGES = {"parallax", "replicator", "offsetsvc", "syncjob", "console", "lab"}


class Entry(NamedTuple):
    """Where a command stands, and which extra of the distribution brings its libraries."""

    module: str
    extra: str
    attribute: str = "app"


class Chapter(NamedTuple):
    """Commands that stand together in the help, under their heading."""

    heading: str
    commands: dict[str, Entry]


CHAPTERS = (
    Chapter(
        "Set up",
        {
            "size": Entry("parallax.cli.size", "services", "size"),
            "init": Entry("parallax.cli.init", "services", "init"),
            "import": Entry("replicator.import_command", "services"),
            "config": Entry("parallax.cli.configuration", "services"),
            "schema": Entry("parallax.cli.schema", "services"),
            "doctor": Entry("parallax.cli.doctor", "services", "doctor"),
            "completion": Entry("parallax.cli.completion", "services", "completion"),
        },
    ),
    Chapter(
        "Run",
        {
            "stack": Entry("lab.stack.command", "lab"),
            "replicate": Entry("replicator.command", "replicator", "replicate"),
            "serve": Entry("offsetsvc.command", "server", "serve"),
            "sync": Entry("syncjob.command", "replicator"),
            "console": Entry("console.command", "console", "console"),
            "spark": Entry("parallax.cli.spark", "replicator"),
        },
    ),
    Chapter(
        "Look",
        {
            "status": Entry("parallax.cli.status", "services", "status"),
            "groups": Entry("parallax.cli.lists", "services", "groups"),
            "replication": Entry("parallax.cli.lists", "services", "replication"),
            "partitions": Entry("parallax.cli.lists", "services", "partitions"),
            "routes": Entry("parallax.cli.offsets", "services", "routes"),
            "runs": Entry("parallax.cli.offsets", "services", "runs"),
            "offsets": Entry("parallax.cli.offsets", "services", "offsets"),
            "explain": Entry("parallax.cli.offsets", "services", "explain"),
            "primary": Entry("parallax.cli.primary", "services", "primary"),
            "regions": Entry("parallax.cli.primary", "services", "regions"),
            "moves": Entry("parallax.cli.moves", "services"),
            "drills": Entry("parallax.cli.lists", "services", "drills"),
            "audit-log": Entry("parallax.cli.audit_log", "services", "audit_log"),
        },
    ),
    Chapter(
        "Move groups, and practise it",
        {
            "failover": Entry("parallax.cli.failover", "services"),
            "failback": Entry("parallax.cli.failover", "services", "failback"),
            "verify": Entry("parallax.cli.verify", "services", "verify"),
            "drill": Entry("parallax.cli.drill", "services", "drill"),
            "restore": Entry("parallax.cli.restore", "services", "restore"),
        },
    ),
    Chapter(
        "Look after topics, rights and run logs",
        {
            "topics": Entry("replicator.topics_command", "services"),
            "acl": Entry("parallax.cli.acl", "services"),
            "runlog": Entry("replicator.run_log_command", "replicator"),
        },
    ),
)
COMMANDS = {name: entry for chapter in CHAPTERS for name, entry in chapter.commands.items()}
_HEADINGS = {name: chapter.heading for chapter in CHAPTERS for name in chapter.commands}


class _Commands(TyperGroup):
    """Imports a command's module when it is named: all of them together take longer than most commands."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the library's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            made = self.commands[cmd_name] = _command(cmd_name, COMMANDS[cmd_name])
            made.rich_help_panel = _HEADINGS.get(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            for name in COMMANDS:  # the library names the nearest of those that it has
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _command(name: str, entry: Entry) -> Any:
    """The command, or, where it can't be imported, one that says what is missing."""
    try:
        with made_for_good():
            found = getattr(import_module(entry.module), entry.attribute)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == "lab":
            refusal = _refusal(
                "Only in a checkout", "this command needs a checkout of Parallax: run `make setup` there"
            )
        elif missing.partition(".")[0] in OUR_PACKAGES:
            raise
        else:
            extra = f"parallax-kafka[{entry.extra}]"
            refusal = _refusal(
                f"Not installed: {extra}",
                f"this command needs {missing!r} of {extra}: pip install '.[{entry.extra}]' in a checkout",
            )
        return _single(name, refusal, loose=True)
    if not isinstance(found, typer.Typer):
        return _single(name, found)
    group = typer.main.get_group(found)
    group.name = name
    return group


def _single(name: str, function: Callable[..., None], *, loose: bool = False) -> Any:
    # A command that only refuses takes any arguments, so that it gets to say so.
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    holder = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    holder.command(name, context_settings=anything if loose else None)(function)
    return typer.main.get_command(holder)


def _refusal(summary: str, why: str) -> Callable[[typer.Context], None]:
    def command(_context: typer.Context) -> None:
        raise ConfigError(why)

    command.__doc__ = f"({summary}.)"
    return command


app = typer.Typer(
    name="parallax",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"parallax {metadata.version('parallax-kafka')}")
        raise typer.Exit


@app.callback()
def parallax(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Exact offsets across aggregate Kafka clusters: replicate, map, answer, publish."""


EXIT_CODES: dict[type[ParallaxError], int] = {
    RefusedError: 10,
    FencedError: 11,
    UnavailableError: 12,
    DeadlineError: 12,
}
"""Of errors that scripts tell apart, by class; 1 of every other, 2 of a command line that can't be. `verify` has 3 to 5 for verdicts."""


def exit_code_of(error: ParallaxError) -> int:
    """The exit code of a command that ends with an error (docs/commands.md)."""
    return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)


def run() -> None:
    """The console entry: a `ParallaxError` becomes one clear line and an exit code, never a traceback.

    Where JSON was asked for, the line is JSON.
    """
    faulthandler.enable(2)  # standard error: what a crash in native code leaves is where every thread was
    configure_logging()  # to standard error, whatever is logged: a command's output is for scripts, too
    try:
        app()
    except ParallaxError as error:
        line = visible_lines(f"error [{error.code}]: {error}")
        if _wants_json(sys.argv[1:]):
            line = json.dumps({"error": {"code": error.code, "message": str(error)}})
        sys.stderr.write(f"{line}\n")
        sys.exit(exit_code_of(error))


def _wants_json(arguments: list[str]) -> bool:
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    return any(
        word in {"--json", "-ojson", "-ojsonl", "--output=json", "--output=jsonl"}
        or (word in {"-o", "--output"} and following in {"json", "jsonl"})
        for word, following in pairs
    )
