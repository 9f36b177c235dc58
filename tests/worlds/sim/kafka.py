"""Kafka in memory: logs with transactions, leader epochs, retention, truncation and recreated topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from parallax.errors import FencedError

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


@dataclass(slots=True)
class Transaction:
    outcome: str = OPEN
    logs: list[Log] = field(default_factory=list)

    def decide(self, outcome: str) -> None:
        self.outcome = outcome
        for log in self.logs:
            log.append(MARKER)


class _Marker:
    """What a transaction leaves at its end: an offset without a record."""


MARKER = _Marker()


@dataclass(slots=True)
class Slot:
    offset: int
    value: object
    epoch: int
    transaction: Transaction | None


class Log:
    """One partition. The high watermark is the end: nothing here is replicated."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.slots: list[Slot] = []
        self.epoch_starts: list[tuple[int, int]] = [(0, 0)]

    def append(self, value: object, transaction: Transaction | None = None) -> int:
        self.slots.append(Slot(self.end, value, self.epoch, transaction))
        self.end += 1
        if transaction is not None and self not in transaction.logs:
            transaction.logs.append(self)
        return self.end - 1

    @property
    def stable_end(self) -> int:
        undecided = (
            slot.offset for slot in self.slots if slot.transaction and slot.transaction.outcome == OPEN
        )
        return min(undecided, default=self.end)

    def committed(self, start: int = 0, end: int | None = None) -> Iterator[Slot]:
        """What read_committed readers see of ``[start, end)``."""
        bound = self.stable_end if end is None else min(end, self.stable_end)
        for slot in self.slots:
            decided = slot.transaction is None or slot.transaction.outcome == COMMITTED
            if start <= slot.offset < bound and decided and slot.value is not MARKER:
                yield slot

    def retain_from(self, start: int) -> None:
        self.start = max(self.start, min(start, self.end))
        self.slots = [slot for slot in self.slots if slot.offset >= self.start]

    def elect_unclean(self, end: int) -> None:
        """A replica that lacks everything from ``end`` on becomes leader."""
        self.end = max(self.start, end)
        self.slots = [slot for slot in self.slots if slot.offset < self.end]
        self.epoch += 1
        self.epoch_starts = [item for item in self.epoch_starts if item[1] < self.end or item[1] == 0]
        self.epoch_starts.append((self.epoch, self.end))

    def end_of_epoch(self, epoch: int) -> int:
        """OffsetForLeaderEpoch: where records of later epochs begin, or the end."""
        later = [start for number, start in self.epoch_starts if number > epoch]
        return max(self.start, min(later, default=self.end))

    def epoch_below(self, offset: int) -> int:
        """The leader epoch of the last record below ``offset``, or -1."""
        return max((slot.epoch for slot in self.slots if slot.offset < offset), default=-1)


@dataclass(slots=True)
class Topic:
    topic_id: str
    logs: list[Log]


class Cluster:
    """Topics by name, and the coordinator of transactional ids."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.topics: dict[str, Topic] = {}
        self.reachable = True
        self._created = 0
        self._producers: dict[str, tuple[int, Transaction | None]] = {}

    def create(self, name: str, partitions: int = 1) -> Topic:
        self._created += 1
        self.topics[name] = Topic(f"{self.name}{self._created}", [Log() for _ in range(partitions)])
        return self.topics[name]

    def initialise(self, transactional_id: str) -> int:
        epoch, transaction = self._producers.get(transactional_id, (-1, None))
        if transaction is not None and transaction.outcome == OPEN:
            transaction.decide(ABORTED)
        self._producers[transactional_id] = (epoch + 1, None)
        return epoch + 1

    def transaction(self, transactional_id: str, epoch: int) -> Transaction:
        """The open transaction of the id, begun if need be; only for the newest epoch."""
        newest, transaction = self._producers[transactional_id]
        if newest != epoch:
            raise FencedError(f"{transactional_id} has epoch {newest}, not {epoch}")
        if transaction is None or transaction.outcome != OPEN:
            transaction = Transaction()
            self._producers[transactional_id] = (epoch, transaction)
        return transaction
