"""What a storm leaves for its judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lab.oracle.logs import TopicLog
from lab.oracle.once import GroupRewind
from lab.storm.schedule import Act
from lab.workload.delivered import DeliveredRecord
from lab.workload.events import RecordId


@dataclass(slots=True)
class Happening:
    """An act as it went.

    Attributes:
        began_s, took_s: seconds since the storm's beginning; how long it took, with all that it waited for.
        notes: what came of it.
        problem: why the storm ended here; empty if it went on.
    """

    act: Act
    began_s: float
    took_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    problem: str = ""


class DoubtfulTransaction(NamedTuple):
    """What a producer tried to commit, without an answer: all of it is written, or nothing.

    Attributes:
        region: where it was produced.
        first_seq, end_seq: the numbers of its records, the end excluded.
    """

    region: str
    first_seq: int
    end_seq: int

    def records(self) -> set[RecordId]:
        """Its records."""
        return {RecordId(self.region, seq) for seq in range(self.first_seq, self.end_seq)}


@dataclass(frozen=True, slots=True)
class StormFacts:
    """What the judge goes by.

    Attributes:
        acked_records: what the producers were told is written.
        doubtful: what they do not know of; not among ``acked_records``.
        sources, targets: the topic in all clusters, by cluster name.
        deliveries: of each group.
        rewinds: of each group.
        skipped: by each group's members.
        told: how often each group's members told of each kind of event.
        died: processes of the stack that ended unasked.
    """

    acked_records: int
    doubtful: tuple[DoubtfulTransaction, ...]
    sources: Mapping[str, TopicLog]
    targets: Mapping[str, TopicLog]
    deliveries: Mapping[str, list[DeliveredRecord]]
    rewinds: Mapping[str, list[GroupRewind]]
    skipped: Mapping[str, int]
    told: Mapping[str, Mapping[str, int]]
    died: tuple[str, ...]

    def missing(self) -> int:
        """Records that some group was not delivered, or some aggregate cluster does not hold, so far."""
        produced = {record for source in self.sources.values() for record in source.records()}
        missing = sum(len(produced - target.records()) for target in self.targets.values())
        for found in self.deliveries.values():
            missing += len(produced.difference(delivery.record for delivery in found))
        return missing
