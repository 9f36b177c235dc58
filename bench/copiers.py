"""The sides of a comparison, each as a process that copies topics from one cluster to another."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.errors import BenchError
from bench.mirrormaker import Flow, Tuning, mirrormaker_spec
from bench.parallax_process import lease_epochs, parallax_spec
from bench.stage import Stage
from devstack.process import ManagedProcess, ProcessSpec, ProcessState

Side = Literal["parallax", "mirrormaker2", "mirrormaker2_exactly_once"]
SIDES: tuple[Side, ...] = ("parallax", "mirrormaker2", "mirrormaker2_exactly_once")


@dataclass(frozen=True, slots=True)
class CopierOptions:
    """How a row runs both sides.

    Attributes:
        routes: (source region, target region) of each.
        tuning: MirrorMaker 2's template.
        tasks: MirrorMaker 2's; 0: as many as there are cores.
        compression: of MirrorMaker 2's producer: the data set's.
        groups: whose offsets MirrorMaker 2 translates.
        replicator: Parallax's settings of the section `replicator`.
        source_bootstrap: another address of source clusters, by cluster name (a far one's).
        with_sync: Parallax publishes groups' offsets too.
    """

    routes: tuple[tuple[str, str], ...] = (("a", "a"),)
    tuning: Tuning = "throughput"
    tasks: int = 0
    compression: str = "lz4"
    groups: str = "none"
    replicator: Mapping[str, Any] = field(default_factory=dict)
    source_bootstrap: Mapping[str, str] = field(default_factory=dict)
    with_sync: bool = False


class Copier:
    """One life of one side.

    Args:
        stage: the brokers.
        side: which one.
        name: letters and digits, unique on the stage: a new one starts from the beginning of the topics.
        topics: what to copy.
        options: how.
    """

    def __init__(
        self, stage: Stage, side: Side, name: str, topics: Sequence[str], options: CopierOptions
    ) -> None:
        self.side, self.name = side, name
        self._stage = stage
        self._process = stage.process(
            self._parallax(topics, options) if side == "parallax" else self._mirrormaker(topics, options)
        )

    @property
    def process(self) -> ManagedProcess:
        """Its process: the root of its process tree."""
        return self._process

    @property
    def pids(self) -> list[int]:
        """The root of its process tree while it runs."""
        return [] if self._process.pid is None else [self._process.pid]

    def start(self) -> None:
        """Start it; it becomes ready by itself."""
        self._process.start()

    def stop(self) -> None:
        """End it, with everything that it started."""
        self._process.stop()

    def check_alive(self) -> None:
        """Make sure that it still runs.

        Raises:
            BenchError: it ended; the message has its last words.
        """
        if self._process.state is ProcessState.DIED:
            raise BenchError(
                f"{self.name} ended by itself. The end of {self._process.spec.log}:\n{self._process.log_tail()}"
            )

    def epochs(self) -> Mapping[str, int]:
        """Parallax's lease epochs; empty for MirrorMaker 2, and while Parallax does not answer."""
        if self.side != "parallax":
            return {}
        return lease_epochs(self._stage.stack.layout.ports["spark/status"]) or {}

    def _parallax(self, topics: Sequence[str], options: CopierOptions) -> ProcessSpec:
        return parallax_spec(
            self.name,
            self._stage.stack,
            self._stage.directory / "copiers",
            topics=tuple(topics),
            routes=tuple(f"{source}->{target}" for source, target in options.routes),
            settings=options.replicator,
            regions=tuple(dict.fromkeys(target for _, target in options.routes)),
            source_bootstrap=options.source_bootstrap,
            with_sync=options.with_sync,
        )

    def _mirrormaker(self, topics: Sequence[str], options: CopierOptions) -> ProcessSpec:
        flows = [
            Flow(
                # Its own topics carry the aliases: another name starts anew.
                source=f"{self.name}from{source}",
                target=f"{self.name}to{target}",
                source_bootstrap=options.source_bootstrap.get(
                    f"regional-{source}", self._stage.bootstrap(f"regional-{source}")
                ),
                target_bootstrap=self._stage.bootstrap(f"aggregate-{target}"),
                topics=topics,
                tasks=options.tasks or os.cpu_count() or 1,
                groups=options.groups,
                compression=options.compression,
            )
            for source, target in options.routes
        ]
        return mirrormaker_spec(
            self.name,
            flows,
            "exactly-once" if self.side == "mirrormaker2_exactly_once" else options.tuning,
            java=self._stage.stack.java,
            directory=self._stage.directory / "copiers",
            environment=os.environ | {"JAVA_HOME": str(self._stage.stack.java.home)},
        )
