"""Takes over what a MirrorMaker 2 has copied: `parallax import mm2 --positions`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import typer

from parallax.cli import audited
from parallax.cli.choosing import Row
from parallax.cli.rows import ListColumn, OutputFormat, RowListing
from parallax.config.config import Config
from parallax.config.mirror_maker import ImportedFile
from parallax.config.mirror_maker_workers import WorkerNames, workers_of
from parallax.domain.audit import NO_GROUP
from parallax.domain.ids import Route
from parallax.domain.rights import Principal
from parallax.domain.topic_choice import TopicNaming
from parallax.errors import RefusedError, UnknownRouteError
from replicator.copying.takeover import Takeover
from replicator.kafka.takeover import MirrorMakerTakeover, TakeoverPlan
from replicator.kafka.topics import TopicAdmin

_CLUSTER_TIMEOUT_MS = 10_000
_TAKEOVER_STYLES = {
    Takeover.LOST.value: "bold red",
    Takeover.ANEW.value: "bold yellow",
    Takeover.BEGINS.value: "yellow",
    Takeover.GONE.value: "dim",
}
_TAKEOVERS = RowListing(
    columns=(
        ListColumn("~route", lambda row: row["route"]),
        ListColumn("~partition", lambda row: f"{row['topic']}-{row['partition']}"),
        ListColumn("~how it goes on", lambda row: row["takeover"]),
        ListColumn(">from source offset", lambda row: row["source_next"]),
        ListColumn(">at target offset", lambda row: row["target_next"]),
        ListColumn(">source offsets left", lambda row: row["source_offsets_left"]),
        ListColumn("~why", lambda row: row["why"]),
    ),
    name=lambda row: f"{row['route']} {row['topic']}-{row['partition']}",
    empty="there is no partition to copy",
    style=lambda row: _TAKEOVER_STYLES.get(row["takeover"]),
)


def take_over(
    text: str,
    found: ImportedFile,
    config: Config,
    routes: Sequence[str] | None,
    given: WorkerNames,
    operator: Principal,
    output: OutputFormat,
    *,
    execute: bool,
) -> None:
    """Show how each partition would go on, and carry it out if asked for.

    Args:
        text: MirrorMaker 2's configuration.
        found: what became of it.
        config: what replicators run with.
        routes: the flows; None: all that are enabled.
        given: what is known of the workers beside the file.
        operator: whose word it is.
        output: how the plan is written.
        execute: write it.

    Raises:
        typer.Exit: MirrorMaker 2 still runs.
        ParallaxError: as `MirrorMakerTakeover`; a flow that is none of both, or whose copies would be called otherwise.
    """
    works = _takeovers(config, text, found, routes, given)
    _write_plans(_taken_over(config, works, operator, execute=execute), output, executed=execute)


def _takeovers(
    config: Config, text: str, found: ImportedFile, names: Sequence[str] | None, given: WorkerNames
) -> list[MirrorMakerTakeover]:
    """The flows that are to be taken over, each as a route of the configuration.

    Raises:
        UnknownRouteError: the file enables no such flow, or the configuration has no such route.
        RefusedError: by the configuration copies would be called otherwise than MirrorMaker 2 has called them.
    """
    flows = {Route.parse(item["route"]): item for item in found.values["routes"]}
    works = []
    for route in [Route.parse(name) for name in dict.fromkeys(names or ())] or list(flows):
        if route not in flows:
            raise UnknownRouteError(f"the file of MirrorMaker 2 enables no flow {route}")
        if route not in config.all_routes():
            raise UnknownRouteError(
                f"route {route} is not configured: regions are called as MirrorMaker 2 calls its clusters"
            )
        theirs = TopicNaming(flows[route].get("naming", TopicNaming().template)).template
        ours = config.route_topics(route).naming.template
        if theirs != ours:
            raise RefusedError(
                f"{route}: MirrorMaker 2 calls copies {theirs!r}, and by the configuration they are {ours!r}: what it has copied lies in other "
                "topics. Give the route the same 'naming'"
            )
        works.append(
            MirrorMakerTakeover(
                config,
                route,
                workers_of(text, route, given),
                lambda cluster: TopicAdmin(cluster, config.cluster(cluster), timeout_ms=_CLUSTER_TIMEOUT_MS),
            )
        )
    return works


def _taken_over(
    config: Config, works: Sequence[MirrorMakerTakeover], operator: Principal, *, execute: bool
) -> Iterator[TakeoverPlan]:
    """The plan of each; carried out if asked for, with whose word it was kept before."""
    if not execute:
        yield from (work.plan() for work in works)
        return
    with audited.open_auditor(config) as auditor:
        for work in works:
            told = {"route": str(work.route)}
            with auditor.act(operator, "import mm2 --positions", NO_GROUP, before=told, after=told) as act:
                plan = work.execute()
                act.after = told | {"partitions": str(sum(1 for item in plan.partitions if item.changes))}
            yield plan


def _write_plans(plans: Iterator[TakeoverPlan], output: OutputFormat, *, executed: bool) -> None:
    at_work: list[str] = []
    rows: list[Row] = []
    for plan in plans:
        rows += plan.rows()
        at_work += plan.at_work
        if plan.passed_over:
            sys.stderr.write(
                f"{plan.route} does not copy {', '.join(plan.passed_over)}, which MirrorMaker 2 has copied\n"
            )
    _TAKEOVERS.write(rows, output)
    if at_work:
        sys.stderr.write(
            f"MirrorMaker 2 still runs: {'; '.join(at_work)}. These are its positions as of now: stop it, and keep it from starting again\n"
        )
        raise typer.Exit(1)
    sys.stderr.write(
        "written: replicators that start now go on from there\n"
        if executed
        else "nothing was changed: give --execute to write it\n"
    )
