"""``parallax``: every command of the product."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

from parallax.domain.errors import ConfigError, ParallaxError

app = typer.Typer(
    name="parallax",
    help="Exact offsets across aggregate Kafka clusters: replicate, map, answer, publish.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

OUR_PACKAGES = {"parallax", "replicator", "offsetsvc", "syncjob", "failover", "devstack"}


def _optional(name: str, module: str, extra: str) -> Any:
    """The command ``name`` of a module, or, without the libraries of its extra, one that says what to install."""
    try:
        return getattr(import_module(f"parallax.cli.{module}"), name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] in OUR_PACKAGES:
            raise
        return _not_installed(name, missing, extra)


def _not_installed(name: str, missing: str, extra: str) -> Callable[[typer.Context], None]:
    def command(_context: typer.Context) -> None:
        raise ConfigError(f"this command needs {missing!r}: pip install 'parallax-kafka[{extra}]'")

    command.__name__ = name
    command.__doc__ = f"(Not installed: parallax-kafka[{extra}].)"
    return command


def _mount_group(name: str, module: str, extra: str) -> None:
    group = _optional("app", module, extra)
    if isinstance(group, typer.Typer):
        app.add_typer(group, name=name)
    else:
        _mount_command(name, group)


def _mount_command(name: str, command: Any) -> None:
    # A command that is not installed takes any arguments, so that it gets to say so.
    loose = {"ignore_unknown_options": True, "allow_extra_args": True}
    known = not (command.__doc__ or "").startswith("(Not installed")
    app.command(name, context_settings=None if known else loose)(command)


_mount_group("stack", "stack", "devstack")
_mount_group("schema", "schema", "services")
_mount_command("replicate", _optional("replicate", "replicate", "replicator"))
_mount_command("serve", _optional("serve", "serve", "server"))
_mount_command("sync", _optional("sync", "sync", "replicator"))
for _name in ("offsets", "explain", "routes", "runs"):
    _mount_command(_name, _optional(_name, "offsets", "services"))
for _name in ("primary", "regions"):
    _mount_command(_name, _optional(_name, "primary", "services"))
_mount_group("failover", "failover", "services")
_mount_command("failback", _optional("failback", "failover", "services"))
_mount_command("verify", _optional("verify", "verify", "services"))
_mount_command("drill", _optional("drill", "drill", "services"))


def run() -> None:
    """The console entry: a `ParallaxError` becomes one clear line and exit code 1, never a traceback."""
    try:
        app()
    except ParallaxError as error:
        sys.stderr.write(f"error [{error.code}]: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    run()
