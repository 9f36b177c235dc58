"""Moves between clusters that producers write to, by small examples; worlds of them are in tests/properties."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from offsetsvc.answers import FailoverAnswer
from offsetsvc.resume.request import FailoverRequest
from parallax.domain.ids import RegionName, TargetOffset, aggregate_cluster
from parallax.domain.outcome import Outcome
from parallax.errors import RefusedError
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import GROUP
from tests.worlds.own_world import ITEM, OwnWorld, Slot


class Two:
    """Two clusters and the routes between them."""

    def __init__(self, graph: str) -> None:
        self.world = OwnWorld(0, graph, told=True)

    def produce(self, region: str, count: int) -> None:
        log = self.world.log(aggregate_cluster(RegionName(region)))
        for _ in range(count):
            self.world.produced += 1
            log.slots.append(Slot((region, self.world.produced), log.epoch, produced=True))

    def copy(self, route: str) -> None:
        (copier,) = (item for item in self.world.copiers if str(item.item.route) == route)
        self.world.draw.seed(1)  # nobody writes in between
        self.world._copy(copier, 1_000)
        self.world._watermark(copier)
        self.world._tell(everything=True)

    def ask(self, origin: str, destination: str, next_offset: int, *, away: bool = False) -> FailoverAnswer:
        self.world._set_ends()
        clusters = aggregate_cluster(RegionName(origin)), aggregate_cluster(RegionName(destination))
        self.world.clusters[clusters[0]].away = away
        request = FailoverRequest(GROUP, *clusters, {ITEM: TargetOffset(next_offset)}, only=ITEM)
        with self.world.new_service() as service:
            (answer,) = service.failover.answers(request, Deadline.after_ms(5_000), record_move=True)
        self.world.clusters[clusters[0]].away = False
        return answer


@pytest.fixture
def two() -> Iterator[Two]:
    """x0..x4 lie at both, and y0..y2 behind them at y alone."""
    made = Two("two-way")
    made.produce("x", 5)
    made.copy("x->y")
    made.produce("y", 3)
    with made.world.service:
        yield made


def test_a_group_goes_on_at_the_first_record_of_the_destination_that_it_has_not_seen(two: Two) -> None:
    answer = two.ask("x", "y", 5)
    assert (answer.outcome, answer.resume_offset) == (Outcome.EARLIEST_FALLBACK, 5)
    two.copy("y->x")
    answer = two.ask("x", "y", 5)
    assert (answer.outcome, answer.resume_offset, answer.skip_ranges) == (Outcome.OK, 6, ())


def test_what_a_dead_cluster_had_not_copied_is_pending(two: Two) -> None:
    two.copy("y->x")
    two.produce("x", 4)
    answer = two.ask("x", "y", 13, away=True)
    assert answer.pending_records == 4 + 4  # offsets: copies and a marker lie between
    assert answer.complete_to == answer.resume_offset == 9


def test_nothing_is_pending_of_records_that_lie_where_they_were_produced(two: Two) -> None:
    """The group comes back before y's records have come to x, which may be dead by now: nobody could tell more."""
    two.ask("y", "x", 9)
    answer = two.ask("x", "y", 5, away=True)
    assert Outcome.PENDING not in answer.notes
    assert {view.answer.source.region: view.answer.position for view in answer.sources}["y"] == 9


def test_what_a_standby_may_hold_of_its_own_is_read_and_its_copies_are_skipped() -> None:
    standby = Two("standby that is written to")
    standby.produce("x", 5)
    standby.copy("x->y")
    with standby.world.service:
        answer = standby.ask("x", "y", 5)
        assert (answer.outcome, answer.resume_offset) == (Outcome.EARLIEST_FALLBACK, 5)
        with pytest.raises(RefusedError, match="Configure the route y->x"):
            standby.ask("y", "x", 5)
