"""An admin client that gives a cluster less time once it is known that no broker can be reached."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from parallax.adapters.kafka.librdkafka import Settings
from parallax.adapters.kafka.links import DOWN_TIMEOUT_S

_HOLDS_S = 1.5
"""librdkafka tries to connect at least once a second (`reconnect.backoff.max.ms`), and tells when that fails."""


class AdminLink:
    """One cluster's admin client, and how long its next call may take.

    A broker that refuses connections would cost every call its whole time-out, although librdkafka knows at
    once. A cluster that is merely silent costs the time-out.

    Args:
        settings: librdkafka's.
        timeout_s: bound of a call.
        clock: seconds, never going back.
    """

    def __init__(
        self, settings: Settings, *, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.longest_s = timeout_s
        self._clock = clock
        self._down_at_s: float | None = None
        self.client = AdminClient(
            {**settings, "error_cb": self.on_error}  # type: ignore[dict-item] # the stub knows no callbacks
        )

    def timeout_s(self) -> float:
        """Bound of the next call."""
        self.client.poll(0)
        return min(self.longest_s, DOWN_TIMEOUT_S) if self._is_down() else self.longest_s

    def on_error(self, error: KafkaError) -> None:
        """Take note of what librdkafka tells of connections, while `timeout_s` polls it."""
        lost_all = error.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - librdkafka's name for it
        still = error.code() == KafkaError._TRANSPORT and self._is_down()  # noqa: SLF001 - as above
        if lost_all or still:
            self._down_at_s = self._clock()

    def _is_down(self) -> bool:
        return self._down_at_s is not None and self._clock() - self._down_at_s < _HOLDS_S
