"""Descriptions of regions as messages."""

from __future__ import annotations

from collections.abc import Iterable

from offsetsvc.regions import ClusterInfo, Health, RegionView
from parallax.domain.ids import RegionName
from parallax.v1 import primaries_pb2 as pb

_HEALTH = {Health.UP: pb.UP, Health.AWAY: pb.AWAY, Health.NOT_ASKED: pb.NOT_ASKED}


def regions_to_pb(views: Iterable[RegionView], answered_in: RegionName) -> pb.DescribeRegionsResponse:
    """Every region."""
    return pb.DescribeRegionsResponse(
        regions=[
            pb.RegionDescription(
                region=view.region,
                aggregate=_cluster(view.aggregate),
                regional=_cluster(view.regional),
                service_grpc=view.service_grpc,
                service_rest=view.service_rest,
            )
            for view in views
        ],
        answered_in=answered_in,
    )


def _cluster(info: ClusterInfo | None) -> pb.ClusterDescription | None:
    if info is None:
        return None
    return pb.ClusterDescription(
        cluster=info.cluster,
        bootstrap_servers=info.bootstrap_servers,
        security_protocol=info.protocol,
        sasl_mechanism=info.sasl_mechanism,
        health=_HEALTH[info.health],
        problem=info.problem,
    )
