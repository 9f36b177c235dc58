"""What an answer means, in a sentence for the person who reads it at night."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from offsetsvc.answers import Basis, FailoverAnswer, TimeBasis
from parallax.domain.outcome import Outcome
from parallax.domain.place import Via


def explain(answer: FailoverAnswer) -> str:
    """A sentence for each note, the gravest first, then where to resume."""
    sentences = [MEANINGS[note](answer) for note in answer.notes]
    return " ".join([*sentences, *_unindexed(answer), _where(answer)])


def _unindexed(answer: FailoverAnswer) -> Iterable[str]:
    origin = answer.origin
    if origin.without_rows and origin.next_offset is not None:
        yield (
            f"The index has no row of {_list(origin.without_rows)} in {origin.cluster}, so that what was consumed of it "
            "there is not known: its route has not run yet, or the index is not complete."
        )


def _where(answer: FailoverAnswer) -> str:
    resume, log = answer.resume_offset, answer.destination.log
    positions = [
        (view.answer.position, view.answer.source.region)
        for view in answer.sources
        if view.answer.position is not None
    ]
    first = min((position for position, _ in positions), default=None)
    deciding = _list([region for position, region in positions if position == first])
    place = f"Resume at {resume} in {answer.destination.cluster}"
    if first == resume:
        place += f", where the first unconsumed record of {deciding} can lie"
    elif first is not None and first < resume:
        start = first if log is None else max(first, log.low_watermark)
        place += f": the smallest position is {first}, of {deciding}, and " + (
            "the log starts there"
            if start == resume
            else f"all that lies from {start} to {resume} was consumed"
        )
    consumed = sum([end - start for start, end in answer.skip_ranges])
    skip = f"; {consumed} consumed records above it are to be skipped" if consumed else ""
    return f"{place}{skip}."


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"source {name}" for name in dict.fromkeys(names))


def _ok(answer: FailoverAnswer) -> str:
    return f"Everything consumed in {answer.origin.cluster} is accounted for."


def _clamped(answer: FailoverAnswer) -> str:
    for side in (answer.origin, answer.destination):
        if (
            side.log is not None
            and side.next_offset is not None
            and side.next_offset > side.log.high_watermark
        ):
            return (
                f"Next offset {side.next_offset} lies beyond the end of {side.cluster} "
                f"({side.log.high_watermark}) and was taken as the end."
            )
    return f"The index is ahead of {answer.destination.cluster}: its end was taken."


def _pending(answer: FailoverAnswer) -> str:
    parts = [
        f"{view.pending_records} of source {view.answer.source.region}"
        for view in answer.sources
        if view.pending_records
    ]
    return (
        f"Consumed but not in {answer.destination.cluster} yet: {', '.join(parts)} (source offsets); "
        "they will arrive above the resume offset, so go on asking which records to skip."
    )


def _stale(answer: FailoverAnswer) -> str:
    age_ms = answer.freshness_ms
    age = "" if age_ms is None else f" (the oldest source was last seen {age_ms} ms ago)"
    seen_ms = answer.origin.observed_at_ms
    seen = "" if seen_ms is None else "; the group's position is one that was seen earlier"
    return (
        f"Rows or positions are older than the configured bound{age}{seen}: the answer is early, never late."
    )


_FROM = {
    TimeBasis.CALLER: "the caller's time",
    TimeBasis.POSITION: "the time of the group's position in {origin}",
    TimeBasis.BELOW: "the time of the last record in {origin}, all of which the group has consumed",
}


def _by_timestamp(answer: FailoverAnswer) -> str:
    choice = answer.by_timestamp
    if choice is None or choice.timestamp_ms is None:
        return "Record timestamps decided."
    by_time = [view.answer.source.region for view in answer.sources if view.answer.via is Via.TIMESTAMP]
    basis = _FROM[choice.basis].format(origin=answer.origin.cluster)
    return (
        f"No usable row for {_list(by_time)} in {answer.destination.cluster}, so record timestamps decided, as asked: "
        f"the first record there of {choice.timestamp_ms - choice.margin_ms} ms or later ({basis}, "
        f"{choice.timestamp_ms} ms, less a margin of {choice.margin_ms} ms). Nothing is left out if no unconsumed record "
        "is older than that; how many records are read again can't be known, of those there now at most "
        f"{choice.redelivery_at_most_offsets}."
    )


def _no_commit(answer: FailoverAnswer) -> str:
    return (
        f"The group never committed on {answer.topic_partition} in {answer.origin.cluster}: "
        "its policy for new partitions was applied."
    )


def _rewound(answer: FailoverAnswer) -> str:
    return (
        f"The group's commit in {answer.origin.cluster} lies below where it stood since its last move, or has vanished: it was "
        "rewound or began anew, and what it consumed before that move counts no more."
    )


def _lineage_changed(answer: FailoverAnswer) -> str:
    return (
        f"A topic behind {answer.topic_partition} was created anew or lost its tail: "
        "only what both clusters provably share was used."
    )


def _earliest(answer: FailoverAnswer) -> str:
    missing = [view.answer.source.region for view in answer.sources if view.answer.via is Via.LOG_START]
    named = _list(missing) or "some source"
    choice = answer.by_timestamp
    why = "" if choice is None else f" Record timestamps, as asked, can't be gone by: {choice.problem}."
    return f"No usable row for {named} in {answer.destination.cluster}: it counts from the log start.{why}"


def _trimmed(answer: FailoverAnswer) -> str:
    log = answer.destination.log
    start = "" if log is None else f" ({log.low_watermark})"
    return (
        f"Unconsumed records fell out of retention in {answer.destination.cluster}: those below its log "
        f"start{start} are gone there."
    )


def _never_delivered(answer: FailoverAnswer) -> str:
    ranges = [
        f"{view.answer.source.region} [{gap.source_start}, {gap.source_end})"
        for view in answer.sources
        for gap in view.answer.lost
    ]
    return (
        "Source records were lost to retention before they were copied, and this group never gets them: "
        f"{', '.join(ranges)}."
    )


def _active_at_target(answer: FailoverAnswer) -> str:
    return f"The group is consuming in {answer.destination.cluster}: nothing was written there."


def _dual_active(answer: FailoverAnswer) -> str:
    return (
        f"The group is consuming in {answer.origin.cluster} and {answer.destination.cluster}; "
        "neither position is the truth."
    )


def _unreachable(answer: FailoverAnswer) -> str:
    parts = []
    if answer.origin.log is None:
        basis = answer.origin.basis
        how = {
            Basis.CALLER: "the caller's own position was used",
            Basis.OBSERVED: "the position seen last was used",
            Basis.COMMITTED: "the group's commit was not held against the log's end",
        }.get(basis or Basis.POLICY, "its policy for partitions without a commit was used")
        parts.append(f"{answer.origin.cluster} could not be asked: {how}")
    if answer.destination.log is None:
        parts.append(
            f"{answer.destination.cluster} could not be asked: the offset comes from the index alone and was "
            "not held against the log's start and end"
        )
    return f"{'; '.join(parts) or 'A cluster could not be asked'}."


def _mismatch(answer: FailoverAnswer) -> str:
    return (
        f"Topic {answer.topic_partition.topic} has different partition counts in {answer.origin.cluster} and "
        f"{answer.destination.cluster}; partitions beyond the smaller count have no counterpart."
    )


MEANINGS: Mapping[Outcome, Callable[[FailoverAnswer], str]] = {
    Outcome.OK: _ok,
    Outcome.CLAMPED_TO_END: _clamped,
    Outcome.PENDING: _pending,
    Outcome.STALE: _stale,
    Outcome.BY_TIMESTAMP: _by_timestamp,
    Outcome.NO_COMMIT: _no_commit,
    Outcome.REWOUND: _rewound,
    Outcome.LINEAGE_CHANGED: _lineage_changed,
    Outcome.EARLIEST_FALLBACK: _earliest,
    Outcome.TRIMMED: _trimmed,
    Outcome.NEVER_DELIVERED: _never_delivered,
    Outcome.ACTIVE_AT_TARGET: _active_at_target,
    Outcome.DUAL_ACTIVE: _dual_active,
    Outcome.UNREACHABLE: _unreachable,
    Outcome.PARTITION_MISMATCH: _mismatch,
}
"""A sentence for every outcome."""
