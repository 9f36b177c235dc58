"""Kafka in memory: logs with transactions, leader epochs, retention, truncation and recreated topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from parallax.errors import FencedError

OPEN, COMMITTED, ABORTED, GONE = "open", "committed", "aborted", "gone"


@dataclass(slots=True, eq=False)
class Transaction:
    """What a coordinator knows of one.

    Attributes:
        owner: its transactional id, and so its producer.
        torn: logs that lost some of its records while it was open: what comes next there is out of sequence.
    """

    outcome: str = OPEN
    owner: str = ""
    logs: list[Log] = field(default_factory=list)
    torn: list[Log] = field(default_factory=list)

    def decide(self, outcome: str) -> None:
        self.outcome = outcome
        for log in self.logs:
            log.take_marker(self.owner, outcome)


class _Marker:
    """What a transaction leaves at its end: an offset without a record."""


MARKER = _Marker()


@dataclass(slots=True, eq=False)
class Stretch:
    """What a producer has in a log between two of its markers, which is all that the log knows of transactions.

    Normally that is one transaction. Where the marker of one is lost, records of the next join it, and the next marker ends both,
    whichever it is: a broker begins a transaction in a log only if the producer has none open there, and a marker ends the one
    that is open (Kafka 4.3: `appendDataBatch` and `appendEndTxnMarker` of `ProducerAppendInfo`). It compares epochs only to
    refuse older ones, so that transaction version 2 (KIP-890), where each transaction has an epoch of its own, changes nothing.
    """

    owner: str
    start: int
    outcome: str = OPEN


@dataclass(slots=True)
class Slot:
    """One offset of a log; ``transaction`` is the one that its record was written in, if any."""

    offset: int
    value: object
    epoch: int
    stretch: Stretch | None = None
    transaction: Transaction | None = None

    @property
    def visible(self) -> bool:
        """Whether read_committed readers see it, once they get as far."""
        decided = self.stretch is None or self.stretch.outcome == COMMITTED
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
        self._open: dict[str, Stretch] = {}

    def append(self, value: object, transaction: Transaction | None = None) -> int:
        stretch = None
        if transaction is not None:
            stretch = self._open.setdefault(transaction.owner, Stretch(transaction.owner, self.end))
            if self not in transaction.logs:
                transaction.logs.append(self)
        return self._append(Slot(self.end, value, self.epoch, stretch, transaction))

    def take_marker(self, owner: str, outcome: str) -> None:
        """End what the producer has open here, whatever that is."""
        stretch = self._open.pop(owner, None)
        if stretch is not None:
            stretch.outcome = outcome
        self._append(Slot(self.end, MARKER, self.epoch, stretch))

    def _append(self, slot: Slot) -> int:
        self.slots.append(slot)
        self.end += 1
        return slot.offset

    @property
    def stable_end(self) -> int:
        return min((stretch.start for stretch in self._open.values()), default=self.end)

    def open_transactions(self) -> dict[str, int]:
        """Where what each producer has open here began, by owner."""
        return {owner: stretch.start for owner, stretch in self._open.items()}

    def slot(self, offset: int) -> Slot:
        return self.slots[offset - self.start]

    def ending_at(self, offset: int, owner: str | None = None) -> str:
        """How the transaction ended here that holds a record; GONE: retention has taken it, or another producer's is there."""
        if not self.start <= offset < self.end:
            return GONE
        stretch = self.slot(offset).stretch
        if stretch is None or owner not in {None, stretch.owner}:
            return GONE
        return stretch.outcome

    def is_joined(self, offset: int) -> bool:
        """Whether the producer of a record has written more behind it before its next marker."""
        if not self.start <= offset < self.end:
            return False
        stretch = self.slot(offset).stretch
        behind = self.slots[offset + 1 - self.start :]
        return stretch is not None and any(
            slot.stretch is stretch and slot.value is not MARKER for slot in behind
        )

    def goes_on(self, owner: str, offset: int) -> bool:
        """Whether what the producer has open here has records from an offset on, or had some that are gone; or somebody has ended it."""
        stretch = self._open.get(owner)
        return (
            stretch is None
            or offset < self.start
            or any(slot.stretch is stretch for slot in self.slots[max(0, offset - self.start) :])
        )

    def holds(self, offset: int, transaction: Transaction | None) -> bool:
        """Whether what lies at the offset is the transaction's."""
        return self.start <= offset < self.end and self.slot(offset).transaction is transaction

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
        left = {slot.stretch: None for slot in kept if slot.stretch is not None and slot.value is not MARKER}
        self._open = {owner: stretch for owner, stretch in self._open.items() if stretch in left}
        for slot in gone:
            if slot.value is MARKER and slot.stretch in left:
                slot.stretch.outcome = OPEN
                self._open[slot.stretch.owner] = slot.stretch
            transaction = slot.transaction
            if transaction is not None and transaction.outcome == OPEN and slot.stretch in left:
                transaction.torn.append(self)

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
        self.dies_in: int | None = None
        """After so many decisions of transactions the cluster dies upon one, and comes back without some of its markers
        (docs/decisions/0008)."""
        self.dies_upon: Collection[str] = (COMMITTED, ABORTED)
        """Other decisions do not count."""
        self.leaves_out: Callable[[], bool] = lambda: True
        """Says of each marker whether it is one of them."""
        self.frozen_until_ms = 0.0
        """Until then its brokers hold on to whatever a copier asks of them (SIGSTOP), and answer afterwards."""
        self.deaths = 0
        """Connections do not outlive them."""
        self._created = 0
        self._producers: dict[str, tuple[int, Transaction | None]] = {}

    def create(self, name: str, partitions: int = 1) -> Topic:
        self._created += 1
        self.topics[name] = Topic(f"{self.name}{self._created}", [Log() for _ in range(partitions)])
        return self.topics[name]

    def open_transactions(self) -> list[Transaction]:
        """Those that the coordinator knows."""
        known = (transaction for _, transaction in self._producers.values())
        return [
            transaction for transaction in known if transaction is not None and transaction.outcome == OPEN
        ]

    def initialise(self, transactional_id: str) -> int:
        epoch, transaction = self._producers.get(transactional_id, (-1, None))
        if transaction is not None and transaction.outcome == OPEN:
            self.decide(transaction, ABORTED)
        self._producers[transactional_id] = (epoch + 1, None)
        return epoch + 1

    def decide(self, transaction: Transaction, outcome: str) -> None:
        """End the transaction of a copier, or of a change of a layout."""
        if self.dies_in is None or outcome not in self.dies_upon or self.dies_in > 0:
            if self.dies_in is not None and outcome in self.dies_upon:
                self.dies_in -= 1
            transaction.decide(outcome)
            return
        self.dies_in = None
        self.deaths += 1
        transaction.outcome = outcome
        for log in transaction.logs:
            if not self.leaves_out():
                log.take_marker(transaction.owner, outcome)
        for topic in self.topics.values():
            for log in topic.logs:
                log.elect()

    def transaction(self, transactional_id: str, epoch: int) -> Transaction:
        """The open transaction of the id, begun if need be; only for the newest epoch."""
        newest, transaction = self._producers[transactional_id]
        if newest != epoch:
            raise FencedError(f"{transactional_id} has epoch {newest}, not {epoch}")
        if transaction is None or transaction.outcome != OPEN:
            transaction = Transaction(owner=transactional_id)
            self._producers[transactional_id] = (epoch, transaction)
        return transaction
