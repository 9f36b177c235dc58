"""`parallax verify`: which records a group consumed once, twice or never over its moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from parallax.cli.options import ConfigOption, GroupArgument, JsonOption, finite
from parallax.cli.output import console, log_beside_result, table
from parallax.cli.rows import DocumentFormat, DocumentOption, written
from parallax.config.config import load
from parallax.domain.consumption import ConsumptionKind, SourceRange
from parallax.domain.ids import GroupName
from parallax.failover.opening import open_verifier
from parallax.failover.verify.verdict import Consumers, GroupVerdict, PartitionVerdict, SourceVerdict, Verdict
from parallax.picture.text import visible

EXIT_CODES = {Verdict.ONCE: 0, Verdict.TWICE: 3, Verdict.NEVER: 4, Verdict.UNKNOWN: 5}
_WORDS = {
    Verdict.ONCE: "every record was consumed once",
    Verdict.TWICE: "some records were consumed twice, none was left out",
    Verdict.NEVER: "some records were never consumed",
    Verdict.UNKNOWN: "not everything can be known",
}
_STYLES = {
    Verdict.ONCE: "green",
    Verdict.TWICE: "yellow",
    Verdict.NEVER: "bold red",
    Verdict.UNKNOWN: "yellow",
}
_MOST_RANGES = 10
"""Printed of one kind; JSON has all."""


def verify(
    group: GroupArgument,
    config: ConfigOption,
    moves: Annotated[int, typer.Option("--moves", min=1, help="Over how many of its last moves.")] = 1,
    consumers: Annotated[
        Consumers, typer.Option("--consumers", help="What its members are. Default: what the store tells.")
    ] = Consumers.AUTO,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait-s",
            min=0,
            callback=finite,
            help="How long to wait for an index that lags behind the group.",
        ),
    ] = 5.0,
    output: DocumentOption = DocumentFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Tell which source records the group consumed once, twice or never over its last move.

    Exit code 0: every record once; 3: some twice; 4: some never; 5: not everything can be known.
    """
    log_beside_result(json=as_json)
    with open_verifier(load(config)) as verifier:
        found = verifier.verify(GroupName(group), moves=moves, consumers=consumers, wait_ms=wait_s * 1_000)
    if not written(verdict_values(found), output, as_json=as_json):
        show_verdict(found, console())
    code = EXIT_CODES[found.verdict]
    if code:
        raise typer.Exit(code)


# --- for scripts ---------------------------------------------------------------------------------------------------


def verdict_values(found: GroupVerdict) -> dict[str, Any]:
    """A verdict as JSON types."""
    return {
        "group": found.group,
        "verdict": found.verdict.value,
        "consumers": found.consumers.value,
        "moves": [
            {
                "from": record.move.origin,
                "to": record.move.target,
                "kind": record.move.kind.value,
                "started_at_ms": record.started_at_ms,
            }
            for record in found.moves
        ],
        "records": {kind.value: found.records(kind) for kind in ConsumptionKind},
        "notes": list(found.notes),
        "partitions": [_partition_values(item) for item in found.partitions],
    }


def _partition_values(item: PartitionVerdict) -> dict[str, Any]:
    return {
        "topic": item.topic_partition.topic,
        "partition": item.topic_partition.partition,
        "verdict": item.verdict.value,
        "visits": [
            {"cluster": visit.cluster, "start": visit.start, "end": visit.end} for visit in item.visits
        ],
        "unknown": list(item.unknown),
        "notes": list(item.notes),
        "sources": [_source_values(source) for source in item.sources],
    }


def _source_values(source: SourceVerdict) -> dict[str, Any]:
    tally = source.tally
    return {
        "region": source.source.region,
        "source_topic_id": source.source.topic_id,
        "verdict": source.verdict.value,
        "examined": None if tally is None else {"start": tally.examined[0], "end": tally.examined[1]},
        "records": {kind.value: source.records(kind) for kind in ConsumptionKind},
        "ranges": {}
        if tally is None
        else {kind.value: _ranges_values(ranges) for kind, ranges in tally.ranges.items()},
        "comes_again": [] if tally is None else _ranges_values(tally.ahead),
        "unknown": list(source.unknown),
    }


def _ranges_values(ranges: Iterable[SourceRange]) -> list[dict[str, Any]]:
    return [{"start": item.start, "end": item.end, "records": item.records} for item in ranges]


# --- for people ----------------------------------------------------------------------------------------------------


def show_verdict(found: GroupVerdict, out: Console) -> None:
    """The counts of every partition and source, then the ranges that matter."""
    way = " to ".join([found.moves[0].move.origin, *(record.move.target for record in found.moves)])
    sources = table(
        "partition | source | >examined | >once | >twice | >never | >lost | >unknown | >comes again",
        title=f"{found.group}: {way}",
    )
    for item in found.partitions:
        for source in item.sources:
            sources.add_row(str(item.topic_partition), *_cells(source), style=_STYLES[source.verdict])
    out.print(sources)
    for item in found.partitions:
        for source in item.sources:
            _tell_ranges(f"{item.topic_partition} of {source.source.region}", source, out)
        for text in (*item.unknown, *item.notes):
            out.print(f"{item.topic_partition}: {text}", markup=False)
    for text in found.notes:
        out.print(text, markup=False)
    verdict = found.verdict
    out.print(Text(f"{visible(found.group)}: {_WORDS[verdict]}", _STYLES[verdict]))


def _cells(source: SourceVerdict) -> list[str]:
    tally = source.tally
    if tally is None:
        return [source.source.region, "-", "-", "-", "-", "-", "all", "-"]
    doubtful = tally.ranges.get(ConsumptionKind.UNKNOWN, ())
    open_end = "+" if any(item.end is None for item in doubtful) else ""
    return [
        source.source.region,
        f"[{tally.examined[0]}, {tally.examined[1]})",
        *(
            str(source.records(kind))
            for kind in (
                ConsumptionKind.ONCE,
                ConsumptionKind.TWICE,
                ConsumptionKind.NEVER,
                ConsumptionKind.LOST,
            )
        ),
        f"{source.records(ConsumptionKind.UNKNOWN)}{open_end}",
        str(source.ahead_records),
    ]


def _tell_ranges(name: str, source: SourceVerdict, out: Console) -> None:
    for text in source.unknown:
        out.print(f"{name}: {text}", markup=False)
    if source.tally is None:
        return
    for kind in (ConsumptionKind.TWICE, ConsumptionKind.NEVER, ConsumptionKind.LOST, ConsumptionKind.UNKNOWN):
        ranges = source.tally.ranges.get(kind, ())
        if ranges:
            out.print(f"{name}: {kind.value}: {_listed(ranges)}", markup=False)


def _listed(ranges: Sequence[SourceRange]) -> str:
    shown = [f"[{item.start}, {'...' if item.end is None else item.end})" for item in ranges[:_MOST_RANGES]]
    more = len(ranges) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
