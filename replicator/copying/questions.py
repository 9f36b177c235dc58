"""Surveys that a session has asked for, and what it knew when it did: their answers are compared with that."""

from __future__ import annotations

import math
from collections.abc import Mapping

from parallax.domain.ids import SourceOffset, TopicPartition
from replicator.copying.ports import Clock, OutOfRange, Surveyor

_REMEMBERED = 8


class Questions:
    """Asks the surveyor."""

    def __init__(self, surveyor: Surveyor, clock: Clock) -> None:
        self._surveyor = surveyor
        self._clock = clock
        self._known: dict[
            int, tuple[Mapping[TopicPartition, SourceOffset], Mapping[TopicPartition, OutOfRange]]
        ]
        self._known = {}
        self._asked_at_ms = clock.monotonic_ms()
        self._without_end = math.inf
        self._soon = False

    def due(self, interval_ms: float) -> bool:
        """Whether the next survey is to be asked for, which happens once in that time at least."""
        return self._soon or self._clock.monotonic_ms() - self._asked_at_ms >= interval_ms

    def note_without_end(self, partitions: int) -> None:
        """So many partitions can't begin before the target tells their ends.

        Those of a topic that was just created get their leaders one by one. The next survey is due at once when some are
        without for the first time, and as long as they become fewer.
        """
        self._soon = 0 < partitions < self._without_end
        self._without_end = partitions or math.inf

    def ask(
        self,
        positions: Mapping[TopicPartition, SourceOffset],
        out_of_range: Mapping[TopicPartition, OutOfRange],
    ) -> None:
        """Ask for a survey, knowing these positions, and these partitions to be out of range."""
        self._asked_at_ms, self._soon = self._clock.monotonic_ms(), False
        ticket = self._surveyor.request()
        self._known = {
            number: known for number, known in self._known.items() if number > ticket - _REMEMBERED
        }
        self._known[ticket] = (dict(positions), dict(out_of_range))

    def known_at(
        self, ticket: int
    ) -> tuple[Mapping[TopicPartition, SourceOffset], Mapping[TopicPartition, OutOfRange]]:
        """What was known when the survey with this ticket was asked for."""
        return self._known.get(ticket, ({}, {}))
