"""`parallax groups`, `replication`, `partitions`, `moves`, `drills`, `sync problems`: what there is, and how it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from google.protobuf.message import Message

from parallax.cli import completion
from parallax.cli.choosing import EntryChoice, FilterOption, Row, SortOption, choice_of
from parallax.cli.connecting import connect
from parallax.cli.options import (
    TIMEOUT_MS,
    AuthorityOption,
    JsonOption,
    ServiceOption,
    ServicesConfigOption,
    TimeoutOption,
)
from parallax.cli.output import console
from parallax.cli.rows import (
    LimitOption,
    ListColumn,
    OutputFormat,
    OutputOption,
    PrefixOption,
    RowListing,
    WatchOption,
    collected,
    output_of,
    seconds,
    watched,
)
from parallax.client.client import OffsetClient
from parallax.client.json import to_json
from parallax.client.messages import PartitionSort
from parallax.v1 import overview_pb2 as pb

_LIMIT = 100
_MOST_WITH_LAG = 100


def groups(
    prefix: PrefixOption = "",
    lag: Annotated[
        bool, typer.Option("--lag", help="Ask for each group's lag where it consumes, too.")
    ] = False,
    filters: FilterOption = None,
    sort: SortOption = "",
    limit: LimitOption = _LIMIT,
    output: OutputOption = OutputFormat.TABLE,
    watch: WatchOption = None,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    as_json: JsonOption = False,
) -> None:
    """List the groups: where each is primary, how the sync job sees it, and with --lag its lag and how it does by it."""
    listing = RowListing(
        [
            *_GROUPS,
            ListColumn(">lag", lambda row: row["lag_offsets"], wide=not lag),
            ListColumn("verdict", _verdict, wide=not lag),
        ],
        lambda row: row["group"],
        "no group is known: nothing was committed in an aggregate cluster that the sync job has seen (parallax sync)",
        _group_style,
    )
    choice, chosen = choice_of(filters, sort), output_of(output, as_json=as_json)
    with connect(config, service, tls_ca, timeout_ms) as client:

        def page(after: str, most: int) -> tuple[Sequence[Row], str]:
            most = min(most, _MOST_WITH_LAG) if lag else most
            answer = client.list_groups(prefix=prefix, after=after, limit=most, with_lag=lag)
            return _rows(answer.groups), answer.next_after

        watched(watch, lambda: _write(listing, page, limit, chosen, choice))


def replication(
    region: Annotated[
        str,
        typer.Option("--region", help="Routes into this region alone.", autocompletion=completion.regions),
    ] = "",
    prefix: PrefixOption = "",
    filters: FilterOption = None,
    sort: SortOption = "",
    limit: LimitOption = _LIMIT,
    output: OutputOption = OutputFormat.TABLE,
    watch: WatchOption = None,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    as_json: JsonOption = False,
) -> None:
    """List the routes as their replicators told of them last: state, lag, shards, and how old that word is."""
    choice, chosen = choice_of(filters, sort), output_of(output, as_json=as_json)
    with connect(config, service, tls_ca, timeout_ms) as client:

        def page(after: str, most: int) -> tuple[Sequence[Row], str]:
            answer = client.list_replication(prefix=prefix, after=after, limit=most, region=region)
            return _rows(answer.routes), answer.next_after

        def below(rows: Sequence[Row]) -> None:
            for row in rows:
                for problem in row["problems"]:
                    console().print(f"{row['route']}: {problem}", style="red", markup=False, highlight=False)

        watched(watch, lambda: _write(_ROUTES, page, limit, chosen, choice, below))


def _sort_key(sort: PartitionSort, row: Row) -> tuple[int, ...]:
    """By which rows of several routes, each in this order, are merged."""
    if sort is PartitionSort.NAME:
        return ()
    lag = 1 if row["lag_records"] is None else -row["lag_records"]
    stopped = row["state"] == "PARTITION_STOPPED"
    return (lag,) if sort is PartitionSort.LAG else (not stopped, lag)


def partitions(
    route: Annotated[
        list[str] | None, typer.Argument(help="Routes, written 'a->b'. Default: every one.")
    ] = None,
    stopped: Annotated[bool, typer.Option("--stopped", help="Those alone that can't go on.")] = False,
    sort: Annotated[
        PartitionSort,
        typer.Option(
            "--sort", help="By topic and partition, by the greatest lag, or the stopped ones first."
        ),
    ] = PartitionSort.NAME,
    prefix: Annotated[str, typer.Option("--prefix", help="Topics that begin so.")] = "",
    filters: FilterOption = None,
    limit: LimitOption = _LIMIT,
    output: OutputOption = OutputFormat.TABLE,
    watch: WatchOption = None,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    as_json: JsonOption = False,
) -> None:
    """List the partitions of routes: what each lags by, and what is stopped, why, and what to do."""
    state = pb.PARTITION_STOPPED if stopped else pb.PARTITION_STATE_UNKNOWN
    choice, chosen = choice_of(filters, ""), output_of(output, as_json=as_json)
    with connect(config, service, tls_ca, timeout_ms) as client:

        def found(name: str) -> tuple[list[Row], bool]:
            def page(after: str, most: int) -> tuple[Sequence[Row], str]:
                answer = client.list_replication_partitions(
                    name, prefix=prefix, state=state, sort=sort.asked, after=after, limit=most
                )
                return [{"route": name, **row} for row in _rows(answer.partitions)], answer.next_after

            return collected(page, limit, choice)

        def show() -> None:
            names = route or [item.route for item in _every_route(client)]
            parts = [found(name) for name in names]
            rows = [row for of_route, _ in parts for row in of_route]
            rows.sort(key=lambda row: _sort_key(sort, row))
            more = any(more for _, more in parts) or bool(limit and len(rows) > limit)
            rows = rows[:limit] if limit else rows
            _PARTITIONS.write(rows, chosen, more=more)
            if chosen in {OutputFormat.TABLE, OutputFormat.WIDE}:
                _say_remedies(rows)

        watched(watch, show)


def moves(
    group: Annotated[
        str | None,
        typer.Argument(help="A consumer group. Default: every one.", autocompletion=completion.groups),
    ] = None,
    filters: FilterOption = None,
    sort: SortOption = "",
    limit: LimitOption = _LIMIT,
    output: OutputOption = OutputFormat.TABLE,
    watch: WatchOption = None,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    as_json: JsonOption = False,
) -> None:
    """List the moves of a group, or of all, the newest first: how far each has come, and what stopped it."""
    choice, chosen = choice_of(filters, sort), output_of(output, as_json=as_json)
    with connect(config, service, tls_ca, timeout_ms) as client:

        def page(after: str, most: int) -> tuple[Sequence[Row], str]:
            answer = client.list_moves(group, after=after, limit=most)
            return _rows(answer.moves), answer.next_after

        watched(watch, lambda: _write(_MOVES, page, limit, chosen, choice))


def drills(
    filters: FilterOption = None,
    sort: SortOption = "",
    limit: LimitOption = _LIMIT,
    output: OutputOption = OutputFormat.TABLE,
    watch: WatchOption = None,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    as_json: JsonOption = False,
) -> None:
    """List the drills, the newest first, with what each measured."""
    choice, chosen = choice_of(filters, sort), output_of(output, as_json=as_json)
    with connect(config, service, tls_ca, timeout_ms) as client:

        def page(after: str, most: int) -> tuple[Sequence[Row], str]:
            answer = client.list_drills(after=after, limit=most)
            return _rows(answer.drills), answer.next_after

        watched(watch, lambda: _write(_DRILLS, page, limit, chosen, choice))


def sync_problems(
    prefix: PrefixOption = "",
    filters: FilterOption = None,
    sort: SortOption = "",
    limit: LimitOption = _LIMIT,
    output: OutputOption = OutputFormat.TABLE,
    watch: WatchOption = None,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    as_json: JsonOption = False,
) -> None:
    """List the groups for which offsets can't be published, with why and what to do."""
    choice, chosen = choice_of(filters, sort), output_of(output, as_json=as_json)
    with connect(config, service, tls_ca, timeout_ms) as client:

        def page(after: str, most: int) -> tuple[Sequence[Row], str]:
            answer = client.list_sync_problems(prefix=prefix, after=after, limit=most)
            rows = [
                {"group": item["group"], "since_ms": item["since_ms"], "count": item["count"], **problem}
                for item in _rows(answer.groups)
                for problem in item["problems"]
            ]
            return rows, answer.next_after

        def show() -> None:
            rows, more = collected(page, limit, choice)
            _PROBLEMS.write(rows, chosen, more=more)
            if chosen in {OutputFormat.TABLE, OutputFormat.WIDE}:
                answer = client.list_sync_problems(limit=1)
                console().print(sync_job_line(answer), markup=False, highlight=False)

        watched(watch, show)


def sync_job_line(answer: pb.ListSyncProblemsResponse) -> str:
    """How the sync job is, as a sentence."""
    if not answer.HasField("job"):
        return "the sync job has not told of itself: is it running? (parallax sync, or parallax replicate --with-sync)"
    job = answer.job
    said = f"the sync job ({job.owner}) ended its last cycle {seconds(job.age_ms)} ago: "
    if job.problem:
        return f"{said}{job.problem}"
    away = f"; away: {', '.join(job.away)}" if job.away else ""
    return f"{said}{job.groups} groups, {job.groups_with_problems} with problems{away}"


def _every_route(client: OffsetClient) -> list[pb.RouteReplication]:
    found: list[pb.RouteReplication] = []
    answer = client.list_replication()
    while True:
        found += answer.routes
        if not answer.next_after:
            return found
        answer = client.list_replication(after=answer.next_after)


def _write(
    listing: RowListing,
    page: Callable[[str, int], tuple[Sequence[Row], str]],
    limit: int,
    output: OutputFormat,
    choice: EntryChoice,
    below: Callable[[Sequence[Row]], None] = lambda _rows: None,
) -> None:
    rows, more = collected(page, limit, choice)
    listing.write(rows, output, more=more)
    if output in {OutputFormat.TABLE, OutputFormat.WIDE}:
        below(rows)


def _say_remedies(rows: Sequence[Row]) -> None:
    """Why partitions are stopped and what to do, each said once."""
    places: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["reason"]:
            place = f"{row['route']} {row['topic']}-{row['partition']}"
            places.setdefault((row["reason"], row["remedy"]), []).append(place)
    for (reason, remedy), at in places.items():
        console().print(f"stopped: {', '.join(at)}: {reason}", style="red", markup=False, highlight=False)
        console().print(f"  what to do: {remedy}", markup=False, highlight=False)


def _rows(messages: Sequence[Message]) -> list[Row]:
    return [to_json(message) for message in messages]


def _word(name: str) -> Callable[[Row], Any]:
    return lambda row: row[name]


def _age(name: str) -> Callable[[Row], Any]:
    return lambda row: seconds(row[name])


def _moment(name: str) -> Callable[[Row], Any]:
    def cell(row: Row) -> str | None:
        at_ms = row[name]
        return None if not at_ms else f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S}Z"

    return cell


def _decision(name: str) -> Callable[[Row], Any]:
    def cell(row: Row) -> Any:
        primary = row["primary"]
        decision = None if primary is None else primary["decision"]
        return None if decision is None else decision[name]

    return cell


def _sync(name: str) -> Callable[[Row], Any]:
    return lambda row: None if row["sync"] is None else row["sync"][name]


def _outcome(word: str | None) -> str | None:
    return None if word == "OUTCOME_UNSPECIFIED" else word


def _reasons(row: Row) -> str | None:
    sync = row["sync"]
    return (
        None if sync is None else ", ".join(f"{item['reason']} {item['count']}" for item in sync["reasons"])
    )


def _verdict(row: Row) -> str | None:
    """OK, WARN, REWIND, STALL or STOP; None: it is not known."""
    found = row["lag_verdict"]
    if found is None or found["state"] == "LAG_STATE_UNKNOWN":
        return None
    return str(found["state"].removeprefix("LAG_"))


def _group_style(row: Row) -> str | None:
    primary, sync = row["primary"], row["sync"]
    if (primary is not None and (primary["dual_active"] or primary["problem"])) or (sync and sync["problem"]):
        return "bold red"
    return "yellow" if _verdict(row) in {"REWIND", "STALL", "STOP"} else None


def _shards(row: Row) -> str | None:
    return None if row["shards"] is None else f"{row['shards_running']}/{row['shards']}"


def _state(name: str) -> Callable[[Row], Any]:
    """A state as a word: ROUTE_PARTLY_STOPPED is "partly stopped"."""

    def cell(row: Row) -> str:
        word = row[name]
        for prefix in ("ROUTE_STATE_", "PARTITION_STATE_", "ROUTE_", "PARTITION_"):
            word = word.removeprefix(prefix)
        return str(word.lower().replace("_", " "))

    return cell


def _route_style(row: Row) -> str | None:
    return {
        "ROUTE_COPYING": None,
        "ROUTE_WAITING": "yellow",
        "ROUTE_STATE_UNKNOWN": "yellow",
    }.get(row["state"], "bold red")


_GROUPS = [
    ListColumn("~group", _word("group")),
    ListColumn("mode", _decision("mode")),
    ListColumn("primary", _decision("region")),
    ListColumn("stage", _decision("stage")),
    ListColumn("outcome", lambda row: _outcome(_sync("outcome")(row))),
    ListColumn(">seen ago", lambda row: seconds(_sync("age_ms")(row))),
    ListColumn("cluster", _decision("cluster"), wide=True),
    ListColumn(">fencing number", _decision("fencing_number"), wide=True),
    ListColumn("~active at", lambda row: ", ".join(_sync("active_at")(row) or ()), wide=True),
    ListColumn("~what was done", _reasons, wide=True),
]
_ROUTES = RowListing(
    [
        ListColumn("route", _word("route")),
        ListColumn("state", _state("state")),
        ListColumn(">lag", _word("lag_records")),
        ListColumn(">records/s", _word("records_per_s")),
        ListColumn(">latency ms", _word("latency_ms")),
        ListColumn(">index lag ms", _word("index_lag_ms")),
        ListColumn(">shards", _shards),
        ListColumn(">partitions", _word("partitions")),
        ListColumn(">stopped", _word("partitions_stopped")),
        ListColumn(">told ago", _age("age_ms")),
        ListColumn("~owner", _word("owner"), wide=True),
        ListColumn(">records", _word("records"), wide=True),
        ListColumn(">bytes", _word("bytes"), wide=True),
    ],
    lambda row: row["route"],
    "no route fits: parallax regions shows what is configured",
    _route_style,
)
_PARTITIONS = RowListing(
    [
        ListColumn("route", _word("route")),
        ListColumn("~topic", _word("topic")),
        ListColumn(">partition", _word("partition")),
        ListColumn("state", _state("state")),
        ListColumn(">lag", _word("lag_records")),
        ListColumn(">latency ms", _word("latency_ms")),
        ListColumn(">watermark age", _age("watermark_age_ms")),
        ListColumn(">shard", _word("shard"), wide=True),
        ListColumn(">source next offset", _word("source_next_offset"), wide=True),
        ListColumn(">records", _word("records"), wide=True),
        ListColumn("~reason", _word("reason"), wide=True),
        ListColumn("~remedy", _word("remedy"), wide=True),
    ],
    lambda row: f"{row['route']}/{row['topic']}-{row['partition']}",
    "no partition fits",
    lambda row: "bold red" if row["state"] == "PARTITION_STOPPED" else None,
)
_MOVES = RowListing(
    [
        ListColumn("started", _moment("started_at_ms")),
        ListColumn("~group", _word("group")),
        ListColumn("from", _word("origin")),
        ListColumn("to", _word("target")),
        ListColumn("kind", _word("kind")),
        ListColumn("state", _word("state")),
        ListColumn("step", _word("step"), wide=True),
        ListColumn(">partitions", lambda row: row["partitions"] if row["step"] else None),
        ListColumn("~problem", _word("problem")),
        ListColumn("updated", _moment("updated_at_ms"), wide=True),
        ListColumn(">fencing number", _word("fencing_number"), wide=True),
        ListColumn("move", _word("move_id"), wide=True),
    ],
    lambda row: row["move_id"],
    "nothing was moved yet: parallax failover GROUP --to REGION shows a plan",
    lambda row: {"interrupted": "bold red", "running": "yellow"}.get(row["state"]),
)
_DRILLS = RowListing(
    [
        ListColumn("started", _moment("started_at_ms")),
        ListColumn("~group", _word("group")),
        ListColumn("from", _word("origin")),
        ListColumn("to", _word("to")),
        ListColumn("ending", _word("ending")),
        ListColumn(">lost", _word("lost_records")),
        ListColumn(">repeated", _word("repeated_records")),
        ListColumn(">RTO ms", lambda row: ", ".join(str(leg["rto_ms"] or "-") for leg in row["legs"])),
        ListColumn(">RPO", lambda row: ", ".join(str(leg["rpo_records"]) for leg in row["legs"])),
        ListColumn("~problem", _word("problem")),
        ListColumn(">took", _age("took_ms"), wide=True),
        ListColumn("drill", _word("drill_id"), wide=True),
    ],
    lambda row: row["drill_id"],
    "nothing was practised yet: parallax drill",
    lambda row: {"failed": "bold red", "interrupted": "yellow"}.get(row["ending"]),
)
_PROBLEMS = RowListing(
    [
        ListColumn("~group", _word("group")),
        ListColumn("~topic", _word("topic")),
        ListColumn(">partition", lambda row: row["partition"] if row["topic"] else None),
        ListColumn("cluster", _word("cluster")),
        ListColumn("reason", _word("reason")),
        ListColumn("outcome", lambda row: _outcome(row["outcome"])),
        ListColumn("~what to do", _word("remedy")),
        ListColumn("~problem", _word("problem"), wide=True),
        ListColumn("since", _moment("since_ms"), wide=True),
    ],
    lambda row: row["group"],
    "nothing is kept from being published",
)

__all__ = ["drills", "groups", "moves", "partitions", "replication", "sync_job_line", "sync_problems"]
