"""What became of a consumer group: lost and redelivered records of each of its moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.oracle.logs import TopicLog
from lab.workload.delivered import DeliveredRecord
from lab.workload.events import RecordId


@dataclass(frozen=True, slots=True)
class MoveVerdict:
    """One move of a group.

    Attributes:
        lost_records: records that the group passed over in this stage and never delivered later.
        redelivered_records: deliveries in this stage of records that the group had delivered in an earlier one.
        failover_ms: from the order (or the kill) to the first record that was new to the group; None: none came.
    """

    lost_records: int
    redelivered_records: int
    failover_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupJudgement:
    """A group's whole run.

    Attributes:
        delivered_records: different records that it delivered.
        lost_records: records that it never delivered.
        repeated_records: deliveries of a record again in the same stage, where no move excuses them.
        foreign_records: deliveries of records that no source holds.
        moves: stage 0 is the time before the first move.
    """

    delivered_records: int
    lost_records: int
    repeated_records: int
    foreign_records: int
    moves: tuple[MoveVerdict, ...]


def judge_group(
    deliveries: Sequence[DeliveredRecord],
    produced: set[RecordId],
    targets: Mapping[str, TopicLog],
    moved_at_ms: Sequence[int],
) -> GroupJudgement:
    """Judge a group by what its processes wrote down.

    Args:
        deliveries: of all its processes, by wall clock.
        produced: every record that the sources hold.
        targets: the aggregate topics by cluster name, for telling which stage passed over a lost record.
        moved_at_ms: when each move was ordered (or forced, by the kill of the cluster): stages 1, 2, ...
    """
    stages = len(moved_at_ms) + 1
    stage_of: dict[RecordId, int] = {}
    redelivered = [0] * stages
    first_new_at: list[int | None] = [None] * stages
    repeated = foreign = 0
    for delivery in deliveries:
        if delivery.record not in produced:
            foreign += 1
            continue
        earlier = stage_of.get(delivery.record)
        if earlier is None:
            stage_of[delivery.record] = delivery.stage
            if first_new_at[delivery.stage] is None:
                first_new_at[delivery.stage] = delivery.at_ms
        elif earlier < delivery.stage:
            redelivered[delivery.stage] += 1
            stage_of[delivery.record] = delivery.stage
        else:
            repeated += 1
    lost = produced.difference(stage_of)
    lost_in = _lost_by_stage(lost, deliveries, targets, stages)
    starts = [None, *moved_at_ms]
    moves = tuple(
        MoveVerdict(lost_in[stage], redelivered[stage], _since(starts[stage], first_new_at[stage]))
        for stage in range(stages)
    )
    return GroupJudgement(len(stage_of), len(lost), repeated, foreign, moves)


def _since(start: int | None, at_ms: int | None) -> int | None:
    return None if start is None or at_ms is None else at_ms - start


def _lost_by_stage(
    lost: set[RecordId], deliveries: Sequence[DeliveredRecord], targets: Mapping[str, TopicLog], stages: int
) -> list[int]:
    """A lost record belongs to the first stage that delivered something behind it, else to the last one."""
    reached: dict[tuple[int, int], tuple[str, int]] = {}
    for delivery in deliveries:
        key = (delivery.stage, delivery.partition)
        _, furthest = reached.get(key, ("", -1))
        reached[key] = (delivery.cluster, max(furthest, delivery.record_offset))
    places = {name: target.places() for name, target in targets.items()} if lost else {}
    counts = [0] * stages
    for record in lost:
        counts[_stage_that_passed(record, reached, places, stages)] += 1
    return counts


def _stage_that_passed(
    record: RecordId,
    reached: Mapping[tuple[int, int], tuple[str, int]],
    places: Mapping[str, Mapping[RecordId, tuple[int, int]]],
    stages: int,
) -> int:
    for stage in range(stages):
        for (in_stage, partition), (cluster, furthest) in reached.items():
            if in_stage != stage:
                continue
            place = places.get(cluster, {}).get(record)
            if place is not None and place[0] == partition and place[1] < furthest:
                return stage
    return stages - 1
