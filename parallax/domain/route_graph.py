"""What reaches where: routes as a graph of clusters, looked at before a byte moves.

A record is produced at one cluster, its *origin*, in a topic. Each route that chooses the topic, and the record, puts a copy
into its target cluster under the name that its naming gives; from there other routes may go on. The graph follows every
topic from every origin, and finds

A. **CYCLE**: a record that can come to a cluster where it has been;
B. **TWO_PATHS**: a record that can come to one topic by two ways, so that it lies there twice;
C. **NAMING_COLLISION**: topics of different names whose copies share one, or are refused because Kafka tells their names apart by
   ``.`` and ``_`` alone;
D. **NAME_TOO_LONG**: a copy's name that Kafka refuses;
E. **COPIES_NOTHING**: a route whose source has no records of the kind that it copies;
F. **NO_TOPICS**: a route that chooses none of the topics that its source has.

Without A a record has finitely many copies, without B at most one in each topic (`tests/properties/test_route_graph.py` plays
random graphs record by record).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from parallax.domain.ids import ClusterName, RegionName, Route, TopicName, region_of
from parallax.domain.topic_choice import LONGEST_NAME, LeftOut, TopicChoice, TopicNaming


class CopiesKind(Enum):
    """Which records of the source cluster a route copies."""

    ALL = "all"
    """Every record."""
    OWN = "own"
    """Those produced there: what any route has put into the source cluster is left out."""
    REGIONS = "regions"
    """Those produced in certain regions."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Which records of its topics a route copies."""

    kind: CopiesKind = CopiesKind.ALL
    regions: frozenset[RegionName] = frozenset()

    def take(self, origin: ClusterName, source: ClusterName) -> bool:
        """Whether records produced at ``origin`` are copied when they lie at ``source``."""
        if self.kind is CopiesKind.REGIONS:
            return region_of(origin) in self.regions
        return self.kind is CopiesKind.ALL or origin == source


_SAME_NAME = TopicNaming()


@dataclass(frozen=True, slots=True)
class Edge:
    """One route in the graph."""

    route: Route
    source: ClusterName
    target: ClusterName
    choice: TopicChoice
    copies: Copies = Copies()
    naming: TopicNaming = _SAME_NAME

    def __str__(self) -> str:
        return str(self.route)


class GraphProblem(Enum):
    """What is wrong with a graph; the letters are those of the module."""

    CYCLE = "CYCLE"
    TWO_PATHS = "TWO_PATHS"
    NAMING_COLLISION = "NAMING_COLLISION"
    NAME_TOO_LONG = "NAME_TOO_LONG"
    COPIES_NOTHING = "COPIES_NOTHING"
    NO_TOPICS = "NO_TOPICS"


@dataclass(frozen=True, slots=True)
class GraphFinding:
    """One thing that is wrong.

    Attributes:
        routes: those that bring it about together.
        topic: the topic, as it is called at its origin; None: all that the routes copy.
    """

    problem: GraphProblem
    routes: tuple[Route, ...]
    topic: TopicName | None
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where a topic's records come to.

    Attributes:
        origin: the cluster at which they are produced.
        topic: their topic there.
        cluster: where they come to; the origin itself is one of these.
        name: the topic that they lie in there.
        path: the routes that they take, one of the ways if there are several.
    """

    origin: ClusterName
    topic: TopicName
    cluster: ClusterName
    name: TopicName
    path: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class Withheld:
    """A route that does not go on with a topic.

    Attributes:
        arrival: the records that it leaves where they are.
        reason: None: these records are not of the kind that it copies.
    """

    arrival: Arrival
    edge: Edge
    reason: LeftOut | None


class RouteGraph:
    """The routes, and the topics that are known at the clusters.

    Args:
        edges: one for each route.
        producing: the clusters at which records are produced.
        topics: the topics of each cluster, as far as they are known.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        producing: Collection[ClusterName],
        topics: Mapping[ClusterName, Collection[TopicName]],
    ) -> None:
        self._edges = tuple(edges)
        self._from: dict[ClusterName, list[Edge]] = defaultdict(list)
        for edge in edges:
            self._from[edge.source].append(edge)
        self._producing = tuple(dict.fromkeys(producing))
        self._topics = topics

    def findings(self) -> list[GraphFinding]:
        """Everything that is wrong, the gravest first; nothing is told twice for one topic and the same routes."""
        found: dict[tuple[GraphProblem, tuple[Route, ...], TopicName | None], GraphFinding] = {}
        produced = {(origin, name) for origin in self._producing for name in self._produced(origin)}
        possible = [name for edge in self._edges for name in edge.choice.examples()]
        expected = {(origin, name) for origin in self._producing for name in possible}
        flows = []
        for origin, name in sorted(produced | expected):
            flow = _Flow(self._from, origin, name)
            flows += [flow] if (origin, name) in produced else []
            for item in flow.findings:
                found.setdefault((item.problem, item.routes, item.topic), item)
        for item in (*self._collisions(flows), *self._idle()):
            found.setdefault((item.problem, item.routes, item.topic), item)
        order = list(GraphProblem)
        return sorted(found.values(), key=lambda item: order.index(item.problem))

    def arrivals(self, topics: Collection[TopicName] | None = None) -> list[Arrival]:
        """Where the records of topics come to, from each cluster that has one of that name.

        Args:
            topics: names at the origins; None: all that are known.
        """
        return [
            arrival
            for origin in self._producing
            for name in sorted(self._produced(origin) if topics is None else topics)
            if name in self._topics.get(origin, ())
            for arrival in _Flow(self._from, origin, name).arrivals.values()
        ]

    def withheld(self, arrivals: Collection[Arrival]) -> Iterator[Withheld]:
        """The routes that leave records where they have come to, and why."""
        for arrival in arrivals:
            for edge in self._from[arrival.cluster]:
                reason = _left_out(edge, arrival.topic, arrival.name)
                if reason is not None or not edge.copies.take(arrival.origin, edge.source):
                    yield Withheld(arrival, edge, reason)

    def _produced(self, origin: ClusterName) -> set[TopicName]:
        """The topics whose records are produced at a cluster: what it has, without what routes have put there by other names."""
        copies = {
            edge.naming.of(name, edge.route.source)
            for edge in self._edges
            if edge.target == origin and not edge.naming.keeps
            for name in self._topics.get(edge.source, ())
            if edge.choice.chosen(name)
        }
        return {name for name in self._topics.get(origin, ()) if name not in copies}

    def _collisions(self, flows: Sequence[_Flow]) -> Iterator[GraphFinding]:
        places: dict[tuple[ClusterName, str], dict[tuple[TopicName, TopicName], Arrival]] = defaultdict(dict)
        for flow in flows:
            for (cluster, name), arrival in flow.arrivals.items():
                there = places[cluster, name.replace(".", "_")]
                known = there.get((arrival.name, arrival.topic))
                if known is None or not known.path:
                    there[arrival.name, arrival.topic] = arrival
        for (cluster, _), arrivals in sorted(places.items()):
            if len(arrivals) < 2 or not any(arrival.path for arrival in arrivals.values()):  # noqa: PLR2004 - two meet
                continue
            names = sorted({arrival.name for arrival in arrivals.values()})
            routes = sorted({arrival.path[-1].route for arrival in arrivals.values() if arrival.path})
            of = ", ".join(
                f"{item.topic!r} of {item.origin}" for _, item in sorted(arrivals.items(), key=lambda x: x[0])
            )
            what = (
                f"would share the topic {names[0]!r} on {cluster}"
                if len(names) == 1
                else f"would be {', '.join(map(repr, names))} on {cluster}, and Kafka refuses a topic whose name differs from "
                "another's by '.' and '_' alone"
            )
            yield GraphFinding(
                GraphProblem.NAMING_COLLISION,
                tuple(routes),
                min(arrival.topic for arrival in arrivals.values()),
                f"{of} {what}",
                "leave all but one of them out, or give a route another 'naming'",
            )

    def _idle(self) -> Iterator[GraphFinding]:
        for edge in self._edges:
            if edge.copies.kind is CopiesKind.OWN and edge.source not in self._producing:
                yield GraphFinding(
                    GraphProblem.COPIES_NOTHING,
                    (edge.route,),
                    None,
                    f"nothing is produced at {edge.source}: all its records are copies, and the route copies no copies",
                    "set 'copies: all', or name the regions whose records it shall copy",
                )
            there = self._topics.get(edge.source)
            if there is not None and not any(edge.choice.chosen(name) for name in there):
                yield GraphFinding(
                    GraphProblem.NO_TOPICS,
                    (edge.route,),
                    None,
                    f"it chooses none of the {len(there)} topics that {edge.source} has now",
                    "see 'parallax topics where', and correct 'include' and 'exclude' unless topics are yet to come",
                )


class _Flow:
    """The ways of one topic's records from one origin, each cluster and name once.

    ``_passed`` has for each of these the clusters that a record may have passed on its way there, each with such a way. One
    that comes back to a cluster is not followed, so this ends; whatever is not followed has been told.
    """

    def __init__(
        self, edges: Mapping[ClusterName, Sequence[Edge]], origin: ClusterName, topic: TopicName
    ) -> None:
        self._origin, self._topic = origin, topic
        self.findings: list[GraphFinding] = []
        start = Arrival(origin, topic, origin, topic, ())
        self.arrivals: dict[tuple[ClusterName, TopicName], Arrival] = {(origin, topic): start}
        self._passed: dict[tuple[ClusterName, TopicName], dict[ClusterName, tuple[Edge, ...]]] = {
            (origin, topic): {origin: ()}
        }
        self._last: dict[tuple[ClusterName, TopicName], set[tuple[Route, TopicName]]] = defaultdict(set)
        waiting = deque([start])
        while waiting:
            at = waiting.popleft()
            here = at.cluster, at.name
            for edge in edges.get(at.cluster, ()):
                if not edge.copies.take(origin, edge.source) or _left_out(edge, topic, at.name) is not None:
                    continue
                name = edge.naming.of(at.name, edge.route.source)
                place, path = (edge.target, name), (*at.path, edge)
                way_back = self._passed[here].get(edge.target)
                if way_back is not None:
                    self._tell(GraphProblem.CYCLE, (*way_back, edge))
                    continue
                if len(name) > LONGEST_NAME:
                    self._tell(GraphProblem.NAME_TOO_LONG, path, name)
                    continue
                known = self.arrivals.setdefault(place, Arrival(origin, topic, edge.target, name, path))
                self._last[place].add((edge.route, at.name))
                if len(self._last[place]) > 1:
                    self._tell(GraphProblem.TWO_PATHS, (known.path[-1], edge), name)
                ways = {cluster: (*way, edge) for cluster, way in self._passed[here].items()}
                passed = self._passed.setdefault(place, {edge.target: path})
                if not ways.keys() <= passed.keys():
                    self._passed[place] = ways | passed
                    waiting.append(known)

    def _tell(self, problem: GraphProblem, path: Sequence[Edge], name: str = "") -> None:
        what = f"records of {self._topic!r} of {self._origin}"
        routes = tuple(edge.route for edge in path)
        shown = ", ".join(str(route) for route in routes)
        target = path[-1].target
        if problem is GraphProblem.CYCLE:
            message = f"{what} would come back to {target}, where they have been, by {shown}"
            advice = "leave one of these routes out, narrow its topics, or set 'copies: own' for each of them"
        elif problem is GraphProblem.TWO_PATHS:
            message = f"{what} would come to {name!r} on {target} by two ways, whose last routes are {shown}"
            advice = "leave one of these routes out, narrow its topics, or set its 'copies'"
        else:
            message = f"{what} would be called {name!r} on {target}: {len(name)} characters, and Kafka takes {LONGEST_NAME}"
            advice = "leave the topic out, or give the route another 'naming'"
        self.findings.append(GraphFinding(problem, routes, self._topic, message, advice))


def _left_out(edge: Edge, topic: TopicName, name: TopicName) -> LeftOut | None:
    """Why a route leaves a topic out; residency goes by the name at the origin, too: no other name opens a way."""
    reason = edge.choice.left_out(name)
    return reason if reason is not None or edge.choice.admits(topic) else LeftOut.RESIDENCY
