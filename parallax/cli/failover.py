"""`parallax failover`, `failback` and `failover rollback`: groups move, go back, and are put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from parallax.cli import completion
from parallax.cli.failover_command import MoveCommand, MoveOptions
from parallax.cli.failover_tables import (
    rollback_values,
    show_rollback,
)
from parallax.cli.options import (
    AT_ONCE,
    WAIT_S,
    ActorOption,
    AtOnceOption,
    ByTimestampOption,
    CatchUpOption,
    ConfigOption,
    DemoteOption,
    DetachOption,
    DisasterOption,
    DrainOption,
    DryRunOption,
    ExecuteOption,
    FirstOption,
    GapsOption,
    GroupArgument,
    GroupOrRegionArgument,
    JsonOption,
    MarginOption,
    MaxRedeliveredOption,
    PlanFormat,
    PlanFormatOption,
    PromoteOption,
    ReasonOption,
    TimestampOption,
    WithinOption,
    YesOption,
    timestamp_policy,
    with_default,
)
from parallax.cli.output import confirm_by_name, console, log_beside_result, print_json
from parallax.config.config import load
from parallax.domain.ids import GroupName
from parallax.errors import InvalidNameError
from parallax.failover.facts import Move, MoveKind
from parallax.failover.opening import open_outside
from parallax.failover.outside import Outside
from parallax.failover.rollback import plan_rollback, roll_back
from parallax.failover.selection import one_move, region_moves, way_back, ways_back
from parallax.ports.audit import operator_of

app = typer.Typer(
    cls=with_default("move"),
    no_args_is_help=True,
    help="Move groups to another region or cluster, and back.\n\n`parallax failover GROUP --to REGION` is `failover move`: its options are told by `parallax failover move --help`.",
)


@app.command("move")
def move(
    context: typer.Context,
    config: ConfigOption,
    group: GroupOrRegionArgument = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="The region that shall be primary.", autocompletion=completion.regions),
    ] = None,
    to_cluster: Annotated[
        str | None,
        typer.Option(
            "--to-cluster", help="Another aggregate cluster for the same region: only its own is down."
        ),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Where the group consumes. Default: its recorded primary.",
            autocompletion=completion.clusters_and_regions,
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            "--region",
            help="Move every group that consumes this region's cluster.",
            autocompletion=completion.regions,
        ),
    ] = None,
    execute: ExecuteOption = False,
    yes: YesOption = False,
    detach: DetachOption = False,
    dry_run: DryRunOption = False,
    disaster: DisasterOption = False,
    accept_gaps: GapsOption = False,
    first: FirstOption = None,
    at_once: AtOnceOption = AT_ONCE,
    drain_timeout_s: DrainOption = WAIT_S,
    catch_up_timeout_s: CatchUpOption = WAIT_S,
    max_redelivered: MaxRedeliveredOption = None,
    within_s: WithinOption = None,
    by_timestamp: ByTimestampOption = False,
    margin_ms: MarginOption = None,
    timestamp_ms: TimestampOption = None,
    promote: PromoteOption = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    output: PlanFormatOption = PlanFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show how a group (or a region's groups) would move; with --execute move it. The default command.

    An interrupted command is simply run again: it goes on where it was.
    """
    if region is not None and (to is None or to_cluster is not None or origin is not None):
        raise InvalidNameError("--region goes with --to REGION, and without --to-cluster and --from")
    if promote and region is None:
        raise InvalidNameError("--promote goes with --region: producers move as a region's, not as a group's")
    options = MoveOptions(
        config,
        group,
        region,
        execute,
        yes,
        dry_run,
        MoveKind.DISASTER if disaster else MoveKind.PLANNED,
        accept_gaps,
        tuple(first or ()),
        at_once,
        drain_timeout_s,
        catch_up_timeout_s,
        max_redelivered,
        within_s,
        operator_of(actor, reason),
        PlanFormat.JSON if as_json else output,
        timestamp_policy(by_timestamp=by_timestamp, margin_ms=margin_ms, timestamp_ms=timestamp_ms),
    )
    target = to if to is not None else region_of_name(to_cluster)
    if detach:
        where = {"to_region": to or "", "to_cluster": to_cluster or "", "origin": origin or ""}
        options.detach(where, first=target)
        return

    def moves(outside: Outside, chosen: Callable[[GroupName], bool]) -> dict[GroupName, Move]:
        if region is not None:
            return region_moves(outside, region, to or "", chosen, options.kind)
        name = GroupName(group or "")
        found = one_move(outside, name, to_region=to, to_cluster=to_cluster, origin=origin, kind=options.kind)
        return {name: found}

    command = MoveCommand(context, options)
    if promote:
        command.then_promote(to or "")
    command.run(moves, first=target, last=region, lost=region if disaster else None)


def failback(
    context: typer.Context,
    config: ConfigOption,
    group: GroupOrRegionArgument = None,
    region: Annotated[
        str | None,
        typer.Option(
            "--region",
            help="Take back every group whose last move left this region's cluster.",
            autocompletion=completion.regions,
        ),
    ] = None,
    execute: ExecuteOption = False,
    yes: YesOption = False,
    detach: DetachOption = False,
    dry_run: DryRunOption = False,
    disaster: DisasterOption = False,
    accept_gaps: GapsOption = False,
    first: FirstOption = None,
    at_once: AtOnceOption = AT_ONCE,
    drain_timeout_s: DrainOption = WAIT_S,
    catch_up_timeout_s: CatchUpOption = WAIT_S,
    max_redelivered: MaxRedeliveredOption = None,
    within_s: WithinOption = None,
    demote: DemoteOption = None,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    output: PlanFormatOption = PlanFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Move a group back to where its last move came from: the same rule the other way."""
    if demote is not None and region is None:
        raise InvalidNameError("--demote goes with --region: producers move as a region's, not as a group's")
    options = MoveOptions(
        config,
        group,
        region,
        execute,
        yes,
        dry_run,
        MoveKind.DISASTER if disaster else MoveKind.PLANNED,
        accept_gaps,
        tuple(first or ()),
        at_once,
        drain_timeout_s,
        catch_up_timeout_s,
        max_redelivered,
        within_s,
        operator_of(actor, reason),
        PlanFormat.JSON if as_json else output,
    )
    if detach:
        options.detach({"back": True}, first=None)
        return

    def moves(outside: Outside, chosen: Callable[[GroupName], bool]) -> dict[GroupName, Move]:
        if region is not None:
            return ways_back(outside, region, chosen, options.kind, command.leave_out)
        name = GroupName(group or "")
        return {name: way_back(outside, name, options.kind)}

    command = MoveCommand(context, options)
    if demote is not None:
        command.then_promote(demote, back=True)
    # The store of a region that was away may answer from before: its service is asked when no other answers.
    command.run(moves, first=region if disaster else None, last=None if disaster else region, lost=None)


@app.command("rollback")
def rollback(
    group: GroupArgument,
    config: ConfigOption,
    execute: ExecuteOption = False,
    yes: YesOption = False,
    disaster: Annotated[
        bool, typer.Option("--disaster", help="Decide without regions of the store that are gone.")
    ] = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Put a group back as it was before its last move, as long as it has not committed since."""
    log_beside_result(json=as_json)
    with open_outside(load(config), operator=operator_of(actor, reason)) as outside:
        plan = plan_rollback(outside, GroupName(group), disaster=disaster)
        if execute and not plan.obstacles and not as_json:
            confirm_by_name(group, [f"{group}: back to {plan.move.origin}, as it was"], yes=yes)
        record = roll_back(outside, plan) if execute else None
    if as_json:
        values = rollback_values(plan)
        values["done"] = record is not None
        values["fencing_number"] = None if record is None else record.fencing_number
        print_json(values)
    else:
        out = console()
        show_rollback(plan, out)
        out.print(
            "nothing was changed: --execute puts it back"
            if record is None
            else f"put back; fencing number {record.fencing_number}"
        )
    if record is None and plan.obstacles:
        raise typer.Exit(1)


def region_of_name(cluster: str | None) -> str | None:
    """The region in a cluster's name, if one is named."""
    return None if cluster is None else cluster.partition("-")[2]
