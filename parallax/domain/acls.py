"""The rights at Kafka that each process needs, and what for: no more, and none of them can be left out.

docs/security.md shows this list, a secure local stack grants it, and a test takes its entries away one by one.
Where a resource is written with several operations each is a rule of its own; Read, Write and Alter imply Describe
(Kafka's own rule), so that is named only where nothing else is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

ClusterKind = Literal["regional", "aggregate"]


class Process(StrEnum):
    """Who connects to Kafka."""

    REPLICATOR = "replicator"
    OFFSET_SERVICE = "offset service"
    SYNC_JOB = "sync job"
    OPERATOR = "operator"
    """`parallax failover`, `failback`, `verify`, `run-log` and whatever else asks clusters."""
    DRILL = "drill"
    """`parallax drill`, besides what an operator needs."""
    CONSUMER = "consumer"
    PRODUCER = "producer"


class Resource(StrEnum):
    """What a right is about."""

    TOPIC = "Topic"
    GROUP = "Group"
    TRANSACTIONAL_ID = "TransactionalId"


class Operation(StrEnum):
    """What may be done with it, as Kafka's tools write it."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER_CONFIGS = "AlterConfigs"


class AclNames(StrEnum):
    """Which resources of a kind; a deployment fills in its own names (`Pattern`)."""

    REPLICATED = "replicated topics"
    OWN = "names that begin with `parallax.`"
    DRILL_TOPIC = "`drill.topic`"
    CANARY_TOPIC = "`canary.topic`"
    GROUPS = "groups that move"
    DRILL_GROUPS = "names that begin with `drill.group`"
    APPLICATION_TOPICS = "the application's topics"
    APPLICATION_GROUPS = "the application's groups"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Names of resources: one, or all that begin so; ``*`` means all."""

    name: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class AclNeed:
    """A right that a process needs.

    Attributes:
        cluster: at clusters of which kind.
        why: what it is used for.
        without: what goes on without it; empty: the process does not do its work.
    """

    process: Process
    cluster: ClusterKind
    resource: Resource
    names: AclNames
    operation: Operation
    why: str
    without: str = ""


@dataclass(frozen=True, slots=True)
class Acl:
    """A right as it is granted."""

    resource: Resource
    pattern: Pattern
    operation: Operation


def _needs(
    process: Process, cluster: ClusterKind, resource: Resource, names: AclNames, **why: str
) -> Iterator[AclNeed]:
    for operation, text in why.items():
        reason, _, without = text.partition(" | ")
        yield AclNeed(process, cluster, resource, names, Operation[operation.upper()], reason, without)


def _all() -> Iterator[AclNeed]:
    topic, group, own_id = Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID
    yield from _needs(
        Process.REPLICATOR,
        "regional",
        topic,
        AclNames.REPLICATED,
        read="fetches what is copied",
        describe_configs="gives target topics their source's settings; preflight compares both",
    )
    yield from _needs(
        Process.REPLICATOR,
        "regional",
        topic,
        AclNames.CANARY_TOPIC,
        create="creates the topic of canaries (`canary.enabled`) where it is missing | where it is there, and everything else",
        write="writes canaries | everything else",
        alter="gives it as many partitions as a route has shards | where it has, and everything else",
    )
    yield from _needs(
        Process.REPLICATOR,
        "aggregate",
        topic,
        AclNames.REPLICATED,
        create="creates the target of a topic",
        write="writes the copies",
        read="asks before each commit whether the topic still has the same log; looks for transactions that hang, and for "
        "records that nobody's run log knows",
        alter="adds partitions where the source has more | all topics but one that grows",
        describe_configs="preflight compares source and target; the record path takes bounds from it",
        alter_configs="keeps settings in step with their sources' (`topics.config_sync`) | all else; `CONFIG_REFUSED` names each setting",
    )
    yield from _needs(
        Process.REPLICATOR,
        "aggregate",
        topic,
        AclNames.OWN,
        create="creates run logs and the topics of layouts and of settings",
        write="writes an entry with each transaction",
        read="finds where its predecessor has come to, and on which settings both sides agreed",
        alter="adds partitions to a run log when `replicator.shards_per_route` grows | until then",
        describe_configs="refuses a run log whose entries would vanish",
    )
    yield from _needs(
        Process.REPLICATOR,
        "aggregate",
        own_id,
        AclNames.OWN,
        write="one transaction carries copies, runs and positions",
    )
    yield from _needs(
        Process.REPLICATOR,
        "aggregate",
        group,
        AclNames.GROUPS,
        describe="holds a shorter retention back while a group has not read what would go | all else; it is held back for no "
        "group that can't be seen",
    )
    yield from _needs(
        Process.OFFSET_SERVICE,
        "aggregate",
        topic,
        AclNames.REPLICATED,
        describe="asks where logs begin and end, and for groups' offsets",
        read="finds the time of an offset (`by_timestamp`) | all other answers",
    )
    yield from _needs(
        Process.OFFSET_SERVICE,
        "aggregate",
        group,
        AclNames.GROUPS,
        describe="reads what a group has committed",
        read="sets the offsets of a group whose move it carries out, and takes out members that are gone | all but moves by its API "
        "and by the console",
    )
    yield from _needs(
        Process.SYNC_JOB,
        "aggregate",
        topic,
        AclNames.REPLICATED,
        read="Kafka asks for it where offsets are committed",
    )
    yield from _needs(
        Process.SYNC_JOB,
        "aggregate",
        group,
        AclNames.GROUPS,
        read="commits the group's offsets in the passive cluster; lists and reads groups",
    )
    yield from _needs(
        Process.OPERATOR,
        "aggregate",
        topic,
        AclNames.REPLICATED,
        read="Kafka asks for it where offsets are committed",
    )
    yield from _needs(
        Process.OPERATOR,
        "aggregate",
        topic,
        AclNames.OWN,
        read="`parallax runlog` reads and checks run logs | all other commands",
        describe_configs="`parallax runlog check` looks at a run log's settings | all other commands",
    )
    yield from _needs(
        Process.OPERATOR,
        "aggregate",
        group,
        AclNames.GROUPS,
        read="sets the offsets of a group that moves, and takes out members that are gone",
    )
    yield from _needs(
        Process.DRILL,
        "regional",
        topic,
        AclNames.DRILL_TOPIC,
        create="creates the topic where it is missing | where it is there",
        write="produces canary records",
    )
    yield from _needs(Process.DRILL, "aggregate", topic, AclNames.DRILL_TOPIC, read="consumes canary records")
    yield from _needs(
        Process.DRILL, "aggregate", group, AclNames.DRILL_GROUPS, read="consumes, and moves its own group"
    )
    yield from _needs(
        Process.CONSUMER, "aggregate", topic, AclNames.APPLICATION_TOPICS, read="consumes, in every region"
    )
    yield from _needs(
        Process.CONSUMER, "aggregate", group, AclNames.APPLICATION_GROUPS, read="joins its group and commits"
    )
    yield from _needs(
        Process.PRODUCER,
        "regional",
        topic,
        AclNames.APPLICATION_TOPICS,
        write="produces, in every region that it may turn to",
    )


NEEDS: tuple[AclNeed, ...] = tuple(_all())
"""Every right of every process."""


def acls_of(
    processes: Collection[Process], cluster: ClusterKind, names: Mapping[AclNames, Iterable[Pattern]]
) -> list[Acl]:
    """What to grant to one user at one cluster.

    Args:
        processes: what the user runs.
        cluster: the cluster's kind.
        names: how the resources are called there.
    """
    found = {
        Acl(need.resource, pattern, need.operation): None
        for need in NEEDS
        if need.process in processes and need.cluster == cluster
        for pattern in names[need.names]
    }
    return list(found)


def table(cluster: ClusterKind) -> str:
    """The page's table for one kind of cluster: a row for each process and resource."""
    rows: dict[tuple[Process, Resource, AclNames], list[AclNeed]] = {}
    for need in NEEDS:
        if need.cluster == cluster:
            rows.setdefault((need.process, need.resource, need.names), []).append(need)
    lines = ["| process | resource | operations |", "|---|---|---|"]
    for (process, resource, names), needs in rows.items():
        told = "; ".join(
            f"**{need.operation}**: {need.why}" + (f" (without it: {need.without})" if need.without else "")
            for need in needs
        )
        lines.append(f"| {process} | {resource}: {names} | {told} |")
    return "\n".join(lines)
