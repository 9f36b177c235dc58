"""The mapping index in blocks, in Cassandra.

Everything is written under a timestamp that grows with the run log, so that of two writes of one key the one that tells more
stays, whichever comes last. Terms are kept as rows of their own: the greatest is the latest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from parallax.adapters.cassandra.connection import CassandraConnection, Request
from parallax.config.config import Index
from parallax.domain.block_rows import BlockKey, StoredBlock
from parallax.domain.ids import RegionName, Route, SourceOffset, TargetOffset, TopicPartition
from parallax.ports.blocks import BlockName, BlocksOf, Reached, ToldKey, TurnsWanted

_KEY = "lineage, target_start, source_start, term"
_PARTITION = "target = ? AND topic = ? AND partition = ?"
_MOST_KEYS_ASKED = 64
"""Of one section in one statement."""


class CassandraBlocks:
    """`parallax.ports.blocks.BlockWriterStore`: blocks for as long as fine rows are kept, their keys for as long as coarse ones."""

    def __init__(self, connection: CassandraConnection, keyspace: str, settings: Index) -> None:
        self._connection = connection
        self._settings = settings
        lease = "route, layout, shard"
        self._insert_turn_cql = (
            f"INSERT INTO {keyspace}.turns ({lease}, run_log_next, body) VALUES (?, ?, ?, ?, ?) USING TTL ?"
        )
        self._drop_turns_cql = (
            f"DELETE FROM {keyspace}.turns WHERE route = ? AND layout = ? AND shard = ? AND run_log_next <= ?"
        )
        self._turns_cql = (
            f"SELECT run_log_next, body FROM {keyspace}.turns "
            "WHERE route = ? AND layout = ? AND shard = ? AND run_log_next > ?"
        )
        self._told_up_to_cql = (
            f"SELECT run_log_next FROM {keyspace}.turns WHERE route = ? AND layout = ? AND shard = ? "
            "AND run_log_next > ? ORDER BY run_log_next DESC LIMIT 1"
        )
        self._insert_block_cql = (
            f"INSERT INTO {keyspace}.blocks (target, topic, partition, section, {_KEY}, body) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
        )
        self._insert_key_cql = (
            f"INSERT INTO {keyspace}.block_keys (target, topic, partition, {_KEY}, first_row) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
        )
        keys = f"SELECT {_KEY}, first_row FROM {keyspace}.block_keys WHERE {_PARTITION} AND lineage = ?"
        backwards = "ORDER BY lineage DESC, target_start DESC, source_start DESC, term DESC LIMIT ?"
        self._last_keys_cql = f"{keys} {backwards}"
        self._keys_below_cql = f"{keys} AND target_start <= ? {backwards}"
        self._keys_from_cql = f"{keys} AND target_start >= ?"
        self._blocks_cql = (
            f"SELECT {_KEY}, body FROM {keyspace}.blocks WHERE {_PARTITION} AND section = ? AND ({_KEY}) IN ?"
        )
        self._save_blocks_to_cql = f"INSERT INTO {keyspace}.blocks_to ({lease}, term, run_log_next) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
        self._drop_terms_cql = (
            f"DELETE FROM {keyspace}.blocks_to USING TIMESTAMP ? "
            "WHERE route = ? AND layout = ? AND shard = ? AND term < ?"
        )
        reached = f"SELECT layout, shard, term, run_log_next FROM {keyspace}.blocks_to WHERE route = ?"
        self._reached_cql = reached
        self._blocks_to_cql = f"{reached} AND layout = ? AND shard = ?"

    # --- writing -------------------------------------------------------------------------------------------

    def write_turn(self, route: Route, layout: int, shard: int, run_log_next: int, body: bytes) -> None:
        """Keep a turn until blocks have its rows, or for as long as coarse rows if no owner follows."""
        ttl_s = self._settings.coarse_retention_s
        self._connection.run(self._insert_turn_cql, str(route), layout, shard, run_log_next, body, ttl_s)

    def drop_turns(self, route: Route, layout: int, shard: int, upto: int) -> None:
        """Forget the turns up to a run-log next offset."""
        self._connection.run(self._drop_turns_cql, str(route), layout, shard, upto)

    def write_blocks(self, blocks: Sequence[StoredBlock]) -> None:
        """Keep blocks, then their keys; returns once all are acknowledged.

        Raises:
            StoreUnavailableError: some are not; the same call may be made again.
        """
        insert_block, insert_key = map(
            self._connection.prepare, (self._insert_block_cql, self._insert_key_cql)
        )
        bodies: list[Request] = []
        keys: list[Request] = []
        for block in blocks:
            item, key = block.partition.topic_partition, block.key
            of = (block.partition.route.target, *item)
            bodies.append(
                (
                    insert_block,
                    (*of, key.section, *key, block.body, self._settings.fine_retention_s, block.version),
                )
            )
            if block.first is not None:
                keys.append(
                    (
                        insert_key,
                        (*of, *key, block.first, self._settings.coarse_retention_s, block.version),
                    )
                )
        self._connection.run_all(bodies)
        self._connection.run_all(keys)

    def begin_term(self, route: Route, layout: int, shard: int) -> tuple[int, int]:
        """Begin a term that is later than all before; its number, and how far blocks reach."""
        rows = self._connection.run(self._blocks_to_cql, str(route), layout, shard)
        latest = max((Reached(*row) for row in rows), default=Reached(layout, shard, 0, 0))
        term, reached = latest.term + 1, latest.run_log_next
        self.save_blocks_to(route, layout, shard, term, reached)
        self._connection.run(self._drop_terms_cql, reached, str(route), layout, shard, term)
        return term, reached

    def blocks_to(self, route: Route, layout: int, shard: int) -> int:
        """The run-log next offset below which every row of the shard is in blocks; 0: none is."""
        rows = self._connection.run(self._blocks_to_cql, str(route), layout, shard)
        return int(max(rows, key=lambda row: row[2])[3]) if rows else 0

    def save_blocks_to(self, route: Route, layout: int, shard: int, term: int, run_log_next: int) -> None:
        """Remember it; what an earlier term says is ignored, and a smaller value than the term's own."""
        # Stamped with itself: the greater one stays.
        lease = (str(route), layout, shard)
        self._connection.run(self._save_blocks_to_cql, *lease, term, run_log_next, run_log_next)

    # --- reading -------------------------------------------------------------------------------------------

    def reached(self, routes: Collection[Route]) -> Mapping[Route, Sequence[Reached]]:
        """How far the blocks of each lease of the routes reach; by layout and shard."""
        select = self._connection.prepare(self._reached_cql)
        answers = self._connection.run_all([(select, (str(route),)) for route in routes])
        found: dict[Route, Sequence[Reached]] = {}
        for route, rows in zip(routes, answers, strict=True):
            latest = {(item.layout, item.shard): item for item in sorted(Reached(*row) for row in rows)}
            found[route] = list(latest.values())
        return found

    def turns(self, wanted: Sequence[TurnsWanted]) -> Sequence[Sequence[tuple[int, bytes]]]:
        """The turns of each of these, in order."""
        select = self._connection.prepare(self._turns_cql)
        answers = self._connection.run_all(
            [(select, (str(item.route), item.layout, item.shard, item.after)) for item in wanted]
        )
        return [[(row[0], row[1]) for row in rows] for rows in answers]

    def told_up_to(self, wanted: TurnsWanted) -> int:
        """The greatest run-log next offset among these turns; 0: there is none."""
        place = (str(wanted.route), wanted.layout, wanted.shard, wanted.after)
        rows = self._connection.run(self._told_up_to_cql, *place)
        return int(rows[0][0]) if rows else 0

    def keys_below(
        self, wanted: Sequence[tuple[BlocksOf, TargetOffset | None]], limit: int
    ) -> Sequence[Sequence[ToldKey]]:
        """Of each lineage the last keys, in order of where their blocks begin."""
        last, below = map(self._connection.prepare, (self._last_keys_cql, self._keys_below_cql))
        answers = self._connection.run_all(
            [
                (last, (*_columns(place), limit))
                if start is None
                else (below, (*_columns(place), start, limit))
                for place, start in wanted
            ]
        )
        return [list(map(_told_key, reversed(rows))) for rows in answers]

    def keys_from(self, wanted: Sequence[tuple[BlocksOf, TargetOffset]]) -> Sequence[Sequence[ToldKey]]:
        """Of each lineage the keys of blocks that begin at or above a target offset, in order."""
        select = self._connection.prepare(self._keys_from_cql)
        answers = self._connection.run_all([(select, (*_columns(place), start)) for place, start in wanted])
        return [list(map(_told_key, rows)) for rows in answers]

    def blocks(self, names: Collection[BlockName]) -> Mapping[BlockName, bytes]:
        """The blocks of these names, those of one section in one statement; those that are gone are left out."""
        select = self._connection.prepare(self._blocks_cql)
        of_section: dict[tuple[RegionName, TopicPartition, int], list[BlockKey]] = defaultdict(list)
        for name in dict.fromkeys(names):
            of_section[name.target, name.topic_partition, name.key.section].append(name.key)
        asked = [
            (place, keys[start : start + _MOST_KEYS_ASKED])
            for place, keys in of_section.items()
            for start in range(0, len(keys), _MOST_KEYS_ASKED)
        ]
        answers = self._connection.run_all(
            [
                (select, (target, *item, section, [tuple(key) for key in keys]))
                for (target, item, section), keys in asked
            ]
        )
        return {
            BlockName(target, item, _key(row)): row[4]
            for ((target, item, _), _), rows in zip(asked, answers, strict=True)
            for row in rows
        }


def _columns(place: BlocksOf) -> tuple[str, str, int, int]:
    return (place.target, *place.topic_partition, place.lineage)


def _key(row: Sequence[int]) -> BlockKey:
    return BlockKey(row[0], TargetOffset(row[1]), SourceOffset(row[2]), row[3])


def _told_key(row: tuple[int, int, int, int, bytes]) -> ToldKey:
    return _key(row[:4]), row[4]
