"""What a `FailoverProducer` needs of Kafka's clients and of the offset service's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import KafkaError, Message

from parallax.v1 import primaries_pb2


class InnerProducer(Protocol):
    """`confluent_kafka.Producer`, as far as it is used."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        *,
        on_delivery: Callable[[KafkaError | None, Message], None],
        timestamp: int,
        headers: list[tuple[str, Any]] | None,
    ) -> None:
        """Take a record; it is reported by `poll` or `flush`, once."""

    def poll(self, timeout: float) -> int:
        """Serve reports and events, waiting for the first."""

    def flush(self, timeout: float) -> int:
        """Send without lingering, and serve reports."""

    def purge(self, *, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        """Give records up; they are reported as purged."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Cluster metadata."""

    def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Authenticate so from now on."""

    def close(self) -> Any:
        """End."""


ProducerFactory = Callable[[dict[str, Any]], InnerProducer]
"""Makes an inner producer from librdkafka settings."""


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """What a cluster says of topics.

    Attributes:
        partition_counts: of the topics that exist; those missing here don't.
        leaderless: topics of which some partition has no leader now.
        refused: topics that this client may not see, with the cluster's words.
    """

    partition_counts: Mapping[str, int]
    leaderless: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


class Probe(Protocol):
    """Asks one cluster whether it is there, over connections of its own."""

    def ask(self, topics: Sequence[str], timeout_s: float) -> Callable[[], ClusterTopics]:
        """Ask without waiting; what is returned waits for the answer.

        The inner call raises ClusterUnavailableError: no broker answered in time.
        """

    def close(self) -> None:
        """End."""


ProbeFactory = Callable[[dict[str, Any]], Probe]
"""Makes a probe from librdkafka settings."""


class RegionService(Protocol):
    """`parallax.client.client.OffsetClient`, as far as it is used."""

    def describe_regions(self, *, timeout_ms: float | None = None) -> primaries_pb2.DescribeRegionsResponse:
        """The regions with their clusters."""

    def close(self) -> None:
        """Close the channels."""
