"""Names and offsets, each with a type of its own.

An offset means something only inside one cluster. ``SourceOffset`` and ``TargetOffset`` are distinct types,
so that the type checker refuses an offset that crossed clusters unnamed. Both are **next offsets**: the offset
of the first record not yet consumed or copied, which is what a Kafka group commits. The place of a record
itself is always called ``record_offset``, and `next_offset` is the one place where the two meet.

What has several parts is a tuple, because it is the key of nearly everything: a copier of many partitions, or a service that
answers where groups resume, looks up thousands a second, and a tuple's hash is not computed in Python.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

from parallax.errors import InvalidNameError

RegionName = NewType("RegionName", str)
"""A region, such as ``a`` or ``eu-west``."""

ClusterName = NewType("ClusterName", str)
"""A cluster: ``regional-<region>`` or ``aggregate-<region>``; `regional_cluster` and `aggregate_cluster` make it."""

TopicName = NewType("TopicName", str)

TopicId = NewType("TopicId", str)
"""Kafka's own id of one incarnation of a topic (KIP-516). A topic deleted and created again has another one."""

NO_TOPIC = TopicId("")
"""The source's topic id in a lineage as long as nothing of a partition was copied: the source has no such topic or partition
yet, never answered, or has more partitions than the target. Such a lineage tells of no record."""

GroupName = NewType("GroupName", str)

SourceOffset = NewType("SourceOffset", int)
"""A next offset in a partition of a regional cluster."""

TargetOffset = NewType("TargetOffset", int)
"""A next offset in a partition of an aggregate cluster."""

OWN_INSTANCE_PREFIX = "parallax-consumer-"
"""Begins each ``group.instance.id`` (KIP-345) that a FailoverConsumer has made up for itself."""

UNKNOWN_EPOCH = -1
"""The source leader epoch of a row that holds no record, or of a broker that did not tell."""


def next_offset(record_offset: int) -> int:
    """The next offset of a consumer that has consumed the record at ``record_offset``."""
    return record_offset + 1


def regional_cluster(region: RegionName) -> ClusterName:
    """The cluster that the region's producers write to."""
    return ClusterName(f"regional-{region}")


def aggregate_cluster(region: RegionName) -> ClusterName:
    """The cluster of the region that holds the records of every region."""
    return ClusterName(f"aggregate-{region}")


def is_aggregate(cluster: str) -> bool:
    """Whether the name is that of an aggregate cluster, configured or not."""
    return cluster.startswith("aggregate-")


def names_a_cluster(text: str) -> bool:
    """Whether the text has the form of a cluster's name; else it is meant to be a region's."""
    return text.startswith(("aggregate-", "regional-"))


def region_of(cluster: ClusterName) -> RegionName:
    """The region of a cluster name.

    Raises:
        InvalidNameError: the name is neither ``regional-<region>`` nor ``aggregate-<region>``.
    """
    kind, dash, region = cluster.partition("-")
    if kind not in {"regional", "aggregate"} or not dash or not region:
        raise InvalidNameError(
            f"cluster {cluster!r} is not named 'regional-<region>' or 'aggregate-<region>'",
        )
    return RegionName(region)


class Route(NamedTuple):
    """Replication from the regional cluster of ``source`` to the aggregate cluster of ``target``."""

    source: RegionName
    target: RegionName

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @classmethod
    def parse(cls, text: str) -> Route:
        """The route written as ``a->b``.

        Raises:
            InvalidNameError: the text is not of that form.
        """
        source, arrow, target = (part.strip() for part in text.partition("->"))
        if not arrow or not source or not target:
            raise InvalidNameError(f"route {text!r} is not of the form 'source->target'")
        return cls(RegionName(source), RegionName(target))


class TopicPartition(NamedTuple):
    """A partition of a topic. Replication keeps partition numbers, so it names source and target alike."""

    topic: TopicName
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class SourceId(NamedTuple):
    """One source of an aggregate partition: a region's topic in one incarnation."""

    region: RegionName
    topic_id: TopicId

    def __str__(self) -> str:
        return f"{self.region}/{self.topic_id}"


class Lineage(NamedTuple):
    """What a mapping holds for: this source topic, this target topic, an unbroken stretch of both logs.

    ``generation`` is 0 until a truncation was seen. It grows when an unclean leader election at the source threw
    away records that had been copied, or one at the target threw away copies; only its order has a meaning. Rows
    of different lineages are never combined (docs/decisions/0003-lineage.md).
    """

    source_topic_id: TopicId
    target_topic_id: TopicId
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.source_topic_id}.{self.target_topic_id}.{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Lineage:
        """The lineage written by ``str``.

        Raises:
            InvalidNameError: the text is not of that form.
        """
        parts = text.split(".")
        if len(parts) != 3 or not parts[2].isdigit():  # noqa: PLR2004 - source, target, generation
            raise InvalidNameError(f"lineage {text!r} is not of the form 'source_id.target_id.generation'")
        return cls(TopicId(parts[0]), TopicId(parts[1]), int(parts[2]))


class RoutePartition(NamedTuple):
    """One partition of one route: the unit that runs, watermarks and positions belong to."""

    route: Route
    topic_partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.route}/{self.topic_partition}"
