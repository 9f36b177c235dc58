"""Run logs in memory, as a shard reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from parallax.domain.ids import TopicId
from parallax.errors import ClusterUnavailableError
from parallax.v1.runlog_pb2 import Entry
from tests.worlds.sim.kafka import Cluster, Log
from tests.worlds.sim.schedule import Schedule


def run_log_of(cluster: Cluster, name: str, shard: int) -> Log:
    topic = cluster.topics.get(name)
    if topic is None or shard >= len(topic.logs):
        raise ClusterUnavailableError(f"{name}-{shard} is not there")
    return topic.logs[shard]


def entry_of(value: object) -> Entry | None:
    """What a slot of a run log holds: an entry, or the bytes of one that was written without a session; None: neither."""
    if isinstance(value, Written):
        return Entry.FromString(value.value or b"")
    return value if isinstance(value, Entry) else None


@dataclass(frozen=True, slots=True)
class Written:
    """A record as a producer of bytes writes it."""

    key: bytes | None
    value: bytes | None


class SimRunLog:
    def __init__(self, schedule: Schedule, cluster: Cluster, name: str, shard: int) -> None:
        self._schedule = schedule
        self._cluster = cluster
        self._place = (name, shard)
        self.seems_empty = False
        self.was_read: Callable[[], object] = lambda: None

    @property
    def _log(self) -> Log:
        return run_log_of(self._cluster, *self._place)

    def topic_id(self) -> TopicId | None:
        topic = self._cluster.topics.get(self._place[0])
        return None if topic is None else TopicId(topic.topic_id)

    def partitions(self) -> int:
        topic = self._cluster.topics.get(self._place[0])
        if topic is None:
            raise ClusterUnavailableError(f"{self._place[0]} is not there")
        return len(topic.logs)

    def end(self) -> int:
        return 0 if self.seems_empty else self._log.end

    def stable_end(self) -> int:
        return self._log.stable_end

    def leader_epoch(self) -> int:
        return self._log.epoch

    def start(self) -> int:
        return self._log.start

    def read(self, start: int, end: int) -> Iterable[tuple[int, Entry | None]]:
        self._schedule.step()
        if self._log.stable_end < end:
            raise ClusterUnavailableError("a transaction is still open")
        entries = list(self._log.committed(start, end))
        for slot in entries:
            yield slot.offset, entry_of(slot.value)
        if entries:
            self.was_read()

    def close(self) -> None:
        pass
