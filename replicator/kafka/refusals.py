"""What a cluster answers when it does not give or take records: for good, for now, or because another owner has taken over."""

from __future__ import annotations

from dataclasses import dataclass

from kafka.errors import for_code

from parallax.domain.acls import Operation
from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, ConfigError, FencedError, ParallaxError

TOO_LARGE = 10
NOT_ALLOWED = 29
"""A right to a topic is missing, which is true of all its partitions (`missing_right`)."""
_ADVICE = {
    TOO_LARGE: "raise max.message.bytes of the target's topic",
    18: "raise segment.bytes of the target's topic",
    32: (
        "widen message.timestamp.before.max.ms and message.timestamp.after.max.ms of the target's topic "
        "(the record meant may be a later one of the same batch)"
    ),
    87: (
        "the target's topic asks for more than the source's (a compacted topic refuses records without key): "
        "change its settings, or exclude the topic (the record meant may be a later one of the same batch)"
    ),
    43: "see the target's topic settings",
    44: "see the target's topic settings",
}
"""What the target says for good: saying it again would not help."""
FENCED = frozenset({47, 90})
"""Invalid producer epoch, producer fenced."""
ID_NOT_ALLOWED = 53


@dataclass(frozen=True, slots=True)
class Refusal:
    """A batch that the target refused for good.

    Attributes:
        index: how many records of the partition in this transaction were taken before the one refused.
    """

    topic_partition: TopicPartition
    index: int
    code: int
    message: str

    @property
    def reason(self) -> str:
        """What the target said, and what to do."""
        return f"{self.message} ({for_code(self.code).__name__}): {advice(self.code)}"


def is_for_good(code: int) -> bool:
    """Whether the target would refuse the same again."""
    return code in _ADVICE


def advice(code: int) -> str:
    """What to do about a refusal for good."""
    return _ADVICE[code]


def translated(code: int, cluster: ClusterName, doing: str, transactional_id: str) -> ParallaxError:
    """The error of an answer that is no refusal for good.

    Args:
        code: Kafka's.
        cluster: whose answer it is.
        doing: what was being done, and what the broker added.
        transactional_id: the writer's, which another owner may have, or which may not be allowed.
    """
    text = f"{cluster}: {doing}: {for_code(code).__name__} ({code})"
    if code in FENCED:
        return FencedError(f"{text}: another owner has taken over {transactional_id}")
    if code == ID_NOT_ALLOWED:
        return id_not_allowed(cluster, transactional_id, doing)
    return ClusterUnavailableError(text)


def id_not_allowed(cluster: ClusterName, transactional_id: str, doing: str) -> ConfigError:
    """The replicator may not write under its transactional id, without which a shard copies nothing.

    Args:
        cluster: where the right is missing.
        transactional_id: the id.
        doing: what was being done.
    """
    return ConfigError(
        f"RIGHT_MISSING: {Operation.WRITE} on transactional id {transactional_id} at {cluster} "
        f"({for_code(ID_NOT_ALLOWED).__name__}, {doing}): allow names that begin with `parallax.` to the replicator's user; "
        "copying goes on by itself from where it stopped"
    )


def missing_right(
    cluster: ClusterName, topic: TopicName, operations: tuple[Operation, ...], why: str = ""
) -> str:
    """Why a topic's partitions are stopped for which the replicator lacks a right, and what to do.

    Args:
        cluster: where it is missing.
        topic: the topic.
        operations: what is not allowed.
        why: what it is needed for, where that is not plain.
    """
    what = f"{' and '.join(operations)} on topic {topic} at {cluster}"
    return (
        f"RIGHT_MISSING: {what} ({for_code(NOT_ALLOWED).__name__}){f': {why}' if why else ''}: allow it to the replicator's "
        "user, or, if the topic is not to be replicated, exclude it; copying goes on by itself from where it stopped"
    )


def not_readable(cluster: ClusterName, topic: TopicName) -> str:
    """`missing_right` of a source that may not be read, or seen at all."""
    return missing_right(cluster, topic, (Operation.READ,))


def not_writable(cluster: ClusterName, topic: TopicName) -> str:
    """`missing_right` of a target that may not be written to."""
    return missing_right(cluster, topic, (Operation.WRITE,))


def not_confirmable(cluster: ClusterName, topic: TopicName) -> str:
    """`missing_right` of a target that may not be read."""
    why = "before each commit its leader is asked whether it still has the same log"
    return missing_right(cluster, topic, (Operation.READ,), why)
