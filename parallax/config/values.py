"""Kinds of values in the configuration: names, addresses, patterns, and what all sections have in common."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

_LAST_PORT = 65_535
_REGION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def region_name(text: str) -> str:
    """The text, if a region may be called so.

    Raises:
        ValueError: it may not.
    """
    if _REGION_NAME.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is no name for a region: it takes 1 to 64 ASCII letters, digits, '.', '_' and '-', and begins "
            "with a letter or digit (it becomes part of topic and cluster names)"
        )
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


def _address(text: str) -> str:
    host, _, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not host or not port.isdecimal() or int(port) > _LAST_PORT or (":" in host and not bracketed):
        raise ValueError(f"{text!r} is not of the form host:port")
    return text


def _addresses(text: str) -> str:
    for part in text.split(","):
        _address(part)
    return text


def _host_name(text: str) -> str:
    bracketed = text.startswith("[") and text.endswith("]")
    if not text or "/" in text or (":" in text and not bracketed):
        raise ValueError(
            f"{text!r} is no name of a host alone: write it without a scheme and without a port, an IPv6 address in brackets"
        )
    return text


RegionKey = Annotated[str, AfterValidator(region_name)]
"""A region's name. It becomes part of names of clusters, topics and transactional ids, and of routes (``a->b``)."""

Address = Annotated[str, AfterValidator(_address)]
"""``host:port``; an IPv6 address stands between square brackets."""

Addresses = Annotated[str, AfterValidator(_addresses)]
"""One or more of these, with commas between them."""

HostName = Annotated[str, AfterValidator(_host_name)]
"""Without a port."""

Pattern = Annotated[str, AfterValidator(_pattern)]
"""A regular expression in Python's syntax."""


class Section(BaseModel):
    """A section: it has no other keys than those that are named, and is never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def is_loopback(address: str) -> bool:
    """Whether only processes of the same machine reach an address of the form ``host:port``.

    A name is not looked up: whoever answers for it may answer otherwise tomorrow. ``localhost`` is loopback (RFC 6761).
    """
    host = address.strip().rpartition(":")[0].strip("[]")
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
