"""`parallax completion`: what a shell completes: commands, options, and names of groups, regions, clusters and topics.

Names are as the offset services or the configuration know them. Whoever presses Tab wants no error, and not to wait: what can't be told within a second is not offered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any

import typer

from parallax.cli.connecting import connect
from parallax.client.client import OffsetClient
from parallax.config.config import Config, load
from parallax.errors import ParallaxError

_TIMEOUT_MS = 1_000
_MOST = 50
"""Groups that are offered: more than that nobody reads."""

_PLAIN = re.compile(r"[\w.:@%+,=/-]+", re.ASCII)
"""Of these letters alone a name may stand in a command line as it is: a shell does as it is told by any other, and a group may
be called ``$(reboot)``."""

_WHAT_TO_DO = "_PARALLAX_COMPLETE"
"""The library's own variable: the scripts that it makes name it, too."""

Completion = Callable[[typer.Context, str], list[str]]


def _quiet(names: Callable[[typer.Context, str], Iterable[str]]) -> Completion:
    @wraps(names)
    def completed(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            found = sorted(set(names(ctx, incomplete)))
        except ParallaxError:
            return []
        return [name for name in found if name.startswith(incomplete) and _PLAIN.fullmatch(name)]

    return completed


@_quiet
def groups(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Groups that begin so."""
    with _client(ctx) as client:
        return [item.group for item in client.list_groups(prefix=incomplete, limit=_MOST).groups]


@_quiet
def regions(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Regions; of the configuration, where one is named, so that a Tab asks nobody."""
    del incomplete
    return _regions(ctx)


@_quiet
def clusters_and_regions(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Where a group may go or come from: regions, and aggregate clusters."""
    del incomplete
    settings = _configuration(ctx)
    if settings is not None:
        return [*settings.regions, *settings.aggregate_clusters()]
    with _client(ctx) as client:
        found = client.describe_regions().regions
    return [*(item.region for item in found), *(item.aggregate.cluster for item in found)]


@_quiet
def topics(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Topics that are copied."""
    del incomplete
    with _client(ctx) as client:
        return [item.topic for route in client.list_routes().routes for item in route.topics]


def _regions(ctx: typer.Context) -> list[str]:
    settings = _configuration(ctx)
    if settings is not None:
        return list(settings.regions)
    with _client(ctx) as client:
        return [item.region for item in client.describe_regions().regions]


def _configuration(ctx: typer.Context) -> Config | None:
    path = ctx.params.get("config")
    return None if path is None else load(path)


def _client(ctx: typer.Context) -> OffsetClient:
    given: dict[str, Any] = ctx.params  # those that stand before the word, and of the environment
    return connect(given.get("config"), given.get("service"), given.get("tls_ca"), _TIMEOUT_MS)


class CompletedShell(StrEnum):
    """Shells that can be taught."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    ctx: typer.Context, shell: Annotated[CompletedShell, typer.Argument(help="Which shell.")]
) -> None:
    """Write what a shell has to read to complete commands, options and names (docs/commands.md)."""
    os.environ[_WHAT_TO_DO] = f"source_{shell}"
    ctx.find_root().command.main([], prog_name="parallax")
