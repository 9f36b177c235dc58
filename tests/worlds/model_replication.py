"""Producers and replicators of the model: what puts records into logs and writes rows."""

from __future__ import annotations

import random

from parallax.domain.history import History
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    Lineage,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
)
from parallax.domain.progress import SourceHistory, TargetTruncation
from parallax.domain.runs import LostRange, Run, watermark
from tests.worlds.model_logs import Cluster, Copier, Options, Record, SourceLog, build_runs


class Replication:
    """Producers, regional logs, replicators and aggregate clusters."""

    def __init__(self, seed: int, options: Options) -> None:
        self.random = random.Random(seed)
        self.options = options
        self.regions = [RegionName("abcd"[index]) for index in range(options.regions)]
        self.rates = {region: self.random.choice([0, 1, 1, 3, 8]) for region in self.regions}
        self.incarnations: dict[RegionName, list[SourceLog]] = {}
        for region in self.regions:
            self.incarnations[region] = [SourceLog(SourceId(region, TopicId(f"{region}0")))]
        self.clusters = [Cluster(ClusterName(f"aggregate-{index}")) for index in range(options.clusters)]
        for cluster in self.clusters:
            for region in self.regions:
                cluster.copiers[region] = []
                self._open(cluster, self.incarnations[region][0], 0, 0)
        self.excused: set[Record] = set()
        """Records that were named as never delivered: to read them or not is both right."""
        self.compacted: set[Record] = set()
        self.before_topic = {
            (cluster.name, region)
            for cluster in self.clusters
            for region in self.regions
            if self.random.random() < 0.2
        }
        """Routes that were there before the region had the topic: such a lineage has no source topic id."""

    # --- producers -------------------------------------------------------------------------------------------

    def produce(self) -> None:
        region = self.random.choice(self.regions)
        log = self.incarnations[region][-1]
        for _ in range(self.random.randint(0, 2) * self.rates[region]):
            log.append([Record(log.source, len(log.log), log.epoch)])
            if self.random.random() < 0.15:  # a transaction marker, or an aborted transaction
                log.append([None] * self.random.randint(1, 3))
        if self.options.epochs and self.random.random() < 0.2:
            log.epoch += self.random.randint(1, 2)

    def truncate_source(self) -> None:
        log = self.incarnations[self.random.choice(self.regions)][-1]
        end = self.random.randint(max(log.low, len(log.log) - 6), len(log.log))
        log.truncate(end)

    def trim_source(self) -> None:
        log = self.incarnations[self.random.choice(self.regions)][-1]
        log.low = self.random.randint(log.low, len(log.log))

    def compact_source(self) -> None:
        log = self.incarnations[self.random.choice(self.regions)][-1]
        for index, record in enumerate(log.log):
            if record is not None and self.random.random() < 0.2:
                self.compacted.add(record)
                log.log[index] = None

    def recreate_source(self) -> None:
        region = self.random.choice(self.regions)
        self.incarnations[region][-1].deleted = True
        number = len(self.incarnations[region])
        self.incarnations[region].append(SourceLog(SourceId(region, TopicId(f"{region}{number}"))))

    # --- replicators -----------------------------------------------------------------------------------------

    def _open(
        self, cluster: Cluster, source: SourceLog, at: int, generation: int, leader_epoch: int = UNKNOWN_EPOCH
    ) -> Copier:
        """Begin a lineage, as ``replicator.lineages.begin`` does.

        ``leader_epoch`` is that of the last record below ``at``, and never the source's present one: the source may have
        thrown away records below ``at`` meanwhile, and written others under that.
        """
        copier = Copier(
            source,
            generation,
            source_next=at,
            last_record_end=at,
            last_epoch=leader_epoch,
            epoch_seen=source.epoch,
        )
        nothing_before = SourceOffset(at if generation else 0)
        end = TargetOffset(len(cluster.entries))
        copier.rows.append(Run(SourceOffset(at), end, 0, nothing_before, leader_epoch))
        cluster.copiers[source.source.region].append(copier)
        return copier

    def _close(self, cluster: Cluster, copier: Copier) -> None:
        self._abort(copier, cluster)
        self._write_watermark(cluster, copier)
        copier.closed_at = copier.source_next

    def _abort(self, copier: Copier, cluster: Cluster) -> None:
        for _, place in copier.open_batch:
            cluster.entries[place] = None
        if copier.open_batch:
            cluster.entries.append(None)
        copier.open_batch = []

    def _current(self, cluster: Cluster, region: RegionName) -> Copier:
        """The open copier, after it has looked for a recreated topic and a truncated log."""
        copier = cluster.copiers[region][-1]
        newest = self.incarnations[region][-1]
        if copier.source is not newest:
            self._close(cluster, copier)
            following = self.incarnations[region][self.incarnations[region].index(copier.source) + 1]
            return self._open(cluster, following, 0, 0)
        lost = [end for end, epoch in copier.source.truncations if epoch > copier.epoch_seen]
        fetched = copier.open_batch[-1][0].offset + 1 if copier.open_batch else copier.source_next
        if lost and min(lost) < fetched:
            self._abort(copier, cluster)
        if lost and min(lost) < copier.source_next:
            self._close(cluster, copier)
            at, leader_epoch = self._parted(copier, min(lost))
            return self._open(cluster, newest, at, copier.generation + 1, leader_epoch)
        copier.epoch_seen = newest.epoch
        return copier

    def _parted(self, copier: Copier, cut: int) -> tuple[int, int]:
        """Where the source parts from what was copied, and the epoch below that: as ``replicator.reconcile`` is told it."""
        if copier.last_epoch == UNKNOWN_EPOCH:
            return min(cut, copier.rows[0].source_start), UNKNOWN_EPOCH
        if cut >= copier.last_record_end:
            return copier.last_record_end, copier.last_epoch
        return cut, copier.source.epoch_up_to(copier.last_epoch)

    def replicate(self, cluster: Cluster, region: RegionName) -> None:
        """Begin a transaction, commit it, or abort it."""
        copier = self._current(cluster, region)
        if copier.open_batch:
            if self.random.random() < 0.2:
                self._abort(copier, cluster)
            else:
                self._commit(copier, cluster)
            return
        source = copier.source
        if source.low > copier.source_next:
            gone = LostRange(
                SourceOffset(copier.last_record_end),
                SourceOffset(source.low),
                TargetOffset(len(cluster.entries)),
            )
            copier.lost.append(gone)
            copier.source_next = copier.last_record_end = source.low
        for record in source.records(copier.source_next, self.random.randint(1, 6)):
            if copier.open_batch and self.random.random() < 0.1:
                break
            copier.open_batch.append((record, len(cluster.entries)))
            cluster.entries.append(record)
        if not copier.open_batch:
            copier.source_next = len(source.log)
        elif self.random.random() < 0.7:
            self._commit(copier, cluster)

    def _commit(self, copier: Copier, cluster: Cluster) -> None:
        for epoch in sorted({record.epoch for record, _ in copier.open_batch}):
            batch = [(record, place) for record, place in copier.open_batch if record.epoch == epoch]
            copier.rows += build_runs(
                [record.offset for record, _ in batch],
                [place for _, place in batch],
                previous_source_end=SourceOffset(copier.last_record_end),
                source_leader_epoch=epoch,
            )
            copier.last_record_end = copier.source_next = batch[-1][0].offset + 1
            copier.last_epoch = epoch
        copier.open_batch = []
        cluster.entries.append(None)

    def write_watermark(self, cluster: Cluster, region: RegionName) -> None:
        copier = self._current(cluster, region)
        if self.watermark_allowed(copier):
            self._write_watermark(cluster, copier)

    def watermark_allowed(self, copier: Copier) -> bool:
        """A watermark is committed in a fenced transaction of its own: never while another is open."""
        return not copier.open_batch

    def watermark_position(self, copier: Copier) -> int:
        """The position of the last committed transaction; never a fetch position."""
        return copier.source_next

    def watermark_target_end(self, cluster: Cluster) -> int:
        """The high watermark; never the last stable offset."""
        return len(cluster.entries)

    def _write_watermark(self, cluster: Cluster, copier: Copier) -> None:
        copier.rows.append(
            watermark(
                source_next=SourceOffset(self.watermark_position(copier)),
                target_end=TargetOffset(self.watermark_target_end(cluster)),
                last_run_end=SourceOffset(copier.last_record_end),
                source_leader_epoch=copier.last_epoch,
            )
        )

    # --- aggregate clusters ----------------------------------------------------------------------------------

    def trim_target(self, cluster: Cluster, limit: int) -> None:
        cluster.low = self.random.randint(cluster.low, max(min(limit, cluster.stable_end()), cluster.low))

    def truncate_target(self) -> None:
        cluster = self.random.choice(self.clusters)
        for items in cluster.copiers.values():
            self._abort(items[-1], cluster)
        lowest = max([cluster.low, *(items[-1].rows[0].target_start for items in cluster.copiers.values())])
        old_end = len(cluster.entries)
        cut = self.random.randint(max(lowest, old_end - 12), old_end)
        cluster.leader_epoch += 1
        loss = TargetTruncation(TargetOffset(cut), TargetOffset(old_end), cluster.leader_epoch)
        cluster.truncations.append(loss)
        del cluster.entries[cut:]
        for items in cluster.copiers.values():
            copier = items[-1]
            history = History(Lineage(copier.source.source.topic_id, cluster.topic_id), copier.rows)
            kept = history.cut_at(TargetOffset(cut))
            # As replicator.lineages.cut_by_target: from the last record that is left, and not from a watermark after it.
            newest = next((row for row in reversed(kept.rows) if row.count), next(iter(kept.rows), None))
            copier.rows = list(kept.rows)
            copier.lost = [gap for gap in copier.lost if gap.target_at <= cut]
            copier.closed_at = copier.source_next = 0 if newest is None else newest.source_end
            leader_epoch = UNKNOWN_EPOCH if newest is None else newest.source_leader_epoch
            again = self._open(cluster, copier.source, copier.closed_at, copier.generation + 1, leader_epoch)
            again.epoch_seen = copier.epoch_seen  # a tail that the source lost as well is looked at next

    # --- what the rule is given --------------------------------------------------------------------------------

    def histories(self, cluster: Cluster) -> list[SourceHistory]:
        """The rows of a cluster as the index gives them: all, or a random part."""
        result = []
        for region, items in cluster.copiers.items():
            if not self.options.complete and self.random.random() < 0.1:
                continue
            behind = not self.options.complete and self.random.random() < 0.15
            if (cluster.name, region) in self.before_topic:
                closed = not behind or self.random.random() < 0.5
                result.append(self._before_topic(cluster, region, closed=closed))
            for item in items[: self.random.randrange(len(items) + 1)] if behind else items:
                rows = item.rows
                if not self.options.complete:
                    keep = self.random.choice([0.1, 0.5, 0.9])
                    rows = [row for row in rows if self.random.random() < keep]
                lineage = Lineage(item.source.source.topic_id, cluster.topic_id, item.generation)
                closed = None if item.closed_at is None else SourceOffset(item.closed_at)
                history = History(lineage, rows, item.lost)
                result.append(SourceHistory(SourceId(region, lineage.source_topic_id), history, closed))
        return result

    def _before_topic(self, cluster: Cluster, region: RegionName, *, closed: bool) -> SourceHistory:
        source = SourceId(region, TopicId(""))
        opening = Run(SourceOffset(0), TargetOffset(0), 0, SourceOffset(0), -1)
        history = History(Lineage(source.topic_id, cluster.topic_id), [opening])
        return SourceHistory(source, history, SourceOffset(0) if closed else None)

    def settle(self, cluster: Cluster) -> None:
        """Commit what is open and write current watermarks."""
        for region in self.regions:
            while (copier := self._current(cluster, region)).source is not self.incarnations[region][-1]:
                pass
            if copier.open_batch:
                self._commit(copier, cluster)
        for region in self.regions:
            self.write_watermark(cluster, region)
