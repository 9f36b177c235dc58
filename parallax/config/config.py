"""Configuration: one YAML file (environment variables may override), checked whole before anything starts.

Keys carry their units. A key that does not exist is an error that names the line and the nearest valid key.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from parallax.config.auth import Auth, ClientSettings
from parallax.config.console import ConsoleSettings
from parallax.config.environment import override
from parallax.config.mirror_maker_export import MirrorMakerExport
from parallax.config.mistakes import describe, wrong_sections, yaml_mistake
from parallax.config.pace import PACES, PaceName, Rests
from parallax.config.secret import Secret, check_given_once, note_origins, read_secret
from parallax.config.security import Security, StoreTls
from parallax.config.topics import Names, RouteSettings, Topics, plain_route
from parallax.config.values import Address, Addresses, Pattern, RegionKey, Section
from parallax.domain.ids import (
    ClusterName,
    RegionName,
    Route,
    TopicName,
    aggregate_cluster,
    is_aggregate,
    region_of,
    regional_cluster,
)
from parallax.domain.route_graph import CopiesKind, Edge
from parallax.domain.topic_choice import RouteTopics, TopicChoice, TopicNaming
from parallax.errors import ConfigError, UnknownRegionError, UnknownRouteError


class Cluster(Section):
    """One Kafka cluster."""

    bootstrap_servers: Addresses
    security: Security = Security()
    replication_factor: Annotated[int, Field(ge=1)] | None = None
    """For topics that Parallax creates there; None takes the broker's default."""
    socket_send_buffer_bytes: Annotated[int, Field(ge=16_384)] | None = None
    """Of each connection; None leaves it to the operating system, which lets it grow."""
    socket_receive_buffer_bytes: Annotated[int, Field(ge=16_384)] | None = None
    """The same for what is received."""
    client_rack: Annotated[str, Field(min_length=1)] | None = None
    """The ``broker.rack`` that is nearest to the replicator: where the cluster's brokers name nearer replicas, records are read
    from those; None: from leaders."""


class ServiceAddresses(Section):
    """Where a region's offset service listens and is found."""

    grpc: Address = "127.0.0.1:7600"
    """host:port."""
    rest: Address = "127.0.0.1:7601"
    """host:port."""


class Region(Section):
    """A region: either cluster may be missing."""

    regional: Cluster | None = None
    aggregate: Cluster | None = None
    offsetsvc: ServiceAddresses | None = None
    cluster: Cluster | None = None  # after the others: secrets are read where this one has them
    """One Kafka in both roles; ``regional`` and ``aggregate`` are it then."""

    @model_validator(mode="after")
    def _has_a_cluster(self) -> Region:
        if self.cluster is not None:
            if any(other not in (None, self.cluster) for other in (self.regional, self.aggregate)):
                raise ValueError("'cluster' is one Kafka in both roles: leave 'regional' and 'aggregate' out")
            object.__setattr__(self, "regional", self.cluster)
            object.__setattr__(self, "aggregate", self.cluster)
        if self.regional is None and self.aggregate is None:
            raise ValueError(
                "a region needs a 'regional' or an 'aggregate' cluster, or both, or one 'cluster' in both roles"
            )
        return self


class Groups(Names):
    """Which consumer groups are looked after, and for how long."""

    forget_after_days: Annotated[int, Field(ge=1, le=3_650)] = 7
    """A group without a commit in any cluster for so long is forgotten: one that comes back later is a new group."""


class Cassandra(Section):
    """The store."""

    contact_points: tuple[str, ...]
    """Each host:port, or a host with port 9042."""
    keyspace: str = "parallax"
    local_datacenter: str = "datacenter1"
    replication: Mapping[str, int] = Field(default_factory=lambda: {"datacenter1": 1})
    """Datacenter name to number of copies (NetworkTopologyStrategy)."""
    username: str | None = None
    password: Secret | None = None
    password_file: str | None = None
    tls: StoreTls | None = None
    """None: plain text."""
    request_timeout_ms: Annotated[int, Field(ge=100)] = 5_000

    @model_validator(mode="after")
    def _has_a_password(self) -> Cassandra:
        check_given_once(self)
        if self.username is not None and self.password is None and self.password_file is None:
            raise ValueError("a username needs a password_file (or password)")
        return self

    def secret(self) -> str | None:
        """The password, as it is now.

        Raises:
            ConfigError: its file can't be read.
        """
        return read_secret(self.password, self.password_file, "cassandra.password")


class Index(Section):
    """How the mapping is kept in the store (docs/decisions/0018-blocks.md)."""

    interval_ms: Annotated[int, Field(ge=10)] = 200
    """Between two turns: all runs of a lease since the last one share a row."""
    fine_retention_s: Annotated[int, Field(ge=3_600)] = 86_400
    coarse_retention_s: Annotated[int, Field(ge=3_600)] = 14 * 86_400
    """At least the retention of the longest replicated topic."""
    memory_mib: Annotated[int, Field(ge=1)] = 256
    """What a process that answers, or publishes, may remember of blocks, and as much again of their keys."""


class StatusTls(Section):
    """TLS of a status server, and of the reports that leases send it; paths of PEM files."""

    certificate_chain: str
    """It names the address by which executors reach the server."""
    private_key: str
    ca: str
    """Executors report to a server alone whose certificate this authority signs; the file is there too, at the same path."""


class Replicator(Section):
    """Replication into one region's aggregate cluster."""

    shards_per_route: Annotated[int, Field(ge=1, le=1_000)] = 1
    lease_epoch_s: Annotated[int, Field(ge=5)] = 600
    copy_path: Literal["batch", "record"] = "batch"
    """``batch`` passes whole batches on and opens only those that can't pass; ``record`` passes on record by record
    (docs/decisions/0007-copy-paths.md)."""
    fetch_ahead_max_bytes: Annotated[int, Field(ge=1_048_576)] = 64 * 1024 * 1024
    """What one lease holds of the source, fetched and not yet sent, whatever the backlog; a single larger batch
    still passes."""
    pace: PaceName = "latency"
    """What is worth more: that a record is soon there, or what brokers and copier work for it (docs/decisions/0012-pace.md)."""
    commit_min_interval_ms: Annotated[int, Field(ge=1)] | None = None
    """After a commit the next one waits so long at least, unless a bound below is reached; None: as the pace says."""
    commit_max_interval_ms: Annotated[int, Field(ge=5)] = 100
    commit_max_bytes: Annotated[int, Field(ge=65_536)] = 16 * 1024 * 1024
    watermark_interval_ms: Annotated[int, Field(ge=100)] = 1_000
    snapshot_interval_ms: Annotated[int, Field(ge=1_000)] = 10_000
    snapshot_interval_records: Annotated[int, Field(ge=10)] = 1_000
    discovery_interval_ms: Annotated[int, Field(ge=500)] = 5_000
    transaction_timeout_ms: Annotated[int, Field(ge=5_000)] = 15_000
    run_log_retention_ms: Annotated[int, Field(ge=3_600_000)] = 14 * 86_400_000
    run_log_topic_prefix: str = "parallax.runs"
    """The run log of the route a->b is the topic ``<prefix>.a`` on b's aggregate cluster."""
    status_address: Address = "127.0.0.1:7610"
    """host:port of /metrics, /livez, /readyz and of the progress that leases report."""
    status_tls: StatusTls | None = None
    """For all of these; None: plain text."""
    spark_master: str | None = None
    """None: ``local[leases+2, 8]``."""
    spark_secret: Secret | None = None
    """What the parts of a Spark cluster prove to each other that they belong together; every ``spark://`` master needs it."""
    spark_secret_file: str | None = None
    spark_insecure: bool = False
    """Use a Spark cluster in plain text, where nobody proves anything."""
    checkpoint_directory: str | None = None
    """Spark's own bookkeeping; it holds no position and may be deleted. None: a temporary directory."""

    @model_validator(mode="after")
    def _one_secret(self) -> Replicator:
        check_given_once(self)
        return self

    @property
    def rests(self) -> Rests:
        """Of every lease."""
        pace = PACES[self.pace]
        least_ms = self.commit_min_interval_ms
        return pace if least_ms is None else replace(pace, between_commits_ms=least_ms)

    def secret_of_spark(self) -> str | None:
        """The secret, as it is now.

        Raises:
            ConfigError: its file can't be read.
        """
        return read_secret(self.spark_secret, self.spark_secret_file, "replicator.spark_secret")

    @field_validator("commit_max_interval_ms")
    @classmethod
    def _not_below_the_least(cls, longest_ms: int, info: ValidationInfo) -> int:
        least_ms, where = info.data.get("commit_min_interval_ms"), "replicator.commit_min_interval_ms"
        if least_ms is None and (pace := info.data.get("pace")) is not None:
            least_ms, where = PACES[pace].between_commits_ms, f"what replicator.pace {pace} rests"
        if least_ms is not None and longest_ms < least_ms:
            raise ValueError(f"{longest_ms} is below {where} ({least_ms:g})")
        return longest_ms


class Tls(Section):
    """Certificates of a server, as paths of PEM files."""

    certificate_chain: str
    private_key: str
    client_ca: str | None = None
    """Clients must show a certificate of this authority; None: they need none."""


class Service(Section):
    """Answers."""

    tls: Tls | None = None
    """For gRPC and REST; None: plain text."""
    auth: Auth = Auth()
    """Who may call (`parallax.config.auth`)."""
    stale_after_ms: Annotated[int, Field(ge=100)] = 10_000
    """A source whose newest row is older makes the outcome STALE."""
    by_timestamp_margin_ms: Annotated[int, Field(ge=0)] = 600_000
    """Where a caller asks for record timestamps: how much older than the group's position an unconsumed record may be.
    It must cover what clocks differ by and how far any route into the group's cluster was behind."""
    cluster_timeout_ms: Annotated[int, Field(ge=100)] = 3_000
    deadline_ms: Annotated[int, Field(ge=100)] = 10_000
    """For calls that bring none of their own."""
    max_skip_ranges: Annotated[int, Field(ge=1)] = 10_000
    """Per partition and answer; beyond it the answer is paged."""
    max_rows: Annotated[int, Field(ge=100)] = 50_000
    """Rows read for the skip ranges of one partition and answer."""
    max_concurrent_calls: Annotated[int, Field(ge=1)] = 32
    """Of each process."""
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """That answer gRPC on the same address; Python keeps no more than a core busy in each (docs/decisions/0031-processes.md)."""
    max_partitions_per_call: Annotated[int, Field(ge=1)] = 10_000

    @model_validator(mode="after")
    def _certificates_can_be_asked_for(self) -> Service:
        if self.auth.mode == "mtls" and (self.tls is None or self.tls.client_ca is None):
            raise ValueError(
                "service.auth 'mtls' goes by certificates of clients: set service.tls with a client_ca that signs them"
            )
        return self


class Sync(Section):
    """Publishing of resume offsets."""

    interval_ms: Annotated[int, Field(ge=100)] = 1_000
    """From one cycle to the next; the job is ready while its last good cycle is younger than ten of these, or than 30 s."""
    no_commit: Literal["earliest", "latest"] = "earliest"
    """Where a group starts on a partition on which it never committed."""
    on_rewind: Literal["propagate", "refuse"] = "propagate"
    """What a rewind on the active side does to the passive one."""
    rewind_confirm_ms: Annotated[int, Field(ge=0)] = 10_000
    """So long a commit has to be seen as gone, or as gone back, before anything is forgotten, or published lower, for it: longer than a
    broker that has just started may answer from a group state that is only partly loaded."""
    republish_after_s: Annotated[int, Field(ge=60)] = 86_400
    """Unchanged offsets are written again after this time, so that they don't expire."""
    status_address: str = "127.0.0.1:7611"
    """Where `parallax sync` tells its state; with `parallax replicate --with-sync` the replicator's address does."""
    status_tls: StatusTls | None = None
    """Of that address; None: plain text."""


class DrillSettings(Section):
    """Practising failovers (docs/failover.md)."""

    topic: str = "parallax-drill"
    """Canary records are produced to it at the regional clusters; created there if it is missing."""
    group: str = "parallax-drill"
    records_per_s: Annotated[float, Field(gt=0, le=1_000)] = 20
    """In each region."""


class CanarySettings(Section):
    """Records that tell how long the way takes while nothing else is on it (docs/metrics.md)."""

    enabled: bool = False
    """Replicators write a record to each shard of their routes, and tell when its copy is late."""
    topic: str = "parallax-canary"
    """Written to at the sources that producers write to; created there if it is missing. Routes copy it as any topic."""
    interval_s: Annotated[float, Field(ge=1, le=3_600)] = 10
    """From one record to the next."""
    late_after_s: Annotated[float, Field(ge=5, le=86_400)] = 60
    """A route of which no record has arrived for so long is late; two intervals at least."""

    @field_validator("late_after_s")
    @classmethod
    def _later_than_the_next(cls, late_after_s: float, info: ValidationInfo) -> float:
        interval_s = info.data.get("interval_s")
        if interval_s is not None and late_after_s < 2 * interval_s:
            raise ValueError(f"{late_after_s:g} is below two intervals (canary.interval_s {interval_s:g})")
        return late_after_s


class AuditSettings(Section):
    """What is kept of who changed what (docs/security.md)."""

    retention_days: Annotated[int, Field(ge=1, le=3_650)] = 400
    """How long an entry is kept; Cassandra forgets it then."""


class MetricsSettings(Section):
    """How much of a process its /metrics shows (docs/metrics.md)."""

    partitions: Literal["all", "worst", "none"] = "worst"
    """Of which partitions, and in the offset service of which topics, a scrape has samples of their own; what is told by route
    counts all of them in any case."""
    worst: Annotated[int, Field(ge=1, le=10_000)] = 50
    """With ``worst``: how many of each route; those that are stopped come first, then those that lag most."""
    refresh_interval_s: Annotated[float, Field(ge=0.1, le=3_600)] = 15
    """How often the offset service reads the store for its gauges; a scrape reads nothing."""
    lag_groups: tuple[Pattern, ...] = ()
    """Groups of which the offset service tells by metrics what their lag says; none: of none."""
    old_names: bool = True
    """Show what was renamed under its old name too; goes with the next release."""

    @property
    def most_shown(self) -> int | None:
        """How many partitions of a route have samples of their own; None: all."""
        return {"all": None, "worst": self.worst, "none": 0}[self.partitions]


class Config(Section):
    """Everything that a Parallax process needs to know."""

    regions: Mapping[RegionKey, Region]
    cassandra: Cassandra
    routes: tuple[RouteSettings, ...] | None = None
    """None: from every regional to every aggregate cluster, but from none to itself."""
    topics: Topics = Topics()
    groups: Groups = Groups(exclude=(r"console-consumer-.*", r"parallax\..*"))
    index: Index = Index()
    replicator: Replicator = Replicator()
    service: Service = Service()
    client: ClientSettings = ClientSettings()
    sync: Sync = Sync()
    mm2_export: MirrorMakerExport = MirrorMakerExport()
    drill: DrillSettings = DrillSettings()
    canary: CanarySettings = CanarySettings()
    audit: AuditSettings = AuditSettings()
    metrics: MetricsSettings = MetricsSettings()
    console: ConsoleSettings = ConsoleSettings()

    @field_validator("routes")
    @classmethod
    def _routes_fit(
        cls, routes: tuple[RouteSettings, ...] | None, info: ValidationInfo
    ) -> tuple[RouteSettings, ...] | None:
        regions: Mapping[str, Region] | None = info.data.get("regions")
        if regions is None:  # they are wrong themselves, and reported
            return routes
        seen: set[Route] = set()
        for item in routes or ():
            route = item.parsed()
            source, target = regions.get(route.source), regions.get(route.target)
            if source is None or getattr(source, item.from_) is None:
                raise ValueError(f"route {item.route!r}: region {route.source!r} has no {item.from_} cluster")
            if target is None or target.aggregate is None:
                raise ValueError(f"route {item.route!r}: region {route.target!r} has no aggregate cluster")
            if route.source == route.target and (source.cluster is not None or item.from_ == "aggregate"):
                raise ValueError(f"route {item.route!r}: it leads from a cluster to itself")
            if route in seen:
                raise ValueError(
                    f"route {item.route!r} stands there twice: one entry may have all its topics"
                )
            seen.add(route)
            _regions_exist(regions, item.copied().regions, f"route {item.route!r}: copies")
        return routes

    @field_validator("topics")
    @classmethod
    def _residencies_fit(cls, topics: Topics, info: ValidationInfo) -> Topics:
        regions: Mapping[str, Region] | None = info.data.get("regions")
        for rule in () if regions is None else topics.residency:
            _regions_exist(regions or {}, rule.regions, f"residency of {rule.match!r}")
        for item in () if regions is None else topics.config_sync.overrides:
            _regions_exist(regions or {}, item.regions, f"config_sync.overrides of {item.match!r}")
        return topics

    @field_validator("mm2_export")
    @classmethod
    def _aliases_fit(cls, export: MirrorMakerExport, info: ValidationInfo) -> MirrorMakerExport:
        regions: Mapping[str, Region] | None = info.data.get("regions")
        if regions is None:
            return export
        _regions_exist(regions, list(export.alias), "alias")
        called: dict[str, str] = {}
        for region in regions:
            alias = export.alias_of(RegionName(region))
            if called.setdefault(alias, region) != region:
                raise ValueError(f"alias: {alias!r} stands for {called[alias]!r} and {region!r}")
            if "." in alias and (export.checkpoints or export.heartbeats):
                raise ValueError(
                    f"alias: region {region!r} needs one, for {alias!r} has a dot, at which MirrorMaker 2's clients divide names"
                )
        return export

    @model_validator(mode="after")
    def _nothing_is_undone_both_ways(self) -> Config:
        both_ways = {(edge.source, edge.target) for edge in self.edges()}
        kept = TopicName("t")
        same_names = {
            (edge.source, edge.target)
            for edge in self.edges()
            if edge.naming.of(kept, edge.route.source) == kept
        }
        for source, target in sorted(both_ways):
            if (target, source) not in both_ways:
                continue
            if self.topics.config_sync.on_drift == "revert":
                raise ValueError(
                    f"topics.config_sync.on_drift 'revert': routes lead both ways between {source} and {target}, and each "
                    "would undo what the other has brought: set it to 'keep'"
                )
            if self.topics.acl_sync.enabled and {(source, target), (target, source)} <= same_names:
                raise ValueError(
                    f"topics.acl_sync.enabled: routes with kept names lead both ways between {source} and {target}, and each would "
                    "bring back a rule that the other has taken away: set it to false"
                )
        return self

    def all_routes(self) -> tuple[Route, ...]:
        """Every route, listed or derived."""
        return tuple(item.parsed() for item in self.route_settings())

    def route_settings(self) -> tuple[RouteSettings, ...]:
        """The settings of every route, listed or derived."""
        if self.routes is not None:
            return self.routes
        return tuple(
            plain_route(f"{source}->{target}")
            for target, to in self.regions.items()
            if to.aggregate is not None
            for source, of in self.regions.items()
            if of.regional is not None and (source != target or of.cluster is None)
        )

    def settings_of(self, route: Route) -> RouteSettings:
        """The route's settings; those of a plain one if it is not configured."""
        found = (item for item in self.route_settings() if item.parsed() == route)
        return next(found, None) or plain_route(str(route))

    def topic_choice(self, route: Route) -> TopicChoice:
        """Which topics the route copies."""
        return TopicChoice(
            route.target,
            self.topics.patterns(),
            self.settings_of(route).topics.patterns(),
            builtin=self.topics.builtin_excludes,
            residency=self.topics.residencies(),
        )

    def route_topics(self, route: Route) -> RouteTopics:
        """Which topics the route copies, and what it calls them."""
        return RouteTopics(
            self.topic_choice(route), TopicNaming(self.settings_of(route).naming), route.source
        )

    def chosen_anywhere(self, name: str) -> bool:
        """Whether ``topics`` chooses the name, or a route calls a copy so."""
        return self.topics.chosen(name) or any(
            self.route_topics(item.parsed()).make(TopicName(name))
            for item in self.route_settings()
            if item.naming != TopicNaming().template
        )

    def source_cluster(self, route: Route) -> ClusterName:
        """The cluster that the route reads."""
        of = aggregate_cluster if self.settings_of(route).from_ == "aggregate" else regional_cluster
        return of(route.source)

    def one_kafka(self, cluster: ClusterName) -> ClusterName:
        """The same name for both roles of a region that has one Kafka for both."""
        region = self.regions.get(region_of(cluster))
        return cluster if region is None or region.cluster is None else regional_cluster(region_of(cluster))

    def edges(self) -> list[Edge]:
        """Every route, as the route graph has it."""
        return [
            Edge(
                route,
                self.one_kafka(self.source_cluster(route)),
                self.one_kafka(aggregate_cluster(route.target)),
                self.topic_choice(route),
                item.copied(),
                TopicNaming(item.naming),
            )
            for item in self.route_settings()
            for route in [item.parsed()]
        ]

    def edges_into(self, target: RegionName) -> list[Edge]:
        """Those of routes into a region."""
        return [edge for edge in self.edges() if edge.route.target == target]

    def producing_clusters(self) -> list[ClusterName]:
        """The clusters at which records are produced."""
        return [regional_cluster(RegionName(name)) for name, of in self.regions.items() if of.regional]

    def is_produced_at(self, cluster: ClusterName) -> bool:
        """Whether producers write to the cluster, too, beside the routes that lead into it."""
        return self.one_kafka(cluster) in self.producing_clusters()

    def route_from_log(self, origin: ClusterName, destination: ClusterName) -> Route | None:
        """The route that brings what is produced at one aggregate cluster to another one, under the same names; None: none does."""
        route = Route(region_of(origin), region_of(destination))
        settings = next((item for item in self.route_settings() if item.parsed() == route), None)
        if settings is None or settings.copied().kind is CopiesKind.REGIONS:
            return None
        if not TopicNaming(settings.naming).keeps:
            return None
        reads_it = self.one_kafka(self.source_cluster(route)) == self.one_kafka(origin)
        return route if reads_it else None

    def is_copied_from(self, cluster: ClusterName) -> bool:
        """Whether a route reads the aggregate cluster."""
        here = self.one_kafka(cluster)
        return any(self.one_kafka(self.source_cluster(route)) == here for route in self.all_routes())

    def routes_into(self, target: RegionName) -> tuple[Route, ...]:
        """The routes whose target is the region.

        Raises:
            UnknownRegionError: there is no such region.
            UnknownRouteError: nothing is replicated into it.
        """
        self.region(target)
        routes = tuple(route for route in self.all_routes() if route.target == target)
        if not routes:
            raise UnknownRouteError(f"no route leads to region {target!r}; routes: {self._route_list()}")
        return routes

    def region(self, name: RegionName) -> Region:
        """The region of that name.

        Raises:
            UnknownRegionError: there is none.
        """
        if name not in self.regions:
            raise UnknownRegionError(f"unknown region {name!r}; configured: {', '.join(self.regions)}")
        return self.regions[name]

    def cluster(self, name: ClusterName) -> Cluster:
        """The cluster of that name.

        Raises:
            InvalidNameError: the name is not of the form ``aggregate-<region>`` or ``regional-<region>``.
            UnknownRegionError: there is no such region, or it lacks the cluster.
        """
        region = self.region(region_of(name))
        found = region.aggregate if is_aggregate(name) else region.regional
        if found is None:
            raise UnknownRegionError(f"region {region_of(name)!r} has no cluster {name!r}")
        return found

    def clusters(self) -> list[ClusterName]:
        """Every cluster, regional ones first."""
        regional = [regional_cluster(RegionName(name)) for name, of in self.regions.items() if of.regional]
        return [*regional, *self.aggregate_clusters()]

    def aggregate_clusters(self) -> dict[ClusterName, Cluster]:
        """The clusters between which groups move, by name."""
        return {
            aggregate_cluster(RegionName(name)): region.aggregate
            for name, region in self.regions.items()
            if region.aggregate is not None
        }

    def offset_services(self) -> dict[RegionName, ServiceAddresses]:
        """The offset services by their region."""
        return {
            RegionName(name): region.offsetsvc
            for name, region in self.regions.items()
            if region.offsetsvc is not None
        }

    def _route_list(self) -> str:
        return ", ".join(str(route) for route in self.all_routes()) or "none"


def _regions_exist(regions: Mapping[str, Region], names: Collection[str], what: str) -> None:
    unknown = sorted(set(names) - regions.keys())
    if unknown:
        raise ValueError(f"{what}: unknown region {unknown[0]!r}; configured: {', '.join(regions)}")


def parse(values: Any) -> Config:
    """A configuration that a program has made.

    Raises:
        ConfigError: a key or a value is wrong; the message names it.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(describe(error, Path("(made)"), None, Config, {})) from None


def load(path: Path | str, environ: Mapping[str, str] | None = None) -> Config:
    """Read a configuration file.

    Args:
        path: the YAML file.
        environ: variables such as ``PARALLAX__SERVICE__STALE_AFTER_MS=5000`` override single keys
            (`parallax.config.environment`); None takes those of the process.

    Raises:
        ConfigError: the file can't be read, is not YAML, or has a key or value that is wrong; the message names
            the file and the line, or the environment variable, and the nearest valid key.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not text in UTF-8 (byte {error.start})") from None
    # None of these mistakes is a cause of what is raised: each would show what stands around it, passwords too.
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(yaml_mistake(error, path, text)) from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected keys such as 'regions' and 'cassandra' at the top")
    if wrong := wrong_sections(node, path):
        raise ConfigError("\n".join(wrong))
    origins = override(values, os.environ if environ is None else environ, Config)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(describe(error, path, node, Config, origins)) from None
    note_origins(config, path, origins)
    return config
