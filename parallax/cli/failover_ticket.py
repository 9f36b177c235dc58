"""Plans and results of moves as Markdown, for a change ticket."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from parallax.cli.output import known
from parallax.domain.rights import Principal
from parallax.failover.plan import MovePlan, Result

_NOT_REPEATED = {"output", "as_json", "dry_run", "execute"}
"""Of what the command was told: how it shows the plan, and whether it carries it out."""


def plans_ticket(
    plans: Sequence[MovePlan], *, accept_gaps: bool, operator: Principal, at: str, carried_out_by: str
) -> str:
    """What would happen to each group, why, and what carries it out.

    Args:
        plans: of one group, told partition by partition, or of many.
        accept_gaps: gaps are none that refuse a plan.
        operator: whose plan it is.
        at: when it was made, as text.
        carried_out_by: the command.
    """
    if not plans:
        return "No group has to move.\n"
    lines = [_title(plans), "", *_planned(operator, at), ""]
    lines += _table(
        (
            "group",
            "from",
            "to",
            "kind",
            "outcome",
            "partitions",
            "pending records",
            "read again by a plain client",
        ),
        (
            (
                plan.move.group,
                plan.move.origin,
                plan.move.target,
                plan.move.kind.value,
                "there already" if plan.arrived else plan.outcome.name,
                len(plan.partitions),
                plan.pending_records,
                known(plan.redelivery_records),
            )
            for plan in plans
        ),
        numbers=3,
    )
    if len(plans) == 1:
        lines += ["", *_partitions(plans[0])]
    for plan in plans:
        told = [
            *(f"it will wait: {words}" for words in plan.waits_for),
            *(f"not known: {words}" for words in plan.unknown),
            *(
                f"**refused**: {words}"
                for words in plan.refusals(accept_gaps=accept_gaps)
                if not plan.arrived
            ),
        ]
        if told:
            lines += [
                "",
                f"## {_cell(plan.move.group)}",
                "",
                *(f"- {_cell(words, bold=True)}" for words in told),
            ]
    lines += ["", "## Carrying it out", "", "```", carried_out_by, "```", ""]
    lines += ["A command that is interrupted is run again: it goes on where it was.", ""]
    return "\n".join(lines)


def results_ticket(results: Sequence[Result], *, operator: Principal, at: str) -> str:
    """What became of each group."""
    if not results:
        return "No group had to move.\n"
    lines = ["# What became of the move", "", *_planned(operator, at), ""]
    lines += _table(
        ("group", "from", "to", "ending", "why", "fencing number", "ms"),
        (
            (
                item.move.group,
                item.move.origin,
                item.move.target,
                item.ending.value.replace("_", " "),
                item.problem,
                item.fencing_number or "-",
                item.took_ms,
            )
            for item in results
        ),
        numbers=2,
    )
    return "\n".join([*lines, ""])


def command_line(context: typer.Context) -> str:
    """The command as it was typed, but that it carries the plan out."""
    words = shlex.split(context.command_path)
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in _NOT_REPEATED or source is None or source.name != "COMMANDLINE":
            continue
        given = context.params[name]
        for value in given if isinstance(given, list | tuple) else [given]:
            if parameter.param_type_name == "argument":
                words.append(str(value))
            else:
                option = max(parameter.opts, key=len)
                words += [option] if isinstance(value, bool) else [option, str(value)]
    return shlex.join([*words, "--execute"])


def _title(plans: Sequence[MovePlan]) -> str:
    if len(plans) == 1:
        move = plans[0].move
        return f"# Move {_cell(move.group)} from {move.origin} to {move.target}"
    return f"# Move {len(plans)} groups"


def _planned(operator: Principal, at: str) -> list[str]:
    return [f"By {_cell(operator.name)}, {at}.", *([f"\nWhy: {_cell(operator.why)}"] if operator.why else [])]


def _partitions(plan: MovePlan) -> list[str]:
    if not plan.partitions:
        return []
    return _table(
        (
            "topic",
            "outcome",
            "partition",
            "next offset",
            "resume",
            "records skipped",
            "pending",
            "read again",
        ),
        (
            (
                item.topic_partition.topic,
                item.outcome.name,
                item.topic_partition.partition,
                known(item.origin_next_offset),
                item.resume_offset,
                item.skip_records,
                item.pending_records,
                known(item.redelivery_records),
            )
            for item in plan.partitions
        ),
        numbers=6,
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: int) -> list[str]:
    """Rows of cells; the last so many columns are of numbers."""
    rules = ["---"] * (len(headings) - numbers) + ["--:"] * numbers
    cells = ([_cell(str(value)) for value in row] for row in rows)
    return [f"| {' | '.join(row)} |" for row in (headings, rules, *cells)]


def _cell(text: str, *, bold: bool = False) -> str:
    """Text that stays in its cell, and is no markup: a group's name may hold any character."""
    kept = "".join(
        f"\\{letter}" if letter in "\\|`<>[]_#" + ("" if bold else "*") else letter for letter in text
    )
    return " ".join(kept.split())
