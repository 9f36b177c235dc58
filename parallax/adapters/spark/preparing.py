"""Makes the archive of Spark's classes: an application with one lease that does nothing says which they are.

Making it takes half a minute of a machine's CPU and 185 MB, so it is done when it is asked for, and not by a service that is about to copy.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkContext

from parallax.adapters.spark.jvm import INSTALLED, Prepared, SparkJvm, archives, link_home, place_of
from parallax.adapters.spark.leases import Counts, LeaseQuery, LeaseValues, start_lease_query
from parallax.adapters.spark.reporting import StatusTarget
from parallax.adapters.spark.session import SessionSettings, StartingSession, find_java_home
from parallax.errors import ConfigError, RefusedError, UnavailableError
from parallax.runtime.class_data import dump

_REHEARSAL_TIMEOUT_S = 300
_MAKE_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Preparation:
    """An archive, there or to be made.

    Attributes:
        java_home: the Java whose archive it is.
        place: where it lies.
    """

    java_home: Path
    place: Prepared

    @property
    def ready(self) -> bool:
        """Whether it is there."""
        return self.place.archive.is_file()


def preparation() -> Preparation:
    """What `prepare` would make here.

    Raises:
        ConfigError: there is no Java, its kind is not known, nothing says where the cache is, or SPARK_HOME names another Spark.
    """
    if other := os.environ.get("SPARK_HOME"):
        raise ConfigError(
            f"SPARK_HOME is {other}: archives are made for the installed PySpark, and used where SPARK_HOME is not set"
        )
    java_home = find_java_home()
    folder = archives()
    if folder is None:
        raise ConfigError("this user has no home: name a folder for the archive by PARALLAX_CACHE")
    try:
        return Preparation(java_home, place_of(java_home, folder))
    except OSError as error:
        raise ConfigError(f"the Java in {java_home} can have no archive: {error}") from error


def prepare(wanted: Preparation) -> None:
    """Make the archive, also where there is one already. Replaces those of this Spark with another Java, or with other jars.

    Raises:
        RefusedError: another process makes it.
        UnavailableError: Spark did not end within minutes, or Java made no archive.
        ConfigError: the folder can't be written.
    """
    place = wanted.place
    try:
        place.folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with _locked(place.folder.with_suffix(".lock")):
            place.archive.unlink(missing_ok=True)
            if not place.home.is_dir():
                place.folder.mkdir(mode=0o755, exist_ok=True)
                place.home.mkdir(mode=0o755)
                link_home(place.home)
            _make(wanted)
            _clean_up(place)
    except OSError as error:
        raise ConfigError(f"{place.folder}: {error}; PARALLAX_CACHE names another folder") from error


def forget() -> Sequence[Path]:
    """Remove every archive, so that Spark starts without. Homes stay: a JVM that runs may still read them.

    Returns:
        What was removed.
    """
    folder = archives()
    found = [] if folder is None else sorted(folder.glob("*/classes.jsa"))
    for path in found:
        path.unlink(missing_ok=True)
    return found


def _make(wanted: Preparation) -> None:
    place = wanted.place
    with tempfile.TemporaryDirectory(prefix="parallax-classes-") as scratch:
        classes = Path(scratch) / "classes"
        class_path = _rehearse(
            SparkJvm(place.home, (f"-XX:DumpLoadedClassList={classes}",)), Path(scratch) / "checkpoint"
        )
        if not classes.is_file():
            raise UnavailableError(f"the Java in {wanted.java_home} did not say which classes Spark loads")
        problem = dump(wanted.java_home, class_path, classes, place.archive, timeout_s=_MAKE_TIMEOUT_S)
    if problem:
        raise UnavailableError(
            f"the Java in {wanted.java_home} made no archive of Spark's classes: {problem}"
        )
    place.archive.chmod(0o644)  # whatever the umask: an archive that others may write is not used


def _rehearse(jvm: SparkJvm, checkpoint: Path) -> str:
    """Start Spark, hold a lease that ends at once, stop; the class path of the JVM."""
    query = LeaseQuery("rehearsal", 1, lambda _target: (_OneLease(), _NoWork()), available_now=True)
    with closing(StartingSession(SessionSettings(query.leases), jvm)) as starting:
        session = starting.session()
        class_path = SparkContext._gateway.jvm.java.lang.System.getProperty("java.class.path")  # noqa: SLF001 - no public door
        running = start_lease_query(session, query, StatusTarget("", 0, ""), str(checkpoint), json_logs=False)
        if not running.awaitTermination(_REHEARSAL_TIMEOUT_S):
            raise UnavailableError(f"Spark's rehearsal did not end within {_REHEARSAL_TIMEOUT_S} s")
    return str(class_path)


class _OneLease:
    def plan(self, epoch: int) -> Sequence[LeaseValues]:  # noqa: ARG002 - of the protocol
        return [{}]


class _NoWork:
    def hold(self, lease: LeaseValues) -> Counts:  # noqa: ARG002 - of the protocol
        return {}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(f"{path}: another process makes this archive; wait for it") from None
        yield


def _clean_up(kept: Prepared) -> None:
    """Archives are large: one is kept for each Spark that is installed."""
    for folder in kept.folder.parent.iterdir():
        jars = folder / "home" / "jars"
        if folder == kept.folder or not jars.is_symlink():
            continue
        with suppress(OSError):
            if not jars.exists():
                shutil.rmtree(folder)
            elif jars.samefile(INSTALLED / "jars"):
                (folder / kept.archive.name).unlink(missing_ok=True)
