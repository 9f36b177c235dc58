"""A whole local stack as a context manager: brokers, Cassandra and the services."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.stack.artifacts import Report, fetch_jars
from lab.stack.cassandra_node import cassandra_spec
from lab.stack.class_archive import archive_options
from lab.stack.errors import StackStateError, UnknownProcessError
from lab.stack.java import Java, find_java
from lab.stack.kafka_broker import BrokerAddress, broker_specs
from lab.stack.layout import StackLayout, port_names
from lab.stack.links import LinkState, StackLinks
from lab.stack.ports import PortReservations
from lab.stack.process import Launcher, ManagedProcess, ProcessSpec, ProcessState
from lab.stack.secure.setup import grant_rights, grant_store, issuer_specs, prepare_material
from lab.stack.services import apply_schema, service_specs, write_config
from lab.stack.spec import StackSpec
from lab.stack.steering import Steering
from lab.stack.versions import load_versions
from parallax.runtime.class_data import cache_directory

_PARALLEL_OPERATIONS = 16


def _silent(_line: str) -> None:
    """Report to nobody."""


class LocalStack:
    """Real Kafka brokers, Cassandra and the services as children of this process.

    Entering starts everything and waits until each part answers; leaving stops everything. The children die
    with this process, however it ends. Data and ports are kept in the folder and used again by the next start.

    Args:
        spec: What to run.
        directory: The stack's folder; one stack at a time.
        report: Gets a line for each part's progress.
    """

    def __init__(self, spec: StackSpec, directory: Path, report: Report = _silent) -> None:
        self._spec = spec
        self._directory = directory.absolute()
        self._report = report
        self._resources = ExitStack()
        self._processes: dict[str, ManagedProcess] = {}
        self._layout: StackLayout | None = None
        self._java: Java | None = None
        self._links: StackLinks | None = None

    def __enter__(self) -> Self:
        """Start everything.

        Raises:
            StackStateError: Another process runs a stack in this folder.
            JavaNotFoundError, ArtifactError, PortError: The preparations failed.
            ProcessDiedError, ReadinessTimeoutError: A part did not come up; everything was stopped again.
        """
        try:
            self._prepare()
            self._start_infrastructure()
            if self._spec.services:
                self._start_services()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop services, then brokers and Cassandra, and give the ports back."""
        try:
            services = [p for p in self._processes.values() if p.name in self.layout.service_names]
            others = [p for p in self._processes.values() if p not in services]
            for group in (services, others):
                if group:
                    _in_parallel(group, ManagedProcess.stop)
        finally:
            self._processes.clear()
            self._resources.close()

    # --- what tests, demo and benches ask -----------------------------------------------------------------

    @property
    def layout(self) -> StackLayout:
        """Names and addresses.

        Raises:
            StackStateError: The stack was never started.
        """
        if self._layout is None:
            raise StackStateError("The stack has not been started yet.")
        return self._layout

    @property
    def java(self) -> Java:
        """The Java that the stack runs on.

        Raises:
            StackStateError: The stack was never started.
        """
        if self._java is None:
            raise StackStateError("The stack has not been started yet.")
        return self._java

    @property
    def config_path(self) -> Path:
        """Configuration file for services and commands."""
        return self.layout.config_path

    def bootstrap(self, cluster: str) -> str:
        """Bootstrap servers of a cluster such as `aggregate-a`."""
        return self.layout.bootstrap(cluster)

    def cassandra_address(self, region: str | None = None) -> str:
        """Host and CQL port of a region's Cassandra node."""
        return self.layout.cassandra_address(region)

    def process(self, name: str) -> ManagedProcess:
        """A process by its exact name.

        Raises:
            UnknownProcessError: There is none of that name.
        """
        return self._resolve(name)[0]

    def kill(self, name: str) -> None:
        """SIGKILL a process, a cluster or a whole region (`region-a`), all at one moment.

        Raises:
            UnknownProcessError: There is none of that name.
        """
        _in_parallel(self._resolve(name), ManagedProcess.kill)
        self._report(f"{name}: killed")

    def stop(self, name: str) -> None:
        """Stop a process, a cluster or a region cleanly.

        Raises:
            UnknownProcessError: There is none of that name.
        """
        _in_parallel(self._resolve(name), ManagedProcess.stop)
        self._report(f"{name}: stopped")

    def freeze(self, name: str) -> None:
        """SIGSTOP a process, a cluster or a region: it keeps its connections and says nothing until `start`.

        Raises:
            UnknownProcessError: There is none of that name.
            StackStateError: It does not run.
        """
        _in_parallel(self._resolve(name), ManagedProcess.freeze)
        self._report(f"{name}: frozen")

    def fill_disk(self, name: str) -> None:
        """Leave a process, a cluster or a region no room to write, until it is started anew.

        Raises:
            UnknownProcessError: There is none of that name.
            StackStateError: It does not run.
        """
        _in_parallel(self._resolve(name), ManagedProcess.fill_disk)
        self._report(f"{name}: its disk is full")

    def link(self, name: str, state: LinkState) -> None:
        """Change the link by which the services of a steerable stack reach a Kafka cluster or a Cassandra node.

        Raises:
            UnknownProcessError: There is none of that name.
        """
        if self._links is None:
            raise UnknownProcessError(name, [])
        self._links.change(name, state)
        self._report(f"link to {name}: {state}")

    def steer(self, name: str, *, clock_ahead_ms: int = 0, resolver_late_ms: int = 0) -> None:
        """Make the clock of a service of a steerable stack wrong, or its resolver slow; without arguments all is right.

        Raises:
            UnknownProcessError: There is none of that name.
        """
        if not self._spec.steerable or name not in self.layout.service_names:
            raise UnknownProcessError(name, list(self.layout.service_names) if self._spec.steerable else [])
        steering = Steering(self.layout.steering_path(name))
        steering.set(clock_ahead_ms=clock_ahead_ms, resolver_late_ms=resolver_late_ms)
        self._report(
            f"{name}: its clock is {clock_ahead_ms} ms ahead, its resolver {resolver_late_ms} ms late"
        )

    def start(self, name: str) -> None:
        """Start what is not running, on its old ports and data, and wait until it answers; thaw what is frozen.

        Raises:
            UnknownProcessError: There is none of that name.
            ProcessDiedError, ReadinessTimeoutError: It did not come up.
        """
        chosen = self._resolve(name)
        services = [process for process in chosen if process.name in self.layout.service_names]
        self._start_all([process for process in chosen if process not in services])
        self._start_all(services)

    def status(self) -> dict[str, Any]:
        """What `parallax stack status --json` prints."""
        return {
            "regions": self.layout.regions_status(),
            "processes": [
                {
                    "name": process.name,
                    "pid": process.pid,
                    "log": str(process.spec.log),
                    "state": process.state.value,
                }
                for process in self._processes.values()
            ],
        }

    # --- how it starts ------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock_directory()
        self._java = find_java()
        versions = load_versions()
        kafka_jars = fetch_jars(versions.kafka, self._java, report=self._report)
        cassandra_jars = fetch_jars(versions.cassandra, self._java, report=self._report)
        remembered = _remembered_ports(self._directory)
        ports = self._resources.enter_context(PortReservations(cache_directory() / "ports", remembered))
        layout = StackLayout(
            self._spec, self._directory, {name: ports.get(name) for name in port_names(self._spec)}
        )
        layout.save()
        prepare_material(layout)
        write_config(layout)
        self._layout = layout
        if layout.link_ports:
            self._links = self._resources.enter_context(StackLinks(layout.link_ports))
        launcher = Launcher()
        self._resources.callback(launcher.close)
        environment = dict(os.environ) | {"JAVA_HOME": str(self._java.home)}
        specs = [
            *self._broker_specs(layout, kafka_jars, environment),
            *(self._cassandra_specs(layout, cassandra_jars, environment) if self._spec.store else ()),
            *issuer_specs(layout, environment),
            *service_specs(layout, self._java),
        ]
        self._processes = {spec.name: ManagedProcess(spec, launcher) for spec in specs}

    def _lock_directory(self) -> None:
        lock = self._resources.enter_context((self._directory / "stack.lock").open("w", encoding="utf-8"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StackStateError(
                f"A stack already runs in {self._directory}. Look at it with `parallax stack status`, end it with "
                "`parallax stack down`, or start another one in another folder (--dir)."
            ) from error

    def _broker_specs(
        self, layout: StackLayout, jars: Path, environment: dict[str, str]
    ) -> list[ProcessSpec]:
        class_options = archive_options(self.java, jars, report=self._report)
        specs = []
        for cluster in self._spec.clusters:
            addresses = [
                BrokerAddress(
                    name,
                    broker_id,
                    layout.ports[name],
                    layout.ports[f"{name}/controller"],
                    layout.ports.get(f"{name}/far-listener"),
                    layout.ports.get(f"{name}/far"),
                    layout.ports.get(f"{name}/tls"),
                    layout.ports.get(f"{name}/mutual"),
                )
                for broker_id, name in enumerate(cluster.broker_names, start=1)
            ]
            specs += broker_specs(
                cluster,
                addresses,
                spec=self._spec,
                java=self.java,
                jars=jars,
                directory=self._directory,
                environment=environment,
                class_options=class_options,
                material=layout.material,
                tls_material=layout.tls_material,
            )
        return specs

    def _cassandra_specs(
        self, layout: StackLayout, jars: Path, environment: dict[str, str]
    ) -> list[ProcessSpec]:
        nodes = list(self._spec.cassandra_nodes)
        return [
            cassandra_spec(
                node,
                port=layout.ports[node],
                storage_port=layout.ports[f"{node}/storage"],
                seed_storage_port=layout.ports[f"{nodes[0]}/storage"],
                position=position,
                spec=self._spec,
                java=self.java,
                jars=jars,
                directory=self._directory,
                environment=environment,
                material=layout.material,
            )
            for position, node in enumerate(nodes)
        ]

    def _start_infrastructure(self) -> None:
        self._start_all([self._processes[name] for name in self.layout.infrastructure_names])
        if self._spec.secure:
            self._report(f"rights: {grant_rights(self.layout)} rules at {len(self._spec.clusters)} clusters")

    def _start_services(self) -> None:
        apply_schema(self.layout, self.java)
        grant_store(self.layout)
        self._report("schema: applied")
        self._start_all([self._processes[name] for name in self.layout.service_names])

    def _start_all(self, processes: Sequence[ManagedProcess]) -> None:
        given_up = threading.Event()

        def start(process: ManagedProcess) -> None:
            if process.state is not ProcessState.READY and not given_up.is_set():
                self._report(f"{process.name}: starting")
                process.start()
                self._report(f"{process.name}: ready")

        # Cassandra nodes join one after another; each waits for those before it anyway.
        nodes = [process for process in processes if process.name in self._spec.cassandra_nodes]
        others = [process for process in processes if process not in nodes]

        def start_nodes() -> None:
            for node in nodes:
                start(node)

        operations = [start_nodes, *(lambda process=process: start(process) for process in others)]
        with ThreadPoolExecutor(max_workers=_PARALLEL_OPERATIONS) as pool:
            futures: list[Future[None]] = [pool.submit(operation) for operation in operations]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                # One failed, or Ctrl-C: the others need not come up any more.
                given_up.set()
                starting = [process for process in processes if process.state is ProcessState.STARTING]
                _in_parallel(starting, ManagedProcess.kill)
                raise

    def _resolve(self, name: str) -> list[ManagedProcess]:
        return [
            self._processes[process] for process in self.layout.resolve(name) if process in self._processes
        ]


def wipe(directory: Path) -> None:
    """Forget the data, logs and ports of a stack that is not running.

    Raises:
        StackStateError: It is running.
    """
    if not directory.is_dir():
        return
    with (directory / "stack.lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StackStateError(
                f"The stack in {directory} is running: end it with `parallax stack down`."
            ) from error
        for name in ("data", "logs", "security"):
            shutil.rmtree(directory / name, ignore_errors=True)
        for name in ("layout.json", "stack.json", "parallax.yaml"):
            (directory / name).unlink(missing_ok=True)


def _remembered_ports(directory: Path) -> dict[str, int]:
    with suppress(FileNotFoundError):
        document = json.loads((directory / "layout.json").read_text(encoding="utf-8"))
        return {name: int(port) for name, port in document["ports"].items()}
    return {}


def _in_parallel(processes: Iterable[ManagedProcess], operation: Callable[[ManagedProcess], None]) -> None:
    with ThreadPoolExecutor(max_workers=_PARALLEL_OPERATIONS) as pool:
        for future in [pool.submit(operation, process) for process in processes]:
            future.result()
