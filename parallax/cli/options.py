"""What commands are given: options that several share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from parallax.cli.completion import groups, regions
from parallax.client.client import at_cluster, at_region
from parallax.config.config import Config
from parallax.domain.ids import RegionName, names_a_cluster
from parallax.errors import InvalidNameError
from parallax.v1 import offsets_pb2 as pb

MOST_32, MOST_64 = 2**31 - 1, 2**63 - 1
"""What the numbers of an offset service's questions hold."""


def finite(value: float | None) -> float | None:
    """A number that can be waited for, which ``nan`` and ``inf`` are not.

    Raises:
        typer.BadParameter: it is one of those.
    """
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number of seconds")
    return value


def with_default(name: str) -> type[TyperGroup]:
    """A group of commands in which whatever begins with none of their names means this one."""

    class WithDefault(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if not (args or self.no_args_is_help) or (args and args[0] not in {*self.commands, "--help"}):
                args = [name, *args]
            return super().parse_args(ctx, args)

    return WithDefault


# --- of most commands ----------------------------------------------------------------------------------------------

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="PARALLAX_CONFIG", help="The configuration file.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
JsonLogsOption = Annotated[bool, typer.Option("--json", help="Print and log JSON.")]
GroupArgument = Annotated[str, typer.Argument(help="A consumer group.", autocompletion=groups)]

# --- of commands that look after targets ---------------------------------------------------------------------------

TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--to", help="A target region; may be repeated. Default: every one.", autocompletion=regions
    ),
]
TopicsArgument = Annotated[
    list[str] | None, typer.Argument(help="Topics, as they are called at the target. Default: every one.")
]


def target_regions(config: Config, to: Sequence[str] | None) -> list[RegionName]:
    """The regions that `TargetOption` names, each once; all that a route leads to, if it names none.

    Raises:
        UnknownRegionError, UnknownRouteError: nothing leads to such a region.
    """
    every = dict.fromkeys(route.target for route in config.all_routes())
    targets = [RegionName(name) for name in dict.fromkeys(to or ())] or list(every)
    for target in targets:
        config.routes_into(target)
    return targets


# --- of commands that ask the offset services ----------------------------------------------------------------------

TIMEOUT_MS = 10_000

ServicesConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="PARALLAX_CONFIG", help="The configuration file: its services are asked."
    ),
]
ServiceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--service", "-s", help="host:port of an offset service; may be repeated. Outweighs --config."
    ),
]
AuthorityOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        help="PEM file of the authority that signed the services' certificates. Default: client.ca, or service.tls.",
    ),
]
TimeoutOption = Annotated[
    int, typer.Option("--timeout-ms", min=1, max=MOST_32, help="For each question, with its retries.")
]


def place(text: str | None) -> pb.Place | None:
    """A region's aggregate cluster, or a cluster by its own name."""
    if text is None:
        return None
    return at_cluster(text) if names_a_cluster(text) else at_region(text)


# --- of answers ----------------------------------------------------------------------------------------------------

ByTimestampOption = Annotated[
    bool,
    typer.Option(
        "--by-timestamp",
        help="Where no row proves anything, go by record timestamps instead of the log start (docs/failover.md).",
    ),
]
MarginOption = Annotated[
    int | None,
    typer.Option(
        "--margin-ms",
        min=0,
        max=MOST_64,
        help="With --by-timestamp: how much older than the group's position an unconsumed record may be. "
        "Default: service.by_timestamp_margin_ms.",
    ),
]
TimestampOption = Annotated[
    int | None,
    typer.Option(
        "--timestamp-ms",
        min=0,
        max=MOST_64,
        help="With --by-timestamp: go by this time (Unix epoch) instead of that of the group's position.",
    ),
]


def timestamp_policy(
    *, by_timestamp: bool, margin_ms: int | None, timestamp_ms: int | None
) -> pb.TimestampPolicy | None:
    """The operator's choice of record timestamps; None: it was not made.

    Raises:
        InvalidNameError: it was not made, but a margin or a time is named.
    """
    if by_timestamp:
        return pb.TimestampPolicy(margin_ms=margin_ms, timestamp_ms=timestamp_ms)
    if margin_ms is not None or timestamp_ms is not None:
        raise InvalidNameError("--margin-ms and --timestamp-ms go with --by-timestamp")
    return None


# --- of moves ------------------------------------------------------------------------------------------------------

AT_ONCE = 16
WAIT_S = 60.0

GroupOrRegionArgument = Annotated[
    str | None,
    typer.Argument(help="A consumer group. Or name a region with --region.", autocompletion=groups),
]


class PlanFormat(StrEnum):
    """How a plan, or what became of it, is written."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


PlanFormatOption = Annotated[
    PlanFormat,
    typer.Option("--output", "-o", help="How to write it: json is --json, markdown is for a change ticket."),
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Carry the plan out. Without it the plan is only shown.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why, for the audit: a ticket, an incident.")]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor",
        help="Whose command this is, for the audit. Default: the account and machine that it runs on.",
    ),
]
DetachOption = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="With --execute: let an offset service carry it out, and end; parallax moves watch follows it.",
    ),
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Don't ask on a terminal for the name of what is about to move.")
]
PromoteOption = Annotated[
    bool,
    typer.Option(
        "--promote",
        help="With --region: then allow producers at --to what is withheld there (acl promote).",
    ),
]
DemoteOption = Annotated[
    str | None,
    typer.Option(
        "--demote",
        help="With --region: once every group is back, take away at this region what --promote has allowed.",
        autocompletion=regions,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the plan and change nothing: the default.")
]
DisasterOption = Annotated[
    bool,
    typer.Option("--disaster", help="The old side may be gone: nothing of it is needed or waited for."),
]
GapsOption = Annotated[
    bool,
    typer.Option(
        "--accept-gaps", help="Go on although records will never be delivered; the plan names them."
    ),
]
FirstOption = Annotated[
    list[str] | None,
    typer.Option("--first", help="With --region: this group first; may be repeated.", autocompletion=groups),
]
MaxRedeliveredOption = Annotated[
    int | None,
    typer.Option(
        "--max-redelivered",
        min=0,
        help="Planned: let the group read on until plain consumers would read at most so many records again, then move it.",
    ),
]
WithinOption = Annotated[
    float | None,
    typer.Option(
        "--within-s",
        min=0,
        callback=finite,
        help=f"With --max-redelivered: how long that may take; nothing is changed if it takes longer. Default: {WAIT_S:g}.",
    ),
]
AtOnceOption = Annotated[int, typer.Option("--at-once", min=1, max=64, help="Groups that move side by side.")]
DrainOption = Annotated[
    float,
    typer.Option(
        "--drain-timeout-s", min=0, callback=finite, help="Planned: how long a group may take to leave."
    ),
]
CatchUpOption = Annotated[
    float,
    typer.Option(
        "--catch-up-timeout-s",
        min=0,
        callback=finite,
        help="Planned: how long consumed records may take to arrive.",
    ),
]
