"""The pinned versions of versions.toml, the one place that names them."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that one kind of process needs on its class path.

    Attributes:
        name: `kafka` or `cassandra`.
        version: Version of the product itself.
        image: The official container image of the same version, used by compose/.
        coordinates: Maven coordinates `group:artifact:version`; their runtime dependencies come along.
    """

    name: str
    version: str
    image: str
    coordinates: tuple[str, ...]

    @property
    def directory_name(self) -> str:
        """A folder name that changes whenever a coordinate does."""
        digest = hashlib.sha256("\n".join(self.coordinates).encode()).hexdigest()[:12]
        return f"{self.name}-{self.version}-{digest}"


@dataclass(frozen=True, slots=True)
class JavaVersions:
    """Accepted major versions of Java, and where compose/ takes it from."""

    accepted: tuple[int, ...]
    image: str
    package: str


@dataclass(frozen=True, slots=True)
class Versions:
    """Everything in versions.toml."""

    kafka: JarSet
    cassandra: JarSet
    java: JavaVersions


def _jar_set(name: str, table: dict[str, Any]) -> JarSet:
    return JarSet(name, table["version"], table["image"], tuple(table["artifacts"]))


@cache
def load_versions() -> Versions:
    """Read versions.toml."""
    document = tomllib.loads(
        resources.files("lab.stack").joinpath("versions.toml").read_text(encoding="utf-8")
    )
    java = document["java"]
    return Versions(
        kafka=_jar_set("kafka", document["kafka"]),
        cassandra=_jar_set("cassandra", document["cassandra"]),
        java=JavaVersions(tuple(java["accepted"]), java["image"], java["package"]),
    )
