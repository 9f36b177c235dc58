"""Up to which moment all that was written to a source's partition is copied: what retention there may take without harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parallax.domain.ids import SourceOffset, TopicPartition
from replicator.copying.ports import LogEnd


class CopiedUntil:
    """Moments in milliseconds since 1970, by partition; none where nothing is known.

    A partition whose end was asked for at some moment, and that is copied as far as the answer, lacks only what was written
    later. Of one that is never copied so far, what follows the newest record copied is no older than that one, as far as
    producers' times go up.
    """

    def __init__(self) -> None:
        self._until_ms: dict[TopicPartition, int] = {}
        self._position: dict[TopicPartition, int] = {}

    def surveyed(
        self,
        asked_at_ms: int,
        ends: Mapping[TopicPartition, LogEnd],
        settled: Callable[[TopicPartition], SourceOffset | None],
    ) -> None:
        """Take in ends of the source's logs.

        Args:
            asked_at_ms: they were asked for then, or later.
            ends: as they were answered.
            settled: the position now: all below it is copied, or no record. None: there is none yet.
        """
        for item, end in ends.items():
            position = settled(item)
            if position is not None and position >= end.high_watermark:
                self._take(item, asked_at_ms)

    def copied(self, item: TopicPartition, newest_ms: int, now_ms: int) -> None:
        """Take in the timestamp of the newest record of what was committed at ``now_ms``; 0 or less is no time."""
        if newest_ms > 0:
            self._take(item, min(newest_ms, now_ms))

    def of(self, item: TopicPartition, position: int) -> int | None:
        """The moment, at a position: where that has gone back, what was copied before is to be copied again."""
        if position < self._position.get(item, 0):
            self._until_ms.pop(item, None)
        self._position[item] = position
        return self._until_ms.get(item)

    def _take(self, item: TopicPartition, until_ms: int) -> None:
        self._until_ms[item] = max(self._until_ms.get(item, 0), until_ms)
