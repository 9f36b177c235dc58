"""Types of configuration values that are text, but not any text."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
"""How Kafka's clients speak to a listener."""

SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
"""What both Kafka clients can do with a name and a password; others need tickets or tokens that have no keys."""

_REGION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _region_name(text: str) -> str:
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


RegionKey = Annotated[str, AfterValidator(_region_name)]
"""A region's name. It becomes part of names of clusters, topics and transactional ids, and of routes (``a->b``)."""

Pattern = Annotated[str, AfterValidator(_pattern)]
"""A regular expression in Python's syntax."""
