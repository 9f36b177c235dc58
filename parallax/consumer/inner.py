"""Makes the inner consumers, whose commits the site and the application hear of only while they are the present one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import TopicPartition

from parallax.consumer.errors import ConsumerConfigError, Raised
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.ports import ConsumerFactory, InnerConsumer
from parallax.consumer.settings import Settings
from parallax.consumer.site import Site

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
        self, settings: Settings, factory: ConsumerFactory, present: Callable[[], Site], raised: Raised
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
