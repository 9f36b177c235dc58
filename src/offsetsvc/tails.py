"""What lineages ended with, read at once for all partitions of a call and remembered for a moment.

Most questions are about records of the last seconds: they are answered from here without a further read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from offsetsvc.lineages import LineageView
from offsetsvc.stretch import Stretch
from parallax.domain.ids import Lineage, RoutePartition
from parallax.domain.run import LostRange
from parallax.ports import LineageTail, MappingIndexReader

_MOST_TAILS = 10_000

_Key = tuple[RoutePartition, Lineage]


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a lineage.

    Attributes:
        stretch: its rows from some place on; None: they are gone, the lineage ended long ago.
        lost: every lost range of the lineage.
    """

    stretch: Stretch | None
    lost: tuple[LostRange, ...]


class Tails:
    """Reads tails, each at most every ``max_age_ms``. Safe to use from several threads.

    Args:
        index: what is read.
        max_age_ms: a tail may be that old, as long as it reaches the newest row that the caller knows.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        index: MappingIndexReader,
        *,
        max_age_ms: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._max_age_s = max_age_ms / 1_000
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[_Key, tuple[float, LineageTail]] = {}

    def read(self, views: Iterable[LineageView]) -> dict[_Key, Tail]:
        """The tails of those lineages that have a row.

        Raises:
            StoreUnavailableError: the index did not answer in time.
        """
        wanted = {(view.partition, view.lineage): view for view in views if view.newest is not None}
        now_s = self._clock()
        with self._lock:
            found = {
                key: tail
                for key, view in wanted.items()
                if (tail := self._remembered(key, view, now_s)) is not None
            }
        missing = {
            key: view.newest for key, view in wanted.items() if key not in found and view.newest is not None
        }
        if missing:
            read = self._index.tails(missing)
            self._keep(read.items(), now_s)
            found.update(read)
        return {key: _tail(wanted[key], tail) for key, tail in found.items()}

    def _remembered(self, key: _Key, view: LineageView, now_s: float) -> LineageTail | None:
        known = self._known.get(key)
        if known is None or now_s - known[0] >= self._max_age_s or not _reaches_newest(view, known[1]):
            return None
        return known[1]

    def _keep(self, tails: Collection[tuple[_Key, LineageTail]], now_s: float) -> None:
        with self._lock:
            if len(self._known) + len(tails) > _MOST_TAILS:
                self._known.clear()
            self._known.update((key, (now_s, tail)) for key, tail in tails)


def _reaches_newest(view: LineageView, tail: LineageTail) -> bool:
    return (
        view.newest is not None and bool(tail.rows) and tail.rows[-1].target_end >= view.newest.row.target_end
    )


def _tail(view: LineageView, tail: LineageTail) -> Tail:
    if not _reaches_newest(view, tail):
        return Tail(None, tail.lost)
    whole = tail.rows[0].previous_source_end <= view.record.source_first
    low = 0 if whole and tail.complete_from <= tail.rows[0].target_start + 1 else int(tail.complete_from)
    return Tail(Stretch([row for row in tail.rows if row.target_start >= low], low, None), tail.lost)
