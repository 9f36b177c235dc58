"""The sides of a comparison, each as a process that copies topics from regional to aggregate clusters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lab.bench import BenchError
from lab.bench.sides.mirrormaker import Flow, Tuning, mirrormaker_spec, settings_of
from lab.bench.sides.parallax import lease_epochs, prepare_spark, replicate_spec, write_config
from lab.bench.stage import BenchStage, await_true
from lab.stack.process import ManagedProcess, ProcessState

Side = Literal[
    "parallax",
    "parallax_record_path",
    "parallax_plain_text",
    "parallax_balanced_pace",
    "parallax_throughput_pace",
    "parallax_own_records",
    "parallax_prepared",
    "mirrormaker2",
    "mirrormaker2_exactly_once",
]

NO_GROUPS = "none"
"""Matches no group's name: MirrorMaker 2 translates nothing."""

BOTH: tuple[Side, ...] = ("parallax", "mirrormaker2")
WITH_EXACTLY_ONCE: tuple[Side, ...] = (*BOTH, "mirrormaker2_exactly_once")
WITH_RECORD_PATH: tuple[Side, ...] = (*BOTH, "parallax_record_path")
WITH_PREPARED: tuple[Side, ...] = (*WITH_EXACTLY_ONCE, "parallax_prepared")
WITH_PLAIN_TEXT: tuple[Side, ...] = (*BOTH, "parallax_plain_text")
WITH_PACES: tuple[Side, ...] = (*WITH_EXACTLY_ONCE, "parallax_balanced_pace", "parallax_throughput_pace")
WITH_OWN_RECORDS: tuple[Side, ...] = ("parallax", "parallax_own_records")
"""MirrorMaker 2 has no such thing: with names kept it sends records round."""

_OWN_SETTINGS: Mapping[Side, Mapping[str, str]] = {
    "parallax_record_path": {"copy_path": "record"},
    "parallax_balanced_pace": {"pace": "balanced"},
    "parallax_throughput_pace": {"pace": "throughput"},
}
"""Of the section `replicator`."""

_TWO_WAY = (("one", "two"), ("two", "one"))
"""Between the two clusters of a row's only region, as `write_config` calls them where both have both roles."""


def is_parallax(side: Side) -> bool:
    """Whether it is Parallax, however it copies."""
    return side not in {"mirrormaker2", "mirrormaker2_exactly_once"}


@dataclass(frozen=True, slots=True)
class CopierOptions:
    """How a row runs both sides.

    Attributes:
        routes: (source region, target region) of each.
        tuning: of MirrorMaker 2.
        compression: of MirrorMaker 2's producer: the data set's.
        groups: whose offsets MirrorMaker 2 translates, and Parallax publishes (`NO_GROUPS`: it leaves none out).
        replicator: Parallax's settings of the section `replicator`, over its defaults.
        bootstrap: another address of clusters, by cluster name (a far one's, or where it speaks TLS).
        authority: who signs the certificates of all clusters; None: plain text.
        with_sync: Parallax publishes groups' offsets too.
    """

    routes: tuple[tuple[str, str], ...] = (("a", "a"),)
    tuning: Tuning = "throughput"
    compression: str = "lz4"
    groups: str = NO_GROUPS
    replicator: Mapping[str, Any] = field(default_factory=dict)
    bootstrap: Mapping[str, str] = field(default_factory=dict)
    authority: Path | None = None
    with_sync: bool = False


class Copier:
    """One life of one side.

    MirrorMaker 2 begins with the first record of each topic because its own topics carry the copier's name. Parallax
    goes on with its state, in which a target topic that was deleted since is a new one: it begins anew there too.

    Args:
        stage: the brokers.
        side: which one.
        topics: what to copy.
        options: how.
    """

    def __init__(self, stage: BenchStage, side: Side, topics: Sequence[str], options: CopierOptions) -> None:
        self.side = side
        self.name = f"{side.replace('_', '')}{stage.next_life():03}"
        self.config: Path = stage.directory / "copiers" / f"{self.name}.yaml"
        self._stage = stage
        self._process = (self._parallax if is_parallax(side) else self._mirrormaker)(topics, options)

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

    def await_true(self, condition: Callable[[], bool], within_s: float, problem: str) -> None:
        """Wait until something is so, as long as it runs.

        Raises:
            BenchError: it was not in time, or the copier ended.
        """

        def so() -> bool:
            self.check_alive()
            return condition()

        await_true(so, within_s, f"{self.name}: {problem}")

    def await_topic(self, topic: str, clusters: Sequence[str], within_s: float = 600.0) -> None:
        """Wait until it has made a topic.

        Raises:
            BenchError: it has not in time, or has ended.
        """
        self.await_true(
            lambda: all(topic in self._stage.topics(cluster) for cluster in clusters),
            within_s,
            f"{topic} did not appear on {' and '.join(clusters)}",
        )

    def epochs(self) -> Mapping[str, int]:
        """Parallax's lease epochs; empty for MirrorMaker 2, and while Parallax does not answer."""
        return lease_epochs(self._stage.stack.layout.ports["spark/status"]) if is_parallax(self.side) else {}

    def clean_up(self) -> None:
        """Delete the topics that MirrorMaker 2 made for itself."""
        for cluster in self._stage.clusters:
            self._stage.delete_topics(
                cluster, [name for name in self._stage.topics(cluster) if self.name in name]
            )

    def _parallax(self, topics: Sequence[str], options: CopierOptions) -> ManagedProcess:
        stack = self._stage.stack
        routes = _TWO_WAY if self.side == "parallax_own_records" else options.routes
        write_config(
            self.config,
            stack,
            topics=tuple(topics),
            routes=tuple(f"{source}->{target}" for source, target in routes),
            settings={**_OWN_SETTINGS.get(self.side, {}), **options.replicator},
            bootstrap=options.bootstrap,
            authority=options.authority,
            groups=() if options.groups == NO_GROUPS else (options.groups,),
            both_roles=self.side == "parallax_own_records",
        )
        prepared = self.side == "parallax_prepared"
        # Not the user's own: whether that has Spark's classes is not known here.
        cache = self._stage.directory / "caches" / ("prepared" if prepared else "unprepared")
        if prepared:
            prepare_spark(stack, cache)
        targets = tuple(dict.fromkeys(target for _, target in routes))
        return self._stage.process(
            replicate_spec(self.name, stack, self.config, targets, cache=cache, with_sync=options.with_sync)
        )

    def _mirrormaker(self, topics: Sequence[str], options: CopierOptions) -> ManagedProcess:
        stage = self._stage

        def address(cluster: str) -> str:
            return options.bootstrap.get(cluster, stage.bootstrap(cluster))

        flows = [
            Flow(
                source=f"{self.name}from{source}",
                target=f"{self.name}to{target}",
                source_bootstrap=address(f"regional-{source}"),
                target_bootstrap=address(f"aggregate-{target}"),
                topics=topics,
                # One a core, shared out among the flows: more of them halve what two flows make on two cores.
                tasks=max(1, (os.cpu_count() or 1) // len(options.routes)),
                groups=options.groups,
                compression=options.compression,
                authority=options.authority,
            )
            for source, target in options.routes
        ]
        settings = settings_of(flows, options.tuning, exactly_once=self.side == "mirrormaker2_exactly_once")
        return stage.process(
            mirrormaker_spec(
                self.name,
                settings,
                java=stage.stack.java,
                directory=self.config.parent,
                environment=os.environ | {"JAVA_HOME": str(stage.stack.java.home)},
            )
        )
