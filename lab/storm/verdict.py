"""The judgement of a storm, and its report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from lab.oracle.copies import compare_copies
from lab.oracle.logs import count_inversions
from lab.oracle.once import OnceVerdict, judge_once
from lab.storm.facts import Happening, StormFacts
from lab.storm.schedule import Act, Schedule
from lab.workload.events import RecordId


def judge(facts: StormFacts, least_records: int, *, skipping: bool = True) -> dict[str, Any]:
    """What became of the records. ``failures`` is empty if every promise was kept.

    Args:
        facts: what was played.
        least_records: so many have to have been produced, or little was proved.
        skipping: somebody has to have skipped records, too.
    """
    produced = {record for source in facts.sources.values() for record in source.records()}
    verdicts = {
        name: judge_once(found, produced, facts.rewinds[name], facts.targets)
        for name, found in facts.deliveries.items()
    }
    copies = {name: compare_copies(facts.sources.values(), target) for name, target in facts.targets.items()}
    first, second = facts.targets.values()
    report: dict[str, Any] = {
        "produced_records": len(produced),
        "produced_by_cluster": {name: source.count for name, source in facts.sources.items()},
        "acked_records": facts.acked_records,
        "doubtful_records": sum(len(found.records()) for found in facts.doubtful),
        "groups": {
            name: _of_group(name, verdict, facts, len(produced)) for name, verdict in verdicts.items()
        },
        "skipped_records": sum(facts.skipped.values()),
        "inversions": count_inversions(first, second),
        "copies": {name: asdict(found) for name, found in copies.items()},
        "died": list(facts.died),
    }
    failures = [
        f"{name} is not a faithful copy of its sources"
        for name, found in copies.items()
        if not found.faultless
    ]
    failures += [f"{name} ended by itself" for name in facts.died]
    failures += _produced_otherwise(facts, produced)
    if len(produced) < least_records:
        failures.append(f"only {len(produced):,} records were produced, where {least_records:,} are wanted")
    if skipping and not report["skipped_records"]:
        failures.append("no group skipped a record: nothing was proved about skipping")
    for name, verdict in verdicts.items():
        failures += [f"group {name} {what}" for what in _wrong(verdict)]
    report["failures"] = failures
    return report


def story(schedule: Schedule, happened: Sequence[Happening]) -> dict[str, Any]:
    """What was to happen, and what did."""
    return {
        "seed": schedule.seed,
        "schedule": [_of_act(act) for act in schedule.acts],
        "happened": [
            {
                "number": number,
                "kind": found.act.kind.value,
                "act": found.act.told(),
                "began_s": round(found.began_s, 1),
                "took_s": round(found.took_s, 1),
                "notes": found.notes,
                "problem": found.problem,
            }
            for number, found in enumerate(happened, start=1)
        ],
    }


def _of_act(act: Act) -> dict[str, Any]:
    return {name: value for name, value in asdict(act).items() if value}


def _of_group(name: str, verdict: OnceVerdict, facts: StormFacts, produced: int) -> dict[str, Any]:
    return {
        "produced": produced,
        "consumed": verdict.delivered_records,
        "deliveries": len(facts.deliveries[name]),
        "lost": verdict.lost_records,
        "redelivered": verdict.redelivered_records,
        "rewound": verdict.rewound_records,
        "not_repeated": verdict.unrepeated_records,
        "foreign": verdict.foreign_records,
        "skipped": facts.skipped[name],
        "told": dict(facts.told[name]),
        "rewinds": [rewind._asdict() for rewind in facts.rewinds[name]],
        "examples": [
            {
                "record": f"{record.region}:{record.seq}",
                "deliveries": [delivery._asdict() for delivery in found],
            }
            for record, found in verdict.examples.items()
        ],
    }


def _produced_otherwise(facts: StormFacts, produced: set[RecordId]) -> Iterator[str]:
    """What is written is what was acknowledged, and of each transaction without an answer all or nothing."""
    known = len(produced)
    for doubtful in facts.doubtful:
        records = doubtful.records()
        written = len(records & produced)
        known -= written
        if written not in {0, len(records)}:
            yield f"of {len(records):,} records of one transaction of region {doubtful.region}, {written:,} are written"
    if facts.acked_records != known:
        beside = (
            f" beside {len(produced) - known:,} of transactions without an answer" if facts.doubtful else ""
        )
        yield f"producers were told that {facts.acked_records:,} records are written, and {known:,} are{beside}"


def _wrong(verdict: OnceVerdict) -> Iterator[str]:
    if verdict.lost_records:
        yield f"lost {verdict.lost_records:,} records"
    if verdict.redelivered_records:
        yield f"was given {verdict.redelivered_records:,} records again that no rewind asked for"
    if verdict.unrepeated_records:
        yield f"was not given {verdict.unrepeated_records:,} records again that a rewind asked for"
    if verdict.foreign_records:
        yield f"was given {verdict.foreign_records:,} records that nobody produced"
