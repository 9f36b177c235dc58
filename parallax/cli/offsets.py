"""`parallax offsets`, `explain`, `routes`, `runs`: what the offset services know, for people and scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from functools import partial
from typing import Annotated

import typer

from parallax.cli import completion
from parallax.cli.connecting import connect
from parallax.cli.offset_tables import show_offsets, show_routes, tell
from parallax.cli.options import (
    MOST_32,
    MOST_64,
    TIMEOUT_MS,
    AuthorityOption,
    ByTimestampOption,
    GroupArgument,
    JsonOption,
    MarginOption,
    ServiceOption,
    ServicesConfigOption,
    TimeoutOption,
    TimestampOption,
    place,
    timestamp_policy,
)
from parallax.cli.output import console, print_json, table
from parallax.cli.rows import DocumentFormat, DocumentOption, written
from parallax.client.answer import answers_from_pb
from parallax.client.client import OffsetClient, at_cluster
from parallax.client.json import to_json
from parallax.errors import InvalidNameError, UnknownGroupError
from parallax.picture.ask import ask_picture
from parallax.picture.model import range_from
from parallax.picture.svg import draw
from parallax.picture.table import to_csv
from parallax.v1 import offsets_pb2 as pb

Topic = Annotated[str, typer.Argument(help="A topic.", autocompletion=completion.topics)]
Partition = Annotated[int, typer.Argument(help="A partition.", min=0, max=MOST_32)]
RouteText = Annotated[str, typer.Argument(help="A route, written 'a->b'.")]
To = Annotated[
    str,
    typer.Option(
        "--to",
        help="Where the group goes: a region or a cluster.",
        autocompletion=completion.clusters_and_regions,
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="Where it comes from. Default: the only other aggregate cluster.",
        autocompletion=completion.clusters_and_regions,
    ),
]


class ExplainOutput(Enum):
    """What `parallax explain` prints."""

    TEXT = "text"
    JSON = "json"
    SVG = "svg"
    CSV = "csv"


def offsets(
    group: GroupArgument,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Where the group goes: a region or a cluster. Default: every move.",
            autocompletion=completion.clusters_and_regions,
        ),
    ] = None,
    origin: From = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only these topics.", autocompletion=completion.topics)
    ] = None,
    by_timestamp: ByTimestampOption = False,
    margin_ms: MarginOption = None,
    timestamp_ms: TimestampOption = None,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    output: DocumentOption = DocumentFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show where every partition of a group would resume."""
    policy = timestamp_policy(by_timestamp=by_timestamp, margin_ms=margin_ms, timestamp_ms=timestamp_ms)
    with connect(config, service, tls_ca, timeout_ms) as client:
        answers = list(_answers(client, group, to, origin, topic or [], policy))
    values = [to_json(answer) for answer in answers]
    if written(values if to is None else values[0], output, as_json=as_json):
        return
    if not any(answer.offsets for answer in answers):
        sys.stdout.write(f"group {group!r} has no position to move\n")
    out = console()
    for answer in answers:
        if answer.offsets:
            show_offsets(group, list(answers_from_pb(answer).values()), out)


def _answers(
    client: OffsetClient,
    group: str,
    to: str | None,
    origin: str | None,
    topics: list[str],
    policy: pb.TimestampPolicy | None,
) -> Iterator[pb.GetGroupFailoverOffsetsResponse]:
    """The answer for the move named, or for every move between aggregate clusters that the group can make."""
    ask = partial(client.get_group_failover_offsets, group, topics=topics, by_timestamp=policy)
    destination = place(to)
    if destination is not None:
        yield ask(to=destination, origin=place(origin))
        return
    clusters = list(dict.fromkeys(route.target_cluster for route in client.list_routes().routes))
    origins = [place(origin)] if origin is not None else [at_cluster(name) for name in clusters]
    unknown: list[UnknownGroupError] = []
    found = 0
    for source in origins:
        for name in clusters:
            if source is None or name in {source.cluster, f"aggregate-{source.region}"}:
                continue
            try:
                yield ask(to=at_cluster(name), origin=source)
                found += 1
            except UnknownGroupError as error:  # it may be known where it consumes
                unknown.append(error)
    if unknown and not found:
        raise unknown[0]


def explain(
    group: GroupArgument,
    topic: Topic,
    partition: Partition,
    to: To,
    origin: From = None,
    next_offset: Annotated[
        int | None,
        typer.Option(
            "--next-offset", min=0, max=MOST_64, help="Go by this position. Default: the group's commit."
        ),
    ] = None,
    by_timestamp: ByTimestampOption = False,
    margin_ms: MarginOption = None,
    timestamp_ms: TimestampOption = None,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    as_json: JsonOption = False,
    output: Annotated[
        ExplainOutput,
        typer.Option(
            "--output", "-o", help="text; json: the answer; svg: its picture; csv: the picture as a table."
        ),
    ] = ExplainOutput.TEXT,
    window: Annotated[
        str | None,
        typer.Option(
            "--range", help="With svg or csv: offsets at the destination, START:END. Default: what matters."
        ),
    ] = None,
) -> None:
    """Tell why one partition of a group resumes where it does, source by source; -o svg draws it."""
    drawn = output in (ExplainOutput.SVG, ExplainOutput.CSV)
    if window is not None and not drawn:
        raise InvalidNameError("--range goes with -o svg or -o csv")
    wanted = None if window is None else range_from(window)
    with connect(config, service, tls_ca, timeout_ms) as client:
        answer = client.get_failover_offset(
            group,
            topic,
            partition,
            to=place(to) or pb.Place(),
            origin=place(origin),
            next_offset=next_offset,
            by_timestamp=timestamp_policy(
                by_timestamp=by_timestamp, margin_ms=margin_ms, timestamp_ms=timestamp_ms
            ),
            nearest_checkpoint=True,
        )
        picture = ask_picture(client, answer, wanted) if drawn else None
    if picture is not None:
        sys.stdout.write(draw(picture) if output is ExplainOutput.SVG else to_csv(picture))
    elif as_json or output is ExplainOutput.JSON:
        print_json(to_json(answer))
    else:
        tell(answer, console())


def routes(
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    output: DocumentOption = DocumentFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List the routes, the topics that they have copied, how fresh each is, and what is stopped, with the reason."""
    with connect(config, service, tls_ca, timeout_ms) as client:
        answer = client.list_routes()
    if written(to_json(answer), output, as_json=as_json):
        return
    show_routes(answer.routes, console())


def runs(
    route: RouteText,
    topic: Topic,
    partition: Partition,
    start: Annotated[
        int, typer.Option("--start", min=0, max=MOST_64, help="From this target offset on.")
    ] = 0,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MOST_32, help="Rows of each lineage, about.")
    ] = 100,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    output: DocumentOption = DocumentFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List the runs and watermarks of a partition of a route."""
    with connect(config, service, tls_ca, timeout_ms) as client:
        answer = client.list_runs(route, topic, partition, start=start, limit=limit)
    if written(to_json(answer), output, as_json=as_json):
        return
    for lineage in answer.lineages:
        closed = f", closed at source offset {lineage.closed_at}" if lineage.HasField("closed_at") else ""
        rows = table(
            "kind | >source | >target | >records | >previous source end | >leader epoch",
            title=f"{route} {topic}-{partition}, lineage {lineage.lineage}{closed}",
        )
        for run in lineage.runs:
            rows.add_row(
                "run" if run.count_records else "watermark",
                _range(run.source_start, run.count_records),
                _range(run.target_start, run.count_records),
                str(run.count_records),
                str(run.previous_source_end) if run.previous_source_end != run.source_start else "",
                str(run.source_leader_epoch),
            )
        for gap in lineage.lost:
            rows.add_row(
                "lost", f"[{gap.start}, {gap.end})", "", str(gap.end - gap.start), "", "", style="red"
            )
        console().print(rows)
    if answer.HasField("continue_at"):
        sys.stdout.write(
            f"more rows from target offset {answer.continue_at} on: --start {answer.continue_at}\n"
        )


def _range(start: int, count: int) -> str:
    return f"[{start}, {start + count})" if count else str(start)
