"""`parallax failover`, `failback` and `failover rollback`: groups move, go back, and are put back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from parallax.cli import completion
from parallax.cli.detaching import Detached, require_detachable
from parallax.cli.failover_tables import (
    plan_values,
    result_values,
    rollback_values,
    show_plan,
    show_plans,
    show_results,
    show_rollback,
)
from parallax.cli.failover_ticket import command_line, plans_ticket, results_ticket
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
from parallax.cli.output import confirm_by_name, console, print_json, progress_bar
from parallax.cli.promotion import Promoted, Promotion
from parallax.config.config import load
from parallax.domain.ids import GroupName, RegionName
from parallax.domain.rights import Principal
from parallax.errors import InvalidNameError
from parallax.failover.execute import Mover
from parallax.failover.facts import Move, MoveKind
from parallax.failover.opening import lost_regions, open_outside, without
from parallax.failover.outside import Outside
from parallax.failover.plan import Ending, MoveLimits, MovePlan, Result, make_plan, redelivered_beyond
from parallax.failover.rollback import plan_rollback, roll_back
from parallax.failover.selection import in_order, one_move, region_moves, side_by_side, way_back, ways_back
from parallax.ports.audit import operator_of
from parallax.runtime.process import configure_logging, stopping
from parallax.v1 import offsets_pb2 as pb
from parallax.wiring import open_client

_MOST_NAMED = 20
"""Groups, before a region's name is asked for."""


app = typer.Typer(
    cls=with_default("move"), no_args_is_help=True, help="Move groups to another region or cluster, and back."
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
    kind = MoveKind.DISASTER if disaster else MoveKind.PLANNED
    _require_one(group, region)
    if region is not None and (to is None or to_cluster is not None or origin is not None):
        raise InvalidNameError("--region goes with --to REGION, and without --to-cluster and --from")
    if promote and region is None:
        raise InvalidNameError("--promote goes with --region: producers move as a region's, not as a group's")
    target = to if to is not None else region_of_name(to_cluster)
    form = PlanFormat.JSON if as_json else output
    if detach:
        require_detachable(
            execute=execute,
            group=group,
            form=form,
            first=first or [],
            at_once=at_once,
            waits_s=(drain_timeout_s, catch_up_timeout_s),
            max_redelivered=max_redelivered,
            within_s=within_s,
            by_timestamp=by_timestamp,
        )
        options = {
            "to_region": to or "",
            "to_cluster": to_cluster or "",
            "origin": origin or "",
            "disaster": disaster,
            "accept_gaps": accept_gaps,
        }
        detached = Detached(group or "", options, operator_of(actor, reason), yes, form)
        _detach(config, detached, first=target)
        return

    def moves(outside: Outside, chosen: Callable[[GroupName], bool]) -> dict[GroupName, Move]:
        if region is not None:
            return region_moves(outside, region, to or "", chosen, kind)
        name = GroupName(group or "")
        found = one_move(outside, name, to_region=to, to_cluster=to_cluster, origin=origin, kind=kind)
        return {name: found}

    command = _Command(
        context,
        config,
        region or group or "",
        execute,
        yes,
        dry_run,
        _limits(
            kind, drain_timeout_s, catch_up_timeout_s, max_redelivered, within_s, accept_gaps=accept_gaps
        ),
        first or [],
        at_once,
        form,
        region is not None,
        operator_of(actor, reason),
        timestamp_policy(by_timestamp=by_timestamp, margin_ms=margin_ms, timestamp_ms=timestamp_ms),
    )
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
    kind = MoveKind.DISASTER if disaster else MoveKind.PLANNED
    _require_one(group, region)
    if demote is not None and region is None:
        raise InvalidNameError("--demote goes with --region: producers move as a region's, not as a group's")
    form = PlanFormat.JSON if as_json else output
    if detach:
        require_detachable(
            execute=execute,
            group=group,
            form=form,
            first=first or [],
            at_once=at_once,
            waits_s=(drain_timeout_s, catch_up_timeout_s),
            max_redelivered=max_redelivered,
            within_s=within_s,
        )
        options = {"back": True, "disaster": disaster, "accept_gaps": accept_gaps}
        _detach(config, Detached(group or "", options, operator_of(actor, reason), yes, form), first=None)
        return

    def moves(outside: Outside, chosen: Callable[[GroupName], bool]) -> dict[GroupName, Move]:
        if region is not None:
            return ways_back(outside, region, chosen, kind, command.leave_out)
        name = GroupName(group or "")
        return {name: way_back(outside, name, kind)}

    command = _Command(
        context,
        config,
        region or group or "",
        execute,
        yes,
        dry_run,
        _limits(
            kind, drain_timeout_s, catch_up_timeout_s, max_redelivered, within_s, accept_gaps=accept_gaps
        ),
        first or [],
        at_once,
        form,
        region is not None,
        operator_of(actor, reason),
    )
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
    configure_logging(json=as_json)
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


def _detach(config: Path, detached: Detached, *, first: str | None) -> None:
    near = None if first is None else RegionName(first)
    with open_client(load(config), first=near) as client:
        detached.run(client)


def region_of_name(cluster: str | None) -> str | None:
    """The region in a cluster's name, if one is named."""
    return None if cluster is None else cluster.partition("-")[2]


def _limits(
    kind: MoveKind,
    drain_s: float,
    catch_up_s: float,
    max_redelivered: int | None,
    within_s: float | None,
    *,
    accept_gaps: bool,
) -> MoveLimits:
    if max_redelivered is not None and kind is MoveKind.DISASTER:
        raise InvalidNameError("--max-redelivered goes with planned moves: a disaster waits for nothing")
    if within_s is not None and max_redelivered is None:
        raise InvalidNameError("--within-s goes with --max-redelivered")
    return MoveLimits(
        drain_ms=drain_s * 1_000,
        catch_up_ms=catch_up_s * 1_000,
        accept_gaps=accept_gaps,
        max_redelivered=max_redelivered,
        redelivered_ms=(WAIT_S if within_s is None else within_s) * 1_000,
    )


def _require_one(group: str | None, region: str | None) -> None:
    if (group is None) == (region is None):
        raise InvalidNameError("name one group, or a region's groups with --region")


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")


class _Command:
    """Plans moves, shows them, carries them out."""

    def __init__(
        self,
        context: typer.Context,
        config: Path,
        about: str,
        execute: bool,
        yes: bool,
        dry_run: bool,
        limits: MoveLimits,
        first: list[str],
        at_once: int,
        form: PlanFormat,
        many: bool,
        operator: Principal,
        by_timestamp: pb.TimestampPolicy | None = None,
    ) -> None:
        if execute and dry_run:
            raise InvalidNameError("--execute and --dry-run contradict each other")
        configure_logging(json=form is PlanFormat.JSON)
        self._context = context
        self._config = load(config)
        self._about = about
        self._execute = execute
        self._yes = yes
        self._limits = limits
        self._first = [GroupName(name) for name in first]
        self._at_once = at_once
        self._form = form
        self._many = many
        self._operator = operator
        self._by_timestamp = by_timestamp
        self._left_out: dict[GroupName, str] = {}
        self._promotion: Promotion | None = None

    def then_promote(self, region: str, *, back: bool = False) -> None:
        """Allow, at last, what is withheld from producers at a region; or take that away.

        Raises:
            UnknownRegionError: there is no such region, or it is no target.
        """
        self._config.routes_into(RegionName(region))
        self._promotion = Promotion(self._config, region, self._operator, back=back)

    def leave_out(self, group: GroupName, problem: str) -> None:
        """Tell of a group for which no move could be found, and that the command did not do all."""
        self._left_out[group] = problem

    def run(
        self,
        moves: Callable[[Outside, Callable[[GroupName], bool]], dict[GroupName, Move]],
        *,
        first: str | None,
        last: str | None,
        lost: str | None,
    ) -> None:
        """Find the moves, then plan or execute them; exit code 1 if one was refused or did not end well.

        Args:
            moves: finds them.
            first: the region whose service is asked first.
            last: the region whose service is asked last.
            lost: a region whose service is not asked.
        """
        near = None if first is None else RegionName(first)
        with open_outside(
            self._config,
            target=near,
            origin=None if last is None else RegionName(last),
            lost=frozenset() if lost is None else frozenset({RegionName(lost)}),
            by_timestamp=self._by_timestamp,
            operator=self._operator,
        ) as everything:
            found = moves(everything, self._config.groups.chosen)
            ordered = {group: found[group] for group in in_order(found, self._first)}
            self._confirm(ordered)
            with without(self._config, everything, lost_regions(found.values()), first=near) as outside:
                done = self._carry_out(outside, ordered) if self._execute else self._plan(outside, ordered)
        if self._form is not PlanFormat.JSON:
            for group, problem in self._left_out.items():
                Console(stderr=self._form is PlanFormat.MARKDOWN).print(
                    f"group {group} was left out: {problem}", style="bold red", markup=False
                )
        if self._left_out or not done:
            raise typer.Exit(1)

    def _confirm(self, moves: dict[GroupName, Move]) -> None:
        if not self._execute or not moves or self._form is PlanFormat.JSON:
            return
        lines = [
            f"{group}: {move.origin} to {move.target}, {move.kind.value}" for group, move in moves.items()
        ]
        if len(lines) > _MOST_NAMED:
            lines[_MOST_NAMED:] = [f"and {len(lines) - _MOST_NAMED} more groups"]
        if self._promotion is not None:
            lines.append(f"then {self._promotion.words}")
        confirm_by_name(self._about, lines, yes=self._yes)

    def _plan(self, outside: Outside, moves: dict[GroupName, Move]) -> bool:
        """Show the plans; whether none is refused."""
        made = side_by_side(
            list(moves), lambda group: make_plan(outside.facts(moves[group])), at_once=self._at_once
        )
        plans = [self._with_limits(plan) for plan in made.values()]
        accept = self._limits.accept_gaps
        rules = None if self._promotion is None else self._promotion.plan()
        if self._form is PlanFormat.JSON:
            self._print_json([plan_values(plan, accept_gaps=accept) for plan in plans], rules)
        elif self._form is PlanFormat.MARKDOWN:
            again = command_line(self._context)
            ticket = plans_ticket(
                plans, accept_gaps=accept, operator=self._operator, at=_now(), carried_out_by=again
            )
            sys.stdout.write(ticket)
        else:
            self._show_plans(plans)
        well = self._show_rules(rules)
        return well and not any(plan.refusals(accept_gaps=accept) and not plan.arrived for plan in plans)

    def _with_limits(self, plan: MovePlan) -> MovePlan:
        """The plan that says, too, if it would wait until fewer records are read again."""
        too_many = redelivered_beyond(plan, self._limits)
        return (
            replace(plan, waits_for=(f"until fewer are read again: {too_many}", *plan.waits_for))
            if too_many
            else plan
        )

    def _show_plans(self, plans: list[MovePlan]) -> None:
        out = console()
        accept = self._limits.accept_gaps
        if not plans:
            out.print("no group has to move")
            return
        if self._many:
            show_plans(plans, out, accept_gaps=accept)
        else:
            show_plan(plans[0], out, accept_gaps=accept)
        out.print("nothing was changed: --execute carries this out")

    def _carry_out(self, outside: Outside, moves: dict[GroupName, Move]) -> bool:
        """Move the groups; whether all have ended well."""
        mover, groups = Mover(outside, self._limits), list(moves)
        with stopping(outside.time.stop), progress_bar(shown=self._form is not PlanFormat.JSON) as bar:
            task = bar.add_task("moving", total=len(groups))

            def one(group: GroupName) -> Result:
                return mover.move(
                    moves[group], lambda words: bar.update(task, description=f"{group}: {words}")
                )

            ahead = [group for group in groups if self._many and moves[group].kind is MoveKind.DISASTER]
            side_by_side(ahead, lambda group: mover.fence_ahead(moves[group]), at_once=self._at_once)
            ended = side_by_side(
                groups, one, at_once=self._at_once, done=lambda _group, _result: bar.advance(task)
            )
        results = list(ended.values())
        arrived = all(item.ending in {Ending.MOVED, Ending.ALREADY_THERE} for item in results)
        rules = self._promoted(arrived=arrived)
        if self._form is PlanFormat.JSON:
            values = [result_values(item, accept_gaps=self._limits.accept_gaps) for item in results]
            self._print_json(values, rules)
        elif self._form is PlanFormat.MARKDOWN:
            sys.stdout.write(results_ticket(results, operator=self._operator, at=_now()))
        elif results:
            show_results(results, console())
        else:
            console().print("no group has to move")
        return self._show_rules(rules) and arrived

    def _promoted(self, *, arrived: bool) -> Promoted | None:
        """The last step. Producers wait for a promotion whatever has become of groups; nothing is taken away from them before all are back."""
        step = self._promotion
        if step is None:
            return None
        if step.back and (not arrived or self._left_out):
            return Promoted(step, problem="nothing was taken away: not every group is back", well=False)
        return step.carry_out()

    def _show_rules(self, rules: Promoted | None) -> bool:
        if rules is None:
            return True
        if self._form is not PlanFormat.JSON:
            rules.show(self._form)
        return rules.well

    def _print_json(self, values: list[dict[str, Any]], rules: Promoted | None) -> None:
        values += [{"group": group, "problem": problem} for group, problem in self._left_out.items()]
        values += [] if rules is None else [rules.to_json()]
        print_json(values if self._many else values[0])
