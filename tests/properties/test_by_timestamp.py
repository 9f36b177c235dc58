"""By record timestamps nothing unconsumed lies below the answer, as long as clocks and routes are off by no more than the
margin; without a margin it does.

The model knows of every record when it was made, what its producer's clock said then, and when each route copied it.
"""

from __future__ import annotations

import random
from dataclasses import replace

from offsetsvc.answers import FailoverAnswer, TimeBasis, TimestampPolicy
from parallax.domain.ids import RegionName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import NOW_MS, TOPIC, Control, Record, World

P0 = TopicPartition(TOPIC, 0)
WORLDS = 400
REGIONS = (RegionName("a"), RegionName("b"))

Log = list[tuple[int, Record | None]]
"""Timestamp and record, in the order of arrival; without a record: a control record."""


class Timeline:
    """Two aggregate logs without a row in the index, and a group somewhere in the first.

    Attributes:
        margin_ms: what this world's clocks and routes need.
    """

    def __init__(self, seed: int) -> None:
        choice = random.Random(f"by-timestamp-{seed}")
        skew_ms, delay_ms = choice.choice([0, 5, 400]), choice.choice([0, 30, 900])
        # One clock is ahead, another one behind, and a record may come as late as its route is.
        self.margin_ms = 2 * skew_ms + delay_ms
        made = {
            region: sorted(choice.randint(0, 3_000) for _ in range(choice.randint(0, 30)))
            for region in REGIONS
        }
        stamps = {
            (region, number): NOW_MS + made_ms + choice.randint(-skew_ms, skew_ms)
            for region in REGIONS
            for number, made_ms in enumerate(made[region])
        }
        self.origin, self.destination = (self._copied(choice, made, stamps, delay_ms) for _ in REGIONS)
        self.next_offset = choice.randint(0, len(self.origin))

    @staticmethod
    def _copied(
        choice: random.Random, made: dict[RegionName, list[int]], stamps: dict[Record, int], delay_ms: int
    ) -> Log:
        """An aggregate log as it is at some moment."""
        now_ms = choice.randint(0, 4_000)
        arrived: list[tuple[int, Record]] = []
        for region in REGIONS:
            at_ms = 0
            for number, made_ms in enumerate(made[region]):
                at_ms = max(at_ms, made_ms + choice.randint(0, delay_ms))
                arrived.append((at_ms, (region, number)))
        log: Log = []
        for at_ms, record in sorted(arrived):
            if at_ms <= now_ms:
                log.append((stamps[record], record))
                log.extend([(Control(NOW_MS + at_ms), None)] * (choice.random() < 0.2))
        return log

    def ask(self, margin_ms: int) -> FailoverAnswer:
        world = World(("a", "b"))
        for region, log in (("a", self.origin), ("b", self.destination)):
            world.cluster(region).lay(P0, [at_ms for at_ms, _ in log])
        request = world.request("a", "b", self.next_offset)
        with world.service() as service:
            asked = replace(request, by_timestamp=TimestampPolicy(margin_ms))
            return service.failover.answers(asked, Deadline.after_ms(30_000))[0]

    def lost(self, resume_offset: int) -> set[Record]:
        """Records below the resume offset that the group has not consumed."""
        return records(self.destination[:resume_offset]) - records(self.origin[: self.next_offset])


def records(log: Log) -> set[Record]:
    return {record for _, record in log if record is not None}


def test_nothing_unconsumed_lies_below_while_skew_is_within_the_margin() -> None:
    by_time = later_than_the_start = 0
    for seed in range(WORLDS):
        timeline = Timeline(seed)
        answer = timeline.ask(timeline.margin_ms)
        assert timeline.lost(answer.resume_offset) == set(), f"seed {seed}"
        told = answer.by_timestamp
        assert told is not None
        if told.basis is TimeBasis.NONE:
            assert answer.resume_offset == 0, f"seed {seed}"
            continue
        assert Outcome.BY_TIMESTAMP in answer.notes
        assert told.redelivery_at_most_offsets == len(timeline.destination) - answer.resume_offset
        again = records(timeline.destination[answer.resume_offset :]) & records(
            timeline.origin[: timeline.next_offset]
        )
        assert len(again) <= told.redelivery_at_most_offsets, f"seed {seed}"
        by_time += 1
        later_than_the_start += answer.resume_offset > 0
    # The worlds are not all alike: most have a time, and in most of those it is worth having.
    assert by_time > WORLDS // 2
    assert later_than_the_start > by_time // 2


def test_without_a_margin_skew_loses_records() -> None:
    """The mutant: if it survived, the property above would say nothing about the margin."""
    losing = [
        seed
        for seed in range(WORLDS)
        if (timeline := Timeline(seed)).margin_ms and timeline.lost(timeline.ask(0).resume_offset)
    ]
    assert losing


def test_without_skew_no_margin_is_needed() -> None:
    exact = [timeline for seed in range(WORLDS) if not (timeline := Timeline(seed)).margin_ms]
    assert exact
    assert [timeline.lost(timeline.ask(0).resume_offset) for timeline in exact] == [set()] * len(exact)
