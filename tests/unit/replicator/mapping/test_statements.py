"""How many statements and bytes a lease costs the store: as docs/scale.md says, by runs and partitions, not by transactions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from parallax.domain.block_rows import StoredBlock
from parallax.domain.ids import (
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import RowBatch, index_version
from parallax.domain.runs import Run
from replicator.mapping.block_writer import BlockWriter
from tests.memory.index import MemoryMappingIndex

TURNS_PER_S, TRANSACTIONS_PER_TURN = 5, 6
SECONDS = 150
ROUTE, LINEAGE = Route.parse("a->b"), Lineage(TopicId("A" * 22), TopicId("B" * 22))
PAGE = (Path(__file__).parents[4] / "docs" / "scale.md").read_text(encoding="utf-8")
TOLD = re.compile(r"([\d.]+) statements a second with one partition, ([\d.]+) with 100, ([\d.]+) with 1,000")
TOLD_KB = re.compile(r"([\d.]+) kB/s with one partition, ([\d.]+) with 100, ([\d.]+) with 1,000")


class Counted(MemoryMappingIndex):
    """Counts what the adapter for Cassandra sends, where newest rows of one topic are one statement at best."""

    def __init__(self) -> None:
        super().__init__()
        self.statements = 0
        self.stored_bytes = 0
        """Of turns, blocks and first rows; keys and what Cassandra adds are not counted."""

    def write_turn(self, route: Route, layout: int, shard: int, run_log_next: int, body: bytes) -> None:
        self.statements += 1
        self.stored_bytes += len(body)
        super().write_turn(route, layout, shard, run_log_next, body)

    def write_blocks(self, blocks: Sequence[StoredBlock]) -> None:
        self.statements += len(blocks) + sum(block.first is not None for block in blocks)
        self.stored_bytes += sum(len(block.body) + len(block.first or b"") for block in blocks)
        super().write_blocks(blocks)

    def write_newest(self, batches: Sequence[RowBatch]) -> None:
        self.statements += len(batches)
        super().write_newest(batches)

    def save_blocks_to(self, route: Route, layout: int, shard: int, term: int, run_log_next: int) -> None:
        self.statements += 3  # it is read again, and turns are dropped
        super().save_blocks_to(route, layout, shard, term, run_log_next)


def written_by_lease(partitions: int) -> tuple[float, float]:
    """Statements and kB a second, of a lease whose every transaction touches every partition, between records of others: as many runs as there can be."""
    store = Counted()
    writer, written = BlockWriter(store, ROUTE, 1, 0), 0
    store.statements = store.stored_bytes = 0
    for turn in range(SECONDS * TURNS_PER_S):
        runs = tuple(
            Run(SourceOffset(at), TargetOffset(4 * at), 1, SourceOffset(at), 0)
            for at in range(written, written + TRANSACTIONS_PER_TURN)
        )
        at_ms, version = 1_000 * turn // TURNS_PER_S, index_version(layout=1, run_log_offset=written)
        batches = [
            RowBatch(
                RoutePartition(ROUTE, TopicPartition(TopicName("trips"), number)),
                LINEAGE,
                runs,
                (),
                at_ms,
                version,
            )
            for number in range(partitions)
        ]
        writer.write(batches, written, written + TRANSACTIONS_PER_TURN)
        written += TRANSACTIONS_PER_TURN
    return store.statements / SECONDS, store.stored_bytes / 1_000 / SECONDS


def test_what_a_lease_writes_is_what_the_page_says() -> None:
    ones, hundreds = written_by_lease(1), written_by_lease(100)
    for told, one, hundred in zip((TOLD, TOLD_KB), ones, hundreds, strict=True):
        found = told.search(PAGE)
        assert found is not None
        thousand = one + (hundred - one) / 99 * 999
        assert [round(one), round(hundred), round(thousand)] == list(map(int, found.groups()))
