"""What is known of a group: what was read of it now and in the cycle before, and what the store remembers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from parallax.config.config import Config
from parallax.domain.commits import Commits, ObservedCommit, PublishedOffset, last_seen
from parallax.domain.formats import UnreadableRow, apart
from parallax.domain.ids import ClusterName, GroupName, TopicPartition
from parallax.domain.ownership import Offers, own_commits, standing_offers
from parallax.domain.progress import Progress
from parallax.ports.groups import StoredGroup
from syncjob.clusters import to_remember
from syncjob.facts import GroupFacts, GroupSide, Seen
from syncjob.look import Look

Row = TypeVar("Row", ObservedCommit, UnreadableRow, PublishedOffset | UnreadableRow)


class Gathering:
    """Brings together what is known of groups. It keeps the commits of the last cycle, so that two reads can be compared.

    Different groups may be asked about by several threads at a time.

    Args:
        config: which topics count.
        now_ms: the store's clock.
    """

    def __init__(self, config: Config, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._now_ms = now_ms
        self._commits: dict[tuple[GroupName, ClusterName], Commits] = {}

    def note(self, group: GroupName, cluster: ClusterName, commits: Commits) -> None:
        """Remember what the group's commits are there now."""
        self._commits[group, cluster] = commits

    def has_moved(self, group: GroupName, commits: Mapping[ClusterName, Commits]) -> bool:
        """Whether these are not the commits that were read before; of what was not read before nobody knows."""
        return any(self._commits.get((group, name), there) != there for name, there in commits.items())

    def forget_all_but(self, groups: Collection[GroupName]) -> None:
        """Keep what is of these groups alone."""
        self._commits = {key: commits for key, commits in self._commits.items() if key[0] in groups}

    def facts(
        self, look: Look, stored: StoredGroup
    ) -> tuple[GroupFacts, list[ObservedCommit], frozenset[ClusterName]]:
        """What is known of the group; what is to be remembered of its commits, and on which clusters that is all there is."""
        told: list[ObservedCommit] = []
        whole: set[ClusterName] = set()
        unreadable: list[UnreadableRow] = []
        published = {name: self._published(stored.published[name], unreadable) for name in look.snapshots}
        sides = {
            name: self._side(look, name, stored.observed[name], published, told, whole, unreadable)
            for name in look.snapshots
        }
        topics = {
            item.topic for side in sides.values() for item in (*side.commits, *side.seen, *side.published)
        }
        progress: dict[TopicPartition, Progress] = {}
        for topic in sorted(topics):
            for partition, moved in stored.progress.get(topic, {}).items():
                if isinstance(moved, UnreadableRow):
                    unreadable.append(moved)
                else:
                    progress[TopicPartition(topic, partition)] = moved
        facts = GroupFacts(look.group, sides, progress, look.sight.assignment)
        if not unreadable:
            return facts, told, frozenset(whole)
        facts = facts.without(unreadable)
        # What was seen shows what a commit makes void: it has to be there for whoever can read all of it.
        return facts, [item for item in told if item.topic_partition not in facts.unreadable], frozenset()

    def _side(
        self,
        look: Look,
        cluster: ClusterName,
        observed: Sequence[ObservedCommit | UnreadableRow],
        published: Mapping[ClusterName, Offers],
        told: list[ObservedCommit],
        whole: set[ClusterName],
        unreadable: list[UnreadableRow],
    ) -> GroupSide:
        """The group on a cluster; on one that is away, as it was last seen there.

        What is to be remembered goes to ``told``; the cluster to ``whole`` if nothing else is remembered of the group there,
        but for reports.
        """
        group, snapshot, sight = look.group, look.snapshots[cluster], look.sight
        every, not_seen = apart(observed)
        stored = self._chosen(every)
        unreadable += self._chosen(not_seen)
        if snapshot is None:
            commits, topic_ids = last_seen(stored)
            before = commits
            reported_ahead = any(item.counts_at(self._now_ms()) for item in stored)
        else:
            topic_ids, commits = snapshot.topic_ids, sight.commits[cluster]
            before = self._commits.get((group, cluster), {})
            self._commits[group, cluster] = commits
            found = to_remember(group, cluster, commits, before, topic_ids, stored, snapshot.read_at_ms)
            told += found
            places = {item.topic_partition for item in found}
            if not not_seen and all(item.reported or item.topic_partition in places for item in every):
                whole.add(cluster)
            reported_ahead = len(found) < len(commits)
        offers = standing_offers(cluster, topic_ids, published)
        return GroupSide(
            cluster,
            reachable=snapshot is not None,
            topic_ids=topic_ids,
            commits={item: Seen(commit, before.get(item)) for item, commit in commits.items()},
            own=own_commits(commits, topic_ids, offers),
            published=published[cluster],
            offers=offers,
            has_members=cluster in sight.with_members,
            assigned=sight.assigned.get(cluster, frozenset()),
            reported_ahead=reported_ahead,
            seen={item.topic_partition: item for item in stored},
            read_at_ms=0 if snapshot is None else snapshot.read_at_ms,
        )

    def _chosen(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows of topics that are chosen."""
        topics = {row.topic_partition.topic for row in rows}
        left_out = {topic for topic in topics if not self._config.chosen_anywhere(topic)}
        return [row for row in rows if row.topic_partition.topic not in left_out] if left_out else rows

    def _published(
        self, stored: Iterable[PublishedOffset | UnreadableRow], unreadable: list[UnreadableRow]
    ) -> Offers:
        """What was published for a group on a cluster; what can't be read goes to ``unreadable``."""
        found, not_found = apart(self._chosen(list(stored)))
        unreadable += not_found
        return {item.topic_partition: item for item in found}
