"""What a local stack consists of: regions, brokers per cluster, services."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from lab.stack.errors import SpecError
from lab.stack.secure.authority import DEFAULT_LIFE_S
from lab.stack.secure.material import MECHANISM, Mechanism
from lab.stack.settings import BROKER_HEAP_MIB, CASSANDRA_HEAP_MIB, ClusterKind

_REGION_NAME = re.compile(r"[a-z][a-z0-9]{0,15}")
_MOST_BROKERS = 5

Mode = Literal["aggregation", "two-way", "active-standby"]
"""Shapes of docs/topologies.md that a stack can have, by the words of `parallax init --mode`."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One Kafka cluster; ``both_roles``: its region's producers write to it too."""

    kind: ClusterKind
    region: str
    brokers: int
    both_roles: bool = False

    @property
    def name(self) -> str:
        """`regional-a`, `aggregate-b`, ...; that of an aggregate cluster where it has both roles."""
        return f"{self.kind}-{self.region}"

    @property
    def names(self) -> tuple[str, ...]:
        """All names that it goes by."""
        return (self.name, f"regional-{self.region}") if self.both_roles else (self.name,)

    @property
    def section(self) -> str:
        """Where a region's configuration has it."""
        return "cluster" if self.both_roles else self.kind

    @property
    def broker_names(self) -> tuple[str, ...]:
        """Process names: the cluster's own where it has one broker, numbered from 1 where it has more."""
        if self.brokers == 1:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, self.brokers + 1))


@dataclass(frozen=True, slots=True)
class StackSpec:
    """A local stack.

    Attributes:
        regions: Region names, each with a regional and an aggregate cluster.
        mode: Or with one cluster each: producers write to all of them (`two-way`), or to the first region's alone, which is
            copied to the others (`active-standby`).
        brokers: Brokers of clusters that have more than one, by cluster name (`{"aggregate-a": 3}`).
        services: Run replicators, offset services and syncjob as well.
        consoles: With the services, run a web console for each region.
        store: Run Cassandra, which the services need; brokers alone start much sooner.
        schema_kept: What Cassandra knows of tables outlives a kill of its only node. Without, tables are made in half the time.
        cassandra_per_region: One Cassandra node and datacenter per region instead of one node for all.
        jvm: `quick` starts fast and stays small; `throughput` is for benches.
        broker_heap_mib: Heap of each broker.
        cassandra_heap_mib: Heap of each Cassandra node.
        heap_touched: The JVMs take all of their heap from the machine as they start, so that what grows later is not heap.
        far: Clusters that listen at a second address as well, advertised at another port than they listen on: whoever
            starts from that port reaches them only through what listens there (a delaying proxy of a bench).
        steerable: The services reach Kafka and Cassandra over links that can be cut or made slow, and their clocks and
            resolvers can be made wrong (`LocalStack.link`, `LocalStack.steer`).
        secure: Everybody shows who they are and may do what they need to, and nothing else; all connections are encrypted.
        tls: Brokers listen at another address as well, where they speak TLS with whoever trusts their authority (a bench
            compares the two).
        mechanism: How everybody proves to a secure stack's brokers who they are; they take all of these at once. With
            `OAUTHBEARER` offset services take tokens too, instead of certificates.
        certificate_life_s: Of a secure stack's certificates, in seconds.
        config: Settings merged over the generated configuration of the services (nested mappings).
    """

    regions: tuple[str, ...] = ("a", "b")
    mode: Mode = "aggregation"
    brokers: Mapping[str, int] = field(default_factory=dict)
    services: bool = True
    consoles: bool = False
    store: bool = True
    schema_kept: bool = True
    cassandra_per_region: bool = False
    jvm: Literal["quick", "throughput"] = "quick"
    broker_heap_mib: int = BROKER_HEAP_MIB
    cassandra_heap_mib: int = CASSANDRA_HEAP_MIB
    heap_touched: bool = False
    far: tuple[str, ...] = ()
    steerable: bool = False
    secure: bool = False
    tls: bool = False
    mechanism: Mechanism = MECHANISM
    certificate_life_s: float = DEFAULT_LIFE_S
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the description makes sense.

        Raises:
            SpecError: It does not; the message names the field.
        """
        if not self.regions or len(set(self.regions)) != len(self.regions):
            raise SpecError(f"regions must be one or more different names, not {list(self.regions)}.")
        for region in self.regions:
            if not _REGION_NAME.fullmatch(region):
                raise SpecError(
                    f"regions: {region!r} must be a lower-case letter and up to 15 letters or digits."
                )
        if self.mode not in get_args(Mode):
            raise SpecError(f"mode: there is no {self.mode!r}; there are {', '.join(get_args(Mode))}.")
        if self.mode != "aggregation" and self.secure:
            raise SpecError(f"mode: a secure stack knows rights for aggregation alone, not for {self.mode}.")
        if self.services and not self.store:
            raise SpecError("store: the services need it; without it set services to false as well.")
        if self.tls and self.secure:
            raise SpecError("tls: the brokers of a secure stack speak nothing else anyway.")
        self._check_clusters()

    def _check_clusters(self) -> None:
        clusters = [cluster.name for cluster in self.clusters]
        for cluster, count in self.brokers.items():
            if cluster not in clusters:
                raise SpecError(f"brokers: there is no cluster {cluster!r}; there are {', '.join(clusters)}.")
            if not 1 <= count <= _MOST_BROKERS:
                raise SpecError(f"brokers: {cluster} can have 1 to {_MOST_BROKERS} brokers, not {count}.")
        for cluster in self.far:
            if cluster not in clusters:
                raise SpecError(f"far: there is no cluster {cluster!r}; there are {', '.join(clusters)}.")
        self._check_mechanism()

    def _check_mechanism(self) -> None:
        if self.mechanism not in get_args(Mechanism):
            known = ", ".join(get_args(Mechanism))
            raise SpecError(f"mechanism: there is no {self.mechanism!r}; there are {known}.")
        if self.mechanism != MECHANISM and not self.secure:
            raise SpecError(f"mechanism: only a secure stack's brokers ask for {self.mechanism}.")
        if self.mechanism == "mtls" and (self.far or self.steerable):
            raise SpecError(
                "mechanism: at the far listeners nobody can show a certificate: choose another one."
            )

    @property
    def clusters(self) -> tuple[ClusterSpec, ...]:
        """All Kafka clusters, region by region."""
        kinds = _KINDS if self.mode == "aggregation" else _KINDS[1:]
        return tuple(
            ClusterSpec(
                kind,
                region,
                self.brokers.get(f"{kind}-{region}", 1),
                both_roles=self.mode != "aggregation" and region in self.producing,
            )
            for region in self.regions
            for kind in kinds
        )

    @property
    def producing(self) -> tuple[str, ...]:
        """The regions where producers write."""
        return self.regions[:1] if self.mode == "active-standby" else self.regions

    @property
    def receiving(self) -> tuple[str, ...]:
        """The regions that routes lead to."""
        return self.regions[1:] if self.mode == "active-standby" else self.regions

    @property
    def routes(self) -> tuple[str, ...] | None:
        """Routes that the configuration names; None: it names none, and each regional cluster is copied to each aggregate."""
        if self.mode == "aggregation":
            return None
        return tuple(
            f"{source}->{target}" for source in self.producing for target in self.regions if source != target
        )

    @property
    def cassandra_nodes(self) -> Mapping[str, str]:
        """Datacenter by the process name of each Cassandra node; the first one is the seed."""
        if self.cassandra_per_region:
            return {f"cassandra-{region}": region for region in self.regions}
        return {"cassandra": "datacenter1"}

    def cassandra_node_of(self, region: str) -> str:
        """The process name of the Cassandra node that a region uses."""
        return f"cassandra-{region}" if self.cassandra_per_region else "cassandra"

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON values."""
        return asdict(self) | {"regions": list(self.regions), "far": list(self.far)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StackSpec:
        """The inverse of `to_json`."""
        tuples = {name: tuple(document.get(name, ())) for name in ("regions", "far")}
        return cls(**(dict(document) | tuples))


_KINDS: tuple[ClusterKind, ...] = ("regional", "aggregate")
