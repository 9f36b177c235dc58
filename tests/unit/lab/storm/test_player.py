"""The player over a stack that obeys at once: what it orders, what it notes, what it waits for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from lab.oracle.once import GroupRewind
from lab.stack.links import LinkState
from lab.storm import player as module
from lab.storm.operating import CommitSeen, Ended
from lab.storm.options import GROUPS, StormOptions
from lab.storm.player import Player
from lab.storm.schedule import Act, ActKind
from lab.workload.journal import Journal
from lab.workload.worker import WorkerError


class World:
    """Stack, groups, offsets and commands; ``log`` says what was done to them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.flows = True
        self.index_lags_ms: list[float | None] = [0.0]
        self.states = {"aggregate-b": "ready"}
        self.commits = [{0: CommitSeen(500, ""), 1: CommitSeen(90, "")}]
        self.waited: list[str] = []
        self.groups = {name: Group(name, self) for name in GROUPS}
        self.player = Player(
            StormOptions(),
            self,  # type: ignore[arg-type] # these stand in for the real ones
            self.groups,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.run,
            self.index_lag_ms,
            Journal(),
            self.until,
        )

    def play(self, *acts: Act) -> list[str]:
        for act in acts:
            self.player.play(act, "an act")
        return self.log

    @property
    def layout(self) -> World:
        return self

    def storage_path(self, broker: str) -> str:
        return f"logs of {broker}"

    def bootstrap(self, cluster: str) -> str:
        return cluster

    def kill(self, part: str) -> None:
        self.log.append(f"kill {part}")

    def stop(self, part: str) -> None:
        self.log.append(f"stop {part}")

    def start(self, part: str) -> None:
        self.log.append(f"start {part}")

    def freeze(self, part: str) -> None:
        self.log.append(f"freeze {part}")

    def fill_disk(self, part: str) -> None:
        self.log.append(f"fill the disk of {part}")
        self.states[part] = "died"

    def status(self) -> Mapping[str, Any]:
        return {"processes": [{"name": name, "state": state} for name, state in self.states.items()]}

    def link(self, part: str, state: LinkState) -> None:
        self.log.append(f"link to {part}: {state.forth} {state.back} {state.round_trip_ms:.0f}")

    def steer(self, part: str, *, clock_ahead_ms: int = 0, resolver_late_ms: int = 0) -> None:
        self.log.append(f"steer {part}: {clock_ahead_ms} {resolver_late_ms}")

    def delete(self, cluster: str, group: str) -> None:
        self.log.append(f"delete {group} at {cluster}")

    def delete_topic(self, cluster: str, topic: str) -> None:
        self.log.append(f"delete topic {topic} at {cluster}")

    def run(self, arguments: Sequence[str]) -> Ended:
        self.log.append(" ".join(arguments))
        if arguments[0] == "sync":
            return Ended(0, "", "")
        if arguments[:2] == ["runlog", "check"]:
            return Ended(1, "[]", "")
        if arguments[:2] == ["runlog", "rebuild"]:
            return Ended(
                0, json.dumps({"partitions": [{"going_on": "exact"}], "records_twice_at_most": 0}), ""
            )
        moved = ["pair-a", "solo-a"] if "--region" in arguments else [arguments[1]]
        return Ended(
            0,
            json.dumps([{"group": name, "ending": "moved", "problem": "", "took_ms": 1} for name in moved]),
            "",
        )

    def index_lag_ms(self) -> float | None:
        self.log += ["look at the index"] if len(self.index_lags_ms) > 1 else []
        return self.index_lags_ms.pop(0) if len(self.index_lags_ms) > 1 else self.index_lags_ms[0]

    def read(self, _cluster: str, _group: str) -> Mapping[int, CommitSeen]:
        return self.commits.pop(0) if len(self.commits) > 1 else self.commits[0]

    def describe(self, cluster: str, group: str) -> str:
        return f"{group} at {cluster}: PREPARING_REBALANCING"

    def set(self, cluster: str, group: str, offsets: Mapping[int, int]) -> None:
        self.log.append(f"set {group} at {cluster} to {dict(offsets)}")

    def until(self, reached: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """Time passes at once."""
        self.waited.append(otherwise)
        if within_s > 30 and not any(reached() for _ in range(3)):
            raise WorkerError(otherwise)


class Group:
    def __init__(self, name: str, world: World) -> None:
        self._name, self._world, self._delivered = name, world, 0

    @property
    def delivered(self) -> int:
        self._delivered += 100 if self._world.flows else 0
        return self._delivered

    def limit(self, per_s: float | None) -> None:
        self._world.log.append(f"limit {self._name} to {per_s}")

    def tell_stacks(self) -> None:
        self._world.log.append(f"stacks of {self._name}")

    def stop(self) -> None:
        self._world.log.append(f"stop members of {self._name}")

    def start(self) -> None:
        self._world.log.append(f"start members of {self._name}")

    def restart_one(self) -> None:
        self._world.log.append(f"restart a member of {self._name}")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:

    class Link:
        def __init__(self, bootstrap_servers: str, client_id: str) -> None:
            self._name = f"{bootstrap_servers} for {client_id}"

        def narrow(self, _bytes_per_s: int) -> None:
            made.log.append(f"narrow {self._name}")

        def widen(self) -> None:
            made.log.append(f"widen {self._name}")

    class Apart:
        def __init__(self, _bootstrap: object, _regions: object, topic: str, _partitions: int) -> None:
            self._topic = topic

        def fill(self, region: str) -> None:
            made.log.append(f"fill {self._topic} in {region}")

        def cut(self, storage: str) -> str:
            made.log.append(f"cut {self._topic} in {storage}")
            return "cut"

        def go_on(self, region: str) -> str:
            made.log.append(f"await {self._topic} of {region}")
            return "all there"

        def recreate(self, region: str) -> str:
            made.log.append(f"recreate {self._topic} in {region}")
            return "recreated"

    monkeypatch.setattr(module, "NarrowLink", Link)
    monkeypatch.setattr(module, "TopicApart", Apart)
    monkeypatch.setattr(module, "_ASK_EVERY_S", 0.0)
    made = World()
    return made


def lost(kind: ActKind, part: str) -> Act:
    return Act(kind, part=part, region="a", to="b", groups=("pair-a", "solo-a"), lag_s=2.0, narrow=True)


def test_a_cluster_is_lost_behind_a_narrow_route_which_is_widened_at_once(world: World) -> None:
    assert world.play(lost(ActKind.CLUSTER_LOST, "aggregate-a")) == [
        "limit pair-a to 80.0",
        "limit solo-a to 80.0",
        "narrow regional-a for parallax-b",
        "kill aggregate-a",
        "failover --region a --to b --disaster --execute",
        "limit pair-a to None",
        "limit solo-a to None",
        "widen regional-a for parallax-b",
    ]


@pytest.mark.parametrize(
    ("kind", "done"), [(ActKind.REGION_LOST, "kill a part"), (ActKind.CLUSTER_FROZEN, "freeze a part")]
)
def test_a_cluster_is_not_lost_before_the_index_has_what_was_copied(
    world: World, kind: ActKind, done: str
) -> None:
    world.index_lags_ms = [None, 30_000.0, 10.0]
    log = world.play(lost(kind, "a part"))
    assert log.index(done) > log.index("look at the index")
    assert world.index_lags_ms == [10.0]
    world.index_lags_ms = [30_000.0]
    with pytest.raises(WorkerError, match="the index stays more than 2000 ms behind"):
        world.play(lost(kind, "a part"))
    assert log.count(done) == 1


def test_a_run_log_is_not_deleted_before_the_index_has_what_it_tells(world: World) -> None:
    world.index_lags_ms = [30_000.0, 10.0]
    log = world.play(Act(ActKind.RUN_LOG_DELETED, region="a", target="b"))
    assert log.index("delete topic parallax.runs.a at aggregate-b") > log.index("look at the index")
    assert world.index_lags_ms == [10.0]


def test_nobody_waits_for_the_index_while_spark_is_down(world: World) -> None:
    world.index_lags_ms = [30_000.0]
    log = world.play(Act(ActKind.SPARK_KILLED, part="spark"), lost(ActKind.CLUSTER_LOST, "aggregate-a"))
    assert "kill aggregate-a" in log


def test_what_ended_by_itself_is_named_where_groups_do_not_go_on(world: World) -> None:
    world.flows = False
    world.states |= {"spark": "died"}
    with pytest.raises(WorkerError, match="spark ended by itself: not every group has been delivered"):
        world.play(Act(ActKind.RIVAL_SYNC))


def test_groups_that_stand_still_are_described_while_their_members_live(world: World) -> None:
    world.flows = False
    with pytest.raises(WorkerError, match="not every group has been delivered"):
        world.play(Act(ActKind.RIVAL_SYNC))
    assert "stacks of solo-a" in world.log
    assert "solo-a at aggregate-b: PREPARING_REBALANCING" in world.player.happened[-1].notes


def test_the_route_of_a_lost_region_is_widened_when_it_is_back(world: World) -> None:
    world.play(lost(ActKind.REGION_LOST, "region-a"))
    assert "widen regional-a for parallax-b" not in world.log
    assert world.play(Act(ActKind.START, part="region-a"))[-2:] == [
        "start region-a",
        "widen regional-a for parallax-b",
    ]


def test_nobody_waits_for_groups_while_something_is_down(world: World) -> None:
    world.flows = False
    world.play(Act(ActKind.SPARK_KILLED, part="spark"), Act(ActKind.REGIONAL_KILLED, part="regional-b"))
    world.play(Act(ActKind.START, part="regional-b"))
    with pytest.raises(WorkerError, match="not every group has been delivered"):
        world.play(Act(ActKind.START, part="spark"))
    assert [bool(found.problem) for found in world.player.happened] == [False, False, False, True]


def test_a_service_that_is_down_keeps_no_group_from_going_on(world: World) -> None:
    world.flows = False
    with pytest.raises(WorkerError, match="not every group has been delivered"):
        world.play(Act(ActKind.SERVICE_KILLED, part="offsetsvc-a"))


def test_a_planned_move_has_the_whole_route_again(world: World) -> None:
    act = Act(ActKind.PLANNED, group="solo-b", region="b", to="a", groups=("solo-b",), lag_s=2.0, narrow=True)
    assert world.play(act) == [
        "limit solo-b to 80.0",
        "narrow regional-b for parallax-a",
        "widen regional-b for parallax-a",
        "failover solo-b --to a --execute",
        "limit solo-b to None",
    ]


@pytest.mark.parametrize(
    ("act", "done"),
    [
        (
            Act(ActKind.PLANNED, group="solo-b", to="a", groups=("solo-b",)),
            ["failover solo-b --to a --execute"],
        ),
        (
            Act(ActKind.ALARM, group="solo-b", to="a", groups=("solo-b",)),
            ["failover solo-b --to a --disaster --execute"],
        ),
        (Act(ActKind.FAILBACK, to="a", groups=("pair-a", "solo-a")), ["failback --region a --execute"]),
        (
            Act(ActKind.AGGREGATE_KILLED, part="aggregate-b", down_s=3),
            ["kill aggregate-b", "start aggregate-b"],
        ),
        (Act(ActKind.RESTART, part="spark"), ["stop spark", "start spark"]),
        (Act(ActKind.STORE_KILLED, part="cassandra", down_s=3), ["kill cassandra", "start cassandra"]),
        (Act(ActKind.BROKER_FROZEN, part="regional-a", down_s=3), ["freeze regional-a", "start regional-a"]),
        (Act(ActKind.SPARK_FROZEN, part="spark", down_s=3), ["freeze spark", "start spark"]),
        (
            Act(ActKind.DISK_FULL, part="aggregate-b"),
            ["fill the disk of aggregate-b", "kill aggregate-b", "start aggregate-b"],
        ),
        (
            Act(ActKind.LINK_ONE_WAY, part="cassandra", down_s=3, link=LinkState(back=False)),
            ["link to cassandra: True False 0", "link to cassandra: True True 0"],
        ),
        (
            Act(ActKind.CLOCK_STEP, part="spark", down_s=3, clock_ahead_ms=3_600_000),
            ["steer spark: 3600000 0", "steer spark: 0 0"],
        ),
        (
            Act(ActKind.RESOLVER_HANGS, part="offsetsvc-a", down_s=3, resolver_late_ms=8_000),
            ["steer offsetsvc-a: 0 8000", "steer offsetsvc-a: 0 0"],
        ),
        (Act(ActKind.RIVAL_SYNC), ["sync --once"]),
        (Act(ActKind.TOPIC_RECREATED, region="a"), ["recreate storm-recreated in a"]),
        (
            Act(ActKind.TAIL_LOST, region="a", part="aggregate-b"),
            [
                "fill storm-cut in a",
                "kill aggregate-b",
                "cut storm-cut in logs of aggregate-b",
                "start aggregate-b",
                "await storm-cut of a",
            ],
        ),
        (
            Act(ActKind.RUN_LOG_DELETED, region="a", target="b"),
            [
                "delete topic parallax.runs.a at aggregate-b",
                "runlog check --route a->b",
                "stop spark",
                "runlog rebuild --route a->b --execute",
                "start spark",
            ],
        ),
        (Act(ActKind.RESTART, group="pair-a"), ["restart a member of pair-a"]),
    ],
)
def test_an_act_is_done_as_it_says(world: World, act: Act, done: list[str]) -> None:
    assert [entry for entry in world.play(act) if not entry.startswith("limit")] == done
    assert world.waited[-1].startswith("not every group")


def test_a_group_leaves_a_cluster_that_stands_still_and_that_is_thawed_later(world: World) -> None:
    done = world.play(lost(ActKind.CLUSTER_FROZEN, "aggregate-a"), Act(ActKind.START, part="aggregate-a"))
    assert done.index("freeze aggregate-a") < done.index("failover --region a --to b --disaster --execute")
    assert done[-1] == "start aggregate-a"


def test_a_deleted_group_is_gone_everywhere_and_due_to_consume_all_of_it_again(world: World) -> None:
    settled = {0: CommitSeen(500, ""), 1: CommitSeen(90, "")}
    world.commits = [settled, settled, {0: CommitSeen(500, ""), 1: CommitSeen(91, "")}]
    assert world.play(Act(ActKind.GROUP_DELETED, group="solo-a", region="a")) == [
        "stop members of solo-a",
        "delete solo-a at aggregate-a",
        "delete solo-a at aggregate-b",
        "start members of solo-a",
    ]
    made = world.player.rewinds["solo-a"]
    at_ms = made[0].at_ms
    assert made == [GroupRewind("aggregate-a", 0, 0, 500, at_ms), GroupRewind("aggregate-a", 1, 0, 90, at_ms)]


def test_a_rewind_is_noted_as_it_was_made(world: World) -> None:
    behind: dict[int, Any] = {0: CommitSeen(350, ""), 1: CommitSeen(0, "")}
    world.commits = [
        {
            0: CommitSeen(480, "v1 ..."),
            1: CommitSeen(90, ""),
        },  # what its last move left is not dealt with yet
        {0: CommitSeen(490, ""), 1: CommitSeen(90, "")},
        {0: CommitSeen(500, ""), 1: CommitSeen(90, "")},  # as the members left it
        behind,
        {0: CommitSeen(510, ""), 1: CommitSeen(95, "")},
    ]
    assert world.play(Act(ActKind.REWIND, group="solo-a", region="a", records=200)) == [
        "stop members of solo-a",
        "set solo-a at aggregate-a to {0: 300, 1: 0}",
        "start members of solo-a",
    ]
    made = world.player.rewinds["solo-a"]
    at_ms = made[0].at_ms
    assert made == [
        GroupRewind("aggregate-a", 0, 300, 500, at_ms),
        GroupRewind("aggregate-a", 1, 0, 90, at_ms),
    ]


def test_a_rewind_that_is_not_consumed_again_ends_the_storm(world: World) -> None:
    settled = {0: CommitSeen(500, "")}
    world.commits = [settled, settled, {0: CommitSeen(499, "")}]
    with pytest.raises(WorkerError, match="has not come back to where it was set back from"):
        world.play(Act(ActKind.REWIND, group="solo-a", region="a", records=200))


def test_what_happened_is_written_down(world: World) -> None:
    world.play(Act(ActKind.RESTART, part="spark"))
    (found,) = world.player.happened
    assert found.act.part == "spark"
    assert found.notes[0] == "spark is stopped"
    assert found.took_s >= 0
