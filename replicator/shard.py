"""Holds a lease: sessions of the copy loop, one after the other, until the deadline (`replicator.copying.session`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import structlog

from parallax.config.config import Config
from parallax.domain.ids import Lineage, SourceOffset, TopicName, TopicPartition, aggregate_cluster
from parallax.errors import ClusterUnavailableError, ConfigError, FencedError
from parallax.ports.index import MappingIndexWriter
from parallax.runtime.retry import RetryPolicy
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.ledger import Ledger
from replicator.copying.ports import RunLogReader, SourceReader, Surveyor, TargetWriter
from replicator.copying.recovery import RunLogError, RunLogProblem, Shard
from replicator.copying.session import ShardSession
from replicator.copying.session_end import (
    Absences,
    Counts,
    PartitionRefusedError,
    SessionError,
    Stops,
    TopicsRefusedError,
)
from replicator.copying.state import PartitionChange
from replicator.kafka.connector import Connector, connector_for
from replicator.kafka.layout import other_run_log, shard_in
from replicator.kafka.layout_record import LAYOUTS_TOPIC, LayoutRecord
from replicator.kafka.run_log import changes_of_lineages, load_states, run_log_topic
from replicator.lease import Lease, LeaseProgress, LeaseResult, PartitionProgress, PartitionStatus
from replicator.mapping.feed import IndexFeed, IndexThread

log = structlog.get_logger(__name__)
_REPORT_INTERVAL_MS = 1_000
_INDEX_PATIENCE_MS = 5_000
Report = Callable[[LeaseProgress], None]


def hold_lease(
    lease: Lease,
    config: Config,
    *,
    index: MappingIndexWriter | None,
    report: Report,
    end_asked: Callable[[], bool] = lambda: False,
    overtime: Callable[[], bool] = lambda: False,
) -> LeaseResult:
    """Copy the lease's shard until its deadline, or until today's end if it is ``available_now``.

    Waits inside while a cluster is away, or refuses the replicator altogether, and goes on by itself afterwards.

    Args:
        lease: what to copy, and until when. The layout must exist (`replicator.kafka.layout.ensure_layout`).
        config: all configuration.
        index: where the mapping goes; None keeps it in the run log alone.
        report: called about once a second, from this thread.
        end_asked: asked between two transactions; true ends the lease early.
        overtime: asked before each session; true: whatever ended the one before, none begins any more, because it
            would fence the owner that may have followed.

    Returns:
        What was done.

    Raises:
        FencedError: another owner or a newer layout has taken over; this one must not go on.
    """
    connector = connector_for(config)
    feed: IndexFeed | None = None
    thread: IndexThread | None = None
    if index is not None:
        feed = feed_of(lease, connector, index)
        thread = IndexThread(
            feed,
            earlier=lambda: earlier_feeds(lease, connector, index),
            interval_ms=config.index.interval_ms,
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
    holder = _Holder(lease, config, connector, feed, report, end_asked, overtime, retries or RetryPolicy())
    try:
        holder.run()
    finally:
        holder.close()
    holder.tell()
    return holder.result()


class _Holder:
    """Opens sessions until the lease is over, and keeps what outlives them: nothing that the run log would have to know."""

    def __init__(
        self,
        lease: Lease,
        config: Config,
        connector: Connector,
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
        self._feed = feed
        self._report = report
        self._end_asked = end_asked
        self._overtime = overtime
        self._retries = retries
        self._foreign_records = connector.foreign_records(lease)
        self._reported_at = -float("inf")
        self._counts = Counts()
        self._stops = Stops(connector.clock, config.replicator.lease_epoch_s * 1_000)
        self._absences = Absences(config.route_topics(lease.route).make)
        self._goal: Mapping[TopicPartition, SourceOffset] | None = None
        self._known_to: int | None = None
        """Up to here the run log's entries are those that were read or written by this lease."""
        self._run_log_went_back = ""
        """Why the run log can't be the one that was read; empty as long as nothing says so."""
        self._indexed_up_to = 0
        self._attempted: Sequence[Entry] = ()
        self._waiting_for = ""
        self._partitions: tuple[PartitionProgress, ...] = ()
        self._told_stops: Mapping[TopicPartition, str] = {}

    def run(self) -> None:
        """Hold the lease.

        Raises:
            FencedError: another owner has taken over.
        """
        waits = self._retries.waits_ms()
        # Asked once, before anything is open: while the index is away, its thread finds out later.
        self._indexed_up_to = 0 if self._feed is None else self._feed.indexed_up_to()
        while not (self._over() or self._overtime()):
            begun = self._counts.transactions
            try:
                if self._one_session():
                    return
            except (SessionError, ClusterUnavailableError, ConfigError) as error:
                self._note_end(error)
            else:
                continue
            self._counts.aborts += 1
            self.tell()
            if self._counts.transactions > begun:
                waits = self._retries.waits_ms()
            self._clock.sleep_ms(min(next(waits), max(0.0, self._left_ms())))

    def _note_end(self, error: SessionError | ClusterUnavailableError | ConfigError) -> None:
        """What ended a session: a stop for the next ones, or what the lease waits for."""
        lease = str(self._lease)
        own = run_log_topic(self._config, self._lease.route.source)
        if isinstance(error, PartitionRefusedError):
            self._stops.note(error.stop)
            log.warning("partition_refused", lease=lease, reason=error.stop.reason)
        elif isinstance(error, TopicsRefusedError) and own not in error.reasons:
            if self._stops.refuse(error.reasons):
                log.warning("topics_refused", lease=lease, problem=str(error))
        else:
            if not isinstance(error, RunLogError | ConfigError | TopicsRefusedError):
                log.warning("session_ended", lease=lease, problem=str(error))
            elif self._waiting_for != str(error):  # told once: it waits for a person
                event = "run_log_refused" if isinstance(error, RunLogError) else "lease_refused"
                log.error(event, lease=lease, problem=str(error))
            self._waiting_for = str(error)

    def close(self) -> None:
        """Let go of what outlives sessions."""
        if self._foreign_records is not None:
            self._foreign_records.close()

    def result(self) -> LeaseResult:
        """What was done."""
        counts = self._counts
        return LeaseResult(
            lease=self._lease,
            records=sum(counts.records.values()),
            size_bytes=counts.size_bytes,
            transactions=counts.transactions,
            aborts=counts.aborts,
            watermarks=counts.watermarks,
            stopped={str(item): reason for item, reason in self._stops.reasons().items()},
        )

    def tell(self, session: ShardSession | None = None) -> None:
        """Report now; without a session, with the partitions as last reported."""
        if session is not None:
            self._partitions = session.progress()
            self._note_stops()
        partitions, self._partitions = self._partitions, tuple(part.told() for part in self._partitions)
        self._reported_at = self._clock.monotonic_ms()
        counts, feed = self._counts, self._feed
        self._report(
            LeaseProgress(
                lease=self._lease,
                partitions=partitions,
                transactions=counts.transactions,
                aborts=counts.aborts,
                index_lag_ms=0.0 if feed is None else feed.lag_ms(),
                index_gap_offsets=0 if feed is None else feed.gap_offsets,
                survey_failures=counts.survey_failures,
                foreign_records=0 if self._foreign_records is None else self._foreign_records.records,
                waiting_for=self._waiting_for,
                record_ages=counts.record_ages.value(),
                latencies=counts.latencies.value(),
                source_wait_ms=round(counts.source_wait_ms),
                target_wait_ms=round(counts.target_wait_ms),
            )
        )

    def _note_stops(self) -> None:
        """Tell the index why partitions are stopped; a session that has just begun does not know yet of all."""
        if self._feed is None:
            return
        before, stops = self._told_stops, {}
        for part in self._partitions:
            item = TopicPartition(TopicName(part.topic), part.partition)
            if part.status is PartitionStatus.STOPPED:
                stops[item] = part.reason
            elif part.status is PartitionStatus.WAITING and item in before:
                stops[item] = before[item]
        self._told_stops = stops
        self._feed.note_stops(stops)

    def _left_ms(self) -> float:
        return self._lease.deadline_unix_ms - self._clock.now_ms()

    def _over(self) -> bool:
        return self._end_asked() or self._left_ms() <= 0

    def _one_session(self) -> bool:
        """Run one session; whether the lease is over with it."""
        lease, connector = self._lease, self._connector
        run_log = connector.run_log(lease)
        doors: list[TargetWriter | SourceReader | Surveyor | RunLogReader] = [run_log]
        try:
            if run_log.topic_id() is None:  # nothing of what follows could be asked
                raise other_run_log(_layout_of(lease, connector), None, lease.route)
            # Before this owner fences others once more: has one taken over while this one could not reach the target?
            if self._others_wrote(run_log):
                raise FencedError(f"{lease}: another owner has written to the run log")
            # In this order: fence, look for a newer layout, read what is committed.
            connector.settle(lease)
            target = connector.target(lease)
            doors.append(target)
            layout = _layout_of(lease, connector)
            if (found := run_log.topic_id()) != layout.run_log_id:
                raise other_run_log(layout, found, lease.route)
            shard = shard_in(layout, lease)
            self._refuse_truncated(shard)
            leader_epoch = run_log.leader_epoch()
            states, end = load_states(
                run_log,
                shard,
                unexplained=lambda states: connector.unexplained(lease, states),
                known_end=max(self._known_to or 0, self._indexed_up_to),
            )
            self._known_to = end
            if self._feed is not None:
                self._feed.note_end(end)
            source = connector.source(lease)
            doors.append(source)
            surveyor = connector.surveyor(lease)
            doors.append(surveyor)
            ledger = Ledger(
                lease,
                self._config.replicator,
                shard=shard,
                run_log_leader_epoch=leader_epoch,
                target=target,
                clock=self._clock,
                states=states,
                counts=self._counts,
                committed=self._note,
            )
            session = ShardSession(
                lease,
                self._config.replicator,
                source=source,
                target=target,
                surveyor=surveyor,
                clock=self._clock,
                ledger=ledger,
                history=lambda item, lineage: _changes_of_lineages(
                    lease, connector, item, lineage, self._known_to or 0
                ),
                stops=self._stops,
                absences=self._absences,
                goal=self._goal,
                stops_at_recreated=self._config.topics.on_recreate == "stop",
            )
            self._waiting_for = ""
            return self._run(session, ledger, shard)
        finally:
            for door in reversed(doors):
                door.close()

    def _run(self, session: ShardSession, ledger: Ledger, shard: Shard) -> bool:
        try:
            while not self._over():
                session.step()
                self._refuse_truncated(shard)
                self._goal = session.goal
                if self._clock.monotonic_ms() - self._reported_at >= _REPORT_INTERVAL_MS:
                    self.tell(session)
                if session.finished():
                    break
                if self._stops.due:
                    session.commit()
                    self._stops.try_again()
                    return False
            session.commit()
        except FencedError:
            # The broker fences the owner of a transaction that it aborted for its age, too: then nobody else may
            # have taken over. Whoever did writes its first entry at once.
            if ledger.open_for_ms < self._config.replicator.transaction_timeout_ms * 0.9:
                raise
            log.warning("transaction_expired", lease=str(self._lease), open_for_ms=ledger.open_for_ms)
            self._clock.sleep_ms(2 * self._config.replicator.watermark_interval_ms)
            return False
        finally:
            self._attempted = ledger.attempted
        self.tell(session)
        return True

    def _refuse_truncated(self, shard: Shard) -> None:
        what = self._run_log_went_back or ("" if self._feed is None else self._feed.truncated)
        if what:
            raise shard.refused(RunLogProblem.RUN_LOG_TRUNCATED, what)

    def _note(self, offset: int, entry: Entry) -> None:
        if self._known_to is not None and offset < self._known_to:
            what = f"it took an entry at offset {offset}, and those up to {self._known_to} are known: it was made anew or lost its tail"
            self._run_log_went_back = what
        self._known_to = max(offset + 1, self._known_to or 0)
        if self._feed is not None:
            self._feed.offer(offset, entry)
        if self._foreign_records is not None:
            self._foreign_records.note(entry)

    def _others_wrote(self, run_log: RunLogReader) -> bool:
        """Whether the run log has entries that this lease neither read nor wrote; one of unknown outcome is its own."""
        known_to = self._known_to
        if known_to is None or known_to >= (end := run_log.stable_end()):
            return False
        entries = list(run_log.read(max(known_to, run_log.start()), end))
        # What can't be read as an entry is no owner's: the run log is refused for it when it is read.
        return any(entry is not None and entry not in self._attempted for _, entry in entries)


def _layout_of(lease: Lease, connector: Connector) -> LayoutRecord:
    """The route's layout, which has to be the lease's own.

    Raises:
        FencedError: it is a newer one.
        RunLogError: there is none, or an older one.
    """
    layout = connector.layout(lease)
    if layout is not None and layout.layout > lease.layout:
        raise FencedError(f"{lease}: layout {layout.layout} has taken over")
    if layout is None or layout.layout < lease.layout:
        found = "no record of the route" if layout is None else f"layout {layout.layout} of the route"
        what = f"{LAYOUTS_TOPIC} has {found}, and the lease is of layout {lease.layout}"
        where = f"{aggregate_cluster(lease.route.target)}: {lease.route}"
        raise RunLogError(RunLogProblem.LAYOUT_MISSING, where, what)
    return layout


def _changes_of_lineages(
    lease: Lease, connector: Connector, item: TopicPartition, lineage: Lineage, known_end: int
) -> Iterator[PartitionChange]:
    """Every change of a partition, in whichever shard an earlier layout had it."""
    readers = [connector.run_log(lease)]
    try:
        others = [shard for shard in range(readers[0].partitions()) if shard != lease.shard]
        readers += [connector.run_log(replace(lease, shard=shard)) for shard in others]
        yield from changes_of_lineages(readers, item, lineage, known_end=known_end)
    finally:
        for reader in readers:
            reader.close()


# --- the index feeds -----------------------------------------------------------------------------------------------


def feed_of(lease: Lease, connector: Connector, index: MappingIndexWriter) -> IndexFeed:
    """What the shard commits, and what shards of earlier layouts with its number have left to be indexed."""
    return IndexFeed(
        index,
        connector.run_log(lease),
        route=lease.route,
        layout=lease.layout,
        shard=lease.shard,
        clock=connector.clock,
        patience_ms=_INDEX_PATIENCE_MS,
    )


def earlier_feeds(lease: Lease, connector: Connector, index: MappingIndexWriter) -> Sequence[IndexFeed]:
    """What earlier layouts have left to be indexed in shards that this one has not; each falls to one of its shards."""
    first = lease.shard + lease.shard_count
    feeds = []
    for shard in range(first, connector.run_log(lease).partitions(), lease.shard_count):
        other = replace(lease, shard=shard)
        feed = feed_of(other, connector, index)
        feed.note_end(connector.run_log(other).end())
        feeds.append(feed)
    return feeds
