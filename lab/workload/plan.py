"""What a producer sends, when: phases in order, and transactions if wanted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import chain, repeat


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the workload.

    Attributes:
        records: how many; 0 makes an idle stretch.
        seconds: spread evenly over this time; 0: as fast as possible, until all are acknowledged.
        history_s: the events happened evenly over the last ``history_s`` seconds (a backlog that arrives late);
            0: they happen when they are sent. It shows in the record timestamps.
    """

    records: int
    seconds: float = 0.0
    history_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what can't be done."""
        if self.records < 0 or self.seconds < 0 or self.history_s < 0:
            raise ValueError(f"a phase can't have negative values: {self}")
        if self.records == 0 and self.seconds == 0:
            raise ValueError("a phase needs records or seconds")

    def due(self, elapsed_s: float) -> int:
        """How many records should have been sent after this time."""
        if self.seconds == 0 or elapsed_s >= self.seconds:
            return self.records
        return int(self.records * elapsed_s / self.seconds)

    def event_time_ms(self, number: int, now_ms: int) -> int:
        """When the phase's record of that number (from 0) happened, given the time of its sending."""
        if self.history_s == 0:
            return now_ms
        return now_ms - int(self.history_s * 1_000 * (self.records - number) / self.records)


@dataclass(frozen=True, slots=True)
class PlannedTransactions:
    """Send in transactions.

    Attributes:
        records: of one transaction.
        abort_every: before every so many committed transactions another one of the same size is sent and
            aborted; 0: never. Aborted records come on top of the phases' numbers.
    """

    records: int
    abort_every: int = 0

    def __post_init__(self) -> None:
        """Refuse what can't be done."""
        if self.records < 1 or self.abort_every < 0:
            raise ValueError(f"a transaction needs records, and abort_every can't be negative: {self}")

    def aborts_before(self, committed: int) -> bool:
        """Whether an aborted transaction comes before the committed one of that number (from 0)."""
        return self.abort_every > 0 and committed % self.abort_every == self.abort_every - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A producer's whole work.

    Attributes:
        phases: in order.
        transactions: None: an idempotent producer without transactions.
        first_seq: number of the first record.
        at_most_s: the producer gives up after this time, whatever is left.
    """

    phases: tuple[Phase, ...]
    transactions: PlannedTransactions | None = None
    first_seq: int = 0
    at_most_s: float = 600.0

    @property
    def records(self) -> int:
        """Records that get committed if nothing is cut short."""
        return sum(phase.records for phase in self.phases)

    def to_json(self) -> str:
        """The plan as a command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The inverse of `to_json`.

        Raises:
            ValueError: the text is not a plan.
        """
        try:
            fields = json.loads(text)
            phases = tuple(Phase(**phase) for phase in fields.pop("phases"))
            transactions = fields.pop("transactions", None)
            return cls(phases, PlannedTransactions(**transactions) if transactions else None, **fields)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a plan: {text!r}: {error}") from error


def on_and_off(
    per_s: float, *, busy_s: float, idle_s: float, stretches: int, idle_first: bool = False
) -> tuple[Phase, ...]:
    """Busy stretches at a rate, with idle ones between them."""
    busy = Phase(records=round(per_s * busy_s), seconds=busy_s)
    idle = Phase(records=0, seconds=idle_s)
    return tuple(chain.from_iterable(repeat((idle, busy) if idle_first else (busy, idle), stretches)))
