"""Java's properties files, and the login modules that Kafka's clients have in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from parallax.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACE = " \t\f"
_MODULE = re.compile(
    r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL | re.IGNORECASE
)
_OPTION = re.compile(r"""([\w.\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


@dataclass(frozen=True, slots=True)
class Property:
    """A key with its value, and the line where it begins (from 1)."""

    key: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class LoginModule:
    """What stands in ``sasl.jaas.config``."""

    name: str
    """The class, without its package."""
    options: Mapping[str, str]


def read_properties(text: str) -> list[Property]:
    """Every key in the order of the file; a key may stand there more than once, and Java takes the last one.

    Raises:
        ConfigError: an escape that Java would refuse.
    """
    return [
        Property(*_split(line, number), number) for number, line in _logical_lines(text) if line.strip(_SPACE)
    ]


def read_login_module(text: str) -> LoginModule | None:
    """The first login module; None: the text has none."""
    found = _MODULE.fullmatch(text)
    if found is None:
        return None
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single) if double or single else plain
        for name, double, single, plain in _OPTION.findall(found.group(3))
    }
    return LoginModule(found.group(1).rpartition(".")[2], options)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, those joined that end with a backslash."""
    joined, begun = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        stripped = line.lstrip(_SPACE)
        if not begun and stripped[:1] in {"#", "!"}:
            continue
        begun = begun or number
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            joined += stripped[:-1]
            continue
        yield begun, joined + stripped
        joined, begun = "", 0
    if begun:
        yield begun, joined


def _split(line: str, number: int) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _SPACE:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_SPACE)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_SPACE)
    return _unescaped(key, number), _unescaped(rest, number)


def _unescaped(text: str, number: int) -> str:
    def replace(found: re.Match[str]) -> str:
        escaped = found.group(1)
        if escaped.startswith("u"):
            if len(escaped) != 5:  # noqa: PLR2004 - u and four digits
                raise ConfigError(f"line {number}: \\u without four hexadecimal digits")
            return chr(int(escaped[1:], 16))
        return _ESCAPES.get(escaped, escaped)

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", replace, text)
