"""Verdicts from what is seen of a group, against Burrow's own rules over every commit that it made."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from itertools import count

import pytest

from parallax.domain.ids import TopicName, TopicPartition
from parallax.domain.lag_verdict import RULES, WINDOW, LagPoint, LagState, Rule, state_of, verdict_of

GROUPS = 1_000
STEPS = 60
INTERVAL_S = 15


@dataclass
class Burrow:
    """What Burrow keeps of a partition, and its evaluation (core/internal/evaluator/caching.go), rule by rule."""

    commits: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Offset, moment and lag as of the commit."""

    def commit(self, offset: int, at_s: int, lag: int) -> None:
        self.commits.append((offset, at_s, lag))

    def status(self, now_s: int, current_lag: int) -> LagState:
        offsets = [offset for offset, _, _ in self.commits]
        moments = [at_s for _, at_s, _ in self.commits]
        lags = [lag for _, _, lag in self.commits]
        steps = range(1, len(offsets))
        rules = (
            (current_lag == 0, LagState.OK),
            (now_s - moments[-1] > moments[-1] - moments[0], LagState.STOP),
            (0 in lags, LagState.OK),
            (any(offsets[i] < offsets[i - 1] for i in steps), LagState.REWIND),
            (all(offsets[i] == offsets[i - 1] for i in steps), LagState.STALL),
            (not any(lags[i] < lags[i - 1] for i in steps), LagState.WARN),
        )
        return next((state for holds, state in rules if holds), LagState.OK)


def mistakes(rules: tuple[Rule, ...], groups: int) -> int:
    """How often the two differ, over groups that commit once between two moments until they stop for good."""
    found = 0
    for seed in range(groups):
        draw = random.Random(seed)
        burrow, points = Burrow(), deque[LagPoint](maxlen=WINDOW + 1)
        end = position = draw.randint(0, 50)
        stops_at = draw.choice((STEPS, draw.randint(1, STEPS)))
        produced, consumed = draw.randint(0, 4), draw.randint(0, 4)
        stopped_for = 0
        for step in range(STEPS):
            if draw.random() < 0.05:
                produced, consumed = draw.randint(0, 4), draw.randint(0, 4)
            end += draw.choice((produced, produced, 0))
            works = step < stops_at
            if works:
                position = min(end, position + draw.choice((consumed, consumed, consumed + 1)))
                if draw.random() < 0.01:
                    position = max(0, position - draw.randint(1, 5))
                burrow.commit(position, step * INTERVAL_S, end - position)
            else:
                stopped_for += 1
            points.append(LagPoint(position, end - position))
            state = state_of(list(points), members=works, rules=rules)
            if len(points) < WINDOW:
                assert state in {None, LagState.OK}
                assert (state is None) == (end > position)
                continue
            expected = burrow.status(step * INTERVAL_S, end - position)
            # In between Burrow looks at the last commits, of whatever age, and we at the last moments.
            if works or stopped_for >= WINDOW:
                found += state is not expected
    return found


def test_a_group_that_commits_at_every_moment_or_stops_for_good_is_judged_as_by_burrow() -> None:
    assert mistakes(RULES, GROUPS) == 0


@pytest.mark.parametrize("left_out", range(len(RULES)))
def test_no_rule_may_be_left_out(left_out: int) -> None:
    assert mistakes(RULES[:left_out] + RULES[left_out + 1 :], GROUPS) > 0


@pytest.mark.parametrize("first", [0, 1, 2, 4])  # REWIND and STALL, 3 and 4, never hold together
def test_no_rule_may_change_places_with_the_next(first: int) -> None:
    swapped = [*RULES]
    swapped[first], swapped[first + 1] = swapped[first + 1], swapped[first]
    assert mistakes(tuple(swapped), GROUPS) > 0


def test_a_position_that_stands_while_members_are_there_is_a_stall_and_not_a_stop() -> None:
    points = [LagPoint(7, 5 + number) for number in range(WINDOW + 1)]
    assert state_of(points, members=True) is LagState.STALL
    assert state_of(points, members=False) is LagState.STOP
    assert state_of(points[:-1], members=False) is LagState.WARN
    assert state_of(points[: WINDOW - 1], members=False) is None
    assert state_of([LagPoint(7, 0)], members=False) is LagState.OK


def test_a_group_is_as_its_gravest_partition_and_never_fine_where_something_is_unknown() -> None:
    numbers = count()

    def place() -> TopicPartition:
        return TopicPartition(TopicName("trips"), next(numbers))

    fine = {place(): [LagPoint(3, 0)] for _ in range(3)}
    slow = {place(): [LagPoint(number, 4 + lag) for number in range(WINDOW)] for lag in range(3)}
    unknown = {place(): [LagPoint(0, 9)]}
    assert verdict_of({}, members=True) is None
    found = verdict_of(fine, members=True)
    assert found is not None
    assert (found.state, found.not_ok, found.known, found.partitions) == (LagState.OK, 0, 3, 3)
    found = verdict_of(fine | unknown, members=True)
    assert found is not None
    assert (found.state, found.place, found.known, found.partitions) == (None, None, 3, 4)
    found = verdict_of(fine | unknown | slow, members=True)
    assert found is not None
    assert (found.state, found.not_ok, found.known, found.partitions) == (LagState.WARN, 3, 6, 7)
    assert (found.place, found.lag) == (list(slow)[-1], 6)
