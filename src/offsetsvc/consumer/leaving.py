"""Leaves clusters without waiting for them: the one that is left may be dead."""

from __future__ import annotations

import threading

import structlog
from confluent_kafka import KafkaException

from offsetsvc.consumer.ports import InnerConsumer
from parallax.runtime.deadline import Deadline

_log = structlog.get_logger("parallax.failover_consumer")


class Leaving:
    """Closes inner consumers in threads of their own."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def leave(self, inner: InnerConsumer, region: str) -> None:
        """Close a consumer in the background; commits that it has under way are waited for there."""

        def close() -> None:
            try:
                inner.close()
            except (KafkaException, RuntimeError) as error:
                _log.warning("leaving_failed", region=region, error=str(error))

        # A daemon: the handle of a dead cluster must not keep the application from ending.
        thread = threading.Thread(target=close, name=f"parallax-leave-{region}", daemon=True)
        thread.start()
        self._threads = [item for item in self._threads if item.is_alive()] + [thread]

    def wait(self, timeout_ms: float) -> bool:
        """Wait for all of them.

        Returns:
            Whether all were closed within ``timeout_ms``.
        """
        deadline = Deadline.after_ms(timeout_ms)
        for thread in self._threads:
            thread.join(deadline.remaining_s)
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            _log.warning("leaving_takes_long", threads=late, waited_ms=timeout_ms)
        return not late
