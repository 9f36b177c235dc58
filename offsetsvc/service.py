"""The offset service's use cases, built over one configuration and its stores, and what readiness looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from offsetsvc.audit import AuditReader
from offsetsvc.chains import Chains
from offsetsvc.clusters import Clusters
from offsetsvc.drills import MakesCanary, OwnDrills
from offsetsvc.index.memory import MAX_AGE_MS, IndexMemory
from offsetsvc.lag_survey import LagSurvey
from offsetsvc.lags import LagHistories
from offsetsvc.lookups import MappingLookups
from offsetsvc.moves import RecordedMoves
from offsetsvc.moving import OwnMoves, verified_to_pb
from offsetsvc.names import Places
from offsetsvc.overview.groups import GroupLists
from offsetsvc.overview.operations import Operations
from offsetsvc.overview.replication import ReplicationLists
from offsetsvc.parallel import named_pool
from offsetsvc.positions import GroupPositions
from offsetsvc.primaries import Primaries
from offsetsvc.regions import describe_regions
from offsetsvc.resume.request import Failover
from offsetsvc.resume.skip_updates import SkipWatches
from parallax.config.config import Config
from parallax.config.settings import settings_of
from parallax.domain.ids import ClusterName, GroupName, RegionName, aggregate_cluster
from parallax.domain.rights import Principal
from parallax.domain.topic_choice import matches
from parallax.errors import ParallaxError
from parallax.failover.clusters import AggregateClusters
from parallax.failover.desk import MoveDesk
from parallax.failover.drill.canary import KafkaCanary
from parallax.failover.journal import MoveJournal
from parallax.failover.outside import Outside
from parallax.failover.services import MoveClient, OffsetServices
from parallax.failover.timekeeper import Timekeeper
from parallax.failover.verify.verdict import Consumers
from parallax.failover.verify.verifier import Verifier
from parallax.ports.audit import AuditLog, Auditor
from parallax.ports.clusters import ClusterReader, ClusterWriter
from parallax.ports.groups import GroupStore, OperationJournal, PrimaryStore
from parallax.ports.index import MappingIndexReader
from parallax.ports.status import StatusStore
from parallax.runtime.deadline import Deadline
from parallax.v1.moves_pb2 import GroupVerification, VerifyGroupRequest
from parallax.v1.overview_pb2 import DescribeConfigurationResponse, Setting
from parallax.v1.primaries_pb2 import DescribeRegionsResponse

READERS = 64
"""Reads side by side over all calls: Cassandra's driver multiplexes them on one connection, Kafka's likewise."""

READ_POOL = "offsetsvc-read"
"""What threads of these reads are called."""

REFRESHERS = 8
"""Things that are read anew at a time while calls go on with what is known of them."""

REFRESH_POOL = "offsetsvc-again"
"""What threads of these reads are called."""

_PROBE_EVERY_MS = 500.0
"""How soon a cluster that came back is seen."""

_VERIFY_WAITS_MS = 3_000.0
"""For an index that lags behind the group."""

STORE = "store"
"""The name of the store among the dependencies."""


class UseCases:
    """All use cases. Stateless but for brief memories of reads and failures; safe to use from many threads.

    Attributes:
        places: names of requests.
        failover: where groups resume.
        skips: skip ranges after a move, as they become known.
        mapping: what the index holds, and translations by it.
        moves: what moves leave.
        positions: where groups are.
        primaries: where groups are primary.
        audit: who changed what.
        lists: every group, and those for which something can't be published.
        replication: how routes and their partitions are.
        lags: of groups that somebody looks at, as they went.
        operations: moves and drills.
        own_moves: moves that this service carries out.
        own_drills: drills that it carries out.

    Args:
        config: the configuration.
        region: the region that it runs in; its aggregate cluster decides readiness.
        index: the mapping index.
        groups: what is remembered of groups.
        clusters: a reader for every aggregate cluster.
        primaries: decisions about primaries.
        operations: what operators' commands did.
        status: what replicators and the sync job tell of themselves.
        now_ms: the clock by which moments are saved and compared: the store's.
        audit: where it is kept who decided and who moved.
        process: what this process is called there.
        cache: whether what was read of the index is remembered (`offsetsvc.index.memory`).
        writers: the aggregate clusters again, to set the offsets of groups that move; nothing of them is remembered.
        canary: makes the records of drills.
    """

    def __init__(
        self,
        config: Config,
        region: RegionName,
        index: MappingIndexReader,
        groups: GroupStore,
        clusters: Mapping[ClusterName, ClusterReader],
        primaries: PrimaryStore,
        operations: OperationJournal,
        status: StatusStore,
        *,
        now_ms: Callable[[], int],
        audit: AuditLog,
        process: str = "",
        cache: bool = True,
        writers: Mapping[ClusterName, ClusterWriter] | None = None,
        canary: MakesCanary = KafkaCanary,
    ) -> None:
        config.region(region)
        self.config = config
        self.region = region
        self.places = Places(config)
        self._behind = named_pool(REFRESHERS, REFRESH_POOL)
        self._index = IndexMemory(index, max_age_ms=MAX_AGE_MS if cache else 0, behind=self._behind)
        self._clusters = Clusters(clusters, probe_every_ms=_PROBE_EVERY_MS)
        self._executor = named_pool(READERS, READ_POOL)
        auditor = Auditor(audit, now_ms, process=process, region=region)
        self.moves = RecordedMoves(groups, auditor)
        self.failover = Failover(
            config, self._index, groups, self._clusters, self._executor, now_ms, self.moves
        )
        self.skips = SkipWatches(config, self._index, self._clusters)
        self.mapping = MappingLookups(config, self._index, self._clusters, self._executor, now_ms)
        self.chains = Chains(config, self.mapping)
        self.positions = GroupPositions(config, self._index, groups, self._clusters, now_ms, self.moves)
        self.primaries = Primaries(config, region, primaries, auditor, now_ms)
        self.audit = AuditReader(audit, now_ms)
        self.lags = LagHistories(self._clusters, now_ms)
        self.lists = GroupLists(groups, primaries, status, self._clusters, self.lags, self._executor, now_ms)
        self.lag_survey = LagSurvey(self._lag_places, self._clusters, writers or {})
        self.replication = ReplicationLists(config, status, now_ms)
        self.operations = Operations(operations, now_ms)
        moved = AggregateClusters(writers or {})

        def opened(client: MoveClient, whose: Principal) -> Outside:
            time = Timekeeper(now_ms)
            services, journal = OffsetServices(client, actor=whose.name), MoveJournal(operations, time)
            return Outside(services, moved, groups, journal, time, auditor, whose)

        time = Timekeeper(now_ms)
        journal = MoveJournal(operations, time)
        self.own_moves = OwnMoves(opened, journal, MoveDesk())
        self._verifier = Verifier(moved, groups, journal, time, index, config, primaries)
        self.own_drills = OwnDrills(config, opened, journal, self._verifier, canary)

    def _lag_places(self) -> Mapping[GroupName, ClusterName]:
        wanted = self.config.metrics.lag_groups
        return self.lists.places(lambda group: matches(wanted, group)) if wanted else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the reads under way end and start no more; moves and drills end before their next step."""
        self.own_drills.close()
        self.own_moves.close()
        self._clusters.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._behind.shutdown(wait=True, cancel_futures=True)

    def describe_regions(
        self, groups: Iterable[str], topics: Iterable[str], deadline: Deadline
    ) -> DescribeRegionsResponse:
        """Every region with its clusters and whether they answer (`regions.describe_regions`); which names are left out."""
        return DescribeRegionsResponse(
            regions=describe_regions(self.config, self._clusters, self._executor, deadline),
            answered_in=self.region,
            groups_left_out=[name for name in groups if not self.config.groups.chosen(name)],
            topics_left_out=[name for name in topics if not self.config.chosen_anywhere(name)],
        )

    def describe_configuration(self, prefix: str) -> DescribeConfigurationResponse:
        """Every setting whose key begins so, with secrets masked."""
        return DescribeConfigurationResponse(
            settings=[
                Setting(key=item.key, value=item.text, secret=item.secret, given=item.given)
                for item in settings_of(self.config)
                if item.key.startswith(prefix)
            ],
            answered_in=self.region,
        )

    def verify(self, request: VerifyGroupRequest, deadline: Deadline) -> GroupVerification:
        """Which records a group consumed once, twice or never over its last moves; raises as `Verifier.verify` does."""
        found = self._verifier.verify(
            GroupName(request.group),
            moves=max(1, request.moves),
            consumers=Consumers.AUTO,
            wait_ms=min(_VERIFY_WAITS_MS, deadline.remaining_ms / 2),
        )
        return verified_to_pb(found)

    def dependencies(self) -> list[str]:
        """What readiness looks at: the store, and the region's aggregate cluster if it has one."""
        own = self.config.region(self.region).aggregate is not None
        return [STORE, aggregate_cluster(self.region)] if own else [STORE]

    def missing(self) -> dict[str, str]:
        """Which of the dependencies do not answer, and why; empty when ready."""
        return {name: reason for name in self.dependencies() if (reason := self._ask(name)) is not None}

    def _ask(self, dependency: str) -> str | None:
        try:
            if dependency == STORE:
                for route in self.config.all_routes()[:1]:
                    self._index.topics(route)
            else:
                self._clusters.ask(ClusterName(dependency), lambda reader: reader.topics())
        except ParallaxError as error:  # a missing schema is as good as no store
            return str(error)
        return None
