from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PrimaryMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIMARY_MODE_UNSPECIFIED: _ClassVar[PrimaryMode]
    ACTIVE_PASSIVE: _ClassVar[PrimaryMode]
    ACTIVE_ACTIVE: _ClassVar[PrimaryMode]

class PrimaryStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRIMARY_STAGE_UNSPECIFIED: _ClassVar[PrimaryStage]
    SETTLED: _ClassVar[PrimaryStage]
    MOVING: _ClassVar[PrimaryStage]

class Health(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEALTH_UNSPECIFIED: _ClassVar[Health]
    UP: _ClassVar[Health]
    AWAY: _ClassVar[Health]
    NOT_ASKED: _ClassVar[Health]
PRIMARY_MODE_UNSPECIFIED: PrimaryMode
ACTIVE_PASSIVE: PrimaryMode
ACTIVE_ACTIVE: PrimaryMode
PRIMARY_STAGE_UNSPECIFIED: PrimaryStage
SETTLED: PrimaryStage
MOVING: PrimaryStage
HEALTH_UNSPECIFIED: Health
UP: Health
AWAY: Health
NOT_ASKED: Health

class PrimaryDecision(_message.Message):
    __slots__ = ("fencing_number", "mode", "region", "cluster", "stage", "moving_from", "decided_in", "decided_at_ms", "supersedes", "disaster", "reason")
    FENCING_NUMBER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    MOVING_FROM_FIELD_NUMBER: _ClassVar[int]
    DECIDED_IN_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDES_FIELD_NUMBER: _ClassVar[int]
    DISASTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    fencing_number: int
    mode: PrimaryMode
    region: str
    cluster: str
    stage: PrimaryStage
    moving_from: str
    decided_in: str
    decided_at_ms: int
    supersedes: _containers.RepeatedScalarFieldContainer[int]
    disaster: bool
    reason: str
    def __init__(self, fencing_number: _Optional[int] = ..., mode: _Optional[_Union[PrimaryMode, str]] = ..., region: _Optional[str] = ..., cluster: _Optional[str] = ..., stage: _Optional[_Union[PrimaryStage, str]] = ..., moving_from: _Optional[str] = ..., decided_in: _Optional[str] = ..., decided_at_ms: _Optional[int] = ..., supersedes: _Optional[_Iterable[int]] = ..., disaster: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class Primary(_message.Message):
    __slots__ = ("group", "decision", "rivals", "dual_active", "problem")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    RIVALS_FIELD_NUMBER: _ClassVar[int]
    DUAL_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    group: str
    decision: PrimaryDecision
    rivals: _containers.RepeatedCompositeFieldContainer[PrimaryDecision]
    dual_active: bool
    problem: str
    def __init__(self, group: _Optional[str] = ..., decision: _Optional[_Union[PrimaryDecision, _Mapping]] = ..., rivals: _Optional[_Iterable[_Union[PrimaryDecision, _Mapping]]] = ..., dual_active: _Optional[bool] = ..., problem: _Optional[str] = ...) -> None: ...

class GetPrimaryRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class SetPrimaryRequest(_message.Message):
    __slots__ = ("group", "region", "mode", "cluster", "stage", "moving_from", "expected_fencing_number", "disaster", "renew", "reason", "dry_run", "actor")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    MOVING_FROM_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FENCING_NUMBER_FIELD_NUMBER: _ClassVar[int]
    DISASTER_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    group: str
    region: str
    mode: PrimaryMode
    cluster: str
    stage: PrimaryStage
    moving_from: str
    expected_fencing_number: int
    disaster: bool
    renew: bool
    reason: str
    dry_run: bool
    actor: str
    def __init__(self, group: _Optional[str] = ..., region: _Optional[str] = ..., mode: _Optional[_Union[PrimaryMode, str]] = ..., cluster: _Optional[str] = ..., stage: _Optional[_Union[PrimaryStage, str]] = ..., moving_from: _Optional[str] = ..., expected_fencing_number: _Optional[int] = ..., disaster: _Optional[bool] = ..., renew: _Optional[bool] = ..., reason: _Optional[str] = ..., dry_run: _Optional[bool] = ..., actor: _Optional[str] = ...) -> None: ...

class WatchPrimaryRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class ListPrimariesRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit", "attention")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    attention: bool
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ..., attention: _Optional[bool] = ...) -> None: ...

class ListPrimariesResponse(_message.Message):
    __slots__ = ("primaries", "next_after")
    PRIMARIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    primaries: _containers.RepeatedCompositeFieldContainer[Primary]
    next_after: str
    def __init__(self, primaries: _Optional[_Iterable[_Union[Primary, _Mapping]]] = ..., next_after: _Optional[str] = ...) -> None: ...

class DescribeRegionsRequest(_message.Message):
    __slots__ = ("groups", "topics")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ClusterDescription(_message.Message):
    __slots__ = ("cluster", "bootstrap_servers", "security_protocol", "sasl_mechanism", "health", "problem")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_SERVERS_FIELD_NUMBER: _ClassVar[int]
    SECURITY_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SASL_MECHANISM_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    bootstrap_servers: str
    security_protocol: str
    sasl_mechanism: str
    health: Health
    problem: str
    def __init__(self, cluster: _Optional[str] = ..., bootstrap_servers: _Optional[str] = ..., security_protocol: _Optional[str] = ..., sasl_mechanism: _Optional[str] = ..., health: _Optional[_Union[Health, str]] = ..., problem: _Optional[str] = ...) -> None: ...

class RegionDescription(_message.Message):
    __slots__ = ("region", "aggregate", "regional", "service_grpc", "service_rest")
    REGION_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_FIELD_NUMBER: _ClassVar[int]
    REGIONAL_FIELD_NUMBER: _ClassVar[int]
    SERVICE_GRPC_FIELD_NUMBER: _ClassVar[int]
    SERVICE_REST_FIELD_NUMBER: _ClassVar[int]
    region: str
    aggregate: ClusterDescription
    regional: ClusterDescription
    service_grpc: str
    service_rest: str
    def __init__(self, region: _Optional[str] = ..., aggregate: _Optional[_Union[ClusterDescription, _Mapping]] = ..., regional: _Optional[_Union[ClusterDescription, _Mapping]] = ..., service_grpc: _Optional[str] = ..., service_rest: _Optional[str] = ...) -> None: ...

class DescribeRegionsResponse(_message.Message):
    __slots__ = ("regions", "answered_in", "groups_left_out", "topics_left_out")
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_IN_FIELD_NUMBER: _ClassVar[int]
    GROUPS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    regions: _containers.RepeatedCompositeFieldContainer[RegionDescription]
    answered_in: str
    groups_left_out: _containers.RepeatedScalarFieldContainer[str]
    topics_left_out: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, regions: _Optional[_Iterable[_Union[RegionDescription, _Mapping]]] = ..., answered_in: _Optional[str] = ..., groups_left_out: _Optional[_Iterable[str]] = ..., topics_left_out: _Optional[_Iterable[str]] = ...) -> None: ...
