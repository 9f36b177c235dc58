"""What a session tells of partitions that it does not read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from parallax.config.config import Replicator
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    Route,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.errors import PartitionStoppedError
from parallax.ports.clusters import TopicInfo
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.ledger import Ledger
from replicator.copying.ports import (
    Damaged,
    EndReached,
    LogEnd,
    NotAllowed,
    PassedOver,
    ReadFrom,
    RecordBlock,
    SourceEvent,
    Survey,
    TargetEnd,
    TargetLog,
)
from replicator.copying.recovery import Shard
from replicator.copying.session import ShardSession
from replicator.copying.session_end import FORGOTTEN_AFTER_MS, Absences, Counts, SessionError, Stops
from replicator.copying.state import PartitionState, rows_of, state_of
from replicator.lease import Lease, PartitionProgress, PartitionStatus
from tests.worlds.clocks import StandingClock

TRIPS = TopicName("trips")
P0, P1 = TopicPartition(TRIPS, 0), TopicPartition(TRIPS, 1)
SHARD = Shard(
    ClusterName("aggregate-b"), TopicPartition(TopicName("parallax.runs.a"), 0), TopicId("log"), layout=1
)
STOPPED = PartitionStatus.STOPPED
LEASE = Lease(Route.parse("a->b"), 0, 1, 1, 1, 10**9)


class Doors:
    """Source, target and surveyor of one topic, of which a test says what they tell."""

    path = "batch"

    def __init__(self) -> None:
        self.source_partitions = self.target_partitions = 2
        self.logs = {P0: LogEnd(SourceOffset(0), SourceOffset(700), SourceOffset(700))}
        self.refused: dict[TopicName, str] = {}
        self.same_cluster = ""
        self.events: list[SourceEvent] = []
        self.hidden: dict[TopicName, str] = {}
        self.usable: set[TopicName] = set()
        self.survey_fails = False
        self.asked_about: set[TopicName] = set()
        self.waited_for: set[TopicPartition] = set()
        self.taken: list[ReadFrom] = []
        self.written: list[Entry] = []
        self.topic_there = self.target_there = True
        self.end = TargetEnd(TargetOffset(0))
        self._asked = False

    def request(self, _known: Collection[TopicName] = (), refused: Collection[TopicName] = ()) -> int:
        self._asked = True
        self.asked_about = set(refused)
        return 1

    def result(self) -> Survey | None:
        if not self._asked:
            return None
        self._asked = False
        if self.survey_fails:
            return Survey(1, None, {}, None, failed=True)
        source = {TRIPS: TopicInfo(TRIPS, TopicId("s"), self.source_partitions)} if self.topic_there else {}
        target = {TRIPS: TopicInfo(TRIPS, TopicId("t"), self.target_partitions)} if self.target_there else {}
        logs = self.logs if self.topic_there else {}
        usable = self.usable & self.asked_about
        return Survey(1, source, logs, target, self.refused, self.same_cluster, self.hidden, usable)

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        self.taken += positions.values()

    def drop(self, partitions: Collection[TopicPartition]) -> None: ...

    def poll(self, _max_records: int, _timeout_ms: float) -> Sequence[SourceEvent]:
        events, self.events = self.events, []
        return events

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {item: self.logs[item].high_watermark for item in partitions}

    opens_run_log = False
    calm_ms = 0.0

    def begin(self, opening: Entry | None = None) -> None: ...

    def produce(self, _block: RecordBlock) -> None: ...

    def serve(self) -> None: ...

    def settle(self, _logs: Mapping[TopicPartition, TargetLog]) -> Mapping[TopicPartition, Sequence[int]]:
        return {P0: range(3)}

    def commit(self, entries: Sequence[Entry], _logs: Mapping[TopicPartition, TargetLog]) -> Sequence[int]:
        self.written += entries
        return range(len(entries))

    def ends(
        self, partitions: Collection[TopicPartition], *, patient: bool = False
    ) -> Mapping[TopicPartition, TargetEnd]:
        if patient:
            self.waited_for |= set(partitions)
        return {item: self.end for item in partitions if item.partition < self.target_partitions}


def session_of(
    doors: Doors,
    states: Mapping[TopicPartition, PartitionState] | None = None,
    clock: StandingClock | None = None,
    stops: Stops | None = None,
    counts: Counts | None = None,
    *,
    goal: Mapping[TopicPartition, SourceOffset] | None = None,
    stops_at_recreated: bool = False,
) -> ShardSession:
    clock, settings = clock or StandingClock(), Replicator()
    ledger = Ledger(
        LEASE,
        settings,
        shard=SHARD,
        run_log_leader_epoch=-1,
        target=doors,  # type: ignore[arg-type] # what is asked of it is there
        clock=clock,
        states=states or {},
        counts=counts or Counts(),
        committed=lambda _offset, _entry: None,
    )
    return ShardSession(
        LEASE,
        settings,
        source=doors,  # type: ignore[arg-type] # as above
        target=doors,  # type: ignore[arg-type] # as above
        surveyor=doors,  # type: ignore[arg-type] # as above
        clock=clock,
        ledger=ledger,
        history=lambda _item, _lineage: [],
        stops=stops or Stops(clock, 600_000),
        absences=Absences(lambda _topic: True),
        goal=goal,
        stops_at_recreated=stops_at_recreated,
    )


def told(session: ShardSession) -> dict[TopicPartition, PartitionProgress]:
    session.step()
    return {TopicPartition(TopicName(part.topic), part.partition): part for part in session.progress()}


def copied_to(item: TopicPartition, source_next: int) -> PartitionState:
    at = SourceOffset(source_next)
    lineage = Lineage(TopicId("s"), TopicId("t"))
    return PartitionState(item, lineage, 0, SourceOffset(0), TargetOffset(0), at, at, TargetOffset(0))


@pytest.mark.parametrize(
    ("low", "known", "lag"),
    [(0, {}, 700), (200, {}, 500), (0, {P0: copied_to(P0, 600)}, 100)],
    ids=["of all", "of what retention has left", "of what was not copied before"],
)
def test_a_stopped_partition_lags_by_what_its_source_holds(
    low: int, known: dict[TopicPartition, PartitionState], lag: int
) -> None:
    doors = Doors()
    doors.logs = {item: LogEnd(SourceOffset(low), SourceOffset(700), SourceOffset(700)) for item in (P0, P1)}
    doors.target_partitions, doors.refused = 1, {TRIPS: "PARTITION_MISMATCH: may not grow"}
    session = session_of(doors, known)
    parts = told(session)
    if not known:
        assert (parts[P0].status, parts[P0].lag_records) == (PartitionStatus.STOPPED, lag)
    else:
        assert (parts[P0].status, parts[P0].lag_records) == (PartitionStatus.COPYING, lag)
    assert (parts[P1].status, parts[P1].lag_records) == (PartitionStatus.STOPPED, 700 - low)
    doors.logs[P1] = LogEnd(SourceOffset(low), SourceOffset(900), SourceOffset(900))
    session.commit()
    doors.request()
    assert told(session)[P1].lag_records == 900 - low


@pytest.mark.parametrize("target_there", [True, False])
def test_what_was_to_be_copied_of_a_topic_that_is_gone_is_waited_for_no_more(*, target_there: bool) -> None:
    doors = Doors()
    session = session_of(doors, {P0: copied_to(P0, 600)}, goal={P0: SourceOffset(700)})
    assert told(session)[P0].status is PartitionStatus.COPYING
    assert not session.finished()
    doors.topic_there, doors.target_there = False, target_there
    doors.request()
    assert told(session)[P0].status is PartitionStatus.ABSENT
    assert not session.finished(), "a broker may have forgotten to name it"
    doors.request()
    session.step()
    assert session.finished()


def test_nor_does_the_next_session_wait_for_it() -> None:
    doors = Doors()
    doors.topic_there = doors.target_there = False
    session = session_of(doors, {P0: copied_to(P0, 600)}, goal={P0: SourceOffset(700)})
    session.step()
    assert not session.finished()
    doors.request()
    session.step()
    assert session.finished()


def test_a_topic_that_both_sides_lose_at_once_is_neither_copied_nor_stopped() -> None:
    doors = Doors()
    session = session_of(doors, {P0: copied_to(P0, 600)})
    assert told(session)[P0].status is PartitionStatus.COPYING
    doors.topic_there = doors.target_there = False
    doors.request()
    assert told(session)[P0].status is PartitionStatus.ABSENT
    doors.topic_there = doors.target_there = True
    doors.request()
    assert told(session)[P0].status is PartitionStatus.COPYING


def test_a_survey_that_failed_is_counted_and_what_is_known_goes_on() -> None:
    doors, counts = Doors(), Counts()
    session = session_of(doors, {P0: copied_to(P0, 600)}, counts=counts)
    assert told(session)[P0].status is PartitionStatus.COPYING
    doors.survey_fails = True
    for failures in (1, 2):
        doors.request()
        assert told(session)[P0].status is PartitionStatus.COPYING
        assert counts.survey_failures == failures
    doors.survey_fails = False
    doors.request()
    assert told(session)[P1].status is PartitionStatus.WAITING
    assert counts.survey_failures == 2


@pytest.mark.parametrize("copies_already", [False, True])
def test_a_source_that_is_its_own_target_ends_the_session_before_anything_is_copied(
    copies_already: bool,  # noqa: FBT001 - a case
) -> None:
    doors = Doors()
    doors.source_partitions = 1
    session = session_of(doors, {P0: copied_to(P0, 600)})
    if copies_already:
        assert told(session)[P0].status is PartitionStatus.COPYING
    doors.same_cluster = "SAME_CLUSTER: they are one"
    doors.request()
    with pytest.raises(SessionError, match="SAME_CLUSTER: they are one"):
        session.step()


def test_a_partition_whose_source_is_damaged_lags_from_the_damage_on() -> None:
    doors = Doors()
    doors.source_partitions = 1
    session = session_of(doors, {P0: copied_to(P0, 600)})
    assert told(session)[P0].status is PartitionStatus.COPYING
    doors.events = [Damaged(P0, PartitionStoppedError("trips-0: offset 600 is damaged"))]
    part = told(session)[P0]
    assert (part.status, part.lag_records) == (PartitionStatus.STOPPED, 100)
    assert "offset 600" in part.reason


def test_a_source_that_may_not_be_read_stops_its_partition_until_it_may() -> None:
    doors, stops = Doors(), Stops(StandingClock(), 600_000)
    doors.source_partitions = 1
    session = session_of(doors, {P0: copied_to(P0, 600)}, stops=stops)
    assert told(session)[P0].status is PartitionStatus.COPYING
    for _ in range(2):
        doors.events = [NotAllowed(P0, "Read is missing")]
        with capture_logs() as logs:
            part = told(session)[P0]
        assert (part.status, part.reason, part.source_next) == (STOPPED, "Read is missing", 600)
        assert part.lag_records == 100
        doors.request()
        assert told(session)[P0].status is STOPPED, "it is tried again, and has not gone on yet"
    assert logs == [], "the first time is enough"
    assert [place.source_next for place in doors.taken] == [600] * 3
    doors.calm_ms = 1.0  # what is open may grow yet
    doors.events = [RecordBlock(P0, 0, [600, 601, 602], ["", "", ""], 3)]
    assert told(session)[P0].status is STOPPED
    session.commit()
    part = told(session)[P0]
    assert (part.status, part.reason, part.source_next) == (PartitionStatus.COPYING, "", 603)
    assert stops.reasons() == {}


def test_an_idle_partition_that_may_be_read_again_is_no_longer_stopped() -> None:
    doors = Doors()
    doors.source_partitions = 1
    session = session_of(doors, {P0: copied_to(P0, 700)})
    told(session)
    doors.events = [NotAllowed(P0, "Read is missing")]
    assert told(session)[P0].status is STOPPED
    doors.request()
    told(session)
    doors.events = [EndReached(P0, SourceOffset(700))]
    assert told(session)[P0].status is PartitionStatus.COPYING


@pytest.mark.parametrize("known", [{}, {P0: copied_to(P0, 600)}], ids=["begun", "known"])
def test_of_a_topic_that_the_target_refuses_nothing_is_begun_read_or_committed(
    known: dict[TopicPartition, PartitionState],
) -> None:
    doors, stops = Doors(), Stops(StandingClock(), 600_000)
    doors.logs[P1] = doors.logs[P0]
    stops.refuse({TRIPS: "Write is missing"})
    session = session_of(doors, known, stops=stops)
    parts = told(session)
    assert {(part.status, part.reason) for part in parts.values()} == {(STOPPED, "Write is missing")}
    assert doors.taken == []
    told_of = [part for entry in doors.written for part in entry.partitions]
    assert {(part.partition, part.source_next) for part in told_of} <= {(0, 600)}
    assert known or not told_of
    stops.try_again()
    doors.request()
    assert told(session)[P0].status is STOPPED, "it is tried again, and has not gone on yet"
    assert len(doors.taken) == 2


@pytest.mark.parametrize("refused", [True, False])
def test_nobody_waits_for_the_end_of_a_topic_that_the_target_refuses(*, refused: bool) -> None:
    doors, clock = Doors(), StandingClock()
    stops = Stops(clock, 600_000)
    doors.source_partitions, doors.end = 1, TargetEnd(TargetOffset(0), 3)
    if refused:
        stops.refuse({TRIPS: "Write is missing"})
    session = session_of(doors, {P0: replace(copied_to(P0, 600), target_leader_epoch=3)}, clock, stops)
    told(session)
    doors.end = TargetEnd(TargetOffset(0), 4)  # another leader, of which an own topic is asked again
    doors.waited_for.clear()
    clock.sleep_ms(Replicator().watermark_interval_ms)
    session.commit()
    told(session)
    assert (P0 in doors.waited_for) is not refused


def test_a_topic_that_is_refused_once_more_after_it_was_tried_is_no_news() -> None:
    stops = Stops(StandingClock(), 600_000)
    assert stops.refuse({TRIPS: "Write is missing"})
    stops.tell(P0, "Write is missing")
    stops.try_again()
    assert not stops.refuse({TRIPS: "Write is missing"})
    assert stops.refuse({TRIPS: "Read is missing"})
    stops.gone_on(P0)
    assert stops.refuse({TRIPS: "Write is missing"})


def test_a_topic_that_the_target_has_refused_goes_on_once_it_says_that_it_takes_it() -> None:
    doors, clock = Doors(), StandingClock()
    stops = Stops(clock, 600_000)
    stops.refuse({TRIPS: "Write is missing"})
    session = session_of(doors, {P0: copied_to(P0, 600)}, stops=stops, clock=clock)
    told(session)
    assert doors.taken == []
    assert doors.asked_about == {TRIPS}
    doors.usable = {TRIPS}
    clock.sleep_ms(Replicator().discovery_interval_ms)
    for _ in range(2):  # the first asks, the second hears
        part = told(session)[P0]
    assert [place.source_next for place in doors.taken if place.source_next] == [600]
    assert (part.status, part.reason) == (STOPPED, "Write is missing"), "it has not gone on yet"
    assert stops.refused == set()


def test_a_target_that_says_it_takes_a_topic_and_refuses_it_is_believed_more_and_more_rarely() -> None:
    clock, tried_at = StandingClock(), []
    stops = Stops(clock, 600_000)
    for second in range(200):
        stops.refuse({TRIPS: "Write is missing"})
        stops.allow({TRIPS, TopicName("another")})
        if not stops.of_topic(TRIPS):
            tried_at.append(second)
        clock.sleep_ms(1_000)
    assert tried_at == [0, 5, 15, 35, 75, 155]
    stops.try_again()
    stops.refuse({TRIPS: "Write is missing"})
    stops.allow({TRIPS})
    assert not stops.of_topic(TRIPS)


def test_a_topic_that_one_side_does_not_show_is_stopped_and_never_forgotten() -> None:
    doors = Doors()
    doors.topic_there = False
    doors.hidden = {TRIPS: "Read is missing"}
    session = session_of(doors, {P0: copied_to(P0, 600)})
    parts = told(session)
    assert (parts[P0].status, parts[P0].reason, parts[P0].source_next) == (STOPPED, "Read is missing", 600)
    assert parts[P1].status is STOPPED
    doors.target_there = False
    for _ in range(2):
        doors.request()
        assert told(session)[P0].status is STOPPED
        session._clock.sleep_ms(2 * FORGOTTEN_AFTER_MS)
    assert not [part for entry in doors.written for part in entry.partitions if part.closed]
    doors.topic_there, doors.target_there, doors.hidden = True, True, {}
    doors.request()
    assert told(session)[P0].status is PartitionStatus.COPYING
    assert doors.taken[0].source_next == 600


def test_what_the_source_does_not_have_any_more_is_no_lag() -> None:
    doors = Doors()
    doors.source_partitions = 1
    session = session_of(doors, {P0: copied_to(P0, 600)})
    assert told(session)[P0].lag_records == 100
    doors.topic_there = False
    doors.request()
    part = told(session)[P0]
    assert (part.status, part.lag_records) == (PartitionStatus.ABSENT, 0)


def test_nothing_is_read_before_the_target_says_that_it_has_kept_what_was_committed() -> None:
    """Else it would be copied on behind a lost tail."""
    doors = Doors()
    doors.source_partitions, doors.end = 1, TargetEnd(TargetOffset(0), 3)  # of a leader that was replaced
    session = session_of(doors, {P0: replace(copied_to(P0, 600), target_leader_epoch=4)})
    told(session)
    assert doors.taken == []
    doors.end = TargetEnd(TargetOffset(0), 4)
    doors.request()
    told(session)
    assert [place.source_next for place in doors.taken] == [600]


@pytest.mark.parametrize(("target_there", "forgotten"), [(False, True), (True, False)])
def test_a_topic_that_is_long_gone_is_dropped_from_the_state_if_neither_side_has_it(
    *, target_there: bool, forgotten: bool
) -> None:
    doors, clock = Doors(), StandingClock()
    doors.source_partitions = 1
    session = session_of(doors, {P0: copied_to(P0, 600)}, clock)
    assert told(session)[P0].source_next == 600
    doors.topic_there, doors.target_there = False, target_there
    for _ in range(2):
        doors.request()
        assert P0 in told(session)
        clock.sleep_ms(FORGOTTEN_AFTER_MS - 1)
    doors.request()
    assert (P0 not in told(session)) is forgotten


def test_a_record_of_an_older_epoch_than_the_last_one_copied_is_of_another_log() -> None:
    """Some clients compare the ends of logs alone, and read on in the one of a leader from before."""
    doors = Doors()
    session = session_of(doors, {P0: replace(copied_to(P0, 600), source_leader_epoch=3)})
    assert told(session)[P0].source_next == 600
    doors.events = [RecordBlock(P0, 2, [600, 601], ["", ""], 2)]
    told(session)
    part = told(session)[P0]
    assert (part.status, part.source_next) == (PartitionStatus.COPYING, 0), "no row tells where the two part"


def test_a_lag_that_only_readers_tell_of_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_readers_alone(session: ShardSession, item: TopicPartition, end: int | None) -> int:
        return 0 if end is None else max(0, end - session._position(item))

    monkeypatch.setattr(ShardSession, "_lag", of_readers_alone)
    with pytest.raises(AssertionError):
        test_a_stopped_partition_lags_by_what_its_source_holds(0, {}, 700)
    with pytest.raises(AssertionError):
        test_a_partition_whose_source_is_damaged_lags_from_the_damage_on()


def test_how_long_records_take_is_counted_when_their_copies_are_committed() -> None:
    """An injected delay shows: before a record is sent in both figures, before its commit in the latency alone."""
    doors, clock = Doors(), StandingClock()
    session = session_of(doors, {P0: copied_to(P0, 0)}, clock)
    session.step()
    written_at_ms = clock.now_ms()
    clock.sleep_ms(700)
    block = RecordBlock(P0, 0, range(3), [None] * 3, 30, newest_timestamp_ms=written_at_ms)
    session._ledger.send(block)
    clock.sleep_ms(1_500)
    before = session._ledger.counts.latencies.value()
    session.commit()
    counts = session._ledger.counts
    ages, latencies = counts.record_ages.value(), counts.latencies.value()
    assert (sum(before.counts), sum(ages.counts), sum(latencies.counts)) == (0, 3, 3)
    assert ages.sum_s == pytest.approx(3 * 0.7)
    assert latencies.sum_s == pytest.approx(3 * 2.2)
    assert (told(session)[P0].record_age_ms, told(session)[P0].record_age_ms) == (700, None)


def test_it_is_told_until_when_all_is_copied_and_a_source_that_is_away_does_not_change_it() -> None:
    doors, clock = Doors(), StandingClock()
    session = session_of(doors, {P0: copied_to(P0, 700)}, clock)
    assert (told(session)[P0].copied_until_ms, told(session)[P1].copied_until_ms) == (1_000, None)
    doors.survey_fails = True
    clock.sleep_ms(Replicator().discovery_interval_ms)
    told(session)
    assert told(session)[P0].copied_until_ms == 1_000
    doors.survey_fails = False
    doors.logs = {P0: LogEnd(SourceOffset(0), SourceOffset(703), SourceOffset(703))}
    clock.sleep_ms(Replicator().discovery_interval_ms)
    told(session)
    assert told(session)[P0].copied_until_ms == 1_000
    session._ledger.send(RecordBlock(P0, 0, range(700, 703), [None] * 3, 30, newest_timestamp_ms=2_000))
    session.commit()
    doors.end = TargetEnd(TargetOffset(3))
    assert told(session)[P0].copied_until_ms == 2_000
    clock.sleep_ms(Replicator().discovery_interval_ms)
    told(session)
    assert told(session)[P0].copied_until_ms == clock.now_ms()


@pytest.mark.parametrize("of_target", ["t", "the one before"])
def test_a_source_topic_that_was_made_anew_is_stopped_if_somebody_wants_that(of_target: str) -> None:
    doors = Doors()
    doors.source_partitions = doors.target_partitions = 1
    before = Lineage(TopicId("the one before"), TopicId(of_target))
    state = replace(copied_to(P0, 600), lineage=before)
    session = session_of(doors, {P0: state}, stops_at_recreated=True)
    part, present = told(session)[P0], session._ledger.states[P0].lineage
    if of_target == "t":
        assert part.status is STOPPED
        assert part.reason.startswith("SOURCE_RECREATED: trips was deleted at the source and made anew")
        assert (present, doors.taken) == (before, [])
    else:  # with the target made anew, too, nothing of the one before is there
        assert part.status is PartitionStatus.COPYING
        assert present == Lineage(TopicId("s"), TopicId("t"))
    session = session_of(doors, {P0: session._ledger.states[P0]})
    assert told(session)[P0].status is PartitionStatus.COPYING
    begun = session._ledger.states[P0]
    assert begun.lineage == Lineage(TopicId("s"), TopicId("t"))
    assert told(session_of(doors, {P0: begun}, stops_at_recreated=True))[P0].status is PartitionStatus.COPYING


def test_a_session_goes_on_behind_what_the_one_before_has_passed_over() -> None:
    """With the leader epoch of what was passed over: the source can tell whether it still has that."""
    doors, clock = Doors(), StandingClock()
    doors.source_partitions = 1
    session = session_of(doors, {P0: replace(copied_to(P0, 600), source_leader_epoch=3)}, clock)
    told(session)
    doors.events = [PassedOver(P0, SourceOffset(650), 4), EndReached(P0, SourceOffset(700))]
    assert told(session)[P0].source_next == 700
    clock.sleep_ms(Replicator().watermark_interval_ms)
    session.commit()
    state = session._ledger.states[P0]
    assert (state.source_next, state.last_run_end, state.passed_leader_epoch) == (700, 600, 4)
    assert state_of(doors.written[-1].partitions[0]) == state
    session_of(doors, {P0: state}, clock).step()
    assert doors.taken == [
        ReadFrom(SourceOffset(600), 3, TopicId("s")),
        ReadFrom(SourceOffset(700), 4, TopicId("s")),
    ]


def test_what_is_copied_behind_what_was_passed_over_is_where_the_next_session_goes_on() -> None:
    doors = Doors()
    doors.source_partitions = 1
    session = session_of(doors, {P0: replace(copied_to(P0, 600), passed_leader_epoch=0)})
    told(session)
    doors.events = [
        PassedOver(P0, SourceOffset(620), 1),
        RecordBlock(P0, 1, [620, 621, 622], ["", "", ""], 3),
    ]
    told(session)
    session.commit()
    state = session._ledger.states[P0]
    assert (state.source_next, state.last_run_end, state.passed_leader_epoch) == (623, 623, -1)
    (row,) = rows_of(doors.written[-1].partitions[0])
    assert (row.previous_source_end, row.source_start) == (600, 620)
