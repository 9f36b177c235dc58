"""The delivery gate against a model that is nothing but sets of offsets."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from parallax.consumer.gate import Gate, GateDecision, check_invariants
from parallax.domain.ids import TargetOffset
from parallax.domain.skips import SkipRange

END = 60


@dataclass
class Case:
    """A partition of ``END`` offsets: which were consumed, which hold a record, and how knowledge grows."""

    consumed: set[int]
    records: list[int]
    start: int
    knowledge: list[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    offsets = st.integers(0, END - 1)
    start = draw(offsets)
    consumed = draw(st.sets(offsets)) | set(range(start))
    records = sorted(draw(st.sets(offsets)))
    knowledge = sorted(draw(st.lists(st.integers(start, END), max_size=6)))
    return Case(consumed, records, start, knowledge)


def ranges(consumed: set[int], start: int, end: int) -> list[SkipRange]:
    """Every consumed offset as a range of its own: putting them together is the gate's business."""
    return [
        SkipRange(TargetOffset(offset), TargetOffset(offset + 1))
        for offset in range(start, end)
        if offset in consumed
    ]


@given(cases())
def test_what_is_delivered_is_what_was_not_consumed(case: Case) -> None:
    known = case.knowledge[0] if case.knowledge else END
    gate = Gate(case.start, skip_ranges=ranges(case.consumed, case.start, known), known_to=known)
    growth = [*case.knowledge[1:], END]
    delivered = []
    for offset in (record for record in case.records if record >= case.start):
        while (verdict := gate.decide(offset)) is GateDecision.HOLD:
            assert offset >= known
            assert gate.position <= offset
            further = growth.pop(0)
            last = not growth
            gate.learn(ranges(case.consumed, known, further), None if last else further)
            known = further
        assert (verdict is GateDecision.SKIP) == (offset in case.consumed)
        assert gate.position == offset + 1
        if verdict is GateDecision.DELIVER:
            delivered.append(offset)
    assert delivered == [
        offset for offset in case.records if offset >= case.start and offset not in case.consumed
    ]


@given(cases(), st.integers(0, END))
def test_nothing_at_or_above_what_is_known_is_delivered(case: Case, known: int) -> None:
    known = max(known, case.start)
    gate = Gate(case.start, skip_ranges=ranges(case.consumed, case.start, known), known_to=known)
    for offset in case.records:
        if gate.decide(offset) is GateDecision.DELIVER:
            assert case.start <= offset < known


@given(cases(), st.integers(0, END))
def test_a_commit_carries_exactly_the_ranges_above_it(case: Case, position: int) -> None:
    gate = Gate(case.start, skip_ranges=ranges(case.consumed, case.start, END))
    carried = {offset for item in gate.ranges_from(position) for offset in range(item.start, item.end)}
    wanted = {offset for offset in case.consumed if case.start <= offset < END}
    assert {offset for offset in carried if offset >= position} == {
        offset for offset in wanted if offset >= position
    }
    assert carried <= wanted
    restored = Gate(max(position, case.start), skip_ranges=gate.ranges_from(position), floor=case.start)
    for offset in case.records:
        if offset >= max(position, case.start):
            expected = GateDecision.SKIP if offset in case.consumed else GateDecision.DELIVER
            assert restored.decide(offset) is expected


@given(cases(), st.integers(0, END))
def test_a_seek_below_the_floor_voids_everything(case: Case, position: int) -> None:
    gate = Gate(case.start, skip_ranges=ranges(case.consumed, case.start, END), known_to=END)
    kept = gate.seek(position)
    assert kept == (position >= case.start)
    assert gate.position == position
    if kept:
        return
    assert not gate.is_open
    assert [gate.decide(offset) for offset in range(position, END)] == [GateDecision.DELIVER] * (
        END - position
    )


@given(st.lists(st.tuples(st.integers(0, END), st.integers(1, 5)), max_size=12))
def test_ranges_are_kept_in_order_and_apart(pairs: list[tuple[int, int]]) -> None:
    gate = Gate(0, known_to=0)
    for start, length in pairs:
        gate.learn([SkipRange(TargetOffset(start), TargetOffset(start + length))], 0)
        check_invariants(gate)
    covered = {offset for start, length in pairs for offset in range(start, start + length)}
    kept = {offset for item in gate.ranges_from(0) for offset in range(item.start, item.end)}
    assert kept == covered


@given(st.lists(st.integers(0, END), min_size=1))
def test_what_is_known_stays_known(bounds: list[int]) -> None:
    gate = Gate(0, known_to=bounds[0])
    for bound in bounds:
        gate.learn([], bound)
    assert gate.known_to == max(bounds)


def test_a_record_is_never_delivered_twice() -> None:
    gate = Gate(5)
    assert [gate.decide(offset) for offset in (4, 5, 5, 6)] == [
        GateDecision.REPEATED,
        GateDecision.DELIVER,
        GateDecision.REPEATED,
        GateDecision.DELIVER,
    ]


def test_a_closed_gate_learns_nothing_more() -> None:
    gate = Gate(0)
    gate.learn([SkipRange(TargetOffset(0), TargetOffset(9))], 9)
    assert gate.decide(0) is GateDecision.DELIVER
    assert not gate.is_open
