"""Moves between clusters that producers write to, by small examples; worlds of them are in tests/properties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from offsetsvc.answers import FailoverAnswer, ReportedMove, ReportedPosition
from offsetsvc.resume import own as own_module
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.resume.skip_updates import WatchRequest
from parallax.domain.ids import (
    NO_TOPIC,
    UNKNOWN_EPOCH,
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.index_rows import LineageRecord, StampedRow
from parallax.domain.lineages import LineageView, TopicLineages
from parallax.domain.outcome import Outcome
from parallax.domain.place import KeptEpoch
from parallax.domain.progress import Progress, SourcePosition
from parallax.domain.runs import Run
from parallax.errors import InvalidOffsetError, RefusedError, UnknownPartitionError, UnknownTopicError
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import GROUP, TOPIC, FakeCluster
from tests.worlds.own_world import ITEM, Name, OwnWorld, Slot


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

    def lose(self, region: str, cut: int) -> None:
        """An unclean election takes what nobody has copied, so that no route can tell of it."""
        self.world.log(aggregate_cluster(RegionName(region))).lose(cut)

    def passed(self, answer: FailoverAnswer) -> set[Name]:
        """What the group does not get where it goes, of what lies there."""
        skipped = {offset for item in answer.skip_ranges for offset in range(*item)}
        log = self.world.log(answer.destination.cluster)
        return {
            slot.name
            for offset, slot in enumerate(log.slots)
            if slot.name and (offset < answer.resume_offset or offset in skipped)
        }

    def ask(
        self, origin: str, destination: str, next_offset: int, *, away: bool = False, epoch: int | None = 0
    ) -> FailoverAnswer:
        named = {} if epoch is None else {ITEM: epoch}
        self.world._set_ends()
        clusters = aggregate_cluster(RegionName(origin)), aggregate_cluster(RegionName(destination))
        self.world.clusters[clusters[0]].away = away
        positions = {ITEM: TargetOffset(next_offset)}
        request = FailoverRequest(GROUP, *clusters, positions, only=ITEM, read_epochs=named)
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
    assert (answer.outcome, answer.resume_offset, list(answer.skip_ranges)) == (Outcome.OK, 6, [])


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


# --- tails that were lost before anybody had copied them ------------------------------------------------------------


@pytest.fixture
def empty() -> Iterator[Two]:
    made = Two("two-way")
    with made.world.service:
        yield made


def test_what_lies_where_a_group_once_read_what_is_lost_is_not_passed(empty: Two) -> None:
    empty.produce("y", 2)
    empty.ask("y", "x", 2)
    empty.lose("y", 0)
    empty.produce("y", 3)
    empty.produce("x", 1)
    empty.copy("x->y")
    answer = empty.ask("x", "y", 0)
    assert (answer.resume_offset, empty.passed(answer)) == (0, set())


def test_of_an_earlier_stay_nothing_counts_that_a_dead_destination_can_t_confirm(empty: Two) -> None:
    empty.produce("y", 2)
    empty.copy("x->y")
    empty.ask("y", "x", 2)
    empty.world.clusters[aggregate_cluster(RegionName("y"))].away = True
    assert empty.ask("x", "y", 0).resume_offset == 0


def test_copies_that_came_where_a_group_had_read_what_is_lost_are_not_consumed(empty: Two) -> None:
    empty.copy("x->y")
    empty.produce("y", 4)
    empty.lose("y", 2)
    empty.produce("x", 2)
    empty.copy("x->y")
    answer = empty.ask("y", "x", 4)
    assert (answer.resume_offset, Outcome.LINEAGE_CHANGED in answer.notes) == (0, True)
    assert {str(source): it.source_next for source, it in answer.progress.items()} == {
        "x/regional-x-1": 0,
        "y/regional-y-1": 2,
    }


def test_a_dead_cluster_s_lost_tail_is_told_by_the_route_that_reads_it(empty: Two) -> None:
    empty.copy("y->x")
    empty.produce("x", 9)
    empty.copy("x->y")
    empty.lose("x", 4)
    (copier,) = (item for item in empty.world.copiers if str(item.item.route) == "x->y")
    empty.world._begin_again(copier, 4, UNKNOWN_EPOCH)
    empty.produce("y", 5)
    empty.copy("y->x")
    answer = empty.ask("x", "y", 9, away=True)
    assert {name[0] for name in empty.passed(answer)} == {"x"}


def test_a_dead_cluster_s_lost_tail_shows_in_what_was_copied_of_it_since(empty: Two) -> None:
    empty.copy("x->y")
    empty.produce("y", 6)
    empty.lose("y", 2)
    empty.produce("x", 2)
    empty.copy("x->y")
    empty.produce("y", 1)
    empty.copy("y->x")
    answer = empty.ask("y", "x", 6, away=True)
    assert empty.passed(answer) == {("y", 1), ("y", 2)}


def test_a_position_without_an_epoch_names_no_records_that_nobody_has_copied(empty: Two) -> None:
    empty.produce("y", 3)
    left = empty.ask("y", "x", 3, epoch=None)
    empty.lose("y", 0)
    empty.produce("y", 3)
    empty.copy("y->x")
    there, topic_id = left.destination.cluster, left.destination.topic_id
    request = WatchRequest(ITEM, there, topic_id, left.progress, TargetOffset(0), left.origin.cluster)
    pages = empty.world.service.skips.updates(request, Deadline.after_ms(5_000), lambda _: True)
    assert [list(page.skip_ranges) for page in pages] == [[]]


def leaders_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is taken to have kept all that a group has read there."""

    def mutant(_: FakeCluster, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, KeptEpoch]:
        return {item: KeptEpoch(epoch, TargetOffset(2**62)) for item, epoch in epochs.items()}

    monkeypatch.setattr(FakeCluster, "kept_epochs", mutant)


def lost_tails_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit from before a loss that a route saw counts for what is written there since."""
    monkeypatch.setattr(own_module, "own_truncations", lambda *_: [])


def later_epochs_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it does where a record of a later leader epoch lies below."""
    monkeypatch.setattr(own_module, "own_loss", lambda *_: None)


@pytest.mark.parametrize(
    ("mutant", "example"),
    [
        (leaders_unasked, test_what_lies_where_a_group_once_read_what_is_lost_is_not_passed),
        (leaders_unasked, test_copies_that_came_where_a_group_had_read_what_is_lost_are_not_consumed),
        (lost_tails_unseen, test_a_dead_cluster_s_lost_tail_is_told_by_the_route_that_reads_it),
        (later_epochs_unseen, test_a_dead_cluster_s_lost_tail_shows_in_what_was_copied_of_it_since),
    ],
)
def test_a_weaker_rule_is_seen(
    mutant: Callable[[pytest.MonkeyPatch], None],
    example: Callable[[Two], None],
    empty: Two,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        example(empty)


def told_of_x(two: Two, end: int, *, away: bool, seen: int | None = None) -> int:
    """What is remembered of x's own records after a move to y that says they were read up to ``end``.

    Args:
        seen: where the group said before that it is, at x.
    """
    two.world._set_ends()
    x, y = (aggregate_cluster(RegionName(name)) for name in "xy")
    source = SourceId(RegionName("x"), two.world.clusters[x].infos[TOPIC].topic_id)
    at_y = two.world.clusters[y].infos[TOPIC].topic_id
    position = SourcePosition(0, SourceOffset(end), ((0, SourceOffset(end)),))
    move = ReportedMove(ITEM, at_y, Progress(y, at_y, TargetOffset(5), {source: position}))
    with two.world.new_service() as service:
        if seen is not None:
            service.positions.report(GROUP, x, [ReportedPosition(ITEM, TargetOffset(seen))], [])
        two.world.clusters[x].away = away
        service.positions.report(GROUP, y, [], [move])
        two.world.clusters[x].away = False
        left = service.positions._groups.progress(GROUP, TOPIC)[0]
    assert isinstance(left, Progress)
    told = left.positions[source]
    assert told.epoch_ends == ((0, told.source_next),)
    return told.source_next


def test_more_of_own_records_than_the_log_holds_is_refused(two: Two) -> None:
    two.produce("x", 4)
    assert told_of_x(two, 9, away=False) == 9, "no row tells of the last four"
    with pytest.raises(InvalidOffsetError, match="the rows tell of it up to 5"):
        told_of_x(two, 10, away=False)


def test_while_the_cluster_is_away_no_more_is_remembered_than_something_else_tells_of(two: Two) -> None:
    """Whoever said more would have the group leave out what is written there once the cluster is back."""
    two.produce("x", 4)
    assert told_of_x(two, 2**40, away=True) == 5, "rows"
    assert told_of_x(two, 4, away=True) == 4
    assert told_of_x(two, 2**40, away=True, seen=8) == 8, "the group's own place there"
    assert told_of_x(two, 9, away=False) == 9
    assert told_of_x(two, 2**40, away=True) == 9, "what was proven before"


def test_a_record_of_a_cluster_that_no_route_leads_into_is_its_own_origin() -> None:
    standby = Two("standby that nobody writes to")
    standby.produce("x", 5)
    standby.copy("x->y")
    standby.world._set_ends()
    x, y = (aggregate_cluster(RegionName(name)) for name in "xy")
    of_x = standby.world.clusters[x].infos[TOPIC].topic_id
    with standby.world.service as service:
        found = service.chains.origin(x, ITEM, 3)
        assert (found.found, found.complete, found.route, list(found.hops)) == (True, True, "", [])
        assert (found.source_cluster, found.source_topic_id, found.source_record_offset) == (
            "regional-x",
            of_x,
            3,
        )
        copied = service.chains.origin(y, ITEM, 3)
        assert (copied.route, copied.source_cluster) == ("x->y", "regional-x")
        beyond = service.chains.origin(x, ITEM, 5)
        assert (beyond.found, beyond.complete) == (False, True)
        with pytest.raises(UnknownTopicError):
            service.chains.origin(x, TopicPartition(TopicName("none"), 0), 0)
        with pytest.raises(UnknownPartitionError):
            service.chains.origin(x, TopicPartition(TOPIC, 7), 0)
        standby.world.clusters[x].away = True
        away = service.chains.origin(x, ITEM, 3)
        assert (away.found, away.complete) == (False, False)


def test_members_report_of_a_cluster_that_no_route_leads_to_while_it_is_away() -> None:
    """Which topic it was is told by the route that copies it."""
    two = Two("standby that nobody writes to")
    x = aggregate_cluster(RegionName("x"))
    two.produce("x", 5)
    two.world._set_ends()
    with two.world.new_service() as service:
        two.world.clusters[x].away = True
        with pytest.raises(
            UnknownTopicError, match="it can't be asked, and no route has copied it: aggregate-x: no broker"
        ):
            service.positions.report(GROUP, x, [ReportedPosition(ITEM, TargetOffset(4))], [])
        two.world.clusters[x].away = False
    two.copy("x->y")
    with two.world.new_service() as service:
        two.world.clusters[x].away = True
        service.positions.report(GROUP, x, [ReportedPosition(ITEM, TargetOffset(4))], [])
        (seen,) = service.positions._groups.observed(GROUP, x)
    assert (seen.next_offset, seen.topic_id) == (4, two.world.clusters[x].infos[TOPIC].topic_id)


def test_of_a_partition_that_was_not_there_yet_the_topics_other_ones_tell_its_id() -> None:
    """A cluster that can't be asked: what an earlier move left there stands."""
    route = Route.parse("x->y")

    def view(partition: int, topic_id: str, at_ms: int | None) -> LineageView:
        lineage = Lineage(TopicId(topic_id), TopicId("y-1"))
        record = LineageRecord(
            RoutePartition(route, TopicPartition(TOPIC, partition)),
            lineage,
            0,
            SourceOffset(0),
            TargetOffset(0),
            None,
            version=1,
        )
        row = Run(SourceOffset(0), TargetOffset(0), 1, SourceOffset(0))
        return LineageView(record, None, None if at_ms is None else StampedRow(row, at_ms))

    nothing = view(1, NO_TOPIC, 9_000)
    views = {0: (view(0, "x-2", 2_000),), 1: (nothing,), 2: (view(2, "x-1", 1_000), view(2, NO_TOPIC, None))}
    lineages = TopicLineages(TopicId("y-1"), views, frozenset(), 3)
    found = [
        own_module.own_source(
            aggregate_cluster(RegionName("x")), TopicId(""), route, partition, lineages
        ).topic_id
        for partition in range(4)
    ]
    assert found == ["x-2"] * 4
    alone = TopicLineages(TopicId("y-1"), {1: (nothing,)}, frozenset(), 2)
    assert (
        own_module.own_source(aggregate_cluster(RegionName("x")), TopicId(""), route, 1, alone).topic_id == ""
    )
