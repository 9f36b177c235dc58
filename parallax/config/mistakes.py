"""Says what is wrong with a configuration: the key, its line or environment variable, and the nearest valid name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml import MarkedYAMLError, SafeLoader
from yaml.nodes import MappingNode, Node, SequenceNode
from yaml.reader import ReaderError

KeyPath = tuple[int | str, ...]
"""A key's place, from the top of the file."""

_MERGE = "<<"
"""YAML's key that takes over another section's keys."""

_QUOTED = re.compile(r"""['"].*['"]""", re.DOTALL)
"""What PyYAML quotes in a message, from the first quotation mark to the last."""

_HARMLESS = re.compile(r"'(.|<[a-z ]+>)'")
"""It quotes single characters, and kinds of things: what stands in a file neither way."""

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
        variable, _ = variable_of(origins, location)
        if variable is not None:
            place = f"environment variable {variable}"
        else:
            place = f"{path}:{_line(node, location)}" if node is not None else str(path)
        key = dotted(tuple(_name(part) for part in location)) or "(top)"
        if mistake["type"] == "extra_forbidden":
            section = section_of(reduce(below, location[:-1], model))
            valid = [] if section is None else [f.alias or name for name, f in section.model_fields.items()]
            near = difflib.get_close_matches(str(location[-1]), valid, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            if _name(location[-1]) != location[-1]:
                hint = "; YAML parts a key from its value by a colon and a blank"
            lines.append(f"{place}: unknown key {key!r}{hint}")
        else:
            lines.append(f"{place}: {key}: {_what_is_wrong(mistake)}")
    return "\n".join(lines)


def _what_is_wrong(mistake: ErrorDetails) -> str:
    if mistake["type"] == "string_type" and isinstance(mistake["input"], bool | int | float | date):
        # The value itself is not shown: it may be a password.
        return "has to be text, and YAML takes it for something else: put it between quotation marks"
    return mistake["msg"].removeprefix("Value error, ")


def yaml_mistake(error: Exception, path: Path, text: str) -> str:
    """What to say of a file that is not YAML: the line, and nothing of what stands there, which may be a password."""
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, ReaderError):
        line: int | None = text.count("\n", 0, error.position) + 1
    else:
        line = _refused_line(text) if mark is None else mark.line + 1
    place = f"{path}:{line}" if line else str(path)
    return f"{place}: not valid YAML: {without_values(error)}"


def without_values(error: Exception) -> str:
    """What PyYAML has to say, without what it quotes."""
    if isinstance(error, ReaderError):
        return "a control character stands there, which YAML does not allow"
    problem = error.problem if isinstance(error, MarkedYAMLError) else None
    if problem is None:
        return "a value is not what it seems to be: put it between quotation marks"
    told = str(problem)
    if _HARMLESS.sub("", told).count("'") or '"' in told:
        told = _QUOTED.sub("...", told)
    return f"{told}; a value with any of @ ' \" % * & ! : # stands between quotation marks"


def _refused_line(text: str) -> int | None:
    """The line (from 1) of a value that looks like a date or a number and is none, as YAML 1.1 sees it."""
    loader = SafeLoader(text)
    try:
        root = loader.get_single_node()
        for node in _scalars(root):
            try:
                loader.construct_object(node)
            except ValueError:
                return int(node.start_mark.line) + 1
    except Exception:  # noqa: BLE001 - then it can't be told
        return None
    return None


def _scalars(node: Node | None) -> Iterator[Node]:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _scalars(key)
            yield from _scalars(value)
    elif isinstance(node, SequenceNode):
        for value in node.value:
            yield from _scalars(value)
    elif node is not None:
        yield node


def dotted(path: KeyPath) -> str:
    """A key's place, as users write it."""
    return ".".join(str(part) for part in path)


def _name(part: int | str) -> int | str:
    """A key as it may be shown: of ``password:hunter2``, where a blank is missing, not the end."""
    return part if isinstance(part, int) else re.sub(r"[:=].*", "...", part, flags=re.DOTALL)


def wrong_sections(node: Node | None, path: Path) -> list[str]:
    """A line for each key that stands twice in one section, where YAML would take the last one without a word, and for what holds itself."""
    return list(_wrong_in(node, path, set(), frozenset()))


def _wrong_in(node: Node | None, path: Path, seen: set[int], within: frozenset[int]) -> Iterator[str]:
    if not isinstance(node, MappingNode | SequenceNode):
        return
    if id(node) in within:
        yield f"{path}:{node.start_mark.line + 1}: what stands there holds itself, by an anchor (&) and its alias (*)"
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, MappingNode):
        yield from _repeated_keys(node, path)
    inner = [value for _, value in node.value] if isinstance(node, MappingNode) else node.value
    for value in inner:
        yield from _wrong_in(value, path, seen, within | {id(node)})


def _repeated_keys(node: MappingNode, path: Path) -> Iterator[str]:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in seen and name != _MERGE:
            yield f"{path}:{line}: key {_name(name)!r} stands there twice, first in line {seen[name]}"
        seen.setdefault(name, line)


def variable_of(origins: Mapping[KeyPath, str], location: KeyPath) -> tuple[str | None, int]:
    """The variable that has set the key at ``location``, or the nearest section above it, and how deep that one lies."""
    for depth in range(len(location), 0, -1):
        if location[:depth] in origins:
            return origins[location[:depth]], depth
    return None, 0


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
