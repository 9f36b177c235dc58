"""The judgement: everything is counted from the records and from what the consumers wrote down."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from devstack.demo.options import FAILOVER_BOUND_MS
from devstack.oracle.alternatives import Moment, weigh_alternatives
from devstack.oracle.copies import compare_copies
from devstack.oracle.groups import GroupVerdict, judge_group
from devstack.oracle.inversions import count_inversions
from devstack.oracle.logs import TopicLog, read_topic
from devstack.workload.delivered import Delivery, read_group
from devstack.workload.running import Stack

_MOVES = ("failover", "failback")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the scenario knows and the records don't tell.

    Attributes:
        acked_records: what the producers were told is written.
        folders: of each group's deliveries.
        moved_at_ms: when each group's moves were ordered; the failover's is the moment of the kill.
        ends_at_failover: ends of aggregate-b when the groups were told to go there, by partition.
        lag_at_kill: of each group, in offsets.
        skipped_records: by the FailoverConsumer.
        pending_records: consumed in a and not yet in b when it moved.
    """

    acked_records: int
    folders: Mapping[str, Path]
    moved_at_ms: Mapping[str, Sequence[int]]
    ends_at_failover: Mapping[int, int]
    lag_at_kill: Mapping[str, int]
    skipped_records: int
    pending_records: int


@dataclass(frozen=True, slots=True)
class Logs:
    """The topic in all clusters, by region."""

    sources: Mapping[str, TopicLog]
    targets: Mapping[str, TopicLog]


def read_logs(stack: Stack, topic: str) -> Logs:
    """Read the topic in every cluster to its end.

    Raises:
        OracleReadError: one could not be read.
    """

    def read(kind: str, region: str) -> TopicLog:
        name = f"{kind}-{region}"
        return read_topic(name, stack.bootstrap(name), topic)

    regions = stack.layout.spec.regions
    return Logs(
        {region: read("regional", region) for region in regions},
        {region: read("aggregate", region) for region in regions},
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Millions of small tuples, none of them in a cycle: looking for cycles among them takes longer than counting."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_without_collector()
def missing_records(folders: Mapping[str, Path], logs: Logs) -> int:
    """Records that some group has not delivered, or some aggregate cluster does not hold, so far."""
    produced = {record for source in logs.sources.values() for record in source.records()}
    missing = sum(len(produced - target.records()) for target in logs.targets.values())
    for folder in folders.values():
        missing += len(produced.difference(delivery.record for delivery in read_group(folder)))
    return missing


@_without_collector()
def judge(facts: Facts, logs: Logs) -> dict[str, Any]:
    """The report. Its ``failures`` are empty if everything went as promised."""
    produced = {record for source in logs.sources.values() for record in source.records()}
    by_cluster = {target.cluster: target for target in logs.targets.values()}
    deliveries = {group: read_group(folder) for group, folder in facts.folders.items()}
    verdicts = {
        group: judge_group(found, produced, by_cluster, facts.moved_at_ms[group])
        for group, found in deliveries.items()
    }
    moment = _moment(facts, logs, deliveries["failover"])
    copies = {name: compare_copies(logs.sources.values(), target) for name, target in by_cluster.items()}
    first, second = logs.targets.values()
    report: dict[str, Any] = {
        "produced_records": len(produced),
        "acked_records": facts.acked_records,
        "groups": {
            group: _group_report(verdict, facts.lag_at_kill[group]) for group, verdict in verdicts.items()
        },
        "alternatives": {name: asdict(found) for name, found in weigh_alternatives(moment).items()},
        "inversions": count_inversions(first, second),
        "skipped_records": facts.skipped_records,
        "pending_records": facts.pending_records,
        "copies": {name: asdict(found) for name, found in copies.items()},
    }
    report["failures"] = _failures(
        report, verdicts, {name: found.faultless for name, found in copies.items()}
    )
    return report


def _group_report(verdict: GroupVerdict, lag: int) -> dict[str, Any]:
    return {
        "delivered_records": verdict.delivered_records,
        "lost_records": verdict.lost_records,
        "repeated_records": verdict.repeated_records,
        "foreign_records": verdict.foreign_records,
        "lag_offsets_at_kill": lag,
        **{name: asdict(verdict.moves[stage]) for stage, name in enumerate(_MOVES, start=1)},
    }


def _moment(facts: Facts, logs: Logs, deliveries: Sequence[Delivery]) -> Moment:
    before = [delivery for delivery in deliveries if delivery.stage == 0]
    next_offsets: dict[int, int] = {}
    for delivery in before:
        reached = next_offsets.get(delivery.partition, 0)
        next_offsets[delivery.partition] = max(reached, delivery.record_offset + 1)
    return Moment(
        origin=logs.targets["a"],
        destination=logs.targets["b"],
        sources=logs.sources,
        consumed={delivery.record for delivery in before},
        next_offsets=next_offsets,
        ends=facts.ends_at_failover,
        at_ms=facts.moved_at_ms["failover"][0],
    )


def _failures(
    report: Mapping[str, Any], verdicts: Mapping[str, GroupVerdict], faultless: Mapping[str, bool]
) -> list[str]:
    found = [f"{name} is not a faithful copy of its sources" for name, good in faultless.items() if not good]
    acked, produced = report["acked_records"], report["produced_records"]
    if acked != produced:
        found.append(f"producers were told that {acked:,} records are written, and {produced:,} are")
    if not report["pending_records"]:
        found.append("the far route was not behind when the cluster was killed: nothing was pending")
    for group, verdict in verdicts.items():
        found.extend(f"group {group} {what}" for what in _failures_of(verdict, once=group == "failover"))
    return found


def _failures_of(verdict: GroupVerdict, *, once: bool) -> Iterator[str]:
    """What went wrong with a group; ``once``: it must not read anything again."""
    if verdict.lost_records:
        yield f"lost {verdict.lost_records:,} records"
    if verdict.foreign_records:
        yield f"was given {verdict.foreign_records:,} records that nobody produced"
    if once and verdict.repeated_records:
        yield f"read {verdict.repeated_records:,} records twice in one cluster"
    for move, moved in zip(_MOVES, verdict.moves[1:], strict=True):
        if once and moved.redelivered_records:
            yield f"read {moved.redelivered_records:,} records again in the {move}"
        if moved.failover_ms is None:
            yield f"got no new record after the {move}"
        elif move == "failover" and moved.failover_ms > FAILOVER_BOUND_MS:
            yield f"needed {moved.failover_ms:,} ms for the failover, where {FAILOVER_BOUND_MS:,} are allowed"
