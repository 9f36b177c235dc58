from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListAuditRequest(_message.Message):
    __slots__ = ("group", "call", "principal", "since_ms", "until_ms", "limit", "before")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    group: str
    call: str
    principal: str
    since_ms: int
    until_ms: int
    limit: int
    before: str
    def __init__(self, group: _Optional[str] = ..., call: _Optional[str] = ..., principal: _Optional[str] = ..., since_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., limit: _Optional[int] = ..., before: _Optional[str] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("entry_id", "group", "at_ms", "act_id", "stage", "principal", "proven_by", "call", "before", "after", "reason", "region", "process", "problem")
    class BeforeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AfterEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    ACT_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    PROVEN_BY_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    entry_id: str
    group: str
    at_ms: int
    act_id: str
    stage: str
    principal: str
    proven_by: str
    call: str
    before: _containers.ScalarMap[str, str]
    after: _containers.ScalarMap[str, str]
    reason: str
    region: str
    process: str
    problem: str
    def __init__(self, entry_id: _Optional[str] = ..., group: _Optional[str] = ..., at_ms: _Optional[int] = ..., act_id: _Optional[str] = ..., stage: _Optional[str] = ..., principal: _Optional[str] = ..., proven_by: _Optional[str] = ..., call: _Optional[str] = ..., before: _Optional[_Mapping[str, str]] = ..., after: _Optional[_Mapping[str, str]] = ..., reason: _Optional[str] = ..., region: _Optional[str] = ..., process: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class ListAuditResponse(_message.Message):
    __slots__ = ("entries", "next_before")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    next_before: str
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ..., next_before: _Optional[str] = ...) -> None: ...
