"""One storm: producers and groups at work, the acts of a schedule, and everybody drained."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from lab.oracle.logs import TopicLog, read_topic
from lab.storm.facts import DoubtfulTransaction, Happening, StormFacts
from lab.storm.members import StormGroup
from lab.storm.operating import GroupOffsets, Operator, index_lag, parallax_command
from lab.storm.options import GROUPS, StormOptions
from lab.storm.player import Player, died
from lab.storm.schedule import REGIONS, Act, Schedule
from lab.workload.delivered import read_group
from lab.workload.journal import Journal
from lab.workload.playing import Stack
from lab.workload.topics import create_topic, wait_for_topic
from lab.workload.worker import Worker, WorkerError, producer_of, wait_until

_TOPIC_S = 60.0
_BACKLOG_S = 120.0
_DONE_S = 90.0
_DRAINED_S = 90.0
_QUIET_S = 2.0


class Storm:
    """One run.

    Args:
        options: sizes.
        schedule: what happens.
        stack: empty and up.
        journal: gets the steps; its clock is the storm's.
    """

    def __init__(self, options: StormOptions, schedule: Schedule, stack: Stack, journal: Journal) -> None:
        self._options, self._schedule, self._stack, self._journal = options, schedule, stack, journal
        self._groups = {
            name: StormGroup(name, plan, stack, options.topic, options.directory / name)
            for name, plan in GROUPS.items()
        }
        self._producers = {region: self._producer(region) for region in REGIONS}
        self._producing = True
        self._run_command = parallax_command(stack.config_path)
        offsets = GroupOffsets(stack.bootstrap, options.topic, options.partitions)
        replicator = stack.layout.replicator_url(REGIONS[0])
        if replicator is None:
            raise WorkerError("nothing copies in this stack: a storm needs its services")
        self._player = Player(
            options,
            stack,
            self._groups,
            offsets,
            self._run_command,
            index_lag(replicator),
            journal,
            self._until,
        )

    @property
    def happened(self) -> list[Happening]:
        """The acts so far."""
        return self._player.happened

    def line(self) -> str:
        """Where things stand, in one line."""
        produced = ", ".join(
            f"{int(worker.status.get('acked', 0)) - int(worker.status.get('aborted', 0)):,} in {region}"
            for region, worker in self._producers.items()
        )
        groups = "; ".join(
            f"{group.name} at {group.clusters}: {group.delivered:,} delivered, {group.skipped:,} skipped"
            for group in self._groups.values()
        )
        return f"produced {produced}; {groups}"

    def run(self) -> StormFacts:
        """Play it; returns what the judge needs.

        Raises:
            WorkerError, StackError: something that has to work did not, or took too long.
        """
        with ExitStack() as clean_up:
            for worker in self._producers.values():
                clean_up.callback(worker.kill)
            for group in self._groups.values():
                clean_up.callback(group.kill)
            with self._journal.step(f"{self._options.records // 2:,} trips arrive, three groups read them"):
                self._begin()
            for act, text in self.acts():
                self._player.play(act, text)
            with self._journal.step("producers stop, everybody drains"):
                return self._drain()

    def acts(self) -> Iterator[tuple[Act, str]]:
        """What is played, each act with its line for the journal."""
        acts = self._schedule.acts
        for number, act in enumerate(acts, start=1):
            yield act, f"{number}/{len(acts)} {act.kind}: {act.told()}"

    def workers(self) -> list[Worker]:
        """Producers, and members of groups, as they are at the moment."""
        members = [worker for group in self._groups.values() for worker in group.workers()]
        return [*self._producers.values(), *members]

    def _producer(self, region: str) -> Worker:
        options, bootstrap = self._options, self._stack.bootstrap(f"regional-{region}")
        plan = options.plan_of(region)
        return producer_of(region, bootstrap, options.topic, plan, options.directory)

    def _begin(self) -> None:
        options = self._options
        for region in REGIONS:
            create_topic(self._stack.bootstrap(f"regional-{region}"), options.topic, options.partitions)
        for worker in self._producers.values():
            worker.start()
        operator = Operator(self._run_command, self._journal.remark)
        with ThreadPoolExecutor(len(GROUPS)) as threads:
            recorded = [
                threads.submit(operator.set_primary, name, plan.home) for name, plan in GROUPS.items()
            ]
            for region in REGIONS:
                wait_for_topic(
                    self._stack.bootstrap(f"aggregate-{region}"), options.topic, options.partitions, _TOPIC_S
                )
            for future in recorded:
                future.result()
        for group in self._groups.values():
            group.begin()
        for group in self._groups.values():
            group.await_assigned()
        backlog = sum(self._options.plan_of(region).phases[0].records for region in REGIONS)
        self._until(
            lambda: all(group.delivered >= backlog for group in self._groups.values()),
            _BACKLOG_S,
            f"not every group has been delivered the first {backlog:,} records",
        )

    def _drain(self) -> StormFacts:
        self._producing = False
        acked, doubtful = 0, list[DoubtfulTransaction]()
        for worker in self._producers.values():
            worker.send("stop")
        for region, worker in self._producers.items():
            figures = worker.wait_for("done", _DONE_S)
            worker.join(_DONE_S)
            acked += figures["acked"] - figures["aborted"]
            doubtful += [DoubtfulTransaction(region, *found) for found in figures["doubtful"]]
        told = acked, tuple(doubtful)
        give_up_at = time.monotonic() + _DRAINED_S
        while True:
            self._until_quiet(give_up_at)
            facts = self._facts(*told)
            missing = facts.missing()
            if not missing or time.monotonic() > give_up_at:
                break
            self._journal.remark(f"{missing:,} records have not arrived everywhere yet")
        for group in self._groups.values():
            group.stop()
        # What came while the groups were stopped counts as well.
        return self._facts(*told, facts)

    def _until_quiet(self, give_up_at: float) -> None:
        """Wait until no group has been delivered anything for a while."""
        seen, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            now = sum(group.delivered for group in self._groups.values())
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > _QUIET_S or time.monotonic() > give_up_at

        self._until(quiet, _DRAINED_S + _QUIET_S, "the groups do not come to rest")

    def _facts(
        self, acked: int, doubtful: tuple[DoubtfulTransaction, ...], logs: StormFacts | None = None
    ) -> StormFacts:
        """As things are; ``logs``: of these facts, as nobody produces any more."""
        return StormFacts(
            acked_records=acked,
            doubtful=doubtful,
            sources=self._read("regional") if logs is None else logs.sources,
            targets=self._read("aggregate") if logs is None else logs.targets,
            deliveries={name: read_group(group.folder) for name, group in self._groups.items()},
            rewinds=self._player.rewinds,
            skipped={name: group.skipped for name, group in self._groups.items()},
            told={name: group.told() for name, group in self._groups.items()},
            died=died(self._stack),
        )

    def _read(self, kind: str) -> dict[str, TopicLog]:
        names = [f"{kind}-{region}" for region in REGIONS]
        return {name: read_topic(name, self._stack.bootstrap(name), self._options.topic) for name in names}

    def _until(self, reached: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """Wait, as long as nothing that has to run has ended, and the storm's own time lasts."""
        left_s = self._options.at_most_s - self._journal.elapsed_s
        if left_s <= 0:
            raise WorkerError(
                f"the storm takes longer than {self._options.at_most_s:.0f} s; last: {otherwise}"
            )

        def reached_or_broken() -> bool:
            self._check()
            return reached()

        limit_s = min(within_s, left_s)
        wait_until(reached_or_broken, limit_s, f"{otherwise}; waited {limit_s:.0f} s")

    def _check(self) -> None:
        for worker in self._producers.values():
            worker.check()
            if self._producing and not worker.running:
                raise WorkerError(f"{worker.name} has nothing left to send: the storm took too long")
        for group in self._groups.values():
            group.check()
