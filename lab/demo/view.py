"""The live view, and the final tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleRenderable, Group, RichCast
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lab.demo.gauges import ClusterGauge, Gauges
from lab.demo.groups import DemoGroup
from lab.demo.options import ONE_MEMBER
from lab.workload.journal import Journal
from lab.workload.playing import report_table, show_verdict
from lab.workload.topics import total

_REFRESH_PER_S = 4
_REMARKS_SHOWN = 6


class DemoView:
    """What there is to see: filled in as the demonstration goes on."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.gauges: Gauges | None = None
        self.groups: Sequence[DemoGroup] = ()

    def __rich__(self) -> ConsoleRenderable | RichCast:
        parts: list[ConsoleRenderable | RichCast] = [self._steps()]
        if self.gauges is not None:
            parts.append(self._clusters(self.gauges))
        if self.gauges is not None and self.groups:
            parts.append(self._groups(self.gauges))
        parts.extend(Text(line, style="dim") for line in self.journal.remarks[-_REMARKS_SHOWN:])
        return Group(*parts)

    def line(self) -> str:
        """The same in one line, for output that is not a terminal."""
        if self.gauges is None:
            return ""
        clusters = ", ".join(
            f"{gauge.name} {gauge.per_s:,.0f}/s" if gauge.answers else f"{gauge.name} away"
            for gauge in self.gauges.clusters.values()
        )
        groups = "; ".join(
            f"{group.name} in {group.region}: {group.delivered:,} delivered, lag {self._lag(group, self.gauges):,}, "
            f"pending {self.gauges.groups[group.name].pending_records:,}"
            for group in self.groups
        )
        return f"{clusters}; {groups}" if groups else clusters

    def _steps(self) -> Table:
        table = Table.grid(padding=(0, 1))
        table.add_row("", Text(f"Parallax demonstration  {self.journal.clock()}", style="bold"), "")
        for step in self.journal.steps:
            if step.took_s is None:
                table.add_row(Text("▶", style="yellow"), Text(step.text, style="yellow"), "")
            else:
                mark = Text("✘", style="red") if step.failed else Text("✔", style="green")
                table.add_row(mark, step.text, Text(f"{step.took_s:.1f} s", style="dim"))
        return table

    def _clusters(self, gauges: Gauges) -> Table:
        table = Table(box=box.SIMPLE_HEAD, title="clusters", title_justify="left", title_style="bold")
        for heading in ("cluster", "end offsets", "offsets/s", "state"):
            table.add_column(heading, justify="left" if heading in ("cluster", "state") else "right")
        for gauge in gauges.clusters.values():
            state = Text("up", style="green") if gauge.answers else Text("does not answer", style="bold red")
            table.add_row(gauge.name, f"{total(gauge.ends):,}", f"{gauge.per_s:,.0f}", state)
        return table

    def _groups(self, gauges: Gauges) -> Table:
        table = Table(box=box.SIMPLE_HEAD, title="groups", title_justify="left", title_style="bold")
        for heading in (
            "group",
            "reads in",
            "delivered",
            "records/s",
            "lag",
            "would resume in",
            "at offsets",
        ):
            table.add_column(heading, justify="left" if heading in ("group", "at offsets") else "right")
        for heading in ("skip ranges", "pending", "outcome"):
            table.add_column(heading, justify="left" if heading == "outcome" else "right")
        for group in self.groups:
            gauge = gauges.groups[group.name]
            offsets = " ".join(
                f"{number}:{offset:,}" for number, offset in sorted(gauge.resume_offsets.items())
            )
            table.add_row(
                group.name,
                group.region,
                f"{group.delivered:,}",
                f"{group.per_s():,.0f}",
                f"{self._lag(group, gauges):,}",
                gauge.to,
                offsets,
                f"{gauge.skip_ranges:,}",
                f"{gauge.pending_records:,}",
                gauge.outcome,
            )
        return table

    @staticmethod
    def _lag(group: DemoGroup, gauges: Gauges) -> int:
        return lag_of(group, gauges.clusters[f"aggregate-{group.region}"])


def lag_of(group: DemoGroup, cluster: ClusterGauge) -> int:
    """Offsets between a group's positions and the ends, as last seen; partitions unheard of don't count."""
    return sum(max(0, cluster.ends.get(number, 0) - offset) for number, offset in group.next_offsets.items())


def live(stage: DemoView, console: Console) -> Live:
    """The live view of a terminal, drawn by a thread of its own."""
    return Live(stage, console=console, refresh_per_second=_REFRESH_PER_S, transient=False)


def show_report(console: Console, report: Mapping[str, Any]) -> None:
    """The tables at the end."""
    console.print(_outcome_table(report))
    console.print(_alternatives_table(report))
    facts = Table.grid(padding=(0, 2))
    for label, key in (
        ("records produced", "produced_records"),
        ("pairs of records that the aggregates hold in opposite order", "inversions"),
        ("records that FailoverConsumers skipped", "skipped_records"),
        ("records consumed in a, not yet in b, when the group failover moved", "pending_records"),
        ("records that only region a had until it returned (RPO)", "rpo_records"),
        ("of these, arrived once after its return", "rpo_arrived_records"),
    ):
        facts.add_row(label, f"{report[key]:,}")
    facts.add_row(
        "to start a command, just before the failover", f"{report['command_start_ms'] / 1_000:.1f} s"
    )
    if report["replicator_died"]:
        label = f"the index may have missed the last {report['unindexed_ms_at_most']} ms; read again at most"
        bounds = [(group, found["redelivered_at_most"]) for group, found in report["groups"].items()]
        facts.add_row(label, ", ".join(f"{group} {bound:,}" for group, bound in bounds if bound is not None))
    for cluster, copies in report["copies"].items():
        verdict = f"{copies['lost_records']} lost, {copies['duplicated_records']} duplicated, "
        facts.add_row(f"copied to {cluster}", verdict + f"{copies['disordered_records']} out of order")
    console.print(facts)
    twice = "no more read twice than was not indexed" if report["replicator_died"] else "nothing read twice"
    show_verdict(console, report, f"Nothing lost; {twice} by FailoverConsumers.")


def _outcome_table(report: Mapping[str, Any]) -> Table:
    table = report_table(
        "what the consumers saw",
        ("group", "move"),
        ("lost", "redelivered", "first new record after the command"),
    )
    for group, moves in report["groups"].items():
        for move in ("failover", "failback"):
            found = moves[move]
            took = "-" if found["failover_ms"] is None else f"{found['failover_ms'] / 1_000:.2f} s"
            table.add_row(
                group, move, f"{found['lost_records']:,}", f"{found['redelivered_records']:,}", took
            )
    return table


def _alternatives_table(report: Mapping[str, Any]) -> Table:
    table = report_table(
        "what other rules would have done to the failover group at the failover, on the same logs",
        ("rule",),
        ("lost", "redelivered"),
    )
    done = report["groups"][ONE_MEMBER]["failover"]
    table.add_row(
        Text("Parallax", style="bold"), f"{done['lost_records']:,}", f"{done['redelivered_records']:,}"
    )
    for rule, found in report["alternatives"].items():
        table.add_row(
            rule.replace("_", " "), f"{found['lost_records']:,}", f"{found['redelivered_records']:,}"
        )
    return table
