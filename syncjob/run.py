"""Builds a syncer from the configuration and runs it: a composition root for executors and the command line."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import structlog

from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import aggregate_clusters
from parallax.adapters.kafka.compacted import CompactedTable
from parallax.client.answer import ask
from parallax.client.mapped import map_positions
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, TopicName
from parallax.errors import UnavailableError
from parallax.ports.audit import Auditor
from parallax.runtime.deadline import Deadline
from parallax.runtime.process import circles_seldom_looked_for, process_name
from parallax.wiring import open_client
from syncjob.checkpoints import CheckpointExport
from syncjob.clusters import refuse_same_cluster
from syncjob.cycle import Syncer
from syncjob.report import CycleReport
from syncjob.status import CHECKPOINTS, CYCLES, FAILED_CYCLES
from syncjob.telling import SyncTeller

_log = structlog.get_logger(__name__)

_SAY_EVERY_S = 10.0
_WRITE_WITHIN_MS = 10_000


@contextmanager
def exporting(config: Config) -> Iterator[CheckpointExport]:
    """What writes checkpoints for MirrorMaker 2's clients; nothing, unless the configuration says so."""

    def topic(cluster: ClusterName, name: TopicName) -> CompactedTable:
        return CompactedTable(cluster, config.cluster(cluster), name, timeout_ms=_WRITE_WITHIN_MS)

    wanted = config.aggregate_clusters() if config.mm2_export.checkpoints else ()
    export = CheckpointExport(config.mm2_export, wanted, topic)
    try:
        yield export
    finally:
        export.close()


@contextmanager
def open_syncer(
    config: Config, *, dry_run: bool = False, others_within_s: float | None = None
) -> Iterator[Syncer]:
    """A syncer over the configured clusters, offset services and store.

    Args:
        config: everything.
        dry_run: as in `Syncer`.
        others_within_s: likewise.

    Raises:
        ConfigError: no region has an offset service, a certificate can't be read, or two clusters are one.
    """
    client = open_client(config)
    writers = list(aggregate_clusters(config).values())
    refuse_same_cluster(writers)
    with (
        CassandraStores(config.cassandra, config.index, audit=config.audit) as stores,
        client,
        circles_seldom_looked_for(),
    ):
        owner = process_name("sync")
        teller = SyncTeller(stores.status, owner, stores.clock.now_ms)
        syncer = Syncer(
            config,
            writers,
            stores.groups,
            stores.primaries,
            partial(ask, client),
            ask_many=partial(map_positions, client),
            dry_run=dry_run,
            now_ms=stores.clock.now_ms,
            auditor=Auditor(stores.audit, stores.clock.now_ms, process=owner),
            tell=lambda report, problem: None if dry_run else teller.tell(report, problem),
            others_within_s=others_within_s,
        )
        try:
            yield syncer
        finally:
            syncer.close()


def run_until(
    config: Config,
    deadline: Deadline,
    stop: threading.Event,
    tell: Callable[[Mapping[str, int], str, CycleReport | None], object] = lambda _counts, _problem, _cycle: (
        None
    ),
) -> Mapping[str, int]:
    """Sync every ``sync.interval_ms`` until the deadline or until ``stop`` is set; the sums of what was done.

    A store or cluster that is away is waited for.

    Args:
        config: everything.
        deadline: when to end.
        stop: ends it earlier.
        tell: hears after each cycle the sums so far, why the cycle failed (empty if it was good), and what it did (None if
            it failed).

    Raises:
        ConfigError: something that no waiting mends.
    """
    totals: Counter[str] = Counter()
    with exporting(config) as export, open_syncer(config) as syncer:
        say = Deadline.after_ms(0)
        while not deadline.passed and not stop.is_set():
            next_at = deadline.at_most_ms(config.sync.interval_ms)
            try:
                report = syncer.cycle()
            except UnavailableError as error:
                problem = f"[{error.code}] {error}"
                _log.warning("cycle_failed", problem=problem)
                totals[FAILED_CYCLES] += 1
                tell(totals, problem, None)
            else:
                totals[CYCLES] += 1
                totals.update(report.counts)
                export.take(report.decided)
                totals[CHECKPOINTS] = export.written
                tell(totals, "", replace(report, export_problem=export.problem))
                if say.passed:
                    _log.info("synced", away=list(report.away), **report.counts)
                    say = Deadline.after_ms(_SAY_EVERY_S * 1_000)
            stop.wait(next_at.remaining_s)
    return dict(totals)


def run_once(config: Config, *, dry_run: bool) -> CycleReport:
    """Two cycles, as a commit is replaced only if two consecutive reads agree; the report of the last.

    More where groups are too many to be read in one, and where a commit seems to be gone, or to have gone back, until that is
    known (``sync.rewind_confirm_ms``).

    Args:
        config: everything.
        dry_run: write nothing.

    Raises:
        StoreUnavailableError: the store did not answer in time.
    """
    with (
        exporting(config) as export,
        open_syncer(config, dry_run=dry_run, others_within_s=math.inf) as syncer,
    ):
        report = syncer.cycle()
        while report.waiting:
            time.sleep(config.sync.interval_ms / 1_000)
            report = _merged(report, syncer.cycle())
        known = Deadline.after_ms(config.sync.rewind_confirm_ms + 2 * config.sync.interval_ms)
        last = False
        while not last:
            last = not report.unconfirmed or known.passed
            time.sleep(config.sync.interval_ms / 1_000)
            report = _merged(report, syncer.cycle())
        if not dry_run:
            export.take(report.decisions)
        return report


def _merged(first: CycleReport, second: CycleReport) -> CycleReport:
    """The second report, with what the first has already written in the place of "unchanged", and what it says of those that wait now.

    Groups that have come up since are not waited for.
    """
    written = {
        (item.group, item.topic_partition, item.target): item
        for item in first.decisions
        if item.commit is not None
    }
    decisions = tuple(
        written.get((item.group, item.topic_partition, item.target), item) if item.commit is None else item
        for item in second.decisions
    )
    decisions += tuple(item for item in first.decisions if item.group in second.waiting)
    return CycleReport(
        decisions,
        {group: why for group, why in first.failures.items() if group in second.waiting}
        | dict(second.failures),
        second.away,
        first.moves + second.moves,
        first.rewinds + second.rewinds,
        unconfirmed=second.unconfirmed,
        waiting=first.waiting & second.waiting,
    )
