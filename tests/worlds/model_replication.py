"""Producers and replicators of the model: what puts records into logs and writes rows."""

from __future__ import annotations

import random
from dataclasses import dataclass

from parallax.domain.history import History
from parallax.domain.ids import ClusterName, RegionName, SourceId, TargetOffset, TopicId
from parallax.domain.lineages import lineages_that_count
from parallax.domain.progress import SourceHistory, TargetTruncation
from tests.worlds.model_copier import ITEM, Copier, LoggedLineage, route_topic
from tests.worlds.model_logs import Cluster, Options, Record, SourceLog


@dataclass
class Told:
    """What the index tells of a cluster."""

    histories: list[SourceHistory]
    truncations: list[TargetTruncation]


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
        self.excused: set[Record] = set()
        """Records that were named as never delivered: to read them or not is both right."""
        self.unknowable: set[Record] = set()
        """Records of which nothing is left that tells whether a group has read them (docs/decisions/0003-lineage.md)."""
        self.compacted: set[Record] = set()
        self.clusters = [Cluster(ClusterName(f"aggregate-{index}")) for index in range(options.clusters)]
        for cluster in self.clusters:
            for region in self.regions:
                cluster.copiers[region] = Copier(self.random, cluster, region, self.unknowable)
                if self.random.random() < 0.2:
                    cluster.copiers[region].work(None)  # the route was there before the region had the topic
                cluster.copiers[region].work(self.incarnations[region][0])

    # --- producers -------------------------------------------------------------------------------------------

    def produce(self) -> None:
        region = self.random.choice(self.regions)
        log = self.incarnations[region][-1]
        for _ in range(self.random.randint(0, 2) * self.rates[region]):
            log.append_record()
            if self.random.random() < 0.15:  # a transaction marker, or an aborted transaction
                log.append_hidden(self.random.randint(1, 3))
        if self.options.epochs and self.random.random() < 0.2:
            log.elect(steps=self.random.randint(1, 2))
            self._begin_hidden(log)

    def _begin_hidden(self, log: SourceLog) -> None:
        """A leader ends what its producers had begun before: its first entries are markers."""
        if self.options.hidden and self.random.random() < 0.5:
            log.append_hidden(self.random.randint(1, 4))

    def truncate_source(self) -> None:
        log = self.incarnations[self.random.choice(self.regions)][-1]
        if log.away is not None and self.random.random() < 0.3:
            log.elect_returned()
        else:
            log.elect_unclean(self.random.randint(max(log.low, len(log.log) - 6), len(log.log)))
        self._begin_hidden(log)

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

    def replicate(self, cluster: Cluster, region: RegionName) -> None:
        """Let a replicator do something."""
        cluster.copiers[region].work(self.incarnations[region][-1])

    def write_watermark(self, cluster: Cluster, region: RegionName) -> None:
        copier = cluster.copiers[region]
        copier.look_at_target(self.incarnations[region][-1])
        if self.watermark_allowed(copier):
            copier.watermark(self.watermark_position(copier), self.watermark_target_end(cluster))

    def watermark_allowed(self, copier: Copier) -> bool:
        """A watermark is committed in a fenced transaction of its own: never while another is open."""
        return not copier.open_batch

    def watermark_position(self, copier: Copier) -> int:
        """What is committed, and the non-records after it; never a fetch position."""
        return copier.position

    def watermark_target_end(self, cluster: Cluster) -> int:
        """The high watermark; never the last stable offset."""
        return len(cluster.entries)

    def trim_run_log(self, cluster: Cluster, region: RegionName) -> None:
        copier = cluster.copiers[region]
        copier.run_log_first = self.random.randint(copier.run_log_first, len(copier.run_log))

    # --- aggregate clusters ----------------------------------------------------------------------------------

    def trim_target(self, cluster: Cluster, limit: int) -> None:
        cluster.low = self.random.randint(cluster.low, max(min(limit, cluster.stable_end()), cluster.low))

    def truncate_target(self) -> None:
        """Another leader, whose log ends earlier; each replicator finds out when it looks next."""
        cluster = self.random.choice(self.clusters)
        for copier in cluster.copiers.values():
            copier.abort()
        old_end = len(cluster.entries)
        cut = self.random.randint(max(cluster.low, old_end - self.random.choice([6, 12, 40])), old_end)
        cluster.leader_epoch += 1
        loss = TargetTruncation(TargetOffset(cut), TargetOffset(old_end), cluster.leader_epoch)
        cluster.truncations.append(loss)
        del cluster.entries[cut:]

    # --- what the rule is given --------------------------------------------------------------------------------

    def told(self, cluster: Cluster) -> Told:
        """The lineages and rows of a cluster as the index gives them: all, or a random part.

        Every replicator has seen by then what the target has lost, and the index too.
        """
        topics = {}
        known: dict[RegionName, dict] = {}
        for region, copier in cluster.copiers.items():
            copier.look_at_target(self.incarnations[region][-1])
        for region, copier in cluster.copiers.items():
            if not self.options.complete and self.random.random() < 0.1:
                continue
            behind = not self.options.complete and self.random.random() < 0.15
            lineages = copier.lineages(
                self.random.randint(copier.cut_at, len(copier.run_log)) if behind else None
            )
            topics[copier.route] = route_topic(lineages.values())
            known[region] = lineages
        counting = lineages_that_count(topics, cluster.topic_id)
        histories = []
        for view in counting.of(ITEM.partition):
            logged: LoggedLineage = known[view.source.region][view.lineage]
            rows = logged.rows
            if not self.options.complete:
                keep = self.random.choice([0.1, 0.5, 0.9])
                rows = [row for row in rows if self.random.random() < keep]
            history = History(view.lineage, rows, logged.lost)
            if view.cut is not None:
                history = history.cut_at(view.cut)
            histories.append(SourceHistory(view.source, history, view.record.closed_at))
        truncations = counting.truncations(ITEM.partition)
        return Told(histories, truncations)

    def settle(self, cluster: Cluster) -> None:
        """Commit what is open and write current watermarks."""
        for region in self.regions:
            cluster.copiers[region].settle(self.incarnations[region][-1])
        for region in self.regions:
            self.write_watermark(cluster, region)
