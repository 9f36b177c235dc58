"""Regional and aggregate clusters with all that befalls them, and what the judge has to know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from parallax.domain.ids import RegionName
from tests.worlds.sim.kafka import ABORTED, COMMITTED, OPEN, Cluster, Log, Transaction

TOPIC = "trips"
PARTITIONS = 2
_TAIL = 6
"""An unclean election takes no more than so many offsets."""
_ANOTHER_ROUTE = "another route"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record that a producer wrote; its serial number tells the order of all."""

    serial: int
    region: str
    incarnation: str
    partition: int
    offset: int
    epoch: int

    def __str__(self) -> str:
        return f"#{self.serial} ({self.incarnation}-{self.partition}@{self.offset} e{self.epoch})"


class Regional:
    """A regional cluster, its producers and its misfortunes.

    Attributes:
        records: everything that was ever written.
        transactions: of records written in one, by serial.
        thrown_away: serials that an unclean election took.
        undone: serials of these that lie below its cut: their transaction was committed, and the election took its marker.
        gone_unseen: serials of records that took the place of such, and that retention took before anyone looked:
            nothing can tell of these.
        gone_incarnations: ids of topics that were deleted.
    """

    def __init__(self, region: str, random: Random, serials: Callable[[], int]) -> None:
        self.region = RegionName(region)
        self.cluster = Cluster(f"regional-{region}-")
        self.records: list[SourceRecord] = []
        self.transactions: dict[int, Transaction] = {}
        self.thrown_away: set[int] = set()
        self.undone: set[int] = set()
        self.gone_unseen: set[int] = set()
        self.gone_incarnations: set[str] = set()
        self._random = random
        self._serials = serials
        self._producers = 0
        self._open: list[Transaction] = []

    def create(self) -> str:
        if TOPIC in self.cluster.topics:
            return ""
        return f"{self.region}: topic {self.cluster.create(TOPIC, PARTITIONS).topic_id} created"

    def begin_anew(self) -> None:
        """Have an empty topic, whatever the seed has begun with."""
        self.cluster.topics.pop(TOPIC, None)
        self.records.clear()
        self.create()

    def produce(self) -> str:
        log = self._log()
        if log is None:
            return ""
        for _ in range(self._random.choice((1, 2, 5))):
            self._write(log, None)
        return f"{self.region}: produced up to {self.records[-1]}"

    def begin_transaction(self) -> str:
        if len(self._open) >= 2 or self._log() is None:
            return ""
        transaction = self._begun()
        for _ in range(self._random.choice((1, 3))):
            log = self._log()
            assert log is not None
            self._write(log, transaction)
        self._open.append(transaction)
        return f"{self.region}: transaction begun, up to {self.records[-1]}"

    def end_transaction(self) -> str:
        if not self._open:
            return ""
        outcome = self._random.choice((COMMITTED, ABORTED))
        self._open.pop(0).decide(outcome)
        return f"{self.region}: transaction {outcome}"

    def lose_connection(self) -> str:
        self.cluster.reachable = not self.cluster.reachable
        return f"{self.region}: regional cluster {'reachable' if self.cluster.reachable else 'away'}"

    def retain(self) -> str:
        log = self._log()
        if log is None or log.stable_end <= log.start:
            return ""
        start = self._random.randint(log.start, log.stable_end)
        if log.first_loss_epoch is not None:
            self.gone_unseen |= {
                slot.value.serial
                for slot in log.slots
                if slot.offset < start
                and isinstance(slot.value, SourceRecord)
                and slot.epoch >= log.first_loss_epoch
            }
        log.retain_from(start)
        return f"{self.region}: source {self._named(log)} begins at {start}"

    def elect(self) -> str:
        log = self._log()
        if log is None:
            return ""
        log.elect()
        return f"{self.region}: source {self._named(log)}: clean election, epoch {log.epoch} from {log.end}"

    def elect_unclean(self) -> str:
        """Half of the time the log then begins with what no consumer sees: an aborted transaction."""
        log = self._log()
        if log is None or self._open:
            return ""
        cut, end = self._random.randint(max(log.start, log.end - _TAIL), log.end), log.end
        self.thrown_away |= {
            slot.value.serial for slot in log.slots[cut - log.start :] if isinstance(slot.value, SourceRecord)
        }
        log.elect_unclean(cut)
        self._abort_hanging(log)
        told = (
            f"{self.region}: source {self._named(log)}: unclean election, {end} -> {cut}, epoch {log.epoch}"
        )
        if self._random.random() < 0.5:
            lost = self._begun()
            for _ in range(self._random.choice((1, 2, 4))):
                self._write(log, lost)
            lost.decide(ABORTED)
            told += f", then nothing visible up to {log.end}"
        return told

    def recreate(self) -> str:
        told = ""
        if TOPIC in self.cluster.topics and not self._open:
            gone = self.cluster.topics.pop(TOPIC).topic_id
            self.gone_incarnations.add(gone)
            told = f"{self.region}: topic {gone} deleted"
        if self._random.random() < 0.7:
            told = f"{told} {self.create()}"
        return told.strip()

    def calm_down(self) -> None:
        """Everything is back, and nothing is undecided."""
        self.cluster.reachable = True
        if self.create():
            self.produce()
        for transaction in self._open:
            if transaction.outcome == OPEN:
                transaction.decide(COMMITTED)

    def aborted(self, record: SourceRecord) -> bool:
        transaction = self.transactions.get(record.serial)
        return transaction is not None and transaction.outcome != COMMITTED

    def _log(self) -> Log | None:
        topic = self.cluster.topics.get(TOPIC)
        return None if topic is None else self._random.choice(topic.logs)

    def _named(self, log: Log) -> str:
        topic = self.cluster.topics[TOPIC]
        return f"{topic.topic_id}-{topic.logs.index(log)}"

    def _write(self, log: Log, transaction: Transaction | None) -> None:
        topic = self.cluster.topics[TOPIC]
        record = SourceRecord(
            self._serials(), self.region, topic.topic_id, topic.logs.index(log), log.end, log.epoch
        )
        self.records.append(record)
        if transaction is not None:
            self.transactions[record.serial] = transaction
        log.append(record, transaction)

    def _begun(self) -> Transaction:
        """A transaction of a producer of its own."""
        self._producers += 1
        return Transaction(owner=f"application {self._producers}")

    def _abort_hanging(self, log: Log) -> None:
        """An operator ends what hangs at a source (kafka-transactions.sh abort): its records are gone with that."""
        for owner in log.open_transactions():
            hung = [
                slot.value
                for slot in log.slots
                if slot.stretch is not None
                and (slot.stretch.owner, slot.stretch.outcome) == (owner, OPEN)
                and isinstance(slot.value, SourceRecord)
            ]
            self.thrown_away |= {record.serial for record in hung}
            self.undone |= {record.serial for record in hung if not self.aborted(record)}
            log.take_marker(owner, ABORTED)


class Aggregate:
    """An aggregate cluster, what writes to it besides the replicators, and its misfortunes.

    Attributes:
        trimmed: serials of copies that retention took, or would have taken, by topic id.
        has_forgotten: whether it was told to leave out markers.
    """

    def __init__(self, region: str, random: Random) -> None:
        self.region = RegionName(region)
        self.cluster = Cluster(f"aggregate-{region}-")
        self.trimmed: dict[str, set[int]] = {}
        self.has_forgotten = False
        self._lost: list[tuple[Log, int, int]] = []
        """Copies that an election took, as (log, offset, serial)."""
        self._random = random
        self._written = self._producers = 0
        self._open: list[Transaction] = []

    def write_from_elsewhere(self) -> str:
        """Another route's transaction: it may stay open for long, which holds back readers."""
        topic = self.cluster.topics.get(TOPIC)
        if self._open and self._random.random() < 0.5:
            self._open.pop(0).decide(self._random.choice((COMMITTED, ABORTED)))
        elif topic is not None:
            transaction = self._begun()
            for _ in range(2):
                self._other(self._random.choice(topic.logs), transaction)
            self._open.append(transaction)
        return ""

    def elect(self) -> str:
        log = self._log()
        if log is None:
            return ""
        log.elect()
        return f"{self.region}: target {self._named(log)}: clean election, epoch {log.epoch} from {log.end}"

    @property
    def has_lost_a_tail(self) -> bool:
        """Whether an unclean election has happened to its topic."""
        return any(
            log.first_loss_epoch is not None for topic in self.cluster.topics.values() for log in topic.logs
        )

    def elect_unclean(self) -> str:
        """Half of the time another route writes first, perhaps up to where the old end was and beyond."""
        log = self._log()
        if log is None:
            return ""
        end, cut = log.end, self._random.randint(max(log.start, log.end - _TAIL), log.end)
        self._lost += [
            (log, slot.offset, slot.value.serial)
            for slot in log.slots[cut - log.start :]
            if isinstance(slot.value, SourceRecord)
        ]
        log.elect_unclean(cut)
        told = (
            f"{self.region}: target {self._named(log)}: unclean election, {end} -> {cut}, epoch {log.epoch}"
        )
        if self._random.random() < 0.5:
            transaction = self._begun()
            for _ in range(self._random.choice((1, 3, 8))):
                self._other(log, transaction)
            transaction.decide(COMMITTED)
            told += f", another route writes up to {log.end}"
        return told

    def retain(self) -> str:
        log = self._log()
        if log is None or log.stable_end <= log.start:
            return ""
        start = self._random.randint(log.start, log.stable_end)
        gone = self.trimmed.setdefault(self.cluster.topics[TOPIC].topic_id, set())
        gone |= {
            slot.value.serial
            for slot in log.slots[: start - log.start]
            if isinstance(slot.value, SourceRecord) and slot.visible
        }
        # Nor is missed what an election had taken from there: the log's beginning hides that.
        gone |= {serial for lost_from, offset, serial in self._lost if lost_from is log and offset < start}
        log.retain_from(start)
        return f"{self.region}: target {self._named(log)} begins at {start}"

    def recreate(self) -> str:
        told = ""
        if TOPIC in self.cluster.topics:
            told = f"{self.region}: topic {self.cluster.topics.pop(TOPIC).topic_id} deleted"
        if self._random.random() < 0.5:
            told += f" {self.cluster.create(TOPIC, PARTITIONS).topic_id} created"
        return told.strip()

    def calm_down(self) -> None:
        """Nothing is undecided: the other route, too, has ended what was left hanging."""
        for transaction in self._open:
            if transaction.outcome == OPEN:
                transaction.decide(COMMITTED)
        for topic in self.cluster.topics.values():
            for log in topic.logs:
                for owner in log.open_transactions():
                    if owner.startswith(_ANOTHER_ROUTE):
                        log.take_marker(owner, COMMITTED)

    def _begun(self) -> Transaction:
        """A transaction of a producer of its own."""
        self._producers += 1
        return Transaction(owner=f"{_ANOTHER_ROUTE} {self._producers}")

    def _other(self, log: Log, transaction: Transaction) -> None:
        self._written += 1
        log.append(("other", self._written), transaction)

    def _log(self) -> Log | None:
        topic = self.cluster.topics.get(TOPIC)
        return None if topic is None else self._random.choice(topic.logs)

    def _named(self, log: Log) -> str:
        topic = self.cluster.topics[TOPIC]
        return f"{topic.topic_id}-{topic.logs.index(log)}"
