"""Writes what one owner of a lease commits into an index in blocks. No lease does so yet: see `parallax.ports.blocks`.

Each turn is one row for all partitions of the lease and makes its rows readable at once; blocks keep them. A block is
written when it is full, and now and then while it grows, under the same key.

A *term* is the time of one owner. It begins at the run-log offset up to which every row is in blocks, so that nothing is left
out when an owner dies; and its number is part of its blocks' keys, so that whatever a former owner still writes replaces
nothing. Any version of a block that is stored is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from parallax.domain.block_rows import SECTION, BlockKey, StoredBlock, encode_turn, in_order, lineage_number
from parallax.domain.blocks import Block, encode
from parallax.domain.ids import Route, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.index_rows import RowBatch
from parallax.domain.lineage_history import EpochRows, epochs_of
from parallax.domain.runs import Run
from parallax.ports.blocks import BlockWriterStore

MOST_RUNS = 1_024
"""Of a block: some 5 KiB, of which an answer reads one or two."""

INTERVAL_MS = 60_000
"""So often at least a block that has grown is written."""


@dataclass(slots=True)
class _Growing:
    """A block that is not full yet.

    Attributes:
        before: what earlier rows of the lineage tell of each leader epoch.
        runs: how many of its rows are runs.
        grown: whether it has changed since it was last written.
    """

    partition: RoutePartition
    before: dict[int, EpochRows]
    rows: list[Run] = field(default_factory=list)
    committed_at_ms: int = 0
    runs: int = 0
    grown: bool = False


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
        store: BlockWriterStore,
        route: Route,
        layout: int,
        shard: int,
        *,
        most_runs: int = MOST_RUNS,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        self._store = store
        self._lease = (route, layout, shard)
        self._most_runs = most_runs
        self._interval_ms = interval_ms
        self.term = store.blocks_to(route, layout, shard)
        """`write` is to be given every entry from this run-log offset on, whoever has committed it."""
        # From now on no former owner says how far blocks reach.
        store.save_blocks_to(*self._lease, self.term, self.term)
        self._next = self.term
        self._growing: dict[int, _Growing] = {}
        self._all_written_at_ms = 0

    def write(
        self, batches: Sequence[RowBatch], run_log_first: int, run_log_next: int, *, old: bool = False
    ) -> None:
        """Write a turn, and the blocks that are due.

        Args:
            batches: the rows of the next entries, in order.
            run_log_first: the first of these entries.
            run_log_next: the next offset after the last.
            old: they were committed long ago: nobody reads turns from then.

        Raises:
            StoreUnavailableError: the store did not answer; this owner's term is over then, and another one is to begin.
        """
        rows_of: dict[int, list[Run]] = {}
        partition_of: dict[int, RoutePartition] = {}
        for batch in batches:
            number = lineage_number(batch.partition, batch.lineage)
            rows_of.setdefault(number, []).extend(batch.rows)
            partition_of[number] = batch.partition
        self._next = run_log_next
        at_ms = max((batch.committed_at_ms for batch in batches), default=0)
        if not old and rows_of:
            pieces = {number: encode(rows, at_ms) for number, rows in rows_of.items() if rows}
            self._store.write_turn(*self._lease, run_log_next, encode_turn(run_log_first, at_ms, pieces))
        full: list[StoredBlock] = []
        for number, rows in rows_of.items():
            full += self._grow(number, partition_of[number], rows, at_ms)
        if full:
            self._store.write_blocks(full)
        if at_ms - self._all_written_at_ms >= self._interval_ms:
            self.write_all(at_ms)

    def write_all(self, now_ms: int) -> None:
        """Write every block that has grown: the next term begins behind what was given so far.

        Raises:
            StoreUnavailableError: as in `write`.
        """
        grown = [(number, block) for number, block in self._growing.items() if block.grown]
        if grown:
            self._store.write_blocks([self._stored(number, block) for number, block in grown])
        for _, block in grown:
            block.grown = False
        self._store.save_blocks_to(*self._lease, self.term, self._next)
        self._all_written_at_ms = now_ms

    def _grow(
        self, number: int, partition: RoutePartition, rows: Iterable[Run], at_ms: int
    ) -> list[StoredBlock]:
        """Take rows of a lineage; the blocks that they fill."""
        full: list[StoredBlock] = []
        for row in rows:
            block = self._growing.get(number)
            if block is None:
                before = self._told_before(partition, number, row)
                block = self._growing[number] = _Growing(partition, before)
            if block.rows and block.rows[-1].is_watermark:
                block.rows.pop()  # it says less than what follows
            if block.runs >= self._most_runs:
                # Full blocks begin and end at the same runs, whoever of one term writes them, and however often.
                full.append(self._stored(number, block))
                before = block.before | epochs_of(block.rows[:-1], block.before)
                last, last_at_ms = block.rows[-1], block.committed_at_ms
                block = self._growing[number] = _Growing(partition, before, [last], last_at_ms, 1)
            block.rows.append(row)
            block.runs += not row.is_watermark
            block.committed_at_ms = max(block.committed_at_ms, at_ms)
            block.grown = True
        return full

    def _stored(self, number: int, block: _Growing) -> StoredBlock:
        first = block.rows[0]
        key = BlockKey(number, first.target_start, first.source_start, self.term)
        body = encode(block.rows, block.committed_at_ms, block.before)
        return StoredBlock(block.partition, key, body, self._next)

    def _told_before(self, partition: RoutePartition, number: int, row: Run) -> dict[int, EpochRows]:
        """What blocks of earlier terms tell of leader epochs, up to a row."""
        start: tuple[TargetOffset, SourceOffset] = (row.target_start, row.source_start)
        keys = in_order(self._store.keys_of(partition, number, row.target_start // SECTION))
        before = [key for key in keys if key.start < start]
        body = self._store.block(partition, before[-1]) if before else None
        if body is None:
            return {}
        block = Block(body)
        end = len(block)
        while end and (block.target_start(end - 1), block.source_start(end - 1)) >= start:
            end -= 1
        return block.epochs(end)
