"""What the mapping index tells of whole lineages: which there are, their newest rows, what was lost, what is stopped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from parallax.adapters.cassandra.codec import (
    KEY,
    LineageKey,
    lineage_body,
    lineage_key,
    lineage_record,
    newest_body,
    newest_row,
)
from parallax.adapters.cassandra.connection import CassandraConnection, Request, Row, together
from parallax.config.config import Index
from parallax.domain.formats import unreadable
from parallax.domain.ids import (
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import LineageRecord, RouteTopic, RowBatch, StampedRow
from parallax.domain.runs import LostRange
from parallax.errors import UnreadableRowError
from parallax.ports.index import STOPS_KEPT_S
from parallax.runtime.newest import Newest

_ROWS_PER_STATEMENT = 16
"""Newest rows of one topic lie in one partition of the table, and so many stay below Cassandra's warning of 5 KiB."""

_MOST_TOLD = 3_000
"""Topics by route whose rows are remembered as they were read last."""


class CassandraRecords:
    """`parallax.ports.index.MappingRecordsWriter` and `MappingRecordsReader`."""

    def __init__(self, connection: CassandraConnection, keyspace: str, settings: Index) -> None:
        self._connection = connection
        self._settings = settings
        self._told_topics: Newest[
            tuple[Route, TopicName], tuple[Sequence[Row], Sequence[Row], RouteTopic]
        ] = Newest(_MOST_TOLD)
        key = "route, topic, partition, lineage"
        self._insert_newest_cql = (
            f"INSERT INTO {keyspace}.newest_told ({key}, body) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
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
        self._topics_cql = f"SELECT topic FROM {keyspace}.route_topics WHERE route = ?"
        self._stops_cql = (
            f"SELECT topic, partition, reason FROM {keyspace}.stopped_partitions WHERE route = ?"
        )
        self._lineages_cql = (
            f"SELECT partition, lineage, body FROM {keyspace}.lineages WHERE route = ? AND topic = ?"
        )
        self._newest_cql = (
            f"SELECT partition, lineage, body FROM {keyspace}.newest_told WHERE route = ? AND topic = ?"
        )
        self._lost_cql = f"SELECT source_start, source_end, target_at FROM {keyspace}.lost_ranges WHERE {KEY}"

    # --- writing -------------------------------------------------------------------------------------------

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

    def write_lost(self, batches: Sequence[RowBatch]) -> None:
        """Record lost ranges; returns once all are acknowledged."""
        insert = self._connection.prepare(self._insert_lost_cql)
        ttl_s = self._settings.coarse_retention_s
        self._connection.run_all(
            [
                (
                    insert,
                    (
                        *lineage_key(batch.partition, batch.lineage),
                        gap.source_start,
                        gap.source_end,
                        gap.target_at,
                        ttl_s,
                    ),
                )
                for batch in batches
                for gap in batch.lost
            ]
        )

    def write_newest(self, batches: Sequence[RowBatch]) -> None:
        """Record the last row of each batch as the newest of its lineage; the greater version stays."""
        insert = self._connection.prepare(self._insert_newest_cql)
        newest: dict[LineageKey, RowBatch] = {}
        for batch in batches:
            key = lineage_key(batch.partition, batch.lineage)
            if batch.rows and (key not in newest or newest[key].version <= batch.version):
                newest[key] = batch
        by_topic: dict[tuple[str, str], list[tuple[object, ...]]] = {}
        for key, batch in newest.items():
            values = (*key, newest_body(batch.rows[-1], batch.committed_at_ms), batch.version)
            by_topic.setdefault(key[:2], []).append(values)
        self._connection.run_all(
            [
                together(insert, rows[start : start + _ROWS_PER_STATEMENT])
                for rows in by_topic.values()
                for start in range(0, len(rows), _ROWS_PER_STATEMENT)
            ]
        )

    def write_stops(
        self, route: Route, stops: Mapping[TopicPartition, str], gone: Collection[TopicPartition]
    ) -> None:
        """Say why partitions can't be copied, for `STOPS_KEPT_S`; those that are gone are stopped no more."""
        insert, delete = map(self._connection.prepare, (self._insert_stop_cql, self._delete_stop_cql))
        requests: list[Request] = [(insert, (str(route), *item, reason)) for item, reason in stops.items()]
        requests += [(delete, (str(route), *item)) for item in gone]
        self._connection.run_all(requests)

    # --- reading -------------------------------------------------------------------------------------------

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""
        return sorted(TopicName(row[0]) for row in self._connection.run(self._topics_cql, str(route)))

    def stops(self, route: Route) -> Mapping[TopicPartition, str]:
        """The partitions of the route that can't be copied, each with the reason that was said last."""
        rows = self._connection.run(self._stops_cql, str(route))
        return {TopicPartition(TopicName(topic), partition): reason for topic, partition, reason in rows}

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic, by partition and sequence."""
        return _records(route, topic, self._connection.run(self._lineages_cql, str(route), topic))

    def told_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """The lineages, and the newest row of each as it was recorded, all read side by side."""
        lineages, newest = map(self._connection.prepare, (self._lineages_cql, self._newest_cql))
        # In this order: a row that is found belongs to a lineage that is known.
        records = self._connection.run_all([(lineages, (str(route), topic)) for route in routes])
        rows = self._connection.run_all([(newest, (str(route), topic)) for route in routes])
        return {
            route: self._told_topic(route, topic, ours, theirs)
            for route, ours, theirs in zip(routes, records, rows, strict=True)
        }

    def _told_topic(
        self, route: Route, topic: TopicName, records: Sequence[Row], newest: Sequence[Row]
    ) -> RouteTopic:
        """What rows say of a topic; the very same as long as the same rows come: they are read all the time, and change seldom."""
        known = self._told_topics.get((route, topic))
        if known is not None and known[0] == records and known[1] == newest:
            return known[2]
        found = RouteTopic(_records(route, topic, records), *_newest(route, topic, newest))
        self._told_topics.put((route, topic), (records, newest, found))
        return found

    def lost_ranges(
        self, wanted: Collection[tuple[RoutePartition, Lineage]]
    ) -> Mapping[tuple[RoutePartition, Lineage], Sequence[LostRange]]:
        """Every lost range of each of these lineages, in source order, all read side by side."""
        select, keys = self._connection.prepare(self._lost_cql), list(wanted)
        answers = self._connection.run_all([(select, lineage_key(*key)) for key in keys])
        return {key: _lost_ranges(rows) for key, rows in zip(keys, answers, strict=True)}


def _lost_ranges(rows: Sequence[Row]) -> list[LostRange]:
    """Lost ranges, in the order in which they were read."""
    return [LostRange(SourceOffset(row[0]), SourceOffset(row[1]), TargetOffset(row[2])) for row in rows]


def _records(route: Route, topic: TopicName, rows: Sequence[Row]) -> list[LineageRecord]:
    found = [
        lineage_record(RoutePartition(route, TopicPartition(topic, row[0])), row[1], row[2]) for row in rows
    ]
    return sorted(found, key=lambda item: (item.partition.topic_partition.partition, item.sequence))


def _newest(
    route: Route, topic: TopicName, rows: Sequence[Row]
) -> tuple[dict[tuple[int, Lineage], StampedRow], dict[tuple[int, Lineage], str]]:
    """The newest rows, and of those that can't be read why."""
    found: dict[tuple[int, Lineage], StampedRow] = {}
    problems: dict[tuple[int, Lineage], str] = {}
    for partition, lineage, body in rows:
        key = (partition, Lineage.parse(lineage))
        try:
            found[key] = newest_row(body)
        except UnreadableRowError as error:
            where = f"newest_told of {route}, {topic}-{partition}, {lineage},"
            problems[key] = str(unreadable(where, error))
    return found, problems
