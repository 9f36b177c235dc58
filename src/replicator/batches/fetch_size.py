"""How much one fetch asks for: more where a broker is so far away that the copier would wait for each answer. Pure."""

from __future__ import annotations


class FetchSizes:
    """The size of the next answer of each broker.

    Only one fetch per broker is on its way, so what a lease can read of it in a second is one answer per round trip. An
    answer that comes full and finds nothing left to copy was waited for: the next one may bring twice as much. One that
    finds more waiting than it brings came early: the next one may bring half of it, which keeps memory and caches small.

    Args:
        least_bytes: what is asked for first.
        most_bytes: what is asked for at most.
    """

    def __init__(self, least_bytes: int, most_bytes: int) -> None:
        self._least_bytes, self._most_bytes = least_bytes, max(least_bytes, most_bytes)
        self._by_leader: dict[int, int] = {}

    def of(self, leader: int) -> int:
        """What to ask this broker for, in bytes."""
        return self._by_leader.get(leader, self._least_bytes)

    def answered(self, leader: int, size_bytes: int, waiting_bytes: int) -> None:
        """Take in an answer.

        Args:
            leader: who answered.
            size_bytes: of the answer.
            waiting_bytes: what had been fetched before and not been handed out yet.
        """
        asked_bytes = self.of(leader)
        if waiting_bytes > asked_bytes:
            self._by_leader[leader] = max(self._least_bytes, asked_bytes // 2)
        elif not waiting_bytes and size_bytes >= asked_bytes // 2:
            self._by_leader[leader] = min(self._most_bytes, asked_bytes * 2)
