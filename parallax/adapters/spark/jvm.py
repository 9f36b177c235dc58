"""Spark's JVM: the home that it is started from, and an archive of its classes, where `parallax spark prepare` has made one.

A JVM that fits maps the classes ready instead of reading and checking each of them. One that does not fit, since
Java or Spark have changed, passes over the archive; so does whoever could have been given it by somebody else.
"""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyspark
import structlog

from parallax.runtime.class_data import cache_directory, fingerprint

_log = structlog.get_logger(__name__)

INSTALLED = Path(pyspark.__file__).parent
"""The installed `pyspark` package, which is a Spark home too."""

_NEEDED_OF_HOME = ("bin", "jars")
_WITHOUT_A_WORD = "-Xlog:cds=off"
"""A newer Java would print errors of an archive that it passes over."""


@dataclass(frozen=True, slots=True)
class SparkJvm:
    """What Spark's JVM is started from.

    Attributes:
        home: what SPARK_HOME shall say.
        options: of the JVM, besides those that every start has.
    """

    home: Path
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where an archive lies, or would lie, with the home that its class path names: both are one Java's and one Spark's.

    Attributes:
        folder: is this user's alone.
    """

    folder: Path

    @property
    def home(self) -> Path:
        """A Spark home that has always the same name."""
        return self.folder / "home"

    @property
    def archive(self) -> Path:
        """The archive."""
        return self.folder / "classes.jsa"

    def jvm(self) -> SparkJvm:
        """A JVM that uses the archive."""
        return SparkJvm(
            self.home, (f"-XX:SharedArchiveFile={shlex.quote(str(self.archive))}", _WITHOUT_A_WORD)
        )


def archives() -> Path | None:
    """The folder in which archives of Spark's classes lie; None: nothing says where this user's home is."""
    try:
        return cache_directory() / "spark"
    except RuntimeError:
        return None


def place_of(java_home: Path, folder: Path) -> Prepared:
    """Where the archive of this Java and of the installed Spark lies.

    Raises:
        OSError: it can't be told, because this Java keeps its library elsewhere, for example.
    """
    return Prepared(folder / fingerprint(java_home, INSTALLED / "jars"))


def usual_jvm(java_home: Path) -> SparkJvm:
    """A JVM with the archive, if there is one that fits and that nobody else can have made; without it otherwise."""
    with suppress(OSError):  # then there is none
        if (folder := archives()) is not None:
            place = place_of(java_home, folder)
            if place.archive.is_file() and (place.home / "jars").samefile(INSTALLED / "jars"):
                if stranger := _writable_by_others(place):
                    _log.warning(
                        "class_archive_not_used", path=str(stranger), problem="others may write there"
                    )
                else:
                    return place.jvm()
    return SparkJvm(unpacked_spark_home())


def _writable_by_others(place: Prepared) -> Path | None:
    """Whoever writes an archive, or a home, decides what the JVM runs."""
    for path in (place.folder.parent, place.folder, place.home, place.archive):
        found = path.lstat()
        if found.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(found.st_mode) & 0o022:
            return path
    return None


def link_home(folder: Path) -> None:
    """Make a Spark home that has what the installed one has, but no `python/lib/pyspark.zip`.

    Spark puts that archive before everything else on the path of each Python process it starts, and Python keeps no
    bytecode of what it imports from an archive: each process compiled PySpark anew, which took 2.0 instead of 0.7
    CPU seconds; an application with two regions starts nine such processes one after another. Where the archive is
    missing they import the installed package, which is the same code.
    """
    for name in _NEEDED_OF_HOME:
        (folder / name).symlink_to(INSTALLED / name, target_is_directory=True)


def unpacked_spark_home() -> Path:
    """Such a home (`link_home`), kept until this process ends."""
    return Path(_folder().name)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="parallax-spark-", ignore_cleanup_errors=True)
    link_home(Path(folder.name))
    return folder
