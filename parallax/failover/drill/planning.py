"""What a drill would do by the configuration, and how it is held against what `parallax verify` finds."""

from __future__ import annotations

from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    Route,
    TopicName,
    aggregate_cluster,
    region_of,
)
from parallax.domain.route_graph import RouteGraph
from parallax.errors import ConfigError, InvalidNameError
from parallax.failover.drill.run import DrillPlan
from parallax.failover.verify.verdict import Consumers
from parallax.failover.verify.verifier import Verifier

_PROOF_WAIT_MS = 15_000
"""For an index that lags behind the drill's group."""


def plan_of(config: Config, origin: str | None, to: str | None) -> DrillPlan:
    """What a drill would do.

    Raises:
        ConfigError: no two regions have aggregate clusters, nothing is replicated to both, or topic or group is left out.
        InvalidNameError: one of the regions has to be named, or both are the same.
        UnknownRegionError: a region does not exist, or has no aggregate cluster.
    """
    able = [name for name, region in config.regions.items() if region.aggregate is not None]
    named = [name for name in (origin, to) if name is not None]
    for name in named:
        config.cluster(aggregate_cluster(RegionName(name)))
    others = [name for name in able if name not in named]
    left_open = 2 - len(named)
    if len(others) < left_open:
        raise ConfigError("a drill needs two regions with aggregate clusters")
    if left_open and len(others) > left_open:
        raise InvalidNameError(f"from and to: say which of {', '.join(able)}")
    home = origin if origin is not None else others.pop(0)
    away = to if to is not None else others.pop(0)
    if home == away:
        raise InvalidNameError(f"from and to are the same region, {home!r}")
    topic, group = TopicName(config.drill.topic), GroupName(config.drill.group)
    for route in config.all_routes():
        if (
            route.target in (home, away)
            and config.topics.chosen(topic)
            and not config.route_topics(route).make(topic)
        ):
            raise ConfigError(
                f"drill.topic {topic!r} is not replicated by route {route}: its topics leave it out"
            )
    if not config.topics.chosen(topic):
        raise ConfigError(f"drill.topic {topic!r} is not replicated: 'topics' leaves it out")
    if not config.groups.chosen(group):
        raise ConfigError(f"drill.group {group!r} is not served: 'groups' leaves it out")
    producing = _producing(config, topic, (RegionName(home), RegionName(away)))
    return DrillPlan(group, topic, RegionName(home), RegionName(away), producing)


def _producing(
    config: Config, topic: TopicName, ways: tuple[RegionName, RegionName]
) -> tuple[RegionName, ...]:
    """The regions whose records come to both clusters, be it that they are produced there.

    Raises:
        ConfigError: none do, or those of one of the two itself don't: nothing could be proved of these.
    """
    producing = config.producing_clusters()
    graph = RouteGraph(config.edges(), producing, {cluster: [topic] for cluster in producing})
    clusters = {config.one_kafka(aggregate_cluster(region)) for region in ways}
    come_to: dict[RegionName, set[ClusterName]] = {}
    for arrival in graph.arrivals([topic]):
        if arrival.name == topic:
            come_to.setdefault(region_of(arrival.origin), set()).add(arrival.cluster)
    both = tuple(sorted(region for region, places in come_to.items() if clusters <= places))
    for here, other in (ways, ways[::-1]):
        if config.is_produced_at(aggregate_cluster(here)) and here not in both:
            raise ConfigError(
                f"producers write to {aggregate_cluster(here)}, and no route brings what they write to {aggregate_cluster(other)}: of a "
                f"group that comes back from there nothing could be proved. Configure the route {Route(here, other)}, or make {here}'s "
                "cluster an 'aggregate' if nobody writes there"
            )
    if not both:
        raise ConfigError(f"no region is replicated to both {ways[0]} and {ways[1]}")
    return both


def steps_of(config: Config, plan: DrillPlan) -> list[str]:
    """What a drill does, in sentences."""
    regional = ", ".join(f"regional-{region}" for region in plan.regions)
    per_s = config.drill.records_per_s
    return [
        f"take group {plan.group} home to {plan.home} if an earlier drill left it elsewhere",
        f"create topic {plan.topic} where it is missing, and produce {per_s:g} records a second to each of {regional}",
        f"consume aggregate-{plan.origin} as group {plan.group}, with a FailoverConsumer",
        f"move the group to aggregate-{plan.to} (planned), wait for {plan.records} records of each region there",
        f"move it back to {plan.home}, wait for {plan.records} records of each region there",
        "stop producing, wait until every acknowledged record was delivered, leave, verify both moves",
    ]


def proof(verifier: Verifier, plan: DrillPlan) -> str:
    """What the drill's group consumed over both moves: `parallax verify`'s word.

    Raises:
        ParallaxError: as `Verifier.verify` says.
    """
    found = verifier.verify(plan.group, moves=2, consumers=Consumers.FAILOVER, wait_ms=_PROOF_WAIT_MS)
    return found.verdict.value
