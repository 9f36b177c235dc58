"""The doors to an index in blocks: how leases write it, and how answers read it.

The rules of `parallax.ports.clusters` hold here too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from parallax.domain.block_rows import BlockKey, StoredBlock
from parallax.domain.ids import RegionName, Route, TargetOffset, TopicPartition


class Reached(NamedTuple):
    """How far the blocks of a lease reach.

    Attributes:
        term: of the latest owner; each one's is greater than that of the one before.
        run_log_next: every row of entries below this run-log offset is in blocks.
    """

    layout: int
    shard: int
    term: int
    run_log_next: int


class TurnsWanted(NamedTuple):
    """The turns of a lease that are asked for.

    Attributes:
        after: only those whose run-log next offset is greater.
    """

    route: Route
    layout: int
    shard: int
    after: int


class BlocksOf(NamedTuple):
    """Of which lineage's blocks something is asked.

    Attributes:
        target: the region of the aggregate cluster.
        lineage: `parallax.domain.block_rows.lineage_number`.
    """

    target: RegionName
    topic_partition: TopicPartition
    lineage: int


class BlockName(NamedTuple):
    """One block among all."""

    target: RegionName
    topic_partition: TopicPartition
    key: BlockKey

    def __str__(self) -> str:
        """As the store's tables name it."""
        key = ", ".join(f"{name} {value}" for name, value in self.key._asdict().items())
        return f"target {self.target}, {self.topic_partition}, section {self.key.section}, {key},"


ToldKey = tuple[BlockKey, bytes]
"""A block's key, and the block's first row as a block of its own: what is left when the block itself has expired."""


class BlockReaderStore(Protocol):
    """Blocks as answers read them. What is missing makes a resume offset earlier, never wrong."""

    def reached(self, routes: Collection[Route]) -> Mapping[Route, Sequence[Reached]]:
        """How far the blocks of each lease of the routes reach, as its latest term says; by layout and shard."""

    def turns(self, wanted: Sequence[TurnsWanted]) -> Sequence[Sequence[tuple[int, bytes]]]:
        """The turns of each of these, with the run-log next offset of each, in order."""

    def told_up_to(self, wanted: TurnsWanted) -> int:
        """The greatest run-log next offset among these turns; 0: there is none."""

    def keys_below(
        self, wanted: Sequence[tuple[BlocksOf, TargetOffset | None]], limit: int
    ) -> Sequence[Sequence[ToldKey]]:
        """Of each lineage the last keys, in order of where their blocks begin.

        Args:
            wanted: lineages, and the target offset at or below which the blocks begin; None: wherever.
            limit: of each lineage so many at most. Fewer say that there are no others.
        """

    def keys_from(self, wanted: Sequence[tuple[BlocksOf, TargetOffset]]) -> Sequence[Sequence[ToldKey]]:
        """Of each lineage the keys of blocks that begin at or above a target offset, in order."""

    def blocks(self, names: Collection[BlockName]) -> Mapping[BlockName, bytes]:
        """The blocks of these names, read at once; those that are gone are left out."""


class BlockWriterStore(BlockReaderStore, Protocol):
    """Blocks as a lease writes them: idempotent, and true in whatever order former owners add theirs."""

    def write_turn(self, route: Route, layout: int, shard: int, run_log_next: int, body: bytes) -> None:
        """Keep a turn (`parallax.domain.block_rows.encode_turn`).

        Args:
            route: whose it is.
            layout: likewise.
            shard: likewise.
            run_log_next: the run-log next offset after its last entry.
            body: the turn.
        """

    def drop_turns(self, route: Route, layout: int, shard: int, upto: int) -> None:
        """Forget the turns up to a run-log next offset: blocks have what they told."""

    def write_blocks(self, blocks: Sequence[StoredBlock]) -> None:
        """Keep blocks; a key is told to readers once its block is acknowledged. Returns once all are."""

    def begin_term(self, route: Route, layout: int, shard: int) -> tuple[int, int]:
        """Begin a term that is later than all before, and reaches as far as they do: its number, and up to where that is."""

    def blocks_to(self, route: Route, layout: int, shard: int) -> int:
        """The run-log next offset below which every row of the shard is in blocks, as the latest term says; 0: none is."""

    def save_blocks_to(self, route: Route, layout: int, shard: int, term: int, run_log_next: int) -> None:
        """Remember it; what an earlier term says is ignored, and a smaller value than the term's own."""
