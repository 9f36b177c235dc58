"""What is remembered of lineages holds as long as nothing was read anew."""

from __future__ import annotations

from dataclasses import replace

from offsetsvc.index.memory import IndexMemory
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import LineageRecord, RouteTopic, StampedRow
from parallax.domain.lineages import lineages_that_count
from parallax.domain.runs import Run
from tests.memory.index import MemoryMappingIndex

TOPIC = TopicName("trips")
CLUSTER = ClusterName("aggregate-b")
ROUTES = [Route(RegionName(source), RegionName("b")) for source in "ac"]
OLD, NEW = TopicId("old"), TopicId("new")


def read(route: Route, target_id: TopicId, end: int = 5) -> RouteTopic:
    """What the index holds of one partition of a route."""
    lineage = Lineage(TopicId(f"source-{route.source}"), target_id)
    partition = RoutePartition(route, TopicPartition(TOPIC, 0))
    record = LineageRecord(partition, lineage, 0, SourceOffset(0), TargetOffset(0), None, 1)
    row = Run(SourceOffset(0), TargetOffset(0), end, SourceOffset(0), 0)
    return RouteTopic([record], {(0, lineage): StampedRow(row, 1_000)})


def test_the_same_reads_give_the_same_lineages_and_new_ones_new_ones() -> None:
    memory = IndexMemory(MemoryMappingIndex())
    found = {route: read(route, OLD) for route in ROUTES}
    first = memory.counting_lineages(CLUSTER, TOPIC, found, OLD)
    assert first == lineages_that_count(found, OLD)
    assert len(first.of(0)) == len(ROUTES)
    assert memory.counting_lineages(CLUSTER, TOPIC, dict(found), OLD) is first

    grown = {**found, ROUTES[0]: replace(found[ROUTES[0]], newest=read(ROUTES[0], OLD, 9).newest)}
    assert memory.counting_lineages(CLUSTER, TOPIC, grown, OLD) == lineages_that_count(grown, OLD) != first
    renewed = {**found, ROUTES[1]: replace(found[ROUTES[1]], records=[])}
    assert (
        memory.counting_lineages(CLUSTER, TOPIC, renewed, OLD) == lineages_that_count(renewed, OLD) != first
    )


def test_an_incarnation_a_route_less_or_another_cluster_is_another_question() -> None:
    memory = IndexMemory(MemoryMappingIndex())
    found = {route: read(route, OLD) for route in ROUTES}
    first = memory.counting_lineages(CLUSTER, TOPIC, found, OLD)
    assert memory.counting_lineages(CLUSTER, TOPIC, found, NEW).of(0) == ()
    fewer = {ROUTES[0]: found[ROUTES[0]]}
    assert memory.counting_lineages(CLUSTER, TOPIC, fewer, OLD) == lineages_that_count(fewer, OLD) != first
    other = {route: read(route, NEW) for route in ROUTES}
    assert memory.counting_lineages(ClusterName("aggregate-a"), TOPIC, other, NEW) != first
    assert memory.counting_lineages(CLUSTER, TOPIC, found, OLD) == first
