"""How partitions go on that MirrorMaker 2 has copied, and what that tells a route which reads the target."""

from __future__ import annotations

import pytest

from parallax.domain.ids import (
    Lineage,
    RegionName,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.place import LogRange
from parallax.domain.runs import LostRange, Run
from replicator.copying.origins import LoggedEntry, OriginRule, Origins, RecordFate
from replicator.copying.ports import TargetEnd
from replicator.copying.rebuild import PartitionSide
from replicator.copying.reconcile import Beginning, begin
from replicator.copying.state import PartitionChange, encode
from replicator.copying.takeover import Recorded, TakenOver, Takeover, taken_over

ITEM = TopicPartition(TopicName("a.trips"), 0)
SOURCE, TARGET = TopicId("there"), TopicId("here")


def side(topic_id: TopicId, low: int, high: int) -> PartitionSide:
    return PartitionSide(topic_id, LogRange(low, high))


def taken(
    position: int | None, source: tuple[int, int] | None = (10, 100), target: tuple[int, int] | None = (0, 70)
) -> TakenOver:
    return taken_over(
        Recorded(
            ITEM,
            None if position is None else SourceOffset(position),
            None if source is None else side(SOURCE, *source),
            None if target is None else side(TARGET, *target),
        )
    )


def test_copying_goes_on_at_the_position_above_all_that_the_target_holds() -> None:
    found = taken(60)
    assert (found.takeover, found.source_next, found.target_next, found.left) == (
        Takeover.GOES_ON,
        60,
        70,
        40,
    )
    (change,) = found.changes
    assert change.state.source_next == change.state.last_run_end == 60
    assert change.state.target_floor == change.state.target_first == 70
    # No row may say that nothing lies below: what does is not mapped.
    assert change.rows == (Run(SourceOffset(60), TargetOffset(70), 0, SourceOffset(60)),)
    assert change.lost == ()


@pytest.mark.parametrize("position", [10, 100])
def test_the_ends_of_what_the_source_holds_are_good_positions(position: int) -> None:
    assert taken(position).takeover is Takeover.GOES_ON


def test_what_retention_has_taken_is_told_and_left_to_the_replicator_to_write_down() -> None:
    found = taken(4)
    assert (found.takeover, found.source_next, found.left) == (Takeover.LOST, 4, 90)
    assert "[4, 10)" in found.why


def test_of_another_log_all_is_copied() -> None:
    found = taken(101)
    assert (found.takeover, found.source_next, found.left) == (Takeover.ANEW, 10, 90)
    (change,) = found.changes
    assert change.lost == (LostRange(SourceOffset(0), SourceOffset(10), TargetOffset(70)),)


def test_what_is_not_recorded_or_not_at_the_target_begins_as_any_other() -> None:
    assert [(item.takeover, item.changes, item.left) for item in (taken(None), taken(60, target=None))] == [
        (Takeover.BEGINS, (), 90),
        (Takeover.BEGINS, (), 90),
    ]
    assert taken(60, source=None).takeover is Takeover.GONE


def judged(origins: Origins, *offsets: int) -> list[tuple[int, int, RecordFate]]:
    return origins.judge(ITEM, TARGET, -1, offsets)


def snapshot(*changes: PartitionChange) -> LoggedEntry:
    entry = encode(
        run_log_id=TopicId("log"),
        layout=1,
        shard=0,
        path="layout",
        changes=changes,
        everything={},
        committed_at_ms=0,
    )
    return LoggedEntry(RegionName("a"), 0, entry)


@pytest.mark.parametrize("follows", [True, False])
def test_what_mirror_maker_has_copied_is_not_taken_for_the_targets_own(*, follows: bool) -> None:
    origins = Origins(OriginRule(own=True, incoming={RegionName("a"): False}), lambda _item: True)
    origins.add(snapshot(*taken(60).changes), follows=follows)
    assert judged(origins, 69, 70) == [(0, 1, RecordFate.UNKNOWN), (1, 2, RecordFate.COPY)]
    assert not origins.reach(ITEM, TARGET, 69)
    assert origins.reach(ITEM, TARGET, 70)


def test_what_lay_there_before_a_route_began_is_the_targets_own() -> None:
    origins = Origins(OriginRule(own=True, incoming={RegionName("a"): False}), lambda _item: True)
    beginning = Beginning(Lineage(SOURCE, TARGET), SourceOffset(0), "first seen")
    entry = snapshot(*begin(ITEM, beginning, None, TargetEnd(TargetOffset(70)))).entry
    entry.path = "batch"
    origins.add(LoggedEntry(RegionName("a"), 0, entry))
    assert judged(origins, 69, 70) == [(0, 2, RecordFate.COPY)]
