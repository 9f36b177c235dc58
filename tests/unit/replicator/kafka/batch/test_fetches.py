"""Fetches grow while the copier waits for them, and never beyond what the way and the memory carry."""

from __future__ import annotations

import pytest

from parallax.domain.ids import TopicName, TopicPartition
from replicator.copying.ports import RecordBlock
from replicator.kafka.batch.fetches import Ahead, Fetches

NEAR, FAR = 1, 2
ROOMY = 1_000
LONG_S = 100.0


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fetch(
    fetches: Fetches,
    clock: Clock,
    *,
    took_s: float = 0.1,
    share: float = 1.0,
    waiting_bytes: int = 0,
    room_bytes: int = ROOMY,
) -> int:
    """A fetch that brings so much of what it asks for; how much that was."""
    asked_bytes = fetches.begin(FAR, room_bytes)
    clock.now_s += took_s
    fetches.answered(FAR, int(asked_bytes * share), waiting_bytes)
    return asked_bytes


def test_full_answers_that_were_waited_for_grow_to_the_bound(clock: Clock) -> None:
    fetches = Fetches(8, 30, clock)
    assert [fetch(fetches, clock) for _ in range(5)] == [8, 16, 30, 30, 30]
    assert fetches.begin(NEAR, ROOMY) == 8


def test_answers_that_came_early_shrink_again_but_not_below_the_first_size(clock: Clock) -> None:
    fetches = Fetches(8, 64, clock)
    for _ in range(3):
        fetch(fetches, clock)
    clock.now_s += LONG_S
    # As much waits as was asked for: that is just right.
    assert [fetch(fetches, clock, waiting_bytes=64) for _ in range(2)] == [64, 64]
    assert [fetch(fetches, clock, waiting_bytes=65) for _ in range(5)] == [64, 32, 16, 8, 8]


def test_what_was_waited_for_is_kept_for_a_while(clock: Clock) -> None:
    fetches = Fetches(8, 64, clock)
    fetch(fetches, clock)
    assert [fetch(fetches, clock, waiting_bytes=65) for _ in range(3)] == [16, 16, 16]
    assert [fetch(fetches, clock, waiting_bytes=200, room_bytes=10) for _ in range(2)] == [10, 10]
    clock.now_s += LONG_S
    assert [fetch(fetches, clock, waiting_bytes=65) for _ in range(3)] == [16, 8, 8]
    fetch(fetches, clock)
    fetch(fetches, clock, took_s=5)
    assert [fetch(fetches, clock, waiting_bytes=65) for _ in range(2)] == [8, 8]


@pytest.mark.parametrize("carries_per_s", [200.0, 500.0])
@pytest.mark.parametrize("copies_per_s", [40.0, 75.0, 90.0])
def test_a_copier_far_away_hardly_waits(clock: Clock, carries_per_s: float, copies_per_s: float) -> None:
    """In MB: fetches of 8 to 32, 64 held at most, a round trip of 80 ms."""
    fetches, waiting, starved_s = Fetches(8, 32, clock), 0.0, 0.0
    while clock.now_s < 100:
        asked = fetches.begin(FAR, int(64 - waiting))
        took_s = 0.08 + asked / carries_per_s
        clock.now_s += took_s
        if clock.now_s > 5:
            starved_s += max(0.0, took_s - waiting / copies_per_s)
        waiting = max(0.0, waiting - took_s * copies_per_s)
        fetches.answered(FAR, asked, int(waiting))
        waiting += asked
        if waiting > 64:
            clock.now_s += (waiting - 64) / copies_per_s
            waiting = 64
    assert starved_s < 2


def test_answers_that_bring_little_change_nothing(clock: Clock) -> None:
    fetches = Fetches(8, 64, clock)
    fetch(fetches, clock, share=0.4)
    fetch(fetches, clock, share=0.4, took_s=5)  # it waited for records
    fetch(fetches, clock, waiting_bytes=1)
    assert fetch(fetches, clock) == 8


@pytest.mark.parametrize("per_s", [1.0, 2.0, 3.0, 3.5, 8.0, 40.0])
def test_a_narrow_way_is_never_asked_for_more_than_it_carries_in_time(clock: Clock, per_s: float) -> None:
    fetches, times_out_s = Fetches(8, 32, clock), 10.0
    for _ in range(50):
        asked = fetches.begin(FAR, ROOMY)
        assert asked / per_s < times_out_s
        clock.now_s += 0.08 + asked / per_s
        fetches.answered(FAR, asked, 0)


def test_after_a_failure_the_least_is_asked_for(clock: Clock) -> None:
    fetches = Fetches(8, 64, clock)
    for _ in range(3):
        fetch(fetches, clock)
    fetches.begin(FAR, ROOMY)
    assert FAR in fetches
    fetches.failed(FAR)
    assert FAR not in fetches
    assert fetch(fetches, clock) == 8


def test_what_is_under_way_counts_as_fetched_but_the_least_is_always_asked_for(clock: Clock) -> None:
    fetches = Fetches(8, 32, clock)
    for leader in range(6):
        for _ in range(3):
            asked = fetches.begin(leader, 64)
            fetches.answered(leader, asked, 0)
    asked = [fetches.begin(leader, 64) for leader in range(6)]
    assert asked == [32, 32, 8, 8, 8, 8]
    assert fetches.begin(6, 5) == 8


def test_the_bound_is_never_below_the_first_size(clock: Clock) -> None:
    fetches = Fetches(8, 2, clock)
    assert [fetch(fetches, clock) for _ in range(2)] == [8, 8]


@pytest.mark.parametrize(
    ("batches", "records_each", "bytes_each", "tiny"),
    [
        (300, 2, 200, True),
        (200, 2, 200, False),  # not many
        (300, 100, 1_500, False),  # small, yet they pass as they are: none grows by waiting
        (300, 1, 10_000, False),
    ],
)
def test_many_tiny_batches_had_better_wait_at_the_source(
    batches: int, records_each: int, bytes_each: int, *, tiny: bool
) -> None:
    ahead = Ahead(whole_from_records=64)
    block = RecordBlock(TopicPartition(TopicName("orders"), 0), 0, range(records_each), [b"x"], bytes_each)
    for _ in range(batches):
        ahead.add(block)
    assert ahead.many_tiny is tiny
    assert ahead.size_bytes == batches * bytes_each
    for _ in range(batches):
        ahead.take(block)
    assert not ahead.many_tiny
    assert ahead.size_bytes == 0
