"""The demonstration, step by step."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

from devstack.demo.gauges import Gauges
from devstack.demo.groups import FailoverGroup, PlainGroup
from devstack.demo.options import DemoOptions
from devstack.demo.verdict import Facts, Logs, missing_records, read_logs
from devstack.demo.view import Stage, lag_of
from devstack.oracle.logs import end_offsets
from devstack.workload.distance import FAR_READER, NarrowLink
from devstack.workload.journal import Journal
from devstack.workload.running import Stack
from devstack.workload.topics import create_topic, total, wait_for_topic
from devstack.workload.worker import Worker, WorkerError, wait_until
from parallax.domain.errors import ParallaxError

_TOPIC_S = 60.0
_BACKLOG_S = 120.0
_BEHIND_S = 90.0
_IN_B_S = 15.0
_CAUGHT_UP_S = 90.0
_PUBLISHED_S = 60.0
_DRAINED_S = 60.0
_QUIET_S = 2.0
_LOOK_EVERY_S = 0.1
"""Between two looks at something that only time brings."""
_LOOKS_BEFORE_ALARM = 3

_BYTES_PER_RECORD = 210
"""A trip with its key and headers, as it travels uncompressed."""
_NARROW_SHARE = 0.3
"""The far route gets this share of region a's rate in its busy stretches."""
_SLOW_SHARE = 0.85
"""The groups are held to this share of the flow in busy stretches, so that they have a lag."""
_LEAST_PENDING_S = 3.0
"""The kill waits until so many seconds' worth of region a's busy rate is pending: it must not have come by then."""
_LEAST_LAG_OFFSETS = 200


class Scenario:
    """One run.

    Args:
        options: sizes.
        stack: empty and up.
        journal: gets the steps.
        stage: shows what is going on.
    """

    def __init__(self, options: DemoOptions, stack: Stack, journal: Journal, stage: Stage) -> None:
        self._options, self._stack, self._journal, self._stage = options, stack, journal, stage
        self._failover = FailoverGroup("failover", stack, options.topic, options.directory / "failover")
        self._plain = PlainGroup("plain", stack, options.topic, options.directory / "plain")
        self._groups = (self._failover, self._plain)
        self._producers = [self._producer(region) for region in ("a", "b")]
        self._link = NarrowLink(stack.bootstrap("regional-a"), FAR_READER)
        self._moved_at_ms: dict[str, list[int]] = {group.name: [] for group in self._groups}

    def run(self) -> tuple[Facts, Logs]:
        """Play it; returns what the verdict needs.

        Raises:
            WorkerError, DevstackError: something that the demonstration needs did not work.
        """
        options = self._options
        with ExitStack() as clean_up:
            for worker in self._producers:
                clean_up.callback(worker.kill)
            for group in self._groups:
                clean_up.callback(group.kill)
            gauges = clean_up.enter_context(
                Gauges(
                    self._stack,
                    options.topic,
                    options.partitions,
                    tuple(group.name for group in self._groups),
                )
            )
            with self._journal.step(
                f"a backlog of {options.backlog_records:,} trips arrives in regions a and b"
            ):
                self._begin(gauges)
            with self._journal.step("two groups read aggregate-a"):
                self._read_backlog(gauges)
            with self._journal.step("trips go on, and the route from a to b falls behind"):
                self._fall_behind(gauges)
            with self._journal.step("aggregate-a is killed; both groups go on in region b"):
                lag_at_kill, ends = self._fail_over(gauges)
            with self._journal.step(f"they read in region b for {_IN_B_S:.0f} s"):
                self._watch(_IN_B_S / 2)
                self._link.widen()
                self._watch(_IN_B_S / 2)
            with self._journal.step("aggregate-a returns and catches up"):
                self._return(gauges)
            with self._journal.step("both groups go back to region a"):
                self._fail_back(gauges)
            with self._journal.step("producers stop, everybody drains"):
                acked, logs = self._drain()
            facts = Facts(
                acked_records=acked,
                folders={group.name: group.folder for group in self._groups},
                moved_at_ms=self._moved_at_ms,
                ends_at_failover=ends,
                lag_at_kill=lag_at_kill,
                skipped_records=self._failover.skipped_records,
                pending_records=self._failover.pending_at_move(1),
            )
            return facts, logs

    def _producer(self, region: str) -> Worker:
        options = self._options
        arguments = ["produce", "--bootstrap-servers", self._stack.bootstrap(f"regional-{region}")]
        arguments += [
            "--topic",
            options.topic,
            "--region",
            region,
            "--plan",
            options.plan_of(region).to_json(),
        ]
        return Worker(f"producer-{region}", arguments, options.directory / f"producer-{region}.err")

    def _begin(self, gauges: Gauges) -> None:
        options = self._options
        for region in ("a", "b"):
            create_topic(self._stack.bootstrap(f"regional-{region}"), options.topic, options.partitions)
        self._stage.gauges = gauges
        for worker in self._producers:
            worker.start()
        for region in ("a", "b"):
            bootstrap = self._stack.bootstrap(f"aggregate-{region}")
            took_s = wait_for_topic(bootstrap, options.topic, options.partitions, _TOPIC_S)
            self._journal.remark(f"aggregate-{region} has the topic, {took_s:.1f} s later")

    def _read_backlog(self, gauges: Gauges) -> None:
        self._stage.groups = self._groups
        for group in self._groups:
            group.start()
        backlog = self._options.backlog_records
        self._until(
            lambda: (
                all(group.delivered >= backlog for group in self._groups)
                and total(gauges.clusters["aggregate-b"].ends) >= backlog
            ),
            _BACKLOG_S,
            f"the backlog of {backlog:,} records was not read in {_BACKLOG_S:.0f} s",
        )

    def _fall_behind(self, gauges: Gauges) -> None:
        busy_per_s_of_a = 2 * self._options.per_s_of_a
        self._link.narrow(int(busy_per_s_of_a * _NARROW_SHARE * _BYTES_PER_RECORD))
        flow = busy_per_s_of_a + self._options.per_s - self._options.per_s_of_a
        for group in self._groups:
            group.limit(flow * _SLOW_SHARE)

        def behind() -> bool:
            lags = [lag_of(group, gauges.clusters["aggregate-a"]) for group in self._groups]
            pending = [gauges.groups[group.name].pending_records for group in self._groups]
            return min(lags) >= _LEAST_LAG_OFFSETS and min(pending) >= busy_per_s_of_a * _LEAST_PENDING_S

        self._until(behind, _BEHIND_S, f"the far route did not fall behind in {_BEHIND_S:.0f} s")

    def _fail_over(self, gauges: Gauges) -> tuple[dict[str, int], dict[int, int]]:
        aggregate_a = gauges.clusters["aggregate-a"]
        lags = {group.name: lag_of(group, aggregate_a) for group in self._groups}
        pending = {group.name: gauges.groups[group.name].pending_records for group in self._groups}
        self._note_move()
        self._stack.kill("aggregate-a")
        self._journal.remark(f"SIGKILL; lags {lags}, consumed but not in b yet {pending}")
        self._await_death()
        self._journal.remark("the operator sees that aggregate-a is gone, and orders the failover")
        for group in self._groups:
            group.fail_over("b")
        bootstrap = self._stack.bootstrap("aggregate-b")
        ends = end_offsets("aggregate-b", bootstrap, self._options.topic)
        for group in self._groups:
            group.await_move()
            self._journal.remark(f"{group.name} reads in region b")
        gauges.face("a")
        return lags, ends

    def _await_death(self) -> None:
        """What an operator's monitor does: look a few times before it raises the alarm."""
        host, port = self._stack.bootstrap("aggregate-a").split(",")[0].rsplit(":", 1)
        failed = 0
        while failed < _LOOKS_BEFORE_ALARM:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                failed = 0
            except OSError:
                failed += 1
            time.sleep(_LOOK_EVERY_S)

    def _return(self, gauges: Gauges) -> None:
        self._stack.start("aggregate-a")
        for group in self._groups:
            group.limit(None)

        def caught_up() -> bool:
            answers = [gauges.groups[group.name] for group in self._groups]
            return all(gauge.answer is not None and not gauge.pending_records for gauge in answers)

        self._until(caught_up, _CAUGHT_UP_S, f"aggregate-a has not caught up in {_CAUGHT_UP_S:.0f} s")

    def _fail_back(self, gauges: Gauges) -> None:
        self._note_move("failover")
        self._failover.fail_over("a")
        self._failover.await_move()
        self._journal.remark("failover reads in region a")
        self._note_move("plain")
        self._plain.stop()
        took_s = self._await_published(gauges)
        self._plain.go_back("a")
        self._plain.await_move()
        self._journal.remark(
            f"plain reads in region a; its offsets were published {took_s:.1f} s after it stopped"
        )
        gauges.face("b")

    def _await_published(self, gauges: Gauges) -> float:
        """Wait until the stopped group's committed offsets in a are what the offset service answers, or better."""
        due: dict[int, int] = {}

        def published() -> bool:
            if not due:
                try:
                    answer = gauges.ask(self._plain.name, origin="b", to="a")
                except ParallaxError:
                    return False
                due.update({item.partition: item.resume_offset for item in answer.offsets})
            found = self._plain.published("a", self._options.partitions)
            return bool(due) and all(found.get(number, -1) >= offset for number, offset in due.items())

        return wait_until(
            published, _PUBLISHED_S, f"the plain group's offsets were not published in {_PUBLISHED_S:.0f} s"
        )

    def _drain(self) -> tuple[int, Logs]:
        acked = 0
        for worker in self._producers:
            worker.send("stop")
        for worker in self._producers:
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

    def _watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._check()
            time.sleep(_LOOK_EVERY_S)

    def _until(self, reached: Callable[[], bool], within_s: float, otherwise: str) -> None:
        def reached_or_broken() -> bool:
            self._check()
            return reached()

        wait_until(reached_or_broken, within_s, otherwise)

    def _check(self) -> None:
        for worker in self._producers:
            worker.check()
            if not worker.running:
                raise WorkerError(f"{worker.name} has nothing left to send: the demonstration took too long")
        for group in self._groups:
            group.check()

    def _note_move(self, *groups: str) -> None:
        now_ms = int(time.time() * 1_000)
        for group in groups or tuple(self._moved_at_ms):
            self._moved_at_ms[group].append(now_ms)
