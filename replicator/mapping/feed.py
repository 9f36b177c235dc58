"""Carries committed run-log entries into the mapping index, in a thread beside the copy loop and never in its way.

The queue between the two is bounded. When the index is away for longer than it holds, the queue is dropped, and
the run log itself is read again from where the index ends: the index is always a prefix of the run log.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import structlog

from parallax.domain.ids import Lineage, Route, RoutePartition, TopicPartition
from parallax.domain.index_rows import LineageRecord, RowBatch, index_version
from parallax.domain.runs import LostRange, Run
from parallax.errors import (
    ClusterUnavailableError,
    ConfigError,
    InvariantError,
    ParallaxError,
    StoreUnavailableError,
    UnavailableError,
)
from parallax.ports.index import STOPS_KEPT_S, MappingIndexWriter
from parallax.v1.runlog_pb2 import Entry, PartitionEntry
from replicator.copying.ports import Clock, RunLogReader
from replicator.copying.session_end import SessionError
from replicator.copying.state import lineage_of, lost_of, rows_of, state_of, topic_partition_of
from replicator.mapping.block_writer import BlockWriter

log = structlog.get_logger(__name__)

LoggedEntry = tuple[int, Entry]
"""An entry and its offset in the run log."""

_QUEUE_BOUND_ENTRIES = 20_000
_QUEUE_BOUND_BYTES = 16 * 1024 * 1024
"""As they are encoded; decoded they take some six times that. With hundreds of partitions an entry has tens of KiB."""
_ENTRIES_PER_TURN = 2_000
_BYTES_PER_TURN = 4 * 1024 * 1024
_ROWS_PER_TURN = 50_000
"""Of all partitions, for all may be of one: less than `parallax.domain.blocks.MOST_ROWS`. An entry with more is a turn by itself."""
_STOPS_AGAIN_MS = STOPS_KEPT_S * 1_000 / 3
_OLD_AFTER_MS = 120_000
"""Entries that were committed so long ago are no news: of them blocks are written, and no turns."""

_OLD_TURNS = 16
"""So many of them until blocks are written that are not full: who dies in the midst of them need not begin anew."""

_LONGEST_PAUSE_MS = 5_000


@dataclass(slots=True)
class _Window:
    """Rows of one partition and lineage that are written together; of the last entry the rest."""

    committed_at_ms: int
    version: int
    rows: list[Run] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)


class IndexRows:
    """Run-log entries as index rows: of what is given at once, one batch per partition, lineage and layout.

    A replay may cut them otherwise: readers know that the same row may be found twice.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._told: set[tuple[RoutePartition, Lineage, bool]] = set()

    def batches(self, entries: Iterable[LoggedEntry]) -> tuple[list[LineageRecord], list[RowBatch]]:
        """What to write for these entries, in order; of several watermarks in a row only the last counts."""
        windows: dict[tuple[RoutePartition, Lineage, int], _Window] = {}
        lineages: list[LineageRecord] = []
        for offset, entry in entries:
            version = index_version(layout=entry.layout, run_log_offset=offset)
            for part in entry.partitions:
                partition = RoutePartition(self._route, topic_partition_of(part))
                lineage = lineage_of(part)
                if (partition, lineage, part.closed) not in self._told:
                    self._told.add((partition, lineage, part.closed))
                    lineages.append(self._lineage(partition, lineage, part, version))
                if not part.source_start and not part.lost:
                    continue
                slot = (partition, lineage, entry.layout)
                window = windows.setdefault(slot, _Window(entry.committed_at_ms, version))
                window.committed_at_ms = max(window.committed_at_ms, entry.committed_at_ms)
                window.version = version
                window.lost += lost_of(part)
                for row in rows_of(part):
                    if window.rows and window.rows[-1].is_watermark:
                        window.rows.pop()
                    window.rows.append(row)
        return lineages, [
            RowBatch(
                partition=partition,
                lineage=lineage,
                rows=tuple(window.rows),
                lost=tuple(window.lost),
                committed_at_ms=window.committed_at_ms,
                version=window.version,
            )
            for (partition, lineage, _), window in windows.items()
        ]

    def forget(self) -> None:
        """Tell every lineage again: what was told last may not have arrived."""
        self._told.clear()

    @staticmethod
    def _lineage(
        partition: RoutePartition, lineage: Lineage, part: PartitionEntry, version: int
    ) -> LineageRecord:
        state = state_of(part)
        return LineageRecord(
            partition=partition,
            lineage=lineage,
            sequence=state.sequence,
            source_first=state.source_first,
            target_first=state.target_first,
            closed_at=state.source_next if part.closed else None,
            version=version,
            lost_epoch=state.lost_epoch,
        )


class IndexFeed:
    """The state behind the thread: what is queued, and what has to be read again from the run log.

    Not safe to use from several threads but for `offer`, `note_end`, `note_stops` and the two figures.

    Args:
        index: where rows go.
        reader: the run log of this shard.
        route, layout, shard: whose entries these are. What an earlier layout's shard of this number has left to be
            indexed is written too; entries of later layouts are left alone.
        bound_entries, bound_bytes: of the queue.
        patience_ms: how long `indexed_up_to` waits for an index that is slow rather than away; None: any time.
    """

    def __init__(
        self,
        index: MappingIndexWriter,
        reader: RunLogReader,
        *,
        route: Route,
        layout: int,
        shard: int,
        clock: Clock,
        bound_entries: int = _QUEUE_BOUND_ENTRIES,
        bound_bytes: int = _QUEUE_BOUND_BYTES,
        patience_ms: float | None = None,
    ) -> None:
        self._index = index
        self._reader = reader
        self._key = (route, layout, shard)
        self._rows = IndexRows(route)
        self._clock = clock
        self._bounds = (bound_entries, bound_bytes)
        self._patience_ms = patience_ms
        self._lock = threading.Lock()
        self._queue: deque[LoggedEntry] = deque()
        self._queued_bytes = 0
        self.truncated = ""
        """Why the run log can't be the one that was indexed; empty as long as nothing says so."""
        self.gap_offsets = 0
        """Run-log offsets that retention took before they were indexed: nobody can index what was copied there any more."""
        self._gap_end = 0
        self._gap_below = 0
        """Entries below this may be missing from the queue."""
        self._next: int | None = None
        self._owner: BlockWriter | None = None
        self._old_turns = 0
        self._indexed_earlier: dict[int, int] = {}
        """Up to where entries of earlier layouts are indexed, by layout."""
        self._last_taken = -1
        self._oldest_ms: int | None = None
        self._lag_entries = 0
        self._complete_at_ms = clock.monotonic_ms()
        """When all that was known was last indexed."""
        self._stops: Mapping[TopicPartition, str] = {}
        self._stops_told: Mapping[TopicPartition, str] = {}
        self._stops_again_ms = 0.0

    def note_stops(self, stops: Mapping[TopicPartition, str]) -> None:
        """These of the shard's partitions can't be copied; told by the next turn, and again now and then."""
        with self._lock:
            self._stops = dict(stops)

    def note_end(self, run_log_end: int) -> None:
        """The run log reaches to here: what lies below may never be offered."""
        with self._lock:
            self._gap_below = max(self._gap_below, run_log_end)

    def indexed_up_to(self) -> int:
        """Up to where the run log is indexed, asked now: it must reach there. 0 if nothing is, or the index is away or refuses.

        Copying waits for no store, not even for one whose schema or password has to be put right.
        """
        try:
            if self._patience_ms is None:
                return self._index.indexed_up_to(*self._key)
            return _within(self._patience_ms, lambda: self._index.indexed_up_to(*self._key))
        except (UnavailableError, ConfigError) as error:
            log.warning(
                "run_log_end_unproven", route=str(self._key[0]), shard=self._key[2], problem=str(error)
            )
            return 0

    def offer(self, offset: int, entry: Entry) -> None:
        """Take a committed entry. Never waits: when the queue is full it is dropped, to be read again later."""
        size_bytes = entry.ByteSize()
        most_entries, most_bytes = self._bounds
        with self._lock:
            full = len(self._queue) >= most_entries or self._queued_bytes + size_bytes > most_bytes
            if full and self._queue:
                self._gap_below = max(self._gap_below, self._queue[-1][0] + 1)
                self._queue.clear()
                self._queued_bytes = 0
            self._queue.append((offset, entry))
            self._queued_bytes += size_bytes

    @property
    def complete(self) -> bool:
        """Whether all that was offered or noted is indexed."""
        with self._lock:
            nothing_taken = not self._queue and not self._lag_entries
            return nothing_taken and self._next is not None and self._next >= self._gap_below

    def lag_ms(self) -> float:
        """Age of the oldest entry known and not indexed; while that has to be read again, as long as it may have waited."""
        with self._lock:
            oldest = self._oldest_ms
            if oldest is None and self._queue:
                oldest = self._queue[0][1].committed_at_ms
            to_be_read = (self._next or 0) < self._gap_below
        age_ms = 0.0 if oldest is None else max(0.0, self._clock.now_ms() - oldest)
        waited_ms = self._clock.monotonic_ms() - self._complete_at_ms if to_be_read else 0.0
        return max(age_ms, waited_ms)

    def turn(self) -> int:
        """Write what is there, once.

        Returns:
            How many statements wrote it.

        Raises:
            ParallaxError: the index could not be written or the run log not read; as after any other error nothing
                is lost, and the next turn begins anew.
        """
        try:
            self._tell_stops()
            if self._next is None:
                self._next = self._begin()
            with self._lock:
                # Taken where it is decided: an entry offered in between may clear the queue and leave a gap.
                gap_below = self._gap_below
                behind = self._next < gap_below
                taken = [] if behind else self._take()
            if behind:
                written = self._replay(self._next, gap_below)
            else:
                written = self._write([item for item in taken if item[0] >= self._next])
        except Exception:
            with self._lock:
                # Whatever was taken from the queue is read again.
                self._gap_below = max(self._gap_below, self._last_taken + 1)
            self._next = self._owner = None
            self._rows.forget()
            raise
        if self.complete:
            self._complete_at_ms = self._clock.monotonic_ms()
        return written

    def _tell_stops(self) -> None:
        with self._lock:
            stops = self._stops
        now_ms = self._clock.monotonic_ms()
        if stops == self._stops_told and (not stops or now_ms < self._stops_again_ms):
            return
        self._index.write_stops(self._key[0], stops, self._stops_told.keys() - stops.keys())
        self._stops_told, self._stops_again_ms = stops, now_ms + _STOPS_AGAIN_MS

    def _begin(self) -> int:
        """Where the index ends.

        Raises:
            SessionError: the run log does not reach as far.
        """
        stored = self._index.indexed_up_to(*self._key)
        if stored and stored > (end := self._reader.end()):
            # Whoever copies learns of it: its next entries would be taken for some that are indexed already.
            self.truncated = (
                f"it ends at {end}, and its entries up to {stored} are indexed: it has lost its tail"
            )
            raise SessionError(self.truncated)
        self.truncated = ""
        self._owner = BlockWriter(self._index, *self._key)
        self._old_turns = 0
        return self._owner.begins_at

    def finish(self) -> None:
        """Write what the next owner would have to write again. To be called once all is written.

        Raises:
            StoreUnavailableError: the index is away.
        """
        if self._owner is not None:
            self._owner.write_all()

    def _take(self) -> list[LoggedEntry]:
        """The next entries of the queue, for one turn; call with the lock held."""
        taken = next(_turns(self._queue), [])
        for _, entry in taken:
            self._queue.popleft()
            self._queued_bytes -= entry.ByteSize()
        if taken:
            self._last_taken = max(self._last_taken, taken[-1][0])
        return taken

    def _replay(self, start: int, end: int) -> int:
        """Read the run log again up to ``end``.

        Raises:
            ClusterUnavailableError: whose entries these are can't be told now: none would be taken for the run log's own.
        """
        run_log_id = self._reader.topic_id()
        if run_log_id is None:
            raise ClusterUnavailableError(
                f"{self._key[0]}: the target names no run log at the moment, or no more"
            )
        first = self._reader.start()
        self._note_gap(start, min(first, end))
        records = self._reader.read(max(start, first), end)
        entries = (
            (at, entry)
            for at, entry in records
            if entry is not None and entry.run_log_id == run_log_id and self._is_due(at, entry)
        )
        written = sum(self._write(turn, replayed=True) for turn in _turns(entries))
        if self._owner is not None:
            self._owner.reach(end)
            self._next, self._old_turns = end, 0
        return written

    def _note_gap(self, start: int, first: int) -> None:
        """The run log begins above what is indexed: say so, as whoever writes on from there leaves a gap in the index.

        An answer that needs rows from the gap is earlier than it could be. A shard of this number of an earlier layout may
        have indexed some of it.
        """
        if start >= first:
            return
        route, layout, shard = self._key
        earlier = [self._index.indexed_up_to(route, number, shard) for number in range(layout)]
        start = max(start, self._gap_end, *earlier)
        if start >= first:
            return
        self._gap_end = first
        self.gap_offsets += first - start
        log.error(
            "index_gap",
            route=str(route),
            shard=shard,
            start=start,
            end=first,
            problem=f"the run log begins at {first}, and its entries up to {start} are indexed: retention took those between. "
            "Answers that need their rows are earlier than they could be, until the records concerned are gone from the target: "
            "see that replicator.run_log_retention_ms is longer than the index is ever away",
        )

    def _is_due(self, offset: int, entry: Entry) -> bool:
        """Whether an entry that is read is the shard's own, or one that an earlier layout has left."""
        route, layout, shard = self._key
        if entry.shard != shard or entry.layout > layout:
            return False
        if entry.layout == layout:
            return True
        if entry.layout not in self._indexed_earlier:
            # The layouts between have read on from there, and written what was left, too.
            self._indexed_earlier[entry.layout] = max(
                self._index.blocks_to(route, number, shard) for number in range(entry.layout, layout)
            )
        return offset >= self._indexed_earlier[entry.layout]

    def _write(self, entries: Sequence[LoggedEntry], *, replayed: bool = False) -> int:
        if not entries:  # what was taken before may have been written though the answer was lost
            self._oldest_ms, self._lag_entries = None, 0
            return 0
        self._oldest_ms, self._lag_entries = entries[0][1].committed_at_ms, len(entries)
        lineages, batches = self._rows.batches(entries)
        if lineages:
            self._index.write_lineages(lineages)
        lost = [batch for batch in batches if batch.lost]
        if lost:
            self._index.write_lost(lost)
        if self._owner is None:
            raise InvariantError("entries are to be written, and nobody owns the lease's blocks")
        self._next = entries[-1][0] + 1
        old = replayed and self._clock.now_ms() - entries[-1][1].committed_at_ms > _OLD_AFTER_MS
        written = self._owner.write(batches, entries[0][0], self._next, old=old)
        self._old_turns += old
        if self._old_turns >= _OLD_TURNS:
            written += self._owner.write_all()
            self._old_turns = 0
        self._oldest_ms, self._lag_entries = None, 0
        return written


def _turns(entries: Iterable[LoggedEntry]) -> Iterator[list[LoggedEntry]]:
    """Cut entries into what is written at once."""
    turn: list[LoggedEntry] = []
    size_bytes = rows = 0
    for item in entries:
        further = sum(len(part.source_start) for part in item[1].partitions)
        if turn and rows + further > _ROWS_PER_TURN:
            yield turn
            turn, size_bytes, rows = [], 0, 0
        turn.append(item)
        size_bytes += item[1].ByteSize()
        rows += further
        if len(turn) >= _ENTRIES_PER_TURN or size_bytes >= _BYTES_PER_TURN:
            yield turn
            turn, size_bytes, rows = [], 0, 0
    if turn:
        yield turn


class IndexThread:
    """Turns an `IndexFeed` over and over until it is closed, whatever error a turn ends with.

    Args:
        feed: what to turn.
        earlier: finds the feeds of an earlier layout, which are turned first, until they are complete.
        interval_ms: pause between turns.
    """

    def __init__(
        self,
        feed: IndexFeed,
        *,
        earlier: Callable[[], Sequence[IndexFeed]],
        interval_ms: int,
        name: str,
    ) -> None:
        self._feed = feed
        self._find_earlier = earlier
        self._earlier: list[IndexFeed] | None = None
        self._interval_ms = interval_ms
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"index {name}", daemon=True)
        self._thread.start()

    def close(self, patience_ms: int) -> None:
        """Write what is left, for as long as that takes but no longer than ``patience_ms``."""
        self._stop.set()
        self._thread.join(patience_ms / 1_000)

    def _turn(self) -> int:
        if self._earlier is None:
            self._earlier = list(self._find_earlier())
        while self._earlier:
            written = self._earlier[0].turn()
            if not self._earlier[0].complete:
                return written
            # Its rows come before all that the shard itself writes.
            self._earlier[0].finish()
            self._earlier.pop(0)
        return self._feed.turn()

    def _finish(self) -> None:
        try:
            self._feed.finish()
        except Exception as error:  # noqa: BLE001 - the next owner writes it then
            log.warning("index_unavailable", problem=str(error))

    def _work(self) -> None:
        pause_ms: float = self._interval_ms
        problem = ""
        while True:
            last = self._stop.wait(pause_ms / 1_000)
            try:
                self._turn()
            except Exception as error:
                # The copy loop goes on, and so must its mapping.
                if repr(error) != problem:
                    defect = None if isinstance(error, ParallaxError) else error
                    log.warning("index_unavailable", problem=str(error), exc_info=defect)
                problem = repr(error)
                if last:
                    return
                pause_ms = min(max(pause_ms, 100) * 2, _LONGEST_PAUSE_MS)
                continue
            if problem:
                log.info("index_available")
            problem = ""
            if last and self._feed.complete:
                self._finish()
                return
            pause_ms = self._interval_ms


def _within(patience_ms: float, ask: Callable[[], int]) -> int:
    """What is asked for, if it comes in time: the copy loop waits for it.

    Raises:
        StoreUnavailableError: it does not.
    """
    answer: Future[int] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - raised by who waits, if somebody still does
            answer.set_exception(error)

    threading.Thread(target=work, name="index asked", daemon=True).start()
    try:
        return answer.result(patience_ms / 1_000)
    except TimeoutError as error:
        raise StoreUnavailableError(f"store: no answer within {patience_ms:.0f} ms") from error
