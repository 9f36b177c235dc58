"""Makes the inner consumers, whose commit callbacks the application hears only while they are the present one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offsetsvc.consumer.ports import ConsumerFactory, InnerConsumer
from offsetsvc.consumer.settings import Settings


class InnerConsumers:
    """The inner consumers of one application's consumer.

    Args:
        settings: what librdkafka is told.
        factory: makes a consumer from that.
        present: the generation of the present site.
    """

    def __init__(self, settings: Settings, factory: ConsumerFactory, present: Callable[[], int]) -> None:
        self._settings = settings
        self._factory = factory
        self._present = present

    def make(self, region: str, generation: int) -> InnerConsumer:
        """A consumer of a region's aggregate cluster."""
        config = self._settings.for_region(region)
        callback = self._settings.on_commit
        if callback is not None:

            def on_commit(error: object, partitions: Sequence[object]) -> None:
                if generation == self._present():
                    callback(error, partitions)

            config["on_commit"] = on_commit
        return self._factory(config)
