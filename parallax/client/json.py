"""Messages as JSON for REST and the command line: the proto's names, whole numbers as numbers, absent as null.

Proto's own JSON mapping writes 64-bit numbers as strings and leaves out what is absent. People and tools read
offsets as numbers, and must be able to tell "unknown" from 0.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}


def to_json(message: Message) -> dict[str, Any]:
    """The message with every field, by its name in the proto."""
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def schema_of(descriptor: Any) -> dict[str, Any]:
    """The JSON schema of `to_json` for messages of a type."""
    return {
        "title": descriptor.name,
        "type": "object",
        "properties": {field.name: _field_schema(field) for field in descriptor.fields},
        "required": [field.name for field in descriptor.fields],
    }


def _value(message: Message, field: Any) -> Any:
    if _is_map(field):
        return dict(sorted(getattr(message, field.name).items()))
    if field.is_repeated:
        return [_one(item, field) for item in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(getattr(message, field.name), field)


def _is_map(field: Any) -> bool:
    """Whether it holds texts by name, the only maps that our messages have."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _one(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return to_json(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value


def _field_schema(field: Any) -> dict[str, Any]:
    single: dict[str, Any]
    if _is_map(field):
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if field.message_type is not None:
        single = schema_of(field.message_type)
    elif field.enum_type is not None:
        single = {"type": "string", "enum": [item.name for item in field.enum_type.values]}
    elif field.cpp_type in _INTEGERS:
        single = {"type": "integer"}
    elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        single = {"type": "boolean"}
    else:
        single = {"type": "string"}
    if field.is_repeated:
        return {"type": "array", "items": single}
    return {"anyOf": [single, {"type": "null"}]} if field.has_presence else single
