"""Holds the routes together before a start: what would go round, come twice or collide, and what is not copied yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from parallax.config.config import Config
from parallax.domain.ids import ClusterName, Route, TopicName
from parallax.domain.route_graph import Edge, GraphFinding, GraphProblem, RouteGraph
from parallax.domain.topic_choice import INTERNAL_TOPICS, LeftOut, matches
from replicator.findings import Finding, Problem, Severity
from replicator.origin_rules import mixed_routes

_NAMED_TOPICS = 5
_WARNINGS = (GraphProblem.NO_TOPICS, GraphProblem.NAME_TOO_LONG)


def check_graph(
    config: Config, routes: Sequence[Route], topics: Mapping[ClusterName, Collection[TopicName]]
) -> Iterator[Finding]:
    """What concerns one of the routes, in the graph of all that are configured.

    Args:
        config: all configuration.
        routes: those that shall be replicated.
        topics: of each cluster that has answered.
    """
    edges = config.edges()
    seen = {config.one_kafka(cluster): names for cluster, names in topics.items()}
    for found in RouteGraph(edges, config.producing_clusters(), seen).findings():
        if set(found.routes) & set(routes):
            yield _finding(found)
    for edge in edges:
        if edge.route in routes:
            yield from not_replicated_yet(config, edge)
            yield from _left_out(edge, seen.get(edge.source, ()))


def not_replicated_yet(config: Config, edge: Edge) -> Iterator[Finding]:
    """What the configuration may say of a route, and the replicator can't do: it copies nothing rather than something else."""
    if mixed := mixed_routes(config, edge):
        shown = ", ".join(map(str, mixed))
        yield Finding(
            Severity.ERROR,
            Problem.NOT_REPLICATED_YET,
            str(edge.route),
            f"'copies' of the route is not obeyed by this version: {shown} brings records of these regions and of others together, "
            f"and they can't be told apart at {edge.source}",
            "name all regions whose records it brings, or none of them, or set 'copies: all'",
        )


def _finding(found: GraphFinding) -> Finding:
    return Finding(
        Severity.WARNING if found.problem in _WARNINGS else Severity.ERROR,
        Problem[found.problem.name],
        ", ".join(str(route) for route in found.routes),
        found.message,
        found.advice,
        found.topic,
    )


def _left_out(edge: Edge, topics: Collection[TopicName]) -> Iterator[Finding]:
    """Topics that the route's patterns choose, and a rule that outweighs them leaves out."""
    left_out: dict[LeftOut, list[TopicName]] = defaultdict(list)
    for name in sorted(topics):
        reason = edge.choice.left_out(name)
        if reason not in (None, LeftOut.EXCLUDED) and not matches(INTERNAL_TOPICS, name):
            left_out[reason].append(name)
    for reason, names in left_out.items():
        shown = ", ".join(names[:_NAMED_TOPICS]) + (", ..." if len(names) > _NAMED_TOPICS else "")
        why, advice = (
            (f"topics.residency keeps them out of region {edge.route.target}", "nothing has to be done")
            if reason is LeftOut.RESIDENCY
            else (
                "their names are those of topics that Kafka's tools keep for themselves",
                "if they are yours, spell their names out in topics.include, or set topics.builtin_excludes to false",
            )
        )
        yield Finding(
            Severity.NOTE,
            Problem.TOPICS_LEFT_OUT,
            str(edge.route),
            f"{len(names)} topics are not copied ({shown}): {why}",
            advice,
        )
