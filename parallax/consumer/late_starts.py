"""Assigned partitions of which nobody could tell yet where they begin, and when that is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from confluent_kafka import TopicPartition

from parallax.consumer.delivery import key_of
from parallax.consumer.ports import Key

START_AGAIN_S = 0.5
"""Between two attempts, each of which tells the application if it failed."""


class LateStarts:
    """Keeps them until they have begun, are taken away, or the application has placed them itself.

    An attempt may take long, and its error leaves the application's call at once. So the inner consumer is polled at
    least once between two: the other partitions go on, and a rebalance is heard of.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[Key, TopicPartition] = {}
        self._tried_at_s = 0.0
        self._tried_at_step = -1

    def assigned(self, partitions: Sequence[TopicPartition], *, incremental: bool) -> None:
        """Take partitions as they are assigned: besides others, or instead of them."""
        if not incremental:
            self._waiting.clear()
        self._waiting.update({key_of(item): item for item in partitions})

    def forget(self, keys: Collection[Key] | None = None) -> None:
        """They have begun, or need not any more; None: all of them."""
        for key in list(self._waiting) if keys is None else keys:
            self._waiting.pop(key, None)

    def tried(self, step: int) -> None:
        """An attempt has ended.

        Args:
            step: how often the inner consumer had been polled.
        """
        self._tried_at_s, self._tried_at_step = self._clock(), step

    def due(self, step: int) -> list[TopicPartition]:
        """Those to try now."""
        rested = self._clock() - self._tried_at_s >= START_AGAIN_S and step != self._tried_at_step
        return list(self._waiting.values()) if rested else []
