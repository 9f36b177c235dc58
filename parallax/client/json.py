"""Messages as JSON for REST and the command line: the proto's names, whole numbers as numbers, absent as null.

Proto's own JSON mapping writes 64-bit numbers as strings and leaves out what is absent. People and tools read
offsets as numbers, and must be able to tell "unknown" from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}
_NUMBERS = {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}


def to_json(message: Message) -> dict[str, Any]:
    """The message with every field, by its name in the proto."""
    return {name: value(message) for name, value in _values_of(message.DESCRIPTOR)}


def schema_of(descriptor: Any) -> dict[str, Any]:
    """The JSON schema of `to_json` for messages of a type."""
    return {
        "title": descriptor.name,
        "type": "object",
        "properties": {field.name: _field_schema(field) for field in descriptor.fields},
        "required": [field.name for field in descriptor.fields],
    }


@cache
def _values_of(descriptor: Any) -> tuple[tuple[str, Callable[[Message], Any]], ...]:
    """For each field how its value is had. Pages have thousands of fields, and what a descriptor says of one is dear to ask."""
    return tuple((field.name, _value_of(field)) for field in descriptor.fields)


def _value_of(field: Any) -> Callable[[Message], Any]:
    had: Callable[[Message], Any] = attrgetter(field.name)
    one = _one_of(field)
    if _is_map(field):
        return lambda message: dict(sorted(had(message).items()))
    if field.is_repeated:
        return lambda message: [one(item) for item in had(message)]
    if not field.has_presence:
        return lambda message: one(had(message))
    name = field.name
    return lambda message: one(had(message)) if message.HasField(name) else None


def _is_map(field: Any) -> bool:
    """Whether it holds texts by name, the only maps that our messages have."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _one_of(field: Any) -> Callable[[Any], Any]:
    """What becomes of one value."""
    if field.message_type is not None:
        return to_json
    if field.enum_type is not None:
        names = {number: item.name for number, item in field.enum_type.values_by_number.items()}
        return _Names(names).__getitem__
    return _as_it_is


class _Names(dict[int, str]):
    """An enum's; a number that a newer service has, and that is not known here, is its own name."""

    def __missing__(self, number: int) -> str:
        return str(number)


def _as_it_is(value: Any) -> Any:
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
    elif field.cpp_type in _NUMBERS:
        single = {"type": "number"}
    elif field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        single = {"type": "boolean"}
    else:
        single = {"type": "string"}
    if field.is_repeated:
        return {"type": "array", "items": single}
    return {"anyOf": [single, {"type": "null"}]} if field.has_presence else single
