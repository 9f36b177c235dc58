from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OK: _ClassVar[Outcome]
    CLAMPED_TO_END: _ClassVar[Outcome]
    PENDING: _ClassVar[Outcome]
    STALE: _ClassVar[Outcome]
    BY_TIMESTAMP: _ClassVar[Outcome]
    NO_COMMIT: _ClassVar[Outcome]
    REWOUND: _ClassVar[Outcome]
    LINEAGE_CHANGED: _ClassVar[Outcome]
    EARLIEST_FALLBACK: _ClassVar[Outcome]
    TRIMMED: _ClassVar[Outcome]
    NEVER_DELIVERED: _ClassVar[Outcome]
    ACTIVE_AT_TARGET: _ClassVar[Outcome]
    DUAL_ACTIVE: _ClassVar[Outcome]
    UNREACHABLE: _ClassVar[Outcome]
    PARTITION_MISMATCH: _ClassVar[Outcome]

class LagState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LAG_STATE_UNKNOWN: _ClassVar[LagState]
    LAG_OK: _ClassVar[LagState]
    LAG_WARN: _ClassVar[LagState]
    LAG_REWIND: _ClassVar[LagState]
    LAG_STALL: _ClassVar[LagState]
    LAG_STOP: _ClassVar[LagState]
OUTCOME_UNSPECIFIED: Outcome
OK: Outcome
CLAMPED_TO_END: Outcome
PENDING: Outcome
STALE: Outcome
BY_TIMESTAMP: Outcome
NO_COMMIT: Outcome
REWOUND: Outcome
LINEAGE_CHANGED: Outcome
EARLIEST_FALLBACK: Outcome
TRIMMED: Outcome
NEVER_DELIVERED: Outcome
ACTIVE_AT_TARGET: Outcome
DUAL_ACTIVE: Outcome
UNREACHABLE: Outcome
PARTITION_MISMATCH: Outcome
LAG_STATE_UNKNOWN: LagState
LAG_OK: LagState
LAG_WARN: LagState
LAG_REWIND: LagState
LAG_STALL: LagState
LAG_STOP: LagState

class Place(_message.Message):
    __slots__ = ("region", "cluster")
    REGION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    region: str
    cluster: str
    def __init__(self, region: _Optional[str] = ..., cluster: _Optional[str] = ...) -> None: ...

class TimestampPolicy(_message.Message):
    __slots__ = ("margin_ms", "timestamp_ms")
    MARGIN_MS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    margin_ms: int
    timestamp_ms: int
    def __init__(self, margin_ms: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class GetFailoverOffsetRequest(_message.Message):
    __slots__ = ("group", "topic", "partition", "to", "next_offset", "by_timestamp", "nearest_checkpoint", "pack_skip_ranges")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BY_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    NEAREST_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    PACK_SKIP_RANGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    partition: int
    to: Place
    next_offset: int
    by_timestamp: TimestampPolicy
    nearest_checkpoint: bool
    pack_skip_ranges: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., to: _Optional[_Union[Place, _Mapping]] = ..., next_offset: _Optional[int] = ..., by_timestamp: _Optional[_Union[TimestampPolicy, _Mapping]] = ..., nearest_checkpoint: _Optional[bool] = ..., pack_skip_ranges: _Optional[bool] = ..., **kwargs) -> None: ...

class PartitionPosition(_message.Message):
    __slots__ = ("topic", "partition", "next_offset", "leader_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    next_offset: int
    leader_epoch: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., next_offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class GetGroupFailoverOffsetsRequest(_message.Message):
    __slots__ = ("group", "to", "positions", "topics", "record_move", "by_timestamp", "pack_skip_ranges")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    RECORD_MOVE_FIELD_NUMBER: _ClassVar[int]
    BY_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PACK_SKIP_RANGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    to: Place
    positions: _containers.RepeatedCompositeFieldContainer[PartitionPosition]
    topics: _containers.RepeatedScalarFieldContainer[str]
    record_move: bool
    by_timestamp: TimestampPolicy
    pack_skip_ranges: bool
    def __init__(self, group: _Optional[str] = ..., to: _Optional[_Union[Place, _Mapping]] = ..., positions: _Optional[_Iterable[_Union[PartitionPosition, _Mapping]]] = ..., topics: _Optional[_Iterable[str]] = ..., record_move: _Optional[bool] = ..., by_timestamp: _Optional[_Union[TimestampPolicy, _Mapping]] = ..., pack_skip_ranges: _Optional[bool] = ..., **kwargs) -> None: ...

class GetGroupFailoverOffsetsResponse(_message.Message):
    __slots__ = ("offsets", "outcome")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[FailoverOffset]
    outcome: Outcome
    def __init__(self, offsets: _Optional[_Iterable[_Union[FailoverOffset, _Mapping]]] = ..., outcome: _Optional[_Union[Outcome, str]] = ...) -> None: ...

class ClusterPosition(_message.Message):
    __slots__ = ("cluster", "topic_id", "next_offset", "low_watermark", "high_watermark", "lag_offsets", "observed_at_ms", "basis", "indexed_to", "regions_without_rows")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BASIS_FIELD_NUMBER: _ClassVar[int]
    INDEXED_TO_FIELD_NUMBER: _ClassVar[int]
    REGIONS_WITHOUT_ROWS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    topic_id: str
    next_offset: int
    low_watermark: int
    high_watermark: int
    lag_offsets: int
    observed_at_ms: int
    basis: str
    indexed_to: int
    regions_without_rows: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster: _Optional[str] = ..., topic_id: _Optional[str] = ..., next_offset: _Optional[int] = ..., low_watermark: _Optional[int] = ..., high_watermark: _Optional[int] = ..., lag_offsets: _Optional[int] = ..., observed_at_ms: _Optional[int] = ..., basis: _Optional[str] = ..., indexed_to: _Optional[int] = ..., regions_without_rows: _Optional[_Iterable[str]] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("source_start", "target_start", "count_records", "previous_source_end", "source_leader_epoch", "cluster")
    SOURCE_START_FIELD_NUMBER: _ClassVar[int]
    TARGET_START_FIELD_NUMBER: _ClassVar[int]
    COUNT_RECORDS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SOURCE_END_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    source_start: int
    target_start: int
    count_records: int
    previous_source_end: int
    source_leader_epoch: int
    cluster: str
    def __init__(self, source_start: _Optional[int] = ..., target_start: _Optional[int] = ..., count_records: _Optional[int] = ..., previous_source_end: _Optional[int] = ..., source_leader_epoch: _Optional[int] = ..., cluster: _Optional[str] = ...) -> None: ...

class OffsetRange(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class SourcePart(_message.Message):
    __slots__ = ("region", "source_topic_id", "consumed_next_offset", "consumed_leader_epoch", "position", "via", "reached_next_offset", "pending", "pending_records", "redelivery_records", "freshness_ms", "never_delivered", "runs")
    REGION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    VIA_FIELD_NUMBER: _ClassVar[int]
    REACHED_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    PENDING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_MS_FIELD_NUMBER: _ClassVar[int]
    NEVER_DELIVERED_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    region: str
    source_topic_id: str
    consumed_next_offset: int
    consumed_leader_epoch: int
    position: int
    via: str
    reached_next_offset: int
    pending: OffsetRange
    pending_records: int
    redelivery_records: int
    freshness_ms: int
    never_delivered: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    def __init__(self, region: _Optional[str] = ..., source_topic_id: _Optional[str] = ..., consumed_next_offset: _Optional[int] = ..., consumed_leader_epoch: _Optional[int] = ..., position: _Optional[int] = ..., via: _Optional[str] = ..., reached_next_offset: _Optional[int] = ..., pending: _Optional[_Union[OffsetRange, _Mapping]] = ..., pending_records: _Optional[int] = ..., redelivery_records: _Optional[int] = ..., freshness_ms: _Optional[int] = ..., never_delivered: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ...) -> None: ...

class SourceProgress(_message.Message):
    __slots__ = ("region", "source_topic_id", "source_next_offset", "source_leader_epoch", "epoch_ends")
    REGION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_ENDS_FIELD_NUMBER: _ClassVar[int]
    region: str
    source_topic_id: str
    source_next_offset: int
    source_leader_epoch: int
    epoch_ends: _containers.RepeatedCompositeFieldContainer[EpochEnd]
    def __init__(self, region: _Optional[str] = ..., source_topic_id: _Optional[str] = ..., source_next_offset: _Optional[int] = ..., source_leader_epoch: _Optional[int] = ..., epoch_ends: _Optional[_Iterable[_Union[EpochEnd, _Mapping]]] = ...) -> None: ...

class EpochEnd(_message.Message):
    __slots__ = ("leader_epoch", "source_next_offset")
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    leader_epoch: int
    source_next_offset: int
    def __init__(self, leader_epoch: _Optional[int] = ..., source_next_offset: _Optional[int] = ...) -> None: ...

class FailoverOffset(_message.Message):
    __slots__ = ("group", "topic", "partition", "to", "resume_offset", "outcome", "notes", "explanation", "sources", "skip_ranges", "complete_to", "skip_ranges_continue_at", "redelivery_records", "pending_records", "freshness_ms", "progress", "nearest_checkpoint_offset", "by_timestamp", "packed_skip_ranges")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    RESUME_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SKIP_RANGES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TO_FIELD_NUMBER: _ClassVar[int]
    SKIP_RANGES_CONTINUE_AT_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    PENDING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_MS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    NEAREST_CHECKPOINT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BY_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PACKED_SKIP_RANGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    partition: int
    to: ClusterPosition
    resume_offset: int
    outcome: Outcome
    notes: _containers.RepeatedScalarFieldContainer[Outcome]
    explanation: str
    sources: _containers.RepeatedCompositeFieldContainer[SourcePart]
    skip_ranges: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    complete_to: int
    skip_ranges_continue_at: int
    redelivery_records: int
    pending_records: int
    freshness_ms: int
    progress: _containers.RepeatedCompositeFieldContainer[SourceProgress]
    nearest_checkpoint_offset: int
    by_timestamp: ByTimestamp
    packed_skip_ranges: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., to: _Optional[_Union[ClusterPosition, _Mapping]] = ..., resume_offset: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., notes: _Optional[_Iterable[_Union[Outcome, str]]] = ..., explanation: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[SourcePart, _Mapping]]] = ..., skip_ranges: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., complete_to: _Optional[int] = ..., skip_ranges_continue_at: _Optional[int] = ..., redelivery_records: _Optional[int] = ..., pending_records: _Optional[int] = ..., freshness_ms: _Optional[int] = ..., progress: _Optional[_Iterable[_Union[SourceProgress, _Mapping]]] = ..., nearest_checkpoint_offset: _Optional[int] = ..., by_timestamp: _Optional[_Union[ByTimestamp, _Mapping]] = ..., packed_skip_ranges: _Optional[_Iterable[int]] = ..., **kwargs) -> None: ...

class ByTimestamp(_message.Message):
    __slots__ = ("basis", "margin_ms", "timestamp_ms", "problem", "redelivery_at_most_offsets")
    BASIS_FIELD_NUMBER: _ClassVar[int]
    MARGIN_MS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_AT_MOST_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    basis: str
    margin_ms: int
    timestamp_ms: int
    problem: str
    redelivery_at_most_offsets: int
    def __init__(self, basis: _Optional[str] = ..., margin_ms: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., problem: _Optional[str] = ..., redelivery_at_most_offsets: _Optional[int] = ...) -> None: ...

class MapPositionsRequest(_message.Message):
    __slots__ = ("to", "partitions")
    class Partition(_message.Message):
        __slots__ = ("topic", "partition", "next_offsets")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        NEXT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        partition: int
        next_offsets: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., next_offsets: _Optional[_Iterable[int]] = ...) -> None: ...
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    to: Place
    partitions: _containers.RepeatedCompositeFieldContainer[MapPositionsRequest.Partition]
    def __init__(self, to: _Optional[_Union[Place, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[MapPositionsRequest.Partition, _Mapping]]] = ..., **kwargs) -> None: ...

class MappedPartition(_message.Message):
    __slots__ = ("topic", "partition", "to", "resume_offsets", "complete_to", "notes", "pending_records", "sources", "skip_counts", "packed_skip_ranges", "left_out")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    RESUME_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TO_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    PENDING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    SKIP_COUNTS_FIELD_NUMBER: _ClassVar[int]
    PACKED_SKIP_RANGES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    to: ClusterPosition
    resume_offsets: _containers.RepeatedScalarFieldContainer[int]
    complete_to: _containers.RepeatedScalarFieldContainer[int]
    notes: _containers.RepeatedScalarFieldContainer[int]
    pending_records: _containers.RepeatedScalarFieldContainer[int]
    sources: _containers.RepeatedCompositeFieldContainer[MappedSource]
    skip_counts: _containers.RepeatedScalarFieldContainer[int]
    packed_skip_ranges: _containers.RepeatedScalarFieldContainer[int]
    left_out: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., to: _Optional[_Union[ClusterPosition, _Mapping]] = ..., resume_offsets: _Optional[_Iterable[int]] = ..., complete_to: _Optional[_Iterable[int]] = ..., notes: _Optional[_Iterable[int]] = ..., pending_records: _Optional[_Iterable[int]] = ..., sources: _Optional[_Iterable[_Union[MappedSource, _Mapping]]] = ..., skip_counts: _Optional[_Iterable[int]] = ..., packed_skip_ranges: _Optional[_Iterable[int]] = ..., left_out: _Optional[_Iterable[int]] = ..., **kwargs) -> None: ...

class MappedSource(_message.Message):
    __slots__ = ("region", "source_topic_id", "source_next_offsets", "source_leader_epochs", "epoch_ends")
    REGION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NEXT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LEADER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_ENDS_FIELD_NUMBER: _ClassVar[int]
    region: str
    source_topic_id: str
    source_next_offsets: _containers.RepeatedScalarFieldContainer[int]
    source_leader_epochs: _containers.RepeatedScalarFieldContainer[int]
    epoch_ends: _containers.RepeatedCompositeFieldContainer[EpochEnd]
    def __init__(self, region: _Optional[str] = ..., source_topic_id: _Optional[str] = ..., source_next_offsets: _Optional[_Iterable[int]] = ..., source_leader_epochs: _Optional[_Iterable[int]] = ..., epoch_ends: _Optional[_Iterable[_Union[EpochEnd, _Mapping]]] = ...) -> None: ...

class MapPositionsResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[MappedPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[MappedPartition, _Mapping]]] = ...) -> None: ...

class WatchSkipsRequest(_message.Message):
    __slots__ = ("topic", "partition", "at", "target_topic_id", "progress", "start")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    at: Place
    target_topic_id: str
    progress: _containers.RepeatedCompositeFieldContainer[SourceProgress]
    start: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., at: _Optional[_Union[Place, _Mapping]] = ..., target_topic_id: _Optional[str] = ..., progress: _Optional[_Iterable[_Union[SourceProgress, _Mapping]]] = ..., start: _Optional[int] = ..., **kwargs) -> None: ...

class SkipUpdate(_message.Message):
    __slots__ = ("skip_ranges", "complete_to", "pending_records")
    SKIP_RANGES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_TO_FIELD_NUMBER: _ClassVar[int]
    PENDING_RECORDS_FIELD_NUMBER: _ClassVar[int]
    skip_ranges: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    complete_to: int
    pending_records: int
    def __init__(self, skip_ranges: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., complete_to: _Optional[int] = ..., pending_records: _Optional[int] = ...) -> None: ...

class TranslateOffsetRequest(_message.Message):
    __slots__ = ("route", "topic", "partition", "source_next_offset", "target_next_offset", "path")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TARGET_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    route: str
    topic: str
    partition: int
    source_next_offset: int
    target_next_offset: int
    path: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, route: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., source_next_offset: _Optional[int] = ..., target_next_offset: _Optional[int] = ..., path: _Optional[_Iterable[str]] = ...) -> None: ...

class TranslationHop(_message.Message):
    __slots__ = ("route", "topic", "source_next_offset", "target_next_offset", "via", "lineage")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TARGET_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VIA_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    route: str
    topic: str
    source_next_offset: int
    target_next_offset: int
    via: str
    lineage: str
    def __init__(self, route: _Optional[str] = ..., topic: _Optional[str] = ..., source_next_offset: _Optional[int] = ..., target_next_offset: _Optional[int] = ..., via: _Optional[str] = ..., lineage: _Optional[str] = ...) -> None: ...

class TranslateOffsetResponse(_message.Message):
    __slots__ = ("source_next_offset", "target_next_offset", "via", "lineage", "runs", "hops", "outcome")
    SOURCE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TARGET_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    VIA_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    source_next_offset: int
    target_next_offset: int
    via: str
    lineage: str
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    hops: _containers.RepeatedCompositeFieldContainer[TranslationHop]
    outcome: Outcome
    def __init__(self, source_next_offset: _Optional[int] = ..., target_next_offset: _Optional[int] = ..., via: _Optional[str] = ..., lineage: _Optional[str] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., hops: _Optional[_Iterable[_Union[TranslationHop, _Mapping]]] = ..., outcome: _Optional[_Union[Outcome, str]] = ...) -> None: ...

class LookupOriginRequest(_message.Message):
    __slots__ = ("at", "topic", "partition", "record_offset")
    AT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORD_OFFSET_FIELD_NUMBER: _ClassVar[int]
    at: Place
    topic: str
    partition: int
    record_offset: int
    def __init__(self, at: _Optional[_Union[Place, _Mapping]] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., record_offset: _Optional[int] = ...) -> None: ...

class LookupOriginResponse(_message.Message):
    __slots__ = ("found", "route", "source_cluster", "source_topic_id", "source_record_offset", "complete", "hops")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_RECORD_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    found: bool
    route: str
    source_cluster: str
    source_topic_id: str
    source_record_offset: int
    complete: bool
    hops: _containers.RepeatedCompositeFieldContainer[OriginHop]
    def __init__(self, found: _Optional[bool] = ..., route: _Optional[str] = ..., source_cluster: _Optional[str] = ..., source_topic_id: _Optional[str] = ..., source_record_offset: _Optional[int] = ..., complete: _Optional[bool] = ..., hops: _Optional[_Iterable[_Union[OriginHop, _Mapping]]] = ...) -> None: ...

class OriginHop(_message.Message):
    __slots__ = ("route", "source_cluster", "source_topic", "source_topic_id", "source_record_offset")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_RECORD_OFFSET_FIELD_NUMBER: _ClassVar[int]
    route: str
    source_cluster: str
    source_topic: str
    source_topic_id: str
    source_record_offset: int
    def __init__(self, route: _Optional[str] = ..., source_cluster: _Optional[str] = ..., source_topic: _Optional[str] = ..., source_topic_id: _Optional[str] = ..., source_record_offset: _Optional[int] = ...) -> None: ...

class ListRoutesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StoppedPartition(_message.Message):
    __slots__ = ("partition", "reason")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    partition: int
    reason: str
    def __init__(self, partition: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class RouteTopic(_message.Message):
    __slots__ = ("topic", "partitions", "freshness_ms", "stopped")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_MS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    freshness_ms: int
    stopped: _containers.RepeatedCompositeFieldContainer[StoppedPartition]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ..., freshness_ms: _Optional[int] = ..., stopped: _Optional[_Iterable[_Union[StoppedPartition, _Mapping]]] = ...) -> None: ...

class RouteInfo(_message.Message):
    __slots__ = ("route", "source_cluster", "target_cluster", "topics")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TARGET_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    route: str
    source_cluster: str
    target_cluster: str
    topics: _containers.RepeatedCompositeFieldContainer[RouteTopic]
    def __init__(self, route: _Optional[str] = ..., source_cluster: _Optional[str] = ..., target_cluster: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[RouteTopic, _Mapping]]] = ...) -> None: ...

class ListRoutesResponse(_message.Message):
    __slots__ = ("routes",)
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    routes: _containers.RepeatedCompositeFieldContainer[RouteInfo]
    def __init__(self, routes: _Optional[_Iterable[_Union[RouteInfo, _Mapping]]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("route", "topic", "partition", "start", "limit")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    route: str
    topic: str
    partition: int
    start: int
    limit: int
    def __init__(self, route: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., start: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("lineages", "continue_at")
    class LineageRuns(_message.Message):
        __slots__ = ("lineage", "runs", "lost", "closed_at")
        LINEAGE_FIELD_NUMBER: _ClassVar[int]
        RUNS_FIELD_NUMBER: _ClassVar[int]
        LOST_FIELD_NUMBER: _ClassVar[int]
        CLOSED_AT_FIELD_NUMBER: _ClassVar[int]
        lineage: str
        runs: _containers.RepeatedCompositeFieldContainer[Run]
        lost: _containers.RepeatedCompositeFieldContainer[OffsetRange]
        closed_at: int
        def __init__(self, lineage: _Optional[str] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., lost: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., closed_at: _Optional[int] = ...) -> None: ...
    LINEAGES_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_AT_FIELD_NUMBER: _ClassVar[int]
    lineages: _containers.RepeatedCompositeFieldContainer[ListRunsResponse.LineageRuns]
    continue_at: int
    def __init__(self, lineages: _Optional[_Iterable[_Union[ListRunsResponse.LineageRuns, _Mapping]]] = ..., continue_at: _Optional[int] = ...) -> None: ...

class ListWatermarksRequest(_message.Message):
    __slots__ = ("route", "topic", "partition")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    route: str
    topic: str
    partition: int
    def __init__(self, route: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class ListWatermarksResponse(_message.Message):
    __slots__ = ("watermarks",)
    class Watermark(_message.Message):
        __slots__ = ("lineage", "source_next_offset", "target_end", "last_record_end", "source_leader_epoch", "committed_at_ms", "age_ms", "closed")
        LINEAGE_FIELD_NUMBER: _ClassVar[int]
        SOURCE_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
        TARGET_END_FIELD_NUMBER: _ClassVar[int]
        LAST_RECORD_END_FIELD_NUMBER: _ClassVar[int]
        SOURCE_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        COMMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
        AGE_MS_FIELD_NUMBER: _ClassVar[int]
        CLOSED_FIELD_NUMBER: _ClassVar[int]
        lineage: str
        source_next_offset: int
        target_end: int
        last_record_end: int
        source_leader_epoch: int
        committed_at_ms: int
        age_ms: int
        closed: bool
        def __init__(self, lineage: _Optional[str] = ..., source_next_offset: _Optional[int] = ..., target_end: _Optional[int] = ..., last_record_end: _Optional[int] = ..., source_leader_epoch: _Optional[int] = ..., committed_at_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., closed: _Optional[bool] = ...) -> None: ...
    WATERMARKS_FIELD_NUMBER: _ClassVar[int]
    watermarks: _containers.RepeatedCompositeFieldContainer[ListWatermarksResponse.Watermark]
    def __init__(self, watermarks: _Optional[_Iterable[_Union[ListWatermarksResponse.Watermark, _Mapping]]] = ...) -> None: ...

class GetGroupPositionsRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class GroupPosition(_message.Message):
    __slots__ = ("topic", "partition", "next_offset", "basis", "observed_at_ms", "low_watermark", "high_watermark", "lag_offsets", "published_offset", "published_outcome", "published_at_ms", "problem")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BASIS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    next_offset: int
    basis: str
    observed_at_ms: int
    low_watermark: int
    high_watermark: int
    lag_offsets: int
    published_offset: int
    published_outcome: Outcome
    published_at_ms: int
    problem: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., next_offset: _Optional[int] = ..., basis: _Optional[str] = ..., observed_at_ms: _Optional[int] = ..., low_watermark: _Optional[int] = ..., high_watermark: _Optional[int] = ..., lag_offsets: _Optional[int] = ..., published_offset: _Optional[int] = ..., published_outcome: _Optional[_Union[Outcome, str]] = ..., published_at_ms: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class LagSample(_message.Message):
    __slots__ = ("at_ms", "lag_records")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAG_RECORDS_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    lag_records: int
    def __init__(self, at_ms: _Optional[int] = ..., lag_records: _Optional[int] = ...) -> None: ...

class LagVerdict(_message.Message):
    __slots__ = ("state", "topic", "partition", "lag_offsets", "partitions_not_ok", "partitions_known", "partitions")
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LAG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_NOT_OK_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    state: LagState
    topic: str
    partition: int
    lag_offsets: int
    partitions_not_ok: int
    partitions_known: int
    partitions: int
    def __init__(self, state: _Optional[_Union[LagState, str]] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., lag_offsets: _Optional[int] = ..., partitions_not_ok: _Optional[int] = ..., partitions_known: _Optional[int] = ..., partitions: _Optional[int] = ...) -> None: ...

class GetGroupPositionsResponse(_message.Message):
    __slots__ = ("group", "clusters")
    class ClusterPositions(_message.Message):
        __slots__ = ("cluster", "failure", "positions", "lag_history", "lag_verdict")
        CLUSTER_FIELD_NUMBER: _ClassVar[int]
        FAILURE_FIELD_NUMBER: _ClassVar[int]
        POSITIONS_FIELD_NUMBER: _ClassVar[int]
        LAG_HISTORY_FIELD_NUMBER: _ClassVar[int]
        LAG_VERDICT_FIELD_NUMBER: _ClassVar[int]
        cluster: str
        failure: str
        positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
        lag_history: _containers.RepeatedCompositeFieldContainer[LagSample]
        lag_verdict: LagVerdict
        def __init__(self, cluster: _Optional[str] = ..., failure: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ..., lag_history: _Optional[_Iterable[_Union[LagSample, _Mapping]]] = ..., lag_verdict: _Optional[_Union[LagVerdict, _Mapping]] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLUSTERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    clusters: _containers.RepeatedCompositeFieldContainer[GetGroupPositionsResponse.ClusterPositions]
    def __init__(self, group: _Optional[str] = ..., clusters: _Optional[_Iterable[_Union[GetGroupPositionsResponse.ClusterPositions, _Mapping]]] = ...) -> None: ...

class PartitionMove(_message.Message):
    __slots__ = ("topic", "partition", "target_topic_id", "resume_offset", "progress")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    target_topic_id: str
    resume_offset: int
    progress: _containers.RepeatedCompositeFieldContainer[SourceProgress]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., target_topic_id: _Optional[str] = ..., resume_offset: _Optional[int] = ..., progress: _Optional[_Iterable[_Union[SourceProgress, _Mapping]]] = ...) -> None: ...

class ReportPositionsRequest(_message.Message):
    __slots__ = ("group", "at", "positions", "moves")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    group: str
    at: Place
    positions: _containers.RepeatedCompositeFieldContainer[PartitionPosition]
    moves: _containers.RepeatedCompositeFieldContainer[PartitionMove]
    def __init__(self, group: _Optional[str] = ..., at: _Optional[_Union[Place, _Mapping]] = ..., positions: _Optional[_Iterable[_Union[PartitionPosition, _Mapping]]] = ..., moves: _Optional[_Iterable[_Union[PartitionMove, _Mapping]]] = ...) -> None: ...

class ReportPositionsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
