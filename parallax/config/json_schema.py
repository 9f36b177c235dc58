"""The configuration as a JSON schema (draft 2020-12), for editors and for checks without Parallax."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from parallax.config.auth import Auth
from parallax.config.config import Config
from parallax.config.console import ConsoleAuth
from parallax.config.topics import RouteSettings

_TEXT_MAY_STAND_FOR = (Auth, ConsoleAuth, RouteSettings)
"""Sections for which their most important key may stand alone."""


def json_schema() -> dict[str, Any]:
    """The schema: every key with its kind, default and bounds, and with its meaning where the name does not say it all.

    It knows nothing of what several keys have to agree about: `parallax.config.config.load` does.
    """
    made = Config.model_json_schema()
    parts = made["$defs"]
    for model in dict.fromkeys(_models(Config)):
        part = made if model is Config else parts[model.__name__]
        told = _told(model)
        for name, field in model.model_fields.items():
            if name in told:
                part["properties"][field.alias or name]["description"] = told[name]
    for model in _TEXT_MAY_STAND_FOR:
        parts[model.__name__] = {"anyOf": [{"type": "string"}, parts[model.__name__]]}
    return {"$schema": GenerateJsonSchema.schema_dialect, **made}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The section and those below it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _models(field.annotation)
    else:
        for part in get_args(annotation):
            yield from _models(part)


def _told(model: type[BaseModel]) -> dict[str, str]:
    """What stands below the fields of a section and of those that it is made from, by field.

    Pydantic would read it, too (``use_attribute_docstrings``), but whenever the classes are loaded: 40 ms of every command.
    """
    found: dict[str, str] = {}
    for of in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        [section] = (node for node in ast.parse(inspect.getsource(of)).body if isinstance(node, ast.ClassDef))
        for field, after in pairwise(section.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                match after:
                    case ast.Expr(ast.Constant(str(words))):
                        found[field.target.id] = inspect.cleandoc(words)
    return found
