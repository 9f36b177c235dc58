"""An index in blocks, in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from parallax.domain.block_rows import BlockKey, StoredBlock
from parallax.domain.ids import RegionName, Route, TargetOffset, TopicPartition
from parallax.ports.blocks import BlockName, BlocksOf, Reached, ToldKey, TurnsWanted

_Lease = tuple[Route, int, int]


class MemoryBlockStore:
    """`BlockWriterStore`. Nothing expires."""

    def __init__(self) -> None:
        self.stored: dict[BlockName, StoredBlock] = {}
        self._told_keys: dict[BlocksOf, dict[BlockKey, bytes]] = defaultdict(dict)
        self._turns_of: dict[_Lease, dict[int, bytes]] = defaultdict(dict)
        self._blocks_to: dict[_Lease, tuple[int, int]] = {}

    def write_turn(self, route: Route, layout: int, shard: int, run_log_next: int, body: bytes) -> None:
        self._turns_of[route, layout, shard][run_log_next] = body

    def drop_turns(self, route: Route, layout: int, shard: int, upto: int) -> None:
        turns = self._turns_of[route, layout, shard]
        for run_log_next in [at for at in turns if at <= upto]:
            del turns[run_log_next]

    def write_blocks(self, blocks: Sequence[StoredBlock]) -> None:
        for block in blocks:
            self.write_block(block)
        for block in blocks:
            if block.first is not None:
                place = BlocksOf(
                    block.partition.route.target, block.partition.topic_partition, block.key.lineage
                )
                self._told_keys[place][block.key] = block.first

    def write_block(self, block: StoredBlock) -> None:
        name = BlockName(block.partition.route.target, block.partition.topic_partition, block.key)
        known = self.stored.get(name)
        if known is None or known.version <= block.version:
            self.stored[name] = block

    def begin_term(self, route: Route, layout: int, shard: int) -> tuple[int, int]:
        term, reached = self._blocks_to.get((route, layout, shard), (0, 0))
        self.save_blocks_to(route, layout, shard, term + 1, reached)
        return term + 1, reached

    def blocks_to(self, route: Route, layout: int, shard: int) -> int:
        return self._blocks_to.get((route, layout, shard), (0, 0))[1]

    def save_blocks_to(self, route: Route, layout: int, shard: int, term: int, run_log_next: int) -> None:
        lease = (route, layout, shard)
        self._blocks_to[lease] = max(self._blocks_to.get(lease, (0, 0)), (term, run_log_next))

    def reached(self, routes: Collection[Route]) -> Mapping[Route, Sequence[Reached]]:
        return {
            route: sorted(
                Reached(layout, shard, term, run_log_next)
                for (of, layout, shard), (term, run_log_next) in self._blocks_to.items()
                if of == route
            )
            for route in routes
        }

    def turns(self, wanted: Sequence[TurnsWanted]) -> Sequence[Sequence[tuple[int, bytes]]]:
        return [
            sorted(
                (upto, body)
                for upto, body in self._turns_of.get((item.route, item.layout, item.shard), {}).items()
                if upto > item.after
            )
            for item in wanted
        ]

    def told_up_to(self, wanted: TurnsWanted) -> int:
        return max((upto for upto, _ in self.turns([wanted])[0]), default=0)

    def keys_below(
        self, wanted: Sequence[tuple[BlocksOf, TargetOffset | None]], limit: int
    ) -> Sequence[Sequence[ToldKey]]:
        return [
            [item for item in self._keys_told(place) if below is None or item[0].target_start <= below][
                -limit:
            ]
            for place, below in wanted
        ]

    def keys_from(self, wanted: Sequence[tuple[BlocksOf, TargetOffset]]) -> Sequence[Sequence[ToldKey]]:
        return [
            [item for item in self._keys_told(place) if item[0].target_start >= start]
            for place, start in wanted
        ]

    def blocks(self, names: Collection[BlockName]) -> Mapping[BlockName, bytes]:
        return {name: self.stored[name].body for name in names if name in self.stored}

    def forget_blocks(self, target: RegionName, topic_partition: TopicPartition) -> None:
        """As if the blocks had expired, and their keys had not."""
        for name in [name for name in self.stored if name[:2] == (target, topic_partition)]:
            del self.stored[name]

    def forget(self, name: BlockName) -> None:
        """As if a block and its key had never been written."""
        self.stored.pop(name, None)
        self._told_keys[BlocksOf(*name[:2], name.key.lineage)].pop(name.key, None)

    def every_turn(self, route: Route, layout: int, shard: int) -> list[bytes]:
        """The turns of a lease that were not dropped."""
        return list(self._turns_of[route, layout, shard].values())

    def _keys_told(self, place: BlocksOf) -> list[ToldKey]:
        return sorted(self._told_keys.get(place, {}).items(), key=lambda item: item[0])
