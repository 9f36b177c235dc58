"""Leases on Spark: a Structured Streaming query whose rows are leases and whose tasks hold them.

The source plans leases on the driver, one row each. A micro-batch is one *epoch*: the sink's tasks take one row
each and hold its lease until the deadline in it, then say what they counted, and the driver logs the sums. Spark
schedules the tasks, starts one again whose executor died, and begins epoch N+1 only after all of epoch N has ended.
Spark's checkpoint holds the number of the epoch and nothing else.

What a lease is, is the business of the two objects handed in. They are pickled with the data source's class, never
put into Spark's options, so that nothing of a configuration shows in plans, logs or error messages.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from parallax.adapters.spark.reporting import StatusTarget
from parallax.runtime.process import configure_logging

_log = structlog.get_logger(__name__)

LeaseValues = Mapping[str, Any]
"""What its holder has to know, as JSON types."""

Counts = Mapping[str, int]
"""What a lease counted; the driver adds the values up by name."""

_SCHEMA = "lease string"


class LeasePlanner(Protocol):
    """Plans epochs, on the driver. Picklable."""

    def plan(self, epoch: int) -> Sequence[LeaseValues]:
        """The leases of an epoch that begins now. They run all at once."""


class LeaseHolder(Protocol):
    """Holds leases, on executors. Picklable."""

    def hold(self, lease: LeaseValues) -> Counts:
        """Hold one lease until its end. What it raises lets Spark start the lease again, elsewhere perhaps."""


@dataclass(frozen=True, slots=True)
class LeaseQuery:
    """A query that holds leases, one epoch after another.

    Attributes:
        name: unique in its application; letters, digits, ``_``, ``-``.
        leases: how many run at once, a task slot for each.
        parts: makes planner and holder whenever the query starts; leases may report to the target. An
            `UnavailableError` means "not yet", any other error is final.
        preload: modules that planner and holder need, imported once for each kind of Python worker.
        task_preload: modules that only tasks need.
        available_now: run one epoch, then stop.
    """

    name: str
    leases: int
    parts: Callable[[StatusTarget], tuple[LeasePlanner, LeaseHolder]]
    preload: tuple[str, ...] = ()
    task_preload: tuple[str, ...] = ()
    available_now: bool = False


_Part = TypeVar("_Part", LeasePlanner, LeaseHolder)


class Sealed(Generic[_Part]):
    """A planner or a holder on its way to another process, where it is opened when it is first used.

    Spark unpickles a data source in some processes that use neither; opening them imports all that they need.
    """

    def __init__(self, part: _Part) -> None:
        self._part: _Part | None = part
        self._pickled = b""

    def open(self) -> _Part:
        """The part itself."""
        if self._part is None:
            self._part = pickle.loads(self._pickled)  # noqa: S301 - from Spark, as whatever runs here is
        return self._part

    def __getstate__(self) -> bytes:
        return self._pickled or cloudpickle.dumps(self._part)

    def __setstate__(self, pickled: bytes) -> None:
        self._part, self._pickled = None, pickled


@dataclass(frozen=True)
class LeaseRow(InputPartition):  # type: ignore[misc] # pyspark ships no types that mypy follows here
    """One lease on its way to an executor."""

    lease: str


@dataclass(frozen=True)
class LeaseMessage(WriterCommitMessage):  # type: ignore[misc] # as above
    """What the leases of one task counted, on its way back to the driver."""

    counts: tuple[Counts, ...]


class LeaseReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc] # as above
    """Plans one epoch after another, or a single one if the query shall stop by itself."""

    def __init__(self, planner: Sealed[LeasePlanner]) -> None:
        self._planner = planner
        self._only_one = False
        self._last_epoch: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Before the first epoch."""
        return {"epoch": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """One more epoch, then none."""
        self._only_one = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802, ARG002 - Spark's
        """The next epoch: there always is one, except after the only one."""
        if self._only_one and self._last_epoch is not None:
            return {"epoch": max(self._last_epoch, start["epoch"])}
        self._last_epoch = start["epoch"] + 1
        return {"epoch": self._last_epoch}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002 - Spark's
        """The leases of the epoch that begins now."""
        return [LeaseRow(json.dumps(lease)) for lease in self._planner.open().plan(end["epoch"])]

    def read(self, partition: LeaseRow) -> Iterator[tuple[str]]:
        """The lease as the only row of its task."""
        yield (partition.lease,)


class LeaseWriter(DataSourceStreamWriter):  # type: ignore[misc] # as above
    """Holds leases on executors, and hears on the driver how an epoch ended. Both log from processes of their own."""

    def __init__(self, name: str, holder: Sealed[LeaseHolder], *, json_logs: bool) -> None:
        self._name = name
        self._holder = holder
        self._json_logs = json_logs

    def write(self, iterator: Iterator[Any]) -> LeaseMessage:
        """Hold the lease of this task until its end."""
        configure_logging(json=self._json_logs)
        holder = self._holder.open()
        return LeaseMessage(tuple(holder.hold(json.loads(row[0])) for row in iterator))

    def commit(self, messages: list[LeaseMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Every lease of the epoch ended well."""
        configure_logging(json=self._json_logs)
        _log.info("epoch_ended", query=self._name, **_sums(messages, batchId))

    def abort(self, messages: list[LeaseMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Some lease failed too often; the sums are those of the others. Spark has said why, and ends the query."""
        configure_logging(json=self._json_logs)
        _log.warning("epoch_failed", query=self._name, **_sums(messages, batchId))


def lease_format(name: str, planner: Sealed[LeasePlanner], writer: LeaseWriter) -> type[DataSource]:
    """A data source class whose rows are the planner's leases, and whose writer holds those that arrive."""

    class LeaseFormat(DataSource):  # type: ignore[misc] # as above
        """Leases, one per row."""

        @classmethod
        def name(cls) -> str:
            """The format's name."""
            return name

        def schema(self) -> str:
            """One column: the lease as text."""
            return _SCHEMA

        def streamReader(self, schema: StructType) -> LeaseReader:  # noqa: N802, ARG002 - Spark's name
            """A reader on the driver."""
            return LeaseReader(planner)

        def streamWriter(self, schema: StructType, overwrite: bool) -> LeaseWriter:  # noqa: N802, ARG002, FBT001 - Spark's
            """A writer, on executors and on the driver."""
            return writer

    return LeaseFormat


def start_lease_query(
    session: SparkSession, query: LeaseQuery, target: StatusTarget, checkpoint: str, *, json_logs: bool
) -> StreamingQuery:
    """Start a query.

    Args:
        session: where it runs.
        query: what to start.
        target: where its leases report.
        checkpoint: a folder for Spark's bookkeeping, of this query alone.
        json_logs: log JSON even where standard error is a terminal.
    """
    planner, holder = query.parts(target)
    name = f"parallax-leases-{query.name}"
    writer = LeaseWriter(query.name, Sealed(holder), json_logs=json_logs)
    session.dataSource.register(lease_format(name, Sealed(planner), writer))
    stream = (
        session.readStream.format(name)
        .load()
        .writeStream.format(name)
        .queryName(query.name)
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
    )
    if query.available_now:
        stream = stream.trigger(availableNow=True)
    return stream.start()


def _sums(messages: Sequence[LeaseMessage | None], batch_id: int) -> dict[str, int]:
    """The epoch, how many leases of it ended well, and the sum of each of their counts.

    Spark counts batches from 0, and the first one leads to epoch 1.
    """
    ended = [counts for message in messages if message is not None for counts in message.counts]
    sums: Counter[str] = Counter()
    for counts in ended:
        sums.update(counts)
    return {"epoch": batch_id + 1, "leases": len(ended), **sums}
