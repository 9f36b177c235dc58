"""Class data archives: what a JVM has once read and checked of its jars, mapped ready from a file at every later start."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where fetched and made things are kept: PARALLAX_CACHE, or `parallax` under XDG_CACHE_HOME or ~/.cache.

    Raises:
        RuntimeError: nothing says where this user's home is.
    """
    environment = os.environ if environment is None else environment
    if chosen := environment.get("PARALLAX_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "parallax"


def fingerprint(java_home: Path, jars: Path) -> str:
    """Changes with the Java, with any of the jars and with the order in which their folder lists them: a JVM compares all that.

    Raises:
        OSError: there is no such Java, or no such folder.
    """
    library = (java_home / "lib" / "server" / "libjvm.so").resolve()
    parts = [str(jars)]
    for path in (library, *jars.iterdir()):
        found = path.stat()
        parts.append(f"{path} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def dump(
    java_home: Path,
    class_path: str,
    classes: Path,
    archive: Path,
    *,
    timeout_s: float,
    options: Sequence[str] = (),
) -> str:
    """Make an archive of listed classes; it appears under its name when it is complete.

    Args:
        java_home: The Java whose archive it is.
        class_path: As it will be at the starts that use it.
        classes: The list, as `-XX:DumpLoadedClassList` writes it.
        archive: The file to make, in a folder that is there.
        timeout_s: The JVM is killed after that.
        options: Further ones of the JVM.

    Returns:
        Why there is none, or nothing.
    """
    with tempfile.TemporaryDirectory(prefix=f"{archive.stem}-", dir=archive.parent) as scratch:
        made = Path(scratch) / archive.name
        command = [str(java_home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedClassListFile={classes}"]
        command += [f"-XX:SharedArchiveFile={made}", *options, "-cp", class_path]
        try:
            code = subprocess.run(  # noqa: S603 - the Java that is started anyway
                command, capture_output=True, check=False, timeout=timeout_s
            ).returncode
        except subprocess.TimeoutExpired:
            return f"not ready after {timeout_s:.0f} s"
        if code or not made.is_file():
            return f"exit code {code}"
        made.rename(archive)
    return ""
