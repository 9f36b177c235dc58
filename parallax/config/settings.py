"""Every setting of a configuration by its key, with secrets masked: for people who ask what holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from parallax.config.config import Config
from parallax.config.mistakes import KeyPath, dotted
from parallax.config.secret import Secret

MASK = "**********"

_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
"""Of whoever wrote them into an address."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        path: its place, from the top of the file.
        value: as JSON types; `MASK` for a secret.
        given: whether the file or the environment says so; else it is the default.
    """

    path: KeyPath
    value: Any
    secret: bool
    given: bool

    @property
    def key(self) -> str:
        """The key as users write it."""
        return dotted(self.path)

    @property
    def text(self) -> str:
        """The value as JSON."""
        return json.dumps(self.value)


def settings_of(config: Config) -> list[Setting]:
    """Every setting, in the order of the configuration's sections."""
    return list(_below(config, (), given=True))


def nested(settings: list[Setting], *, defaults: bool) -> dict[str, Any]:
    """The settings as a file has them.

    Args:
        settings: of a configuration.
        defaults: with those that nobody has given.
    """
    root: dict[str, Any] = {}
    for setting in settings:
        if setting.given or defaults:
            section = root
            for part in setting.path[:-1]:
                section = section.setdefault(str(part), {})
            section[str(setting.path[-1])] = setting.value
    return root


def _below(value: Any, path: KeyPath, *, given: bool) -> Iterator[Setting]:
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            here = given and name in value.model_fields_set
            yield from _below(getattr(value, name), (*path, name), given=here)
    elif isinstance(value, Mapping) and any(isinstance(item, BaseModel) for item in value.values()):
        for name, item in value.items():
            yield from _below(item, (*path, name), given=given)
    elif isinstance(value, Secret):
        yield Setting(path, MASK, secret=True, given=given)
    else:
        yield Setting(path, _plain(value), secret=False, given=given)


def _plain(value: Any) -> Any:
    """The value as JSON types, without what may stand in an address for a password."""
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return _CREDENTIALS.sub(f"{MASK}@", value)
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
