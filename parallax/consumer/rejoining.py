"""A consumer's place in its group, under an instance id of its own making, taken again after librdkafka gave it up.

librdkafka gives a static member up for good when the coordinator once says that another consumer has its
``group.instance.id``. Of an id that was made up here there is no other consumer: it was its own answer to an
outage. It forgets its member id when the session has timed out, commits that waited for the coordinator are sent
without one, and the coordinator takes them for those of a stranger (librdkafka's issue 3437). Nothing is fetched
from then on, however well the cluster is; so the place is taken again with a new handle.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaError, Message

from parallax.consumer.inner import InnerConsumers
from parallax.consumer.leaving import Leaving
from parallax.consumer.ports import InnerConsumer
from parallax.consumer.site import Site

_log = structlog.get_logger("parallax.failover_consumer")

REST_S = 30.0
"""Between two new handles. A fatal error that comes sooner is the application's to see, too: it has to wait."""

_FENCED = "fenced"
"""In the text of the fatal error; its code is the same for all of them."""


class OwnPlace:
    """Keeps back the fatal errors that a new handle heals.

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

    def take_again(self, site: Site) -> None:
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
