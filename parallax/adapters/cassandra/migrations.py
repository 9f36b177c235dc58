"""The schema, one numbered step after the other. A step that has been released is never changed.

Every statement may be run twice, so an apply that died half-way is simply run again.

What grows with the run log is overwritten ``USING TIMESTAMP version``, so that of two writes the later one stays whoever
comes last, and compacted by the unified strategy.
"""

from __future__ import annotations

from dataclasses import dataclass

_LINEAGE_KEY = "route text, topic text, partition int, lineage text"
_BLOCK_PARTITION = "target text, topic text, partition int"
_BLOCK_KEY = "lineage bigint, target_start bigint, source_start bigint, term bigint"
_SMALL_GC_GRACE = "gc_grace_seconds = 10800"  # the time for which a node keeps hints for another
_UNIFIED = "compaction = {'class': 'UnifiedCompactionStrategy'}"
_TIME_WINDOWS = (
    "compaction = {'class': 'TimeWindowCompactionStrategy',"
    " 'compaction_window_unit': 'HOURS', 'compaction_window_size': '1'}"
)
_WEEKS = (
    "compaction = {'class': 'TimeWindowCompactionStrategy',"
    " 'compaction_window_unit': 'DAYS', 'compaction_window_size': '7'}"
)
KEYSPACE = "{keyspace}"
"""Stands for the keyspace's name in statements."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: what brings a keyspace of ``version - 1`` to ``version``.

    Attributes:
        needs: the version that a program must know to use a keyspace with this step. Tables and columns that are added
            do no harm to older programs; a step that does names its own version.
    """

    version: int
    description: str
    statements: tuple[str, ...]
    needs: int = 1

    def written_for(self, keyspace: str) -> tuple[str, ...]:
        """The statements with the keyspace's name."""
        return tuple(statement.replace(KEYSPACE, keyspace) for statement in self.statements)


def _table(name: str, columns: str, key: str, options: str) -> str:
    return f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.{name} ({columns}, PRIMARY KEY ({key})) WITH {options}"


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "mapping index and groups",
        (
            _table(
                "fine_rows",
                f"{_LINEAGE_KEY}, hour int, target_start bigint, source_start bigint, version bigint, packed blob",
                "(route, topic, partition, lineage, hour), target_start, source_start, version",
                f"{_TIME_WINDOWS} AND {_SMALL_GC_GRACE}",
            ),
            _table(
                "coarse_rows_by_target",
                f"{_LINEAGE_KEY}, day int, target_start bigint, source_start bigint, packed blob",
                "(route, topic, partition, lineage, day), target_start, source_start",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
            _table(
                "coarse_rows_by_source",
                f"{_LINEAGE_KEY}, day int, source_start bigint, target_start bigint, packed blob",
                "(route, topic, partition, lineage, day), source_start, target_start",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
            _table(
                "coarse_days",
                f"{_LINEAGE_KEY}, day int",
                "(route, topic, partition, lineage), day",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
            _table(
                "newest_rows", f"{_LINEAGE_KEY}, packed blob", "(route, topic), partition, lineage", _UNIFIED
            ),
            _table(
                "lost_ranges",
                f"{_LINEAGE_KEY}, source_start bigint, source_end bigint, target_at bigint",
                "(route, topic, partition, lineage), source_start, source_end, target_at",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
            _table("lineages", f"{_LINEAGE_KEY}, body text", "(route, topic), partition, lineage", _UNIFIED),
            _table("route_topics", "route text, topic text", "route, topic", _UNIFIED),
            _table(
                "indexed_up_to",
                "route text, layout int, shard int, run_log_next bigint",
                "route, layout, shard",
                _UNIFIED,
            ),
            _table("known_groups", "bucket int, group_id text", "bucket, group_id", _UNIFIED),
            _table(
                "group_progress",
                "group_id text, topic text, partition int, moved_at_ms bigint, body text",
                "group_id, topic, partition",
                _UNIFIED,
            ),
            _table(
                "group_observed",
                "group_id text, cluster text, topic text, partition int, body text",
                "group_id, cluster, topic, partition",
                _UNIFIED,
            ),
            _table(
                "group_published",
                "group_id text, cluster text, topic text, partition int, body text",
                "group_id, cluster, topic, partition",
                _UNIFIED,
            ),
        ),
    ),
    Migration(
        2,
        "primaries",
        (
            _table(
                "primary_decisions",
                "group_id text, latest bigint static, fencing_number bigint, decided_in text, body text",
                "group_id, fencing_number, decided_in",
                f"CLUSTERING ORDER BY (fencing_number DESC, decided_in ASC) AND {_UNIFIED}",
            ),
            _table("assigned_groups", "bucket int, group_id text", "bucket, group_id", _UNIFIED),
        ),
    ),
    Migration(
        3,
        "operations",
        (
            _table(
                "operations",
                "group_id text, started_at_ms bigint, operation_id text, version bigint, body text",
                "group_id, started_at_ms, operation_id",
                f"CLUSTERING ORDER BY (started_at_ms DESC, operation_id ASC) AND {_UNIFIED}",
            ),
        ),
    ),
    Migration(
        4,
        "stopped partitions",
        (
            _table(
                "stopped_partitions",
                "route text, topic text, partition int, reason text",
                "route, topic, partition",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
        ),
    ),
    Migration(
        5,
        "groups without a commit",
        (_table("empty_groups", "bucket int, group_id text, since_ms bigint", "bucket, group_id", _UNIFIED),),
    ),
    Migration(
        6,
        "audit",
        (
            _table(
                "audit",
                "day int, bucket int, entry_id timeuuid, group_id text, body text",
                "(day, bucket), entry_id",
                f"CLUSTERING ORDER BY (entry_id DESC) AND {_WEEKS} AND {_SMALL_GC_GRACE}",
            ),
        ),
    ),
    Migration(
        7,
        "what processes tell of themselves, and operations by week",
        (
            _table(
                "replicator_status",
                "route text, shard int, body text, partitions blob",
                "route, shard",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
            *(
                _table(
                    name,
                    "bucket int, group_id text, body text",
                    "bucket, group_id",
                    f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
                )
                for name in ("group_status", "sync_problems")
            ),
            _table("sync_status", "part text, body text", "part", f"{_UNIFIED} AND {_SMALL_GC_GRACE}"),
            _table(
                "operations_by_week",
                "week int, started_at_ms bigint, operation_id text, group_id text, version bigint, body text",
                "week, started_at_ms, operation_id",
                f"CLUSTERING ORDER BY (started_at_ms DESC, operation_id ASC) AND {_UNIFIED}",
            ),
            _table(
                "operation_weeks",
                "part text, week int",
                "part, week",
                f"CLUSTERING ORDER BY (week DESC) AND {_UNIFIED}",
            ),
        ),
    ),
    Migration(
        8,
        "mapping index in blocks",
        (
            _table(
                "turns",
                "route text, layout int, shard int, run_log_next bigint, body blob",
                "(route, layout, shard), run_log_next",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
            _table(
                "blocks",
                f"{_BLOCK_PARTITION}, section bigint, {_BLOCK_KEY}, body blob",
                "(target, topic, partition, section), lineage, target_start, source_start, term",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
            _table(
                "block_keys",
                f"{_BLOCK_PARTITION}, {_BLOCK_KEY}, first_row blob",
                "(target, topic, partition), lineage, target_start, source_start, term",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
            _table(
                "blocks_to",
                "route text, layout int, shard int, term bigint, run_log_next bigint",
                "route, layout, shard, term",
                f"{_UNIFIED} AND {_SMALL_GC_GRACE}",
            ),
            _table(
                "newest_told", f"{_LINEAGE_KEY}, body blob", "(route, topic), partition, lineage", _UNIFIED
            ),
            *(
                f"DROP TABLE IF EXISTS {KEYSPACE}.{name}"
                for name in (
                    "fine_rows",
                    "coarse_rows_by_target",
                    "coarse_rows_by_source",
                    "coarse_days",
                    "newest_rows",
                    "indexed_up_to",
                )
            ),
        ),
        needs=8,
    ),
    Migration(
        9,
        "groups whose commits stand",
        (
            _table(
                "standing_groups",
                "cluster text, group_id text, stands_at_ms bigint, reported_at_ms bigint",
                "cluster, group_id",
                # Of a group that was forgotten, too, whose name nobody knows any more.
                f"{_UNIFIED} AND default_time_to_live = {30 * 86_400}",
            ),
        ),
    ),
)

LATEST_VERSION = MIGRATIONS[-1].version
AUDIT_VERSION = next(step.version for step in MIGRATIONS if step.description == "audit")
"""A keyspace of this version on keeps who changed what."""
