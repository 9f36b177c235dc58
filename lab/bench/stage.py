"""The brokers of a bench: started anew, with topics made, filled and removed between rounds."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lab.bench import BenchError
from lab.bench.cpu import cpu_s
from lab.bench.distance import distance_spec
from lab.stack.process import Launcher, ManagedProcess, ProcessSpec
from lab.stack.services import apply_schema
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack, wipe
from lab.workload.topics import EndOffsets

_ANSWER_S = 30.0
_GONE_WITHIN_S = 30.0
_POLL_S = 0.05
"""Between looks at what nothing tells of by itself."""
_BROKER_HEAP_MIB = 1_024


class BenchStage:
    """Brokers and Cassandra for one row, or for the main set.

    Args:
        directory: everything that is written goes below it; what an earlier run left there is removed.
        regions: each with a regional and an aggregate cluster of one broker.
        report: gets a line for each part's progress.
        round_trip_ms: how far away the regional clusters are for who starts from `far_bootstrap`; None: no such way.
        tls: brokers speak TLS too, with who starts from `tls_bootstrap`.
    """

    def __init__(
        self,
        directory: Path,
        regions: tuple[str, ...] = ("a",),
        report: Callable[[str], None] = lambda _: None,
        *,
        round_trip_ms: float | None = None,
        tls: bool = False,
    ) -> None:
        self.directory = directory.absolute()
        self._resources = ExitStack()
        self.stack = LocalStack(
            StackSpec(
                regions=regions,
                services=False,
                jvm="throughput",
                broker_heap_mib=_BROKER_HEAP_MIB,
                far=() if round_trip_ms is None else tuple(f"regional-{region}" for region in regions),
                tls=tls,
            ),
            self.directory / "stack",
            report,
        )
        self._regions, self._round_trip_ms, self._tls = regions, round_trip_ms, tls
        self._launcher: Launcher | None = None
        self._admins: dict[str, AdminClient] = {}
        self._lives = itertools.count(1)

    def __enter__(self) -> Self:
        """Start everything.

        Raises:
            StackError: a part did not come up.
        """
        wipe(self.directory / "stack")
        shutil.rmtree(self.directory / "copiers", ignore_errors=True)
        try:
            self._resources.enter_context(self.stack)
            self._launcher = Launcher()
            self._resources.callback(self._launcher.close)
            apply_schema(self.stack.layout, self.stack.java)
            if self._round_trip_ms is not None:
                for cluster in self.stack.layout.spec.far:
                    self._move_away(cluster, self._round_trip_ms)
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admins.clear()
        self._resources.close()
        shutil.rmtree(self.directory / "stack" / "data", ignore_errors=True)

    def process(self, spec: ProcessSpec) -> ManagedProcess:
        """A process that dies with this one at the latest; the caller starts and stops it.

        Raises:
            BenchError: the stage has not been entered.
        """
        if self._launcher is None:
            raise BenchError("the stage has not been entered")
        return ManagedProcess(spec, self._launcher)

    def next_life(self) -> int:
        """A number that no copier on this stage has had yet."""
        return next(self._lives)

    @property
    def clusters(self) -> list[str]:
        """The names of the clusters that run."""
        return [f"{kind}-{region}" for region in self._regions for kind in ("regional", "aggregate")]

    def narrow(self, regions: tuple[str, ...], *, round_trip_ms: float | None, tls: bool) -> bool:
        """Go on with some of the regions and stop the brokers of the others.

        Returns:
            False if this stage does not have what is asked for; nothing has been stopped then.
        """
        if (round_trip_ms, tls) != (self._round_trip_ms, self._tls) or not set(regions) <= set(self._regions):
            return False
        kept, had = set(regions), self.clusters
        self._regions = tuple(region for region in self._regions if region in kept)
        for cluster in set(had) - set(self.clusters):
            self.stack.stop(cluster)
        return True

    def bootstrap(self, cluster: str) -> str:
        """``host:port`` of a cluster's only broker."""
        return self.stack.bootstrap(cluster)

    def far_bootstrap(self) -> dict[str, str]:
        """The address of each cluster behind a proxy."""
        layout = self.stack.layout
        return {cluster: layout.far_bootstrap(cluster) for cluster in layout.spec.far}

    def tls_bootstrap(self) -> dict[str, str]:
        """The address where each cluster speaks TLS."""
        return {cluster: self.stack.layout.tls_bootstrap(cluster) for cluster in self.clusters}

    @property
    def authority(self) -> Path | None:
        """The certificate of who signs those that brokers show there; None: they speak plain text alone."""
        material = self.stack.layout.tls_material
        return None if material is None else material.ca

    def storage(self, cluster: str) -> Path:
        """The log directory of a cluster's only broker."""
        return self.stack.layout.directory / "data" / cluster / "storage"

    def cpu_s(self, **more: Iterable[int]) -> dict[str, float]:
        """CPU seconds so far of ``brokers``, ``cassandra``, and further groups of process trees, at one moment."""
        layout = self.stack.layout
        brokers = [name for cluster in layout.spec.clusters for name in cluster.broker_names]
        groups: Mapping[str, Iterable[int]] = {
            "brokers": self._pids(brokers),
            "cassandra": self._pids(layout.spec.cassandra_nodes),
            **more,
        }
        return cpu_s(groups)

    def create_topic(self, cluster: str, topic: str, partitions: int) -> None:
        """Create a topic that is not there.

        Raises:
            BenchError: the cluster refused.
        """
        try:
            for future in self._admin(cluster).create_topics([NewTopic(topic, partitions, 1)]).values():
                future.result(timeout=_ANSWER_S)
        except (KafkaException, TimeoutError) as error:
            raise BenchError(f"{cluster}: topic {topic} was not created: {error!r}") from error
        ends = EndOffsets(self.bootstrap(cluster), topic, partitions)
        await_true(lambda: ends.ask() is not None, _ANSWER_S, f"{cluster}: topic {topic} did not get ready")

    def delete_topics(self, cluster: str, topics: Sequence[str]) -> None:
        """Delete topics, those that are there, and wait until they have gone.

        Raises:
            BenchError: the cluster refused, or they did not go.
        """
        admin = self._admin(cluster)
        there = [topic for topic in topics if topic in self.topics(cluster)]
        if not there:
            return
        for topic, future in admin.delete_topics(there).items():
            try:
                future.result(timeout=_ANSWER_S)
            except TimeoutError as error:
                raise BenchError(f"{cluster}: topic {topic} was not deleted in time") from error
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise BenchError(f"{cluster}: topic {topic} was not deleted: {error!r}") from error
        await_true(
            lambda: not self.topics(cluster) & set(there), _GONE_WITHIN_S, f"{cluster}: {there} did not go"
        )

    def topics(self, cluster: str) -> set[str]:
        """The topics of a cluster."""
        try:
            return set(self._admin(cluster).list_topics(timeout=_ANSWER_S).topics)
        except KafkaException as error:
            raise BenchError(f"{cluster} does not answer: {error!r}") from error

    def _pids(self, names: Iterable[str]) -> list[int]:
        pids = [self.stack.process(name).pid for name in names]
        return [pid for pid in pids if pid is not None]

    def _admin(self, cluster: str) -> AdminClient:
        if cluster not in self._admins:
            self._admins[cluster] = AdminClient(
                {"bootstrap.servers": self.bootstrap(cluster), "log_level": 0}
            )
        return self._admins[cluster]

    def _move_away(self, cluster: str, round_trip_ms: float) -> None:
        ports = self.stack.layout.ports
        proxy = self.process(
            distance_spec(
                f"way-to-{cluster}",
                ports[f"{cluster}/far"],
                ports[f"{cluster}/far-listener"],
                round_trip_ms,
                self.directory / "copiers" / f"way-to-{cluster}.log",
                os.environ,
            )
        )
        self._resources.callback(proxy.stop)
        proxy.start()


def await_true(
    condition: Callable[[], bool], within_s: float, problem: str, look_every_s: float = _POLL_S
) -> None:
    """Wait until something is so.

    Raises:
        BenchError: it was not in time; the message is ``problem``.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"{problem} within {within_s:.0f} s")
        time.sleep(look_every_s)
