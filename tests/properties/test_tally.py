"""Which records a group consumed once, twice or never, against a count record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import event, given
from hypothesis import strategies as st

from parallax.domain.consumption import ConsumptionKind, Stretch, Tally, tally, total
from parallax.domain.history import History
from parallax.domain.ids import Lineage, SourceOffset, TargetOffset, TopicId
from parallax.domain.runs import LostRange, Run, watermark
from tests.worlds.model_logs import build_runs

LINEAGE = Lineage(TopicId("source"), TopicId("target"))
BEYOND = 10_000


@dataclass(frozen=True)
class Copy:
    """A source on one cluster: where each record lies, what was lost or compacted, and the rows of all that."""

    places: dict[int, int]
    lost: dict[int, int]
    copied_to: int
    history: History
    end: int


@dataclass(frozen=True)
class Case:
    copies: list[Copy]
    stretches: list[tuple[Copy, Stretch]]
    records: list[int]


@st.composite
def copies(draw: st.DrawFn, records: Sequence[int]) -> Copy:
    copied_to = draw(st.integers(0, (records[-1] + 1) if records else 0))
    gap = draw(st.tuples(st.integers(0, 30), st.integers(1, 6))) if draw(st.booleans()) else None
    places: dict[int, int] = {}
    lost: dict[int, int] = {}
    rows: list[Run] = []
    lost_ranges: list[LostRange] = []
    target = last_end = 0
    pending: list[int] = []

    def flush() -> None:
        nonlocal pending, last_end
        if not pending:
            return
        found = build_runs(
            pending,
            [places[offset] for offset in pending],
            previous_source_end=SourceOffset(last_end),
            source_leader_epoch=0,
        )
        rows.extend(found)
        last_end = rows[-1].source_end
        pending = []

    for offset in [item for item in records if item < copied_to]:
        if gap is not None and gap[0] <= offset < gap[0] + gap[1]:
            if not lost_ranges:
                flush()
                start = max(gap[0], last_end)
                lost_ranges.append(
                    LostRange(SourceOffset(start), SourceOffset(gap[0] + gap[1]), TargetOffset(target))
                )
                last_end = gap[0] + gap[1]
            lost[offset] = lost_ranges[0].target_at
            continue
        if draw(st.integers(0, 12)) == 0:
            continue  # compacted before it was copied
        target += draw(st.sampled_from([0, 0, 0, 1, 3]))
        places[offset] = target
        pending.append(offset)
        target += 1
    flush()
    end = target + draw(st.integers(0, 3))
    rows.append(
        watermark(
            source_next=SourceOffset(max(copied_to, last_end)),
            target_end=TargetOffset(end),
            last_run_end=SourceOffset(last_end),
        )
    )
    return Copy(places, lost, max(copied_to, last_end), History(LINEAGE, rows, lost_ranges), end)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kinds = draw(st.lists(st.booleans(), max_size=40))
    records = [offset for offset, is_record in enumerate(kinds) if is_record]
    made = [draw(copies(records)) for _ in range(draw(st.integers(2, 3)))]
    stretches = []
    for index in range(draw(st.integers(1, 4))):
        copy = made[index % len(made)]
        start = 0 if index == 0 else draw(st.integers(0, copy.end))
        end = draw(st.integers(start, copy.end))
        stretch = Stretch(
            copy.history,
            TargetOffset(start),
            TargetOffset(end),
            TargetOffset(draw(st.one_of(st.just(end), st.integers(end, copy.end)))),
            given=SourceOffset(draw(st.integers(0, 20)) if index == 0 else 0),
            skipped=SourceOffset(draw(st.sampled_from([0, 0, 8, 25])) if index else 0),
        )
        stretches.append((copy, stretch))
    return Case(made, stretches, records)


def times(case: Case, offset: int) -> int:
    return sum(
        offset < stretch.given
        or (offset >= stretch.skipped and stretch.start <= copy.places.get(offset, BEYOND) < stretch.end)
        for copy, stretch in case.stretches
    )


def truth(case: Case, offset: int) -> ConsumptionKind | None:
    count = times(case, offset)
    if count:
        return ConsumptionKind.TWICE if count > 1 else ConsumptionKind.ONCE
    copy, stretch = case.stretches[-1]
    if offset in copy.lost:
        return ConsumptionKind.LOST if copy.lost[offset] <= stretch.passed_to else None
    place = BEYOND if offset >= copy.copied_to else copy.places[offset]
    return ConsumptionKind.NEVER if place < stretch.passed_to else None


def compacted(case: Case, offset: int) -> bool:
    """Whether some cluster has no such record although it has copied beyond."""
    return any(
        offset < copy.copied_to and offset not in copy.places and offset not in copy.lost
        for copy, _ in case.stretches
    )


def told(found: Tally, offset: int) -> ConsumptionKind | None:
    if offset < found.examined[0]:
        return ConsumptionKind.ONCE
    kinds = [
        kind
        for kind, ranges in found.ranges.items()
        for item in ranges
        if item.start <= offset and (item.end is None or offset < item.end)
    ]
    assert len(kinds) <= 1
    return kinds[0] if kinds else None


@given(cases())
def test_every_record_is_told_as_a_count_record_by_record_tells_it(case: Case) -> None:
    found = tally([stretch for _, stretch in case.stretches])
    assert ConsumptionKind.UNKNOWN not in found.ranges
    for offset in case.records:
        if compacted(case, offset):
            assert (told(found, offset) is ConsumptionKind.TWICE) == (times(case, offset) > 1)
            assert told(found, offset) is not ConsumptionKind.NEVER or times(case, offset) == 0
            continue
        wanted = truth(case, offset)
        if offset < found.examined[0]:
            assert wanted in {ConsumptionKind.ONCE, ConsumptionKind.LOST}
            continue
        assert told(found, offset) is wanted, (offset, found)
        event(f"a record was consumed {wanted.value if wanted else 'not yet'}")
    again = [offset for offset in case.records if times(case, offset) > 1]
    assert found.records(ConsumptionKind.TWICE) == len(again)


@given(cases())
def test_what_lies_ahead_again_is_what_was_consumed_and_is_still_to_come(case: Case) -> None:
    found = tally([stretch for _, stretch in case.stretches])
    copy, stretch = case.stretches[-1]
    wanted = [
        offset
        for offset in case.records
        if len(case.stretches) > 1
        and times(case, offset)
        and not compacted(case, offset)
        and offset not in copy.lost
        and (offset >= copy.copied_to or copy.places[offset] >= stretch.passed_to)
    ]
    ranges = found.ahead
    for offset in wanted:
        assert any(item.start <= offset and (item.end is None or offset < item.end) for item in ranges)
    assert total(ranges) >= len(wanted)


@given(cases(), st.data())
def test_missing_rows_make_it_doubtful_and_never_wrong(case: Case, data: st.DataObject) -> None:
    thinned = []
    for _, stretch in case.stretches:
        rows = [row for row in stretch.history.rows if data.draw(st.booleans())]
        thinned.append(replace(stretch, history=History(LINEAGE, rows, stretch.history.lost)))
    found = tally(thinned)
    for offset in case.records:
        if compacted(case, offset):
            continue
        kind, wanted = told(found, offset), truth(case, offset)
        if offset < found.examined[0]:
            assert wanted in {ConsumptionKind.ONCE, ConsumptionKind.LOST}
        else:
            assert kind in {wanted, ConsumptionKind.UNKNOWN}, (offset, found)
        event("in doubt" if kind is ConsumptionKind.UNKNOWN else "known")


@given(cases())
def test_skips_that_nobody_knows_of_are_doubtful(case: Case) -> None:
    if len(case.stretches) == 1:
        return
    (*before, (copy, last)) = case.stretches
    found = tally([*(stretch for _, stretch in before), replace(last, skips_known=False)])
    for offset in case.records:
        if last.start <= copy.places.get(offset, BEYOND) < last.end and offset >= found.examined[0]:
            doubtful = (
                {ConsumptionKind.UNKNOWN, ConsumptionKind.TWICE}
                if offset < last.skipped
                else {ConsumptionKind.ONCE, ConsumptionKind.TWICE}
            )
            assert told(found, offset) in doubtful
