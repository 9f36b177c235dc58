"""The mapping index as it is written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from parallax.adapters.cassandra.coarse import DAY_MS, HOUR_MS, CoarseChooser, CoarseRow
from parallax.adapters.cassandra.codec import LineageKey, lineage_body, lineage_key, pack
from parallax.adapters.cassandra.connection import CassandraConnection, Request, together
from parallax.config.config import Index
from parallax.domain.ids import Route, TopicPartition
from parallax.domain.index_rows import LineageRecord, RowBatch
from parallax.ports.index import STOPS_KEPT_S

_ROWS_PER_BLOB = 256
_ROWS_PER_STATEMENT = 16
"""Newest rows of one topic lie in one partition of the table, and so many stay below Cassandra's warning of 5 KiB."""
_WATERMARK_VERSION = -(1 << 62)


class IndexWriter:
    """Writes rows: fine ones for a day, coarse ones for as long as records live, the newest for good."""

    def __init__(self, connection: CassandraConnection, keyspace: str, settings: Index) -> None:
        self._connection = connection
        self._settings = settings
        self._coarse = CoarseChooser(settings.coarse_interval_s)
        key = "route, topic, partition, lineage"
        self._insert_fine_cql = (
            f"INSERT INTO {keyspace}.fine_rows ({key}, hour, target_start, source_start, version, packed) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?"
        )
        self._insert_coarse_cql = tuple(
            f"INSERT INTO {keyspace}.coarse_rows_by_{order} ({key}, day, target_start, source_start, packed) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
            for order in ("target", "source")
        )
        self._insert_days_cql = (
            f"INSERT INTO {keyspace}.coarse_days ({key}, day) VALUES (?, ?, ?, ?, ?) USING TTL ?"
        )
        self._insert_newest_cql = (
            f"INSERT INTO {keyspace}.newest_rows ({key}, packed) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
        )
        self._insert_lost_cql = (
            f"INSERT INTO {keyspace}.lost_ranges ({key}, source_start, source_end, target_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?"
        )
        self._insert_lineage_cql = (
            f"INSERT INTO {keyspace}.lineages ({key}, body) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
        )
        self._insert_topic_cql = f"INSERT INTO {keyspace}.route_topics (route, topic) VALUES (?, ?)"
        self._insert_stop_cql = (
            f"INSERT INTO {keyspace}.stopped_partitions (route, topic, partition, reason) VALUES (?, ?, ?, ?) "
            f"USING TTL {STOPS_KEPT_S}"
        )
        self._delete_stop_cql = (
            f"DELETE FROM {keyspace}.stopped_partitions WHERE route = ? AND topic = ? AND partition = ?"
        )
        self._save_indexed_cql = (
            f"INSERT INTO {keyspace}.indexed_up_to (route, layout, shard, run_log_next) VALUES (?, ?, ?, ?) "
            "USING TIMESTAMP ?"
        )
        self._indexed_cql = (
            f"SELECT run_log_next FROM {keyspace}.indexed_up_to WHERE route = ? AND layout = ? AND shard = ?"
        )

    def write_lineages(self, records: Sequence[LineageRecord]) -> None:
        """Record lineages; the greater version of one lineage stays."""
        requests: list[Request] = []
        insert = self._connection.prepare(self._insert_lineage_cql)
        topic = self._connection.prepare(self._insert_topic_cql)
        for record in records:
            key = lineage_key(record.partition, record.lineage)
            requests.append((insert, (*key, lineage_body(record), record.version)))
        topics = sorted(
            {(str(item.partition.route), item.partition.topic_partition.topic) for item in records}
        )
        requests.extend((topic, names) for names in topics)
        self._connection.run_all(requests)

    def write_rows(self, batches: Sequence[RowBatch]) -> None:
        """Record runs, watermarks and lost ranges; returns once all are acknowledged.

        Raises:
            StoreUnavailableError: some are not; the same call may be made again.
        """
        plan = self._coarse.plan(batches)
        self._connection.run_all([*self._fine(batches), *self._lost(batches)])
        # A look-up may find a coarse row: the fine ones before it must be there by then.
        self._connection.run_all([*self._kept_long(plan.rows)])
        # Readers take the newest row for the end of what is indexed: what it tells of must be there first.
        self._connection.run_all(self._newest(batches))
        self._coarse.done(plan)

    def write_stops(
        self, route: Route, stops: Mapping[TopicPartition, str], gone: Collection[TopicPartition]
    ) -> None:
        """Say why partitions can't be copied, for `STOPS_KEPT_S`; those that are gone are stopped no more."""
        insert, delete = map(self._connection.prepare, (self._insert_stop_cql, self._delete_stop_cql))
        requests: list[Request] = [(insert, (str(route), *item, reason)) for item, reason in stops.items()]
        requests += [(delete, (str(route), *item)) for item in gone]
        self._connection.run_all(requests)

    def indexed_up_to(self, route: Route, layout: int, shard: int) -> int:
        """The run-log next offset below which everything of the shard is indexed; 0 if nothing is."""
        rows = self._connection.run(self._indexed_cql, str(route), layout, shard)
        return int(rows[0][0]) if rows else 0

    def save_indexed_up_to(self, route: Route, layout: int, shard: int, run_log_next: int) -> None:
        """Remember it; a smaller value than the one stored is ignored."""
        # Stamped with itself: the greater one stays.
        self._connection.run(self._save_indexed_cql, str(route), layout, shard, run_log_next, run_log_next)

    def _fine(self, batches: Sequence[RowBatch]) -> Iterator[Request]:
        insert = self._connection.prepare(self._insert_fine_cql)
        for batch in batches:
            key = lineage_key(batch.partition, batch.lineage)
            hour = batch.committed_at_ms // HOUR_MS
            for start in range(0, len(batch.rows), _ROWS_PER_BLOB):
                rows = batch.rows[start : start + _ROWS_PER_BLOB]
                first, version = rows[0], batch.version
                if len(rows) == 1 and first.is_watermark:
                    # An idle partition says the same every second: one row, not thousands.
                    version = _WATERMARK_VERSION + first.source_leader_epoch
                place = (hour, first.target_start, first.source_start, version)
                blob = pack(rows, batch.committed_at_ms)
                yield insert, (*key, *place, blob, self._settings.fine_retention_s)

    def _newest(self, batches: Sequence[RowBatch]) -> Iterator[Request]:
        insert = self._connection.prepare(self._insert_newest_cql)
        newest: dict[LineageKey, RowBatch] = {}
        for batch in batches:
            key = lineage_key(batch.partition, batch.lineage)
            if batch.rows and (key not in newest or newest[key].version <= batch.version):
                newest[key] = batch
        by_topic: dict[tuple[str, str], list[tuple[object, ...]]] = {}
        for key, batch in newest.items():
            values = (*key, pack(batch.rows[-1:], batch.committed_at_ms), batch.version)
            by_topic.setdefault(key[:2], []).append(values)
        for rows in by_topic.values():
            for start in range(0, len(rows), _ROWS_PER_STATEMENT):
                yield together(insert, rows[start : start + _ROWS_PER_STATEMENT])

    def _lost(self, batches: Sequence[RowBatch]) -> Iterator[Request]:
        insert = self._connection.prepare(self._insert_lost_cql)
        for batch in batches:
            key = lineage_key(batch.partition, batch.lineage)
            for gap in batch.lost:
                place = (gap.source_start, gap.source_end, gap.target_at)
                yield insert, (*key, *place, self._settings.coarse_retention_s)

    def _kept_long(self, rows: Sequence[CoarseRow]) -> Iterator[Request]:
        inserts = [self._connection.prepare(cql) for cql in self._insert_coarse_cql]
        insert_day = self._connection.prepare(self._insert_days_cql)
        ttl_s = self._settings.coarse_retention_s
        days: set[tuple[LineageKey, int]] = set()
        for item in rows:
            key = lineage_key(item.partition, item.lineage)
            days.add((key, item.day))
            place = (item.day, item.row.target_start, item.row.source_start)
            blob = pack([item.row], item.committed_at_ms)
            for insert in inserts:
                yield insert, (*key, *place, blob, ttl_s, item.version)
        for key, day in sorted(days):
            # A day's last row may be written at its end and must still be found: one day more.
            yield insert_day, (*key, day, ttl_s + DAY_MS // 1_000)
