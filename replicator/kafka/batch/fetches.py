"""Which brokers are being fetched from, how much one answer may bring, and what has been fetched ahead."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from replicator.copying.ports import RecordBlock

_SOON_S = 2.0
"""An answer that took no longer can bring twice as much well within a request's time-out, however narrow the way."""
_KEPT_S = 60.0
"""So long a size that was waited for is kept: what made the way slow may have passed by then."""
_MANY_BATCHES, _TINY_BATCH_BYTES = 256, 4 * 1024


@dataclass(frozen=True, slots=True)
class _UnderWay:
    asked_bytes: int
    since_s: float


class Fetches:
    """The fetches under way, at most one of each broker, and the size of the next ones.

    What a lease can read of a broker in a second is one answer per round trip. One that comes soon and full and finds
    nothing left to copy was waited for: the next may bring twice as much, and none brings less for a while, or the copier
    would wait again as soon as it had copied what lies there. One that finds more waiting than it may bring came early, one
    that took long is more than the way carries: the next may bring half of it. After a failure it is the least.

    Args:
        least_bytes: what is asked for first.
        most_bytes: what is asked for at most.
        clock: seconds, never going back.
    """

    def __init__(
        self, least_bytes: int, most_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._least_bytes, self._most_bytes = least_bytes, max(least_bytes, most_bytes)
        self._clock = clock
        self._sizes: dict[int, int] = {}
        self._kept: dict[int, tuple[int, float]] = {}
        """Of leaders that were waited for: no less is to be asked for, until then (seconds)."""
        self._under_way: dict[int, _UnderWay] = {}

    def __contains__(self, leader: int) -> bool:
        """Whether a fetch of this broker is under way."""
        return leader in self._under_way

    def begin(self, leader: int, room_bytes: int) -> int:
        """A fetch begins.

        Args:
            leader: of whom.
            room_bytes: what may still be fetched ahead, what is under way included. The least is asked for in any case.

        Returns:
            How much to ask for, in bytes.
        """
        free_bytes = room_bytes - sum(item.asked_bytes for item in self._under_way.values())
        asked_bytes = max(self._least_bytes, min(self._sizes.get(leader, self._least_bytes), free_bytes))
        self._under_way[leader] = _UnderWay(asked_bytes, self._clock())
        return asked_bytes

    def answered(self, leader: int, size_bytes: int, waiting_bytes: int) -> None:
        """An answer has come.

        Args:
            leader: whose.
            size_bytes: of the answer.
            waiting_bytes: what had been fetched before and not been handed out yet.
        """
        fetch, now_s = self._under_way.pop(leader), self._clock()
        size = self._sizes.get(leader, self._least_bytes)
        full = 2 * size_bytes >= fetch.asked_bytes
        if full and now_s - fetch.since_s > _SOON_S:
            self._kept.pop(leader, None)
            self._sizes[leader] = max(self._least_bytes, fetch.asked_bytes // 2)
        elif full and not waiting_bytes:
            self._sizes[leader] = size = max(size, min(self._most_bytes, fetch.asked_bytes * 2))
            self._kept[leader] = size, now_s + _KEPT_S
        elif waiting_bytes > size:
            kept_bytes, until_s = self._kept.get(leader, (0, now_s))
            least_bytes = kept_bytes if now_s < until_s else self._least_bytes
            self._sizes[leader] = max(least_bytes, size // 2)

    def failed(self, leader: int) -> None:
        """No answer has come."""
        del self._under_way[leader]
        self._sizes.pop(leader, None)
        self._kept.pop(leader, None)


class Ahead:
    """What has been fetched and not been handed out yet.

    Args:
        whole_from_records: smaller batches are made into larger ones as they arrive.
    """

    def __init__(self, whole_from_records: int) -> None:
        self._whole_from_records = whole_from_records
        self._batches = self._records = 0
        self.size_bytes = 0

    def add(self, block: RecordBlock) -> None:
        """It has arrived."""
        self._count(block, 1)

    def take(self, block: RecordBlock) -> None:
        """It is handed out."""
        self._count(block, -1)

    @property
    def many_tiny(self) -> bool:
        """Whether what waits at the source had better stay there, to come in fewer and larger batches later on."""
        return (
            self._batches >= _MANY_BATCHES
            and self._records < self._batches * self._whole_from_records
            and self.size_bytes < self._batches * _TINY_BATCH_BYTES
        )

    def _count(self, block: RecordBlock, sign: int) -> None:
        self._batches += sign
        self._records += sign * len(block.offsets)
        self.size_bytes += sign * block.size_bytes
