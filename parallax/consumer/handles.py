"""Handles of librdkafka's: made for each cluster, and made anew where one has lost its place in the group for good."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog
from confluent_kafka import KafkaError, Message, TopicPartition

from parallax.consumer.errors import ConsumerConfigError, Raised
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.leaving import Leaving
from parallax.consumer.ports import ConsumerFactory, InnerConsumer
from parallax.consumer.settings import Settings
from parallax.consumer.site import ConsumerSite

_log = structlog.get_logger("parallax.failover_consumer")

REST_S = 30.0
"""Between two new handles. A fatal error that comes sooner is the application's to see, too: it has to wait."""

_FENCED = "fenced"
"""In the text of the fatal error; its code is the same for all of them."""

_CALLED_BY_POLL = ("on_commit", "error_cb", "stats_cb", "throttle_cb")


class InnerConsumers:
    """The inner consumers of one application's consumer.

    Args:
        settings: what librdkafka is told.
        factory: makes a consumer from that.
        present: the present site.
        raised: keeps what the application's callbacks raise.
    """

    def __init__(
        self,
        settings: Settings,
        factory: ConsumerFactory,
        present: Callable[[], ConsumerSite],
        raised: Raised,
    ) -> None:
        self._settings = settings
        self._factory = factory
        self._present = present
        self._raised = raised
        self._credentials: dict[str, dict[str, str]] = {}

    def remember_credentials(self, region: str, username: str, password: str) -> None:
        """What the application has set at a region's cluster holds for later consumers of it."""
        self._credentials[region] = {"sasl.username": username, "sasl.password": password}

    def make(self, region: str, generation: int) -> InnerConsumer:
        """A consumer of a region's aggregate cluster."""
        callback = self._settings.on_commit

        def on_commit(error: object, partitions: Sequence[TopicPartition]) -> None:
            site = self._present()
            if generation != site.generation:
                return
            site.committer.refused(item for item in partitions if error is not None or item.error is not None)
            if callback is not None:
                callback(error, partitions)

        config = {
            **self._settings.for_region(region),
            **self._credentials.get(region, {}),
            "on_commit": on_commit,
        }
        called = {name: config[name] for name in _CALLED_BY_POLL if callable(config.get(name))}
        return self._factory(config | {name: self._raised.kept_from(call) for name, call in called.items()})

    def make_there(self, region: str, generation: int, events: EventQueue) -> InnerConsumer:
        """A consumer where a move leads.

        Raises:
            ConsumerConfigError: librdkafka refuses its settings; the move has failed, and that is told.
        """
        try:
            return self.make(region, generation)
        except Exception as failure:
            error = ConsumerConfigError(f"no consumer can be made for region {region!r}: {failure}")
            origin = self._present().region
            events.put(FailoverEvent(EventKind.MOVE_FAILED, region, origin, message=str(error)))
            raise error from failure


class OwnPlace:
    """Keeps back the fatal errors that a new handle heals.

    librdkafka gives a static member up for good when the coordinator once says that another consumer has its
    ``group.instance.id``. Of an id that was made up here there is no other consumer: it was its own answer to an
    outage. It forgets its member id when the session has timed out, commits that waited for the coordinator are sent
    without one, and the coordinator takes them for those of a stranger (librdkafka's issue 3437). Nothing is fetched
    from then on, however well the cluster is; so the place is taken again with a new handle.

    Args:
        own: the instance id was made up here; with the application's own, somebody else may well have it.
        handles: makes the new handle.
        leaving: closes the old one.
    """

    def __init__(
        self,
        *,
        own: bool,
        handles: InnerConsumers,
        leaving: Leaving,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = own
        self._handles = handles
        self._leaving = leaving
        self._clock = clock
        self._given_up: InnerConsumer | None = None
        self._healed_at_s: float | None = None

    def sift(self, inner: InnerConsumer, messages: list[Message]) -> list[Message]:
        """The messages without a fatal error that is healed at once."""
        if all(message.error() is None for message in messages):  # as nearly always
            return messages
        kept = []
        for message in messages:
            if self._is_to_be_healed(message.error()):
                self._given_up = inner
                _log.warning("place_given_up", error=str(message.error()))
                if self._rested():
                    continue
            kept.append(message)
        return kept

    def take_again(self, site: ConsumerSite) -> None:
        """Join again if the site's handle was given up."""
        given_up = self._given_up
        if given_up is None or (given_up is site.inner and not self._rested()):
            return
        self._given_up = None
        if given_up is not site.inner:  # a move has left it behind
            return
        self._healed_at_s = self._clock()
        try:
            site.go_on_with(self._handles.make(site.region, site.generation))
        finally:
            # It is out of the group already; its place is what the new one takes.
            self._leaving.leave(given_up, site.region, (), (), give_up_place=False)

    def _rested(self) -> bool:
        return self._healed_at_s is None or self._clock() - self._healed_at_s >= REST_S

    def _is_to_be_healed(self, error: KafkaError | None) -> bool:
        fatal = error is not None and error.code() == KafkaError._FATAL  # noqa: SLF001 - librdkafka's own code
        return self._own and fatal and _FENCED in str(error)
