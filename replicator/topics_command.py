"""`parallax topics add`: target topics that nobody has created yet, beside what `parallax.cli.topics` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

import typer

from parallax.cli import audited
from parallax.cli.options import ActorOption, ConfigOption, ExecuteOption, ReasonOption, TargetOption
from parallax.cli.rows import ListColumn, OutputFormat, OutputOption, RowListing
from parallax.cli.topics import app
from parallax.config.config import Config, load
from parallax.domain.ids import ClusterName, RegionName, Route, TopicName, aggregate_cluster
from parallax.errors import ParallaxError, UnknownTopicError
from parallax.ports.audit import operator_of
from parallax.ports.clusters import TopicInfo
from replicator.kafka.topics import TargetTopics, TopicAdmin

ADD, ADDED, THERE, REFUSED = "ADD", "ADDED", "THERE", "REFUSED"
_TIMEOUT_MS = 10_000
_STYLES = {ADDED: "green", THERE: "dim", REFUSED: "bold red"}
_LISTING = RowListing(
    columns=(
        ListColumn("~topic", lambda row: row["topic"]),
        ListColumn("~route", lambda row: row["route"]),
        ListColumn("~as", lambda row: row["name"]),
        ListColumn("~at", lambda row: row["cluster"]),
        ListColumn(">partitions", lambda row: row["partitions"]),
        ListColumn("~state", lambda row: row["state"]),
        ListColumn("~problem", lambda row: row["problem"]),
    ),
    name=lambda row: f"{row['route']} {row['topic']}",
    empty="no route copies them",
    style=lambda row: _STYLES.get(row["state"]),
)


@dataclass(frozen=True, slots=True)
class AddedTopic:
    """A topic that a route copies, and whether its target has it.

    Attributes:
        topic: as it is called at the source.
        there: the source's topic by the name of its copy.
        state: `ADD`, `ADDED`, `THERE` or `REFUSED`.
    """

    route: Route
    topic: TopicName
    there: TopicInfo
    state: str = ADD
    problem: str = ""

    @property
    def what(self) -> str:
        """Which topic, and where."""
        return f"{aggregate_cluster(self.route.target)} {self.there.topic}"

    @property
    def before(self) -> str:
        """What is there before."""
        return "not there"

    @property
    def after(self) -> str:
        """What shall be there after."""
        return f"{self.there.partitions} partitions"

    @property
    def applied(self) -> bool:
        """Whether it was created."""
        return self.state == ADDED

    def line(self) -> str:
        """It for people."""
        return f"{self.state}: {self.what}: {self.problem}"

    def to_json(self) -> dict[str, Any]:
        """It as JSON types."""
        return {
            "topic": self.topic,
            "route": str(self.route),
            "name": self.there.topic,
            "cluster": aggregate_cluster(self.route.target),
            "partitions": self.there.partitions,
            "state": self.state,
            "problem": self.problem,
        }


@app.command()
def add(
    config: ConfigOption,
    topic: Annotated[list[str], typer.Argument(help="Topics, as they are called at the source.")],
    to: TargetOption = None,
    execute: ExecuteOption = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Create the targets of topics that routes choose, with what holds at the source: with topics.new: manual nobody else does.

    Exit code 1: a cluster has refused one.
    """
    operator, settings = operator_of(actor, reason), load(config)
    rows = plan_of(settings, [TopicName(name) for name in topic], to)
    if execute:
        missing = [row for row in rows if row.state == ADD]
        with audited.open_auditor(settings) as auditor:
            made = audited.carried_out(
                auditor, operator, "topics add", missing, lambda: [_made(settings, row) for row in missing]
            )
        rows = [*made, *(row for row in rows if row.state != ADD)]
    _LISTING.write([row.to_json() for row in rows], output)
    if any(row.state == REFUSED for row in rows):
        raise typer.Exit(1)


def plan_of(config: Config, topics: Sequence[TopicName], to: Sequence[str] | None) -> list[AddedTopic]:
    """Each topic on each route that copies it.

    Args:
        config: the routes.
        topics: as they are called at the source.
        to: target regions; None: all.

    Raises:
        UnknownRegionError, UnknownRouteError: nothing leads to such a region.
        UnknownTopicError: no route copies the topic, or no source has it.
        ParallaxError: a cluster did not answer.
    """
    targets = [RegionName(name) for name in dict.fromkeys(to or ())]
    routes = [route for target in targets for route in config.routes_into(target)] or config.all_routes()

    @cache
    def topics_at(cluster: ClusterName) -> Mapping[TopicName, TopicInfo]:
        return TopicAdmin(cluster, config.cluster(cluster), timeout_ms=_TIMEOUT_MS).topics()

    found: list[AddedTopic] = []
    for name in dict.fromkeys(topics):
        before = len(found)
        for route in routes:
            copy = config.route_topics(route).copy_of(name)
            source = None if copy is None else topics_at(config.source_cluster(route)).get(name)
            if copy is None or source is None:
                continue
            there = copy in topics_at(aggregate_cluster(route.target))
            found.append(AddedTopic(route, name, replace(source, topic=copy), THERE if there else ADD))
        if len(found) == before:
            shown = ", ".join(map(str, routes))
            raise UnknownTopicError(f"none of the routes {shown} copies a topic {name!r} that its source has")
    return found


def _made(config: Config, row: AddedTopic) -> AddedTopic:
    try:
        TargetTopics(config, row.route).fit(row.there)
    except ParallaxError as error:
        return replace(row, state=REFUSED, problem=str(error))
    return replace(row, state=ADDED)
