"""`parallax runlog`: looks at the routes' run logs, and rebuilds one that is lost (docs/run-log.md)."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.cli.options import ActorOption, ConfigOption, ExecuteOption, JsonOption, ReasonOption
from parallax.cli.output import console, known, print_json, table
from parallax.config.config import Config, load
from parallax.domain.audit import NO_GROUP
from parallax.domain.ids import ClusterName, Route, TopicPartition, aggregate_cluster
from parallax.domain.rights import Principal
from parallax.errors import UnavailableError, UnknownRouteError
from parallax.ports.audit import Auditor, operator_of
from parallax.runtime.process import process_name
from replicator.copying.rebuild import GoingOn
from replicator.kafka.kept_records import RecordOffsets
from replicator.kafka.rebuild import Rebuild, RebuildPlan
from replicator.kafka.run_log import read_partition
from replicator.kafka.run_log_check import RouteCheck, check_routes
from replicator.kafka.spans import Span
from replicator.kafka.topics import TopicAdmin

app = typer.Typer(help="Look at the routes' run logs; rebuild one that is lost.", no_args_is_help=True)

_CLUSTER_TIMEOUT_MS = 10_000
_READ_TIMEOUT_MS = 30_000
_STYLES = {
    GoingOn.NEW_GENERATION: "yellow",
    GoingOn.ANEW: "bold yellow",
    GoingOn.ENDED: "dim",
    GoingOn.UNKNOWN: "dim",
}

RouteOption = Annotated[
    list[str] | None,
    typer.Option("--route", help="A route, such as 'a->b'; may be repeated. Default: every one."),
]
OneRouteOption = Annotated[str, typer.Option("--route", help="The route, such as 'a->b'.")]


@app.command()
def check(config: ConfigOption, route: RouteOption = None, as_json: JsonOption = False) -> None:
    """Read the run logs, and say what they hold and what is wrong. Exit code 1: something is."""
    settings = load(config)
    routes = [_route(settings, name) for name in dict.fromkeys(route or ())] or list(settings.all_routes())
    with CassandraStores(settings.cassandra, settings.index) as stores:

        def indexed_up_to(place: Route, layout: int, shard: int) -> int:
            try:
                return stores.index.indexed_up_to(place, layout, shard)
            except UnavailableError:
                return 0

        checks = check_routes(settings, routes, indexed_up_to)
    if as_json:
        print_json([item.to_json() for item in checks])
    else:
        _print_checks(checks, settings.replicator.run_log_retention_ms)
    if any(item.problems for item in checks):
        raise typer.Exit(1)


@app.command()
def rebuild(
    config: ConfigOption,
    route: OneRouteOption,
    execute: ExecuteOption = False,
    begin_anew: Annotated[
        bool,
        typer.Option(
            "--begin-anew",
            help="Copy everything again that the source holds, whatever is proven: consumers see it twice.",
        ),
    ] = False,
    actor: ActorOption = None,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make the run log of a route anew, from the index and the clusters. Without --execute the plan is only shown."""
    operator, settings = operator_of(actor, reason), load(config)
    place = _route(settings, route)
    with CassandraStores(settings.cassandra, settings.index, audit=settings.audit) as stores:
        stores.connect()
        work = Rebuild(
            settings,
            place,
            stores.index,
            lambda cluster: TopicAdmin(cluster, settings.cluster(cluster), timeout_ms=_CLUSTER_TIMEOUT_MS),
            record_offsets(settings, aggregate_cluster(place.target)),
            anew=begin_anew,
        )
        auditor = Auditor(stores.audit, stores.clock.now_ms, process=process_name("parallax"))
        plan = rebuild_audited(work, auditor, operator, place, anew=begin_anew) if execute else work.plan()
    if as_json:
        print_json({**plan.to_json(), "executed": execute})
    else:
        _print_plan(plan, executed=execute)


def rebuild_audited(
    work: Rebuild, auditor: Auditor, operator: Principal, route: Route, *, anew: bool
) -> RebuildPlan:
    """Rebuild, and keep whose word it was: before whoever copies the route is fenced.

    Raises:
        StoreUnavailableError: it could not be kept, and nothing was done.
        ParallaxError: see `Rebuild.execute`.
    """
    told = {"route": str(route)}
    with auditor.act(
        operator,
        "runlog rebuild",
        NO_GROUP,
        before=told,
        after=told | {"run_log": "copied anew" if anew else "made anew"},
    ) as act:
        plan = work.execute()
        twice = "unknown" if plan.twice is None else str(plan.twice)
        act.after = {"layout": str(plan.layout), "records_twice_at_most": twice}
    return plan


def _route(config: Config, name: str) -> Route:
    route = Route.parse(name)
    if route not in config.all_routes():
        raise UnknownRouteError(f"route {route} is not configured")
    return route


def record_offsets(config: Config, cluster: ClusterName) -> RecordOffsets:
    """What reads the offsets of a target's records."""
    settings = client_settings(config.cluster(cluster), client_id="parallax-rebuild")

    def offsets(item: TopicPartition, span: Span) -> list[int]:
        records = read_partition(
            settings, cluster, item.topic, item.partition, span, timeout_ms=_READ_TIMEOUT_MS
        )
        return [offset for offset, _, _ in records]

    return offsets


def _print_checks(checks: list[RouteCheck], retention_ms: int) -> None:
    rows = table(
        "route | >shard | >layout | topic id | >start | >end | >entries | >partitions | >snapshot bytes | >snapshot age s "
        "| >oldest entry h",
        title=f"run logs (kept for {retention_ms / 3_600_000:.0f} h)",
    )
    for item in checks:
        for shard in item.shards:
            rows.add_row(
                str(item.route),
                str(shard.shard),
                known(None if item.layout is None else item.layout.layout),
                item.topic_id or "-",
                known(shard.start),
                known(shard.end),
                known(shard.entries),
                known(shard.partitions),
                known(shard.snapshot_bytes),
                "-" if shard.snapshot_age_ms is None else f"{shard.snapshot_age_ms / 1_000:.1f}",
                "-" if shard.oldest_age_ms is None else f"{shard.oldest_age_ms / 3_600_000:.1f}",
                style="bold red" if shard.problem or item.problem else None,
            )
    console().print(rows)
    for item in checks:
        for problem in item.problems:
            sys.stdout.write(f"{item.route}: {problem}\n")
        if item.layout is None and not item.problem:
            sys.stdout.write(f"{item.route}: not replicated yet\n")


def _print_plan(plan: RebuildPlan, *, executed: bool) -> None:
    for error in dict.fromkeys(map(str, plan.refused.values())):
        sys.stdout.write(f"{error}\n")
    rows = table(
        "partition | how it goes on | >from source offset | >records twice, at most | ~why",
        title=str(plan.route),
    )
    for item in plan.partitions:
        rows.add_row(
            str(item.topic_partition),
            item.going_on.value,
            known(item.source_next),
            known(item.twice),
            item.why,
            style=_STYLES.get(item.going_on),
        )
    console().print(rows)
    for note in plan.notes:
        sys.stdout.write(f"note: {note}\n")
    twice = "an unknown number of records" if plan.twice is None else f"{plan.twice:,} records"
    sys.stdout.write(
        f"{len(plan.kept)} partitions of other shards keep their positions; no record is lost, at most {twice} come twice\n"
    )
    sys.stdout.write(
        f"layout {plan.layout} is written: start the replicator of {plan.route} again if it has ended\n"
        if executed
        else "nothing was changed: give --execute to write it\n"
    )
