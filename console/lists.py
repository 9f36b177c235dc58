"""The lists: groups, routes, partitions, moves, drills, what can't be synced, the configuration. A page of each at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.drilling import ENDINGS
from console.groups import MODES, optional, outcome_cell
from console.listing import Cell, Choice, Listing, age, columns, history, id_cell, link, moment
from console.moving import STATES, place_of
from console.reads import Reads
from parallax.client.messages import PartitionSort
from parallax.v1 import overview_pb2 as pb
from parallax.v1 import primaries_pb2

PAGE = 100
"""Rows of a page: what a screen and a reader bear."""
OLD_MS = 30_000
"""What a process told of itself longer ago than this is its last word, as the offset service says of drivers."""

ROUTE_STATES: Mapping[int, tuple[str, str]] = {
    pb.ROUTE_COPYING: ("copying", "good"),
    pb.ROUTE_WAITING: ("waiting", "warn"),
    pb.ROUTE_PARTLY_STOPPED: ("partly stopped", "bad"),
    pb.ROUTE_NOT_RUNNING: ("not running", "bad"),
    pb.ROUTE_SILENT: ("silent", "bad"),
    pb.ROUTE_STARTING: ("starting", "warn"),
    pb.ROUTE_STATE_UNKNOWN: ("unknown", "dim"),
}
"""Words and tones."""
_SORTS = {sort.value: sort.asked for sort in PartitionSort}
_PARTITION_STATES: Mapping[int, tuple[str, str]] = {
    pb.PARTITION_COPYING: ("copying", "good"),
    pb.PARTITION_WAITING: ("waiting", "warn"),
    pb.PARTITION_ABSENT: ("not at the source", "dim"),
    pb.PARTITION_STOPPED: ("stopped", "bad"),
    pb.PARTITION_STATE_UNKNOWN: ("unknown", "dim"),
}
_CHOSEN_STATES = {
    "stopped": pb.PARTITION_STOPPED,
    "waiting": pb.PARTITION_WAITING,
    "copying": pb.PARTITION_COPYING,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What narrows a list, as its URL has it.

    Attributes:
        prefix: names that begin so.
        after: where the page begins.
        group: moves of this group alone.
        state: partitions in this state alone.
        sort: ``name``, ``lag``: the greatest first; otherwise those that are stopped, then by lag.
        route: whose partitions.
    """

    prefix: str = ""
    after: str = ""
    group: str = ""
    state: str = ""
    sort: str = ""
    route: str = ""
    now_ms: int = field(default=0, compare=False)

    def parameters(self, *names: str) -> dict[str, str]:
        """Those of the list, with the page's beginning."""
        return {name: str(getattr(self, name)) for name in (*names, "after") if getattr(self, name)}


def groups(reads: Reads, asked: Asked) -> Listing:
    """Every group that anything is known of."""
    answer = reads.list_groups(prefix=asked.prefix, after=asked.after, limit=PAGE)
    return Listing(
        columns=columns(
            "group Group | =primary Primary | mode Mode | stage Stage | outcome Worst outcome | =active_at Consumes at | >partitions Partitions"
            " | since Since | age Seen"
        ),
        rows=tuple(_group(item, asked.now_ms) for item in answer.groups),
        empty=none_of(
            asked.prefix, "group", "No group is known: one is once it has committed on an aggregate cluster."
        ),
        command="" if asked.prefix else "parallax drill",
        path="/groups",
        parameters=asked.parameters("prefix"),
        next_after=answer.next_after,
        choices=(Choice("prefix", "Names that begin with", asked.prefix),),
    )


def none_of(prefix: str, what: str, otherwise: str) -> str:
    """What is said where a list has no row."""
    return f"No {what} of a name that begins with {prefix}." if prefix else otherwise


def _group(item: pb.GroupSummary, now_ms: int) -> tuple[Cell, ...]:
    name = Cell(item.group, link=link("/group", name=item.group))
    made = item.primary.decision if item.primary.HasField("decision") else None
    primary, mode = (Cell(None),) * 2 if made is None else (Cell(made.region), Cell(MODES.get(made.mode)))
    stage = Cell(None)
    if item.primary.problem:
        primary = Cell("unreadable", tone="bad", note=item.primary.problem)
    elif item.primary.dual_active:
        primary = Cell("dual active", tone="bad")
    elif made is not None:
        moving = made.stage == primaries_pb2.MOVING
        stage = Cell("moving" if moving else "settled", tone="warn" if moving else "")
    if not item.HasField("sync"):
        return (name, primary, mode, stage, *(Cell(None) for _ in range(5)))
    sync = item.sync
    since = sync.since_ms or None  # a row that can't be read tells its problem alone
    seen = optional(sync, "age_ms")
    old = seen is None or seen > OLD_MS
    return (
        name,
        primary,
        mode,
        stage,
        Cell("problem", tone="bad", note=sync.problem) if sync.problem else outcome_cell(sync.outcome),
        Cell(", ".join(sync.active_at)),
        Cell(None if since is None else sync.partitions),
        Cell(since, text=age(None if since is None else max(0, now_ms - since)) if now_ms else moment(since)),
        Cell(seen, text=f"{age(seen)} ago" if seen is not None else None, tone="warn" if old else ""),
    )


def replication(reads: Reads, asked: Asked) -> Listing:
    """Every route, as its driver told of it last."""
    answer = reads.list_replication(prefix=asked.prefix, after=asked.after, limit=PAGE)
    return Listing(
        columns=columns(
            "route Route | state State | >lag_records Lag | lag_history Lag until now | >records_per_s Records/s | >latency_ms Latency | >index_lag_ms Index behind | >partitions Partitions"
            " | >partitions_stopped Stopped | >shards_running Shards running | >records Records | >age_ms Told"
        ),
        rows=tuple(_route(item) for item in answer.routes),
        empty=none_of(asked.prefix, "route", "The configuration has no route."),
        path="/routes",
        parameters=asked.parameters("prefix"),
        next_after=answer.next_after,
    )


def _route(item: pb.RouteReplication) -> tuple[Cell, ...]:
    word, tone = ROUTE_STATES.get(item.state, ("unknown", "dim"))
    stopped = optional(item, "partitions_stopped")
    running, shards = optional(item, "shards_running"), optional(item, "shards")
    return (
        Cell(
            item.route,
            link=link("/route", route=item.route),
            note=f"{item.source_cluster} to {item.target_cluster}",
        ),
        Cell(word, tone=tone, note="; ".join(item.problems)),
        Cell(optional(item, "lag_records")),
        history([optional(sample, "lag_records") for sample in item.lag_history]),
        _rate(item),
        _duration(optional(item, "latency_ms")),
        _duration(optional(item, "index_lag_ms")),
        Cell(optional(item, "partitions")),
        Cell(
            stopped,
            tone="bad" if stopped else "",
            link=link("/route", route=item.route, state="stopped") if stopped else "",
        ),
        Cell(running, text=None if running is None else f"{running} of {shards}"),
        Cell(optional(item, "records")),
        _told(optional(item, "age_ms")),
    )


def _rate(item: pb.RouteReplication) -> Cell:
    if not item.HasField("records_per_s"):
        return Cell(None)
    return Cell(item.records_per_s, text=f"{item.records_per_s:,.1f}")


def _duration(milliseconds: int | None) -> Cell:
    return Cell(milliseconds, text=age(milliseconds))


def _told(milliseconds: int | None) -> Cell:
    if milliseconds is None:
        return Cell(None)
    return Cell(milliseconds, text=f"{age(milliseconds)} ago", tone="warn" if milliseconds > OLD_MS else "")


def partitions(reads: Reads, asked: Asked) -> Listing:
    """The partitions of a route."""
    answer = reads.list_replication_partitions(
        asked.route,
        prefix=asked.prefix,
        state=_CHOSEN_STATES.get(asked.state, pb.PARTITION_STATE_UNKNOWN),
        sort=_SORTS.get(asked.sort, pb.WORST_FIRST),
        after=asked.after,
        limit=PAGE,
    )
    told = f"{answer.total:,} partitions; " + (
        f"told {age(answer.age_ms)} ago."
        if answer.HasField("age_ms")
        else "no driver has told of the route: it has not run since the service can know, or was forgotten."
    )
    return Listing(
        columns=columns(
            "topic Topic | >partition Partition | state State | >lag_records Lag | >latency_ms Latency"
            " | >watermark_age_ms Newest row | >source_next_offset Source next offset | >records Records | >shard Shard"
        ),
        rows=tuple(_partition(item, asked.route) for item in answer.partitions),
        empty="No partition of this kind.",
        command=""
        if asked.prefix or asked.state
        else "parallax replicate --config parallax.yaml --region REGION",
        path="/route",
        parameters=asked.parameters("route", "prefix", "state", "sort"),
        next_after=answer.next_after,
        choices=(
            Choice("route", "Route", asked.route),
            Choice("prefix", "Topics that begin with", asked.prefix),
            Choice("state", "State", asked.state, (("", "any"), *((word, word) for word in _CHOSEN_STATES))),
            Choice(
                "sort",
                "Order",
                asked.sort,
                (("", "worst first"), ("lag", "greatest lag first"), ("name", "by name")),
            ),
        ),
        notes=(told,),
    )


def _partition(item: pb.PartitionReplication, route: str) -> tuple[Cell, ...]:
    word, tone = _PARTITION_STATES.get(item.state, ("unknown", "dim"))
    why = f"{item.reason}: {item.remedy}" if item.reason and item.remedy else item.reason or item.remedy
    return (
        Cell(
            item.topic,
            link=link("/partition", route=route, topic=item.topic, partition=str(item.partition)),
        ),
        Cell(item.partition, text=str(item.partition)),
        Cell(word, tone=tone, note=why),
        Cell(optional(item, "lag_records")),
        _duration(optional(item, "latency_ms")),
        _duration(optional(item, "watermark_age_ms")),
        Cell(optional(item, "source_next_offset")),
        Cell(item.records),
        Cell(item.shard, text=str(item.shard)),
    )


def moves(reads: Reads, asked: Asked) -> Listing:
    """Moves, the newest first."""
    answer = reads.list_moves(asked.group or None, after=asked.after, limit=PAGE)
    return Listing(
        columns=columns(
            "group Group | =started_at Began | =origin From | =target To | kind Kind | state State | step Step | >partitions Partitions"
            " | >fencing_number Fencing number | actor By | move_id Move"
        ),
        rows=tuple(_move(item, asked.now_ms) for item in answer.moves),
        empty=f"Group {asked.group} has never moved." if asked.group else "No group has moved.",
        command="parallax failover GROUP --to REGION",
        path="/moves",
        parameters=asked.parameters("group"),
        next_after=answer.next_after,
        choices=(Choice("group", "Group", asked.group),),
    )


def _move(item: pb.MoveSummary, now_ms: int) -> tuple[Cell, ...]:
    word, tone = STATES.get(item.state, ("unknown", "bad"))
    return (
        Cell(item.group, link=link("/group", name=item.group)),
        Cell(
            item.started_at_ms,
            text=moment(item.started_at_ms),
            note=f"its last step {age(max(0, now_ms - item.updated_at_ms))} ago",
        ),
        Cell(item.origin),
        Cell(item.target),
        Cell(item.kind, tone="warn" if item.kind == "disaster" else ""),
        Cell(item.state, text=word, tone=tone, note=item.problem, link=place_of(item)),
        Cell(item.step, text=item.step.replace("_", " ")),
        Cell(item.partitions if item.step else None),
        Cell(optional(item, "fencing_number")),
        Cell(item.actor or None),
        id_cell(item.move_id),
    )


def drills(reads: Reads, asked: Asked) -> Listing:
    """Drills, the newest first."""
    answer = reads.list_drills(after=asked.after, limit=PAGE)
    return Listing(
        columns=columns(
            "=started_at Began | ending Ending | origin From | to To | >took_ms Took | legs First new record after"
            " | >produced_records Produced | >lost_records Lost | >repeated_records Repeated | group Group | actor By | drill_id Drill"
        ),
        rows=tuple(_drill(item, asked.now_ms) for item in answer.drills),
        empty="No drill was ever run: nobody knows how a failover would go.",
        command="parallax drill",
        path="/drills",
        parameters=asked.parameters(),
        next_after=answer.next_after,
        act=("Practise a failover", "/drill"),
    )


def _drill(item: pb.DrillSummary, now_ms: int) -> tuple[Cell, ...]:
    lost, repeated = optional(item, "lost_records"), optional(item, "repeated_records")
    legs = [f"{leg.origin} to {leg.to} {age(optional(leg, 'rto_ms'))}" for leg in item.legs]
    return (
        Cell(
            item.started_at_ms,
            text=moment(item.started_at_ms),
            note=f"{age(max(0, now_ms - item.started_at_ms))} ago",
        ),
        Cell(
            item.ending,
            tone=ENDINGS.get(item.ending, ("", "bad"))[1],
            note=item.problem,
            link=link("/drilling", group=item.group, drill_id=item.drill_id) if item.group else "",
        ),
        Cell(item.origin),
        Cell(item.to),
        _duration(optional(item, "took_ms")),
        Cell("; ".join(legs)),
        Cell(optional(item, "produced_records")),
        Cell(lost, tone="bad" if lost else ""),
        Cell(repeated, tone="warn" if repeated else ""),
        Cell(item.group, link=link("/group", name=item.group) if item.group else ""),
        Cell(item.actor or None),
        id_cell(item.drill_id),
    )


def sync_problems(reads: Reads, asked: Asked) -> Listing:
    """Groups for which offsets can't be published: a row for each problem that is told."""
    answer = reads.list_sync_problems(prefix=asked.prefix, after=asked.after, limit=PAGE)
    return Listing(
        columns=columns(
            "group Group | place Where | =cluster Not published at | outcome Outcome | reason Reason | remedy What to do | since Since"
        ),
        rows=tuple(
            _sync_problem(found, problem, asked.now_ms)
            for found in answer.groups
            for problem in found.problems
        ),
        empty=none_of(asked.prefix, "group with a problem", "Every group's offsets are published.")
        if answer.HasField("job")
        else "The sync job has not told anything: nobody knows whether offsets are published.",
        command="" if answer.HasField("job") else "parallax sync --config parallax.yaml",
        path="/sync-problems",
        parameters=asked.parameters("prefix"),
        next_after=answer.next_after,
        choices=(Choice("prefix", "Names that begin with", asked.prefix),),
        notes=_job(answer),
    )


def _job(answer: pb.ListSyncProblemsResponse) -> tuple[str, ...]:
    if not answer.HasField("job"):
        return ()
    job = answer.job
    notes = [
        f"The sync job told {age(job.age_ms)} ago of {job.groups:,} groups, {job.groups_with_problems:,} of them with problems."
    ]
    if job.age_ms > OLD_MS:
        notes.append("That is its last word: it may not run any more.")
    if job.away:
        notes.append(f"It could not ask {', '.join(job.away)}.")
    if job.problem:
        notes.append(f"Its last cycle failed: {job.problem}")
    more = sum(found.count - len(found.problems) for found in answer.groups)
    return (*notes, *([f"{more:,} more problems of these groups are not shown."] if more else ()))


def _sync_problem(found: pb.GroupProblems, problem: pb.SyncProblem, now_ms: int) -> tuple[Cell, ...]:
    since = found.since_ms or None
    return (
        Cell(found.group, link=link("/group", name=found.group)),
        Cell(f"{problem.topic}-{problem.partition}" if problem.topic else "the whole group"),
        Cell(problem.cluster),
        outcome_cell(problem.outcome),
        Cell(problem.reason, note=problem.problem),
        Cell(problem.remedy),
        Cell(since, text=None if since is None else f"{age(max(0, now_ms - since))} ago"),
    )


def configuration(reads: Reads, asked: Asked) -> Listing:
    """What the service's configuration says; its secrets stay masked."""
    answer = reads.describe_configuration(prefix=asked.prefix)
    return Listing(
        columns=columns("key Key | value Value | given Set by you"),
        rows=tuple(
            (
                Cell(item.key),
                Cell(item.value, tone="dim" if item.secret else ""),
                Cell(item.given, text="yes" if item.given else "default", tone="" if item.given else "dim"),
            )
            for item in answer.settings
        ),
        empty=none_of(asked.prefix, "key", "The service tells no key."),
        path="/configuration",
        parameters=asked.parameters("prefix"),
        choices=(Choice("prefix", "Keys that begin with", asked.prefix),),
        notes=(
            f"Told by the service of region {answer.answered_in}; another region's file may say something else.",
        ),
    )
