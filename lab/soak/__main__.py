"""`python -m lab.soak --minutes 60`: steady load with a kill a minute; build/soak/report.json and picture.svg."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from lab.soak.logs import NewLeases
from lab.soak.picture import picture
from lab.soak.readings import (
    GrowthLimits,
    ProcessTrend,
    growing_processes,
    rows_per_minute,
    swelling_tables,
    trend,
    unjudged,
)
from lab.soak.scenario import NEVER_KILLED, Soak, SoakOptions
from lab.soak.watch import Watch
from lab.stack.errors import StackError
from lab.stack.layout import SPARK
from lab.stack.settings import CASSANDRA_SETTINGS
from lab.stack.spec import StackSpec
from lab.storm.facts import StormFacts
from lab.storm.options import GROUPS
from lab.storm.verdict import judge, story
from lab.workload.journal import Journal, Lines
from lab.workload.playing import STACK, Stack, options_of, play, report_table, running_stack, show_verdict
from offsetsvc.service import READ_POOL, READERS, REFRESH_POOL, REFRESHERS
from offsetsvc.transport.grpc_server import CALL_POOL, call_threads
from parallax.config.config import Config, load
from parallax.errors import ParallaxError

_LINE_EVERY_S = 30.0

_CASSANDRA_STAGES = ("Native-Transpor", "ReadStage", "MutationStage")
"""Of Cassandra's shared pool, as the kernel cuts their names. A thread of it keeps the name of the last stage that it worked for,
so that each stage may come to have the name on all of them."""
_NATIVE_TRANSPORT_REQUESTS = 128
"""Cassandra's default (native_transport_max_threads)."""


def pools_of(config: Config) -> Mapping[str, int]:
    """The pools that make a thread whenever more is under way than ever, and how many threads each has at most."""
    stages = ("concurrent_reads", "concurrent_writes")
    shared = _NATIVE_TRANSPORT_REQUESTS + sum(int(str(CASSANDRA_SETTINGS[key])) for key in stages)
    return {
        CALL_POOL: call_threads(config.service.max_concurrent_calls),
        READ_POOL: READERS,
        REFRESH_POOL: REFRESHERS,
    } | dict.fromkeys(_CASSANDRA_STAGES, shared)


def show_report(console: Console, report: Mapping[str, Any]) -> None:
    """What became of the records, and what of the processes."""
    table = report_table(
        f"{report['minutes']} minutes, {len(report['happened'])} faults",
        ("process",),
        ("minutes", "MiB", "MiB/h", "threads", "files", "pools"),
    )
    for name, found in report["processes"].items():
        figures = (
            ("minutes", ".0f"),
            ("memory_mib", ".0f"),
            ("memory_mib_per_h", "+.1f"),
            ("more_threads", "+.0f"),
            ("more_handles", "+.0f"),
        )
        pooled = ", ".join(f"{pool} {threads}" for pool, threads in found["pooled"].items())
        table.add_row(Text(name), *(format(found[key], form) for key, form in figures), pooled)
    console.print(table)
    groups = report_table("what the groups saw", ("group",), ("produced", "consumed", "lost", "redelivered"))
    for name, found in report.get("groups", {}).items():
        counted = ("produced", "consumed", "lost", "redelivered")
        groups.add_row(name, *(f"{found[key]:,}" for key in counted))
    console.print(groups)
    if report["restarted_brokers"]:
        console.print(
            f"{len(report['restarted_brokers'])} broker(s) said of themselves that they were out of step with their logs "
            f"and were restarted: {', '.join(report['restarted_brokers'])}."
        )
    show_verdict(console, report, "Nothing lost, nothing read twice, nothing grows.")


def _roots(stack: Stack, soak: Soak) -> dict[str, int]:
    found = {item["name"]: item["pid"] for item in stack.status()["processes"] if item["pid"]}
    return found | {worker.name: worker.pid for worker in soak.workers() if worker.pid is not None}


def _run(options: SoakOptions, console: Console) -> dict[str, Any]:
    def tell(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    journal = Journal(echo=tell)
    facts: StormFacts | None = None
    problem = ""
    with ExitStack() as stack_up:
        with journal.step("two regions start: four Kafka clusters, Cassandra, Spark, offset services"):
            stack = stack_up.enter_context(
                running_stack(
                    StackSpec(heap_touched=True),
                    options.directory / STACK,
                    journal.remark,
                    keep=options.keep,
                )
            )
        soak = Soak(options, stack, journal)
        config = load(stack.config_path)
        limits = GrowthLimits(pools=pools_of(config))
        watch = Watch(
            lambda: _roots(stack, soak),
            stack.cassandra_address(),
            config.cassandra.keyspace,
            lambda: journal.elapsed_s,
            leases=NewLeases(stack.layout.log_path(SPARK)),
        )
        try:
            with watch, Lines(journal, soak.line, tell, _LINE_EVERY_S):
                facts = soak.run()
        except (StackError, ParallaxError) as error:  # what happened until then is told all the same
            problem = str(error)
    watched_until_s = journal.elapsed_s
    report = story(options.storm.schedule, soak.happened) | {"minutes": options.minutes}
    del report["schedule"]
    report["restarted_brokers"] = soak.care.restarted
    trends: dict[str, ProcessTrend | None] = {
        name: trend(readings, limits, watch.begun.get(int(name.split()[-1]), ()))
        for name, readings in sorted(watch.processes.items())
    }
    report["processes"] = {name: asdict(found) for name, found in trends.items() if found is not None}
    report["rows_per_minute"] = {name: rows_per_minute(found) for name, found in sorted(watch.tables.items())}
    if facts is None:
        report["failures"] = [f"the soak ended early: {problem}"]
    else:
        with journal.step("the judge counts"):
            # Under its even load clusters differ in their order here and there at most: storms prove skipping.
            report |= judge(facts, options.storm.records, skipping=False)
    report["failures"] += [
        *growing_processes(trends.items(), limits),
        *swelling_tables(watch.tables, limits),
        *unjudged(NEVER_KILLED, trends, watch.tables, watched_until_s),
    ]
    report["seconds"] = round(journal.elapsed_s, 1)
    drawn = picture(watch.processes, watch.tables, journal.elapsed_s)
    (options.directory / "picture.svg").write_text(drawn, encoding="utf-8")
    return report


def main() -> int:
    """Run a soak; returns the exit code."""
    return play(options_of(SoakOptions(), "lab.soak", __doc__), tuple(GROUPS), _run, show_report)


if __name__ == "__main__":
    sys.exit(main())
