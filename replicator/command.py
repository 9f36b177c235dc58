"""`parallax replicate`: copies regional clusters into aggregate clusters, on Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import structlog
import typer

from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.topic_settings import SettingsDoor
from parallax.adapters.spark.application import Application
from parallax.adapters.spark.session import local_slots
from parallax.adapters.spark.status_part import StatusPart
from parallax.cli.options import ConfigOption, JsonLogsOption
from parallax.cli.output import console, print_json, table
from parallax.config.config import Config, load
from parallax.domain.ids import ClusterName, RegionName, Route
from parallax.runtime.process import configure_logging, process_name
from parallax.upkeep.board import UpkeepBoard, UpkeepRow
from parallax.upkeep.keeping import CANARY, RETENTION, STATES, Round, Upkeep, keeping, upkeeps
from replicator.findings import Finding, Severity
from replicator.kafka.canary import CanaryWriter, clusters_to_write_to
from replicator.kafka.retention import INTERVAL_S, TIMEOUT_MS, RetentionReader
from replicator.kafka.run_log_check import check_routes
from replicator.kafka.topics import TopicAdmin
from replicator.lease import LeaseProgress
from replicator.leases.board import ProgressBoard
from replicator.leases.canary import CanaryBoard, watched_topics
from replicator.leases.claims import Claims
from replicator.leases.console import progress_view
from replicator.leases.query import lease_keys, replication_query, routes_of
from replicator.leases.retention import RetentionBoard
from replicator.leases.status import ReplicationStatus
from replicator.leases.telling import telling
from replicator.preflight import (
    refuse_if_blocked,
    refused_findings,
    run_preflight,
    slots_finding,
    status_finding,
)
from syncjob.query import sync_query
from syncjob.status import SyncBoard

_log = structlog.get_logger(__name__)

_CLUSTER_TIMEOUT_MS = 5_000
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def replicate(
    config: ConfigOption,
    region: Annotated[
        list[str] | None,
        typer.Option("--region", help="A target region; may be given again. Default: every one."),
    ] = None,
    with_sync: Annotated[
        bool, typer.Option("--with-sync", help="Publish resume offsets too, in the same application.")
    ] = False,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Copy what the sources hold now, then stop.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check both ends of every route, print, start nothing. Exit code 1: a finding is an error.",
        ),
    ] = False,
    as_json: JsonLogsOption = False,
) -> None:
    """Copy regional clusters into the aggregate cluster of each region, exactly once, until stopped."""
    if with_sync and available_now:
        raise typer.BadParameter("--with-sync publishes for ever; leave it out with --available-now")
    configure_logging(json=as_json)
    settings = load(config)
    regions = [RegionName(name) for name in dict.fromkeys(region or ())] or _every_target(settings)
    application = _application(
        settings, regions, with_sync=with_sync, available_now=available_now, json_logs=as_json
    )
    if dry_run:
        findings = _preflight(settings, regions, application)
        _print(findings, as_json=as_json)
        raise typer.Exit(1 if any(finding.blocks for finding in findings) else 0)
    application.run(meanwhile=partial(_refuse_what_does_not_fit, settings, regions, application))


def _refuse_what_does_not_fit(
    config: Config, regions: Sequence[RegionName], application: Application
) -> None:
    findings = _preflight(config, regions, application)
    for finding in findings:
        say = {Severity.ERROR: _log.error, Severity.WARNING: _log.warning, Severity.NOTE: _log.info}
        say[finding.severity]("preflight", **finding.to_json())
    refuse_if_blocked(findings)


def _every_target(config: Config) -> list[RegionName]:
    return list(dict.fromkeys(route.target for route in config.all_routes()))


def _preflight(config: Config, regions: Sequence[RegionName], application: Application) -> list[Finding]:
    routes = routes_of(config, regions)
    findings = run_preflight(
        config,
        routes,
        lambda cluster: TopicAdmin(cluster, config.cluster(cluster), timeout_ms=_CLUSTER_TIMEOUT_MS),
    )
    findings += refused_findings(check_routes(config, routes))
    session = application.session_settings
    slots = local_slots(session.master)
    first = [
        status_finding(config.replicator.status_address, local=slots is not None),
        None if slots is None else slots_finding(slots, session.leases),
    ]
    return [finding for finding in first if finding is not None] + findings


def _application(
    config: Config,
    regions: Sequence[RegionName],
    *,
    with_sync: bool,
    available_now: bool = False,
    json_logs: bool = False,
) -> Application:
    """What replicates into the regions, and syncs too if it shall."""
    routes = routes_of(config, regions)
    keys = lease_keys(config, routes)
    canaries = CanaryBoard(watched_topics(config, routes), config.canary)
    retention = RetentionBoard(config, routes)

    def heard(progress: LeaseProgress) -> None:
        canaries.heard(progress)
        retention.heard(progress)

    board = ProgressBoard(keys, heard=heard)
    queries = [replication_query(config, region, available_now=available_now) for region in regions]
    upkeep = UpkeepBoard(STATES)
    kept = (
        []
        if available_now
        else [*upkeeps(config, regions), *_canaries(config, routes), *_retentions(config, retention)]
    )
    leases = ReplicationStatus(board, Claims(keys), config.metrics)
    status: list[StatusPart] = [leases, canaries, retention, upkeep]
    if with_sync:
        queries.append(sync_query(config))
        status.append(SyncBoard(config.sync.interval_ms, old_names=config.metrics.old_names))
    return Application(
        name="replicator",
        queries=queries,
        status=status,
        status_address=config.replicator.status_address,
        status_tls=config.replicator.status_tls,
        service=config.service,
        master=config.replicator.spark_master,
        checkpoint_directory=config.replicator.checkpoint_directory,
        view=partial(_view, board, config, kept, upkeep, canaries),
        json_logs=json_logs,
        secret=config.replicator.secret_of_spark(),
        insecure=config.replicator.spark_insecure,
    )


def _canaries(config: Config, routes: Sequence[Route]) -> list[Upkeep]:
    """What writes canaries, for each source."""

    def opened(cluster: ClusterName, readers: Sequence[Route]) -> Round:
        writer = CanaryWriter(config, cluster, readers, process_name("replicator"))

        def go() -> Sequence[UpkeepRow]:
            writer.round()
            return ()

        return go

    return [
        Upkeep(CANARY, cluster, config.canary.interval_s, partial(opened, cluster, readers))
        for cluster, readers in clusters_to_write_to(config, routes).items()
    ]


def _retentions(config: Config, board: RetentionBoard) -> list[Upkeep]:
    """What asks each source how long it keeps records."""

    def opened(cluster: ClusterName) -> Round:
        door = SettingsDoor(cluster, config.cluster(cluster), timeout_ms=TIMEOUT_MS)
        reader = RetentionReader(door, partial(board.topics, cluster), partial(board.learn, cluster))

        def go() -> Sequence[UpkeepRow]:
            reader.round()
            return ()

        return go

    return [Upkeep(RETENTION, cluster, INTERVAL_S, partial(opened, cluster)) for cluster in board.sources]


@contextmanager
def _view(
    board: ProgressBoard,
    config: Config,
    kept: Sequence[Upkeep],
    upkeep: UpkeepBoard,
    canaries: CanaryBoard,
) -> Iterator[Callable[[], None]]:
    """Shows progress to people here, tells the store of it for everybody else, and keeps topics in step meanwhile."""
    stores = partial(CassandraStores, config.cassandra, config.index)
    with (
        keeping(kept, upkeep),
        telling(board, canaries, process_name("replicator"), stores),
        progress_view(board) as draw,
    ):
        yield draw


def _print(findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        values = {
            "ok": not any(finding.blocks for finding in findings),
            "findings": [finding.to_json() for finding in findings],
        }
        print_json(values, indent=None)
        return
    if not findings:
        sys.stdout.write("preflight: nothing found; both ends of every route fit\n")
        return
    rows = table("~severity | ~problem | ~where | ~what is wrong | ~what to do", title="preflight")
    for finding in findings:
        rows.add_row(
            finding.severity.value,
            finding.problem.value,
            finding.where,
            finding.message,
            finding.advice,
            style=_STYLES[finding.severity],
        )
    console().print(rows)
