"""librdkafka's errors as ours, by one table."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from parallax.domain.ids import ClusterName
from parallax.errors import (
    ClusterUnavailableError,
    ConfigError,
    FencedError,
    ParallaxError,
    UnknownPartitionError,
    UnknownTopicError,
)

BY_CODE: dict[int, type[ParallaxError]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: UnknownTopicError,
    KafkaError._UNKNOWN_TOPIC: UnknownTopicError,  # noqa: SLF001 - librdkafka's local codes are named so
    KafkaError._UNKNOWN_PARTITION: UnknownPartitionError,  # noqa: SLF001 - as above
    KafkaError.UNKNOWN_TOPIC_ID: UnknownTopicError,
    KafkaError.UNKNOWN_MEMBER_ID: FencedError,
    KafkaError.NON_EMPTY_GROUP: FencedError,
    KafkaError.ILLEGAL_GENERATION: FencedError,
    KafkaError.REBALANCE_IN_PROGRESS: FencedError,
    KafkaError.FENCED_INSTANCE_ID: FencedError,
    KafkaError.PRODUCER_FENCED: FencedError,
    KafkaError.INVALID_PRODUCER_EPOCH: FencedError,
    KafkaError._FENCED: FencedError,  # noqa: SLF001 - as above
    KafkaError.SASL_AUTHENTICATION_FAILED: ConfigError,
    KafkaError._AUTHENTICATION: ConfigError,  # noqa: SLF001 - as above
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ConfigError,
    KafkaError.GROUP_AUTHORIZATION_FAILED: ConfigError,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ConfigError,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ConfigError,
}
"""What a code means. Every other code means that the cluster could not serve the call now."""


def translated(error: Exception, cluster: ClusterName, doing: str) -> ParallaxError:
    """The error to raise for one of librdkafka's: names the cluster, what was tried, and what came back."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if isinstance(inner, KafkaError):
        kind = BY_CODE.get(inner.code(), ClusterUnavailableError)
        return kind(f"{cluster}: {doing}: {inner.str()} ({inner.name()})")
    return ClusterUnavailableError(f"{cluster}: {doing}: {inner}")
