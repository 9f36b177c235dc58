"""Plays a schedule: kills, starts, moves and sets back for real, and waits until what lives goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import psutil

from lab.oracle.once import GroupRewind
from lab.stack.layout import SPARK
from lab.stack.links import WHOLE
from lab.stack.process import ProcessState
from lab.storm.apart import TopicApart
from lab.storm.facts import Happening
from lab.storm.members import StormGroup
from lab.storm.operating import Ended, GroupOffsets, Operator
from lab.storm.options import StormOptions
from lab.storm.schedule import CLUSTERS, PASSING, REGIONS, Act, ActKind, parts_of
from lab.workload.distance import NarrowLink, reader_of
from lab.workload.journal import Journal
from lab.workload.playing import Stack
from lab.workload.worker import WorkerError

_GOING_ON_S = 150.0
"""A group whose cluster was away for longer than a session (45 s) stands still for as long again once it is back: its members have
come anew, and the coordinator waits for those that they were."""
_GOING_ON_RECORDS = 20
_SETTLED_S = 90.0
_REPEATED_S = 180.0
_ASK_EVERY_S = 0.5
_INDEXED_S = 90.0
_INDEX_LAG_MS = 2_000
"""As long as a consumer waits for the index by itself."""
_DISK_S = 60.0
_REFUSED_S = 60.0
_RUN_LOGS = "parallax.runs"
_BYTES_PER_RECORD = 210
"""A trip with its key and headers, as it travels uncompressed."""
_NARROW_SHARE = 0.3
"""A route that is held back gets this share of what its region produces."""
_SLOW_SHARE = 0.4
"""A group that is slowed down gets this share of what all regions produce."""

Until = Callable[[Callable[[], bool], float, str], None]
"""Waits for a condition at most so many seconds; the text says what is waited for."""


class Player:
    """Plays acts one after another.

    Args:
        options: sizes.
        stack: up, with topic, producers and groups at work.
        groups: by name.
        offsets: of the groups.
        run: runs a `parallax` command.
        index_lag_ms: the age of the oldest run-log entry that is not indexed yet; None: nobody tells just now.
        journal: gets steps and remarks.
        until: how to wait.
    """

    def __init__(
        self,
        options: StormOptions,
        stack: Stack,
        groups: Mapping[str, StormGroup],
        offsets: GroupOffsets,
        run: Callable[[Sequence[str]], Ended],
        index_lag_ms: Callable[[], float | None],
        journal: Journal,
        until: Until,
    ) -> None:
        self._options, self._stack, self._groups = options, stack, groups
        self._offsets, self._operator = offsets, Operator(run, self._note)
        self._recreated, self._cut = (
            TopicApart(stack.bootstrap, REGIONS, f"{options.topic}-{name}", options.partitions)
            for name in ("recreated", "cut")
        )
        self._index_lag_ms = index_lag_ms
        self._journal, self._until = journal, until
        self._down: set[str] = set()
        self._narrowed: dict[str, NarrowLink] = {}
        self.happened: list[Happening] = []
        self.rewinds: dict[str, list[GroupRewind]] = {name: [] for name in groups}

    def play(self, act: Act, text: str) -> None:
        """Play one act, and wait until whatever lives goes on.

        Raises:
            WorkerError, StackError: something did not come up, move or go on in time.
        """
        self._calm(act.pause_s)
        with self._journal.step(text), self._happening(act):
            if act.to:
                self._leave(act)
            elif act.kind in PASSING:
                self._pass(act)
            else:
                self._strike(act)
            self._widen()
            self._await_flow()

    # --- faults -------------------------------------------------------------------------------------------

    def _leave(self, act: Act) -> None:
        """Groups go to another region, on purpose or because they have to."""
        self._fall_behind(act)
        match act.kind:
            case ActKind.PLANNED:
                self._widen()  # a move on purpose waits for what was consumed to arrive
                self._move(act, "failover", act.group, "--to", act.to)
            case ActKind.FAILBACK:
                self._widen()
                self._move(act, "failback", "--region", act.to)
            case ActKind.ALARM:
                self._move(act, "failover", act.group, "--to", act.to, "--disaster")
            case _:
                self._await_index()
                if act.kind is ActKind.CLUSTER_FROZEN:
                    self._freeze(act.part)
                else:
                    self._kill(act.part)
                self._move(act, "failover", "--region", act.region, "--to", act.to, "--disaster")

    def _pass(self, act: Act) -> None:
        """Something goes wrong for a while."""
        part = act.part
        match act.kind:
            case ActKind.DISK_FULL:
                self._fill_disk(part)
                self._start(part)
            case ActKind.AGGREGATE_KILLED | ActKind.STORE_KILLED:
                self._kill(part)
                self._calm(act.down_s)
                self._start(part)
            case ActKind.LINK_CUT | ActKind.LINK_ONE_WAY | ActKind.LINK_SLOW:
                self._stack.link(part, act.link or WHOLE)
                self._calm(act.down_s)
                self._stack.link(part, WHOLE)
            case ActKind.CLOCK_STEP | ActKind.RESOLVER_HANGS:
                self._stack.steer(
                    part, clock_ahead_ms=act.clock_ahead_ms, resolver_late_ms=act.resolver_late_ms
                )
                self._calm(act.down_s)
                self._stack.steer(part)
            case _:
                self._freeze(part)
                self._calm(act.down_s)
                self._start(part)

    def _strike(self, act: Act) -> None:
        """Anything else: what is killed stays down, and what is ordered is over when it is done."""
        match act.kind:
            case ActKind.RESTART:
                self._restart(act)
            case ActKind.REWIND:
                self._rewind(act)
            case ActKind.GROUP_DELETED:
                self._delete_group(act)
            case ActKind.RUN_LOG_DELETED:
                self._delete_run_log(act)
            case ActKind.TOPIC_RECREATED:
                self._note(self._recreated.recreate(act.region))
            case ActKind.TAIL_LOST:
                self._lose_tail(act)
            case ActKind.RIVAL_SYNC:
                self._operator.sync_beside(act.down_s)
            case ActKind.WORKER_KILLED:
                self._kill_worker()
            case ActKind.START:
                self._start(act.part)
            case _:
                self._kill(act.part)

    def _kill(self, part: str) -> None:
        self._stack.kill(part)
        self._down.update(parts_of(part))
        self._note(f"{part} is killed")

    def _freeze(self, part: str) -> None:
        self._stack.freeze(part)
        self._down.update(parts_of(part))
        self._note(f"{part} stands still")

    def _fill_disk(self, part: str) -> None:
        """Wait until the broker has ended by itself, as Kafka does with its only disk."""
        self._stack.fill_disk(part)
        self._down.add(part)
        started = time.monotonic()
        self._until(
            _now_and_then(lambda: part in died(self._stack)), _DISK_S, f"{part} runs on without a disk"
        )
        self._note(f"{part} has ended, {time.monotonic() - started:.1f} s after its disk was full")
        self._stack.kill(part)  # from now on it is one that was meant to end

    def _delete_run_log(self, act: Act) -> None:
        """Delete it, wait until the product says so, and do what docs/run-log.md tells.

        What the index lacks would come twice, at most as many records as the rebuild tells: here none shall.
        """
        self._await_index()
        self._offsets.delete_topic(f"aggregate-{act.target}", f"{_RUN_LOGS}.{act.region}")
        route = f"{act.region}->{act.target}"
        self._until(
            _now_and_then(lambda: self._operator.run_log_is_refused(route)),
            _REFUSED_S,
            f"nobody says that the run log of {route} is gone",
        )
        self._stack.stop(SPARK)
        self._down.add(SPARK)
        self._operator.rebuild_run_log(route)
        self._start(SPARK)

    def _lose_tail(self, act: Act) -> None:
        """Cut a topic short where it was copied to, and wait until all of it is there again."""
        self._cut.fill(act.region)
        self._kill(act.part)
        self._note(self._cut.cut(self._stack.layout.storage_path(act.part)))
        self._start(act.part)
        self._note(self._cut.go_on(act.region))

    def _kill_worker(self) -> None:
        """SIGKILL one of Spark's Python processes that work: they have no children themselves."""
        spark = next(item for item in self._stack.status()["processes"] if item["name"] == SPARK)
        workers: list[tuple[float, psutil.Process]] = []
        for process in psutil.Process(spark["pid"]).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # which a zombie is as well
                if "pyspark.worker" in process.cmdline() and not process.children():
                    workers.append((process.cpu_times().user, process))
        _, worker = max(workers, key=lambda item: item[0])
        worker.kill()
        self._note(f"process {worker.pid} of spark is killed, one of {len(workers)}")

    def _start(self, part: str) -> None:
        started = time.monotonic()
        self._stack.start(part)
        self._down.difference_update(parts_of(part))
        self._note(f"{part} answers after {time.monotonic() - started:.1f} s")

    def _fall_behind(self, act: Act) -> None:
        """The groups leave records behind, and the route to where they go falls behind the others."""
        for name in act.groups:
            self._groups[name].limit(self._options.per_s * _SLOW_SHARE)
        if act.narrow:
            link = NarrowLink(self._stack.bootstrap(f"regional-{act.region}"), reader_of(act.to))
            link.narrow(int(self._options.per_s_of(act.region) * _NARROW_SHARE * _BYTES_PER_RECORD))
            self._narrowed[act.region] = link
        self._calm(act.lag_s)

    def _move(self, act: Act, *arguments: str) -> None:
        self._operator.move(arguments, act.groups)
        for name in act.groups:
            self._groups[name].limit(None)

    def _restart(self, act: Act) -> None:
        if act.group:
            self._groups[act.group].restart_one()
            self._note(f"a new member of {act.group} has joined")
            return
        self._stack.stop(act.part)
        self._note(f"{act.part} is stopped")
        self._start(act.part)

    def _rewind(self, act: Act) -> None:
        """Set a group back, and wait until it has consumed all of that again."""
        cluster = f"aggregate-{act.region}"
        before = self._stop_settled(act)
        wanted = {number: max(0, offset - act.records) for number, offset in before.items()}
        self._offsets.set(cluster, act.group, wanted)
        self._set_back(act, before, wanted)

    def _delete_group(self, act: Act) -> None:
        """Delete a group wherever it is known, and wait until it has consumed everything again."""
        before = self._stop_settled(act)
        for cluster in (f"aggregate-{region}" for region in REGIONS):
            self._offsets.delete(cluster, act.group)
        self._set_back(act, before, dict.fromkeys(before, 0))

    def _stop_settled(self, act: Act) -> dict[int, int]:
        """Stop a group's members when it has dealt with its last move; its next offsets where it is primary.

        What its commits carry until then would be gone with them, and records that it had consumed elsewhere would come
        again as well.
        """
        group, cluster = self._groups[act.group], f"aggregate-{act.region}"
        self._until(
            _now_and_then(
                lambda: not any(commit.metadata for commit in self._offsets.read(cluster, act.group).values())
            ),
            _SETTLED_S,
            f"the commits of {act.group} in {cluster} still carry what its last move left",
        )
        group.stop()
        return {
            number: commit.next_offset for number, commit in self._offsets.read(cluster, act.group).items()
        }

    def _set_back(self, act: Act, before: Mapping[int, int], wanted: Mapping[int, int]) -> None:
        """Start a group that was set back, and wait until it is where it was."""
        group, cluster = self._groups[act.group], f"aggregate-{act.region}"
        at_ms = int(time.time() * 1_000)
        self.rewinds[act.group] += [
            GroupRewind(cluster, number, wanted[number], before[number], at_ms) for number in sorted(wanted)
        ]
        offsets = sum(before.values()) - sum(wanted.values())
        self._note(f"{act.group} is set back by {offsets:,} offsets in {len(wanted)} partitions of {cluster}")
        group.start()
        started = time.monotonic()

        def repeated() -> bool:
            now = self._offsets.read(cluster, act.group)
            return all(
                number in now and now[number].next_offset >= offset for number, offset in before.items()
            )

        self._until(
            _now_and_then(repeated),
            _REPEATED_S,
            f"{act.group} has not come back to where it was set back from",
        )
        self._note(f"{act.group} has consumed it again, {time.monotonic() - started:.1f} s later")

    # --- what is waited for -------------------------------------------------------------------------------

    def _widen(self) -> None:
        """Routes are held back no more, where their source lives."""
        for region in [name for name in self._narrowed if f"regional-{name}" not in self._down]:
            self._narrowed.pop(region).widen()

    def _await_index(self) -> None:
        """The index has what was copied until just now: what it lacks of a cluster or a run log that is gone would be read twice."""

        def up_to_date() -> bool:
            lag_ms = self._index_lag_ms()
            return lag_ms is not None and lag_ms <= _INDEX_LAG_MS

        if SPARK not in self._down:
            self._until(
                _now_and_then(up_to_date), _INDEXED_S, f"the index stays more than {_INDEX_LAG_MS} ms behind"
            )

    def _await_flow(self) -> None:
        """Every group goes on, unless something is down without which a partition may have to wait."""
        if self._down.intersection((*CLUSTERS, SPARK)):
            return
        before = {name: group.delivered for name, group in self._groups.items()}

        def late() -> list[str]:
            return [
                name
                for name, group in self._groups.items()
                if group.delivered < before[name] + _GOING_ON_RECORDS
            ]

        started = time.monotonic()
        otherwise = (
            f"not every group has been delivered {_GOING_ON_RECORDS} more records, though everything is up"
        )
        try:
            self._until(lambda: not late(), _GOING_ON_S, otherwise)
        except WorkerError as error:
            if names := died(self._stack):
                raise WorkerError(f"{', '.join(names)} ended by itself: {error}") from error
            self._tell_of(late())
            raise
        self._note(f"all groups go on, {time.monotonic() - started:.1f} s later")

    def _tell_of(self, groups: Sequence[str]) -> None:
        """Why they stand still can't be asked any more once the stack has stopped."""
        for name in groups:
            self._groups[name].tell_stacks()
            for region in REGIONS:
                self._note(self._offsets.describe(f"aggregate-{region}", name))

    def _calm(self, seconds: float) -> None:
        """Let the storm's own time pass; what breaks meanwhile is seen at once."""
        over_at = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= over_at, seconds + 1.0, "the clock stands still")

    @contextmanager
    def _happening(self, act: Act) -> Iterator[None]:
        found = Happening(act, self._journal.elapsed_s)
        self.happened.append(found)
        try:
            yield
        except Exception as error:
            found.problem = str(error)
            raise
        finally:
            found.took_s = self._journal.elapsed_s - found.began_s

    def _note(self, text: str) -> None:
        self._journal.remark(text)
        self.happened[-1].notes.append(text)


def died(stack: Stack) -> tuple[str, ...]:
    """The processes of a stack that ended though nobody wished it."""
    processes = stack.status()["processes"]
    return tuple(item["name"] for item in processes if item["state"] == ProcessState.DIED.value)


def _now_and_then(ask: Callable[[], bool]) -> Callable[[], bool]:
    """The same question, not asked as often as somebody looks: each time is a client of its own."""
    next_at = 0.0

    def asked() -> bool:
        nonlocal next_at
        if time.monotonic() < next_at:
            return False
        found = ask()
        next_at = time.monotonic() + _ASK_EVERY_S
        return found

    return asked
