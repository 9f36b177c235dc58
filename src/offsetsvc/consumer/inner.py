"""Makes the inner consumers, whose commits the site and the application hear of only while they are the present one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import TopicPartition

from offsetsvc.consumer.ports import ConsumerFactory, InnerConsumer
from offsetsvc.consumer.settings import Settings
from offsetsvc.consumer.site import Site


class InnerConsumers:
    """The inner consumers of one application's consumer.

    Args:
        settings: what librdkafka is told.
        factory: makes a consumer from that.
        present: the present site.
    """

    def __init__(self, settings: Settings, factory: ConsumerFactory, present: Callable[[], Site]) -> None:
        self._settings = settings
        self._factory = factory
        self._present = present

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

        return self._factory({**self._settings.for_region(region), "on_commit": on_commit})
