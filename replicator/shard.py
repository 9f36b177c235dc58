"""Holds a lease: sessions of the copy loop, one after the other, until the deadline (`replicator.copying.session`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from parallax.config.config import Config
from parallax.domain.ids import SourceOffset, TopicPartition
from parallax.errors import ClusterUnavailableError, FencedError
from parallax.ports.index import MappingIndexWriter
from parallax.runtime.retry import RetryPolicy
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.ports import RunLogReader, SourceReader, Surveyor, TargetWriter
from replicator.copying.session import ShardSession
from replicator.copying.session_end import (
    Counts,
    PartitionRefusedError,
    SessionError,
    Stop,
    TargetCut,
    TargetTailLostError,
)
from replicator.kafka.choice import connector_for
from replicator.kafka.connector import Connector, target_topic_creator
from replicator.kafka.run_log import load_states, rows_of_lineage
from replicator.kafka.survey import EnsureTargetTopic
from replicator.lease import Lease, LeaseProgress, LeaseResult, PartitionProgress
from replicator.mapping.feed import IndexFeed, IndexThread

log = structlog.get_logger(__name__)
_REPORT_INTERVAL_MS = 1_000
_INDEX_PATIENCE_MS = 5_000
Report = Callable[[LeaseProgress], None]


def feed_of(lease: Lease, connector: Connector, index: MappingIndexWriter) -> IndexFeed:
    """What the shard itself commits."""
    return IndexFeed(
        index,
        connector.run_log(lease),
        route=lease.route,
        layout=lease.layout,
        shard=lease.shard,
        clock=connector.clock,
    )


def earlier_feeds(lease: Lease, connector: Connector, index: MappingIndexWriter) -> Sequence[IndexFeed]:
    """What the shards of the layout before may have left to be indexed; each falls to one shard of this layout."""
    layout = connector.layout(lease)
    feeds = []
    for shard in range(0 if layout is None else layout.previous_shards):
        if shard % lease.shard_count == lease.shard:
            old = replace(lease, shard=shard, layout=lease.layout - 1)
            feed = feed_of(old, connector, index)
            feed.note_end(connector.run_log(old).end())
            feeds.append(feed)
    return feeds


@dataclass(slots=True)
class _Memory:
    """What outlives a session of the lease: nothing that the run log would have to know."""

    counts: Counts = field(default_factory=Counts)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)
    stops_until_ms: float = float("inf")
    """When (monotonic) they are forgotten and the partitions tried again: their cause may have been repaired."""
    cuts: dict[TopicPartition, TargetCut] = field(default_factory=dict)
    goal: Mapping[TopicPartition, SourceOffset] | None = None
    known_to: int | None = None
    """Up to here the run log's entries are those that were read or written by this lease."""
    attempted: Entry | None = None
    waiting_for: str = ""
    partitions: tuple[PartitionProgress, ...] = ()


def hold_lease(
    lease: Lease,
    config: Config,
    *,
    index: MappingIndexWriter | None,
    report: Report,
    ensure_target_topic: EnsureTargetTopic | None = None,
    end_asked: Callable[[], bool] = lambda: False,
    overtime: Callable[[], bool] = lambda: False,
    connector: Connector | None = None,
) -> LeaseResult:
    """Copy the lease's shard until its deadline, or until today's end if it is ``available_now``.

    Waits inside while a cluster is away, and goes on by itself when it is back.

    Args:
        lease: what to copy, and until when. The layout must exist (`replicator.kafka.layout.ensure_layout`).
        config: all configuration.
        index: where the mapping goes; None keeps it in the run log alone.
        report: called about once a second, from this thread.
        ensure_target_topic: makes target topics fit source topics; None uses `replicator.kafka.topics`.
        end_asked: asked between two transactions; true ends the lease early.
        overtime: asked before each session; true: whatever ended the one before, none begins any more, because it
            would fence the owner that may have followed.
        connector: how to reach the clusters; None: by the configured copy path.

    Returns:
        What was done.

    Raises:
        FencedError: another owner or a newer layout has taken over; this one must not go on.
    """
    if connector is None:
        connector = connector_for(config, ensure_target_topic or target_topic_creator(config, lease))
    feed: IndexFeed | None = None
    thread: IndexThread | None = None
    if index is not None:
        feed = feed_of(lease, connector, index)
        thread = IndexThread(
            feed,
            earlier=lambda: earlier_feeds(lease, connector, index),
            interval_ms=config.index.interval_ms,
            max_rows_per_s=config.index.max_rows_per_s,
            name=str(lease),
        )
    try:
        return copy_until_over(
            lease, config, connector, feed=feed, report=report, end_asked=end_asked, overtime=overtime
        )
    finally:
        if thread is not None:
            thread.close(_INDEX_PATIENCE_MS)


def copy_until_over(
    lease: Lease,
    config: Config,
    connector: Connector,
    *,
    feed: IndexFeed | None,
    report: Report,
    end_asked: Callable[[], bool] = lambda: False,
    overtime: Callable[[], bool] = lambda: False,
    retries: RetryPolicy | None = None,
) -> LeaseResult:
    """`hold_lease` without the thread that turns the index feed.

    Raises:
        FencedError: another owner or a newer layout has taken over.
    """
    memory = _Memory()
    holder = _Holder(
        lease, config, connector, memory, feed, report, end_asked, overtime, retries or RetryPolicy()
    )
    try:
        holder.run()
    finally:
        holder.close()
    holder.tell()
    return LeaseResult(
        lease=lease,
        records=sum(memory.counts.records.values()),
        size_bytes=memory.counts.size_bytes,
        transactions=memory.counts.transactions,
        aborts=memory.counts.aborts,
        watermarks=memory.counts.watermarks,
        stopped={str(item): found.reason for item, found in memory.stops.items()},
    )


class _Holder:
    """Opens sessions until the lease is over."""

    def __init__(
        self,
        lease: Lease,
        config: Config,
        connector: Connector,
        memory: _Memory,
        feed: IndexFeed | None,
        report: Report,
        end_asked: Callable[[], bool],
        overtime: Callable[[], bool],
        retries: RetryPolicy,
    ) -> None:
        self._lease = lease
        self._config = config
        self._connector = connector
        self._clock = connector.clock
        self._memory = memory
        self._feed = feed
        self._report = report
        self._end_asked = end_asked
        self._overtime = overtime
        self._retries = retries
        self._strangers = connector.strangers(lease)
        self._reported_at = -float("inf")

    def run(self) -> None:
        """Hold the lease.

        Raises:
            FencedError: another owner has taken over.
        """
        waits = self._retries.waits_ms()
        while not (self._over() or self._overtime()):
            begun = self._memory.counts.transactions
            try:
                if self._one_session():
                    return
            except PartitionRefusedError as error:
                self._note_stop(error.stop)
                log.warning("partition stops", lease=str(self._lease), reason=error.stop.reason)
            except TargetTailLostError as error:
                self._memory.cuts[error.cut.topic_partition] = error.cut
                log.warning("target lost its tail", lease=str(self._lease), problem=str(error))
            except (SessionError, ClusterUnavailableError) as error:
                self._memory.waiting_for = str(error)
                log.warning(
                    "session ends; the next begins from the run log", lease=str(self._lease), why=str(error)
                )
            else:
                continue
            self._memory.counts.aborts += 1
            self.tell()
            if self._memory.counts.transactions > begun:
                waits = self._retries.waits_ms()
            self._clock.sleep_ms(min(next(waits), max(0.0, self._left_ms())))

    def close(self) -> None:
        """Let go of what outlives sessions."""
        if self._strangers is not None:
            self._strangers.close()

    def tell(self, session: ShardSession | None = None) -> None:
        """Report now; without a session, with the partitions as last reported."""
        if session is not None:
            self._memory.partitions = session.progress()
        self._reported_at = self._clock.monotonic_ms()
        counts, feed = self._memory.counts, self._feed
        self._report(
            LeaseProgress(
                lease=self._lease,
                partitions=self._memory.partitions,
                transactions=counts.transactions,
                aborts=counts.aborts,
                index_lag_ms=0.0 if feed is None else feed.lag_ms(),
                foreign_records=0 if self._strangers is None else self._strangers.found_records,
                waiting_for=self._memory.waiting_for,
            )
        )

    def _left_ms(self) -> float:
        return self._lease.deadline_unix_ms - self._clock.now_ms()

    def _over(self) -> bool:
        return self._end_asked() or self._left_ms() <= 0

    def _one_session(self) -> bool:
        """Run one session; whether the lease is over with it."""
        lease, memory, connector = self._lease, self._memory, self._connector
        run_log = connector.run_log(lease)
        doors: list[TargetWriter | SourceReader | Surveyor | RunLogReader] = [run_log]
        try:
            # Before this owner fences others once more: has one taken over while this one could not reach the target?
            if self._others_wrote(run_log):
                raise FencedError(f"{lease}: another owner has written to the run log")
            # In this order: fence, look for a newer layout, read what is committed.
            connector.settle(lease)
            target = connector.target(lease)
            doors.append(target)
            layout = connector.layout(lease)
            if layout is not None and layout.layout > lease.layout:
                raise FencedError(f"{lease}: layout {layout.layout} has taken over")
            states, end = load_states(run_log, lease.layout)
            if memory.known_to is not None and end < memory.known_to:
                raise ClusterUnavailableError(
                    f"{lease}: the run log ends at {end}, and this lease knows its entries up to "
                    f"{memory.known_to}: nothing is copied until they are back"
                )
            memory.known_to = end
            if self._feed is not None:
                self._feed.note_end(end)
            source = connector.source(lease)
            doors.append(source)
            surveyor = connector.surveyor(lease, {item.topic for item in states})
            doors.append(surveyor)
            session = ShardSession(
                lease,
                self._config.replicator,
                source=source,
                target=target,
                surveyor=surveyor,
                clock=self._clock,
                states=states,
                history=lambda item, lineage: rows_of_lineage(run_log, item, lineage),
                stops=memory.stops.values(),
                cuts=memory.cuts.values(),
                goal=memory.goal,
                counts=memory.counts,
                committed=self._note,
                stopped=self._note_stop,
            )
            memory.waiting_for = ""
            return self._run(session)
        finally:
            for door in reversed(doors):
                door.close()

    def _run(self, session: ShardSession) -> bool:
        try:
            while not self._over():
                session.step()
                self._memory.goal = session.goal
                if self._clock.monotonic_ms() - self._reported_at >= _REPORT_INTERVAL_MS:
                    self.tell(session)
                if session.finished():
                    break
                if self._clock.monotonic_ms() >= self._memory.stops_until_ms:
                    session.commit()
                    self._memory.stops.clear()
                    self._memory.stops_until_ms = float("inf")
                    return False
            session.commit()
        except FencedError:
            # The broker fences the owner of a transaction that it aborted for its age, too: then nobody else may
            # have taken over. Whoever did writes its first entry at once.
            if session.open_for_ms < self._config.replicator.transaction_timeout_ms * 0.9:
                raise
            log.warning("transaction expired", lease=str(self._lease), open_for_ms=session.open_for_ms)
            self._clock.sleep_ms(2 * self._config.replicator.watermark_interval_ms)
            return False
        finally:
            self._memory.attempted = session.attempted
        self.tell(session)
        return True

    def _note(self, offset: int, entry: Entry) -> None:
        self._memory.known_to = offset + 1
        if self._feed is not None:
            self._feed.offer(offset, entry)
        if self._strangers is not None:
            self._strangers.note(entry)

    def _note_stop(self, stop: Stop) -> None:
        self._memory.stops[stop.topic_partition] = stop
        again_at_ms = self._clock.monotonic_ms() + self._config.replicator.lease_epoch_s * 1_000
        self._memory.stops_until_ms = min(self._memory.stops_until_ms, again_at_ms)

    def _others_wrote(self, run_log: RunLogReader) -> bool:
        """Whether the run log has entries that this lease neither read nor wrote; one of unknown outcome is its own."""
        known_to = self._memory.known_to
        if known_to is None:
            return False
        end = run_log.stable_end()
        found = (
            [entry for _, entry in run_log.read(max(known_to, run_log.start()), end)]
            if known_to < end
            else []
        )
        return any(entry != self._memory.attempted for entry in found)
