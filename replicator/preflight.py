"""Looks at both ends of every route before a byte moves, and says what does not fit, where, and what to do.

A cluster that does not answer is a warning: a lease starts with its source down and waits for its target. What may stop
one topic is a warning too, for that topic stops alone. Everything else that would corrupt or stop replication is an error,
and nothing is started.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from parallax.config.config import Config
from parallax.domain.ids import ClusterName, Route, TopicName, aggregate_cluster
from parallax.errors import ParallaxError, PreflightError, UnavailableError
from parallax.ports.clusters import TopicInfo
from replicator.copying.recovery import RunLogProblem
from replicator.findings import Finding, Problem, Severity
from replicator.graph_check import check_graph
from replicator.kafka.run_log import run_log_topic
from replicator.kafka.run_log_check import RouteCheck
from replicator.kafka.topics import (
    RUN_LOG_SETTINGS,
    Replication,
    TopicConfig,
    in_sync_settings,
    partition_counts,
)

_AT_ONCE = 8
"""Clusters that are asked at a time: one that is away takes its time limit, and nobody else's."""
_ANY_TIME_MS = 2**63 - 1
_FOREVER_MS = 2**63 - 1
_REPLICAS = 3
_NAMED_TOPICS = 5
_LARGEST_ENTRY_BYTES = 1024 * 1024
"""An entry of `replicator.copying.ledger.MAX_RUNS_PER_TRANSACTION` runs stays below it."""
_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})


class PreflightCluster(Protocol):
    """What preflight asks of a cluster. Every call may raise `UnavailableError` or `ConfigError`."""

    def cluster_id(self) -> str:
        """The id that the cluster has given itself."""

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        """Every topic but internal ones."""

    def configs(self, topics: Sequence[TopicName]) -> Mapping[TopicName, TopicConfig]:
        """The topics' effective settings."""

    def replication(self) -> Replication:
        """How many brokers there are, and on how many of them each topic lies."""

    def racks(self) -> Collection[str]:
        """Where its brokers stand, as far as they tell."""

    def check_transactions(self) -> None:
        """Prove that transactions are possible here: raises what stands against it."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One cluster as it answered."""

    cluster: ClusterName
    cluster_id: str
    topics: Mapping[TopicName, TopicInfo]
    configs: Mapping[TopicName, TopicConfig]
    replication: Replication


def run_preflight(
    config: Config, routes: Sequence[Route], open_cluster: Callable[[ClusterName], PreflightCluster]
) -> list[Finding]:
    """Every finding for the routes, in the order of the routes. Clusters are asked beside each other.

    Args:
        config: everything.
        routes: the routes that shall be replicated.
        open_cluster: gives the door to a cluster; called once for each, also for those that are of no route, from several threads.
    """
    sources = dict.fromkeys(config.source_cluster(route) for route in routes)
    targets = dict.fromkeys(aggregate_cluster(route.target) for route in routes)

    def look(cluster: ClusterName) -> tuple[_Side | None, list[Finding]]:
        door, found = open_cluster(cluster), list[Finding]()
        side = _look(config, cluster, door, found, is_target=cluster in targets)
        if cluster in sources and side is not None:
            found.extend(_check_rack(config, cluster, door))
        return side, found

    def ask_id(cluster: ClusterName) -> str:
        try:
            return open_cluster(cluster).cluster_id()
        except ParallaxError:  # the routes don't need it
            return ""

    ends = list(sources | targets)
    others = [cluster for cluster in config.clusters() if cluster not in ends]
    with ThreadPoolExecutor(_AT_ONCE, "preflight") as pool:
        looking, asking = pool.map(look, ends), pool.map(ask_id, others)
        looked = dict(zip(ends, looking, strict=True))
        ids = dict(zip(others, asking, strict=True))
    findings = [finding for _, found in looked.values() for finding in found]
    sides = {cluster: side for cluster, (side, _) in looked.items()}
    ids |= {cluster: side.cluster_id for cluster, side in sides.items() if side is not None}
    findings.extend(_one_cluster_twice(config, ids))
    topics = {name: side.topics for name, side in sides.items() if side is not None}
    findings.extend(check_graph(config, routes, topics))
    for route in routes:
        source = sides[config.source_cluster(route)]
        target = sides[aggregate_cluster(route.target)]
        if source is not None and target is not None:
            findings.extend(_compare_route(config, route, source, target))
        if target is not None:
            findings.extend(_check_durability(config, route, target))
            findings.extend(_check_run_log(config, route, target))
        if source is not None:
            findings.extend(_check_retention(config, route, source))
    return findings


def refuse_if_blocked(findings: Sequence[Finding]) -> None:
    """Stop here if anything forbids a start.

    Raises:
        PreflightError: at least one finding blocks; the message has them all.
    """
    blocking = [finding for finding in findings if finding.blocks]
    if blocking:
        lines = [
            f"{finding.problem.value}: {finding.where}: {finding.message}; {finding.advice}"
            for finding in blocking
        ]
        raise PreflightError("\n".join(lines))


def compare_topic(
    route: Route, source: TopicInfo, source_config: TopicConfig, target: TopicInfo, target_config: TopicConfig
) -> Iterator[Finding]:
    """What does not fit between a source topic and an existing target topic."""
    where, topic = f"{route}/{source.topic}", source.topic
    cluster = aggregate_cluster(route.target)
    if target.partitions < source.partitions:
        yield Finding(
            Severity.WARNING,
            Problem.PARTITION_MISMATCH,
            where,
            partition_counts(topic, source.partitions, cluster, target.partitions),
            f"the replicator gives it {source.partitions} there; where it has no right to (Alter on the topic), this topic "
            "waits and all others go on",
            topic,
        )
    source_limit, target_limit = (
        _number(side, "max.message.bytes") for side in (source_config, target_config)
    )
    if source_limit is not None and target_limit is not None and target_limit < source_limit:
        yield Finding(
            Severity.WARNING,
            Problem.MESSAGES_TOO_LARGE,
            where,
            f"max.message.bytes is {target_limit} on {cluster} and {source_limit} at the source: a larger batch stops "
            "its partition",
            f"set max.message.bytes={source_limit} for {topic!r} on {cluster}",
            topic,
        )
    for bound in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        source_bound = _number(source_config, bound, _ANY_TIME_MS)
        target_bound = _number(target_config, bound, _ANY_TIME_MS)
        # A bound of age is stricter at the target even when equal: the copy is made later than the record.
        late = bound.startswith("message.timestamp.before") and target_bound == source_bound != _ANY_TIME_MS
        if source_bound is not None and target_bound is not None and (target_bound < source_bound or late):
            yield Finding(
                Severity.WARNING,
                Problem.TIMESTAMPS_OUT_OF_BOUNDS,
                where,
                f"{bound} is {target_bound} on {cluster} and {source_bound} at the source: a record outside of the "
                "bound stops its partition",
                f"set {bound}={_ANY_TIME_MS} for {topic!r} on {cluster}",
                topic,
            )
    if target_config.get("message.timestamp.type") == "LogAppendTime":
        yield Finding(
            Severity.WARNING,
            Problem.TIMESTAMPS_REWRITTEN,
            where,
            f"message.timestamp.type=LogAppendTime on {cluster}: copies lose the records' own timestamps, and every "
            "batch is rewritten, which is slower",
            f"set message.timestamp.type=CreateTime for {topic!r} on {cluster}",
            topic,
        )
    compression = target_config.get("compression.type", "producer")
    if compression != "producer":
        yield Finding(
            Severity.WARNING,
            Problem.RECOMPRESSED,
            where,
            f"compression.type={compression} on {cluster}: the broker compresses every batch again, which is slower",
            f"set compression.type=producer for {topic!r} on {cluster}",
            topic,
        )


def refused_findings(checks: Sequence[RouteCheck]) -> list[Finding]:
    """What the run logs of routes are refused for: their shards wait, and all others go on."""
    names = tuple(f"{problem.value}: " for problem in RunLogProblem)
    return [
        Finding(
            Severity.WARNING,
            Problem.RUN_LOG_REFUSED,
            str(check.route),
            problem,
            "see docs/run-log.md; the other shards and routes are copied",
            None if check.layout is None else TopicName(check.layout.run_log),
        )
        for check in checks
        for problem in check.problems
        if problem.startswith(names)
    ]


def slots_finding(slots: int, leases: int) -> Finding | None:
    """The finding that leases are more than task slots, if they are."""
    if leases <= slots:
        return None
    return Finding(
        Severity.ERROR,
        Problem.TOO_FEW_SLOTS,
        "spark",
        f"{leases} leases need as many task slots, but Spark has {slots}",
        "give it more cores, or lower replicator.shards_per_route",
    )


def status_finding(status_address: str, *, local: bool) -> Finding | None:
    """The finding that executors on other machines can't report to the driver, if that is so."""
    if local or status_address.rpartition(":")[0] not in _LOOPBACK_HOSTS:
        return None
    return Finding(
        Severity.WARNING,
        Problem.STATUS_OUT_OF_REACH,
        "replicator.status_address",
        f"leases on other machines can't report to {status_address}: metrics and readiness miss them, and they do not "
        "hear of a stop",
        "set it to an address of the driver that executors reach, or to 0.0.0.0 and a port",
    )


def _look(
    config: Config, cluster: ClusterName, door: PreflightCluster, findings: list[Finding], *, is_target: bool
) -> _Side | None:
    prefix = f"{config.replicator.run_log_topic_prefix}."
    try:
        topics = door.topics()
        wanted = [name for name in topics if config.chosen_anywhere(name) or name.startswith(prefix)]
        side = _Side(cluster, door.cluster_id(), topics, door.configs(wanted), door.replication())
        if is_target:
            door.check_transactions()
    except UnavailableError as error:
        advice = "check its address; its leases wait until it answers"
        findings.append(Finding(Severity.WARNING, Problem.CLUSTER_UNREACHABLE, cluster, str(error), advice))
        return None
    except ParallaxError as error:
        problem = Problem.TRANSACTIONS_REFUSED if is_target else Problem.CLUSTER_REFUSED
        advice = "check credentials and access rights" + (
            " (Write on transactional ids that start with 'parallax.')" if is_target else ""
        )
        findings.append(Finding(Severity.ERROR, problem, cluster, str(error), advice))
        return None
    return side


def _check_rack(config: Config, cluster: ClusterName, door: PreflightCluster) -> Iterator[Finding]:
    """Whether anything is nearer than a leader may be (`Cluster.client_rack`): brokers say nothing of a rack that they don't know."""
    rack = config.cluster(cluster).client_rack
    if rack is None:
        return
    try:
        racks = door.racks()
    except ParallaxError:  # it goes without
        return
    if rack not in racks:
        known = f"there are {', '.join(sorted(racks))}" if racks else "none tells of a rack"
        yield Finding(
            Severity.WARNING,
            Problem.NO_NEARER_REPLICA,
            cluster,
            f"client_rack={rack}: no broker stands there; {known}: leaders are read from",
            "set it to the broker.rack of those that are nearest, or leave it out",
        )


def _one_cluster_twice(config: Config, ids: Mapping[ClusterName, str]) -> Iterator[Finding]:
    """Clusters of the configuration that are one Kafka under several names, as far as they answer."""
    by_id: dict[str, list[ClusterName]] = {}
    for cluster in config.clusters():
        if cluster_id := ids.get(cluster):
            names = by_id.setdefault(cluster_id, [])
            names += [name for name in [config.one_kafka(cluster)] if name not in names]
    for cluster_id, clusters in by_id.items():
        if len(clusters) > 1:
            yield Finding(
                Severity.ERROR,
                Problem.SAME_CLUSTER,
                ", ".join(clusters),
                f"they are one Kafka cluster, of the id {cluster_id}: what lies there would be copied to where it lies, "
                "again and again, or twice",
                "give each of them bootstrap_servers of its own, or leave out what does not exist",
            )


def _compare_route(config: Config, route: Route, source: _Side, target: _Side) -> Iterator[Finding]:
    names = config.route_topics(route)
    missing: list[TopicName] = []
    for name, info in sorted(source.topics.items()):
        copy = names.copy_of(name)
        there = None if copy is None else target.topics.get(copy)
        if there is not None:
            yield from compare_topic(
                route, info, source.configs.get(name, {}), there, target.configs.get(there.topic, {})
            )
        elif copy is not None:
            missing.append(name)
    if missing and config.topics.new == "manual":
        shown = ", ".join(missing[:_NAMED_TOPICS]) + (", ..." if len(missing) > _NAMED_TOPICS else "")
        yield Finding(
            Severity.NOTE,
            Problem.TOPICS_NOT_ADDED,
            str(route),
            f"{len(missing)} topics are not copied ({shown}): {target.cluster} lacks them, and topics.new is manual",
            "add those that shall be: 'parallax topics add'",
        )


def _check_run_log(config: Config, route: Route, target: _Side) -> Iterator[Finding]:
    name, shards = run_log_topic(config, route.source), config.replicator.shards_per_route
    found = target.topics.get(name)
    if found is None:
        yield Finding(
            Severity.NOTE,
            Problem.RUN_LOG_MISSING,
            f"{route}/{name}",
            f"the run log does not exist yet on {target.cluster}",
            f"it is created at the start, with {shards} partition(s)",
            name,
        )
        return
    settings = target.configs.get(name, {})
    if settings.get("cleanup.policy", "delete") != "delete":
        yield Finding(
            Severity.ERROR,
            Problem.RUN_LOG_UNFIT,
            f"{route}/{name}",
            f"cleanup.policy={settings['cleanup.policy']} on {target.cluster}: entries would vanish",
            f"set cleanup.policy=delete for {name!r}",
        )
    replicas = config.cluster(target.cluster).replication_factor
    for setting, wanted, severity, harm in _unfit_settings(
        settings, config.replicator.run_log_retention_ms, replicas
    ):
        yield Finding(
            severity,
            Problem.RUN_LOG_UNFIT,
            f"{route}/{name}",
            f"{setting}={settings[setting]} on {target.cluster}: {harm}",
            f"set {setting}={wanted} for {name!r} (docs/run-log.md)",
            name,
        )


def _unfit_settings(
    settings: TopicConfig, retention_ms: int, replicas: int | None
) -> Iterator[tuple[str, str, Severity, str]]:
    """Settings of a run log under which entries can be lost or refused: what each should be, how grave it is, and why.

    Those that a run log is created with since (`run_log_plan`) don't change by themselves.
    """
    error, warning = Severity.ERROR, Severity.WARNING
    wanted = RUN_LOG_SETTINGS | in_sync_settings(replicas)

    def number(name: str) -> int:
        return _number(settings, name, int(wanted.get(name, 0))) or 0

    name = "unclean.leader.election.enable"
    if settings.get(name, "false") != "false":
        yield name, "false", error, "a replica that lacks the newest entries may lead, and they are lost"
    if number("retention.bytes") >= 0:
        yield "retention.bytes", "-1", error, "entries are deleted however new they are"
    kept_ms = _number(settings, "retention.ms", retention_ms) or 0
    if 0 <= kept_ms < retention_ms:
        harm = "a route that stands still for longer has lost its position"
        yield "retention.ms", str(retention_ms), warning, harm
    name = "message.timestamp.type"
    if settings.get(name, wanted[name]) != wanted[name]:
        yield name, wanted[name], warning, "entries of a copier whose clock is behind are deleted at once"
    if number("max.message.bytes") < _LARGEST_ENTRY_BYTES:
        yield (
            "max.message.bytes",
            wanted["max.message.bytes"],
            error,
            "a large entry is refused, and copying stops",
        )
    if number("min.insync.replicas") < int(wanted.get("min.insync.replicas", 0)):
        yield (
            "min.insync.replicas",
            wanted["min.insync.replicas"],
            warning,
            "entries may be on one disk alone",
        )


def _check_durability(config: Config, route: Route, target: _Side) -> Iterator[Finding]:
    """What the target would lose with one disk, or by an unclean election: of its topics, and of the run log."""
    brokers, cluster = target.replication.brokers, target.cluster
    run_log, names = run_log_topic(config, route.source), config.route_topics(route)
    for name in sorted(target.topics):
        if name != run_log and not names.make(name):
            continue
        settings, replicas = target.configs.get(name, {}), target.replication.replicas.get(name, 1)
        what = "entries" if name == run_log else "records"
        harms = []
        if brokers > 1 and replicas == 1:
            harms.append(
                (
                    f"it lies on one of {brokers} brokers alone: with that disk all its {what} are lost",
                    f"give it {min(brokers, _REPLICAS)} replicas (kafka-reassign-partitions.sh)",
                )
            )
        if name != run_log and replicas > 1 and _number(settings, "min.insync.replicas") == 1:
            harms.append(
                (
                    f"min.insync.replicas=1: {what} are acknowledged that lie on one disk alone, and lost with it",
                    "set min.insync.replicas=2",
                )
            )
        if name != run_log and settings.get("unclean.leader.election.enable") == "true":
            harms.append(
                (
                    f"unclean.leader.election.enable=true: a replica that lacks the newest {what} may lead",
                    "set unclean.leader.election.enable=false",
                )
            )
        for message, advice in harms:
            yield Finding(
                Severity.WARNING,
                Problem.TARGET_MAY_LOSE,
                f"{route}/{name}",
                f"{cluster}: {message}",
                f"{advice} for {name!r}",
                name,
            )


def _check_retention(config: Config, route: Route, source: _Side) -> Iterator[Finding]:
    kept_ms, choice = config.replicator.run_log_retention_ms, config.topic_choice(route)
    for name, settings in sorted(source.configs.items()):
        retention_ms = _number(settings, "retention.ms", _FOREVER_MS)
        if retention_ms is None or "delete" not in settings.get("cleanup.policy", "delete"):
            continue
        if retention_ms < 0:
            retention_ms = _FOREVER_MS
        if choice.chosen(name) and retention_ms > kept_ms:
            shown = "for ever" if retention_ms == _FOREVER_MS else f"for {retention_ms} ms"
            yield Finding(
                Severity.WARNING,
                Problem.RUN_LOG_TOO_SHORT,
                f"{route}/{name}",
                f"the topic is kept {shown}, the run log for {kept_ms} ms: a rebuilt index would not reach back as far",
                "raise replicator.run_log_retention_ms",
                name,
            )


def _number(settings: TopicConfig, name: str, default: int | None = None) -> int | None:
    text = settings.get(name)
    return default if text is None else int(text)
