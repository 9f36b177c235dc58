"""What a client has to know of the regions so that it can move without asking anybody."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum

from offsetsvc.clusters import Clusters
from offsetsvc.parallel import Concurrently
from parallax.config.config import Cluster, Config
from parallax.domain.ids import ClusterName, RegionName, aggregate_cluster, regional_cluster
from parallax.errors import ParallaxError
from parallax.runtime.deadline import Deadline


class Health(Enum):
    """Whether a cluster answers this service."""

    UP = 1
    AWAY = 2
    NOT_ASKED = 3


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """One cluster, without secrets.

    Attributes:
        protocol: Kafka's security protocol.
        problem: why it counts as away; empty otherwise.
    """

    cluster: ClusterName
    bootstrap_servers: str
    protocol: str
    sasl_mechanism: str | None
    health: Health
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RegionView:
    """One region; either cluster and the service may be missing."""

    region: RegionName
    aggregate: ClusterInfo | None
    regional: ClusterInfo | None
    service_grpc: str | None
    service_rest: str | None


def describe_regions(
    config: Config, clusters: Clusters, executor: Executor, deadline: Deadline
) -> list[RegionView]:
    """Every region, in the configuration's order.

    Raises:
        DeadlineError: the deadline passed before the clusters answered.
    """
    names = list(config.aggregate_clusters())
    together = Concurrently(executor, deadline)
    problems = dict(
        zip(
            names,
            together.map(lambda name: _problem(clusters, name), names, "asking the clusters")
            if names
            else [],
            strict=True,
        )
    )
    views = []
    for text, region in config.regions.items():
        name = RegionName(text)
        aggregate = regional = None
        if region.aggregate is not None:
            problem = problems[aggregate_cluster(name)]
            health = Health.AWAY if problem else Health.UP
            aggregate = _info(aggregate_cluster(name), region.aggregate, health, problem)
        if region.regional is not None:
            regional = _info(regional_cluster(name), region.regional, Health.NOT_ASKED)
        service = region.offsetsvc
        views.append(
            RegionView(
                name,
                aggregate,
                regional,
                None if service is None else service.grpc,
                None if service is None else service.rest,
            )
        )
    return views


def _problem(clusters: Clusters, cluster: ClusterName) -> str:
    try:
        clusters.ask(cluster, lambda reader: reader.topics())
    except ParallaxError as error:
        return str(error)
    return ""


def _info(cluster: ClusterName, settings: Cluster, health: Health, problem: str = "") -> ClusterInfo:
    security = settings.security
    return ClusterInfo(
        cluster, settings.bootstrap_servers, security.protocol, security.sasl_mechanism, health, problem
    )
