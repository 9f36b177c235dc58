"""Kafka in memory: logs with transactions, leader epochs, retention, truncation and recreated topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from parallax.errors import FencedError

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


@dataclass(slots=True, eq=False)
class Transaction:
    """Attributes:
    owner: its transactional id.
    torn: logs that lost some of its records while it was open: what comes next there is out of sequence.
    """

    outcome: str = OPEN
    owner: str = ""
    logs: list[Log] = field(default_factory=list)
    torn: list[Log] = field(default_factory=list)

    def decide(self, outcome: str) -> None:
        self.outcome = outcome
        for log in self.logs:
            log.end_transaction(self)


class _Marker:
    """What a transaction leaves at its end: an offset without a record."""


MARKER = _Marker()


@dataclass(slots=True)
class Slot:
    offset: int
    value: object
    epoch: int
    transaction: Transaction | None

    @property
    def visible(self) -> bool:
        """Whether read_committed readers see it, once they get as far."""
        decided = self.transaction is None or self.transaction.outcome == COMMITTED
        return decided and self.value is not MARKER


class Log:
    """One partition. The high watermark is the end: nothing here is replicated."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.slots: list[Slot] = []
        """One for each offset of ``[start, end)``."""
        self.epoch_starts: list[tuple[int, int]] = [(0, 0)]
        self.first_loss_epoch: int | None = None
        self._open: dict[Transaction, int] = {}

    def append(self, value: object, transaction: Transaction | None = None) -> int:
        if transaction is not None and transaction not in self._open:
            self._open[transaction] = self.end
            if self not in transaction.logs:
                transaction.logs.append(self)
        return self._append(value, transaction)

    def end_transaction(self, transaction: Transaction) -> None:
        self._open.pop(transaction, None)
        self._append(MARKER, transaction)

    def _append(self, value: object, transaction: Transaction | None) -> int:
        self.slots.append(Slot(self.end, value, self.epoch, transaction))
        self.end += 1
        return self.end - 1

    @property
    def stable_end(self) -> int:
        return min(self._open.values(), default=self.end)

    def open_transactions(self) -> dict[Transaction, int]:
        """Where each transaction that is open here began."""
        return dict(self._open)

    def open_after(self, end: int) -> list[Transaction]:
        """The transactions of which records lie below the offset, and no marker."""
        kept = self.slots[: max(0, end - self.start)]
        ended = {slot.transaction for slot in kept if slot.value is MARKER}
        found = dict.fromkeys(slot.transaction for slot in kept if slot.transaction is not None)
        return [transaction for transaction in found if transaction not in ended]

    def slot(self, offset: int) -> Slot:
        return self.slots[offset - self.start]

    def committed(self, start: int = 0, end: int | None = None) -> Iterator[Slot]:
        """What read_committed readers see of ``[start, end)``."""
        bound = self.stable_end if end is None else min(end, self.stable_end)
        for slot in self.slots[max(0, start - self.start) : max(0, bound - self.start)]:
            if slot.visible:
                yield slot

    def retain_from(self, start: int) -> None:
        start = max(self.start, min(start, self.end))
        self.slots = self.slots[start - self.start :]
        self.start = start

    def elect(self) -> None:
        """Another replica becomes leader and lacks nothing."""
        self.epoch += 1
        self.epoch_starts = [item for item in self.epoch_starts if item[1] < self.end or item[1] == 0]
        self.epoch_starts.append((self.epoch, self.end))

    def elect_unclean(self, end: int) -> None:
        """A replica that lacks everything from ``end`` on becomes leader.

        A transaction whose marker is lost hangs here from now on, whatever was decided (docs/decisions/0008).
        """
        end = max(self.start, end)
        kept, gone = self.slots[: end - self.start], self.slots[end - self.start :]
        self.slots, self.end = kept, end
        self.epoch += 1
        if gone and self.first_loss_epoch is None:
            self.first_loss_epoch = self.epoch
        self.epoch_starts = [item for item in self.epoch_starts if item[1] < self.end or item[1] == 0]
        self.epoch_starts.append((self.epoch, self.end))
        for slot in gone:
            transaction = slot.transaction
            if transaction is None:
                continue
            rest = [item for item in kept if item.transaction is transaction and item.value is not MARKER]
            if slot.value is not MARKER:
                if transaction.outcome != OPEN:
                    continue
                if not rest:
                    self._open.pop(transaction, None)
                elif self not in transaction.torn:
                    transaction.torn.append(self)
            elif rest:
                hanging = Transaction(owner=transaction.owner, logs=[self])
                for item in rest:
                    item.transaction = hanging
                self._open[hanging] = rest[0].offset

    def end_of_epoch(self, epoch: int) -> int:
        """OffsetForLeaderEpoch: where records of later epochs begin, or the end."""
        later = [start for number, start in self.epoch_starts if number > epoch]
        return max(self.start, min(later, default=self.end))

    def epoch_below(self, offset: int) -> int:
        """The leader epoch of the last record below ``offset``, or -1."""
        return max((slot.epoch for slot in self.slots[: max(0, offset - self.start)]), default=-1)


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
            transaction = Transaction(owner=transactional_id)
            self._producers[transactional_id] = (epoch, transaction)
        return transaction
