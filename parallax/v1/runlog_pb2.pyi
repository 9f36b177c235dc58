from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Entry(_message.Message):
    __slots__ = ("layout", "shard", "path", "snapshot", "partitions", "committed_at_ms", "run_log_id", "piece", "pieces", "run_log_leader_epoch", "format")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_LOG_ID_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    RUN_LOG_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    layout: int
    shard: int
    path: str
    snapshot: bool
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionEntry]
    committed_at_ms: int
    run_log_id: str
    piece: int
    pieces: int
    run_log_leader_epoch: int
    format: int
    def __init__(self, layout: _Optional[int] = ..., shard: _Optional[int] = ..., path: _Optional[str] = ..., snapshot: _Optional[bool] = ..., partitions: _Optional[_Iterable[_Union[PartitionEntry, _Mapping]]] = ..., committed_at_ms: _Optional[int] = ..., run_log_id: _Optional[str] = ..., piece: _Optional[int] = ..., pieces: _Optional[int] = ..., run_log_leader_epoch: _Optional[int] = ..., format: _Optional[int] = ...) -> None: ...

class PartitionEntry(_message.Message):
    __slots__ = ("topic", "partition", "source_topic_id", "target_topic_id", "generation", "lineage_sequence", "lineage_source_first", "lineage_target_first", "source_next", "last_run_source_end", "last_run_target_end", "source_leader_epoch", "source_start", "target_start", "count", "previous_source_end", "run_leader_epoch", "lost", "closed", "target_leader_epoch", "lost_epoch", "passed_leader_epoch", "target_record_end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_SOURCE_FIRST_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_TARGET_FIRST_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NEXT_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_SOURCE_END_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_TARGET_END_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_START_FIELD_NUMBER: _ClassVar[int]
    TARGET_START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SOURCE_END_FIELD_NUMBER: _ClassVar[int]
    RUN_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    TARGET_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PASSED_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TARGET_RECORD_END_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    source_topic_id: str
    target_topic_id: str
    generation: int
    lineage_sequence: int
    lineage_source_first: int
    lineage_target_first: int
    source_next: int
    last_run_source_end: int
    last_run_target_end: int
    source_leader_epoch: int
    source_start: _containers.RepeatedScalarFieldContainer[int]
    target_start: _containers.RepeatedScalarFieldContainer[int]
    count: _containers.RepeatedScalarFieldContainer[int]
    previous_source_end: _containers.RepeatedScalarFieldContainer[int]
    run_leader_epoch: _containers.RepeatedScalarFieldContainer[int]
    lost: _containers.RepeatedCompositeFieldContainer[Lost]
    closed: bool
    target_leader_epoch: int
    lost_epoch: int
    passed_leader_epoch: int
    target_record_end: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., source_topic_id: _Optional[str] = ..., target_topic_id: _Optional[str] = ..., generation: _Optional[int] = ..., lineage_sequence: _Optional[int] = ..., lineage_source_first: _Optional[int] = ..., lineage_target_first: _Optional[int] = ..., source_next: _Optional[int] = ..., last_run_source_end: _Optional[int] = ..., last_run_target_end: _Optional[int] = ..., source_leader_epoch: _Optional[int] = ..., source_start: _Optional[_Iterable[int]] = ..., target_start: _Optional[_Iterable[int]] = ..., count: _Optional[_Iterable[int]] = ..., previous_source_end: _Optional[_Iterable[int]] = ..., run_leader_epoch: _Optional[_Iterable[int]] = ..., lost: _Optional[_Iterable[_Union[Lost, _Mapping]]] = ..., closed: _Optional[bool] = ..., target_leader_epoch: _Optional[int] = ..., lost_epoch: _Optional[int] = ..., passed_leader_epoch: _Optional[int] = ..., target_record_end: _Optional[int] = ...) -> None: ...

class Lost(_message.Message):
    __slots__ = ("source_start", "source_end", "target_at")
    SOURCE_START_FIELD_NUMBER: _ClassVar[int]
    SOURCE_END_FIELD_NUMBER: _ClassVar[int]
    TARGET_AT_FIELD_NUMBER: _ClassVar[int]
    source_start: int
    source_end: int
    target_at: int
    def __init__(self, source_start: _Optional[int] = ..., source_end: _Optional[int] = ..., target_at: _Optional[int] = ...) -> None: ...
