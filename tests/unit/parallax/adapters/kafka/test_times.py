"""The time of a position, from batch headers as a leader serves them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parallax.adapters.kafka.links import Link, MovedError
from parallax.adapters.kafka.logs import read_time_at
from parallax.domain.ids import TargetOffset, TopicName, TopicPartition
from parallax.errors import ParallaxError
from parallax.ports.clusters import PositionTime

PLACE = TopicPartition(TopicName("trips"), 0)
OUT_OF_RANGE, UNKNOWN_TOPIC = 1, 3
LOG_APPEND_TIME, CONTROL, DELETE_HORIZON = 0x08, 0x20, 0x40
BATCHES_AN_ANSWER = 10


@dataclass(frozen=True)
class Batch:
    base: int
    count: int
    first_ms: int
    greatest_ms: int = 0
    attributes: int = 0
    magic: int = 2

    def raw(self) -> bytes:
        body = b"records"
        header = struct.pack(
            ">qiibIhiqq",
            self.base,
            struct.calcsize(">qiibIhiqq") - 12 + len(body),
            0,
            self.magic,
            0,
            self.attributes,
            self.count - 1,
            self.first_ms,
            self.greatest_ms,
        )
        return header + body


def control(base: int, at_ms: int = 9_999) -> Batch:
    return Batch(base, 1, at_ms, at_ms, CONTROL)


@dataclass
class Leader:
    """A `Link` to one leader with one log."""

    batches: Sequence[Batch]
    low: int = 0
    error_code: int = 0
    cluster: str = "aggregate-a"
    asked: list[int] = field(default_factory=list)

    def by_leader(self, items: Sequence[TopicPartition], _doing: str) -> dict[str, Sequence[TopicPartition]]:
        return {"leader": items}

    def check(self, code: int, doing: str) -> None:
        if code:
            raise ParallaxError(f"{doing}: {code}")

    def ask(self, _node: str, request: Any, _doing: str) -> Any:
        start = request.topics[0].partitions[0].fetch_offset
        self.asked.append(start)
        end = max((item.base + item.count for item in self.batches), default=self.low)
        served = [item for item in self.batches if item.base + item.count > start][:BATCHES_AN_ANSWER]
        cut_off = served[-1].raw()[:20] if served else b""
        part = SimpleNamespace(
            error_code=self.error_code or (0 if self.low <= start <= end else OUT_OF_RANGE),
            high_watermark=end,
            log_start_offset=self.low,
            records=b"".join(item.raw() for item in served) + cut_off,
        )
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[part])])


def time_at(leader: Leader, position: int) -> PositionTime | None:
    return read_time_at(cast("Link", leader), PLACE, TargetOffset(position))


def test_a_position_inside_of_a_batch_has_the_time_of_its_first_record() -> None:
    leader = Leader([Batch(0, 5, 100), Batch(5, 5, 300, 900), Batch(10, 5, 500)])

    assert time_at(leader, 8) == PositionTime(300, below=False)


def test_control_records_and_holes_are_passed_over() -> None:
    leader = Leader([Batch(0, 5, 100), *[control(base) for base in range(5, 40)], Batch(50, 1, 700)])

    assert time_at(leader, 5) == PositionTime(700, below=False)


def test_the_last_record_is_found_however_many_control_records_follow() -> None:
    leader = Leader([Batch(0, 1, 50), Batch(1, 2, 100), *[control(base) for base in range(3, 700)]])

    assert time_at(leader, 700) == PositionTime(100, below=True)


def test_a_log_of_control_records_has_no_time() -> None:
    leader = Leader([control(base) for base in range(80, 200)], low=80)

    assert time_at(leader, 200) is None
    assert min(leader.asked) == 80


def test_where_the_broker_stamps_its_own_time_counts() -> None:
    assert time_at(Leader([Batch(0, 1, 100, 800, LOG_APPEND_TIME)]), 0) == PositionTime(800, below=False)


@pytest.mark.parametrize("batch", [Batch(0, 1, -1), Batch(0, 1, 100, 100, DELETE_HORIZON)])
def test_a_time_that_is_no_records_is_none(batch: Batch) -> None:
    assert time_at(Leader([batch]), 0) is None


def test_an_older_format_is_not_guessed_at() -> None:
    assert time_at(Leader([Batch(0, 1, 100, magic=1)]), 0) is None


def test_a_leader_that_does_not_know_the_partition_is_not_the_leader_any_more() -> None:
    with pytest.raises(MovedError):
        time_at(Leader([], error_code=UNKNOWN_TOPIC), 0)
    with pytest.raises(ParallaxError, match="29"):
        time_at(Leader([], error_code=29), 0)
