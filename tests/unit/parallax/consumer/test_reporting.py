"""What a service refuses of one partition keeps nothing of the others from being remembered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from parallax.consumer import reporting
from parallax.consumer.reporting import Report, Reporter, position_message
from parallax.domain.ids import TargetOffset, TopicId
from parallax.domain.metadata import CommittedMetadata
from parallax.errors import (
    ForbiddenError,
    InvalidOffsetError,
    ParallaxError,
    ServiceUnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreadableRowError,
)
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.failover_fakes import TOPIC, A, B, FakeService, World

PARTITIONS = 16
POSITION, MOVE = "position", "move"


class Service:
    """Takes a report as a whole or not at all."""

    def __init__(self) -> None:
        self.refused: dict[tuple[str, int], type[ParallaxError]] = {}
        self.fails: type[ParallaxError] | None = None
        self.calls = 0
        self.positions: dict[int, int] = {}
        self.moves: dict[int, int] = {}

    def report_positions(
        self,
        _group: str,
        *,
        positions: Iterable[pb.PartitionPosition],
        moves: Iterable[pb.PartitionMove],
        **_: Any,
    ) -> None:
        self.calls += 1
        if self.fails is not None:
            raise self.fails("no")
        for kind, items in (POSITION, positions), (MOVE, moves):
            for item in items:
                if (kind, item.partition) in self.refused:
                    raise self.refused[kind, item.partition](f"{kind} {item.partition}")
        self.positions.update((item.partition, item.next_offset) for item in positions)
        self.moves.update((item.partition, item.resume_offset) for item in moves)


class Group:
    """A reporter, what it tells, and its clock."""

    def __init__(self) -> None:
        self.service, self.now_s, self.at = Service(), 0.0, dict.fromkeys(range(PARTITIONS), 1)
        self.reporter = Reporter(
            cast("Any", self.service), "g", self._told, interval_s=1, clock=lambda: self.now_s
        )

    def _told(self) -> Report:
        return Report("b", [position_message((TOPIC, number), at, -1) for number, at in self.at.items()])

    def move(self) -> None:
        """Tell of a move of each partition."""
        made = CommittedMetadata(0, TopicId("id"), TargetOffset(7), {})
        self.reporter.moved("b", [((TOPIC, number), made) for number in range(PARTITIONS)])

    def report(self, times: int = 1) -> int:
        """Report; in how many calls."""
        before = self.service.calls
        for _ in range(times):
            self.now_s += 1
            self.reporter.report()
        return self.service.calls - before


def others(*left_out: int) -> set[int]:
    return set(range(PARTITIONS)).difference(left_out)


@pytest.mark.parametrize("error", [InvalidOffsetError, UnknownTopicError, UnknownPartitionError])
def test_a_refused_position_keeps_no_other_from_being_taken(error: type[ParallaxError]) -> None:
    it = Group()
    it.move()
    it.service.refused[POSITION, 3] = error
    with capture_logs() as logs:
        assert it.report() < PARTITIONS
        assert set(it.service.positions) == others(3)
        assert set(it.service.moves) == others()
        it.at = {number: 2 for number in it.at if number != 3} | {3: 1}
        assert it.report(5) == 5 + 2
        it.at[3] = 2
        assert it.report() == 1
        assert set(it.service.positions.values()) == {2}
    assert [(line["event"], line["partition"], line["told"]) for line in logs] == [
        ("report_refused", f"{TOPIC}-3", POSITION)
    ]
    it.service.refused.clear()
    it.at[3] = 3
    it.report()
    assert it.service.positions[3] == 3
    assert it.report() == 1


def test_what_is_refused_again_and_again_is_told_at_ever_longer_intervals() -> None:
    it = Group()
    it.service.refused[POSITION, 3] = UnknownPartitionError
    it.report()
    assert it.report(99) == 99 + 7
    it.service.refused.clear()
    it.now_s += reporting._REFUSED_AGAIN_S
    it.report()
    assert set(it.service.positions) == others()
    assert it.report(3) == 3


@pytest.mark.parametrize("error", [UnknownTopicError, InvalidOffsetError, UnreadableRowError])
def test_a_refused_move_keeps_nothing_else_from_being_taken(error: type[ParallaxError]) -> None:
    it = Group()
    it.move()
    it.service.refused[MOVE, 3] = error
    it.report()
    assert set(it.service.positions) == others()
    assert set(it.service.moves) == others(3)
    assert it.report(5) == 5 + 2
    it.service.refused.clear()
    it.now_s += reporting._REFUSED_AGAIN_S
    it.report()
    assert set(it.service.moves) == others()
    assert it.report(3) == 3


def test_a_move_that_two_reports_tell_at_once_is_told_again() -> None:
    it = Group()
    it.move()
    it.service.refused[MOVE, 3] = UnknownTopicError
    takes = it.service.report_positions

    def report(*arguments: Any, **named: Any) -> None:
        it.service.report_positions = takes  # type: ignore[method-assign]
        it.reporter.report()
        takes(*arguments, **named)

    it.service.report_positions = report  # type: ignore[method-assign]
    it.report()
    it.service.refused.clear()
    it.now_s += reporting._REFUSED_AGAIN_S
    it.report()
    assert set(it.service.moves) == others()


def test_services_that_go_away_meanwhile_leave_the_rest_for_later() -> None:
    it = Group()
    it.service.refused[POSITION, 3] = InvalidOffsetError
    takes, calls = it.service.report_positions, 0

    def report(*arguments: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise ServiceUnavailableError("away")
        takes(*arguments, **named)

    it.service.report_positions = report  # type: ignore[method-assign]
    it.report()
    it.now_s += 5
    assert it.reporter.away_ms == 5_000
    it.report()
    assert it.reporter.away_ms == 0
    assert set(it.service.positions) == others(3)


@pytest.mark.parametrize("error", [InvalidOffsetError, ForbiddenError])
def test_a_service_that_refuses_is_not_away(error: type[ParallaxError]) -> None:
    it = Group()
    it.service.fails = ServiceUnavailableError
    it.report()
    it.now_s += 5
    assert it.reporter.away_ms == 5_000
    it.service.fails = error
    it.report(3)
    assert it.reporter.away_ms == 0


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_a_consumer_that_has_moved_reports_on_beside_a_move_that_is_void(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = FakeService.report_positions

    def report(
        service: FakeService, group: str, *, moves: Iterable[pb.PartitionMove] = (), **named: Any
    ) -> Any:
        moves = list(moves)
        if any(move.partition == 1 for move in moves):
            raise UnknownTopicError("the topic was created anew and the move is void")
        return takes(service, group, moves=moves, **named)

    monkeypatch.setattr(FakeService, "report_positions", report)
    for region in "ab":
        world.log(region, 0).extend(A[:3])
        world.log(region, 1).extend(B[:3])
    world.start("a")
    world.poll_records(6)
    world.move("b")
    world.log("b").extend(A[3:6])
    world.poll_records(3)

    def last() -> dict[int, int]:
        return {
            item.partition: item.next_offset
            for told in world.service.reports
            if told.at.region == "b"
            for item in told.positions
        }

    world.poll_until(lambda: last().get(0) == 6, "a report of what was delivered since")
    assert ("g", "b", (TOPIC, 0)) in world.service.progress
