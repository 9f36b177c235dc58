"""Says what is wrong with a configuration: the key, its line or environment variable, and the nearest valid name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.nodes import MappingNode, Node, SequenceNode

KeyPath = tuple[int | str, ...]
"""A key's place, from the top of the file."""

_MERGE = "<<"
"""YAML's key that takes over another section's keys."""

_OF_THE_KEY = "[key]"
"""Ends pydantic's location of a mistake in the name of a key."""


def describe(
    error: ValidationError,
    path: Path,
    node: Node | None,
    model: type[BaseModel],
    origins: Mapping[KeyPath, str],
) -> str:
    """One line for each mistake.

    Args:
        error: the mistakes.
        path: the file.
        node: what stands in it.
        model: what should.
        origins: environment variables by the keys and sections that they have set.
    """
    lines = []
    for mistake in error.errors():
        location = mistake["loc"]
        if location and location[-1] == _OF_THE_KEY:
            location = location[:-1]
        variable = _variable(origins, location)
        if variable is not None:
            place = f"environment variable {variable}"
        else:
            place = f"{path}:{_line(node, location)}" if node is not None else str(path)
        key = ".".join(str(part) for part in location) or "(top)"
        if mistake["type"] == "extra_forbidden":
            section = section_of(reduce(below, location[:-1], model))
            valid = [] if section is None else list(section.model_fields)
            near = difflib.get_close_matches(str(location[-1]), valid, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            lines.append(f"{place}: unknown key {key!r}{hint}")
        else:
            lines.append(f"{place}: {key}: {_what_is_wrong(mistake)}")
    return "\n".join(lines)


def _what_is_wrong(mistake: ErrorDetails) -> str:
    if mistake["type"] == "string_type" and isinstance(mistake["input"], bool | int | float | date):
        # The value itself is not shown: it may be a password.
        return "has to be text, and YAML takes it for something else: put it between quotation marks"
    return mistake["msg"].removeprefix("Value error, ")


def repeated_keys(node: Node | None, path: Path) -> list[str]:
    """A line for each key that stands twice in one section: YAML would take the last one without a word."""
    lines = []
    if isinstance(node, MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen and name != _MERGE:
                lines.append(f"{path}:{line}: key {name!r} stands there twice, first in line {seen[name]}")
            seen.setdefault(name, line)
            lines += repeated_keys(value, path)
    elif isinstance(node, SequenceNode):
        for value in node.value:
            lines += repeated_keys(value, path)
    return lines


def _variable(origins: Mapping[KeyPath, str], location: KeyPath) -> str | None:
    """The variable that has set the key at ``location``, or the nearest section above it."""
    above = (location[:length] for length in range(len(location), 0, -1))
    return next((origins[place] for place in above if place in origins), None)


def _line(node: Node | None, location: KeyPath) -> int:
    """The line (from 1) of the key at ``location``, or of the nearest section above it."""
    line = 1
    for part in location:
        if isinstance(node, MappingNode):
            found = [(key, value) for key, value in node.value if key.value == str(part)]
            if not found:
                break
            line = found[0][0].start_mark.line + 1
            node = found[0][1]
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def is_mapping(annotation: Any) -> bool:
    """Whether its keys are names that the user chooses."""
    return get_origin(annotation) is Mapping


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The model in an annotation such as ``Cluster | None``."""
    candidates = [item for item in (annotation, *get_args(annotation)) if isinstance(item, type)]
    return next((item for item in candidates if issubclass(item, BaseModel)), None)


def below(annotation: Any, key: int | str) -> Any:
    """The type of the key in a section, or of the place in a list, of this type; None: there is no such key."""
    if is_mapping(annotation):
        return get_args(annotation)[1]
    if isinstance(key, int):
        return next(iter(get_args(annotation)), None)
    model = section_of(annotation)
    field = None if model is None else model.model_fields.get(str(key))
    return None if field is None else field.annotation
