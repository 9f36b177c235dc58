"""Random graphs of routes, played record by record, and what the graph says of them before a byte moves.

The model knows nothing of paths: clusters hold records, each route copies what it would copy, round after round, and each
record keeps a list of the clusters where it was.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from parallax.domain import route_graph
from parallax.domain.ids import ClusterName, RegionName, Route, TopicName, aggregate_cluster, regional_cluster
from parallax.domain.route_graph import Copies, CopiesKind, Edge, GraphProblem, RouteGraph
from parallax.domain.topic_choice import Patterns, Residency, TopicChoice, TopicNaming

GRAPHS = 10_000
NAMES = ("t", "u", "eu.t", "a.t", "a_t")
MUCH = 60


@dataclass(frozen=True)
class Copy:
    """A record as it lies somewhere: what it is, and where it was."""

    origin: ClusterName
    topic: TopicName
    name: TopicName
    visited: tuple[ClusterName, ...]
    ways: tuple[Route, ...] = ()


@dataclass
class Graph:
    edges: list[Edge]
    topics: dict[ClusterName, set[TopicName]]
    residency: tuple[Residency, ...]


@dataclass
class Played:
    problems: set[GraphProblem] = field(default_factory=set)
    places: set[tuple[ClusterName, TopicName, ClusterName, TopicName]] = field(default_factory=set)


def random_graph(seed: int) -> Graph:
    draw = random.Random(seed)
    regions = [RegionName(name) for name in ("a", "b", "c", "d")[: draw.randint(2, 4)]]
    topics = {regional_cluster(region): {TopicName(n) for n in draw.sample(NAMES, 3)} for region in regions}
    one_kafka = {region: draw.random() < 0.6 for region in regions}
    residency = (
        (Residency(r"eu\..*", frozenset(draw.sample(regions, draw.randint(1, len(regions))))),)
        if draw.random() < 0.3
        else ()
    )
    pairs = [(s, t) for s in regions for t in regions if s != t or not one_kafka[s]]
    edges = []
    for source, target in draw.sample(pairs, min(len(pairs), draw.randint(1, 5))):
        forwards = not one_kafka[source] and source != target and draw.random() < 0.4
        kind = draw.choice(list(CopiesKind))
        edges.append(
            Edge(
                Route(source, target),
                aggregate_cluster(source) if forwards else regional_cluster(source),
                regional_cluster(target) if one_kafka[target] else aggregate_cluster(target),
                TopicChoice(
                    target,
                    own=Patterns(draw.choice([(".*",), (".*",), ("t",), ("t", r".*\.t")])),
                    residency=residency,
                ),
                Copies(
                    kind, frozenset(draw.sample(regions, 1)) if kind is CopiesKind.REGIONS else frozenset()
                ),
                TopicNaming(draw.choice(["${topic}", "${topic}", "${source}.${topic}"])),
            )
        )
    return Graph(edges, topics, residency)


def play(graph: Graph, produced: dict[ClusterName, set[TopicName]]) -> Played:
    """Copy until nothing is new, or a record came back."""
    lying: dict[ClusterName, list[Copy]] = {}
    for origin, names in produced.items():
        lying[origin] = [Copy(origin, name, name, (origin,)) for name in sorted(names)]
    played, done = Played(), set()
    new = [(cluster, copy) for cluster, copies in lying.items() for copy in copies]
    while new and len(done) < MUCH:
        following = []
        for cluster, copy in new:
            for edge in graph.edges:
                if edge.source != cluster or not _copied(graph, edge, copy):
                    continue
                name = (
                    copy.name
                    if edge.naming.template == "${topic}"
                    else TopicName(f"{edge.route.source}.{copy.name}")
                )
                arrived = Copy(
                    copy.origin, copy.topic, name, (*copy.visited, edge.target), (*copy.ways, edge.route)
                )
                if edge.target in copy.visited:
                    played.problems.add(GraphProblem.CYCLE)
                    continue
                lying.setdefault(edge.target, []).append(arrived)
                done.add((edge.target, arrived))
                following.append((edge.target, arrived))
        new = following
    for cluster, copies in lying.items():
        _judge(cluster, copies, played)
    return played


def _judge(cluster: ClusterName, copies: list[Copy], played: Played) -> None:
    """What lies on one cluster in the end."""
    seen = Counter((copy.origin, copy.topic, copy.name) for copy in copies)
    if max(seen.values(), default=0) > 1:
        played.problems.add(GraphProblem.TWO_PATHS)
    shared: dict[str, set[tuple[TopicName, TopicName]]] = {}
    moved = set()
    for copy in copies:
        played.places.add((copy.origin, copy.topic, cluster, copy.name))
        shared.setdefault(copy.name.replace(".", "_"), set()).add((copy.name, copy.topic))
        if copy.ways:
            moved.add(copy.name.replace(".", "_"))
    if any(len(of) > 1 and name in moved for name, of in shared.items()):
        played.problems.add(GraphProblem.NAMING_COLLISION)


def _copied(graph: Graph, edge: Edge, copy: Copy) -> bool:
    """Whether the route copies it, told from the route's settings once more."""
    own, target = edge.choice.own.include, edge.route.target
    fits = ".*" in own or copy.name == "t" or (r".*\.t" in own and copy.name.endswith(".t"))
    stays = any(
        target not in rule.regions
        for rule in graph.residency
        for name in (copy.name, copy.topic)
        if name.startswith("eu.")
    )
    if edge.copies.kind is CopiesKind.OWN:
        taken = copy.origin == edge.source
    elif edge.copies.kind is CopiesKind.REGIONS:
        taken = copy.origin.partition("-")[2] in edge.copies.regions
    else:
        taken = True
    return fits and taken and not stays


def _promised(edge: Edge) -> set[str]:
    """A name that the route copies whenever a topic is called so."""
    return {"any-topic"} if ".*" in edge.choice.own.include else {"t"}


def differences(seed: int) -> str:
    """What the graph says otherwise than the model; empty if nothing."""
    graph = random_graph(seed)
    found = RouteGraph(graph.edges, graph.topics, graph.topics)
    told = {item.problem for item in found.findings()}
    own = {origin: found._produced(origin) for origin in graph.topics}
    played = play(graph, own)
    examples = {TopicName(name) for edge in graph.edges for name in _promised(edge)}
    wide = play(graph, {origin: own[origin] | examples for origin in graph.topics})
    moving = {GraphProblem.CYCLE, GraphProblem.TWO_PATHS}
    expected = (wide.problems & moving) | (played.problems - moving)
    if GraphProblem.CYCLE in expected | told:  # what goes round is not followed to all its ends
        expected, told = expected & {GraphProblem.CYCLE}, told & {GraphProblem.CYCLE}
    told -= {GraphProblem.COPIES_NOTHING, GraphProblem.NO_TOPICS}
    if told != expected:
        return f"seed {seed}: told {told}, played {expected}: {graph.edges}"
    if told:
        return ""
    places = {
        (item.origin, item.topic, item.cluster, item.name)
        for item in found.arrivals()
        if item.topic in own[item.origin]
    }
    return "" if places == played.places else f"seed {seed}: {places ^ played.places}: {graph.edges}"


def first_difference(seeds: range) -> str:
    return next((text for seed in seeds if (text := differences(seed))), "")


def test_a_graph_is_refused_exactly_if_a_record_would_come_back_or_twice() -> None:
    assert first_difference(range(GRAPHS)) == ""


def test_the_random_graphs_have_every_problem_and_none() -> None:
    found = Counter()
    for seed in range(300):
        graph = random_graph(seed)
        told = {item.problem for item in RouteGraph(graph.edges, graph.topics, graph.topics).findings()}
        found.update(told or {None})
    wanted = set(GraphProblem) - {GraphProblem.NAME_TOO_LONG, GraphProblem.NO_TOPICS}
    assert all(found[problem] >= 5 for problem in (*wanted, None)), found


def _all_for_own(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Copies.take
    monkeypatch.setattr(
        Copies,
        "take",
        lambda self, origin, source: self.kind is CopiesKind.OWN or right(self, origin, source),
    )


def _own_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Copies.take
    monkeypatch.setattr(
        Copies,
        "take",
        lambda self, origin, source: (
            right(self, origin, source) and (self.kind is not CopiesKind.ALL or origin == source)
        ),
    )


def _residency_by_the_present_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_graph, "_left_out", lambda edge, _topic, name: edge.choice.left_out(name))


def _no_residency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicChoice, "admits", lambda _self, _name: True)


def _names_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicNaming, "of", lambda _self, topic, _source: topic)


def _topics_seen_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicChoice, "examples", lambda _self: iter(()))


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    _all_for_own,
    _own_for_all,
    _residency_by_the_present_name,
    _no_residency,
    _names_kept,
    _topics_seen_alone,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_die(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert first_difference(range(GRAPHS))
