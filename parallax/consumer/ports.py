"""What a `FailoverConsumer` needs of Kafka's consumer and of the offset service's client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from confluent_kafka import Message, TopicPartition

from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2

Key = tuple[str, int]
"""Topic and partition."""

Rebalance = Callable[[Any, list[TopicPartition]], None]
"""A callback of ``subscribe``: the consumer and the partitions."""


class InnerConsumer(Protocol):
    """`confluent_kafka.Consumer`, as far as it is used."""

    def subscribe(
        self, topics: list[str], *, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance
    ) -> None:
        """Join the group."""

    def unsubscribe(self) -> None:
        """Leave it."""

    def poll(self, timeout: float) -> Message | None:
        """The next message or event."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Up to ``num_messages`` of them."""

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions from these offsets."""

    def unassign(self) -> None:
        """Read nothing."""

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions too."""

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these no more."""

    def assignment(self) -> list[TopicPartition]:
        """What is read."""

    def memberid(self) -> str | None:
        """The id that the group's coordinator has given; nothing once the group is left."""

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        """Commit next offsets with their metadata."""

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """The group's committed offsets."""

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float, *, cached: bool
    ) -> tuple[int, int]:
        """Log start and end."""

    def offsets_for_times(self, partitions: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        """The first offsets that are not older than timestamps."""

    def consumer_group_metadata(self) -> Any:
        """The membership, for a producer's transaction."""

    def cluster_id(self, timeout: float) -> str:
        """The cluster's id."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from now on."""

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Fetch no more of these for now."""

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Go on after the last message handed out."""

    def seek(self, partition: TopicPartition) -> None:
        """Go to another offset."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Cluster metadata."""

    def close(self) -> None:
        """Leave the group and end."""


ConsumerFactory = Callable[[dict[str, Any]], InnerConsumer]
"""Makes an inner consumer from librdkafka settings."""


class SkipUpdateStream(Iterator[pb.SkipUpdate], Protocol):
    """A stream of skip updates (`parallax.client.watches.SkipWatch`)."""

    def close(self) -> None:
        """End the iteration, from any thread."""


class PrimaryChanges(Iterator[primaries_pb2.Primary], Protocol):
    """A stream of changes (`parallax.client.watches.PrimaryWatch`)."""

    def close(self) -> None:
        """End the iteration, from any thread."""


class OffsetService(Protocol):
    """`parallax.client.client.OffsetClient`, as far as it is used."""

    def get_group_failover_offsets(
        self,
        group: str,
        *,
        to: pb.Place,
        origin: pb.Place | None = None,
        positions: Iterable[pb.PartitionPosition] = (),
        topics: Iterable[str] = (),
        record_move: bool = False,
        timeout_ms: float | None = None,
    ) -> pb.GetGroupFailoverOffsetsResponse:
        """Where every partition of a group resumes."""

    def watch_skips(
        self,
        topic: str,
        partition: int,
        *,
        at: pb.Place,
        target_topic_id: str,
        progress: Iterable[pb.SourceProgress],
        start: int,
        origin: pb.Place | None = None,
    ) -> SkipUpdateStream:
        """Skip ranges as they become known."""

    def report_positions(
        self,
        group: str,
        *,
        at: pb.Place,
        positions: Iterable[pb.PartitionPosition],
        moves: Iterable[pb.PartitionMove] = (),
        timeout_ms: float | None = None,
    ) -> pb.ReportPositionsResponse:
        """Tell delivered next offsets, and moves that were made."""

    def get_primary(self, group: str, *, timeout_ms: float | None = None) -> primaries_pb2.Primary:
        """Where the group is primary; without ``decision`` if nothing was ever decided."""

    def describe_regions(
        self,
        *,
        groups: Iterable[str] = (),
        topics: Iterable[str] = (),
        timeout_ms: float | None = None,
    ) -> primaries_pb2.DescribeRegionsResponse:
        """The regions, and which of these groups and topics the configuration leaves out."""

    def watch_primary(self, group: str) -> PrimaryChanges:
        """Where the group is primary, and every change."""

    def close(self) -> None:
        """Close the channels."""
