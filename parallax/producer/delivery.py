"""Records between ``produce`` and their reports: held, handed to a region, taken back, sent again."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from parallax.producer.addresses import Addresses
from parallax.producer.errors import ProducerClosedError
from parallax.producer.events import DownReason, ProducerEvent
from parallax.producer.ledger import ProducerLedger
from parallax.producer.ports import ProducerFactory
from parallax.producer.regions import Regions
from parallax.producer.settings import ProducerPolicies, ProducerSettings
from parallax.producer.site import (
    CLUSTER_FAILURES,
    FATAL,
    PURGED,
    REFUSED_TOPIC,
    ProducedRecord,
    ProducerSite,
    error_of,
)


class ProducerDelivery:
    """The records of one producer. What is said to be inner is called with the lock held.

    Invariants, whichever thread does what:
        A. A record that `produce` took is in exactly one place: held, handed to one site, or reported.
        B. It is reported once; as acknowledged by a region if and only if that region's site says so.
        C. While the present site is suspected or being left, nothing is handed over.
        D. A site that was left sends nothing more: librdkafka has given a record up before it goes elsewhere.

    Args:
        settings: what the application configured.
        policies: where Kafka leaves a choice.
        addresses: where the regional clusters are.
        names: the regions in the order of preference; the first is home.
        factory: makes inner producers.
        topics: produced to sooner or later.
        on_event: the application's callback.
        clock: seconds, monotonic.
        wall_ms: milliseconds since the epoch.

    Attributes:
        lock: guards everything here, in `Regions` and in every `ProducerSite`.
        ledger: what is unreported.
        regions: what is known of them.
        site: where new records go.
        others: sites before it that owe something still.
        moving: the present site is new, and the one before it is being emptied.
        closed: no more records.
        taken_back: records that sites which were left did not acknowledge, since the last move began.
        woken: set when there is something to look at.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        policies: ProducerPolicies,
        addresses: Addresses,
        names: Sequence[str],
        *,
        factory: ProducerFactory,
        topics: Sequence[str] = (),
        on_event: Callable[[ProducerEvent], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._settings = settings
        self._policies = policies
        self._addresses = addresses
        self._factory = factory
        self._on_event = on_event
        self._clock = clock
        self._wall_ms = wall_ms
        self.lock = threading.Lock()
        self.woken = threading.Event()
        self.ledger = ProducerLedger(settings.max_messages, settings.max_bytes)
        self.regions = Regions(names, policies, topics=topics, tell=self.tell)
        self.moving = self.closed = False
        self.taken_back = 0
        self._sequence = 0
        self._longest_s = settings.message_timeout_ms * len(names) / 1_000
        self.others: list[ProducerSite] = []
        self.site = self.new_site(self.regions.home)
        # Nothing is handed over before the region has answered once: if it is down from the start, it is known
        # for sure that it has none of the records.
        self.site.suspect(clock())

    def check_open(self) -> None:
        """Refuse after `close`.

        Raises:
            ProducerClosedError: it was closed.
        """
        if self.closed:
            raise ProducerClosedError("the producer was closed; make a new one")

    def produce(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        partition: int,
        on_delivery: Callable[..., Any] | None,
        timestamp_ms: int,
        headers: Any,
    ) -> None:
        """Take a record.

        Raises:
            BufferError: no room.
            KafkaException: librdkafka refuses the record.
            ProducerClosedError: too late.
            TypeError, OverflowError: see `ProducedRecord`.
        """
        self.take(self.record(topic, value, key, partition, on_delivery, timestamp_ms, headers))

    def record(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        partition: int,
        on_delivery: Callable[..., Any] | None,
        timestamp_ms: int,
        headers: Any,
    ) -> ProducedRecord:
        """A record that is not taken yet.

        Raises:
            TypeError, OverflowError: see `ProducedRecord`.
        """
        return ProducedRecord(
            topic=topic,
            value=value,
            key=key,
            partition=partition,
            timestamp_ms=self._wall_ms() if timestamp_ms == 0 else timestamp_ms,
            headers=headers,
            on_delivery=self._settings.on_delivery if on_delivery is None else on_delivery,
            born_s=self._clock(),
            settle=self._settled,
        )

    def take(self, record: ProducedRecord) -> None:
        """Take a record.

        Raises:
            BufferError: no room.
            KafkaException: librdkafka refuses the record.
            ProducerClosedError: too late.
        """
        with self.lock:
            self.check_open()
            if record.size_bytes > self._settings.max_message_bytes:
                raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
            self.ledger.check_room(record)
            record.sequence = self._sequence
            if self._holding or self.ledger.held_records:
                self.ledger.hold(record)
            else:
                self._hand_new(record, record.born_s)
            self._sequence += 1
            self.ledger.accept(record)
            if self.regions.produced_to(record.topic):
                self.woken.set()

    def purge(self, *, in_queue: bool, in_flight: bool, blocking: bool) -> None:
        """Give up what was produced so far."""
        with self.lock:
            self.check_open()
            if in_queue:
                error = KafkaError(KafkaError._PURGE_QUEUE)  # noqa: SLF001 - librdkafka's own code
                while self.ledger.held_records:
                    self.ledger.fail(self.ledger.pop(), error)
            sites = [self.site, *self.others]
            for site in sites:
                site.given_up(self._sequence, in_queue=in_queue, in_flight=in_flight)
        for site in sites:
            site.inner.purge(in_queue=in_queue, in_flight=in_flight, blocking=blocking)

    # --- records ------------------------------------------------------------------------------------------

    @property
    def _holding(self) -> bool:
        return self.moving or self.site.suspected_at_s is not None

    def suspect(self, site: ProducerSite, now: float) -> None:
        """Hand nothing to a site until it has shown that it is well. Inner."""
        if site.suspected_at_s is None and not site.left:
            site.suspect(now)
            self.woken.set()

    def _fail(self, site: ProducerSite, reason: DownReason, now: float) -> None:
        site.fail(reason, now)
        self.woken.set()

    def _hand_new(self, record: ProducedRecord, now: float) -> None:
        try:
            self.site.hand(record, now)
        except KafkaException as refused:
            if not _is_fatal(error_of(refused)):
                raise
            self._fail(self.site, DownReason.FATAL, now)
            self.ledger.hold(record)

    def hand_over(self, now: float) -> None:
        """Hand over what is held, in the order of production. Inner."""
        while self.ledger.held_records and not self._holding:
            record = self.ledger.pop()
            try:
                self._hand_new(record, now)
            except BufferError:
                self.ledger.hold(record)
                return
            except KafkaException as refused:
                self._refused(record, error_of(refused).code())
                self.ledger.fail(record, error_of(refused))
            except (TypeError, ValueError, OverflowError) as refused:
                # What confluent-kafka says of headers or of a partition that can't be.
                self.ledger.fail(record, KafkaError(KafkaError._INVALID_ARG, str(refused)))  # noqa: SLF001 - librdkafka's own code
            else:
                self.ledger.resent += bool(record.unconfirmed and record.site is not None)

    def expire(self, now: float) -> None:
        """Report what has waited for a region for too long. Inner."""
        while (record := self.ledger.oldest()) is not None and now - record.born_s >= self._longest_s:
            self.ledger.fail(self.ledger.pop(), KafkaError(KafkaError._MSG_TIMED_OUT))  # noqa: SLF001 - librdkafka's own code

    def _settled(self, record: ProducedRecord, error: KafkaError | None, message: Message) -> None:
        """A site has reported a record; this is called in whichever thread polls it."""
        now = self._clock()
        with self.lock:
            site = record.site
            if site is None:  # librdkafka reports once
                return
            record.site = None
            site.settled(acknowledged=error is None, now_s=now)
            if error is None:
                self.ledger.report(record, None, message, site.region)
                return
            code = error.code()
            self._refused(record, code)
            if code in PURGED or code in CLUSTER_FAILURES:
                record.taken_back(site.region, message)
                self.taken_back += site.left
            given_up = code in PURGED and site.was_given_up(record, code)
            if code in CLUSTER_FAILURES and not given_up:
                self._fail(site, DownReason.FATAL if code in FATAL else DownReason.TIMED_OUT, now)
            if record.unconfirmed and not given_up and self._may_resend(record, code, site, now):
                self.ledger.hold(record)
            else:
                self.ledger.report(record, error, message)

    def _refused(self, record: ProducedRecord, code: int) -> None:
        """Ask no other region for the record's topic if this one does not take it; a later record names it again."""
        if code in REFUSED_TOPIC:
            self.regions.forget(record.topic)

    def _may_resend(self, record: ProducedRecord, code: int, site: ProducerSite, now: float) -> bool:
        if code not in PURGED and code not in CLUSTER_FAILURES:
            return False
        if self._policies.on_unacknowledged == "report" or now - record.born_s >= self._longest_s:
            return False
        return site is not self.site or self.regions.candidate(site, self._addresses.clusters) is not None

    # --- inner producers and events -----------------------------------------------------------------------

    def new_site(self, region: str) -> ProducerSite:
        """An inner producer for a region. It needs no lock, and may take seconds.

        Raises:
            KafkaException: librdkafka refuses the settings.
        """
        config = self._settings.for_cluster(self._addresses.clusters[region])
        made: list[weakref.ref[ProducerSite]] = []

        def erred(error: KafkaError) -> None:
            # Weakly: a site that is done with goes with its last reference, and its producer with it.
            site = made[0]()
            if site is not None:
                self._erred(site, error)

        config["error_cb"] = erred
        for name in ("stats_cb", "throttle_cb"):
            callback = self._settings.callbacks.get(name)
            if callback is not None:
                config[name] = partial(self.ledger.tell, callback)
        site = ProducerSite(region, self._factory(config), self._clock())
        made.append(weakref.ref(site))
        return site

    def _erred(self, site: ProducerSite, error: KafkaError) -> None:
        """An inner producer speaks of its connections, or says that it can't go on."""
        now = self._clock()
        with self.lock:
            if _is_fatal(error):
                self._fail(site, DownReason.FATAL, now)
            elif error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - librdkafka's own code
                self.suspect(site, now)
            callback = self._settings.callbacks.get("error_cb")
            if callback is not None:
                self.ledger.tell(callback, error)

    def tell(self, event: ProducerEvent) -> None:
        """Log an event, and keep it for the thread that polls. Inner."""
        event.log()
        if self._on_event is not None:
            self.ledger.tell(self._on_event, event)


def _is_fatal(error: KafkaError) -> bool:
    return bool(error.fatal()) or error.code() in FATAL
