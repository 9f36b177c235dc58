"""A Kafka consumer that moves between the aggregate clusters of regions: nothing lost, nothing read twice.

It is used like `confluent_kafka.Consumer`, which it wraps, and needs the base install only
(docs/failover-consumer.md). `FailoverConsumer.move_to` takes the group to another region: the offset service
tells where to resume, records that were consumed before are skipped, and where it is not known yet whether a
record was consumed, its partition waits while the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from types import TracebackType
from typing import Any, Self, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from parallax.client.client import OffsetClient
from parallax.client.credentials import ServiceCredentials
from parallax.client.primary_messages import primary_from_pb
from parallax.consumer.arguments import (
    check_callable,
    check_count,
    check_done,
    check_partition,
    check_partitions,
    subscription_of,
)
from parallax.consumer.commits import carrying, of_message
from parallax.consumer.delivery import key_of
from parallax.consumer.engine import Engine
from parallax.consumer.errors import ConsumerConfigError
from parallax.consumer.events import FailoverEvent
from parallax.consumer.ports import ConsumerFactory, InnerConsumer, OffsetService, Rebalance
from parallax.consumer.settings import (
    MoveFrom,
    OnNoOffset,
    OnServiceAway,
    Policies,
    read_settings,
)
from parallax.domain.primary import Assignment


class FailoverConsumer:
    """Consumes the aggregate cluster of one region, and moves to another one when told.

    Args:
        config: librdkafka settings with ``group.id``, without ``bootstrap.servers``. ``isolation.level`` is always
            ``read_committed``; ``enable.auto.commit`` (default true), ``auto.commit.interval.ms`` and
            ``enable.auto.offset.store`` mean what they mean in librdkafka, but are done here.
        clusters: for each region the bootstrap servers of its aggregate cluster, or a mapping with these and other
            settings of that cluster.
        region: where to begin.
        services: ``host:port`` of all regions' offset services, the own region's first; or a client, left open.
        service_credentials: what proves to these services who calls, and whom it trusts
            (`parallax.ServiceCredentials`); None: plain text, and nothing.
        on_event: told of moves, pending records and skipped ones, in the thread that polls.
        moved_from: the region that the group consumed until now, when this process starts in another one: the
            first thing that it does is to move. The positions are those that the group committed or reported.
        follow_primary: go where the group is recorded as primary (docs/failover.md): stop when a move begins, go
            on where it ends. It joins once a service has told where that is; not together with ``moved_from``.
        on_no_offset: where a partition starts that the group never committed on: ``earliest``, ``latest`` or
            ``error``.
        on_service_away: when an answer is needed and no offset service gives it within ``service_timeout_ms``:
            ``wait``; go by the ``metadata`` of committed offsets alone, so that records may be read twice; or
            ``stop`` with `OffsetServiceAwayError`.
        move_from: a move starts from what was ``delivered`` by poll(), or from what was ``committed``, for an
            application that can't vouch for records before it has committed them.
        service_timeout_ms: see ``on_service_away``.
        index_wait_ms: how long a move waits at most for the newest records delivered to be indexed.
        report_interval_ms: how often positions are reported to the offset service.
        close_timeout_ms: how long ``close`` waits for the cluster.
        consumer_factory: makes the inner consumer of a cluster from its settings.

    Raises:
        ConsumerConfigError: a setting that can't be honoured; the message says what to do.
        UnknownRegionError: ``region`` or ``moved_from`` names no cluster given.
        TypeError: ``on_event`` can't be called.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        clusters: Mapping[str, str | Mapping[str, Any]],
        region: str,
        services: Sequence[str] | OffsetService,
        service_credentials: ServiceCredentials | None = None,
        on_event: Callable[[FailoverEvent], None] | None = None,
        moved_from: str | None = None,
        follow_primary: bool = False,
        on_no_offset: OnNoOffset = "earliest",
        on_service_away: OnServiceAway = "wait",
        move_from: MoveFrom = "delivered",
        service_timeout_ms: float = 5_000,
        index_wait_ms: float = 2_500,
        report_interval_ms: float = 1_000,
        close_timeout_ms: float = 5_000,
        consumer_factory: ConsumerFactory | None = None,
    ) -> None:
        check_callable("on_event", on_event)
        settings = read_settings(config, clusters, region)
        if moved_from is not None:
            if follow_primary:
                raise ConsumerConfigError("moved_from: with follow_primary what was decided says where to go")
            settings.for_region(moved_from)
        policies = Policies(
            on_no_offset=on_no_offset,
            on_service_away=on_service_away,
            move_from=move_from,
            service_timeout_ms=service_timeout_ms,
            index_wait_ms=index_wait_ms,
            report_interval_ms=report_interval_ms,
            close_timeout_ms=close_timeout_ms,
        )
        service = _service(services, service_credentials)
        self._made_here = closing(service) if isinstance(services, Sequence) else nullcontext()
        self._engine = Engine(
            self,
            settings,
            policies,
            region,
            service=service,
            factory=_confluent_consumer if consumer_factory is None else consumer_factory,
            on_event=on_event,
            moved_from=None if moved_from == region else moved_from,
            follow_primary=follow_primary,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- moving -------------------------------------------------------------------------------------------

    @property
    def region(self) -> str:
        """Whose aggregate cluster is consumed; the old one until a move is made."""
        return self._engine.site.region

    @property
    def moving(self) -> bool:
        """Whether a move was asked for and no partition is assigned at its destination yet."""
        return self._engine.moving

    @property
    def primary(self) -> Assignment | None:
        """Where the group is primary, with the fencing number to publish with; None: not decided, or not followed."""
        found = self._engine.primary
        return None if found is None else primary_from_pb(found)

    @property
    def skipped_records(self) -> int:
        """Records dropped since the last move because they had been consumed before it."""
        return self._engine.site.delivery.skipped_records

    def move_to(self, region: str) -> None:
        """Go on in another region. From any thread or a signal handler; done by the thread that polls.

        Asked again with another region, the later one counts; with the present region, a move that has not been
        made yet is given up.

        Raises:
            UnknownRegionError: no cluster was given for the region.
        """
        self._engine.move_to(region)

    # --- as confluent_kafka.Consumer ----------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Rebalance | None = None,
        on_revoke: Rebalance | None = None,
        on_lost: Rebalance | None = None,
    ) -> None:
        """Join the group. The callbacks are called at a move too: ``on_lost`` (else ``on_revoke``), ``on_assign``."""
        self._engine.check_open()
        self._engine.subscribe(subscription_of(topics, on_assign, on_revoke, on_lost))

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._engine.unsubscribe()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions, from their offsets; without one from the commit, or by ``on_no_offset``."""
        self._engine.check_settled()
        check_partitions(partitions)
        self._engine.site.assign(partitions)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions too."""
        self._engine.check_settled()
        check_partitions(partitions)
        self._engine.site.assign(partitions, incremental=True)

    def unassign(self) -> None:
        """Read nothing."""
        self._engine.check_settled()
        self._engine.site.unassign()

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions no more."""
        self._engine.check_settled()
        check_partitions(partitions)
        self._engine.site.unassign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """What is read."""
        self._engine.check_open()
        return [] if self._engine.between_clusters else self._inner.assignment()

    def poll(self, timeout: float = -1) -> Message | None:
        """The next unconsumed record, or an error event; None after ``timeout`` seconds (negative: never).

        Raises:
            OffsetServiceAwayError: an answer is needed, and the policy is to stop.
            NoStartOffsetError: a partition has no start, and the policy is not to guess.
            ParallaxError: a move failed; the consumer goes on where it was.
        """
        messages = self._engine.fetch(
            lambda delivery, slice_s: [found] if (found := delivery.poll(slice_s)) is not None else [],
            timeout,
        )
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Up to ``num_messages`` of what `poll` returns: as many as there are when the first one comes.

        Raises:
            ParallaxError: as `poll`.
            ValueError: ``num_messages`` is negative or above a million.
        """
        check_count(num_messages)
        return self._engine.fetch(
            lambda delivery, slice_s: delivery.consume(num_messages, slice_s), timeout if num_messages else 0
        )

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 - confluent-kafka's own signature
    ) -> list[TopicPartition] | None:
        """Commit a message, offsets, or what is stored; with the metadata that a restarted consumer skips by.

        Returns:
            What was committed, unless ``asynchronous``.

        Raises:
            StaleMessageError: the message or offset belongs to the cluster before the last move.
            KafkaException: the cluster refused, nothing was stored (``_NO_OFFSET``, unless ``asynchronous``), or the
                message is an error.
            ValueError: both a message and offsets.
        """
        self._engine.check_settled()
        check_done(message, offsets)
        site = self._engine.site
        if message is not None:
            self._engine.provenance.check(message, site.generation)
            commits = site.committer.explicit([of_message(message)], seen=True)
        elif offsets is not None:
            commits = site.committer.explicit(offsets)
        else:
            commits = site.committer.stored()
            if not commits and asynchronous:
                return None
            if not commits:
                raise KafkaException(KafkaError(KafkaError._NO_OFFSET))  # noqa: SLF001 - librdkafka's own code
        # From on_lost or on_revoke at a move the cluster may be dead, and nobody waits for it.
        if site.left or (asynchronous and not site.committer.joined):
            site.committer.send_quietly(commits)
            return None if asynchronous else commits
        return site.committer.send(commits, asynchronous=asynchronous)

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None
    ) -> None:
        """Remember what is done, for the next commit (with ``enable.auto.offset.store`` false).

        Raises:
            StaleMessageError, ValueError: as `commit`.
            KafkaException: the partition is not assigned (``_UNKNOWN_PARTITION``), the message is an error, or
                ``enable.auto.offset.store`` is true (``_INVALID_ARG``).
        """
        self._engine.check_open()
        check_done(message, offsets)
        site = self._engine.site
        if message is not None:
            self._engine.provenance.check(message, site.generation)
            offsets = [of_message(message)]
        if offsets is None:
            raise ConsumerConfigError("store_offsets needs a message or offsets")
        site.committer.store(offsets, seen=message is not None)

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """The group's committed offsets at the present cluster."""
        self._engine.check_settled()
        check_partitions(partitions)
        return self._inner.committed(list(partitions), timeout)

    def consumer_group_metadata(self) -> Any:
        """What ``Producer.send_offsets_to_transaction`` needs, for a producer of the present cluster.

        Ask anew for each transaction: it belongs to the membership of this moment. Offsets are to come from
        `position`, whose metadata is committed with them.

        Raises:
            ConsumerConfigError: offsets are committed automatically, or moves start from what was delivered: a move
                would then take records for consumed whose transaction is aborted.
            GroupMovingError: a move has begun, or has not arrived yet. Abort the transaction; what it has read is
                delivered again at the destination.
        """
        return self._engine.group_metadata()

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Next offsets: every record below was delivered or skipped; OFFSET_INVALID for what is not assigned.

        They carry the metadata that a restarted consumer skips by, for ``Producer.send_offsets_to_transaction``.
        """
        self._engine.check_open()
        check_partitions(partitions)
        delivery = self._engine.site.delivery
        with delivery.lock:
            states = [(key_of(item), delivery.partitions.get(key_of(item))) for item in partitions]
            return [
                TopicPartition(*key)
                if state is None
                else TopicPartition(*key, state.gate.position, metadata=carrying(state, state.gate.position))
                for key, state in states
            ]

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver nothing of these partitions until `resume`."""
        self._engine.check_settled()
        check_partitions(partitions)
        self._engine.site.delivery.pause([key_of(item) for item in partitions])

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver again."""
        self._engine.check_settled()
        check_partitions(partitions)
        self._engine.site.delivery.resume([key_of(item) for item in partitions])

    def seek(self, partition: TopicPartition) -> None:
        """Go on from another offset. Below the resume offset of the last move, nothing is skipped any more.

        Raises:
            KafkaException: the partition is not assigned (``_UNKNOWN_PARTITION``).
        """
        self._engine.check_settled()
        check_partition(partition)
        self._engine.seek(partition)

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's own signature
    ) -> tuple[int, int]:
        """Log start and last stable offset of a partition of the present cluster."""
        self._engine.check_settled()
        return self._inner.get_watermark_offsets(partition, timeout, cached=cached)

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """The first offsets at the present cluster whose records are not older than the timestamps in ``offset``."""
        self._engine.check_settled()
        return self._inner.offsets_for_times(partitions, timeout)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of the present cluster."""
        self._engine.check_settled()
        return self._inner.list_topics(topic, timeout) if topic else self._inner.list_topics(timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """The id of the present cluster."""
        self._engine.check_settled()
        return self._inner.cluster_id(timeout)

    def memberid(self) -> str | None:
        """This member's id in the group at the present cluster; None while it has none."""
        self._engine.check_open()
        return None if self._engine.between_clusters else self._inner.memberid()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in to the present region's cluster with these from now on, also when the consumer comes back to it."""
        self._engine.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Commit if that is automatic, leave the group and end; bounded by ``close_timeout_ms``."""
        with self._made_here:
            self._engine.close()

    @property
    def _inner(self) -> InnerConsumer:
        return self._engine.site.inner


def _service(
    services: Sequence[str] | OffsetService, credentials: ServiceCredentials | None
) -> OffsetService:
    if isinstance(services, str):
        raise ConsumerConfigError("services is a list of 'host:port', not one string")
    if isinstance(services, Sequence):
        return OffsetClient(services, credentials=credentials)
    if credentials is not None:
        raise ConsumerConfigError("service_credentials go with a list of services: a client has its own")
    return services


def _confluent_consumer(config: dict[str, Any]) -> InnerConsumer:
    return cast("InnerConsumer", Consumer(config))
