"""Which records a route copies, as its replicator tells them apart: by the routes that lead into its source cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parallax.config.config import Config
from parallax.domain.ids import ClusterName, RegionName, Route, region_of
from parallax.domain.route_graph import CopiesKind, Edge
from replicator.copying.origins import OriginRule


def origin_rule(config: Config, route: Route) -> OriginRule | None:
    """Which records the route copies; None: all that there are, or nobody has to look where they come from.

    A cluster that no route leads into may have been led into before: where it is one Kafka in both roles, old run logs are
    looked for.
    """
    edges = config.edges()
    edge = next(edge for edge in edges if edge.route == route)
    rule = _rule(config, edge, edges)
    if edge.copies.kind is CopiesKind.ALL:
        return None
    targets = map(config.one_kafka, config.aggregate_clusters())
    return rule if rule.looks_up or (edge.copies.kind is CopiesKind.OWN and edge.source in targets) else None


def mixed_routes(config: Config, edge: Edge) -> list[Route]:
    """Routes into the source of one that copies the records of some regions, which bring those and others together."""
    if edge.copies.kind is not CopiesKind.REGIONS:
        return []
    origins = _origins(config, config.edges())
    return [
        into.route
        for into in config.edges()
        if into.target == edge.source and origins[into.route] - edge.copies.regions
        if origins[into.route] & edge.copies.regions
    ]


def _rule(config: Config, edge: Edge, edges: Sequence[Edge]) -> OriginRule:
    incoming = [other for other in edges if other.target == edge.source]
    if edge.copies.kind is not CopiesKind.REGIONS:
        taken = edge.copies.kind is CopiesKind.ALL
        return OriginRule(own=True, incoming={other.route.source: taken for other in incoming})
    origins = _origins(config, edges)
    return OriginRule(
        own=region_of(edge.source) in edge.copies.regions,
        incoming={other.route.source: origins[other.route] <= edge.copies.regions for other in incoming},
    )


def _origins(config: Config, edges: Sequence[Edge]) -> Mapping[Route, frozenset[RegionName]]:
    """The regions whose records each route may bring, whatever the topic."""
    producing = {config.one_kafka(cluster) for cluster in config.producing_clusters()}
    found: dict[Route, frozenset[RegionName]] = {edge.route: frozenset() for edge in edges}
    for _ in edges:  # each round goes one route further
        found = {edge.route: _taken(edge, edges, found, producing) for edge in edges}
    return found


def _taken(
    edge: Edge,
    edges: Sequence[Edge],
    known: Mapping[Route, frozenset[RegionName]],
    producing: set[ClusterName],
) -> frozenset[RegionName]:
    own = frozenset({region_of(edge.source)} if edge.source in producing else ())
    if edge.copies.kind is CopiesKind.OWN:
        return own
    there = own.union(*(known[other.route] for other in edges if other.target == edge.source))
    return there & edge.copies.regions if edge.copies.kind is CopiesKind.REGIONS else there
