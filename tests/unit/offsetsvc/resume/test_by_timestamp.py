"""Record timestamps instead of the log start: only where asked for, only where no row proves a place, and labelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from offsetsvc.answers import ByTimestamp, FailoverAnswer, TimeBasis, TimestampPolicy
from offsetsvc.messages import policy_from_pb
from offsetsvc.resume.explain import explain
from offsetsvc.transport.rest import policy_of
from parallax.domain.ids import TopicId, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.domain.place import Via
from parallax.errors import InvalidNameError, InvalidOffsetError
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.offset_world import NOW_MS, TOPIC, Control, World

P0 = TopicPartition(TOPIC, 0)
MARGIN_MS = 100
ASKED = TimestampPolicy(MARGIN_MS)


@pytest.fixture
def world() -> World:
    """Ten records a second apart in both clusters, a control record in the middle, and no row of any of them."""
    made = World(("a", "b"))
    times = [NOW_MS + second * 1_000 for second in range(10)]
    for region in ("a", "b"):
        made.cluster(region).lay(P0, [*times[:5], Control(times[5]), *times[5:]])
    return made


def ask(
    world: World, next_offset: int | None = None, policy: TimestampPolicy | None = ASKED
) -> FailoverAnswer:
    request = replace(world.request("a", "b", next_offset), by_timestamp=policy)
    with world.service() as service:
        return service.failover.answers(request, Deadline.after_ms(30_000))[0]


def test_nobody_gets_it_unasked(world: World) -> None:
    world.commit("a", 7)

    answer = ask(world, policy=None)

    assert (answer.outcome, answer.resume_offset) == (Outcome.EARLIEST_FALLBACK, 0)
    assert answer.by_timestamp is None
    assert "imestamp" not in explain(answer)


def test_it_is_the_first_record_not_older_than_the_position_less_the_margin(world: World) -> None:
    world.cluster("b").lay(P0, [NOW_MS + at_ms for at_ms in (0, 5_800, 5_950, 5_900, 7_000)])
    world.commit("a", 7)  # NOW_MS + 6_000

    answer = ask(world)

    assert (answer.resume_offset, answer.destination.next_offset) == (2, 2)
    assert answer.notes == (Outcome.BY_TIMESTAMP,)
    assert {view.answer.via for view in answer.sources} == {Via.TIMESTAMP}
    assert answer.by_timestamp == ByTimestamp(TimeBasis.POSITION, MARGIN_MS, NOW_MS + 6_000, "", 3)
    assert answer.redelivery_records is None
    assert "at most 3" in explain(answer)


def test_the_margin_is_the_configured_one_unless_the_caller_names_another(world: World) -> None:
    world = World(("a", "b"), service={"by_timestamp_margin_ms": 4_000})
    for region in ("a", "b"):
        world.cluster(region).lay(P0, [NOW_MS + second * 1_000 for second in range(10)])
    world.commit("a", 8)

    assert ask(world, policy=TimestampPolicy()).resume_offset == 4
    assert ask(world, policy=TimestampPolicy(2_000)).resume_offset == 6


def test_a_group_at_the_end_goes_by_the_last_record(world: World) -> None:
    for times in ([NOW_MS, NOW_MS + 9_000, Control(NOW_MS + 9_500)], [NOW_MS, NOW_MS + 9_000]):
        world.cluster("a").lay(P0, times)

        answer = ask(world, len(times))

        assert answer.by_timestamp is not None
        assert answer.by_timestamp.basis is TimeBasis.BELOW
        assert answer.by_timestamp.timestamp_ms == NOW_MS + 9_000
        assert answer.resume_offset == 10


def test_without_a_record_so_late_it_is_the_end(world: World) -> None:
    world.cluster("b").lay(P0, [NOW_MS, NOW_MS + 1])
    world.commit("a", 7)

    answer = ask(world)

    assert answer.resume_offset == 2
    assert answer.by_timestamp is not None
    assert answer.by_timestamp.redelivery_at_most_offsets == 0
    assert answer.redelivery_records is None  # more may still arrive


def mapped(regions: str) -> World:
    """Ten records of each of two regions in both clusters, a second apart; rows of the regions named alone."""
    world = World(("a", "b"))
    for region in ("a", "b"):
        for source in ("a", "b"):
            if source in regions:
                world.copy(source, region, 10)
            else:
                world.records(region).extend((world.regions[0], number) for number in range(10))
    for source in regions:
        for region in ("a", "b"):
            world.watermark(source, region)
    for region in ("a", "b"):
        world.cluster(region).lay(P0, [NOW_MS + second * 1_000 for second in range(20)])
    return world


def test_what_rows_prove_of_another_source_holds() -> None:
    world = mapped("b")
    world.commit("a", 15)

    assert ask(world, policy=TimestampPolicy(0, NOW_MS + 17_000)).resume_offset == 15
    assert ask(world, policy=TimestampPolicy(0, NOW_MS + 3_000)).resume_offset == 3


def test_where_rows_prove_all_nothing_changes() -> None:
    world = mapped("ab")
    world.commit("a", 15)

    assert ask(world) == ask(world, policy=None)


def test_a_dead_origin_needs_the_callers_own_time(world: World) -> None:
    world.cluster("a").away = True

    without = ask(world, 7)
    own = ask(world, 7, TimestampPolicy(MARGIN_MS, NOW_MS + 4_000))

    assert set(without.notes) == {Outcome.UNREACHABLE, Outcome.EARLIEST_FALLBACK}
    assert without.resume_offset == 0
    assert without.by_timestamp is not None
    assert without.by_timestamp.basis is TimeBasis.NONE
    assert "name a time of your own" in explain(without)
    assert set(own.notes) == {Outcome.UNREACHABLE, Outcome.BY_TIMESTAMP}
    assert own.resume_offset == 4
    assert own.by_timestamp is not None
    assert own.by_timestamp.basis is TimeBasis.CALLER


def dead_destination(world: World) -> None:
    world.copy("a", "b", 1)  # the index answers in its place
    world.cluster("b").away = True


def trimmed_origin(world: World) -> None:
    world.cluster("a").lay(P0, [NOW_MS] * 11, low=8)


def timeless_origin(world: World) -> None:
    world.cluster("a").lay(P0, [Control(NOW_MS)] * 11)


def recreated_origin(world: World) -> None:
    world.cluster("a").infos[TOPIC] = TopicInfo(TOPIC, TopicId("aggregate-a-2"), 1)


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (dead_destination, "no broker answered"),
        (trimmed_origin, "its log does not hold it"),
        (timeless_origin, "its record bears none"),
        (recreated_origin, "created anew"),
    ],
)
def test_where_timestamps_say_nothing_the_log_start_holds_and_the_answer_says_why(
    world: World, happens: Callable[[World], None], why: str
) -> None:
    happens(world)

    answer = ask(world, 7)

    assert Outcome.EARLIEST_FALLBACK in answer.notes
    assert Outcome.BY_TIMESTAMP not in answer.notes
    assert answer.by_timestamp is not None
    assert answer.by_timestamp.basis is TimeBasis.NONE
    assert why in answer.by_timestamp.problem
    assert answer.by_timestamp.problem in explain(answer)
    assert answer.resume_offset == ask(world, 7, None).resume_offset


def test_the_callers_time_needs_nothing_of_the_origin(world: World) -> None:
    for happens in (trimmed_origin, timeless_origin, recreated_origin):
        happens(world)

        answer = ask(world, 7, TimestampPolicy(MARGIN_MS, NOW_MS + 4_000))

        assert Outcome.BY_TIMESTAMP in answer.notes
        assert answer.resume_offset == 4


def test_a_group_without_a_commit_has_no_time() -> None:
    world = World(("a", "b"), partitions=2, sync={"no_commit": "latest"})
    for region in ("a", "b"):
        world.cluster(region).lay(P0, [NOW_MS] * 3)
    world.commit("a", 0, partition=1)

    answer = ask(world)

    assert set(answer.notes) == {Outcome.EARLIEST_FALLBACK, Outcome.NO_COMMIT}
    assert answer.by_timestamp is not None
    assert answer.by_timestamp.problem == "the group has no position whose time could be read"


def test_a_margin_that_means_nothing_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="margin_ms means nothing"):
        policy_of(by_timestamp=False, margin_ms=1, timestamp_ms=None)
    with pytest.raises(InvalidOffsetError, match="timestamp_ms -1 is negative"):
        policy_from_pb(pb.GetFailoverOffsetRequest(by_timestamp=pb.TimestampPolicy(timestamp_ms=-1)))
    assert policy_of(by_timestamp=False, margin_ms=None, timestamp_ms=None) is None
