"""Fetches the jars of Kafka and Cassandra into a cache outside of the checkout.

Maven does it where it is installed; otherwise the Ivy that PySpark brings along. Both resolve the same
coordinates (versions.toml) with their runtime dependencies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from lab.stack.errors import ArtifactError
from lab.stack.java import Java
from lab.stack.truststore import trust_store_options
from lab.stack.versions import JarSet
from parallax.runtime.class_data import cache_directory

Report = Callable[[str], None]

_POLL_S = 0.2
"""Between two looks at a tool that downloads for seconds or minutes."""
_PROGRESS_EVERY_S = 10.0
_FETCH_TIMEOUT_S = 1800
_LOG_TAIL_CHARACTERS = 4000


def fetch_jars(jars: JarSet, java: Java, *, report: Report, cache: Path | None = None) -> Path:
    """Make sure that a set of jars is in the cache.

    Two processes that ask at once fetch once: the second waits for the first. A set appears under its final
    name only when complete, so an interrupted download leaves nothing that looks finished.

    Args:
        jars: What to fetch.
        java: Runs Ivy where Maven is missing.
        report: Gets a line about what is going on.
        cache: The cache; `cache_directory()` by default.

    Returns:
        The folder that holds the jars.

    Raises:
        ArtifactError: The download failed; the message ends with the tool's own words.
    """
    root = (cache or cache_directory()) / "jars"
    target = root / jars.directory_name
    if target.is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    with locked(
        root / f"{jars.directory_name}.lock", waiting=f"another process fetches {jars.name}", report=report
    ):
        if target.is_dir():
            return target
        with tempfile.TemporaryDirectory(prefix=f"{jars.name}-", dir=root) as scratch_name:
            scratch = Path(scratch_name)
            fetched = scratch / "jars"
            fetched.mkdir()
            tool, command, environment = _fetch_command(jars, java, scratch, fetched)
            report(f"{jars.name} {jars.version}: fetching with {tool} into {target}")
            started = time.monotonic()
            _run(command, environment, scratch / "fetch.log", fetched, f"{jars.name} {jars.version}", report)
            count = sum(1 for _ in fetched.glob("*.jar"))
            if count == 0:
                raise ArtifactError(
                    f"{tool} said that it fetched {jars.name} {jars.version}, but left no jar."
                )
            fetched.rename(target)
            report(f"{jars.name} {jars.version}: {count} jars in {time.monotonic() - started:.0f} s")
    return target


def _fetch_command(
    jars: JarSet, java: Java, scratch: Path, fetched: Path
) -> tuple[str, list[str], dict[str, str]]:
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    maven = shutil.which("mvn")
    if maven is not None:
        project = scratch / "pom.xml"
        project.write_text(_maven_project(jars), encoding="utf-8")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
        return "Maven", [maven, "--batch-mode", "--quiet", "--file", str(project), *goal], environment
    ivy = _pyspark_ivy()
    description = scratch / "ivy.xml"
    description.write_text(_ivy_module(jars), encoding="utf-8")
    # Downloads that ended well are kept apart from the scratch folder: a second attempt goes on from them.
    ivy_cache = scratch.parent / "ivy-cache"
    command = [
        str(java.executable),
        *(trust_store_options(scratch) if java.bundled else []),
        f"-Divy.default.ivy.user.dir={ivy_cache}",
        "-jar",
        str(ivy),
        "-cache",
        str(ivy_cache),
        "-ivy",
        str(description),
        "-confs",
        "default",
        "-retrieve",
        f"{fetched}/[artifact]-[revision](-[classifier]).[ext]",
    ]
    return "Ivy", command, environment


def _pyspark_ivy() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ArtifactError(
            "Neither Maven nor PySpark (whose Ivy would do) is installed, so the jars can't be fetched. "
            "Install one: pip install '.[lab]' in the checkout."
        )
    found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise ArtifactError(
            f"PySpark in {Path(spec.origin).parent} has no jars/ivy-*.jar; install Maven instead."
        )
    return found[-1]


def _coordinates(jars: JarSet) -> Iterator[tuple[str, str, str]]:
    for coordinate in jars.coordinates:
        group, artifact, version = coordinate.split(":")
        yield quoteattr(group)[1:-1], quoteattr(artifact)[1:-1], quoteattr(version)[1:-1]


def _maven_project(jars: JarSet) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in _coordinates(jars)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>parallax</groupId><artifactId>{jars.name}</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def _ivy_module(jars: JarSet) -> str:
    dependencies = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" conf="default->default"/>'
        for group, artifact, version in _coordinates(jars)
    )
    return (
        f'<ivy-module version="2.0"><info organisation="parallax" module="{jars.name}"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>"
    )


def _run(
    command: list[str], environment: dict[str, str], log: Path, fetched: Path, what: str, report: Report
) -> None:
    started = time.monotonic()
    next_report_s = _PROGRESS_EVERY_S
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        ) as process,
    ):
        try:
            while process.poll() is None:
                time.sleep(_POLL_S)
                elapsed_s = time.monotonic() - started
                if elapsed_s > _FETCH_TIMEOUT_S:
                    raise ArtifactError(
                        f"Fetching {what} took longer than {_FETCH_TIMEOUT_S} s. {_tail(log)}"
                    )
                if elapsed_s > next_report_s:
                    next_report_s += _PROGRESS_EVERY_S
                    report(f"{what}: still fetching, {elapsed_s:.0f} s, {_arrived(log, fetched)}")
        finally:
            if process.poll() is None:
                process.kill()
    if process.returncode != 0:
        raise ArtifactError(
            f"Fetching {what} failed (exit code {process.returncode}). Is the package repository reachable? "
            f"{_tail(log)}"
        )


def _arrived(log: Path, fetched: Path) -> str:
    downloads = log.read_text(encoding="utf-8", errors="replace").count("[SUCCESSFUL ]")
    return f"{max(downloads, sum(1 for _ in fetched.glob('*.jar')))} jars so far"


def _tail(log: Path) -> str:
    return (
        "The tool's last words:\n" + log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_CHARACTERS:]
    )


@contextmanager
def locked(path: Path, *, waiting: str, report: Report) -> Iterator[None]:
    """Hold a file of the cache for this process alone; ``waiting`` is reported where another one holds it."""
    with path.open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{waiting}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{os.getpid()} {sys.executable}\n")
        lock.flush()
        yield
