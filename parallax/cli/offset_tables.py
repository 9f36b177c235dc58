"""Answers drawn for a terminal: a group's in a table, one partition's with what was consumed, where that lies, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from parallax.cli.output import known, number, outcome_word, table
from parallax.client.answer import ResumeAnswer
from parallax.domain.outcome import Outcome
from parallax.picture.text import name_of, visible
from parallax.v1 import offsets_pb2 as pb

_BAR_WIDTH = 64
_VIA = {
    "exact": "a run holds it",
    "after": "behind the last row that is wholly consumed",
    "before": "before the first row that is not, nothing lying between",
    "consumed": "all of it was consumed: it holds nothing back",
    "timestamp": "by record timestamps, for no row proves anything",
    "log_start": "no row proves anything better than the log start",
}


def outcome_text(outcome: int, notes: Iterable[int]) -> Text:
    """The outcome, coloured by its gravity, and the other notes, the gravest first."""
    others = [name_of(pb.Outcome.Name, note) for note in sorted(notes, reverse=True) if note != outcome]
    more = f" + {', '.join(others)}" if others else ""
    return Text.assemble(outcome_word(outcome), more)


def show_offsets(group: str, answers: Sequence[ResumeAnswer], out: Console) -> None:
    """A group's partitions, a line each, and why the gravest outcome is what it is."""
    partitions = table(
        "topic | >partition | >next offset | >resume | outcome | >pending | >skip records | >read again"
        " | >freshness ms | >lag at target",
        title=f"{group}: {answers[0].origin} to {answers[0].target}",
    )
    for item in answers:
        partitions.add_row(
            item.topic_partition.topic,
            str(item.topic_partition.partition),
            known(item.origin_next_offset),
            str(item.resume_offset),
            outcome_text(item.outcome.value, [note.value for note in item.notes]),
            str(item.pending_records),
            str(item.skip_records),
            known(item.redelivery_records),
            known(item.freshness_ms),
            known(item.lag_offsets),
        )
    out.print(partitions)
    gravest = max(answers, key=lambda item: item.outcome.value)
    if gravest.outcome is not Outcome.OK:
        out.print(f"{gravest.topic_partition}: {gravest.explanation}", markup=False, highlight=False)


def show_routes(routes: Iterable[pb.RouteInfo], out: Console) -> None:
    """Every route, a line for each of its topics; below, why partitions are stopped."""
    topics = table(
        "route | from | to | topic | >partitions | >freshness ms | >stopped partitions", title="routes"
    )
    stops: dict[str, list[str]] = {}
    for route in routes:
        ends = (route.route, route.source_cluster, route.target_cluster)
        for item in route.topics:
            stopped = ", ".join(str(stop.partition) for stop in item.stopped)
            style = "bold red" if stopped else None
            freshness = number(item, "freshness_ms")
            topics.add_row(*ends, item.topic, str(item.partitions), freshness, stopped, style=style)
            for stop in item.stopped:
                place = f"{route.route} {item.topic}-{stop.partition}"
                stops.setdefault(stop.reason, []).append(place)
        if not route.topics:
            topics.add_row(*ends, "(none yet)", "", "", "")
    out.print(topics)
    for reason, places in stops.items():
        out.print(f"stopped: {', '.join(places)}: {reason}", style="red", markup=False, highlight=False)


def tell(answer: pb.FailoverOffset, out: Console) -> None:
    """One partition's answer: what was consumed, where it lies in the other cluster, and why."""
    origin = getattr(answer, "from")
    out.print(
        Text.assemble(
            (visible(answer.group), "bold"),
            f" on {answer.topic}-{answer.partition}: {origin.cluster} to {answer.to.cluster}: ",
            outcome_text(answer.outcome, answer.notes),
        )
    )
    out.print(answer.explanation, markup=False, highlight=False)
    out.print()
    _print_sides(answer, origin, out)
    _print_bar(answer, out)
    first = min((source.position for source in answer.sources if source.HasField("position")), default=None)
    for source in answer.sources:
        decides = source.HasField("position") and source.position == first
        _print_source(answer, origin.cluster, source, out, decides=decides)
    _print_rest(answer, out)


def _print_sides(answer: pb.FailoverOffset, origin: Any, out: Console) -> None:
    table = Table("", box=None, pad_edge=False)
    for heading in ("next offset", "log", "lag", "indexed below"):
        table.add_column(heading, justify="right")
    basis = f" ({origin.basis})" if origin.basis else ""
    for side, note in ((origin, basis), (answer.to, " (resume)")):
        table.add_row(
            side.cluster,
            f"{number(side, 'next_offset')}{note}",
            f"[{number(side, 'low_watermark')}, {number(side, 'high_watermark')})",
            number(side, "lag_offsets"),
            number(side, "indexed_to"),
        )
    out.print(table)
    out.print()


def _print_bar(answer: pb.FailoverOffset, out: Console) -> None:
    """The part of the destination's log around the resume offset: consumed, to be skipped, new."""
    ends = [item.end for item in answer.skip_ranges]
    high = (
        answer.to.high_watermark
        if answer.to.HasField("high_watermark")
        else max([answer.resume_offset, *ends])
    )
    low = max(answer.to.low_watermark, answer.resume_offset - max(1, (high - answer.resume_offset) // 3))
    if high <= low:
        return
    cells = [
        _cell(answer, low + (high - low) * cell // _BAR_WIDTH, low + (high - low) * (cell + 1) // _BAR_WIDTH)
        for cell in range(_BAR_WIDTH)
    ]
    marker = min(_BAR_WIDTH - 1, (answer.resume_offset - low) * _BAR_WIDTH // (high - low))
    out.print(f"{answer.to.cluster} {low} {''.join(cells)} {high}", highlight=False)
    indent = len(f"{answer.to.cluster} {low} ") + marker
    out.print(f"{' ' * indent}^ resume {answer.resume_offset}", highlight=False)
    out.print("[dim]= consumed   x consumed, skip   + mixed   . not consumed[/]", highlight=False)
    out.print()


def _cell(answer: pb.FailoverOffset, start: int, end: int) -> str:
    end = max(end, start + 1)
    if end <= answer.resume_offset:
        return "="
    skipped = sum(max(0, min(end, item.end) - max(start, item.start)) for item in answer.skip_ranges) + max(
        0, min(end, answer.resume_offset) - start
    )
    return "x" if skipped == end - start else "+" if skipped else "."


def _print_source(
    answer: pb.FailoverOffset, origin: str, source: Any, out: Console, *, decides: bool
) -> None:
    passed = source.position < answer.resume_offset
    how = (
        "the smallest position; all from there to the resume offset was consumed"
        if passed
        else "decides the resume offset"
    )
    marker = f" [bold]<- {how}[/]" if decides else ""
    identity = f" [dim](topic id {escape(source.source_topic_id)})[/]" if source.source_topic_id else ""
    out.print(f"[bold]source {escape(source.region)}[/]{identity}{marker}", highlight=False)
    runs = {run.cluster: run for run in source.runs}
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    table.add_column()
    table.add_column()
    table.add_column(overflow="fold")
    proof = _row(runs.get(origin), origin)
    table.add_row(
        "  consumed", f"below {source.consumed_next_offset}", proof or "by an earlier move, or nothing"
    )
    place = str(source.position) if source.HasField("position") else "none"
    found = _row(runs.get(answer.to.cluster), answer.to.cluster)
    table.add_row("  position", place, f"{_VIA.get(source.via, source.via)}{f': {found}' if found else ''}")
    table.add_row(
        "  reached",
        f"{source.reached_next_offset} there",
        f"newest row {number(source, 'freshness_ms')} ms old",
    )
    if source.pending_records:
        table.add_row(
            "  pending",
            f"[{source.pending.start}, {source.pending.end})",
            f"{source.pending_records} source offsets consumed, not in {answer.to.cluster} yet",
            style="yellow",
        )
    for gap in source.never_delivered:
        table.add_row(
            "  lost", f"[{gap.start}, {gap.end})", "gone before it was copied: never delivered", style="red"
        )
    if source.redelivery_records:
        table.add_row(
            "  again", str(source.redelivery_records), "records read again by a client that does not skip"
        )
    out.print(table)
    out.print()


def _row(run: Any, cluster: str) -> str:
    if run is None:
        return ""
    if not run.count_records:
        return f"watermark: source {run.source_start} = {cluster} {run.target_start}"
    source = f"[{run.source_start}, {run.source_start + run.count_records})"
    target = f"[{run.target_start}, {run.target_start + run.count_records})"
    return f"run: source {source} = {cluster} {target}, leader epoch {run.source_leader_epoch}"


def _again(answer: pb.FailoverOffset) -> str:
    """How many records are read again; what can't be known is no number."""
    if answer.HasField("redelivery_records"):
        return f"{answer.redelivery_records} records"
    at_most = answer.by_timestamp.redelivery_at_most_offsets
    return f"an unknown number of records (of those there now at most {at_most})"


def _print_rest(answer: pb.FailoverOffset, out: Console) -> None:
    skipped = sum(item.end - item.start for item in answer.skip_ranges)
    complete = f"below {answer.complete_to}" if answer.HasField("complete_to") else "wholly"
    out.print(
        f"skip ranges: {len(answer.skip_ranges)} with {skipped} records, known {complete}; "
        f"without skipping {_again(answer)} are read again",
        highlight=False,
    )
    if answer.HasField("nearest_checkpoint_offset"):
        earlier = answer.resume_offset - answer.nearest_checkpoint_offset
        out.print(
            f"the nearest-checkpoint rule would resume at {answer.nearest_checkpoint_offset} "
            f"({earlier} offsets earlier)",
            highlight=False,
        )
