from parallax.v1 import offsets_pb2 as _offsets_pb2
from parallax.v1 import primaries_pb2 as _primaries_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RouteState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUTE_STATE_UNKNOWN: _ClassVar[RouteState]
    ROUTE_COPYING: _ClassVar[RouteState]
    ROUTE_WAITING: _ClassVar[RouteState]
    ROUTE_PARTLY_STOPPED: _ClassVar[RouteState]
    ROUTE_NOT_RUNNING: _ClassVar[RouteState]
    ROUTE_SILENT: _ClassVar[RouteState]
    ROUTE_STARTING: _ClassVar[RouteState]

class PartitionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PARTITION_STATE_UNKNOWN: _ClassVar[PartitionState]
    PARTITION_WAITING: _ClassVar[PartitionState]
    PARTITION_COPYING: _ClassVar[PartitionState]
    PARTITION_ABSENT: _ClassVar[PartitionState]
    PARTITION_STOPPED: _ClassVar[PartitionState]

class PartitionOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BY_NAME: _ClassVar[PartitionOrder]
    BY_LAG: _ClassVar[PartitionOrder]
    WORST_FIRST: _ClassVar[PartitionOrder]
ROUTE_STATE_UNKNOWN: RouteState
ROUTE_COPYING: RouteState
ROUTE_WAITING: RouteState
ROUTE_PARTLY_STOPPED: RouteState
ROUTE_NOT_RUNNING: RouteState
ROUTE_SILENT: RouteState
ROUTE_STARTING: RouteState
PARTITION_STATE_UNKNOWN: PartitionState
PARTITION_WAITING: PartitionState
PARTITION_COPYING: PartitionState
PARTITION_ABSENT: PartitionState
PARTITION_STOPPED: PartitionState
BY_NAME: PartitionOrder
BY_LAG: PartitionOrder
WORST_FIRST: PartitionOrder

class ListGroupsRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit", "with_lag")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WITH_LAG_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    with_lag: bool
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ..., with_lag: _Optional[bool] = ...) -> None: ...

class GroupSummary(_message.Message):
    __slots__ = ("group", "primary", "sync", "lag_offsets", "lag_verdict")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    LAG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LAG_VERDICT_FIELD_NUMBER: _ClassVar[int]
    group: str
    primary: _primaries_pb2.Primary
    sync: GroupSync
    lag_offsets: int
    lag_verdict: _offsets_pb2.LagVerdict
    def __init__(self, group: _Optional[str] = ..., primary: _Optional[_Union[_primaries_pb2.Primary, _Mapping]] = ..., sync: _Optional[_Union[GroupSync, _Mapping]] = ..., lag_offsets: _Optional[int] = ..., lag_verdict: _Optional[_Union[_offsets_pb2.LagVerdict, _Mapping]] = ...) -> None: ...

class ReasonCount(_message.Message):
    __slots__ = ("reason", "count")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    count: int
    def __init__(self, reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class GroupSync(_message.Message):
    __slots__ = ("outcome", "reasons", "active_at", "partitions", "since_ms", "age_ms", "problem")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_AT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    outcome: _offsets_pb2.Outcome
    reasons: _containers.RepeatedCompositeFieldContainer[ReasonCount]
    active_at: _containers.RepeatedScalarFieldContainer[str]
    partitions: int
    since_ms: int
    age_ms: int
    problem: str
    def __init__(self, outcome: _Optional[_Union[_offsets_pb2.Outcome, str]] = ..., reasons: _Optional[_Iterable[_Union[ReasonCount, _Mapping]]] = ..., active_at: _Optional[_Iterable[str]] = ..., partitions: _Optional[int] = ..., since_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_after")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSummary]
    next_after: str
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSummary, _Mapping]]] = ..., next_after: _Optional[str] = ...) -> None: ...

class ListReplicationRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit", "region")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    region: str
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ..., region: _Optional[str] = ...) -> None: ...

class RouteReplication(_message.Message):
    __slots__ = ("route", "source_cluster", "target_cluster", "state", "problems", "owner", "age_ms", "shards", "shards_running", "partitions", "partitions_stopped", "lag_records", "latency_ms", "index_lag_ms", "records", "bytes", "lag_history", "records_per_s", "canary_age_ms", "canary_latency_ms", "canary_late")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TARGET_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_STOPPED_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    INDEX_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_HISTORY_FIELD_NUMBER: _ClassVar[int]
    RECORDS_PER_S_FIELD_NUMBER: _ClassVar[int]
    CANARY_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    CANARY_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    CANARY_LATE_FIELD_NUMBER: _ClassVar[int]
    route: str
    source_cluster: str
    target_cluster: str
    state: RouteState
    problems: _containers.RepeatedScalarFieldContainer[str]
    owner: str
    age_ms: int
    shards: int
    shards_running: int
    partitions: int
    partitions_stopped: int
    lag_records: int
    latency_ms: int
    index_lag_ms: int
    records: int
    bytes: int
    lag_history: _containers.RepeatedCompositeFieldContainer[_offsets_pb2.LagSample]
    records_per_s: float
    canary_age_ms: int
    canary_latency_ms: int
    canary_late: bool
    def __init__(self, route: _Optional[str] = ..., source_cluster: _Optional[str] = ..., target_cluster: _Optional[str] = ..., state: _Optional[_Union[RouteState, str]] = ..., problems: _Optional[_Iterable[str]] = ..., owner: _Optional[str] = ..., age_ms: _Optional[int] = ..., shards: _Optional[int] = ..., shards_running: _Optional[int] = ..., partitions: _Optional[int] = ..., partitions_stopped: _Optional[int] = ..., lag_records: _Optional[int] = ..., latency_ms: _Optional[int] = ..., index_lag_ms: _Optional[int] = ..., records: _Optional[int] = ..., bytes: _Optional[int] = ..., lag_history: _Optional[_Iterable[_Union[_offsets_pb2.LagSample, _Mapping]]] = ..., records_per_s: _Optional[float] = ..., canary_age_ms: _Optional[int] = ..., canary_latency_ms: _Optional[int] = ..., canary_late: _Optional[bool] = ...) -> None: ...

class ListReplicationResponse(_message.Message):
    __slots__ = ("routes", "next_after")
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    routes: _containers.RepeatedCompositeFieldContainer[RouteReplication]
    next_after: str
    def __init__(self, routes: _Optional[_Iterable[_Union[RouteReplication, _Mapping]]] = ..., next_after: _Optional[str] = ...) -> None: ...

class ListReplicationPartitionsRequest(_message.Message):
    __slots__ = ("route", "prefix", "state", "sort", "after", "limit")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SORT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    route: str
    prefix: str
    state: PartitionState
    sort: PartitionOrder
    after: str
    limit: int
    def __init__(self, route: _Optional[str] = ..., prefix: _Optional[str] = ..., state: _Optional[_Union[PartitionState, str]] = ..., sort: _Optional[_Union[PartitionOrder, str]] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class PartitionReplication(_message.Message):
    __slots__ = ("topic", "partition", "shard", "state", "reason", "remedy", "lag_records", "latency_ms", "watermark_age_ms", "source_next_offset", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    shard: int
    state: PartitionState
    reason: str
    remedy: str
    lag_records: int
    latency_ms: int
    watermark_age_ms: int
    source_next_offset: int
    records: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., shard: _Optional[int] = ..., state: _Optional[_Union[PartitionState, str]] = ..., reason: _Optional[str] = ..., remedy: _Optional[str] = ..., lag_records: _Optional[int] = ..., latency_ms: _Optional[int] = ..., watermark_age_ms: _Optional[int] = ..., source_next_offset: _Optional[int] = ..., records: _Optional[int] = ...) -> None: ...

class ListReplicationPartitionsResponse(_message.Message):
    __slots__ = ("partitions", "next_after", "total", "age_ms")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionReplication]
    next_after: str
    total: int
    age_ms: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionReplication, _Mapping]]] = ..., next_after: _Optional[str] = ..., total: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class ListMovesRequest(_message.Message):
    __slots__ = ("group", "after", "limit")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    group: str
    after: str
    limit: int
    def __init__(self, group: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class MoveSummary(_message.Message):
    __slots__ = ("group", "move_id", "started_at_ms", "updated_at_ms", "origin", "target", "region", "kind", "step", "ended", "fencing_number", "partitions", "problem", "actor", "state")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FENCING_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    group: str
    move_id: str
    started_at_ms: int
    updated_at_ms: int
    origin: str
    target: str
    region: str
    kind: str
    step: str
    ended: bool
    fencing_number: int
    partitions: int
    problem: str
    actor: str
    state: str
    def __init__(self, group: _Optional[str] = ..., move_id: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., updated_at_ms: _Optional[int] = ..., origin: _Optional[str] = ..., target: _Optional[str] = ..., region: _Optional[str] = ..., kind: _Optional[str] = ..., step: _Optional[str] = ..., ended: _Optional[bool] = ..., fencing_number: _Optional[int] = ..., partitions: _Optional[int] = ..., problem: _Optional[str] = ..., actor: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class ListMovesResponse(_message.Message):
    __slots__ = ("moves", "next_after")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[MoveSummary]
    next_after: str
    def __init__(self, moves: _Optional[_Iterable[_Union[MoveSummary, _Mapping]]] = ..., next_after: _Optional[str] = ...) -> None: ...

class ListDrillsRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: str
    limit: int
    def __init__(self, after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class DrillLeg(_message.Message):
    __slots__ = ("origin", "to", "rto_ms", "rpo_records", "asked_ms", "ended_ms")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    RTO_MS_FIELD_NUMBER: _ClassVar[int]
    RPO_RECORDS_FIELD_NUMBER: _ClassVar[int]
    ASKED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    origin: str
    to: str
    rto_ms: int
    rpo_records: int
    asked_ms: float
    ended_ms: float
    def __init__(self, origin: _Optional[str] = ..., to: _Optional[str] = ..., rto_ms: _Optional[int] = ..., rpo_records: _Optional[int] = ..., asked_ms: _Optional[float] = ..., ended_ms: _Optional[float] = ...) -> None: ...

class DrillSummary(_message.Message):
    __slots__ = ("drill_id", "group", "topic", "origin", "to", "started_at_ms", "took_ms", "ending", "problem", "left", "proof", "produced_records", "lost_records", "repeated_records", "legs", "actor")
    DRILL_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    PRODUCED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LOST_RECORDS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    drill_id: str
    group: str
    topic: str
    origin: str
    to: str
    started_at_ms: int
    took_ms: int
    ending: str
    problem: str
    left: str
    proof: str
    produced_records: int
    lost_records: int
    repeated_records: int
    legs: _containers.RepeatedCompositeFieldContainer[DrillLeg]
    actor: str
    def __init__(self, drill_id: _Optional[str] = ..., group: _Optional[str] = ..., topic: _Optional[str] = ..., origin: _Optional[str] = ..., to: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., took_ms: _Optional[int] = ..., ending: _Optional[str] = ..., problem: _Optional[str] = ..., left: _Optional[str] = ..., proof: _Optional[str] = ..., produced_records: _Optional[int] = ..., lost_records: _Optional[int] = ..., repeated_records: _Optional[int] = ..., legs: _Optional[_Iterable[_Union[DrillLeg, _Mapping]]] = ..., actor: _Optional[str] = ...) -> None: ...

class ListDrillsResponse(_message.Message):
    __slots__ = ("drills", "next_after")
    DRILLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    drills: _containers.RepeatedCompositeFieldContainer[DrillSummary]
    next_after: str
    def __init__(self, drills: _Optional[_Iterable[_Union[DrillSummary, _Mapping]]] = ..., next_after: _Optional[str] = ...) -> None: ...

class ListSyncProblemsRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class SyncProblem(_message.Message):
    __slots__ = ("topic", "partition", "cluster", "reason", "outcome", "problem", "remedy")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    cluster: str
    reason: str
    outcome: _offsets_pb2.Outcome
    problem: str
    remedy: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., cluster: _Optional[str] = ..., reason: _Optional[str] = ..., outcome: _Optional[_Union[_offsets_pb2.Outcome, str]] = ..., problem: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class GroupProblems(_message.Message):
    __slots__ = ("group", "problems", "count", "since_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    problems: _containers.RepeatedCompositeFieldContainer[SyncProblem]
    count: int
    since_ms: int
    def __init__(self, group: _Optional[str] = ..., problems: _Optional[_Iterable[_Union[SyncProblem, _Mapping]]] = ..., count: _Optional[int] = ..., since_ms: _Optional[int] = ...) -> None: ...

class SyncJob(_message.Message):
    __slots__ = ("owner", "age_ms", "groups", "groups_with_problems", "away", "problem")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_WITH_PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    owner: str
    age_ms: int
    groups: int
    groups_with_problems: int
    away: _containers.RepeatedScalarFieldContainer[str]
    problem: str
    def __init__(self, owner: _Optional[str] = ..., age_ms: _Optional[int] = ..., groups: _Optional[int] = ..., groups_with_problems: _Optional[int] = ..., away: _Optional[_Iterable[str]] = ..., problem: _Optional[str] = ...) -> None: ...

class ListSyncProblemsResponse(_message.Message):
    __slots__ = ("groups", "next_after", "job")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupProblems]
    next_after: str
    job: SyncJob
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupProblems, _Mapping]]] = ..., next_after: _Optional[str] = ..., job: _Optional[_Union[SyncJob, _Mapping]] = ...) -> None: ...

class DescribeConfigurationRequest(_message.Message):
    __slots__ = ("prefix",)
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    def __init__(self, prefix: _Optional[str] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("key", "value", "secret", "given")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    secret: bool
    given: bool
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., secret: _Optional[bool] = ..., given: _Optional[bool] = ...) -> None: ...

class DescribeConfigurationResponse(_message.Message):
    __slots__ = ("settings", "answered_in")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_IN_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    answered_in: str
    def __init__(self, settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ..., answered_in: _Optional[str] = ...) -> None: ...
