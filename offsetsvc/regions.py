"""What a client has to know of the regions so that it can move without asking anybody."""

from __future__ import annotations

from concurrent.futures import Executor

from offsetsvc.clusters import Clusters
from offsetsvc.parallel import Concurrently
from parallax.config.config import Cluster, Config
from parallax.domain.ids import ClusterName, RegionName, aggregate_cluster, regional_cluster
from parallax.errors import ParallaxError
from parallax.runtime.deadline import Deadline
from parallax.v1 import primaries_pb2 as pb


def describe_regions(
    config: Config, clusters: Clusters, executor: Executor, deadline: Deadline
) -> list[pb.RegionDescription]:
    """Every region, in the configuration's order, without secrets.

    Raises:
        DeadlineError: the deadline passed before the clusters answered.
    """
    names = [
        aggregate_cluster(RegionName(name)) for name, region in config.regions.items() if region.aggregate
    ]
    together = Concurrently(executor, deadline)
    answers = (
        together.map(lambda name: _problem(clusters, name), names, "asking the clusters") if names else []
    )
    problems = dict(zip(names, answers, strict=True))
    descriptions = []
    for text, region in config.regions.items():
        name = RegionName(text)
        description = pb.RegionDescription(region=name)
        if region.aggregate is not None:
            problem = problems[aggregate_cluster(name)]
            health = pb.AWAY if problem else pb.UP
            description.aggregate.CopyFrom(
                _cluster(aggregate_cluster(name), region.aggregate, health, problem)
            )
        if region.regional is not None:
            description.regional.CopyFrom(_cluster(regional_cluster(name), region.regional, pb.NOT_ASKED))
        if region.offsetsvc is not None:
            description.service_grpc = region.offsetsvc.grpc
            description.service_rest = region.offsetsvc.rest
        descriptions.append(description)
    return descriptions


def _problem(clusters: Clusters, cluster: ClusterName) -> str:
    """Why a cluster counts as away; empty otherwise."""
    try:
        clusters.ask(cluster, lambda reader: reader.topics())
    except ParallaxError as error:
        return str(error)
    return ""


def _cluster(
    cluster: ClusterName, settings: Cluster, health: pb.Health, problem: str = ""
) -> pb.ClusterDescription:
    security = settings.security
    return pb.ClusterDescription(
        cluster=cluster,
        bootstrap_servers=settings.bootstrap_servers,
        security_protocol=security.protocol,
        sasl_mechanism=security.sasl_mechanism,
        health=health,
        problem=problem,
    )
