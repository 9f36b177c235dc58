"""Environment variables that override single keys of the configuration file.

``PARALLAX__SERVICE__STALE_AFTER_MS=5000`` sets ``service.stale_after_ms``: two underscores part the keys. Shells know
neither dashes nor dots in names, so capitals don't count, and ``_`` stands for ``-`` and ``.`` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, SecretStr

from parallax.config.mistakes import KeyPath, below, dotted, is_mapping, section_of, without_values
from parallax.config.secret import FILE_SUFFIX
from parallax.errors import ConfigError

ENV_PREFIX = "PARALLAX__"


def override(
    values: dict[str, Any], environ: Mapping[str, str], model: type[BaseModel]
) -> dict[KeyPath, str]:
    """Set in ``values`` what the variables say.

    Args:
        values: what the file says.
        environ: all variables; those that don't begin with `ENV_PREFIX` are left alone.
        model: of the whole configuration; tells which keys are text.

    Returns:
        The variable that a key or a section comes from, for those that the file doesn't have or that were replaced.

    Raises:
        ConfigError: a variable fits several keys, is no YAML, or leads into a key that is no section.
    """
    origins: dict[KeyPath, str] = {}
    set_by: dict[KeyPath, str] = {}
    names = [name for name in environ if name.startswith(ENV_PREFIX)]
    # A variable that sets a whole section comes before those that set keys of it.
    for name in sorted(names, key=lambda name: (name.count("__"), name)):
        _Override(name, environ[name], origins, set_by).apply(values, model)
    return origins


class _Override:
    """One variable on its way to its key."""

    def __init__(self, name: str, text: str, origins: dict[KeyPath, str], set_by: dict[KeyPath, str]) -> None:
        self._name = name
        self._text = text
        self._origins = origins
        self._set_by = set_by

    def apply(self, values: dict[str, Any], model: type[BaseModel]) -> None:
        parts = self._name.removeprefix(ENV_PREFIX).split("__")
        if "" in parts:
            raise self._error(f"not of the form {ENV_PREFIX}SECTION__KEY")
        section, path, annotation = values, KeyPath(), model
        for place, part in enumerate(parts, start=1):
            key = self._key(part, section, annotation, path)
            path = (*path, key)
            annotation = below(annotation, key)
            if place == len(parts):
                break
            if section.get(key) is None:
                section[key] = {}
                self._origins.setdefault(path, self._name)
            section = section[key]
            if not isinstance(section, dict):
                raise self._error(f"{dotted(path)!r} is not a section")
        if path in self._set_by:
            raise self._error(f"{self._set_by[path]} sets {dotted(path)!r} too; keep one of them")
        self._set_by[path] = self._origins[path] = self._name
        section[str(path[-1])] = self._value(annotation)
        for other in _others(str(path[-1])):
            if (*path[:-1], other) not in self._set_by:
                section.pop(other, None)

    def _key(self, part: str, section: Mapping[str, Any], annotation: Any, path: KeyPath) -> str:
        """The key that is meant: one that exists, or the part in small letters."""
        model = None if is_mapping(annotation) else section_of(annotation)
        known: Iterable[str] = section if model is None else model.model_fields
        found = [key for key in known if isinstance(key, str) and _folded(key) == _folded(part)]
        if len(found) > 1:
            both = " and ".join(repr(dotted((*path, key))) for key in found)
            raise self._error(f"may mean {both}; set it in the file")
        return found[0] if found else part.lower()

    def _value(self, annotation: Any) -> Any:
        if _is_text(annotation):
            # An empty variable is the only way to say that an optional key has no value.
            return None if not self._text and NoneType in get_args(annotation) else self._text
        try:
            return yaml.safe_load(self._text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            # Without the excerpt that the whole error has: the text may hold a secret.
            raise self._error(f"not valid YAML: {without_values(error)}") from None

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(f"environment variable {self._name}: {problem}")


def _others(key: str) -> tuple[str, str]:
    """What may stand for the same secret: the file that holds it, or the secret itself."""
    return f"{key}{FILE_SUFFIX}", key.removesuffix(FILE_SUFFIX) if key.endswith(FILE_SUFFIX) else ""


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _is_text(annotation: Any) -> bool:
    """Whether all values are text, so that nothing in it is YAML: passwords may begin with ``@`` or be digits."""
    if get_origin(annotation) is Annotated:
        return _is_text(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return all(isinstance(choice, str) for choice in get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, str | SecretStr):
        return True
    choices = get_args(annotation)
    if NoneType not in choices:
        return False
    return all(_is_text(choice) for choice in choices if choice is not NoneType)
