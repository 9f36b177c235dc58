"""Topics with a life of their own: deleted and created again while they are copied, or cut short where they were copied to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from lab.oracle.logs import OracleReadError, read_topic
from lab.workload.events import RecordId, trip_event
from lab.workload.topics import create_topic, delete_topic
from lab.workload.worker import WorkerError

_RECORDS = 300
_HELPINGS = 2
_ANSWER_S = 30.0
_GONE_S = 30.0
_COPIED_S = 90.0
_ASK_EVERY_S = 0.5
_KEPT = 0.5
"""A log whose tail is lost keeps this share of its last file."""


class TopicApart:
    """A topic beside the storm's; nobody reads it but the judge.

    Args:
        bootstrap: bootstrap servers by cluster name.
        regions: every region, each with a regional and an aggregate cluster.
        topic: its name.
        partitions: how many it has.
    """

    def __init__(
        self, bootstrap: Callable[[str], str], regions: Sequence[str], topic: str, partitions: int
    ) -> None:
        self._bootstrap, self._regions = bootstrap, regions
        self._topic, self._partitions = topic, partitions
        self._draw = Random(1)  # noqa: S311 - places and fares, not secrets
        self._produced: dict[str, int] = {}

    def recreate(self, region: str) -> str:
        """Fill the topic in a region, delete it there as soon as all is copied, and fill another one of its name.

        Returns:
            What was seen.

        Raises:
            WorkerError: a record of either did not arrive in time, or arrived twice.
        """
        began = time.monotonic()
        servers = self._bootstrap(f"regional-{region}")
        self._fill(region, servers)
        self._await_copies()
        delete_topic(servers, self._topic)
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 3})
        give_up_at = time.monotonic() + _GONE_S
        while self._topic in admin.list_topics(timeout=_ANSWER_S).topics:
            if time.monotonic() > give_up_at:
                raise WorkerError(f"regional-{region}: {self._topic} was deleted, and is still there")
            time.sleep(_ASK_EVERY_S)
        self._fill(region, servers)
        self._await_copies()
        return self._told(began)

    def fill(self, region: str) -> None:
        """Fill the topic in a region, by helpings that are copied one after the other.

        Raises:
            WorkerError: a record did not arrive in time, or arrived twice.
        """
        for _ in range(_HELPINGS):
            self._fill(region, self._bootstrap(f"regional-{region}"))
            self._await_copies()

    def cut(self, storage: Path) -> str:
        """Take the newest records from each partition's log of a broker that does not run.

        It finds them gone as after an unclean election: the log ends in the middle of what was acknowledged, with a batch
        torn, or a transaction without its marker, and its leader has a new epoch.

        Args:
            storage: the broker's logs.

        Returns:
            What was taken.

        Raises:
            WorkerError: a partition has no log there.
        """
        taken = 0
        for number in range(self._partitions):
            files = sorted((storage / f"{self._topic}-{number}").glob("*.log"))
            if not files:
                raise WorkerError(f"{storage}: there is no log of {self._topic}-{number}")
            size = files[-1].stat().st_size
            with files[-1].open("r+b") as log:
                log.truncate(int(size * _KEPT))
            taken += size - int(size * _KEPT)
        if not taken:
            raise WorkerError(f"{storage}: the logs of {self._topic} are empty: nothing was taken")
        return f"{taken:,} bytes of {self._topic} are gone"

    def go_on(self, region: str) -> str:
        """Wait until what was taken is there again, and fill the topic once more.

        Returns:
            What was seen.

        Raises:
            WorkerError: a record did not arrive in time, or arrived twice.
        """
        began = time.monotonic()
        self._await_copies()
        self._fill(region, self._bootstrap(f"regional-{region}"))
        self._await_copies()
        return self._told(began)

    def _told(self, began: float) -> str:
        total = sum(self._produced.values())
        return f"{total:,} records of {self._topic} lie once in each aggregate cluster, {time.monotonic() - began:.1f} s later"

    def _fill(self, region: str, servers: str) -> None:
        create_topic(servers, self._topic, self._partitions)
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 3})
        failed: list[KafkaError] = []
        first = self._produced.get(region, 0)
        for seq in range(first, first + _RECORDS):
            key, value = trip_event(region, seq, int(time.time() * 1_000), self._draw)
            producer.produce(
                self._topic,
                value,
                key,
                on_delivery=lambda error, _message: failed.append(error) if error else None,
            )
        if producer.flush(_ANSWER_S) or failed:
            raise WorkerError(f"regional-{region}: {self._topic} took not every record: {failed[:1]}")
        self._produced[region] = first + _RECORDS

    def _await_copies(self) -> None:
        due = {RecordId(region, seq) for region, count in self._produced.items() for seq in range(count)}
        give_up_at = time.monotonic() + _COPIED_S
        while problem := self._problem(due):
            if time.monotonic() > give_up_at:
                raise WorkerError(f"{problem}, after {_COPIED_S:.0f} s")
            time.sleep(_ASK_EVERY_S)

    def _problem(self, due: set[RecordId]) -> str:
        """Why the copies are not complete.

        Raises:
            WorkerError: a record lies twice, or one that nobody wrote.
        """
        for cluster in (f"aggregate-{region}" for region in self._regions):
            try:
                log = read_topic(cluster, self._bootstrap(cluster), self._topic)
            except (OracleReadError, KafkaException) as error:
                return str(error)
            found = Counter(placed.record for records in log.partitions.values() for placed in records)
            wrong = [record for record, count in found.items() if count > 1 or record not in due]
            if wrong:
                raise WorkerError(
                    f"{cluster}: {len(wrong)} records of {self._topic} lie there twice: {wrong[:3]}"
                )
            if len(found) < len(due):
                return f"{cluster}: {len(due) - len(found)} records of {self._topic} are missing"
        return ""
