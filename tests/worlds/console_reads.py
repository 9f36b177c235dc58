"""What a console is told in tests: answers of a small world, and whatever else a test puts in."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from google.protobuf.message import Message

from parallax.errors import ParallaxError
from parallax.v1 import moves_pb2, overview_pb2, primaries_pb2
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.offset_world import TOPIC
from tests.worlds.pictured import RunsOf, answer_of, busy_world

NOW_MS = 1_700_000_000_000
HOSTILE_NAMES = [
    "</td><script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "../../etc/passwd?x=1&y=2#z",
    "javascript:alert(1)",
    "\u202egnp.exe\u2066",
    "tab\tand\x1b[31mescape",
    '=HYPERLINK("http://x")',
    "%2e%2e%00;/",
    "x" * 249,
    "名前\U0001f600",
]


@dataclass
class FakeReads:
    """Each call gives what stands under its name in ``told``: a message, or an error to raise."""

    told: dict[str, Message | ParallaxError] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    runs: RunsOf | None = None

    def _tell(self, name: str, **arguments: Any) -> Any:
        self.asked.append((name, arguments))
        answer = self.told[name]
        if isinstance(answer, ParallaxError):
            raise answer
        return answer

    def get_failover_offset(
        self, group: str, topic: str, partition: int, **options: Any
    ) -> pb.FailoverOffset:
        return self._tell("get_failover_offset", group=group, topic=topic, partition=partition, **options)

    def get_group_failover_offsets(self, group: str, **options: Any) -> pb.GetGroupFailoverOffsetsResponse:
        return self._tell("get_group_failover_offsets", group=group, **options)

    def get_group_positions(self, group: str) -> pb.GetGroupPositionsResponse:
        return self._tell("get_group_positions", group=group)

    def list_runs(self, route: str, topic: str, partition: int, **options: Any) -> pb.ListRunsResponse:
        del topic  # whatever a test calls it, it is the world's
        return (
            pb.ListRunsResponse()
            if self.runs is None
            else self.runs.list_runs(route, TOPIC, partition, **options)
        )

    def list_watermarks(self, route: str, topic: str, partition: int) -> pb.ListWatermarksResponse:
        return self._tell("list_watermarks", route=route, topic=topic, partition=partition)

    def translate_offset(
        self, route: str, topic: str, partition: int, **side: Any
    ) -> pb.TranslateOffsetResponse:
        return self._tell("translate_offset", route=route, topic=topic, partition=partition, **side)

    def list_routes(self) -> pb.ListRoutesResponse:
        return self._tell("list_routes")

    def get_primary(self, group: str) -> primaries_pb2.Primary:
        return self._tell("get_primary", group=group)

    def list_primaries(self, **options: Any) -> primaries_pb2.ListPrimariesResponse:
        return self._tell("list_primaries", **options)

    def describe_regions(self, **options: Any) -> primaries_pb2.DescribeRegionsResponse:
        return self._tell("describe_regions", **options)

    def list_groups(self, **options: Any) -> overview_pb2.ListGroupsResponse:
        return self._tell("list_groups", **options)

    def list_replication(self, **options: Any) -> overview_pb2.ListReplicationResponse:
        return self._tell("list_replication", **options)

    def list_replication_partitions(
        self, route: str, **options: Any
    ) -> overview_pb2.ListReplicationPartitionsResponse:
        return self._tell("list_replication_partitions", route=route, **options)

    def list_moves(self, group: str | None = None, **options: Any) -> overview_pb2.ListMovesResponse:
        return self._tell("list_moves", group=group, **options)

    def list_drills(self, **options: Any) -> overview_pb2.ListDrillsResponse:
        return self._tell("list_drills", **options)

    def list_sync_problems(self, **options: Any) -> overview_pb2.ListSyncProblemsResponse:
        return self._tell("list_sync_problems", **options)

    def plan_move(self, group: str, **options: Any) -> moves_pb2.PlannedMove:
        return self._tell("plan_move", group=group, **options)

    def execute_move(self, planned: moves_pb2.PlannedMove, **options: Any) -> moves_pb2.MoveStatus:
        return self._tell("execute_move", planned=planned, **options)

    def cancel_move(self, group: str, move_id: str, **options: Any) -> moves_pb2.MoveStatus:
        return self._tell("cancel_move", group=group, move_id=move_id, **options)

    def roll_back_move(self, group: str, move_id: str, **options: Any) -> moves_pb2.MoveStatus:
        return self._tell("roll_back_move", group=group, move_id=move_id, **options)

    def get_move(self, group: str, move_id: str) -> moves_pb2.MoveStatus:
        return self._tell("get_move", group=group, move_id=move_id)

    def plan_drill(self, **options: Any) -> moves_pb2.PlannedDrill:
        return self._tell("plan_drill", **options)

    def run_drill(self, planned: moves_pb2.PlannedDrill, **options: Any) -> moves_pb2.DrillStatus:
        return self._tell("run_drill", planned=planned, **options)

    def stop_drill(self, group: str, drill_id: str, **options: Any) -> moves_pb2.DrillStatus:
        return self._tell("stop_drill", group=group, drill_id=drill_id, **options)

    def get_drill(self, group: str, drill_id: str) -> moves_pb2.DrillStatus:
        return self._tell("get_drill", group=group, drill_id=drill_id)

    def verify_group(self, group: str, **options: Any) -> moves_pb2.GroupVerification:
        return self._tell("verify_group", group=group, **options)

    def describe_configuration(self, **options: Any) -> overview_pb2.DescribeConfigurationResponse:
        return self._tell("describe_configuration", **options)


def decided(group: str, **fields: Any) -> primaries_pb2.Primary:
    """A group that is primary in region a since a minute."""
    made = {
        "fencing_number": 7,
        "mode": primaries_pb2.ACTIVE_PASSIVE,
        "stage": primaries_pb2.SETTLED,
        "region": "a",
        "cluster": "aggregate-a",
        "decided_in": "a",
        "decided_at_ms": NOW_MS - 60_000,
    }
    return primaries_pb2.Primary(group=group, decision=primaries_pb2.PrimaryDecision(**made), **fields)


def two_regions() -> primaries_pb2.DescribeRegionsResponse:
    """Regions a, which answers, and b, whose regional cluster is away."""

    def region(name: str, health: int) -> primaries_pb2.RegionDescription:
        return primaries_pb2.RegionDescription(
            region=name,
            aggregate=primaries_pb2.ClusterDescription(
                cluster=f"aggregate-{name}", bootstrap_servers="127.0.0.1:1", health=primaries_pb2.UP
            ),
            regional=primaries_pb2.ClusterDescription(
                cluster=f"regional-{name}",
                bootstrap_servers="127.0.0.1:2",
                health=primaries_pb2.Health.ValueType(health),
                problem="no broker answered" if health == primaries_pb2.AWAY else "",
            ),
            service_grpc="127.0.0.1:7600",
        )

    return primaries_pb2.DescribeRegionsResponse(
        regions=[region("a", primaries_pb2.NOT_ASKED), region("b", primaries_pb2.AWAY)], answered_in="a"
    )


@cache
def _busy() -> tuple[pb.FailoverOffset, RunsOf]:
    return answer_of(busy_world(3), 1_430)


def lists_of(name: str) -> dict[str, Message | ParallaxError]:
    """A row of every kind, with the name wherever somebody outside may have chosen it."""
    return {
        "list_groups": overview_pb2.ListGroupsResponse(
            groups=[
                overview_pb2.GroupSummary(
                    group=name,
                    primary=decided(name),
                    sync=overview_pb2.GroupSync(
                        outcome=pb.PENDING,
                        active_at=["aggregate-a"],
                        partitions=3,
                        since_ms=NOW_MS - 5_000,
                        age_ms=400,
                    ),
                ),
                overview_pb2.GroupSummary(group=f"{name}-new"),
            ],
            next_after=name,
        ),
        "list_replication": overview_pb2.ListReplicationResponse(
            routes=[
                overview_pb2.RouteReplication(
                    route=f"{source}->{target}",
                    source_cluster=f"regional-{source}",
                    target_cluster=f"aggregate-{target}",
                    state=overview_pb2.ROUTE_COPYING,
                    age_ms=900,
                    shards=2,
                    shards_running=2,
                    partitions=12,
                    partitions_stopped=0,
                    lag_records=0,
                    latency_ms=180,
                    index_lag_ms=40,
                    records=1_000_000,
                )
                for source in "ab"
                for target in "ab"
            ]
        ),
        "list_replication_partitions": overview_pb2.ListReplicationPartitionsResponse(
            partitions=[
                overview_pb2.PartitionReplication(
                    topic=name,
                    partition=4,
                    state=overview_pb2.PARTITION_STOPPED,
                    reason=name,
                    remedy="mend it",
                    lag_records=70,
                ),
                overview_pb2.PartitionReplication(
                    topic=name, partition=5, state=overview_pb2.PARTITION_COPYING
                ),
            ],
            total=2,
            age_ms=900,
        ),
        "list_moves": overview_pb2.ListMovesResponse(
            moves=[
                overview_pb2.MoveSummary(
                    group=name,
                    move_id="0192",
                    started_at_ms=NOW_MS - 60_000,
                    updated_at_ms=NOW_MS - 50_000,
                    origin="aggregate-a",
                    target="aggregate-b",
                    region="b",
                    kind="planned",
                    step="done",
                    state="moved",
                    ended=True,
                    fencing_number=7,
                    partitions=12,
                    actor=name,
                )
            ]
        ),
        "list_drills": overview_pb2.ListDrillsResponse(
            drills=[
                overview_pb2.DrillSummary(
                    drill_id="d1",
                    actor=name,
                    group=name,
                    topic="parallax-drill",
                    origin="aggregate-a",
                    to="aggregate-b",
                    started_at_ms=NOW_MS - 3_600_000,
                    took_ms=42_000,
                    ending="passed",
                    produced_records=9_000,
                    lost_records=0,
                    repeated_records=0,
                    legs=[overview_pb2.DrillLeg(origin="aggregate-a", to="aggregate-b", rto_ms=5_200)],
                )
            ]
        ),
        "list_sync_problems": overview_pb2.ListSyncProblemsResponse(
            groups=[
                overview_pb2.GroupProblems(
                    group=name,
                    problems=[
                        overview_pb2.SyncProblem(
                            topic=name,
                            partition=1,
                            cluster="aggregate-b",
                            reason="active_at_target",
                            outcome=pb.ACTIVE_AT_TARGET,
                            problem=name,
                            remedy="stop its members there",
                        )
                    ],
                    count=3,
                    since_ms=NOW_MS - 90_000,
                )
            ],
            job=overview_pb2.SyncJob(owner="sync", age_ms=800, groups=12),
        ),
        "describe_configuration": overview_pb2.DescribeConfigurationResponse(
            settings=[
                overview_pb2.Setting(key="cassandra.username", value=f'"{name}"', given=True),
                overview_pb2.Setting(key="cassandra.password", value='"**********"', secret=True, given=True),
                overview_pb2.Setting(key="index.interval_ms", value="500"),
            ],
            answered_in="a",
        ),
    }


def group_reads(name: str = "billing") -> FakeReads:
    """A group that has consumed in a; aggregate-c is away, and its answers are those of a busy world."""
    answer, runs = _busy()
    answer = deepcopy(answer)
    answer.group = name
    positions = pb.GetGroupPositionsResponse(
        group=name,
        clusters=[
            pb.GetGroupPositionsResponse.ClusterPositions(
                cluster="aggregate-a",
                positions=[
                    pb.GroupPosition(topic="trips", partition=0, next_offset=1_430, lag_offsets=0),
                    pb.GroupPosition(topic="trips", partition=1),
                ],
            ),
            pb.GetGroupPositionsResponse.ClusterPositions(
                cluster="aggregate-b",
                positions=[
                    pb.GroupPosition(
                        topic="trips",
                        partition=0,
                        published_offset=1_034,
                        published_outcome=pb.PENDING,
                        published_at_ms=NOW_MS - 2_000,
                    )
                ],
            ),
            pb.GetGroupPositionsResponse.ClusterPositions(
                cluster="aggregate-c", failure="aggregate-c: no broker answered"
            ),
        ],
    )
    told: dict[str, Message | ParallaxError] = {
        "get_failover_offset": answer,
        "get_group_failover_offsets": pb.GetGroupFailoverOffsetsResponse(
            offsets=[answer], outcome=answer.outcome
        ),
        "get_group_positions": positions,
        "get_primary": decided(name),
        "list_primaries": primaries_pb2.ListPrimariesResponse(primaries=[decided(name)]),
        "describe_regions": two_regions(),
        "list_watermarks": pb.ListWatermarksResponse(
            watermarks=[
                pb.ListWatermarksResponse.Watermark(
                    lineage="s.t.0",
                    source_next_offset=500,
                    target_end=1_034,
                    last_record_end=498,
                    committed_at_ms=NOW_MS - 2_000,
                    age_ms=2_000,
                )
            ]
        ),
        "translate_offset": pb.TranslateOffsetResponse(
            source_next_offset=40, target_next_offset=1_080, via="exact"
        ),
        **lists_of(name),
    }
    return FakeReads(told, runs=runs)
