from parallax.v1 import offsets_pb2 as _offsets_pb2
from parallax.v1 import overview_pb2 as _overview_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlanMoveRequest(_message.Message):
    __slots__ = ("group", "to_region", "to_cluster", "back", "origin", "disaster", "accept_gaps")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TO_REGION_FIELD_NUMBER: _ClassVar[int]
    TO_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BACK_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    DISASTER_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_GAPS_FIELD_NUMBER: _ClassVar[int]
    group: str
    to_region: str
    to_cluster: str
    back: bool
    origin: str
    disaster: bool
    accept_gaps: bool
    def __init__(self, group: _Optional[str] = ..., to_region: _Optional[str] = ..., to_cluster: _Optional[str] = ..., back: _Optional[bool] = ..., origin: _Optional[str] = ..., disaster: _Optional[bool] = ..., accept_gaps: _Optional[bool] = ...) -> None: ...

class PlannedPartition(_message.Message):
    __slots__ = ("topic", "partition", "next_offset", "resume_offset", "outcome", "pending_records", "redelivery_records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESUME_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PENDING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    next_offset: int
    resume_offset: int
    outcome: _offsets_pb2.Outcome
    pending_records: int
    redelivery_records: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., next_offset: _Optional[int] = ..., resume_offset: _Optional[int] = ..., outcome: _Optional[_Union[_offsets_pb2.Outcome, str]] = ..., pending_records: _Optional[int] = ..., redelivery_records: _Optional[int] = ...) -> None: ...

class PlannedMove(_message.Message):
    __slots__ = ("move_id", "digest", "group", "origin", "target", "region", "kind", "fencing_number", "outcome", "partitions", "gaps", "unknown", "obstacles", "waits_for", "arrived", "publisher_only", "pending_records", "redelivery_records", "accept_gaps")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FENCING_NUMBER_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    OBSTACLES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_ONLY_FIELD_NUMBER: _ClassVar[int]
    PENDING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_GAPS_FIELD_NUMBER: _ClassVar[int]
    move_id: str
    digest: str
    group: str
    origin: str
    target: str
    region: str
    kind: str
    fencing_number: int
    outcome: _offsets_pb2.Outcome
    partitions: _containers.RepeatedCompositeFieldContainer[PlannedPartition]
    gaps: _containers.RepeatedScalarFieldContainer[str]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    obstacles: _containers.RepeatedScalarFieldContainer[str]
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    arrived: bool
    publisher_only: bool
    pending_records: int
    redelivery_records: int
    accept_gaps: bool
    def __init__(self, move_id: _Optional[str] = ..., digest: _Optional[str] = ..., group: _Optional[str] = ..., origin: _Optional[str] = ..., target: _Optional[str] = ..., region: _Optional[str] = ..., kind: _Optional[str] = ..., fencing_number: _Optional[int] = ..., outcome: _Optional[_Union[_offsets_pb2.Outcome, str]] = ..., partitions: _Optional[_Iterable[_Union[PlannedPartition, _Mapping]]] = ..., gaps: _Optional[_Iterable[str]] = ..., unknown: _Optional[_Iterable[str]] = ..., obstacles: _Optional[_Iterable[str]] = ..., waits_for: _Optional[_Iterable[str]] = ..., arrived: _Optional[bool] = ..., publisher_only: _Optional[bool] = ..., pending_records: _Optional[int] = ..., redelivery_records: _Optional[int] = ..., accept_gaps: _Optional[bool] = ...) -> None: ...

class ExecuteMoveRequest(_message.Message):
    __slots__ = ("group", "move_id", "digest", "disaster", "actor", "reason")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DISASTER_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group: str
    move_id: str
    digest: str
    disaster: bool
    actor: str
    reason: str
    def __init__(self, group: _Optional[str] = ..., move_id: _Optional[str] = ..., digest: _Optional[str] = ..., disaster: _Optional[bool] = ..., actor: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelMoveRequest(_message.Message):
    __slots__ = ("group", "move_id", "actor")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    group: str
    move_id: str
    actor: str
    def __init__(self, group: _Optional[str] = ..., move_id: _Optional[str] = ..., actor: _Optional[str] = ...) -> None: ...

class RollBackMoveRequest(_message.Message):
    __slots__ = ("group", "move_id", "disaster", "actor")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    DISASTER_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    group: str
    move_id: str
    disaster: bool
    actor: str
    def __init__(self, group: _Optional[str] = ..., move_id: _Optional[str] = ..., disaster: _Optional[bool] = ..., actor: _Optional[str] = ...) -> None: ...

class GetMoveRequest(_message.Message):
    __slots__ = ("group", "move_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    move_id: str
    def __init__(self, group: _Optional[str] = ..., move_id: _Optional[str] = ...) -> None: ...

class MoveEvent(_message.Message):
    __slots__ = ("at_ms", "words")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    words: str
    def __init__(self, at_ms: _Optional[int] = ..., words: _Optional[str] = ...) -> None: ...

class MoveStatus(_message.Message):
    __slots__ = ("move_id", "group", "state", "step", "doing", "problem", "fencing_number", "events", "actor", "started_at_ms", "updated_at_ms")
    MOVE_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FENCING_NUMBER_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    move_id: str
    group: str
    state: str
    step: str
    doing: str
    problem: str
    fencing_number: int
    events: _containers.RepeatedCompositeFieldContainer[MoveEvent]
    actor: str
    started_at_ms: int
    updated_at_ms: int
    def __init__(self, move_id: _Optional[str] = ..., group: _Optional[str] = ..., state: _Optional[str] = ..., step: _Optional[str] = ..., doing: _Optional[str] = ..., problem: _Optional[str] = ..., fencing_number: _Optional[int] = ..., events: _Optional[_Iterable[_Union[MoveEvent, _Mapping]]] = ..., actor: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., updated_at_ms: _Optional[int] = ...) -> None: ...

class VerifyGroupRequest(_message.Message):
    __slots__ = ("group", "moves")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    group: str
    moves: int
    def __init__(self, group: _Optional[str] = ..., moves: _Optional[int] = ...) -> None: ...

class PartitionVerification(_message.Message):
    __slots__ = ("topic", "partition", "verdict", "once_records", "twice_records", "never_records", "notes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    ONCE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    TWICE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEVER_RECORDS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    verdict: str
    once_records: int
    twice_records: int
    never_records: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., verdict: _Optional[str] = ..., once_records: _Optional[int] = ..., twice_records: _Optional[int] = ..., never_records: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class GroupVerification(_message.Message):
    __slots__ = ("group", "verdict", "consumers", "way", "partitions", "notes")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    WAY_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    group: str
    verdict: str
    consumers: str
    way: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionVerification]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., verdict: _Optional[str] = ..., consumers: _Optional[str] = ..., way: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[_Union[PartitionVerification, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class PlanDrillRequest(_message.Message):
    __slots__ = ("origin", "to")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    origin: str
    to: str
    def __init__(self, origin: _Optional[str] = ..., to: _Optional[str] = ...) -> None: ...

class PlannedDrill(_message.Message):
    __slots__ = ("group", "topic", "origin", "to", "regions", "steps")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    origin: str
    to: str
    regions: _containers.RepeatedScalarFieldContainer[str]
    steps: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., origin: _Optional[str] = ..., to: _Optional[str] = ..., regions: _Optional[_Iterable[str]] = ..., steps: _Optional[_Iterable[str]] = ...) -> None: ...

class RunDrillRequest(_message.Message):
    __slots__ = ("group", "origin", "to", "actor")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    group: str
    origin: str
    to: str
    actor: str
    def __init__(self, group: _Optional[str] = ..., origin: _Optional[str] = ..., to: _Optional[str] = ..., actor: _Optional[str] = ...) -> None: ...

class StopDrillRequest(_message.Message):
    __slots__ = ("group", "drill_id", "actor")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DRILL_ID_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    group: str
    drill_id: str
    actor: str
    def __init__(self, group: _Optional[str] = ..., drill_id: _Optional[str] = ..., actor: _Optional[str] = ...) -> None: ...

class GetDrillRequest(_message.Message):
    __slots__ = ("group", "drill_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DRILL_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    drill_id: str
    def __init__(self, group: _Optional[str] = ..., drill_id: _Optional[str] = ...) -> None: ...

class DeliveredRecords(_message.Message):
    __slots__ = ("region", "records")
    REGION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    region: str
    records: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, region: _Optional[str] = ..., records: _Optional[_Iterable[int]] = ...) -> None: ...

class DrillEvent(_message.Message):
    __slots__ = ("at_ms", "words")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    at_ms: float
    words: str
    def __init__(self, at_ms: _Optional[float] = ..., words: _Optional[str] = ...) -> None: ...

class DrillTimeline(_message.Message):
    __slots__ = ("slot_ms", "acknowledged_records", "delivered", "events")
    SLOT_MS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    slot_ms: float
    acknowledged_records: _containers.RepeatedScalarFieldContainer[int]
    delivered: _containers.RepeatedCompositeFieldContainer[DeliveredRecords]
    events: _containers.RepeatedCompositeFieldContainer[DrillEvent]
    def __init__(self, slot_ms: _Optional[float] = ..., acknowledged_records: _Optional[_Iterable[int]] = ..., delivered: _Optional[_Iterable[_Union[DeliveredRecords, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[DrillEvent, _Mapping]]] = ...) -> None: ...

class DrillStatus(_message.Message):
    __slots__ = ("drill_id", "ending", "here", "doing", "problem", "events", "drill", "timeline")
    DRILL_ID_FIELD_NUMBER: _ClassVar[int]
    ENDING_FIELD_NUMBER: _ClassVar[int]
    HERE_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    DRILL_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    drill_id: str
    ending: str
    here: bool
    doing: str
    problem: str
    events: _containers.RepeatedCompositeFieldContainer[MoveEvent]
    drill: _overview_pb2.DrillSummary
    timeline: DrillTimeline
    def __init__(self, drill_id: _Optional[str] = ..., ending: _Optional[str] = ..., here: _Optional[bool] = ..., doing: _Optional[str] = ..., problem: _Optional[str] = ..., events: _Optional[_Iterable[_Union[MoveEvent, _Mapping]]] = ..., drill: _Optional[_Union[_overview_pb2.DrillSummary, _Mapping]] = ..., timeline: _Optional[_Union[DrillTimeline, _Mapping]] = ...) -> None: ...
