"""Up to which moment a partition is copied: never later than it is, in random lives of a log."""

from __future__ import annotations

import random

import pytest

from parallax.domain.ids import SourceOffset, TopicName, TopicPartition
from replicator.copying.copied_until import CopiedUntil
from replicator.copying.ports import LogEnd

ITEM = TopicPartition(TopicName("trips"), 0)
LIVES = 300


def end(high: int) -> LogEnd:
    return LogEnd(SourceOffset(0), SourceOffset(high), SourceOffset(high), 0)


def play(seed: int) -> int:
    """Records with rising times are written, asked about and copied, at random; how often a moment was told."""
    draw = random.Random(seed)
    times: list[int] = []
    until, now, position, told = CopiedUntil(), 1_000, 0, 0
    asked: tuple[int, int | None] | None = None
    for _ in range(200):
        now += draw.randint(1, 50)
        match draw.randint(0, 5):
            case 0 | 1:
                times += [now] * draw.randint(1, 3)
            case 2 if position < len(times):
                position = draw.randint(position + 1, len(times))
                until.copied(ITEM, times[position - 1], now)
            case 3:
                asked = (now, None)
            case 4 if asked is not None:
                if asked[1] is None:
                    asked = (asked[0], len(times))  # the source answers
                else:
                    until.surveyed(asked[0], {ITEM: end(asked[1])}, lambda _: SourceOffset(position))  # noqa: B023 - called at once
                    asked = None
            case 5 if draw.random() < 0.05:
                position = draw.randint(0, position)  # the target has lost its tail
                asked = None  # so the session that asked is over
        moment = until.of(ITEM, position)
        if moment is not None:
            told += 1
            assert all(time >= moment for time in times[position:]), (seed, moment)
    return told


def play_all() -> int:
    return sum(map(play, range(LIVES)))


def test_nothing_older_is_left_out() -> None:
    assert play_all() > 50 * LIVES


@pytest.mark.parametrize("mutant", ["by the answer's moment", "whatever the position"])
def test_mutants_die(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CopiedUntil.surveyed
    if mutant == "whatever the position":
        monkeypatch.setattr(
            CopiedUntil,
            "surveyed",
            lambda self, at, ends, _settled: right(self, at, ends, lambda _: SourceOffset(1 << 40)),
        )
    else:
        monkeypatch.setattr(
            CopiedUntil, "surveyed", lambda self, at, ends, settled: right(self, at + 100, ends, settled)
        )
    with pytest.raises(AssertionError):
        play_all()


def test_a_time_to_come_is_now_and_none_is_nothing() -> None:
    until = CopiedUntil()
    until.copied(ITEM, -1, 50)
    assert until.of(ITEM, 1) is None
    until.copied(ITEM, 90, 50)
    assert until.of(ITEM, 2) == 50
    assert until.of(ITEM, 1) is None


def test_a_partition_without_a_position_yet_is_not_copied() -> None:
    until = CopiedUntil()
    until.surveyed(7, {ITEM: end(0)}, lambda _: None)
    assert until.of(ITEM, 0) is None
    until.surveyed(7, {ITEM: end(0)}, lambda _: SourceOffset(0))
    assert until.of(ITEM, 0) == 7
