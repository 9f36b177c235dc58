"""The dashboards: which panels each has, and what these ask for."""

from __future__ import annotations

from typing import Any

from lab.dashboards.board import Dashboard, Panel, Query

_ROUTE = 'source=~"$source", target=~"$target"'
_OF_ROUTE = "{{source}}->{{target}}"


def _stat(title: str, expr: str, limit: float | None = None, **more: Any) -> Panel:
    return Panel(title, [Query(expr)], kind="stat", width=4, limit=limit, **more)


OVERVIEW = Dashboard(
    "overview",
    "Parallax: overview",
    [
        _stat(
            "Leases missing",
            "sum(parallax_replicator_leases_missing)",
            1,
            meaning="What these shards hold is not copied.",
        ),
        _stat(
            "Partitions stopped",
            'sum(max by (source, target) (parallax_replicator_route_partitions{status="stopped"}))',
            1,
            meaning="They go on only once somebody has looked.",
        ),
        _stat(
            "Leases waiting",
            "sum(parallax_replicator_waiting)",
            1,
            meaning="A cluster does not answer, or a run log has to be mended.",
        ),
        _stat(
            "Store",
            "min(parallax_offsetsvc_store_up)",
            1,
            low_is_bad=True,
            meaning="0: an offset service gets no answer of it.",
        ),
        _stat("Moves under way", "max(parallax_offsetsvc_moving_groups)"),
        _stat(
            "Groups dual active",
            "sum(max by (group) (parallax_offsetsvc_dual_active)) or vector(0)",
            1,
            meaning="Regions have decided differently; nothing is synced for them.",
        ),
        Panel("Records copied", [Query("parallax:route_records:rate1m", _OF_ROUTE)], "cps"),
        Panel(
            "Lag",
            [Query("parallax:route_lag_records:max", _OF_ROUTE)],
            meaning="Source offsets that are not copied yet.",
        ),
        Panel(
            "Latency, p99",
            [Query("parallax:replication_latency_seconds:p99_5m", _OF_ROUTE)],
            "s",
            meaning="From a record's timestamp to the commit of its copy: what a region's loss would leave behind.",
        ),
        Panel(
            "Freshness of the mapping",
            [Query("parallax:route_freshness_seconds:max", _OF_ROUTE)],
            "s",
            meaning="Beyond service.stale_after_ms answers say STALE.",
        ),
        Panel(
            "Last good cycle of the sync job",
            [Query("min(parallax_sync_last_good_cycle_age_seconds)", "age")],
            "s",
        ),
        Panel(
            "Groups that can't be published",
            [Query("max by (reason) (parallax_sync_unpublished_groups) > 0", "{{reason}}")],
        ),
    ],
)

REPLICATION = Dashboard(
    "replication",
    "Parallax: replication",
    [
        Panel(
            "Records copied",
            [
                Query(
                    f"sum by (source, target) (rate(parallax_replicator_route_records_total{{{_ROUTE}}}[1m]))",
                    _OF_ROUTE,
                )
            ],
            "cps",
        ),
        Panel(
            "Bytes copied",
            [
                Query(
                    f"sum by (source, target) (rate(parallax_replicator_route_bytes_total{{{_ROUTE}}}[1m]))",
                    _OF_ROUTE,
                )
            ],
            "Bps",
        ),
        Panel(
            "Lag",
            [
                Query(
                    f"max by (source, target) (parallax_replicator_route_lag_records{{{_ROUTE}}})", _OF_ROUTE
                )
            ],
        ),
        Panel(
            "Latency",
            [
                Query(f"parallax:replication_latency_seconds:p50_5m{{{_ROUTE}}}", f"{_OF_ROUTE} p50"),
                Query(f"parallax:replication_latency_seconds:p99_5m{{{_ROUTE}}}", f"{_OF_ROUTE} p99"),
            ],
            "s",
            meaning="From a record's timestamp to the commit of its copy.",
        ),
        Panel(
            "Age of records when they are sent, p99",
            [Query(f"parallax:record_age_seconds:p99_5m{{{_ROUTE}}}", _OF_ROUTE)],
            "s",
            meaning="What came before Parallax, and what waited for it; the rest of the latency is the target's.",
        ),
        Panel(
            "Canary",
            [
                Query(
                    "histogram_quantile(0.99, sum by (source, target, le) "
                    f"(rate(parallax_replicator_canary_latency_seconds_bucket{{{_ROUTE}}}[5m])))",
                    f"{_OF_ROUTE} p99",
                ),
                Query(
                    f"max by (source, target) (parallax_replicator_canary_age_seconds{{{_ROUTE}}})",
                    f"{_OF_ROUTE} since the last one",
                ),
            ],
            "s",
            meaning="Of a record that is written every few seconds for that (canary.enabled), whether anything else is produced or not.",
        ),
        Panel(
            "Until retention takes what is not copied",
            [
                Query(
                    f"min by (source, target) (parallax_replicator_source_retention_left_seconds{{{_ROUTE}}})",
                    f"{_OF_ROUTE} at the source",
                )
            ],
            "s",
            meaning="Where it falls, the source is away, a partition is stopped, or too little is copied.",
        ),
        Panel(
            "Partitions",
            [
                Query(
                    f"max by (source, target, status) (parallax_replicator_route_partitions{{{_ROUTE}}})",
                    f"{_OF_ROUTE} {{{{status}}}}",
                )
            ],
        ),
        Panel(
            "Not in step with its sources",
            [
                Query(
                    "sum by (cluster, kind, state) (parallax_upkeep_not_in_step) > 0",
                    "{{cluster}} {{kind}} {{state}}",
                )
            ],
            meaning="What targets have otherwise than their sources, and why it stays so: parallax topics diff.",
        ),
        Panel(
            "Changes of upkeep",
            [
                Query(
                    "sum by (cluster, kind) (rate(parallax_upkeep_changes_total[5m]))", "{{cluster}} {{kind}}"
                )
            ],
            "cps",
        ),
        Panel(
            "Since the last round of upkeep",
            [
                Query(
                    "max by (cluster, kind) (parallax_upkeep_last_good_round_age_seconds)",
                    "{{cluster}} {{kind}}",
                )
            ],
            "s",
        ),
        Panel(
            "The partitions that lag most",
            [
                Query(
                    f"topk(20, max by (source, target, topic, partition) (parallax_replicator_lag_records{{{_ROUTE}}}))",
                    f"{_OF_ROUTE} {{{{topic}}}}-{{{{partition}}}}",
                )
            ],
            meaning="Of those that are shown (metrics.partitions).",
        ),
        Panel(
            "The partitions of the oldest copies",
            [
                Query(
                    "topk(20, max by (source, target, topic, partition) "
                    f"(parallax_replicator_partition_latency_seconds{{{_ROUTE}}}))",
                    f"{_OF_ROUTE} {{{{topic}}}}-{{{{partition}}}}",
                )
            ],
            "s",
        ),
        Panel(
            "Why partitions are stopped",
            [
                Query(
                    "max by (source, target, topic, partition, reason) "
                    f"(parallax_replicator_stop_reason{{{_ROUTE}}})"
                )
            ],
            kind="table",
            width=24,
        ),
        Panel(
            "Index lag",
            [
                Query(
                    f"max by (source, target) (parallax_replicator_index_lag_seconds{{{_ROUTE}}})", _OF_ROUTE
                )
            ],
            "s",
            meaning="Age of the oldest committed entry that is not in the index yet.",
        ),
        Panel(
            "Transactions",
            [
                Query(
                    f"sum by (source, target) (rate(parallax_replicator_transactions_total{{{_ROUTE}}}[1m]))",
                    f"{_OF_ROUTE} committed",
                ),
                Query(
                    "sum by (source, target) "
                    f"(rate(parallax_replicator_transaction_aborts_total{{{_ROUTE}}}[1m]))",
                    f"{_OF_ROUTE} given up",
                ),
            ],
            "cps",
        ),
        Panel(
            "What copiers wait for",
            [
                Query(
                    "sum by (source, target, side) "
                    f"(rate(parallax_replicator_waited_seconds_total{{{_ROUTE}}}[5m]))",
                    f"{_OF_ROUTE} {{{{side}}}}",
                )
            ],
            meaning="Of each second, by all shards. Where lag grows, the side near 1 a shard is what limits the route.",
        ),
        Panel(
            "Leases that wait",
            [Query(f"sum by (source, target) (parallax_replicator_waiting{{{_ROUTE}}})", _OF_ROUTE)],
        ),
        Panel(
            "Lost before they were indexed",
            [
                Query(
                    f"max by (source, target) (parallax_replicator_index_gap_offsets{{{_ROUTE}}})", _OF_ROUTE
                )
            ],
        ),
        Panel(
            "Surveys that failed",
            [
                Query(
                    "sum by (source, target) "
                    f"(rate(parallax_replicator_survey_failures_total{{{_ROUTE}}}[5m]))",
                    _OF_ROUTE,
                )
            ],
            "cps",
            meaning="Looks at the topics of both clusters that ended with a defect; the replicator's log has it.",
        ),
        Panel(
            "Epochs",
            [Query(f"max by (source, target) (parallax_replicator_epoch{{{_ROUTE}}})", _OF_ROUTE)],
        ),
    ],
    by_route=True,
)

GROUPS = Dashboard(
    "groups",
    "Parallax: groups, moves and the sync job",
    [
        Panel(
            "Groups by their primary",
            [Query("max by (region, mode) (parallax_offsetsvc_primary_groups)", "{{region}} {{mode}}")],
        ),
        Panel(
            "Groups by what their lag says",
            [Query("max by (cluster, state) (parallax_offsetsvc_lag_groups)", "{{cluster}} {{state}}")],
            meaning="Of groups that metrics.lag_groups chooses, where they consume.",
        ),
        Panel(
            "Groups that do not consume well",
            [
                Query(
                    "max by (group, cluster, state) (parallax_offsetsvc_group_lag_state)",
                    "{{group}} {{state}}",
                )
            ],
        ),
        Panel("Moves under way", [Query("max(parallax_offsetsvc_moving_groups)", "groups")]),
        Panel(
            "Age of the oldest move",
            [Query("time() - min(parallax_offsetsvc_oldest_move_start_timestamp_seconds)", "age")],
            "s",
            meaning="Nothing: no move is under way.",
        ),
        Panel(
            "Since the newest drill",
            [
                Query(
                    "time() - max by (ending) (parallax_offsetsvc_newest_drill_start_timestamp_seconds)",
                    "{{ending}}",
                )
            ],
            "s",
        ),
        Panel(
            "Dual active",
            [Query("max by (group) (parallax_offsetsvc_dual_active)", "{{group}}")],
        ),
        Panel(
            "Decisions of the sync job",
            [Query("sum by (reason) (rate(parallax_sync_decisions_total[5m])) > 0", "{{reason}}")],
            "cps",
        ),
        Panel(
            "Groups that can't be published",
            [Query("max by (reason) (parallax_sync_unpublished_groups)", "{{reason}}")],
        ),
        Panel(
            "Cycles",
            [
                Query("sum(rate(parallax_sync_cycles_total[5m]))", "good"),
                Query("sum(rate(parallax_sync_failed_cycles_total[5m]))", "failed"),
                Query("sum(rate(parallax_sync_failed_groups_total[5m]))", "groups failed"),
            ],
            "cps",
        ),
        Panel(
            "From a commit to its offset elsewhere, p99",
            [
                Query(
                    "histogram_quantile(0.99, sum by (le) (rate(parallax_sync_checkpoint_latency_seconds_bucket[5m])))",
                    "p99",
                )
            ],
            "s",
            meaning="With what a cluster that is away has held up, once it is published.",
        ),
        Panel(
            "Checkpoints for MirrorMaker 2's clients",
            [Query("sum(rate(parallax_sync_checkpoints_total[5m]))", "written")],
            "cps",
            meaning="Nothing where mm2_export.checkpoints is off.",
        ),
        Panel(
            "Last good cycle",
            [Query("min(parallax_sync_last_good_cycle_age_seconds)", "age")],
            "s",
        ),
        Panel(
            "What this release can't read",
            [
                Query("max(parallax_sync_unreadable_rows)", "rows of groups"),
                Query("max(parallax_offsetsvc_unreadable_primaries)", "decisions"),
            ],
        ),
        Panel(
            "Answers by outcome",
            [Query("sum by (outcome) (rate(parallax_offsetsvc_outcomes_total[5m]))", "{{outcome}}")],
            "cps",
            meaning="Failover offsets, one for each partition.",
        ),
    ],
)

SERVICE = Dashboard(
    "service",
    "Parallax: offset service and processes",
    [
        Panel("Requests", [Query("parallax:requests:rate5m", "{{transport}} {{method}}")], "reqps"),
        Panel(
            "Requests that failed",
            [
                Query(
                    'sum by (code) (rate(parallax_offsetsvc_requests_total{code!="OK"}[5m])) > 0', "{{code}}"
                )
            ],
            "reqps",
        ),
        Panel(
            "Share that fails",
            [Query("parallax:request_errors:ratio5m", "share")],
            "percentunit",
            meaning="By the service's own mistakes, or by what it needs.",
        ),
        Panel("Answer time, p99", [Query("parallax:request_duration_seconds:p99_5m", "{{method}}")], "s"),
        Panel(
            "Topics with the oldest rows",
            [
                Query(
                    "topk(20, max by (source, target, topic) (parallax_offsetsvc_freshness_seconds))",
                    f"{_OF_ROUTE} {{{{topic}}}}",
                )
            ],
            "s",
        ),
        Panel(
            "Store",
            [
                Query("min by (instance) (parallax_offsetsvc_store_up)", "{{instance}}"),
                Query(
                    "sum by (code) (rate(parallax_offsetsvc_refresh_failures_total[5m]))",
                    "failed readings a second: {{code}}",
                ),
            ],
        ),
        Panel(
            "Keys of the issuer of tokens",
            [Query("max by (instance) (parallax_offsetsvc_issuer_keys_age_seconds)", "{{instance}}")],
            "s",
            meaning="Only where tokens are asked for, with keys from an address.",
        ),
        Panel(
            "Processes that answer",
            [
                Query("min by (instance) (parallax_offsetsvc_processes)", "{{instance}}"),
                Query(
                    "sum by (instance) (rate(parallax_offsetsvc_processes_started_again_total[5m]))",
                    "started again, a second: {{instance}}",
                ),
            ],
            meaning="As many as service.processes says. Why one has ended, the service's log says.",
        ),
        Panel(
            "Reports not audited one by one",
            [Query("sum by (method) (rate(parallax_offsetsvc_unaudited_reports_total[5m]))", "{{method}}")],
            "cps",
        ),
        Panel(
            "Console: answers",
            [Query("sum by (status) (rate(parallax_console_requests_total[5m]))", "{{status}}")],
            "reqps",
            meaning="By status of HTTP; 204: nothing had changed since the page asked last.",
        ),
        Panel(
            "Console: answer time, p99",
            [
                Query(
                    "histogram_quantile(0.99, sum by (le, page) (rate(parallax_console_request_duration_seconds_bucket[5m])))",
                    "{{page}}",
                )
            ],
            "s",
        ),
        Panel(
            "Memory",
            [
                Query(
                    "process_resident_memory_bytes * on (instance) group_left (component) parallax_build_info",
                    "{{component}} {{instance}}",
                )
            ],
            "bytes",
        ),
        Panel(
            "Processor",
            [
                Query(
                    "rate(process_cpu_seconds_total[5m]) * on (instance) group_left (component) parallax_build_info",
                    "{{component}} {{instance}}",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Open files",
            [
                Query(
                    "process_open_fds * on (instance) group_left (component) parallax_build_info",
                    "{{component}} {{instance}}",
                )
            ],
        ),
        Panel(
            "What runs",
            [Query("count by (component, version) (parallax_build_info)")],
            kind="table",
        ),
    ],
)

DASHBOARDS = (OVERVIEW, REPLICATION, GROUPS, SERVICE)
