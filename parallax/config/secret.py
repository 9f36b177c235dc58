"""Secrets of the configuration: read where they are used, shown nowhere.

A secret stands in a file of its own (``password_file``), in an environment variable, or in the configuration file. Files are
read whenever a client is built, so that a new password is taken without a restart. What goes to another process, pickled, is
where the secret stands; it is read again there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr

from parallax.config.mistakes import KeyPath, dotted, variable_of
from parallax.errors import ConfigError

FILE_SUFFIX = "_file"
"""Beside every key that is a secret stands one that ends so, and names the file that holds it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a secret stands.

    Attributes:
        key: its place in the configuration.
        file: the configuration file.
        variable: the environment variable that sets it, or a section above it; None: the file does.
    """

    key: KeyPath
    file: str
    variable: str | None = None
    inside: KeyPath = ()
    """Of a variable that sets a section: the way to the key in there."""

    def read(self) -> str:
        """The secret, as it is there now.

        Raises:
            ConfigError: it is not there.
        """
        try:
            found = self._found()
        except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError):
            found = None
        if not isinstance(found, str):
            place = f"environment variable {self.variable}" if self.variable else self.file
            raise ConfigError(
                f"{dotted(self.key)}: this process finds no secret in {place}, where the one that started it has it: make it known "
                f"here as well, or name a file by {dotted(self.key)}{FILE_SUFFIX}"
            )
        return found

    def _found(self) -> Any:
        if self.variable is not None:
            text = os.environ[self.variable]
            return _below(yaml.safe_load(text), self.inside) if self.inside else text
        return _below(yaml.safe_load(Path(self.file).read_text(encoding="utf-8")), self.key)


class Secret(SecretStr):
    """A secret as text, or where it stands. It neither shows nor pickles what it is."""

    origin: Origin | None = None
    """None: it was given by the program."""

    @classmethod
    def at(cls, origin: Origin) -> Secret:
        """One that is read when it is first asked for."""
        made = cls("")
        made.origin = origin
        del made._secret_value
        return made

    def get_secret_value(self) -> str:
        """What it is.

        Raises:
            ConfigError: it came from another process, and does not stand here.
        """
        if not hasattr(self, "_secret_value"):
            assert self.origin is not None  # noqa: S101 - `at` alone leaves the value out
            self._secret_value = self.origin.read()
        return self._secret_value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        if self.origin is not None and other.origin is not None:
            return self.origin == other.origin
        return self.get_secret_value() == other.get_secret_value()

    def __hash__(self) -> int:
        return hash(self.origin)

    def __len__(self) -> int:
        return len(self.get_secret_value())

    def __repr__(self) -> str:
        return "Secret('**********')"

    def __str__(self) -> str:
        return "**********"

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, _memo: Any) -> Secret:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.origin is None:
            raise ConfigError(
                "a secret that the program gave can't go to another process: name a file that holds it"
            )
        return Secret.at, (self.origin,)


def read_secret(given: Secret | None, file: str | None, key: str) -> str | None:
    """The secret, from its file if it has one; None: there is none.

    Args:
        given: the key's value.
        file: the value of the key beside it, which names a file.
        key: as the user knows it, for messages.

    Raises:
        ConfigError: the file can't be read, is empty, or is no text.
    """
    if file is None:
        return None if given is None else given.get_secret_value()
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{key}{FILE_SUFFIX}: {file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{key}{FILE_SUFFIX}: {file}: is not text in UTF-8") from None
    # Editors and `echo` end a file with a new line, which is no part of a password.
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise ConfigError(f"{key}{FILE_SUFFIX}: {file}: is empty; it has to hold the secret alone")
    return text


def check_given_once(section: BaseModel) -> None:
    """Refuse a secret that has both a value and a file.

    Raises:
        ValueError: one has.
    """
    for name in type(section).model_fields:
        beside = f"{name}{FILE_SUFFIX}"
        if getattr(section, name) is not None and getattr(section, beside, None) is not None:
            raise ValueError(f"{name} and {beside} are both set; keep one of them")


def note_origins(model: BaseModel, file: Path, origins: Mapping[KeyPath, str]) -> None:
    """Tell every secret in a configuration where it stands.

    Args:
        model: the configuration.
        file: it was read from.
        origins: environment variables by the keys and sections that they have set.
    """
    for key, secret in _secrets(model, ()):
        variable, depth = variable_of(origins, key)
        secret.origin = Origin(key, str(file.absolute()), variable, key[depth:] if variable else ())


def _secrets(value: Any, key: KeyPath) -> Iterator[tuple[KeyPath, Secret]]:
    if isinstance(value, Secret):
        yield key, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name), (*key, name))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets(inner, (*key, name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for place, inner in enumerate(value):
            yield from _secrets(inner, (*key, place))


def _below(values: Any, key: KeyPath) -> Any:
    for part in key:
        values = values[part]
    return values
