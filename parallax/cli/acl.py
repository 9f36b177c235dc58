"""`parallax acl`: rules of access at targets, beside those of their sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from parallax.cli import audited, completion
from parallax.cli.options import (
    ActorOption,
    ConfigOption,
    ExecuteOption,
    ReasonOption,
    TargetOption,
    TopicsArgument,
    target_regions,
)
from parallax.cli.rows import ListColumn, OutputFormat, OutputOption, RowListing
from parallax.config.config import Config, load
from parallax.domain.access_rules import AccessState
from parallax.domain.rights import Principal
from parallax.ports.audit import operator_of
from parallax.upkeep.access import AccessKeeper, AccessPlan, AccessRow

app = typer.Typer(
    help="Rules of access (ACLs) that are copied to targets, and who else may write there.",
    no_args_is_help=True,
)

OneTargetOption = Annotated[
    str, typer.Option("--to", help="The target region.", autocompletion=completion.regions)
]

_COLUMNS = (
    ListColumn("~cluster", lambda row: row["cluster"]),
    ListColumn("~state", lambda row: row["state"]),
    ListColumn("~permission", lambda row: row["rule"]["permission"]),
    ListColumn("~principal", lambda row: row["rule"]["principal"]),
    ListColumn("~operation", lambda row: row["rule"]["operation"]),
    ListColumn("~kind", lambda row: row["rule"]["kind"]),
    ListColumn("~match", lambda row: row["rule"]["match"]),
    ListColumn("~name", lambda row: row["rule"]["name"]),
    ListColumn("~host", lambda row: row["rule"]["host"], wide=True),
    ListColumn("~sources", lambda row: ", ".join(row["sources"]), wide=True),
    ListColumn("~problem", lambda row: row["problem"]),
)


def listing(empty: str) -> RowListing:
    """Rules as a table, or as JSON types."""
    return RowListing(
        columns=_COLUMNS,
        name=lambda row: f"{row['rule']['principal']} {row['rule']['operation']} {row['rule']['name']}",
        empty=empty,
    )


@app.command()
def diff(
    config: ConfigOption,
    to: TargetOption = None,
    withheld: Annotated[
        bool, typer.Option("--withheld", help="Show, too, what targets do not allow until they are promoted.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show rules that are not in step, and why; change nothing. Exit code 1: there are some, or a source did not show its own."""
    rows: list[AccessRow] = []
    wrong = False
    for keeper in _keepers(load(config), to):
        plan = keeper.plan()
        wrong = not _all_readable(plan) or bool(plan.rows()) or wrong
        rows += [*plan.rows(), *(plan.withheld() if withheld else ())]
    _write(rows, output)
    if wrong:
        raise typer.Exit(1)


@app.command()
def sync(
    config: ConfigOption,
    to: TargetOption = None,
    execute: ExecuteOption = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Copy rules to targets once, whether `topics.acl_sync` is enabled or not. Exit code 1: something stays otherwise."""
    operator, settings = operator_of(actor, reason), load(config)
    rows: list[AccessRow] = []
    wrong = False
    for keeper in _keepers(settings, to):
        plan = keeper.plan()
        wrong = not _all_readable(plan) or wrong
        if execute:
            rows += _changed(settings, operator, "acl sync", plan.changes(), partial(keeper.carry_out, plan))
        else:
            rows += plan.rows()
    _write(rows, output)
    planned = {AccessState.ADD, AccessState.REMOVE}
    if wrong or any(not row.applied and (execute or row.finding.state not in planned) for row in rows):
        raise typer.Exit(1)


@app.command()
def promote(
    config: ConfigOption,
    to: OneTargetOption,
    topic: TopicsArgument = None,
    execute: ExecuteOption = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Allow at a target what was withheld, such as to write: it has become the place where producers produce."""
    operator, settings = operator_of(actor, reason), load(config)
    rows, readable = promotion(settings, to, topic, operator, execute=execute)
    _done(rows, output, execute=execute)
    if not readable:
        raise typer.Exit(1)


@app.command()
def demote(
    config: ConfigOption,
    to: OneTargetOption,
    topic: TopicsArgument = None,
    execute: ExecuteOption = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Take away what `promote` has allowed."""
    rows = demotion(load(config), to, topic, operator_of(actor, reason), execute=execute)
    _done(rows, output, execute=execute)


@app.command()
def check(
    config: ConfigOption,
    to: TargetOption = None,
    own: Annotated[
        list[str] | None,
        typer.Option(
            "--own", help="A principal of the replicator's, such as User:parallax; may be repeated."
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List who else may change copies, run logs and other topics of Parallax. Exit code 1: somebody may."""
    rows = [
        {
            "cluster": keeper.cluster,
            "state": "",
            "rule": rule.to_json(),
            "sources": [],
            "topics": topics,
            "problem": f"{len(topics)} topics, such as {topics[0]}",
        }
        for keeper in _keepers(load(config), to)
        for rule, topics in keeper.others_who_write(own or ())
    ]
    listing("nobody else may change what is copied").write(rows, output)
    if rows:
        raise typer.Exit(1)


def promotion(
    config: Config, to: str, topics: Sequence[str] | None, operator: Principal, *, execute: bool
) -> tuple[Sequence[AccessRow], bool]:
    """What is withheld at a target and would be allowed, or was; and whether every source has shown its rules.

    Of a source that has not, what was remembered at the target counts.

    Raises:
        ParallaxError: the target does not answer, refuses it, or has no such topic.
    """
    (keeper,) = _keepers(config, [to])
    plan = keeper.plan()
    readable = _all_readable(plan)
    rows: Sequence[AccessRow] = keeper.promotion(plan, topics)
    if execute:
        rows = _changed(config, operator, "acl promote", rows, partial(keeper.promote, rows))
    return rows, readable


def demotion(
    config: Config, to: str, topics: Sequence[str] | None, operator: Principal, *, execute: bool
) -> Sequence[AccessRow]:
    """What a promotion has allowed and would be taken away, or was.

    Raises:
        ParallaxError: the target does not answer, refuses it, or has no such topic.
    """
    (keeper,) = _keepers(config, [to])
    rows: Sequence[AccessRow] = keeper.demotion(keeper.plan(), topics)
    if execute:
        rows = _changed(config, operator, "acl demote", rows, partial(keeper.demote, rows))
    return rows


def _keepers(config: Config, to: Sequence[str] | None) -> list[AccessKeeper]:
    return [AccessKeeper(config, target) for target in target_regions(config, to)]


def _changed(
    config: Config,
    operator: Principal,
    command: str,
    planned: Sequence[AccessRow],
    carry_out: Callable[[], Sequence[AccessRow]],
) -> Sequence[AccessRow]:
    with audited.open_auditor(config) as auditor:
        return audited.carried_out(auditor, operator, command, planned, carry_out)


def _all_readable(plan: AccessPlan) -> bool:
    """Whether every source has shown its rules; those that have not are told."""
    for region, why in sorted(plan.unreadable.items()):
        typer.echo(f"{region} does not show its rules: {why}", err=True)
    return not plan.unreadable


def _done(rows: Sequence[AccessRow], output: OutputFormat, *, execute: bool) -> None:
    _write(rows, output)
    if execute and any(not row.applied for row in rows):
        raise typer.Exit(1)


def _write(rows: Sequence[AccessRow], output: OutputFormat) -> None:
    listing("nothing to do").write([row.to_json() for row in rows], output)
