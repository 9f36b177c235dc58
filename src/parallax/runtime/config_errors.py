"""Says what is wrong with a configuration file: the key, its line, and the nearest valid name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from yaml.nodes import MappingNode, Node, SequenceNode


def describe(error: ValidationError, path: Path, node: Node | None, model: type[BaseModel]) -> str:
    """One line for each mistake in the file."""
    lines = []
    for mistake in error.errors():
        location = mistake["loc"]
        place = f"{path}:{_line(node, location)}" if node is not None else str(path)
        key = ".".join(str(part) for part in location) or "(top)"
        if mistake["type"] == "extra_forbidden":
            valid = _valid_keys(model, location[:-1])
            near = difflib.get_close_matches(str(location[-1]), valid, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            lines.append(f"{place}: unknown key {key!r}{hint}")
        else:
            lines.append(f"{place}: {key}: {mistake['msg']}")
    return "\n".join(lines)


def _line(node: Node | None, location: tuple[int | str, ...]) -> int:
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


def _valid_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys of the section at ``location``."""
    current: Any = model
    for part in location:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(part))
            current = field.annotation if field is not None else None
            if not _is_mapping(current):
                current = _section(current)
        elif _is_mapping(current):
            current = _section(get_args(current)[1])
    if isinstance(current, type) and issubclass(current, BaseModel):
        return list(current.model_fields)
    return []


def _is_mapping(annotation: Any) -> bool:
    return get_origin(annotation) is Mapping


def _section(annotation: Any) -> Any:
    """The model in an annotation such as ``Cluster | None``."""
    candidates = [item for item in (annotation, *get_args(annotation)) if isinstance(item, type)]
    return next((item for item in candidates if issubclass(item, BaseModel)), None)
