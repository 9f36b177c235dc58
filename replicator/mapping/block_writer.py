"""Writes what one owner of a lease commits into an index in blocks.

Each turn is one row for all partitions of the lease and makes its rows readable at once; blocks keep them. A block is
written when it is full, and now and then while it grows, under the same key.

A *term* is the time of one owner, and has a number of its own. It begins at the run-log offset up to which every row is in blocks, so that nothing is left
out when an owner dies; and its number is part of its blocks' keys, so that whatever a former owner still writes replaces
nothing. Any version of a block that is stored is true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parallax.domain.block_rows import BlockKey, StoredBlock, encode_turn, in_order, lineage_number
from parallax.domain.blocks import MOST_ROWS, encode
from parallax.domain.ids import Lineage, Route, RoutePartition
from parallax.domain.index_rows import RowBatch, index_version, layout_of, left_by
from parallax.domain.lineage_history import EpochRows, epochs_of
from parallax.domain.runs import Run
from parallax.errors import StoreUnavailableError
from parallax.index.directory import read_block
from parallax.ports.blocks import BlockName, BlocksOf
from parallax.ports.index import MappingStore

MOST_RUNS = 1_024
"""Of a block: some 5 KiB, of which an answer reads one or two."""

INTERVAL_MS = 60_000
"""So often at least a block that has grown is written."""

_TOLD_AGAIN_MS = 3_600_000
"""So often the key of a block that still grows, which would expire before it."""

_MOST_TURNS = 1_000
"""Of entries without rows, until it is recorded that nothing is missing."""

_KEYS_LOOKED_AT = 64
"""Of a lineage, by an owner that begins: many times as many as late owners may have added beside the last one that counts."""


@dataclass(slots=True)
class _Growing:
    """A block that is not full yet.

    Attributes:
        term: the version that its key names.
        before: what earlier rows of the lineage tell of each leader epoch.
        runs: how many of its rows are runs.
        grown: whether it has changed since it was last written.
        told_at_ms: when its key was last told; None: it has not been.
        version: of its last row (`RowBatch.version`).
    """

    partition: RoutePartition
    lineage: Lineage
    term: int
    before: Mapping[int, EpochRows]
    rows: list[Run] = field(default_factory=list)
    begun_at_ms: int = 0
    committed_at_ms: int = 0
    runs: int = 0
    grown: bool = False
    told_at_ms: int | None = None
    version: int = 0

    @property
    def told_after(self) -> Mapping[int, EpochRows]:
        """What the lineage's rows tell of each leader epoch, all but the last."""
        return {**self.before, **epochs_of(self.rows[:-1], self.before)}


class BlockWriter:
    """One owner's term. Not safe to use from several threads.

    Args:
        store: where to.
        route, layout, shard: whose lease it is.
        most_runs: of a block, the one of the block before included: 2 at least.
        interval_ms: so often at least a block that has grown is written, by the time at which rows were committed.

    Raises:
        StoreUnavailableError: the store did not answer.
    """

    def __init__(
        self,
        store: MappingStore,
        route: Route,
        layout: int,
        shard: int,
        *,
        most_runs: int = MOST_RUNS,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        self._store = store
        self._lease = (route, layout, shard)
        self._layout = layout
        self._most_runs = most_runs
        self._interval_ms = interval_ms
        # From now on no former owner says how far blocks reach.
        self._term, self.begins_at = store.begin_term(route, layout, shard)
        """`write` is to be given every entry from the run-log offset ``begins_at`` on, whoever has committed it."""
        self._since = self._next = self.begins_at
        self._turns = 0
        self._former_since: int | None = None
        self._growing: dict[int, _Growing] = {}
        self._all_written_at_ms: int | None = None
        self._unread = False
        """Whether rows were given of which no turn tells."""
        self._left: dict[int, int] = {}
        """Up to where earlier layouts have left rows that were given since all was written, by layout."""

    def write(
        self, batches: Sequence[RowBatch], run_log_first: int, run_log_next: int, *, old: bool = False
    ) -> int:
        """Write a turn, and the blocks that are due.

        Args:
            batches: the rows of the next entries, in order.
            run_log_first: the first of these entries.
            run_log_next: the next offset after the last.
            old: they were committed long ago, and many others after them: they are readable once all is written.

        Returns:
            How many statements wrote it, about.

        Raises:
            StoreUnavailableError: the store did not answer; this owner's term is over then, and another one is to begin.
        """
        batches = [batch for batch in batches if batch.rows]
        at_ms = max((batch.committed_at_ms for batch in batches), default=0)
        written = self.write_all(at_ms) if self._unread and not old else 0
        self._next = run_log_next
        numbers = [lineage_number(batch.partition, batch.lineage) for batch in batches]
        untold = [old or not tellable for tellable in self._tellable(numbers, batches)]
        self._unread = self._unread or any(untold)
        layouts = {layout_of(batch.version) for batch in batches} - {self._layout}
        self._left.update(dict.fromkeys(layouts, run_log_next))
        if not old:  # without rows, too: it says how far the run log was read
            rows_of: dict[int, list[Run]] = {}
            for number, batch, left_out in zip(numbers, batches, untold, strict=True):
                if not left_out:
                    rows_of.setdefault(number, []).extend(batch.rows)
            pieces = {number: encode(rows, at_ms) for number, rows in rows_of.items()}
            body = encode_turn(run_log_first, at_ms, pieces)
            self._store.write_turn(*self._lease, run_log_next, body)
            written += 1
            self._turns += 1
        self._begin(numbers, batches)
        full: list[StoredBlock] = []
        for number, batch in zip(numbers, batches, strict=True):
            full += self._grow(number, batch)
        if full:
            self._store.write_blocks(full)
            written += 2 * len(full)
            if any(untold):  # no turn tells of them, and blocks that grow are not written yet
                numbers_full = dict.fromkeys(block.key.lineage for block in full)
                self._store.write_newest([self._newest_of(self._growing[number]) for number in numbers_full])
                written += 1
        if not batches:
            return written + (self.write_all() if self._turns >= _MOST_TURNS else 0)
        if self._all_written_at_ms is None:
            self._all_written_at_ms = at_ms
        due = abs(at_ms - self._all_written_at_ms) >= self._interval_ms  # clocks may go back
        if not old and (due or self._unread):  # what no turn tells of is readable now
            written += self.write_all(at_ms)
        return written

    def _tellable(self, numbers: Sequence[int], batches: Sequence[RowBatch]) -> list[bool]:
        """Of each batch whether a turn can tell of it, and not blocks alone.

        What an earlier layout has left it can't: a turn's rows come behind all of earlier layouts. Nor more rows of a lineage
        than a block holds.
        """
        rows: Counter[int] = Counter()
        for number, batch in zip(numbers, batches, strict=True):
            rows[number] += len(batch.rows)
        return [
            layout_of(batch.version) == self._layout and rows[number] <= MOST_ROWS
            for number, batch in zip(numbers, batches, strict=True)
        ]

    def reach(self, run_log_next: int) -> None:
        """Say that nothing more is below a run-log next offset: what lies there is told already, or none of the lease's.

        Raises:
            StoreUnavailableError: as in `write`.
        """
        if self._unread:
            self._next = max(self._next, run_log_next)
            self.write_all()
        elif run_log_next > self._next:
            nothing = encode_turn(self._next, 0, {})
            self._store.write_turn(*self._lease, run_log_next, nothing)
            self._next = run_log_next

    def write_all(self, now_ms: int | None = None) -> int:
        """Write every block that has grown: the next term begins behind what was given so far.

        Args:
            now_ms: when the last row was committed; None: as `write` was told.

        Returns:
            How many statements wrote it, about.

        Raises:
            StoreUnavailableError: as in `write`.
        """
        grown = [(number, block) for number, block in self._growing.items() if block.grown]
        if grown:
            self._store.write_blocks([self._stored(number, block) for number, block in grown])
            # What they tell is readable before this: nobody looks for a newest row that is nowhere.
            self._store.write_newest([self._newest_of(block) for _, block in grown])
        for _, block in grown:
            block.grown = False
        self._tell_left()
        if self._next > self._since:
            self._store.save_blocks_to(*self._lease, self._term, self._next)
            believed = self._store.blocks_to(*self._lease) >= self._next
            if self._unread and not believed:
                # No turn tells of these rows, and readers go by the other owner's word: turns behind them would leave a hole.
                raise StoreUnavailableError(f"index: another owner of {self._lease} has begun a term")
            if self._former_since is not None and believed:
                # Who reads by what was told last may still need those of the time before. If another owner has followed
                # unseen, it may be writing turns there, and would say that blocks reach less far.
                self._store.drop_turns(*self._lease, self._former_since)
            self._former_since, self._since, self._turns = self._since, self._next, 0
        self._unread = False
        if now_ms is not None:
            self._all_written_at_ms = now_ms
        return len(grown) + 3

    def _tell_left(self) -> None:
        """Say of earlier layouts' leases how far blocks have what they left: readers look for keys before those that they know."""
        route, _, shard = self._lease
        for layout, run_log_next in self._left.items():
            term, reached = self._store.begin_term(route, layout, shard)
            self._store.save_blocks_to(route, layout, shard, term, max(reached, run_log_next))
        self._left = {}

    def _begin(self, numbers: Sequence[int], batches: Sequence[RowBatch]) -> None:
        """Begin the blocks of lineages that this owner has not written yet, or in another layout."""
        firsts: dict[int, RowBatch] = {}
        for number, batch in zip(numbers, batches, strict=True):
            if number not in self._growing:
                firsts.setdefault(number, batch)
        if not firsts:
            return
        places = [
            BlocksOf(batch.partition.route.target, batch.partition.topic_partition, number)
            for number, batch in firsts.items()
        ]
        wanted = [
            (place, batch.rows[0].target_start) for place, batch in zip(places, firsts.values(), strict=True)
        ]
        told = self._store.keys_below(wanted, _KEYS_LOOKED_AT)
        before: dict[int, BlockName] = {}
        first_rows: dict[BlockName, bytes] = {}
        for place, batch, keys in zip(places, firsts.values(), told, strict=True):
            start = (batch.rows[0].target_start, batch.rows[0].source_start)
            counting = [key for key in in_order(key for key, _ in keys) if key.start < start]
            if counting:
                name = before[place.lineage] = BlockName(place.target, place.topic_partition, counting[-1])
                first_rows[name] = dict(keys)[counting[-1]]
        bodies = {**first_rows, **self._store.blocks(list(before.values()))} if before else {}
        for number, batch in firsts.items():
            row = batch.rows[0]
            epochs: Mapping[int, EpochRows] = {}
            if number in before:
                block = read_block(before[number], bodies[before[number]])
                end = len(block)
                while end and (block.target_start(end - 1), block.source_start(end - 1)) >= (
                    row.target_start,
                    row.source_start,
                ):
                    end -= 1
                epochs = block.epochs(end)
            self._growing[number] = _Growing(batch.partition, batch.lineage, self._term_of(batch), epochs)

    def _term_of(self, batch: RowBatch) -> int:
        """The term that keys name: rows that an earlier layout has left come after all that its own leases have written."""
        layout = layout_of(batch.version)
        return (
            index_version(layout=layout, run_log_offset=self._term)
            if layout == self._layout
            else left_by(layout)
        )

    def _grow(self, number: int, batch: RowBatch) -> list[StoredBlock]:
        """Take rows of a lineage; the blocks that they fill."""
        full: list[StoredBlock] = []
        at_ms = batch.committed_at_ms
        block = self._growing[number]
        term = self._term_of(batch)
        for row in batch.rows:
            if block.term != term:
                if block.grown:
                    full.append(self._stored(number, block))
                before = {**block.before, **epochs_of(block.rows, block.before)}
                block = _Growing(batch.partition, batch.lineage, term, before)
            elif block.rows and not block.runs and not row.is_watermark:
                # Whoever of one term writes them, and in whatever portions: blocks of runs begin at the same run.
                before = {**block.before, **epochs_of(block.rows, block.before)}
                block = _Growing(batch.partition, batch.lineage, term, before)
            elif (
                block.rows
                and block.rows[-1].is_watermark
                and (len(block.rows) > 1 or block.told_at_ms is None)
            ):
                block.rows.pop()  # it says less than what follows; but a key that was told stays
            if block.runs >= self._most_runs:
                # And end at the same one.
                full.append(self._stored(number, block))
                last, last_at_ms = block.rows[-1], block.committed_at_ms
                block = _Growing(
                    batch.partition, batch.lineage, term, block.told_after, [last], last_at_ms, last_at_ms, 1
                )
            if not block.rows:
                block.begun_at_ms = at_ms
            block.rows.append(row)
            block.runs += not row.is_watermark
            block.committed_at_ms = max(block.committed_at_ms, at_ms)
            block.version = batch.version
            block.grown = True
        self._growing[number] = block
        return full

    @staticmethod
    def _newest_of(block: _Growing) -> RowBatch:
        # Of rows that an earlier layout has left, the version is older than of any that its successors write.
        return RowBatch(
            block.partition, block.lineage, (block.rows[-1],), (), block.committed_at_ms, block.version
        )

    def _stored(self, number: int, block: _Growing) -> StoredBlock:
        first = block.rows[0]
        key = BlockKey(number, first.target_start, first.source_start, block.term)
        body = encode(block.rows, block.committed_at_ms, block.before)
        version = index_version(layout=self._layout, run_log_offset=self._next)
        alone = None
        if block.told_at_ms is None or block.committed_at_ms - block.told_at_ms >= _TOLD_AGAIN_MS:
            alone = encode([first], block.begun_at_ms, block.before)
            block.told_at_ms = block.committed_at_ms
        return StoredBlock(block.partition, key, body, version, alone)
