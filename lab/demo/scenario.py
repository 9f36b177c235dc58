"""The demonstration, step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from lab.demo.commands import Commands, shortest
from lab.demo.gauges import Gauges
from lab.demo.groups import FailoverGroup, PlainGroup
from lab.demo.options import ONE_MEMBER, PLAIN, THREE_MEMBERS, DemoOptions
from lab.demo.outage import Outage
from lab.demo.verdict import DemoFacts, Logs, missing_records, read_logs
from lab.demo.view import DemoView, lag_of
from lab.oracle.logs import end_offsets
from lab.workload.distance import FAR_READER, NarrowLink
from lab.workload.journal import Journal
from lab.workload.playing import Stack
from lab.workload.topics import create_topic, total, wait_for_topic
from lab.workload.worker import Worker, WorkerError, producer_of, wait_until

_TOPIC_S = 60.0
_BACKLOG_S = 240.0
_NEAR_END_S = 2.0
"""Groups have read the backlog once so many seconds' worth of records are left."""
_BEHIND_S = 90.0
_FLOW_S = 150.0
_IN_B_S = 8.0
_CAUGHT_UP_S = 90.0
_DRAINED_S = 60.0
_QUIET_S = 2.0
_LOOK_EVERY_S = 0.1
"""Between two looks at something that only time brings."""

_BYTES_PER_RECORD = 210
"""A trip with its key and headers, as it travels uncompressed."""
_LEAST_PENDING_S = 3.0
"""The kill waits until so many seconds' worth of region a's busy rate is pending: it must not have come by then."""


class _Squeeze(NamedTuple):
    """How routes and groups are held back before the kill.

    Attributes:
        far_share: the far route gets this share of region a's rate in its busy stretches.
        group_share: a group is held to this share of the flow in busy stretches, so that it has a lag.
        least_lag_s: the kill waits until each group has so many seconds' worth to read.
    """

    far_share: float
    group_share: float
    least_lag_s: float


_USUAL = _Squeeze(far_share=0.3, group_share=0.85, least_lag_s=0.3)
_WITHOUT_REPLICATOR = _Squeeze(far_share=0.2, group_share=0.6, least_lag_s=10.0)
"""Nothing new comes to region b until the replicator is back, so that groups that move need something to read there:
more than their consumers have fetched and deliver until they hear of the move."""

_FAILOVER = ("failover", "--region", "a", "--to", "b", "--execute", "--disaster")
_FAILBACK = ("failback", "--region", "a", "--execute")


class Scenario:
    """One run.

    Args:
        options: sizes.
        stack: empty and up.
        journal: gets the steps.
        stage: shows what is going on.
    """

    def __init__(self, options: DemoOptions, stack: Stack, journal: Journal, stage: DemoView) -> None:
        self._options, self._stack, self._journal, self._stage = options, stack, journal, stage
        topic, folder = options.topic, options.directory
        self._followers = tuple(
            FailoverGroup(name, stack, topic, folder / name, members=members)
            for name, members in ((ONE_MEMBER, 1), (THREE_MEMBERS, 3))
        )
        self._groups = (*self._followers, PlainGroup(PLAIN, stack, topic, folder / PLAIN))
        self._spec = stack.layout.spec
        self._producers = {region: self._producer(region) for region in self._spec.producing}
        self._link = NarrowLink(stack.bootstrap("regional-a"), FAR_READER)
        self._commands = Commands(stack.config_path, folder / "commands.err")
        self._commanded_at_ms: list[int] = []
        self._start_ms = 0

    def run(self) -> tuple[DemoFacts, Logs]:
        """Play it; returns what the verdict needs.

        Raises:
            WorkerError, StackError: something that the demonstration needs did not work.
        """
        options, step = self._options, self._journal.step
        with ExitStack() as clean_up:
            for worker in self._producers.values():
                clean_up.callback(worker.kill)
            for group in self._groups:
                clean_up.callback(group.kill)
            names = tuple(group.name for group in self._groups)
            gauges = clean_up.enter_context(Gauges(self._stack, options.topic, options.partitions, names))
            outage = clean_up.enter_context(
                Outage(
                    self._stack,
                    region="a",
                    other="b",
                    topic=options.topic,
                    partitions=options.partitions,
                    replicator_dies=options.replicator_dies,
                )
            )
            with step(f"a backlog of {options.backlog_records:,} trips arrives in {self._producing}"):
                self._begin(gauges)
            with step("three groups read aggregate-a"):
                self._read_backlog(gauges)
            with step("trips go on, and the route from a to b falls behind"):
                self._fall_behind(gauges)
            lag_at_kill = {
                group.name: lag_of(group, gauges.clusters["aggregate-a"]) for group in self._groups
            }
            with step(f"SIGKILL for region a: {outage.victims}"):
                self._lose_region(outage, gauges)
            with step(f"parallax {' '.join(_FAILOVER)}"):
                ends = self._ends_of("aggregate-b")
                self._move(_FAILOVER, to="b", cluster_lives=False)
            outage.restart_replicator()
            with step(self._reading_in_b):
                self._read_in_b(gauges)
            with step("region a returns and catches up"):
                self._return(gauges, outage)
            with step(f"parallax {' '.join(_FAILBACK)}"):
                self._move(_FAILBACK, to="a", cluster_lives=True)
                gauges.face("b")
                self._read_new_in("a", gauges)
            with step("producers stop, everybody drains"):
                acked, logs = self._drain()
            facts = DemoFacts(
                acked_records=acked,
                folders={group.name: group.folder for group in self._groups},
                acknowledged=self._acknowledged,
                commanded_at_ms=self._commanded_at_ms,
                command_start_ms=self._start_ms,
                ends_at_failover=ends,
                ends_at_return=outage.ends_at_return,
                returned_at_ms=outage.returned_at_ms,
                uncertain=outage.uncertain,
                lag_at_kill=lag_at_kill,
                skipped_records=sum(group.skipped_records for group in self._followers),
            )
            return facts, logs

    def _producer(self, region: str) -> Worker:
        options, bootstrap = self._options, self._stack.bootstrap(f"regional-{region}")
        plan = options.plan_of(region)
        acknowledged = self._acknowledged if region == "a" else None
        return producer_of(
            region, bootstrap, options.topic, plan, options.directory, acknowledged=acknowledged
        )

    @property
    def _acknowledged(self) -> Path:
        return self._options.directory / "producer-a" / "acknowledged.log"

    # --- the steps ----------------------------------------------------------------------------------------

    def _begin(self, gauges: Gauges) -> None:
        options = self._options
        for region in self._producers:
            create_topic(self._stack.bootstrap(f"regional-{region}"), options.topic, options.partitions)
        self._stage.gauges = gauges
        for worker in self._producers.values():
            worker.start()
        for region in self._spec.regions:
            bootstrap = self._stack.bootstrap(f"aggregate-{region}")
            took_s = wait_for_topic(bootstrap, options.topic, options.partitions, _TOPIC_S)
            self._journal.remark(f"aggregate-{region} has the topic, {took_s:.1f} s later")

    def _read_backlog(self, gauges: Gauges) -> None:
        self._stage.groups = self._groups
        for group in self._groups:
            group.start()
        options, near = self._options, gauges.clusters["aggregate-a"]
        backlog = options.backlog_records
        self._until(
            lambda: (
                all(group.delivered >= backlog for group in self._groups)
                and all(
                    worker.status.get("acked", 0) >= options.backlog_of(region)
                    for region, worker in self._producers.items()
                )
                # What a group reads late has come to b long since: nothing of it could be pending there.
                and all(lag_of(group, near) <= options.per_s * _NEAR_END_S for group in self._groups)
                and total(gauges.clusters["aggregate-b"].ends) >= backlog
            ),
            _BACKLOG_S,
            f"the backlog of {backlog:,} records was not read to its end in {_BACKLOG_S:.0f} s",
        )

    def _fall_behind(self, gauges: Gauges) -> None:
        options = self._options
        busy_per_s_of_a = 2 * options.per_s_of_a
        squeeze = _WITHOUT_REPLICATOR if options.replicator_dies else _USUAL
        self._link.narrow(int(busy_per_s_of_a * squeeze.far_share * _BYTES_PER_RECORD))
        flow = busy_per_s_of_a + options.per_s - options.per_s_of_a
        per_s = flow * squeeze.group_share
        for group in self._groups:
            group.limit(per_s)

        def behind() -> bool:
            lags = [lag_of(group, gauges.clusters["aggregate-a"]) for group in self._groups]
            pending = [gauges.groups[group.name].pending_records for group in self._groups]
            return (
                min(lags) >= per_s * squeeze.least_lag_s
                and min(pending) >= busy_per_s_of_a * _LEAST_PENDING_S
            )

        self._until(behind, _BEHIND_S, f"the far route did not fall behind in {_BEHIND_S:.0f} s")
        self._start_ms = self._commands.start_ms(_FAILOVER[0])

    def _lose_region(self, outage: Outage, gauges: Gauges) -> None:
        pending = {group.name: gauges.groups[group.name].pending_records for group in self._groups}
        outage.strike()
        self._journal.remark(f"consumed but not in b yet: {_listed(pending)}")
        outage.await_alarm()
        self._journal.remark("the operator sees that region a is gone")

    def _ends_of(self, cluster: str) -> Mapping[int, int]:
        return end_offsets(cluster, self._stack.bootstrap(cluster), self._options.topic)

    def _move(self, command: tuple[str, ...], *, to: str, cluster_lives: bool) -> None:
        """Move all groups by a command, doing for them what each needs of its operator."""
        for group in self._groups:
            group.leave(cluster_lives=cluster_lives)
        self._journal.remark(f"with PARALLAX_CONFIG={shortest(self._stack.config_path)}")
        self._commanded_at_ms.append(int(time.time() * 1_000))
        for result in self._commands.run(*command):
            plan = result["plan"] or {}
            self._journal.remark(
                f"{result['group']}: {result['ending']} in {result['took_ms'] / 1_000:.1f} s; pending "
                f"{plan.get('pending_records', 0):,}; a plain client reads {plan.get('redelivery_records', 0):,} again"
            )
        for group in self._groups:
            group.arrive(to)
        for group in self._groups:
            group.await_arrival()
            self._journal.remark(f"{group.name} reads in region {to}")

    @property
    def _producing(self) -> str:
        regions = " and ".join(self._producers)
        return f"regions {regions}" if len(self._producers) > 1 else f"region {regions}"

    @property
    def _reading_in_b(self) -> str:
        if self._options.b_stands_by:
            return f"the groups are in region b for {_IN_B_S:.0f} s, where nothing new comes while a is away"
        if self._options.replicator_dies:
            return "the replicator is started again, without region a; the groups read in region b"
        return f"the groups read in region b for {_IN_B_S:.0f} s"

    def _read_in_b(self, gauges: Gauges) -> None:
        gauges.face("a")
        for group in self._groups:
            group.limit(None)
        if not self._options.b_stands_by:
            self._read_new_in("b", gauges)
        until = time.monotonic() + _IN_B_S
        self._until(lambda: time.monotonic() >= until, 2 * _IN_B_S, "time stood still")

    def _read_new_in(self, region: str, gauges: Gauges) -> None:
        """Wait until something new has come to the region, and each group has got some of it."""
        cluster = f"aggregate-{region}"
        ends = total(self._ends_of(cluster))
        self._until(
            lambda: total(gauges.clusters[cluster].ends) > ends,
            _FLOW_S,
            f"nothing new came to {cluster} in {_FLOW_S:.0f} s",
        )
        delivered = [group.delivered for group in self._groups]
        self._until(
            lambda: all(
                group.delivered > before for group, before in zip(self._groups, delivered, strict=True)
            ),
            _FLOW_S,
            f"a group got nothing of what came to {cluster} in {_FLOW_S:.0f} s",
        )

    def _return(self, gauges: Gauges, outage: Outage) -> None:
        outage.end()
        self._link.widen()
        outage.await_replicator()

        def caught_up() -> bool:
            answers = [gauges.groups[group.name] for group in self._groups]
            return all(
                gauge.answer is not None and not gauge.problem and not gauge.pending_records
                for gauge in answers
            )

        self._until(caught_up, _CAUGHT_UP_S, f"aggregate-a has not caught up in {_CAUGHT_UP_S:.0f} s")
        if self._options.b_stands_by:
            self._read_new_in("b", gauges)

    def _drain(self) -> tuple[int, Logs]:
        acked = 0
        for worker in self._producers.values():
            worker.send("stop")
        for worker in self._producers.values():
            figures = worker.wait_for("done", _DRAINED_S)
            worker.join(_DRAINED_S)
            acked += figures["acked"] - figures["aborted"]
        folders = {group.name: group.folder for group in self._groups}
        give_up_at = time.monotonic() + _DRAINED_S
        while True:
            self._until_quiet(give_up_at)
            logs = read_logs(self._stack, self._options.topic)
            missing = missing_records(folders, logs)
            if not missing or time.monotonic() > give_up_at:
                break
            self._journal.remark(f"{missing:,} records have not arrived everywhere yet")
        for group in self._groups:
            group.stop()
        return acked, logs

    # --- waiting ------------------------------------------------------------------------------------------

    def _until_quiet(self, give_up_at: float) -> None:
        """Wait until no consumer has delivered anything for a while."""
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < _QUIET_S and time.monotonic() < give_up_at:
            now = sum(group.delivered for group in self._groups)
            if now != seen:
                seen, since = now, time.monotonic()
            for group in self._groups:
                group.check()
            time.sleep(_LOOK_EVERY_S)

    def _until(self, reached: Callable[[], bool], within_s: float, otherwise: str) -> None:
        def reached_or_broken() -> bool:
            self._check()
            return reached()

        wait_until(reached_or_broken, within_s, otherwise)

    def _check(self) -> None:
        for worker in self._producers.values():
            worker.check()
            if not worker.running:
                raise WorkerError(f"{worker.name} has nothing left to send: the demonstration took too long")
        for group in self._groups:
            group.check()


def _listed(figures: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {figure:,}" for name, figure in figures.items())
