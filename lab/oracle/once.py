"""Did a group get every record exactly once, and again exactly what an operator set it back for?

Known of the records: region and number, where the aggregate clusters hold them, what the group's processes wrote
down, and how far its committed offsets were set back. Nothing of moves, and nothing of how offsets are mapped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lab.oracle.logs import TopicLog
from lab.workload.delivered import DeliveredRecord
from lab.workload.events import RecordId

_EXAMPLES = 5


class GroupRewind(NamedTuple):
    """A group's next offset in one partition of one cluster was set back, while none of its members ran.

    Attributes:
        to_offset: the first record offset that is to come again.
        from_offset: the next offset until then: what lies at or above it is not touched.
        at_ms: between the last delivery before and the first one after, milliseconds since the Unix epoch.
    """

    cluster: str
    partition: int
    to_offset: int
    from_offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class OnceVerdict:
    """A group's whole run.

    Attributes:
        delivered_records: different records that it delivered.
        lost_records: records that it never delivered.
        redelivered_records: deliveries that no rewind asked for.
        rewound_records: deliveries that rewinds asked for, as they say.
        unrepeated_records: deliveries that a rewind asked for and that did not come.
        foreign_records: deliveries of records that no source holds.
        examples: some of the records that are wrong, with each delivery of theirs.
    """

    delivered_records: int
    lost_records: int
    redelivered_records: int
    rewound_records: int
    unrepeated_records: int
    foreign_records: int
    examples: Mapping[RecordId, tuple[DeliveredRecord, ...]]

    @property
    def faultless(self) -> bool:
        """Nothing is wrong."""
        return not (
            self.lost_records or self.redelivered_records or self.unrepeated_records or self.foreign_records
        )


def judge_once(
    deliveries: Sequence[DeliveredRecord],
    produced: set[RecordId],
    rewinds: Iterable[GroupRewind],
    targets: Mapping[str, TopicLog],
) -> OnceVerdict:
    """Judge a group.

    A rewind cuts time in two for the records that it names: each is due once before and once after it, so two
    deliveries on the same side are one too many, and none is one too few.

    Args:
        deliveries: of all its processes, in any order.
        produced: every record that the sources hold.
        rewinds: of this group.
        targets: the aggregate topics by cluster name.
    """
    cuts = _cuts(rewinds, targets)
    found: dict[RecordId, list[DeliveredRecord]] = {}
    for delivery in deliveries:
        found.setdefault(delivery.record, []).append(delivery)
    lost = redelivered = rewound = unrepeated = foreign = 0
    wrong: list[RecordId] = []
    for record in produced.difference(found):
        lost += 1
        wrong.append(record)
    for record, times in found.items():
        if record not in produced:
            foreign += len(times)
            wrong.append(record)
            continue
        due = [0] * (len(cuts.get(record, ())) + 1)
        for delivery in times:
            due[bisect_right(cuts.get(record, ()), delivery.at_ms)] += 1
        too_many = sum(count - 1 for count in due if count)
        missing = due.count(0)
        redelivered += too_many
        unrepeated += missing
        rewound += len(times) - too_many - 1
        if too_many or missing:
            wrong.append(record)
    return OnceVerdict(
        delivered_records=len(found.keys() & produced),
        lost_records=lost,
        redelivered_records=redelivered,
        rewound_records=rewound,
        unrepeated_records=unrepeated,
        foreign_records=foreign,
        examples={record: tuple(found.get(record, ())) for record in sorted(wrong)[:_EXAMPLES]},
    )


def _cuts(rewinds: Iterable[GroupRewind], targets: Mapping[str, TopicLog]) -> dict[RecordId, list[int]]:
    """When each record was set back, ascending."""
    cuts: dict[RecordId, list[int]] = {}
    for rewind in sorted(rewinds, key=lambda item: item.at_ms):
        for placed in targets[rewind.cluster].partitions.get(rewind.partition, ()):
            if rewind.to_offset <= placed.record_offset < rewind.from_offset:
                cuts.setdefault(placed.record, []).append(rewind.at_ms)
    return cuts
