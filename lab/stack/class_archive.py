"""Classes of a broker, read and checked once per machine: the JVM maps them ready from a file at every later start.

A broker's start takes half of the processor time so. The first brokers of a version list the classes that they load, the
next stack makes the archive of the list. A JVM passes over an archive that does not fit it without a word (-Xshare:auto).
"""

from __future__ import annotations

from pathlib import Path

from lab.stack.artifacts import Report, locked
from lab.stack.java import Java
from parallax.runtime.class_data import cache_directory, dump, fingerprint

_MAKE_TIMEOUT_S = 300
_ANSWERED = "org/apache/kafka/common/requests/MetadataResponse"
"""A broker loads this class for its first client: a list with it is whole enough."""


def archive_options(
    java: Java, jars: Path, *, report: Report, cache: Path | None = None, whole_with: str = _ANSWERED
) -> list[str]:
    """JVM options that use the archive of a class path, or list what shall be in it where there is none yet.

    Args:
        java: Runs the processes; each Java has archives of its own.
        jars: The folder that the class path `JARS/*` names.
        report: Gets a line where the archive is made now (some seconds).
        cache: Where archives are kept; a folder of `cache_directory()` by default.
        whole_with: A list that names this class, with slashes, is worth an archive.
    """
    folder = cache or cache_directory() / "classes"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{jars.name}-{fingerprint(java.home, jars)}"
    archive = folder / f"{stem}.jsa"
    if archive.is_file():
        return _using(archive)
    waiting = f"another process makes an archive of the classes of {jars.name}"
    with locked(folder / f"{stem}.lock", waiting=waiting, report=report):
        if archive.is_file() or _make(archive, java, jars, _lists(folder, stem, whole_with), report):
            return _using(archive)
    return [f"-XX:DumpLoadedClassList={folder}/{stem}-%p.classes"]


def _using(archive: Path) -> list[str]:
    return [f"-XX:SharedArchiveFile={archive}"]


def _lists(folder: Path, stem: str, whole_with: str) -> list[Path]:
    """Whole lists, the longest first."""
    found = sorted(folder.glob(f"{stem}-*.classes"), key=lambda path: path.stat().st_size, reverse=True)
    return [path for path in found if whole_with in path.read_text(encoding="utf-8").splitlines()]


def _make(archive: Path, java: Java, jars: Path, lists: list[Path], report: Report) -> bool:
    if not lists:
        return False
    report(f"{jars.name}: making an archive of its classes, once")
    problem = dump(java.home, f"{jars}/*", lists[0], archive, timeout_s=_MAKE_TIMEOUT_S)
    # Where it failed, brokers start without, and list their classes anew: not each stack tries the same list again.
    for path in archive.parent.glob(f"{archive.stem}-*.classes"):
        path.unlink(missing_ok=True)
    if problem:
        report(f"{jars.name}: no archive of its classes was made ({problem})")
    return not problem
