"""`parallax topics`: what is replicated, from where and to where."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.cli.options import ConfigOption, JsonOption
from parallax.cli.output import console, print_json, table
from parallax.cli.topic_settings import diff, sync
from parallax.config.config import Config, load
from parallax.domain.ids import ClusterName, TopicName, aggregate_cluster
from parallax.domain.route_graph import Arrival, GraphFinding, RouteGraph, Withheld
from parallax.domain.topic_choice import INTERNAL_TOPICS, LeftOut, matches
from parallax.errors import ParallaxError, UnknownTopicError

_TIMEOUT_MS = 5_000
_NOT_OF_ITS_KIND = "COPIES"

app = typer.Typer(
    help="What is replicated, from where and to where, and how settings differ.", no_args_is_help=True
)
app.command("diff")(diff)
app.command("sync")(sync)


@dataclass(frozen=True, slots=True)
class SeenCluster:
    """A cluster that has answered."""

    cluster_id: str
    topics: Collection[TopicName]


@dataclass(frozen=True, slots=True)
class Where:
    """What reaches where, and what is wrong with that."""

    arrivals: Sequence[Arrival]
    withheld: Sequence[Withheld]
    findings: Sequence[GraphFinding]
    one_kafka: Mapping[str, Sequence[ClusterName]]
    """Clusters that are one Kafka under several names, by its id."""
    failures: Mapping[ClusterName, str]
    """Clusters that did not answer, and why."""

    @property
    def sound(self) -> bool:
        """Whether every cluster has answered and nothing is wrong."""
        return not (self.findings or self.one_kafka or self.failures)

    def to_json(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {
            "ok": self.sound,
            "topics": [
                {
                    "topic": item.topic,
                    "origin": item.origin,
                    "cluster": item.cluster,
                    "name": item.name,
                    "routes": [str(edge) for edge in item.path],
                }
                for item in self.arrivals
                if item.path
            ],
            "left_out": [
                {
                    "topic": item.arrival.topic,
                    "origin": item.arrival.origin,
                    "cluster": item.arrival.cluster,
                    "name": item.arrival.name,
                    "route": str(item.edge),
                    "reason": _reason(item),
                }
                for item in self.withheld
            ],
            "problems": [
                {
                    "problem": item.problem.value,
                    "routes": [str(route) for route in item.routes],
                    "topic": item.topic,
                    "message": item.message,
                    "advice": item.advice,
                }
                for item in self.findings
            ]
            + [
                {
                    "problem": "SAME_CLUSTER",
                    "routes": [],
                    "topic": None,
                    "message": f"{', '.join(names)} are one Kafka cluster, of the id {cluster_id}",
                    "advice": "name it once, as 'cluster' of one region, or correct the addresses",
                }
                for cluster_id, names in self.one_kafka.items()
            ],
            "unreachable": dict(self.failures),
        }


@app.command()
def where(
    config: ConfigOption,
    topic: Annotated[
        list[str] | None,
        typer.Argument(help="A topic, as it is called where it is produced. Default: every one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what reaches where, and by which routes; change nothing. Exit code 1: a problem, or a cluster that did not answer."""
    settings = load(config)
    seen, failures = _look(settings)
    names = [TopicName(name) for name in topic] if topic else None
    found = where_of(settings, seen, failures, names)
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    if not found.sound:
        raise typer.Exit(1)


def where_of(
    config: Config,
    seen: Mapping[ClusterName, SeenCluster],
    failures: Mapping[ClusterName, str],
    names: Sequence[TopicName] | None = None,
) -> Where:
    """What reaches where.

    Args:
        config: the routes.
        seen: the clusters that have answered.
        failures: those that have not.
        names: topics; None: every one, but those of Kafka and Parallax.

    Raises:
        UnknownTopicError: every cluster has answered, and none at which records are produced has such a topic.
    """
    topics = {config.one_kafka(cluster): of.topics for cluster, of in seen.items()}
    producing = config.producing_clusters()
    for name in names or ():
        if not failures and not any(name in topics.get(cluster, ()) for cluster in producing):
            raise UnknownTopicError(f"none of {', '.join(producing)} has a topic {name!r}")
    graph = RouteGraph(config.edges(), producing, topics)
    arrivals = [item for item in graph.arrivals(names) if names or not matches(INTERNAL_TOPICS, item.topic)]
    ids: dict[str, list[ClusterName]] = {}
    for cluster, of in seen.items():
        known = ids.setdefault(of.cluster_id, [])
        known += [name for name in [config.one_kafka(cluster)] if name not in known]
    findings = [item for item in graph.findings() if not names or item.topic in (None, *names)]
    not_added: list[Withheld] = []
    if config.topics.new == "manual":
        arrivals, not_added = _added(arrivals, topics)
    return Where(
        arrivals,
        [*graph.withheld(arrivals), *not_added],
        findings,
        {cluster_id: clusters for cluster_id, clusters in ids.items() if cluster_id and len(clusters) > 1},
        failures,
    )


def _added(
    arrivals: Sequence[Arrival], topics: Mapping[ClusterName, Collection[TopicName]]
) -> tuple[list[Arrival], list[Withheld]]:
    """Those whose every target has the topic, and where the others end; what a silent cluster has nobody knows."""
    reached: list[Arrival] = []
    withheld: list[Withheld] = []
    for arrival in arrivals:
        name = arrival.topic
        for hop, edge in enumerate(arrival.path):
            before, name = name, edge.naming.of(name, edge.route.source)
            if edge.target in topics and name not in topics[edge.target]:
                if hop == len(arrival.path) - 1:  # of hops behind it the first that lacks it tells
                    at = Arrival(arrival.origin, arrival.topic, edge.source, before, arrival.path[:-1])
                    withheld.append(Withheld(at, edge, LeftOut.NOT_ADDED))
                break
        else:
            reached.append(arrival)
    return reached, withheld


def _look(config: Config) -> tuple[dict[ClusterName, SeenCluster], dict[ClusterName, str]]:
    """Every cluster that a route leads from or to, asked side by side."""
    routes = config.all_routes()
    ends = [
        end for route in routes for end in (config.source_cluster(route), aggregate_cluster(route.target))
    ]
    clusters = list(dict.fromkeys(map(config.one_kafka, ends)))

    def look(cluster: ClusterName) -> SeenCluster | str:
        door = KafkaCluster(cluster, config.cluster(cluster), timeout_ms=_TIMEOUT_MS)
        try:
            return SeenCluster(door.cluster_id(), frozenset(door.topics()))
        except ParallaxError as error:
            return str(error)

    with ThreadPoolExecutor(max_workers=8, thread_name_prefix="look") as executor:
        answers = dict(zip(clusters, executor.map(look, clusters), strict=True))
    seen = {cluster: answer for cluster, answer in answers.items() if isinstance(answer, SeenCluster)}
    return seen, {cluster: answer for cluster, answer in answers.items() if isinstance(answer, str)}


def _reason(kept: Withheld) -> str:
    return _NOT_OF_ITS_KIND if kept.reason is None else kept.reason.value


def _print(found: Where) -> None:
    reached = table("~topic | ~produced at | ~comes to | ~as | ~by", title="what reaches where")
    for item in found.arrivals:
        if item.path:
            way = ", ".join(str(edge) for edge in item.path)
            reached.add_row(item.topic, item.origin, item.cluster, item.name, way)
    left = table("~topic | ~produced at | ~stays at | ~route | ~why", title="what is left where it is")
    for kept in found.withheld:
        arrival = kept.arrival
        left.add_row(arrival.topic, arrival.origin, arrival.cluster, str(kept.edge), _reason(kept))
    screen = console()
    screen.print(reached if reached.row_count else "no topic reaches another cluster")
    if left.row_count:
        screen.print(left)
    values = found.to_json()
    for problem in values["problems"]:
        routes = f"{', '.join(problem['routes'])}: " if problem["routes"] else ""
        sys.stdout.write(f"{problem['problem']}: {routes}{problem['message']}; {problem['advice']}\n")
    for cluster, why in found.failures.items():
        sys.stdout.write(f"{cluster} did not answer, so that its topics are not in here: {why}\n")
