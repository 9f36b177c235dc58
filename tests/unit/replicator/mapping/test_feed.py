from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from parallax.domain.block_rows import decode_turn
from parallax.domain.ids import (
    Lineage,
    Route,
    RoutePartition,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.runs import Run
from parallax.errors import (
    ClusterUnavailableError,
    ConfigError,
    ParallaxError,
    StoreUnavailableError,
    UnknownTopicError,
)
from parallax.index.reader import BlockIndex
from parallax.ports.index import STOPS_KEPT_S
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.session_end import SessionError
from replicator.copying.state import PartitionChange, PartitionState, encode
from replicator.lease import Lease
from replicator.mapping import feed as index_writer
from replicator.mapping.feed import IndexFeed, IndexRows, IndexThread
from replicator.shard import earlier_feeds
from tests.memory.index import MemoryMappingIndex
from tests.support import poll_until
from tests.worlds.clocks import StandingClock

ROUTE = Route.parse("a->b")
ITEM = TopicPartition(TopicName("t"), 0)
LINEAGE = Lineage(TopicId("s"), TopicId("d"))
PARTITION = RoutePartition(ROUTE, ITEM)


def entry(
    rows: Sequence[Run], committed_at_ms: int = 1_000, layout: int = 1, *, closed: bool = False
) -> Entry:
    end = rows[-1].source_end if rows else 0
    state = PartitionState(ITEM, LINEAGE, 0, 0, 0, end, end, 0)
    change = PartitionChange(state, tuple(rows), closed=closed)
    return encode(
        run_log_id=TopicId("log"),
        layout=layout,
        shard=0,
        path="record",
        changes=[change],
        everything=None,
        committed_at_ms=committed_at_ms,
    )


def run(start: int, count: int) -> Run:
    return Run(start, start, count, start)


class RunLog:
    def __init__(self) -> None:
        self.entries: list[tuple[int, Entry]] = []
        self.first = 0

    def append(self, one: Entry) -> int:
        self.entries.append((2 * len(self.entries), one))
        return self.entries[-1][0]

    def topic_id(self) -> TopicId | None:
        return TopicId("log")

    def partitions(self) -> int:
        return 1

    def end(self) -> int:
        return 2 * len(self.entries)

    def stable_end(self) -> int:
        return self.end()

    def start(self) -> int:
        return self.first

    def read(self, start: int, end: int) -> Iterable[tuple[int, Entry]]:
        assert start >= self.first, "a consumer is given nothing from there"
        return [item for item in self.entries if start <= item[0] < end]

    def close(self) -> None:
        pass


class Now:
    def now_ms(self) -> int:
        return 5_000

    def monotonic_ms(self) -> float:
        return 5_000.0

    def sleep_ms(self, duration_ms: float) -> None:
        raise AssertionError(duration_ms)


class AwayIndex(MemoryMappingIndex):
    away = False

    def write_turn(self, *turn: Any) -> None:
        if self.away:
            raise StoreUnavailableError("away")
        super().write_turn(*turn)


def feed_of(index: MemoryMappingIndex, log: RunLog, bound_entries: int = 100) -> IndexFeed:
    return IndexFeed(index, log, route=ROUTE, layout=1, shard=0, clock=Now(), bound_entries=bound_entries)


def indexed(index: MemoryMappingIndex) -> list[Run]:
    return list(index.rows_from_target(PARTITION, LINEAGE, TargetOffset(0), 1_000).rows)


def test_rows_given_at_once_become_one_batch_and_only_the_last_watermark_stays() -> None:
    rows = IndexRows(ROUTE)
    _, batches = rows.batches(
        [
            (0, entry([run(0, 2), Run(2, 2, 0, 2)], 1_000)),
            (2, entry([run(2, 3), Run(5, 5, 0, 5)], 1_100)),
            (4, entry([Run(5, 6, 0, 5)], 59_999)),
            (6, entry([run(5, 1)], 60_000)),
        ]
    )
    assert [(batch.rows, batch.committed_at_ms) for batch in batches] == [
        ((run(0, 2), run(2, 3), run(5, 1)), 60_000),
    ]
    assert batches[0].version == (1 << 48) | 6


def test_a_lineage_is_told_when_it_is_first_seen_and_when_it_ends() -> None:
    rows = IndexRows(ROUTE)
    assert [record.closed_at for record in rows.batches([(0, entry([run(0, 2)]))])[0]] == [None]
    assert rows.batches([(2, entry([run(2, 2)]))])[0] == []
    assert [record.closed_at for record in rows.batches([(4, entry([], closed=True))])[0]] == [0]


def test_entries_committed_before_the_start_are_read_from_the_run_log() -> None:
    log, index = RunLog(), MemoryMappingIndex()
    for number in range(5):
        log.append(entry([run(number, 1)], 1_000 * number))
    feed = feed_of(index, log)
    feed.note_end(log.end())
    assert not feed.complete
    feed.turn()
    assert feed.complete
    assert [row.source_start for row in indexed(index)] == [0, 1, 2, 3, 4]
    assert index.indexed_up_to(ROUTE, 1, 0) == 10


def test_what_any_earlier_layout_has_left_is_indexed_once() -> None:
    log, index = RunLog(), MemoryMappingIndex()
    for number, layout in enumerate((1, 1, 2, 3)):
        log.append(entry([run(number, 1)], layout=layout))
    index.save_blocks_to(ROUTE, 1, 0, 0, 2)
    feed = IndexFeed(index, log, route=ROUTE, layout=3, shard=0, clock=Now())
    feed.note_end(log.end())
    feed.turn()
    assert [row.source_start for row in indexed(index)] == [1, 2, 3]
    assert index.indexed_up_to(ROUTE, 3, 0) == log.end()


def test_what_retention_took_before_it_was_indexed_is_said() -> None:
    log, index = RunLog(), MemoryMappingIndex()
    for number in range(5):
        log.append(entry([run(number, 1)]))
    index.save_blocks_to(ROUTE, 1, 0, 0, 2)
    log.first = 6
    feed = feed_of(index, log)
    feed.note_end(log.end())
    with capture_logs() as logs:
        feed.turn()
    assert [(said["event"], said["start"], said["end"]) for said in logs] == [("index_gap", 2, 6)]
    assert "retention took those between" in logs[0]["problem"]
    assert feed.gap_offsets == 4
    assert (feed.complete, [row.source_start for row in indexed(index)]) == (True, [3, 4])


def test_a_gap_is_said_once_though_the_index_is_away_in_between() -> None:
    log, index = RunLog(), AwayIndex()
    for number in range(5):
        log.append(entry([run(number, 1)]))
    log.first = 6
    feed = feed_of(index, log)
    feed.note_end(log.end())
    index.away = True
    with capture_logs() as logs:
        with pytest.raises(StoreUnavailableError):
            feed.turn()
        index.away = False
        feed.turn()
    assert (len(logs), feed.gap_offsets) == (1, 6)


@pytest.mark.parametrize(("earlier_to", "gap_offsets"), [(6, 0), (4, 2)])
def test_what_an_earlier_layout_has_indexed_is_no_gap(earlier_to: int, gap_offsets: int) -> None:
    log, index = RunLog(), MemoryMappingIndex()
    for number, layout in enumerate((1, 1, 1, 2, 3)):
        log.append(entry([run(number, 1)], layout=layout))
    index.save_blocks_to(ROUTE, 2, 0, 0, earlier_to)
    log.first = 6
    feed = IndexFeed(index, log, route=ROUTE, layout=3, shard=0, clock=Now())
    feed.note_end(log.end())
    with capture_logs() as logs:
        feed.turn()
    assert (len(logs), feed.gap_offsets) == (bool(gap_offsets), gap_offsets)
    assert [row.source_start for row in indexed(index)] == [3, 4]


def test_shards_that_are_no_more_fall_to_one_that_is() -> None:
    class FivePartitions:
        clock = Now()

        def run_log(self, lease: Lease) -> RunLog:
            assert lease.shard in {0, 2, 4}
            log = RunLog()
            log.partitions = lambda: 5
            one = entry([run(lease.shard, 1)], layout=1)
            one.shard = lease.shard
            log.append(one)
            return log

    index = MemoryMappingIndex()
    lease = Lease(ROUTE, shard=0, shard_count=2, layout=3, epoch=1, deadline_unix_ms=0)
    for feed in earlier_feeds(lease, FivePartitions(), index):
        feed.turn()
        assert feed.complete
    assert [row.source_start for row in indexed(index)] == [2, 4]


def test_entries_of_a_later_layout_are_left_alone() -> None:
    log, index = RunLog(), MemoryMappingIndex()
    log.append(entry([run(0, 1)], layout=2))
    feed = feed_of(index, log)
    feed.note_end(log.end())
    feed.turn()
    assert indexed(index) == []


def test_a_queue_that_runs_over_is_dropped_and_read_again() -> None:
    log, index = RunLog(), AwayIndex()
    feed = feed_of(index, log, bound_entries=3)
    index.away = True
    for number in range(8):
        one = entry([run(number, 1)], 1_000 * number)
        feed.offer(log.append(one), one)
        with pytest.raises(StoreUnavailableError):
            feed.turn()
    assert feed.lag_ms() > 0
    index.away = False
    while not feed.complete:
        feed.turn()
    assert [row.source_start for row in indexed(index)] == list(range(8))
    assert index.indexed_up_to(ROUTE, 1, 0) == log.end() - 1
    assert feed.lag_ms() == 0


def test_a_run_log_that_ends_below_what_is_indexed_is_not_indexed_and_the_copier_hears_of_it() -> None:
    log, index = RunLog(), MemoryMappingIndex()
    index.save_blocks_to(ROUTE, 1, 0, 0, 500)
    one = entry([run(0, 1)])
    feed = feed_of(index, log)
    assert feed.indexed_up_to() == 500
    assert not feed.truncated
    feed.offer(log.append(one), one)
    with pytest.raises(SessionError):
        feed.turn()
    assert feed.truncated == "it ends at 2, and its entries up to 500 are indexed: it has lost its tail"
    assert indexed(index) == []
    assert index.indexed_up_to(ROUTE, 1, 0) == 500


def test_what_others_wrote_into_the_run_log_is_not_indexed() -> None:
    log, index = RunLog(), MemoryMappingIndex()
    for strange in (entry([run(0, 1)], layout=2), entry([run(0, 2)]), entry([run(0, 3)])):
        log.append(strange)
    log.entries[1][1].run_log_id = "elsewhere"
    log.entries[2][1].shard = 1
    log.append(entry([run(0, 4)]))
    feed = feed_of(index, log)
    feed.note_end(log.end())
    feed.turn()
    assert indexed(index) == [run(0, 4)]


def test_a_run_log_that_the_target_does_not_name_now_is_read_later() -> None:
    """Metadata of a broker that has just started may lack the topic, whose records it gives all the same."""
    log, index = RunLog(), MemoryMappingIndex()
    log.append(entry([run(0, 1)]))
    feed = feed_of(index, log)
    feed.note_end(log.end())
    named = log.topic_id
    log.topic_id = lambda: None
    with pytest.raises(ClusterUnavailableError):
        feed.turn()
    assert (feed.complete, index.indexed_up_to(ROUTE, 1, 0)) == (False, 0)
    log.topic_id = named
    feed.turn()
    assert (feed.complete, indexed(index)) == (True, [run(0, 1)])


@pytest.mark.parametrize("stamped_ms", [1_000, 15 * 24 * 3_600_000])
def test_an_index_that_is_behind_says_so_whatever_the_clock_said_at_the_commit(stamped_ms: int) -> None:
    log, index, clock = RunLog(), AwayIndex(), StandingClock()
    feed = IndexFeed(index, log, route=ROUTE, layout=1, shard=0, clock=clock)
    assert feed.lag_ms() == 0
    one = entry([run(0, 1)], stamped_ms)
    feed.offer(log.append(one), one)
    index.away = True
    with pytest.raises(StoreUnavailableError):
        feed.turn()
    clock.sleep_ms(4_000)
    assert feed.lag_ms() == 4_000
    index.away = False
    feed.turn()
    assert (feed.complete, feed.lag_ms()) == (True, 0)


def test_an_index_that_is_away_at_the_start_is_behind() -> None:
    class Away(MemoryMappingIndex):
        def indexed_up_to(self, *_: object) -> int:
            raise StoreUnavailableError("away")

    log, clock = RunLog(), StandingClock()
    log.append(entry([run(0, 1)]))
    feed = IndexFeed(Away(), log, route=ROUTE, layout=1, shard=0, clock=clock)
    feed.note_end(log.end())
    with pytest.raises(StoreUnavailableError):
        feed.turn()
    clock.sleep_ms(4_000)
    assert feed.lag_ms() == 4_000


def test_the_queue_is_bounded_by_bytes_too() -> None:
    log, index = RunLog(), MemoryMappingIndex()
    size_bytes = entry([run(0, 1)]).ByteSize()
    feed = IndexFeed(
        index, log, route=ROUTE, layout=1, shard=0, clock=Now(), bound_bytes=size_bytes + size_bytes // 2
    )
    for number in range(4):
        one = entry([run(number, 1)])
        feed.offer(log.append(one), one)
        assert len(feed._queue) == 1
    while not feed.complete:
        feed.turn()
    assert [row.source_start for row in indexed(index)] == [0, 1, 2, 3]


@pytest.mark.parametrize("queued", [True, False])
def test_what_is_written_at_once_is_bounded_by_bytes_too(
    monkeypatch: pytest.MonkeyPatch, *, queued: bool
) -> None:
    class Counting(MemoryMappingIndex):
        def write_turn(self, *turn: Any) -> None:
            pieces = decode_turn(turn[-1]).pieces.values()
            counts.extend([sum(map(len, pieces))] if pieces else [])
            super().write_turn(*turn)

    counts: list[int] = []
    log = RunLog()
    monkeypatch.setattr(index_writer, "_BYTES_PER_TURN", 2 * entry([run(1, 1)]).ByteSize() - 1)
    feed = feed_of(Counting(), log)
    for number in range(1, 6):
        one = entry([run(number, 1)])
        offset = log.append(one)
        if queued:
            feed.offer(offset, one)
    if not queued:
        feed.note_end(log.end())
    while not feed.complete:
        feed.turn()
    assert counts == [2, 2, 1]


@pytest.mark.parametrize("entries", [(35_000, 35_000), (70_000,)])
def test_more_rows_of_a_partition_than_a_turn_can_tell_of_are_indexed(entries: Sequence[int]) -> None:
    """Of a source that was compacted nearly every record is a run by itself."""
    log, index = RunLog(), MemoryMappingIndex()
    feed, first = feed_of(index, log), 0
    for count in entries:
        rows = [Run(2 * at, at, 1, max(2 * at - 1, 0)) for at in range(first, first + count)]
        one = entry(rows, 4_900)
        feed.offer(log.append(one), one)
        first += count
    for _ in entries:
        feed.turn()
    assert feed.complete
    history = BlockIndex(index).history(PARTITION, LINEAGE)
    assert [row.target_start for row in history.rows] == list(range(first))
    assert index.newest(ROUTE, ITEM.topic)[0, LINEAGE].row.target_end == first


class BusyLock:
    """A lock right after whose first release another thread gets its turn."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then: Callable[[], None] | None = then

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()


def test_a_queue_that_runs_over_in_the_middle_of_a_turn_leaves_no_gap() -> None:
    log, index = RunLog(), MemoryMappingIndex()
    feed = feed_of(index, log, bound_entries=3)
    feed.turn()

    def offer(number: int) -> None:
        one = entry([run(number, 1)], 1_000 * number)
        feed.offer(log.append(one), one)

    for number in range(3):
        offer(number)
    feed._lock = BusyLock(lambda: offer(3))  # type: ignore[assignment]
    feed.turn()
    while not feed.complete:
        feed.turn()
    assert [row.source_start for row in indexed(index)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("the keyspace lacks the schema"),
        UnknownTopicError("the run log is not known yet"),
        ValueError("a defect"),
    ],
)
def test_the_index_goes_on_after_any_error(error: Exception) -> None:
    class Failing(MemoryMappingIndex):
        failures = 3

        def indexed_up_to(self, route: Route, layout: int, shard: int) -> int:
            self.failures -= 1
            if self.failures >= 0:
                raise error
            return super().indexed_up_to(route, layout, shard)

    log, index = RunLog(), Failing()
    feed = feed_of(index, log)
    thread = IndexThread(feed, earlier=list, interval_ms=1, name="test")
    for number in range(5):
        one = entry([run(number, 1)], 1_000 * number)
        feed.offer(log.append(one), one)
    poll_until(lambda: len(indexed(index)) == 5, 10, "the index")
    thread.close(1_000)


class StopIndex(MemoryMappingIndex):
    """Counts what is said of stops; it may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.told = 0
        self.away = False

    def write_stops(self, *told: Any) -> None:
        if self.away:
            raise StoreUnavailableError("away")
        self.told += 1
        super().write_stops(*told)


def test_stops_are_told_at_each_change_and_again_before_they_are_forgotten() -> None:
    index, clock = StopIndex(), StandingClock()
    feed = IndexFeed(index, RunLog(), route=ROUTE, layout=1, shard=0, clock=clock)
    feed.turn()
    assert index.told == 0
    feed.note_stops({ITEM: "too large"})
    for _ in range(3):
        feed.turn()
    assert (index.told, index.stops(ROUTE)) == (1, {ITEM: "too large"})
    clock.sleep_ms(STOPS_KEPT_S * 1_000 / 2)
    feed.turn()
    assert index.told == 2
    index.away = True
    feed.note_stops({})
    with pytest.raises(StoreUnavailableError):
        feed.turn()
    index.away = False
    feed.turn()
    feed.turn()
    assert (index.told, index.stops(ROUTE)) == (3, {})


def test_a_slow_index_does_not_hold_up_the_start_of_copying() -> None:
    class Slow(MemoryMappingIndex):
        def indexed_up_to(self, *_: object) -> int:
            answers.wait(20)
            return 7

    answers = threading.Event()
    feed = IndexFeed(Slow(), RunLog(), route=ROUTE, layout=1, shard=0, clock=Now(), patience_ms=50)
    begun = time.monotonic()
    with capture_logs() as logs:
        assert feed.indexed_up_to() == 0
    assert time.monotonic() - begun < 5
    assert [line["event"] for line in logs] == ["run_log_end_unproven"]
    answers.set()
    assert feed.indexed_up_to() == 7


@pytest.mark.parametrize("error", [ConfigError("store: no schema"), StoreUnavailableError("away")])
def test_an_index_that_refuses_holds_up_copying_no_more_than_one_that_is_away(error: ParallaxError) -> None:
    feed = IndexFeed(Failing(error), RunLog(), route=ROUTE, layout=1, shard=0, clock=Now(), patience_ms=9_000)
    with capture_logs() as logs:
        assert feed.indexed_up_to() == 0
    assert [(line["event"], line["problem"]) for line in logs] == [("run_log_end_unproven", str(error))]


def test_a_defect_of_the_index_says_so() -> None:
    feed = IndexFeed(
        Failing(ValueError("a defect")),
        RunLog(),
        route=ROUTE,
        layout=1,
        shard=0,
        clock=Now(),
        patience_ms=9_000,
    )
    with pytest.raises(ValueError, match="a defect"):
        feed.indexed_up_to()


def test_after_a_statement_whose_answer_was_lost_all_is_known_to_be_written() -> None:
    class Unheard(MemoryMappingIndex):
        unheard = 0

        def save_blocks_to(self, *told: Any) -> None:
            super().save_blocks_to(*told)
            self.unheard += told[-1] > 0

        def blocks_to(self, *lease: Any) -> int:
            if self.unheard == 1:
                self.unheard += 1
                raise StoreUnavailableError("no answer in time")
            return super().blocks_to(*lease)

    log, index = RunLog(), Unheard()
    feed = feed_of(index, log)
    offered = 0
    with suppress(StoreUnavailableError):
        for offered in range(1_000):
            one = entry([run(offered, 1)], 1_000 * offered)
            feed.offer(log.append(one), one)
            feed.turn()
    assert index.unheard == 2
    feed.turn()
    feed.turn()
    assert (feed.complete, feed.lag_ms(), len(indexed(index))) == (True, 0, offered + 1)


class Failing(MemoryMappingIndex):
    """Fails when asked how far it reaches."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def indexed_up_to(self, *_: object) -> int:
        raise self._error
