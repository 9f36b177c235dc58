"""Writes what is published for groups as checkpoints of MirrorMaker 2, too, so that its clients find it.

Each passive cluster has a thread and a topic for each cluster that groups come from. Only what has changed is written, the
newest of each group and partition, so a cluster that is away holds up nobody and costs memory for its partitions alone.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from parallax.config.mirror_maker_export import MirrorMakerExport
from parallax.domain.ids import ClusterName, TopicName, region_of
from parallax.domain.mirror_maker import Checkpoint, checkpoints_topic
from parallax.errors import ParallaxError
from syncjob.decide import Decision

_log = structlog.get_logger(__name__)

_CLOSE_WITHIN_S = 12.0

_Key = tuple[TopicName, bytes]


class CheckpointTopic(Protocol):
    """A topic that keeps the newest record of each key."""

    def write_records(self, records: Mapping[bytes, bytes]) -> None:
        """Write them all. May raise `ParallaxError`: some may be written then."""


Topics = Callable[[ClusterName, TopicName], CheckpointTopic]


def checkpoints_of(
    decisions: Iterable[Decision], export: MirrorMakerExport
) -> dict[ClusterName, dict[_Key, bytes]]:
    """What the decisions say to MirrorMaker 2's clients, by the cluster where they look for it.

    Where nothing of ours stands at the target nothing is said, nor where the group has not committed at its origin.
    """
    found: dict[ClusterName, dict[_Key, bytes]] = defaultdict(dict)
    for item in decisions:
        if item.origin is None or item.offset is None or item.origin_next_offset is None:
            continue
        checkpoint = Checkpoint(item.group, item.topic_partition, item.origin_next_offset, item.offset)
        topic = checkpoints_topic(export.alias_of(region_of(item.origin)))
        found[item.target][topic, checkpoint.key()] = checkpoint.value()
    return found


class CheckpointExport:
    """Writes checkpoints every ``interval_s``.

    Args:
        export: what is wanted.
        clusters: where groups may be passive.
        topics: a cluster's topic of checkpoints.
    """

    def __init__(self, export: MirrorMakerExport, clusters: Iterable[ClusterName], topics: Topics) -> None:
        self._export = export
        self._writers = {cluster: _Writer(cluster, export.interval_s, topics) for cluster in clusters}

    def take(self, decisions: Iterable[Decision]) -> None:
        """Take in what a cycle has decided; it is written in time."""
        if self._writers:
            for cluster, values in checkpoints_of(decisions, self._export).items():
                self._writers[cluster].take(values)

    @property
    def written(self) -> int:
        """Checkpoints written since it began."""
        return sum(writer.written for writer in self._writers.values())

    @property
    def problem(self) -> str:
        """Why some could not be written the last time; empty: they could."""
        return "; ".join(writer.problem for writer in self._writers.values() if writer.problem)

    def close(self) -> None:
        """Write what is left, and end."""
        for writer in self._writers.values():
            writer.stop()
        for writer in self._writers.values():
            writer.join()


class _Writer:
    """One cluster's."""

    def __init__(self, cluster: ClusterName, interval_s: float, topics: Topics) -> None:
        self.written, self.problem = 0, ""
        self._cluster = cluster
        self._interval_s = interval_s
        self._open = topics
        self._topics: dict[TopicName, CheckpointTopic] = {}
        self._standing: dict[_Key, bytes] = {}
        self._wanted: dict[_Key, bytes] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"checkpoints-{cluster}", daemon=True)
        self._thread.start()

    def take(self, values: Mapping[_Key, bytes]) -> None:
        with self._lock:
            self._wanted.update(values)

    def stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join(_CLOSE_WITHIN_S)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._round()
        self._round()

    def _round(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted, {}
        changed: dict[TopicName, dict[bytes, bytes]] = defaultdict(dict)
        for (topic, key), value in wanted.items():
            if self._standing.get((topic, key)) != value:
                changed[topic][key] = value
        problems = []
        defect: Exception | None = None
        for topic, records in changed.items():
            try:
                self._topic(topic).write_records(records)
            except Exception as error:  # noqa: BLE001 - without this thread checkpoints would stay as they are for good
                if isinstance(error, ParallaxError):
                    why = f"[{error.code}] {error}"
                else:
                    why, defect = repr(error), error
                problems.append(f"checkpoints in {topic} of {self._cluster}: {why}")
                with self._lock:
                    self._wanted = {(topic, key): value for key, value in records.items()} | self._wanted
            else:
                self._standing |= {(topic, key): value for key, value in records.items()}
                self.written += len(records)
        problem = "; ".join(problems)
        if problem and not self.problem:
            _log.warning("checkpoints_not_written", cluster=self._cluster, problem=problem, exc_info=defect)
        if changed:
            self.problem = problem

    def _topic(self, topic: TopicName) -> CheckpointTopic:
        if topic not in self._topics:
            self._topics[topic] = self._open(self._cluster, topic)
        return self._topics[topic]
