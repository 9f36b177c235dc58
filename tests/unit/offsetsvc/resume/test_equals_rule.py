"""The service reads a few rows for each answer: it must say what the rule says over all of them."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from offsetsvc.answers import FailoverAnswer
from parallax.domain.history import History
from parallax.domain.ids import (
    RegionName,
    RoutePartition,
    SourceId,
    TargetOffset,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress, SourceHistory
from parallax.domain.resume import resume
from parallax.domain.skips import after_skips, skip_ranges
from parallax.index.directory import Blocks
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import GROUP, TOPIC, Record, World

REGIONS = ("a", "b")

Step = Callable[[World], object]

# Shrinking takes minutes here; the seed that Hypothesis prints repeats a failure.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """One thing that happens in a world."""
    source, target = draw(st.sampled_from(REGIONS)), draw(st.sampled_from(REGIONS))
    kind = draw(st.sampled_from(["copy", "copy", "copy", "gap", "marker", "watermark", "leader"]))
    count = draw(st.integers(1, 5))
    if kind == "copy":
        return lambda world: world.copy(source, target, count)
    if kind == "gap":
        return lambda world: _copy_with_gap(world, source, count)
    if kind == "marker":
        return lambda world: world.marker(target)
    if kind == "watermark":
        return lambda world: [world.watermark(each, target) for each in REGIONS]
    return lambda world: world.new_leader(source)


def _copy_with_gap(world: World, source: str, count: int) -> None:
    """Offsets without a record, which every target must skip alike: copied everywhere at once."""
    furthest = max(world.copying(source, target).source_next for target in REGIONS)
    for target in REGIONS:
        behind = furthest - world.copying(source, target).source_next
        if behind:
            world.copy(source, target, behind)
        world.copy(source, target, count, skip=2)


@given(st.lists(steps(), max_size=40), st.integers(2, 40), st.data())
@settings(max_examples=300, deadline=None, phases=_PHASES)
def test_the_answer_is_that_of_the_rule_over_all_rows(
    events: list[Step], rows_per_block: int, data: st.DataObject
) -> None:
    world, commit, answer = _answer_after(events, rows_per_block, data)
    _assert_safe(world, answer, _consumed(world.records("a")[:commit]))


@st.composite
def losses(draw: st.DrawFn) -> Step:
    """Retention takes records before a target has copied them."""
    source, target = draw(st.sampled_from(REGIONS)), draw(st.sampled_from(REGIONS))
    count = draw(st.integers(1, 3))

    def lose(world: World) -> None:
        world.lose(source, target, count)
        world.watermark(source, target)

    return lose


@given(st.lists(st.one_of(steps(), steps(), losses()), max_size=60), st.integers(2, 40), st.data())
@settings(max_examples=300, deadline=None, phases=_PHASES)
def test_behind_lost_ranges_the_answer_is_that_of_the_rule_over_all_rows(
    events: list[Step], rows_per_block: int, data: st.DataObject
) -> None:
    _answer_after(events, rows_per_block, data)


@given(st.lists(steps(), max_size=40), st.integers(1, 3), st.data())
@settings(max_examples=80, deadline=None, phases=_PHASES)
def test_limits_cut_skip_ranges_short_and_never_make_them_wrong(
    events: list[Step], most_ranges: int, data: st.DataObject
) -> None:
    world = World(REGIONS, service={"max_rows": 100, "max_skip_ranges": most_ranges})
    for event in events:
        event(world)
    commit = data.draw(st.integers(0, len(world.records("a"))), label="commit")

    answer = _ask(world, "a", "b", commit)

    assert len(answer.skip_ranges) <= most_ranges
    consumed = _consumed(world.records("a")[:commit])
    _assert_safe(world, answer, consumed)
    if answer.skip_ranges_continue_at is not None:
        assert answer.complete_to == answer.skip_ranges_continue_at
        log = world.records("b")[answer.resume_offset : answer.complete_to]
        skipped = _skipped(answer)
        for place, record in enumerate(log, answer.resume_offset):
            assert record is None or (record in consumed) == (place in skipped)


@given(
    st.lists(steps(), max_size=25), st.lists(steps(), max_size=15), st.lists(steps(), max_size=15), st.data()
)
@settings(max_examples=80, deadline=None, phases=_PHASES)
def test_there_and_back_again_nothing_is_lost_and_nothing_read_twice(
    before: list[Step], during: list[Step], after: list[Step], data: st.DataObject
) -> None:
    world = World(REGIONS)
    for event in before:
        event(world)
    world.watermarks()
    commit = data.draw(st.integers(0, len(world.records("a"))), label="commit in a")
    there = _ask(world, "a", "b", commit, record_move=True)
    consumed = _consumed(world.records("a")[:commit])
    _assert_safe(world, there, consumed)
    for event in during:
        event(world)
    _catch_up(world)
    log = world.records("b")
    second = data.draw(st.integers(there.resume_offset, len(log)), label="commit in b")
    delivered = [record for record in log[there.resume_offset : second] if record and record not in consumed]
    consumed |= set(delivered)
    for event in after:
        event(world)
    _catch_up(world)

    back = _ask(world, "b", "a", second)

    _assert_safe(world, back, consumed, target="a")
    skipped = _skipped(back)
    for place, record in enumerate(world.records("a")):
        if place >= back.resume_offset and record is not None and record in consumed:
            assert place in skipped, f"{record} at {place} would be read twice"


def _catch_up(world: World) -> None:
    """Every route copies what any other has of its source, and says that nothing is left."""
    for source in REGIONS:
        furthest = max(world.copying(source, target).source_next for target in REGIONS)
        for target in REGIONS:
            behind = furthest - world.copying(source, target).source_next
            if behind:
                world.copy(source, target, behind)
    world.watermarks()


def _answer_after(
    events: list[Step], rows_per_block: int, data: st.DataObject
) -> tuple[World, int, FailoverAnswer]:
    """A world after the events, any commit in it, and the answer to that: equal to the rule's over all rows."""
    world = World(REGIONS, service={"max_rows": 100_000}, rows_per_block=rows_per_block)
    world.watermarks()
    for event in events:
        event(world)
    commit = data.draw(st.integers(0, len(world.records("a"))), label="commit")
    if data.draw(st.booleans(), label="remembers no more than it has to"):
        world.index._blocks = Blocks(world.index, memory_bytes=1)

    answer = _ask(world, "a", "b", commit)

    expected, ranges = _by_all_rows(world, "a", "b", commit)
    assert answer.resume_offset == expected
    assert list(answer.skip_ranges) == ranges
    return world, commit, answer


def _ask(world: World, origin: str, target: str, commit: int, *, record_move: bool = False) -> FailoverAnswer:
    with world.service() as service:
        request = world.request(origin, target, commit)
        return service.failover.answers(request, Deadline.after_ms(60_000), record_move=record_move)[0]


def _by_all_rows(world: World, origin: str, target: str, commit: int) -> tuple[int, list[tuple[int, int]]]:
    """The rule over every row that was ever written."""
    here, there = _histories(world, origin), _histories(world, target)
    log = world.cluster(target).ranges[TopicPartition(TOPIC, 0)]
    found = resume(
        commit=TargetOffset(commit),
        regions=world.regions,
        origin=here,
        destination=there,
        destination_log=log,
        progress=_progress(world, origin),
    )
    ranges = skip_ranges(
        positions={item.source: item.consumed for item in found.sources},
        origin=here,
        destination=there,
        start=found.resume_offset,
        end=TargetOffset(log.high_watermark + 1),
    )
    expected = after_skips(found.resume_offset, ranges)
    return expected, [(item.start, item.end) for item in ranges if item.end > expected]


def _histories(world: World, target: str) -> list[SourceHistory]:
    items = []
    for source in REGIONS:
        item: RoutePartition = world.item(source, target)
        for record in world.index.lineages(item.route, TOPIC):
            rows = world.index.rows_from_target(item, record.lineage, TargetOffset(0), 1_000_000).rows
            rows = (*world.index.rows_at_target(item, record.lineage, TargetOffset(0)), *rows)
            key = (item, record.lineage)
            lost = world.index.lost_ranges([key])[key]
            history = History(record.lineage, rows, lost)
            items.append(SourceHistory(_source_of(world, source, target), history, record.closed_at))
    return items


def _source_of(world: World, source: str, target: str) -> SourceId:
    return SourceId(RegionName(source), world.copying(source, target).lineage.source_topic_id)


def _progress(world: World, origin: str) -> Progress | None:
    stored = world.groups.progress(GROUP, TOPIC).get(0)
    return stored if stored and stored.cluster == aggregate_cluster(RegionName(origin)) else None


def _consumed(log: list[Record | None]) -> set[Record]:
    return {record for record in log if record is not None}


def _skipped(answer: FailoverAnswer) -> set[int]:
    return {place for item in answer.skip_ranges for place in range(*item)}


def _assert_safe(world: World, answer: FailoverAnswer, consumed: set[Record], *, target: str = "b") -> None:
    skipped = _skipped(answer)
    for place, record in enumerate(world.records(target)):
        if place < answer.resume_offset or place in skipped:
            assert record is None or record in consumed, f"{record} at {place} would be lost"


def test_a_group_that_stands_before_lost_ranges_is_known_to_have_read_up_to_them() -> None:
    world = World(REGIONS, rows_per_block=2)
    world.watermarks()
    world.copy("a", "a", 2)
    world.copy("a", "b", 2)
    for count in (1, 2):
        world.lose("a", "a", count)
        world.watermark("a", "a")
    world.copy("a", "a", 1)

    answer = _ask(world, "a", "b", 2)

    assert answer.resume_offset == _by_all_rows(world, "a", "b", 2)[0] == 2


def test_after_a_leader_change_a_cluster_that_is_behind_is_compared_by_the_older_epoch() -> None:
    world = World(REGIONS)
    world.copy("a", "a", 3)
    world.new_leader("a")
    world.copy("a", "a", 3)
    world.copy("a", "a", 3)
    world.copy("a", "b", 2)
    world.watermarks()

    answer = _ask(world, "a", "b", 9)

    assert answer.resume_offset == 2
    assert [(view.answer.pending, view.pending_records) for view in answer.sources] == [
        ((2, 9), 7),
        (None, 0),
    ]


def _lost_long_ago() -> World:
    """Region b's cluster has all records of epoch 0 and 1; a's lacks two of them, and the leader changed meanwhile."""
    world = World(REGIONS, service={"max_rows": 100_000}, rows_per_block=2)
    for target in REGIONS:
        for _ in range(5):
            world.copy("a", target, 2)
            world.copy("b", target, 1)
    world.new_leader("a")
    world.lose("a", "a", 2)
    world.watermark("a", "a")
    world.copy("a", "b", 2)
    for target in REGIONS:
        for _ in range(20):
            world.copy("a", target, 2)
            world.copy("b", target, 1)
    world.watermarks()
    return world


def test_records_read_behind_a_range_lost_long_ago_hold_nothing_back() -> None:
    world = _lost_long_ago()
    answer = _ask(world, "a", "b", len(world.records("a")))
    assert answer.resume_offset == _lowest_place(answer) == len(world.records("b"))


def _lowest_place(answer: FailoverAnswer) -> int:
    """The resume offset without skip ranges."""
    return min(view.answer.position for view in answer.sources if view.answer.position is not None)


def test_an_idle_source_that_ended_in_aborted_records_does_not_hold_the_answer_back() -> None:
    world = World(REGIONS)
    world.copy("a", "a", 3)
    world.copy("a", "b", 3)
    for _ in range(4):  # each time further offsets without a record, and records of the other source
        for target in REGIONS:
            world.copying("a", target).source_next += 2
            world.watermark("a", target)
            world.copy("b", target, 2)
            world.watermarks()

    answer = _ask(world, "a", "b", len(world.records("a")))

    assert answer.resume_offset == len(world.records("b"))


def test_an_idle_source_that_goes_on_later_does_not_hold_the_answer_back() -> None:
    world = World(REGIONS)
    for target in REGIONS:
        world.copy("a", target, 3)
    for _ in range(4):
        for target in REGIONS:
            world.copying("a", target).source_next += 2
            world.watermark("a", target)
            world.copy("b", target, 2)
            world.marker(target)
    commit = len(world.records("a"))
    expected = len(world.records("b"))
    for target in REGIONS:
        for _ in range(3):
            world.copy("a", target, 2)
            world.copy("b", target, 2)

    answer = _ask(world, "a", "b", commit)

    assert answer.resume_offset == expected


def test_what_was_consumed_before_the_last_move_is_skipped_on_the_way_back() -> None:
    world = World(REGIONS)
    for _ in range(3):
        world.copy("a", "a", 2)
        world.copy("b", "a", 2)
    world.copy("b", "b", 6)
    world.watermarks()
    there = _ask(world, "a", "b", 12, record_move=True)
    world.copy("a", "b", 6)
    world.copy("b", "b", 3)
    world.copy("a", "a", 3)
    world.copy("b", "a", 3)
    world.watermarks()
    assert (there.resume_offset, there.pending_records) == (6, 6)

    back = _ask(world, "b", "a", 7)

    assert back.resume_offset == 12
    assert Outcome.REWOUND not in back.notes


def test_a_position_below_the_last_move_voids_what_was_consumed_before_it() -> None:
    world = World(REGIONS)
    for target in REGIONS:
        world.copy("a", target, 6)
        world.copy("b", target, 6)
    world.watermarks()
    _ask(world, "a", "b", 12, record_move=True)

    back = _ask(world, "b", "a", 3)

    assert Outcome.REWOUND in back.notes
    assert back.resume_offset == 3
