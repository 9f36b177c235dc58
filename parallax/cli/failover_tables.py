"""Plans and results of moves, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from parallax.cli.output import known, outcome_word, table
from parallax.client.answer import ResumeAnswer
from parallax.failover.facts import MoveKind
from parallax.failover.plan import Ending, MovePlan, Result
from parallax.failover.rollback import RollbackPlan

_MOST_TOLD = 20
"""Sentences of one kind printed; JSON has all."""


def plan_values(plan: MovePlan, *, accept_gaps: bool) -> dict[str, Any]:
    """A plan as JSON types."""
    move = plan.move
    return {
        "group": move.group,
        "from": move.origin,
        "to": move.target,
        "primary": move.region,
        "kind": move.kind.value,
        "arrived": plan.arrived,
        "publisher_only": plan.publisher_only,
        "fencing_number": plan.fencing_number,
        "outcome": plan.outcome.name,
        "pending_records": plan.pending_records,
        "redelivery_records": plan.redelivery_records,
        "freshness_ms": plan.freshness_ms,
        "refusals": list(plan.refusals(accept_gaps=accept_gaps)),
        "gaps": [gap.words for gap in plan.gaps],
        "unknown": list(plan.unknown),
        "waits_for": list(plan.waits_for),
        "partitions": [_partition_values(item) for item in plan.partitions],
    }


def _partition_values(item: ResumeAnswer) -> dict[str, Any]:
    return {
        "topic": item.topic_partition.topic,
        "partition": item.topic_partition.partition,
        "next_offset": item.origin_next_offset,
        "basis": item.basis,
        "resume_offset": item.resume_offset,
        "outcome": item.outcome.name,
        "skip_ranges": len(item.skips),
        "skip_records": item.skip_records,
        "pending_records": item.pending_records,
        "redelivery_records": item.redelivery_records,
        "redelivery_at_most_offsets": item.redelivery_at_most_offsets,
        "freshness_ms": item.freshness_ms,
        "settled": item.settled,
    }


def result_values(result: Result, *, accept_gaps: bool) -> dict[str, Any]:
    """A result as JSON types."""
    return {
        "group": result.move.group,
        "from": result.move.origin,
        "to": result.move.target,
        "ending": result.ending.value,
        "fencing_number": result.fencing_number,
        "problem": result.problem,
        "took_ms": result.took_ms,
        "plan": None if result.plan is None else plan_values(result.plan, accept_gaps=accept_gaps),
    }


def show_plan(plan: MovePlan, out: Console, *, accept_gaps: bool) -> None:
    """One group's plan, partition by partition."""
    move = plan.move
    out.print(
        f"[bold]{escape(move.group)}[/]: {move.origin} to {move.target}, primary {move.region}, {move.kind.value}",
        highlight=False,
    )
    if plan.arrived:
        out.print("it is there already: nothing to do")
        return
    if plan.publisher_only:
        out.print(
            f"active/active: it goes on consuming in every region; region {move.region} publishes its results"
        )
        _sentences(out, "refused", plan.refusals(accept_gaps=accept_gaps), "red")
        return
    partitions = table(
        "topic | >partition | >next offset | >resume | outcome | >skip ranges | >skip records | >pending"
        " | >read again | >freshness ms"
    )
    for item in plan.partitions:
        partitions.add_row(
            item.topic_partition.topic,
            str(item.topic_partition.partition),
            known(item.origin_next_offset),
            str(item.resume_offset),
            outcome_word(item.outcome.value),
            str(len(item.skips)),
            str(item.skip_records),
            str(item.pending_records),
            known(item.redelivery_records),
            known(item.freshness_ms),
        )
    out.print(partitions)
    out.print(_foretold(plan), highlight=False)
    _sentences(out, "it will wait", plan.waits_for, "")
    _sentences(out, "not known", plan.unknown, "yellow")
    _sentences(out, "refused", plan.refusals(accept_gaps=accept_gaps), "red")


def _foretold(plan: MovePlan) -> str:
    again = "an unknown number of" if plan.redelivery_records is None else plan.redelivery_records
    if plan.move.kind is MoveKind.PLANNED and plan.pending_records:
        return (
            "a FailoverConsumer reads nothing twice; a plain client what stands under 'read again', of which "
            f"the {plan.pending_records} pending record(s) are waited for"
        )
    return f"a FailoverConsumer passes over what it has had; a plain client reads {again} record(s) again"


def show_plans(plans: Iterable[MovePlan], out: Console, *, accept_gaps: bool) -> None:
    """Many groups, a line each."""
    groups = table("group | >partitions | >pending | >read again | >freshness ms | outcome | ~refused")
    for plan in plans:
        refusals = plan.refusals(accept_gaps=accept_gaps)
        groups.add_row(
            plan.move.group,
            str(len(plan.partitions)),
            str(plan.pending_records),
            known(plan.redelivery_records),
            known(plan.freshness_ms),
            "there already" if plan.arrived else outcome_word(plan.outcome.value),
            "" if plan.arrived else "; ".join(refusals),
        )
    out.print(groups)


def show_results(results: Sequence[Result], out: Console) -> None:
    """What became of each group."""
    groups = table("group | ending | >fencing number | >read again | >ms | ~why")
    for result in results:
        good = result.ending in {Ending.MOVED, Ending.ALREADY_THERE}
        again = "-" if result.plan is None or not good else known(result.plan.redelivery_records)
        groups.add_row(
            result.move.group,
            Text(result.ending.value.replace("_", " "), "green" if good else "red"),
            str(result.fencing_number or "-"),
            again,
            str(result.took_ms),
            result.problem,
        )
    out.print(groups)


def rollback_values(plan: RollbackPlan) -> dict[str, Any]:
    """A rollback as JSON types."""
    return {
        "group": plan.move.group,
        "undoes": {"from": plan.move.origin, "to": plan.move.target, "step": plan.record.step.value},
        "obstacles": list(plan.obstacles),
        "restore": [
            {
                "cluster": cluster,
                "topic": item.topic,
                "partition": item.partition,
                "next_offset": commit.next_offset,
            }
            for cluster, commits in plan.restore.items()
            for item, commit in sorted(commits.items(), key=lambda pair: pair[0])
        ],
        "kept": [{"topic": item.topic, "partition": item.partition} for item in plan.kept],
    }


def show_rollback(plan: RollbackPlan, out: Console) -> None:
    """What going back would do."""
    move = plan.move
    out.print(
        f"[bold]{escape(move.group)}[/]: undo the move from {move.origin} to {move.target} "
        f"({plan.record.step.value.replace('_', ' ')})",
        highlight=False,
    )
    commits = table("cluster | topic | >partition | >put back")
    for row in rollback_values(plan)["restore"]:
        commits.add_row(row["cluster"], row["topic"], str(row["partition"]), str(row["next_offset"]))
    if commits.row_count:
        out.print(commits)
    else:
        out.print("every commit is as it was; only the primary changes")
    kept = (f"{item}: it had no commit in {move.target}; the one made there stays" for item in plan.kept)
    _sentences(out, "kept", tuple(kept), "")
    _sentences(out, "refused", plan.obstacles, "red")


def _sentences(out: Console, heading: str, sentences: Sequence[str], style: str) -> None:
    for text in sentences[:_MOST_TOLD]:
        out.print(f"{heading}: {text}", style=style or None, markup=False, highlight=False)
    if len(sentences) > _MOST_TOLD:
        out.print(f"{heading}: {len(sentences) - _MOST_TOLD} more (--json has all)", style=style or None)
