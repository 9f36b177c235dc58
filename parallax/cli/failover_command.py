"""What `parallax failover` and `failback` do alike: plan moves, show them, carry them out, or leave that to a service."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from parallax.cli.detaching import Detached
from parallax.cli.failover_tables import (
    plan_values,
    result_values,
    show_plan,
    show_plans,
    show_results,
)
from parallax.cli.failover_ticket import command_line, plans_ticket, results_ticket
from parallax.cli.options import AT_ONCE, WAIT_S, PlanFormat
from parallax.cli.output import confirm_by_name, console, log_beside_result, print_json, progress_bar
from parallax.config.config import load
from parallax.domain.ids import GroupName, RegionName
from parallax.domain.rights import Principal
from parallax.errors import InvalidNameError
from parallax.failover.execute import Mover
from parallax.failover.facts import Move, MoveKind
from parallax.failover.opening import lost_regions, open_outside, without
from parallax.failover.outside import Outside
from parallax.failover.plan import Ending, MoveLimits, MovePlan, Result, make_plan, redelivered_beyond
from parallax.failover.selection import in_order, side_by_side
from parallax.picture.text import visible
from parallax.runtime.process import stopping
from parallax.v1 import offsets_pb2 as pb
from parallax.wiring import open_client

if TYPE_CHECKING:
    from parallax.cli.promotion import Promoted, Promotion

_MOST_NAMED = 20
"""Groups, before a region's name is asked for."""


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """What both commands can be told.

    Attributes:
        group: that moves; None: those of ``region``.
        drain_s: how long is waited for members to leave.
        catch_up_s: how long is waited for records that are not copied yet.
        within_s: how long is waited for ``max_redelivered``; None: as long as for the others.
        by_timestamp: None: never go by timestamps.
    """

    config: Path
    group: str | None
    region: str | None
    execute: bool
    yes: bool
    dry_run: bool
    kind: MoveKind
    accept_gaps: bool
    first: tuple[str, ...]
    at_once: int
    drain_s: float
    catch_up_s: float
    max_redelivered: int | None
    within_s: float | None
    operator: Principal
    form: PlanFormat
    by_timestamp: pb.TimestampPolicy | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            InvalidNameError: it does.
        """
        if (self.group is None) == (self.region is None):
            raise InvalidNameError("name one group, or a region's groups with --region")
        if self.execute and self.dry_run:
            raise InvalidNameError("--execute and --dry-run contradict each other")
        if self.max_redelivered is not None and self.kind is MoveKind.DISASTER:
            raise InvalidNameError("--max-redelivered goes with planned moves: a disaster waits for nothing")
        if self.within_s is not None and self.max_redelivered is None:
            raise InvalidNameError("--within-s goes with --max-redelivered")

    def limits(self) -> MoveLimits:
        """How long a move waits, and for what."""
        return MoveLimits(
            drain_ms=self.drain_s * 1_000,
            catch_up_ms=self.catch_up_s * 1_000,
            accept_gaps=self.accept_gaps,
            max_redelivered=self.max_redelivered,
            redelivered_ms=(WAIT_S if self.within_s is None else self.within_s) * 1_000,
        )

    def detach(self, where: dict[str, Any], *, first: str | None) -> None:
        """Have an offset service carry it out, and leave it to that.

        Args:
            where: the group goes, for `OffsetClient.plan_move`.
            first: the region whose service is asked first.

        Raises:
            InvalidNameError: no service can carry out what the command line says; the message says what to leave out.
        """
        self._require_detachable()
        options = {**where, "disaster": self.kind is MoveKind.DISASTER, "accept_gaps": self.accept_gaps}
        detached = Detached(self.group or "", options, self.operator, self.yes, self.form)
        with open_client(load(self.config), first=None if first is None else RegionName(first)) as client:
            detached.run(client)

    def _require_detachable(self) -> None:
        if not self.execute:
            raise InvalidNameError("--detach goes with --execute")
        if self.form is PlanFormat.MARKDOWN:
            raise InvalidNameError(
                "--detach: a ticket is written of a plan, without --execute, or of what became of it"
            )
        given = {
            "--region": self.group is None,
            "--first": bool(self.first),
            "--at-once": self.at_once != AT_ONCE,
            "--drain-timeout-s and --catch-up-timeout-s": (self.drain_s, self.catch_up_s) != (WAIT_S, WAIT_S),
            "--max-redelivered": self.max_redelivered is not None,
            "--within-s": self.within_s is not None,
            "--by-timestamp": self.by_timestamp is not None,
        }
        wrong = [name for name, is_given in given.items() if is_given]
        if wrong:
            raise InvalidNameError(
                f"--detach: an offset service carries out the move of one group, within its own limits: leave out {', '.join(wrong)}"
            )


class MoveCommand:
    """Plans moves, shows them, carries them out.

    Args:
        context: of the command line, for a ticket that says it again.
        options: what it says.

    Raises:
        InvalidNameError: it contradicts itself.
        ConfigError: the configuration can't be used.
    """

    def __init__(self, context: typer.Context, options: MoveOptions) -> None:
        log_beside_result(json=options.form is PlanFormat.JSON)
        self._context = context
        self._config = load(options.config)
        self._about = options.region or options.group or ""
        self._execute = options.execute
        self._yes = options.yes
        self._limits = options.limits()
        self._first = [GroupName(name) for name in options.first]
        self._at_once = options.at_once
        self._form = options.form
        self._many = options.region is not None
        self._operator = options.operator
        self._by_timestamp = options.by_timestamp
        self._left_out: dict[GroupName, str] = {}
        self._promotion: Promotion | None = None

    def then_promote(self, region: str, *, back: bool = False) -> None:
        """Allow, at last, what is withheld from producers at a region; or take that away.

        Raises:
            UnknownRegionError: there is no such region, or it is no target.
        """
        from parallax.cli.promotion import Promotion  # noqa: PLC0415 - what rules of access need is loaded for this alone

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
                console(stderr=self._form is PlanFormat.MARKDOWN).print(
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
                    moves[group], lambda words: bar.update(task, description=visible(f"{group}: {words}"))
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
            return step.left("nothing was taken away: not every group is back")
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


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
