"""`parallax topics diff` and `sync`: settings of target topics beside those of their sources."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from parallax.cli import audited
from parallax.cli.choosing import Row
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
from parallax.domain.ids import TopicName
from parallax.domain.topic_settings import SettingState
from parallax.errors import UnknownTopicError
from parallax.ports.audit import operator_of
from parallax.upkeep.settings import CHANGED, SettingsKeeper, SettingsPlan, SettingsRow


def _sources(row: Row) -> str:
    return ", ".join(f"{region}: {value}" for region, value in row["sources"].items())


_STYLES = {CHANGED: "green", SettingState.CHANGE.value: None}
_LISTING = RowListing(
    columns=(
        ListColumn("~topic", lambda row: row["topic"]),
        ListColumn("~cluster", lambda row: row["cluster"]),
        ListColumn("~key", lambda row: row["key"]),
        ListColumn("~state", lambda row: row["state"]),
        ListColumn("~at the target", lambda row: row["target"]),
        ListColumn("~wanted", lambda row: row["wanted"]),
        ListColumn("~at the sources", _sources, wide=True),
        ListColumn("~problem", lambda row: row["problem"]),
    ),
    name=lambda row: f"{row['cluster']} {row['topic']} {row['key']}".rstrip(),
    empty="all settings are in step",
    style=lambda row: _STYLES.get(row["state"], "yellow"),
)


def diff(
    config: ConfigOption,
    topic: TopicsArgument = None,
    to: TargetOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show settings that are not in step, and why; change nothing. Exit code 1: there are some."""
    settings = load(config)
    rows = [row for keeper in _keepers(settings, to) for row in _plan(keeper, topic).rows()]
    _write(rows, output)
    if rows:
        raise typer.Exit(1)


def sync(
    config: ConfigOption,
    topic: TopicsArgument = None,
    to: TargetOption = None,
    revert: Annotated[
        bool,
        typer.Option(
            "--revert", help="Undo what was set at the target (CONFIG_DRIFT, CONFIG_CONFLICT), too."
        ),
    ] = False,
    allow_shrink: Annotated[
        bool, typer.Option("--allow-shrink", help="Although groups lose records that they have not read.")
    ] = False,
    execute: ExecuteOption = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Put settings of target topics in step with their sources' once; the replicator does so all the time.

    Exit code 1: something is not in step, and stays so.
    """
    operator, settings = operator_of(actor, reason), load(config)
    rows: list[SettingsRow] = []
    for keeper in _keepers(settings, to):
        plan = _plan(keeper, topic, revert=revert, allow_shrink=allow_shrink, config=settings)
        if execute:
            with audited.open_auditor(settings) as auditor:
                rows += audited.carried_out(
                    auditor, operator, "topics sync", plan.changes(), partial(keeper.carry_out, plan)
                )
        else:
            rows += plan.rows()
    _write(rows, output)
    if any(not row.applied and (execute or row.finding.state is not SettingState.CHANGE) for row in rows):
        raise typer.Exit(1)


def _keepers(config: Config, to: Sequence[str] | None) -> list[SettingsKeeper]:
    return [SettingsKeeper(config, target) for target in target_regions(config, to)]


def _plan(
    keeper: SettingsKeeper,
    topics: Collection[str] | None,
    *,
    revert: bool = False,
    allow_shrink: bool = False,
    config: Config | None = None,
) -> SettingsPlan:
    wanted = {TopicName(name) for name in topics} if topics else None
    rule = replace(config.topics.config_sync.rule(), revert=True) if revert and config is not None else None
    plan = keeper.plan(wanted, rule=rule, allow_shrink=True if allow_shrink else None)
    unknown = (wanted or set()) - {item.topic for item in plan.topics} - plan.unreadable.keys()
    if unknown:
        raise UnknownTopicError(f"{keeper.cluster}: nothing is copied to a topic {min(unknown)!r} there")
    return plan


def _write(rows: Sequence[SettingsRow], output: OutputFormat) -> None:
    _LISTING.write([row.to_json() for row in rows], output)
