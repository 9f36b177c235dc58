"""Surveys that a session has asked for, and what it knew when it did: their answers are compared with that."""

from __future__ import annotations

from collections.abc import Mapping

from parallax.domain.ids import SourceOffset, TopicPartition
from replicator.shard_ports import Clock, OutOfRange, Surveyor

_REMEMBERED = 8


class Questions:
    """Asks the surveyor.

    Attributes:
        asked_at_ms: when the last survey was asked for (monotonic).
    """

    def __init__(self, surveyor: Surveyor, clock: Clock) -> None:
        self._surveyor = surveyor
        self._clock = clock
        self._known: dict[
            int, tuple[Mapping[TopicPartition, SourceOffset], Mapping[TopicPartition, OutOfRange]]
        ]
        self._known = {}
        self.asked_at_ms = clock.monotonic_ms()

    def ask(
        self,
        positions: Mapping[TopicPartition, SourceOffset],
        out_of_range: Mapping[TopicPartition, OutOfRange],
    ) -> None:
        """Ask for a survey, knowing these positions, and these partitions to be out of range."""
        self.asked_at_ms = self._clock.monotonic_ms()
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
