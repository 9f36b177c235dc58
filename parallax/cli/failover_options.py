"""Options of the commands that move groups."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AT_ONCE = 16
WAIT_S = 60.0

ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="PARALLAX_CONFIG", help="The configuration file.")
]
GroupArgument = Annotated[
    str | None, typer.Argument(help="A consumer group. Or name a region with --region.")
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Carry the plan out. Without it the plan is only shown.")
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
    list[str] | None, typer.Option("--first", help="With --region: this group first; may be repeated.")
]
AtOnceOption = Annotated[int, typer.Option("--at-once", min=1, max=64, help="Groups that move side by side.")]
DrainOption = Annotated[
    float, typer.Option("--drain-timeout-s", min=0, help="Planned: how long a group may take to leave.")
]
CatchUpOption = Annotated[
    float,
    typer.Option(
        "--catch-up-timeout-s", min=0, help="Planned: how long consumed records may take to arrive."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
