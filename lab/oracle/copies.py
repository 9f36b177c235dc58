"""Is the aggregate topic what its sources hold: every record, once, in order per source partition?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lab.oracle.logs import TopicLog
from lab.workload.events import RecordId

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class CopyVerdict:
    """Sources and one aggregate cluster, record by record.

    Attributes:
        source_records: records of all sources.
        target_records: records of the aggregate topic.
        lost_records: records of a source that the target lacks.
        duplicated_records: copies beyond the first one.
        foreign_records: records that no source has (an aborted transaction's, or someone else's).
        misplaced_records: records in another partition than at their source.
        disordered_records: records that come before an earlier one of the same source partition.
        examples: some of the records that are wrong.
    """

    cluster: str
    source_records: int
    target_records: int
    lost_records: int
    duplicated_records: int
    foreign_records: int
    misplaced_records: int
    disordered_records: int
    examples: tuple[RecordId, ...]

    @property
    def faultless(self) -> bool:
        """Nothing is wrong."""
        return not (
            self.lost_records
            or self.duplicated_records
            or self.foreign_records
            or self.misplaced_records
            or self.disordered_records
        )


def compare_copies(sources: Iterable[TopicLog], target: TopicLog) -> CopyVerdict:
    """Hold an aggregate topic against all of its sources."""
    origin: dict[RecordId, tuple[int, int]] = {}
    for source in sources:
        origin.update(source.places())
    copies = Counter(placed.record for records in target.partitions.values() for placed in records)
    lost = [record for record in origin if record not in copies]
    duplicated = [record for record, count in copies.items() if count > 1]
    foreign = [record for record in copies if record not in origin]
    misplaced, disordered = _out_of_place(origin, target)
    wrong = [*lost, *duplicated, *foreign, *misplaced, *disordered]
    return CopyVerdict(
        cluster=target.cluster,
        source_records=len(origin),
        target_records=target.count,
        lost_records=len(lost),
        duplicated_records=sum(copies[record] - 1 for record in duplicated),
        foreign_records=len(foreign),
        misplaced_records=len(misplaced),
        disordered_records=len(disordered),
        examples=tuple(wrong[:_EXAMPLES]),
    )


def _out_of_place(
    origin: Mapping[RecordId, tuple[int, int]], target: TopicLog
) -> tuple[list[RecordId], list[RecordId]]:
    misplaced, disordered = [], []
    for partition, records in target.partitions.items():
        reached: dict[str, int] = {}
        for placed in records:
            place = origin.get(placed.record)
            if place is None:
                continue
            if place[0] != partition:
                misplaced.append(placed.record)
            elif place[1] < reached.get(placed.record.region, -1):
                disordered.append(placed.record)
            else:
                reached[placed.record.region] = place[1]
    return misplaced, disordered
