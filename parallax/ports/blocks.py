"""The doors to an index in blocks: how leases write it, and how answers are going to read it.

The rules of `parallax.ports.clusters` hold here too. No store keeps it yet but the tests' one in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from parallax.domain.block_rows import BlockKey, StoredBlock
from parallax.domain.ids import RegionName, Route, RoutePartition, TopicPartition


class BlockWriterStore(Protocol):
    """Blocks as a lease writes them: idempotent, and true in whatever order former owners add theirs."""

    def write_turn(self, route: Route, layout: int, shard: int, run_log_next: int, body: bytes) -> None:
        """Keep a turn (`parallax.domain.block_rows.encode_turn`) for some minutes.

        Args:
            route: whose it is.
            layout: likewise.
            shard: likewise.
            run_log_next: the run-log next offset after its last entry.
            body: the turn.
        """

    def write_blocks(self, blocks: Sequence[StoredBlock]) -> None:
        """Keep blocks; a key is told to readers once its block is acknowledged. Returns once all are."""

    def blocks_to(self, route: Route, layout: int, shard: int) -> int:
        """The run-log next offset below which every row of the shard is in blocks, as the latest term says; 0: none is."""

    def save_blocks_to(self, route: Route, layout: int, shard: int, term: int, run_log_next: int) -> None:
        """Remember it; what an earlier term says is ignored, and a smaller value than the term's own."""

    def keys_of(self, partition: RoutePartition, lineage: int, section: int) -> Sequence[BlockKey]:
        """The keys of a lineage's blocks of the section, and of the last one before it that has any."""

    def block(self, partition: RoutePartition, key: BlockKey) -> bytes | None:
        """One block; None: it is gone."""


class BlockReaderStore(Protocol):
    """Blocks as answers read them. What is missing makes a resume offset earlier, never wrong."""

    def keys(self, target: RegionName, topic_partition: TopicPartition, section: int) -> Sequence[BlockKey]:
        """The keys of the section, of all lineages of all routes into the target."""

    def blocks(
        self, target: RegionName, topic_partition: TopicPartition, keys: Collection[BlockKey]
    ) -> Mapping[BlockKey, bytes]:
        """The blocks of these keys, read at once; those that are gone are left out."""

    def turns(self, route: Route, layout: int, shard: int, after: int) -> Sequence[tuple[int, bytes]]:
        """The turns whose ``run_log_next`` is above ``after``, with that, in order."""
