"""A Kafka producer that goes on in another region while its own is down: nothing acknowledged is lost.

It is used like `confluent_kafka.Producer`, which it wraps, and needs the base install only
(docs/failover-producer.md). Records go to the *regional* cluster of its region. If that is down, they go to the
next region's, and back when it is well again: every region's records reach all aggregate clusters anyway.

Two things can't be had across regions, and are said instead of hidden:

* A record that was handed to the region that went down, and was not acknowledged, may have been written there. It is
  sent to the next region (``on_unacknowledged="resend"``: never lost, maybe there twice, and its report says so)
  or reported as failed (``"report"``: never sent twice, maybe there nevertheless).
* Order holds for what one region takes between two moves. The aggregate clusters merge regions in any order, so a key's
  records before and after a move may be consumed the other way round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self, cast

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from parallax.client.client import OffsetClient
from parallax.client.credentials import ServiceCredentials
from parallax.errors import ParallaxError, UnknownRegionError
from parallax.producer.addresses import Addresses, DescribedAddresses, GivenAddresses
from parallax.producer.delivery import ProducerDelivery
from parallax.producer.engine import ProducerEngine
from parallax.producer.errors import ProducerConfigError, TransactionsUnsupportedError
from parallax.producer.events import ProducerEvent
from parallax.producer.ledger import ProducerCounts
from parallax.producer.pilot import Pilot
from parallax.producer.ports import InnerProducer, ProbeFactory, ProducerFactory, RegionService
from parallax.producer.probe import KafkaProbe
from parallax.producer.settings import OnUnacknowledged, ProducerPolicies, read_settings
from parallax.producer.site import OnDelivery, error_of

_SLICE_S = 0.1
"""The longest wait in a cluster's client before looking at the regions again."""
_SERVE_AGAIN_S = 1.0


class FailoverProducer:
    """Produces to the regional cluster of its region, and of the next one while that is down.

    Delivery callbacks get a third argument, the `DeliveryReport`: which region acknowledged the record, and whether
    it may have been written in another one as well. Like `confluent_kafka.Producer` it may be used by several
    threads; callbacks are called by those that poll or flush.

    Args:
        config: librdkafka settings without ``bootstrap.servers``; the same for every region, so that a key goes to
            the same partition everywhere. ``enable.idempotence`` is true unless told otherwise, ``acks`` always
            ``all``. The queue's limits hold for all regions together; ``message.timeout.ms`` in each.
        region: where to produce by preference.
        clusters: for each region the bootstrap servers of its regional cluster, or a mapping with these and other
            settings of that connection; or
        services: ``host:port`` of offset services, which describe the clusters; or a client, which stays open. Asked
            at the start and now and then; a move needs no service.
        service_credentials: what proves to these services who calls, and whom it trusts (`parallax.ServiceCredentials`).
        regions: the order in which regions are tried; default: ``region``, then the others as listed.
        topics: what will be produced to. It is checked at once whether the other regions have these topics, with as
            many partitions; topics that are not named are checked at their first record.
        on_event: told of moves and of regions that could not take over, in the thread that polls.
        on_unacknowledged: what becomes of records that a region went down with: ``resend`` or ``report``.
        unreachable_after_ms: no broker answers for so long: the region is down.
        stalled_after_ms: brokers answer, but acknowledge none of the waiting records for so long: down, too.
        return_after_ms: a region has to be well for so long before records go back there.
        check_interval_ms: how often other regions are checked while nothing is wrong.
        close_timeout_ms: how long ``close`` waits for acknowledgements.
        producer_factory: makes the inner producer of a cluster from its settings.
        probe_factory: makes what asks a cluster whether it is there.

    Raises:
        ProducerConfigError: a setting that can't be honoured; the message says what to do.
        TransactionsUnsupportedError: a ``transactional.id`` is given.
        UnknownRegionError: a region named has no regional cluster.
        UnavailableError: no offset service told where the clusters are.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        region: str,
        clusters: Mapping[str, str | Mapping[str, Any]] | None = None,
        services: Sequence[str] | RegionService | None = None,
        service_credentials: ServiceCredentials | None = None,
        regions: Sequence[str] | None = None,
        topics: Sequence[str] = (),
        on_event: Callable[[ProducerEvent], None] | None = None,
        on_unacknowledged: OnUnacknowledged = "resend",
        unreachable_after_ms: float = 3_000,
        stalled_after_ms: float = 20_000,
        return_after_ms: float = 10_000,
        check_interval_ms: float = 60_000,
        close_timeout_ms: float = 10_000,
        producer_factory: ProducerFactory | None = None,
        probe_factory: ProbeFactory | None = None,
    ) -> None:
        settings = read_settings(config)
        _check_callable("on_event", on_event)
        if isinstance(topics, str):
            raise ProducerConfigError(f"topics is a list of names: [{topics!r}], not one string")
        policies = ProducerPolicies(
            on_unacknowledged=on_unacknowledged,
            unreachable_after_ms=unreachable_after_ms,
            stalled_after_ms=stalled_after_ms,
            return_after_ms=return_after_ms,
            check_interval_ms=check_interval_ms,
            close_timeout_ms=close_timeout_ms,
        )
        addresses = _addresses(clusters, services, service_credentials, settings.base)
        self._close_timeout_s = close_timeout_ms / 1_000
        self._delivery = ProducerDelivery(
            settings,
            policies,
            addresses,
            _order(region, regions, addresses),
            factory=_confluent_producer if producer_factory is None else producer_factory,
            topics=topics,
            on_event=on_event,
        )
        self._engine = ProducerEngine(self._delivery, settings, policies, addresses)
        self._pilot = Pilot(
            self._engine,
            KafkaProbe if probe_factory is None else probe_factory,
            refresh_every_s=check_interval_ms / 1_000,
        )
        self._closed = False
        self._pilot.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- regions ------------------------------------------------------------------------------------------

    @property
    def region(self) -> str:
        """Where new records go."""
        return self._delivery.site.region

    @property
    def counts(self) -> ProducerCounts:
        """What became of the records so far."""
        return self._delivery.ledger.counts

    def problems(self) -> Mapping[str, ParallaxError]:
        """Regions that could not take records now, and why, as last checked.

        The errors are UnknownTopicError, PartitionCountError, TopicRefusedError and ClusterUnavailableError.
        """
        return self._engine.problems()

    # --- as confluent_kafka.Producer ----------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
    ) -> None:
        """Take a record; nothing is added to it.

        While its region is suspected the record waits here, and an error that librdkafka would raise at once comes
        as a failed report.

        Args:
            topic: the topic.
            value: the payload.
            key: the key.
            partition: -1: librdkafka's partitioner chooses.
            callback: the same as ``on_delivery``, and goes before it.
            on_delivery: called with error, message and `DeliveryReport` when the record has ended.
            timestamp: milliseconds since the epoch; 0: now. It stays the same wherever the record goes.
            headers: the headers.

        Raises:
            BufferError: as many records or bytes wait as ``queue.buffering.max.*`` allows; poll, and try again.
            KafkaException: librdkafka refuses the record.
            ProducerClosedError: the producer was closed.
            TypeError, OverflowError: an argument of another type, or beyond what Kafka can hold.
        """
        on_delivery = on_delivery if callback is None else callback
        self._delivery.produce(topic, value, key, partition, on_delivery, timestamp, headers)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Take several records of one topic.

        Args:
            topic: the topic.
            messages: for each record its ``value``, ``key``, ``partition``, ``timestamp``, ``headers`` and ``callback``,
                as `produce` takes them; all may be missing. One that is refused gets the KafkaError as ``_error``.
            partition: of records that name none.
            callback: the same as ``on_delivery``, and goes before it.
            on_delivery: for records without a ``callback``.

        Returns:
            How many records were taken.

        Raises:
            ProducerClosedError: the producer was closed.
            TypeError, OverflowError: as `produce`, before any record is taken.
        """
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        on_delivery = on_delivery if callback is None else callback
        records = []
        for number, message in enumerate(messages):
            if not isinstance(message, dict):
                raise TypeError(f"Message at index {number} must be a dict")
            own = {key: value for key, value in message.items() if value is not None}
            try:
                record = self._delivery.record(
                    topic,
                    own.get("value"),
                    own.get("key"),
                    own.get("partition", partition),
                    own.get("callback", on_delivery),
                    own.get("timestamp", 0),
                    own.get("headers"),
                )
            except (TypeError, OverflowError) as error:
                error.add_note(f"in the message at index {number}")
                raise
            records.append(record)
        taken = 0
        for record, message in zip(records, messages, strict=True):
            try:
                self._delivery.take(record)
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)  # noqa: SLF001 - librdkafka's own code
            except KafkaException as refused:
                message["_error"] = error_of(refused)
            else:
                taken += 1
        return taken

    def poll(self, timeout: float = -1) -> int:
        """Call callbacks, waiting up to ``timeout`` seconds for the first (negative: for ever).

        Returns:
            How many were called.
        """
        self._delivery.check_open()
        deadline_s = None if timeout < 0 else time.monotonic() + timeout
        while True:
            served = self._engine.turn(_slice_s(deadline_s))
            if served or (deadline_s is not None and time.monotonic() >= deadline_s):
                return served

    def flush(self, timeout: float = -1) -> int:
        """Wait until every record is reported, up to ``timeout`` seconds (negative: for ever).

        Returns:
            How many are not.
        """
        self._delivery.check_open()
        deadline_s = None if timeout < 0 else time.monotonic() + timeout
        while len(self):
            self._engine.turn(_slice_s(deadline_s), flush=True)
            if deadline_s is not None and time.monotonic() >= deadline_s:
                break
        return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:  # noqa: FBT001, FBT002 - confluent-kafka's own signature
        """Give up what was produced so far, in every region; poll or flush report it as purged."""
        self._delivery.purge(in_queue=in_queue, in_flight=in_flight, blocking=blocking)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of the present region's cluster."""
        self._delivery.check_open()
        inner = self._delivery.site.inner
        return inner.list_topics(topic, timeout) if topic else inner.list_topics(timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """The id of the present region's cluster."""
        self._delivery.check_open()
        return self._delivery.site.inner.cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Authenticate so from now on, in every region."""
        self._engine.set_credentials(username, password)

    def close(self) -> bool:
        """Flush up to ``close_timeout_ms``, report what is left as failed, and end.

        Returns:
            Whether every record had ended by itself.
        """
        if self._closed:
            return True
        raised: list[Exception] = []
        left = self._flush_through(self._close_timeout_s, raised)
        if left:
            self.purge()
            self._flush_through(_SERVE_AGAIN_S, raised)
        sites = self._engine.close()
        self._closed = True
        # Else a round is under way that still uses them: they go with their last reference.
        if self._pilot.stop(self._close_timeout_s):
            for site in sites:
                site.inner.close()
        if raised:
            raise raised[0]
        return left == 0

    def _flush_through(self, timeout_s: float, raised: list[Exception]) -> int:
        """Flush, and keep what callbacks raise: the records behind theirs are to be sent and reported as well."""
        ends_at_s = time.monotonic() + timeout_s
        while True:
            try:
                return self.flush(max(0.0, ends_at_s - time.monotonic()))
            except Exception as error:  # noqa: BLE001 - raised once all is closed
                raised.append(error)
                if time.monotonic() >= ends_at_s:
                    return len(self)

    def __len__(self) -> int:
        """Records that are not reported yet, and events that the application has not heard."""
        return len(self._delivery.ledger)

    def __bool__(self) -> bool:
        return True

    # --- transactions: refused ----------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> NoReturn:  # noqa: ARG002 - confluent-kafka's own signature
        """Refuse: a transaction can't span regions.

        Raises:
            TransactionsUnsupportedError: always, as every method of transactions here; a KafkaException.
        """
        self._refuse_transactions()

    def begin_transaction(self) -> NoReturn:
        """Refuse; see `init_transactions`."""
        self._refuse_transactions()

    def commit_transaction(self, timeout: float = -1) -> NoReturn:  # noqa: ARG002 - as above
        """Refuse; see `init_transactions`."""
        self._refuse_transactions()

    def abort_transaction(self, timeout: float = -1) -> NoReturn:  # noqa: ARG002 - as above
        """Refuse; see `init_transactions`."""
        self._refuse_transactions()

    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],  # noqa: ARG002 - as above
        group_metadata: Any,  # noqa: ARG002 - as above
        timeout: float = -1,  # noqa: ARG002 - as above
    ) -> NoReturn:
        """Refuse; see `init_transactions`."""
        self._refuse_transactions()

    def _refuse_transactions(self) -> NoReturn:
        self._delivery.check_open()
        raise TransactionsUnsupportedError(
            "a transaction can't span regions: use confluent_kafka.Producer with one regional cluster"
        )


def _slice_s(deadline_s: float | None) -> float:
    return _SLICE_S if deadline_s is None else max(0.0, min(_SLICE_S, deadline_s - time.monotonic()))


def _check_callable(name: str, callback: object) -> None:
    if callback is not None and not callable(callback):
        raise ProducerConfigError(f"{name} is not callable")


def _addresses(
    clusters: Mapping[str, str | Mapping[str, Any]] | None,
    services: Sequence[str] | RegionService | None,
    credentials: ServiceCredentials | None,
    own: dict[str, Any],
) -> Addresses:
    if (clusters is None) == (services is None):
        raise ProducerConfigError("give either clusters={region: ...} or services=[...], which describe them")
    if credentials is not None and not isinstance(services, Sequence):
        raise ProducerConfigError("service_credentials go with a list of services: a client has its own")
    if clusters is not None:
        return GivenAddresses(clusters)
    if isinstance(services, str):
        raise ProducerConfigError("services is a list of 'host:port', not one string")
    if isinstance(services, Sequence):
        return DescribedAddresses(OffsetClient(services, credentials=credentials), own, made_here=True)
    return DescribedAddresses(cast("RegionService", services), own)


def _order(region: str, regions: Sequence[str] | None, addresses: Addresses) -> list[str]:
    wanted = [region, *(addresses.clusters if regions is None else regions)]
    order = list(dict.fromkeys(wanted))
    for name in order:
        if name not in addresses.clusters:
            known = ", ".join(sorted(addresses.clusters)) or "none"
            raise UnknownRegionError(
                f"region {name!r} has no regional cluster here; those that have: {known}"
            )
    return order


def _confluent_producer(config: dict[str, Any]) -> InnerProducer:
    return cast("InnerProducer", Producer(config))
