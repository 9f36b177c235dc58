"""Every metric that the code can export, with its labels, and a scrape of each process with a sample of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from structlog.testing import capture_logs

from console.metrics import ConsoleMetrics
from offsetsvc.metrics import ServiceMetrics
from offsetsvc.workers import Workers
from parallax.adapters.http.metrics import metrics_page, process_registry
from parallax.adapters.spark.status_part import StatusPart
from parallax.config.config import CanarySettings, Config, MetricsSettings
from parallax.domain.ids import ClusterName, GroupName, RegionName, Route, TopicName
from parallax.domain.lag_verdict import LagState, LagVerdict
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Assignment, Mode, PrimaryDecision, Stage
from parallax.domain.topic_settings import SettingFinding, SettingState
from parallax.errors import DeadlineError
from parallax.upkeep.board import UpkeepBoard
from parallax.upkeep.keeping import SETTINGS, STATES
from parallax.upkeep.settings import SettingsRow
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import overview_pb2
from replicator.lease import Lease, LeaseKey, LeaseProgress, PartitionProgress, PartitionStatus
from replicator.leases.board import LeaseReport, ProgressBoard
from replicator.leases.canary import CanaryBoard
from replicator.leases.claims import Claims
from replicator.leases.retention import RetentionBoard
from replicator.leases.status import ReplicationStatus
from syncjob.status import SyncBoard, SyncReport

A, B = RegionName("a"), RegionName("b")
_HIDDEN = {"le"}


@dataclass(frozen=True, slots=True)
class Exported:
    """A metric.

    Attributes:
        name: as it is scraped; of a histogram without its suffixes.
        values: by label, the values of the samples of this module's scrapes.
    """

    name: str
    kind: str
    description: str
    labels: tuple[str, ...]
    values: dict[str, frozenset[str]]


def exported(*, old_names: bool) -> dict[str, Exported]:
    """Every metric of ours by name."""
    found: dict[str, Exported] = {}
    for family in families(old_names=old_names):
        if not family.name.startswith("parallax_"):
            continue
        name, kind = family.name, family.type
        name += {"counter": "_total", "info": "_info"}.get(kind, "")
        labels = tuple(label for label in family.samples[0].labels if label not in _HIDDEN)
        values = {label: frozenset(sample.labels[label] for sample in family.samples) for label in labels}
        found[name] = Exported(
            name, "gauge" if kind == "info" else kind, family.documentation, labels, values
        )
    return found


def families(*, old_names: bool) -> Iterator[Metric]:
    """Every family of the four kinds of processes, each with a sample."""
    settings = MetricsSettings(old_names=old_names)
    for part in boards(settings):
        yield from part.collect()
    yield from service(settings).registry.collect()
    yield from console().registry.collect()


def boards(settings: MetricsSettings) -> list[StatusPart]:
    """What the replicator's and the sync job's pages are made of."""
    return [leases(settings), canaries(), retention(), kept_in_step(), syncs(settings)]


def kept_in_step() -> UpkeepBoard:
    """A target with a setting that somebody has set there."""
    board, cluster = UpkeepBoard(STATES), ClusterName("aggregate-b")
    finding = SettingFinding("retention.ms", SettingState.CONFIG_DRIFT, "1", "2")
    board.expect(SETTINGS, cluster)
    board.good(SETTINGS, cluster, [SettingsRow(cluster, TopicName("trips"), finding)])
    return board


def leases(settings: MetricsSettings) -> ReplicationStatus:
    """A lease with a partition that copies and one that is stopped."""
    board = ProgressBoard([LeaseKey(Route(A, B), 0)])
    lease = Lease(Route(A, B), 0, shard_count=1, layout=1, epoch=1, deadline_unix_ms=0)
    parts = (
        PartitionProgress("trips", 0, 5, 500, 5, 1, 12.5, PartitionStatus.COPYING),
        PartitionProgress("trips", 1, 5, 500, 5, 1, 12.5, PartitionStatus.STOPPED, "a reason"),
    )
    board.record(LeaseReport(LeaseProgress(lease, parts, transactions=1, aborts=0, index_lag_ms=0), "first"))
    return ReplicationStatus(board, Claims([]), settings)


def canaries() -> CanaryBoard:
    """A route whose canary has come."""
    board = CanaryBoard({Route(A, B): TopicName("parallax-canary")}, CanarySettings())
    lease = Lease(Route(A, B), 0, shard_count=1, layout=1, epoch=1, deadline_unix_ms=0)
    part = PartitionProgress("parallax-canary", 0, 5, 500, 5, 1, 12.5, PartitionStatus.COPYING)
    board.heard(LeaseProgress(lease, (part,), transactions=1, aborts=0, index_lag_ms=0))
    return board


def retention() -> RetentionBoard:
    """A route from a cluster that keeps records for a day."""
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    regions = {A: {"regional": cluster}, B: {"aggregate": cluster}}
    config = Config.model_validate({"regions": regions, "cassandra": {"contact_points": ["127.0.0.1"]}})
    board = RetentionBoard(config, [Route(A, B)])
    lease = Lease(Route(A, B), 0, shard_count=1, layout=1, epoch=1, deadline_unix_ms=0)
    part = PartitionProgress("trips", 0, 5, 500, 5, 1, 12.5, PartitionStatus.COPYING, copied_until_ms=1)
    board.heard(LeaseProgress(lease, (part,), transactions=1, aborts=0, index_lag_ms=0))
    board.learn(ClusterName("regional-a"), {TopicName("trips"): 86_400_000})
    return board


def syncs(settings: MetricsSettings) -> SyncBoard:
    """A sync job after a good cycle."""
    board = SyncBoard(1_000, old_names=settings.old_names)
    board.record(SyncReport("first", {"cycles": 1}).to_json())
    return board


def service(settings: MetricsSettings) -> ServiceMetrics:
    """An offset service that was asked once, with a group that is dual active and moving."""
    decision = PrimaryDecision(
        GroupName("billing"), 7, Mode.ACTIVE_PASSIVE, A, None, Stage.MOVING, None, A, 5_000
    )
    routes = [pb.RouteInfo(route="a->b", topics=[pb.RouteTopic(topic="trips", freshness_ms=5)])]
    service: Any = SimpleNamespace(
        config=SimpleNamespace(metrics=settings),
        mapping=SimpleNamespace(routes=_late),
        primaries=SimpleNamespace(all=lambda: {decision.group: Assignment(decision, (decision,))}),
        operations=SimpleNamespace(
            drills=lambda _request, _shown: overview_pb2.ListDrillsResponse(
                drills=[overview_pb2.DrillSummary(ending="passed", started_at_ms=5_000)]
            )
        ),
        replication=SimpleNamespace(look=lambda: None),
        lags=SimpleNamespace(remember=lambda: None),
        lag_survey=SimpleNamespace(
            look=lambda: None,
            verdicts={
                (decision.group, ClusterName("aggregate-a")): LagVerdict(LagState.STOP, None, 8, 1, 1, 1)
            },
        ),
        moves=SimpleNamespace(),
    )
    identity: Any = SimpleNamespace(keys_age_ms=lambda: 5_000)
    metrics = ServiceMetrics()
    gauges = metrics.watch(service, identity)
    gauges.refresh()
    service.mapping.routes = lambda _deadline: pb.ListRoutesResponse(routes=routes)
    gauges.refresh()
    with metrics.request("grpc", "ListRuns"):
        pass
    answer: Any = SimpleNamespace(outcome=Outcome.OK)
    metrics.answered([answer])
    service.moves.tell_unaudited("ReportProgress")
    metrics.registry.register(Workers(None, 0))
    return metrics


def console() -> ConsoleMetrics:
    """A console that was asked once."""
    metrics = ConsoleMetrics()
    metrics.answered("/groups", 200, 0.02)
    return metrics


def main() -> None:
    """Write what the processes would show, under the names that stay, for ``promtool check metrics``."""
    registry = process_registry("replicator")
    with capture_logs():  # which go where the page goes
        found = list(families(old_names=False))
    for family in found:
        if family.name.startswith("parallax_") and family.name != "parallax_build":
            registry.register(Fixed(family))
    sys.stdout.buffer.write(metrics_page(registry)[1])


class Fixed(Collector):
    """A family as it is."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> list[Metric]:
        return [self._family]


def _late(_deadline: object) -> NoReturn:
    raise DeadlineError("too many topics")


if __name__ == "__main__":
    main()
