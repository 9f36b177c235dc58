"""An index in blocks, in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from parallax.domain.block_rows import BlockKey, StoredBlock
from parallax.domain.ids import RegionName, Route, RoutePartition, TopicPartition

_Lease = tuple[Route, int, int]
_Place = tuple[RegionName, TopicPartition]


def _place(partition: RoutePartition) -> _Place:
    return partition.route.target, partition.topic_partition


class MemoryBlockStore:
    """`BlockWriterStore` and `BlockReaderStore`. Turns are kept for good."""

    def __init__(self) -> None:
        self.stored: dict[_Place, dict[BlockKey, StoredBlock]] = {}
        self._turns: dict[_Lease, dict[int, bytes]] = {}
        self._blocks_to: dict[_Lease, tuple[int, int]] = {}

    def write_turn(self, route: Route, layout: int, shard: int, run_log_next: int, body: bytes) -> None:
        self._turns.setdefault((route, layout, shard), {})[run_log_next] = body

    def write_blocks(self, blocks: Sequence[StoredBlock]) -> None:
        for block in blocks:
            self.write_block(block)

    def write_block(self, block: StoredBlock) -> None:
        of_place = self.stored.setdefault(_place(block.partition), {})
        known = of_place.get(block.key)
        if known is None or known.version <= block.version:
            of_place[block.key] = block

    def blocks_to(self, route: Route, layout: int, shard: int) -> int:
        return self._blocks_to.get((route, layout, shard), (0, 0))[1]

    def save_blocks_to(self, route: Route, layout: int, shard: int, term: int, run_log_next: int) -> None:
        lease = (route, layout, shard)
        self._blocks_to[lease] = max(self._blocks_to.get(lease, (0, 0)), (term, run_log_next))

    def keys_of(self, partition: RoutePartition, lineage: int, section: int) -> Sequence[BlockKey]:
        keys = [key for key in self.stored.get(_place(partition), {}) if key.lineage == lineage]
        earlier = max((key.section for key in keys if key.section < section), default=section)
        return sorted(key for key in keys if key.section in {earlier, section})

    def block(self, partition: RoutePartition, key: BlockKey) -> bytes | None:
        block = self.stored.get(_place(partition), {}).get(key)
        return None if block is None else block.body

    def keys(self, target: RegionName, topic_partition: TopicPartition, section: int) -> Sequence[BlockKey]:
        return sorted(key for key in self.stored.get((target, topic_partition), {}) if key.section == section)

    def blocks(
        self, target: RegionName, topic_partition: TopicPartition, keys: Collection[BlockKey]
    ) -> Mapping[BlockKey, bytes]:
        stored = self.stored.get((target, topic_partition), {})
        return {key: stored[key].body for key in keys if key in stored}

    def turns(self, route: Route, layout: int, shard: int, after: int) -> Sequence[tuple[int, bytes]]:
        turns = self._turns.get((route, layout, shard), {})
        return sorted((upto, body) for upto, body in turns.items() if upto > after)
