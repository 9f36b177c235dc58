"""Leases on Spark: a Structured Streaming query whose rows are leases and whose tasks hold them.

The source plans leases on the driver, one row each. A micro-batch is one *epoch*: the sink's tasks take one row
each and hold its lease until the deadline in it, then say what they counted. Spark schedules the tasks, starts one
again whose executor died, and begins epoch N+1 only after all of epoch N has ended. Spark's checkpoint holds the
number of the epoch and nothing else.

What a lease is, is the business of the two objects handed in. They are pickled with the data source's class, never
put into Spark's options, so that nothing of a configuration shows in plans, logs or error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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

Counts = Mapping[str, int]
"""What a lease counted; the driver adds the values up by name."""

_SCHEMA = "lease string"


class LeasePlanner(Protocol):
    """Plans epochs, on the driver. Picklable."""

    def plan(self, epoch: int) -> Sequence[str]:
        """The leases of an epoch that begins now, each as text. They run all at once."""


class LeaseHolder(Protocol):
    """Holds leases on executors and hears on the driver how they ended. Picklable."""

    def hold(self, lease: str) -> Counts:
        """Hold one lease until its end. What it raises lets Spark start the lease again, elsewhere perhaps."""

    def epoch_ended(self, epoch: int, counts: Sequence[Counts]) -> None:
        """All leases of an epoch have ended well."""

    def epoch_failed(self, epoch: int, counts: Sequence[Counts]) -> None:
        """Some lease of an epoch failed too often; the counts are those of the others."""


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

    def __init__(self, planner: LeasePlanner) -> None:
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
        return [LeaseRow(lease) for lease in self._planner.plan(end["epoch"])]

    def read(self, partition: LeaseRow) -> Iterator[tuple[str]]:
        """The lease as the only row of its task."""
        yield (partition.lease,)


class LeaseWriter(DataSourceStreamWriter):  # type: ignore[misc] # as above
    """Holds leases."""

    def __init__(self, holder: LeaseHolder) -> None:
        self._holder = holder

    def write(self, iterator: Iterator[Any]) -> LeaseMessage:
        """Hold the lease of this task until its end."""
        return LeaseMessage(tuple(self._holder.hold(row[0]) for row in iterator))

    def commit(self, messages: list[LeaseMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Every lease of the epoch ended well."""
        self._holder.epoch_ended(_epoch(batchId), _counts(messages))

    def abort(self, messages: list[LeaseMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """The epoch failed; Spark ends the query."""
        self._holder.epoch_failed(_epoch(batchId), _counts(messages))


def lease_source(name: str, planner: LeasePlanner) -> type[DataSource]:
    """A data source class that yields the planner's leases under a name of its own."""

    class LeaseSource(DataSource):  # type: ignore[misc] # as above
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

    return LeaseSource


def lease_sink(name: str, holder: LeaseHolder) -> type[DataSource]:
    """A data source class whose writer hands leases to the holder."""

    class LeaseSink(DataSource):  # type: ignore[misc] # as above
        """Leases are held where they arrive."""

        @classmethod
        def name(cls) -> str:
            """The format's name."""
            return name

        def streamWriter(self, schema: StructType, overwrite: bool) -> LeaseWriter:  # noqa: N802, ARG002, FBT001 - Spark's
            """A writer, on executors and on the driver."""
            return LeaseWriter(holder)

    return LeaseSink


def start_lease_query(
    session: SparkSession, query: LeaseQuery, target: StatusTarget, checkpoint: str
) -> StreamingQuery:
    """Start a query.

    Args:
        session: where it runs.
        query: what to start.
        target: where its leases report.
        checkpoint: a folder for Spark's bookkeeping, of this query alone.
    """
    planner, holder = query.parts(target)
    source, sink = f"parallax-leases-{query.name}", f"parallax-holder-{query.name}"
    session.dataSource.register(lease_source(source, planner))
    session.dataSource.register(lease_sink(sink, holder))
    stream = (
        session.readStream.format(source)
        .load()
        .writeStream.format(sink)
        .queryName(query.name)
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
    )
    if query.available_now:
        stream = stream.trigger(availableNow=True)
    return stream.start()


def _epoch(batch_id: int) -> int:
    """The epoch that a batch holds: Spark counts batches from 0, and the first one leads to epoch 1."""
    return batch_id + 1


def _counts(messages: Sequence[LeaseMessage | None]) -> list[Counts]:
    return [counts for message in messages if message is not None for counts in message.counts]
