"""The judgement: everything is counted from the records and from what the consumers wrote down."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.demo.options import FOLLOWERS, ONE_MEMBER
from lab.demo.outage import Uncertain
from lab.oracle.alternatives import Moment, weigh_alternatives
from lab.oracle.copies import compare_copies
from lab.oracle.groups import GroupJudgement, judge_group
from lab.oracle.logs import TopicLog, count_inversions, read_topic
from lab.oracle.outage import held_back, possibly_unindexed, records_below
from lab.workload.delivered import DeliveredRecord, read_deliveries, read_group
from lab.workload.events import RecordId
from lab.workload.playing import Stack

_MOVES = ("failover", "failback")


@dataclass(frozen=True, slots=True)
class DemoFacts:
    """What the scenario knows and the records don't tell.

    Attributes:
        acked_records: what the producers were told is written.
        folders: of each group's deliveries.
        acknowledged: what the producer of region a was told is written, and when.
        commanded_at_ms: when the commands that move the groups were started.
        command_start_ms: how long the machine took to start such a command, just before the failover.
        ends_at_failover: ends of aggregate-b when the first of them was, by partition.
        ends_at_return, returned_at_ms: its ends when region a was started again, and that moment.
        uncertain: what was perhaps not indexed when the replicator died with the region; None: it lived.
        lag_at_kill: of each group, in offsets.
        skipped_records: by all FailoverConsumers.
    """

    acked_records: int
    folders: Mapping[str, Path]
    acknowledged: Path
    commanded_at_ms: Sequence[int]
    command_start_ms: int
    ends_at_failover: Mapping[int, int]
    ends_at_return: Mapping[int, int]
    returned_at_ms: int
    uncertain: Uncertain | None
    lag_at_kill: Mapping[str, int]
    skipped_records: int


@dataclass(frozen=True, slots=True)
class Logs:
    """The topic in all clusters, by region.

    Attributes:
        sources: what was produced there.
        targets: what groups read there.
    """

    sources: Mapping[str, TopicLog]
    targets: Mapping[str, TopicLog]


def read_logs(stack: Stack, topic: str) -> Logs:
    """Read the topic in every cluster to its end.

    Raises:
        OracleReadError: one could not be read.
    """
    layout = stack.layout
    logs = {
        cluster.name: read_topic(cluster.name, layout.bootstrap(cluster.name), topic)
        for cluster in layout.spec.clusters
    }
    targets = {region: logs[f"aggregate-{region}"] for region in layout.spec.regions}
    if layout.spec.mode == "aggregation":
        return Logs({region: logs[f"regional-{region}"] for region in layout.spec.producing}, targets)
    return Logs({region: targets[region].produced_in(region) for region in layout.spec.producing}, targets)


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
def judge(facts: DemoFacts, logs: Logs) -> dict[str, Any]:
    """The report. Its ``failures`` are empty if everything went as promised."""
    produced = {record for source in logs.sources.values() for record in source.records()}
    by_cluster = {target.cluster: target for target in logs.targets.values()}
    deliveries = {group: read_group(folder) for group, folder in facts.folders.items()}
    verdicts = {
        group: judge_group(found, produced, by_cluster, facts.commanded_at_ms)
        for group, found in deliveries.items()
    }
    moment = _moment(facts, logs, deliveries[ONE_MEMBER])
    copies = {name: compare_copies(logs.sources.values(), target) for name, target in by_cluster.items()}
    first, second = logs.targets.values()
    rpo = held_back(
        read_deliveries(facts.acknowledged),
        second,
        ends=facts.ends_at_return,
        returned_at_ms=facts.returned_at_ms,
    )
    report: dict[str, Any] = {
        "produced_records": len(produced),
        "acked_records": facts.acked_records,
        "groups": {
            group: {
                **_group_report(verdict, facts.lag_at_kill[group]),
                "redelivered_at_most": _bound(facts.uncertain, deliveries[group])
                if group in FOLLOWERS
                else None,
            }
            for group, verdict in verdicts.items()
        },
        "alternatives": {name: asdict(found) for name, found in weigh_alternatives(moment).items()},
        "inversions": count_inversions(first, second),
        "skipped_records": facts.skipped_records,
        "command_start_ms": facts.command_start_ms,
        "pending_records": len(moment.consumed - records_below(second, facts.ends_at_failover)),
        "rpo_records": len(rpo),
        "rpo_arrived_records": _arrived(rpo, second, [deliveries[group] for group in FOLLOWERS]),
        "replicator_died": facts.uncertain is not None,
        "unindexed_ms_at_most": None if facts.uncertain is None else facts.uncertain.window_ms,
        "copies": {name: asdict(found) for name, found in copies.items()},
    }
    report["failures"] = _failures(
        report, verdicts, {name: found.faultless for name, found in copies.items()}
    )
    return report


def _group_report(verdict: GroupJudgement, lag: int) -> dict[str, Any]:
    return {
        "delivered_records": verdict.delivered_records,
        "lost_records": verdict.lost_records,
        "repeated_records": verdict.repeated_records,
        "foreign_records": verdict.foreign_records,
        "lag_offsets_at_kill": lag,
        **{name: asdict(verdict.moves[stage]) for stage, name in enumerate(_MOVES, start=1)},
    }


def _bound(uncertain: Uncertain | None, deliveries: Sequence[DeliveredRecord]) -> int:
    """How many records a group of FailoverConsumers may read again in the failover."""
    return 0 if uncertain is None else possibly_unindexed(deliveries, uncertain.starts)


def _arrived(rpo: set[RecordId], target: TopicLog, deliveries: Iterable[Sequence[DeliveredRecord]]) -> int:
    """How many of them lie in the target once in the end, and were delivered by each of these groups."""
    copies = Counter(placed.record for records in target.partitions.values() for placed in records)
    found = {record for record in rpo if copies[record] == 1}
    for group in deliveries:
        found &= {delivery.record for delivery in group}
    return len(found)


def _moment(facts: DemoFacts, logs: Logs, deliveries: Sequence[DeliveredRecord]) -> Moment:
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
        at_ms=facts.commanded_at_ms[0],
    )


def _failures(
    report: Mapping[str, Any], verdicts: Mapping[str, GroupJudgement], faultless: Mapping[str, bool]
) -> list[str]:
    found = [f"{name} is not a faithful copy of its sources" for name, good in faultless.items() if not good]
    acked, produced = report["acked_records"], report["produced_records"]
    if acked != produced:
        found.append(f"producers were told that {acked:,} records are written, and {produced:,} are")
    if not report["pending_records"]:
        found.append("the far route was not behind when region a was killed: nothing was pending")
    rpo, arrived = report["rpo_records"], report["rpo_arrived_records"]
    if arrived != rpo:
        found.append(
            f"of {rpo:,} records that only region a had, {rpo - arrived:,} did not arrive once after its return"
        )
    for group, verdict in verdicts.items():
        bound = report["groups"][group]["redelivered_at_most"]
        found.extend(f"group {group} {what}" for what in _failures_of(verdict, bound))
    return found


def _failures_of(verdict: GroupJudgement, bound: int | None) -> Iterator[str]:
    """What went wrong with a group; ``bound``: what it may read again in the failover, None: as much as it likes."""
    if verdict.lost_records:
        yield f"lost {verdict.lost_records:,} records"
    if verdict.foreign_records:
        yield f"was given {verdict.foreign_records:,} records that nobody produced"
    if bound is not None and verdict.repeated_records:
        yield f"read {verdict.repeated_records:,} records twice in one cluster"
    for move, moved in zip(_MOVES, verdict.moves[1:], strict=True):
        allowed = bound if move == "failover" or bound is None else 0
        if allowed is not None and moved.redelivered_records > allowed:
            yield (
                f"read {moved.redelivered_records:,} records again in the {move}"
                f"{f', where {allowed:,} are allowed' if allowed else ''}"
            )
        if moved.failover_ms is None:
            yield f"got no new record after the {move}"


def too_slow(report: Mapping[str, Any], within_ms: int, within_starts: int) -> list[str]:
    """Groups that needed longer from the command to the first new record, one sentence each.

    Args:
        report: of `judge`.
        within_ms: may be needed on any machine.
        within_starts: as long as so many starts of a command take beside the same load may be needed on a slower one.
    """
    within_ms = max(within_ms, within_starts * report["command_start_ms"])
    took_ms = {name: found["failover"]["failover_ms"] for name, found in report["groups"].items()}
    return [
        f"group {name} needed {needed:,} ms for the failover, where {within_ms:,} are allowed"
        for name, needed in took_ms.items()
        if needed is not None and needed > within_ms
    ]
