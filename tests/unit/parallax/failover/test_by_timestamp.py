"""A move for which no row proves a place: refused patience by default, by record timestamps where the operator says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from parallax.domain.outcome import Outcome
from parallax.failover.facts import MoveKind
from parallax.failover.plan import Ending, make_plan
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.failover_bench import P0, Bench, a_move, failover_bench
from tests.worlds.offset_world import NOW_MS


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Ten records a second apart on both sides, six of them consumed on a, and no row of any."""
    with failover_bench() as made:
        for region in ("a", "b"):
            made.writer(region).lay(P0, [NOW_MS + second * 1_000 for second in range(10)])
        made.world.commit("a", 6)
        yield made


def test_without_the_operators_word_it_stays_with_the_log_start_and_waits_for_rows(bench: Bench) -> None:
    (item,) = make_plan(bench.outside.facts(a_move("a", "b"))).partitions
    assert (item.outcome, item.resume_offset, item.settled) == (Outcome.EARLIEST_FALLBACK, 0, False)

    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.ABANDONED
    assert bench.commit("b") is None


def test_the_plan_says_what_timestamps_decided_and_what_that_leaves_unknown(bench: Bench) -> None:
    bench.outside.services.by_timestamp = pb.TimestampPolicy(margin_ms=2_000)

    plan = make_plan(bench.outside.facts(a_move("a", "b")))

    (item,) = plan.partitions
    assert (item.outcome, item.resume_offset, item.settled) == (Outcome.BY_TIMESTAMP, 4, True)
    assert (item.redelivery_records, item.redelivery_at_most_offsets) == (None, 6)
    assert plan.redelivery_records is None
    assert any("record timestamps decided" in text for text in plan.unknown)


@pytest.mark.parametrize("kind", list(MoveKind))
def test_the_move_writes_what_timestamps_say(bench: Bench, kind: MoveKind) -> None:
    bench.outside.services.by_timestamp = pb.TimestampPolicy(margin_ms=2_000)

    result = bench.move("a", "b", kind, drain_ms=1_000)

    assert result.ending is Ending.MOVED, result.problem
    assert bench.commit("b") == 4


def test_where_they_say_nothing_the_plan_tells_why(bench: Bench) -> None:
    bench.outside.services.by_timestamp = pb.TimestampPolicy()
    bench.writer("a").lay(P0, [NOW_MS] * 10, low=8)

    plan = make_plan(bench.outside.facts(a_move("a", "b")))

    assert plan.partitions[0].resume_offset == 0
    assert any("record timestamps could not decide" in text for text in plan.unknown)
