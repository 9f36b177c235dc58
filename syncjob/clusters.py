"""Reads clusters side by side; one that is away is asked again in the background and holds up nobody."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from parallax.domain.commits import Commits, ObservedCommit
from parallax.domain.ids import ClusterName, GroupName, TopicId, TopicName
from parallax.errors import ConfigError, ParallaxError
from parallax.ports.clusters import ClusterWriter
from parallax.runtime.deadline import Deadline

_log = structlog.get_logger(__name__)
_ASKED_AT_ONCE = 8
"""Questions about groups: each is a round trip, and the cluster may be far away."""
_PARTITIONS_AT_ONCE = 2_000
"""Commits that one answer may have: no more than some 8 MiB, as metadata are 4 KiB at most by a broker's default."""
_PARTITIONS_UNKNOWN = 200
"""A group that was not read before is taken to have so many."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """One cluster as read in one cycle.

    Attributes:
        assigned: by group, the topics of which its members have partitions.
        read_at_ms: when the reading began, milliseconds since the Unix epoch.
        refused: groups that may not be seen there: to them the cluster is as if it were away.
        partitions: how many each topic has.
        resting: groups that were not read, as they were to rest or there was no time: nothing at all is known of them.
    """

    topic_ids: Mapping[TopicName, TopicId]
    commits: Mapping[GroupName, Commits]
    with_members: frozenset[GroupName]
    assigned: Mapping[GroupName, frozenset[TopicName]]
    read_at_ms: int
    refused: frozenset[GroupName] = frozenset()
    resting: frozenset[GroupName] = frozenset()
    partitions: Mapping[TopicName, int] = field(default_factory=dict)

    def as_seen_for(self, group: GroupName) -> ClusterSnapshot | None:
        """The snapshot; None for a group that may not be seen, or was not read."""
        return None if group in self.refused or group in self.resting else self


def as_seen_for(
    group: GroupName, snapshots: Mapping[ClusterName, ClusterSnapshot | None]
) -> Mapping[ClusterName, ClusterSnapshot | None]:
    """The snapshots, None where nothing is known of the group."""
    return {
        name: None if snapshot is None else snapshot.as_seen_for(group)
        for name, snapshot in snapshots.items()
    }


class Identified(Protocol):
    """A cluster that tells its id."""

    @property
    def cluster(self) -> ClusterName:
        """Its name in the configuration."""

    def cluster_id(self) -> str:
        """The id that it has given itself; empty if it does not say. May raise `ParallaxError`."""


def refuse_same_cluster(clusters: Collection[Identified]) -> None:
    """Refuse clusters that are one Kafka under two names, as far as they answer.

    What is published for a group in one would replace what the group has committed in the other.

    Raises:
        ConfigError: two are one; the message names them (SAME_CLUSTER).
    """
    names: dict[str, ClusterName] = {}
    with ThreadPoolExecutor(max(1, len(clusters)), "sync-ids") as threads:
        for cluster, cluster_id in zip(clusters, threads.map(_id_of, clusters), strict=True):
            other = names.setdefault(cluster_id, cluster.cluster) if cluster_id else cluster.cluster
            if other != cluster.cluster:
                raise ConfigError(
                    f"SAME_CLUSTER: {other} and {cluster.cluster} are one Kafka cluster, of the id {cluster_id}: what is "
                    "published in one would replace what groups commit in the other. Give each bootstrap_servers of its own"
                )


def _id_of(cluster: Identified) -> str:
    try:
        return cluster.cluster_id()
    except ParallaxError:  # each cycle says that it is away
        return ""


class ClusterWatch:
    """One cluster, read by a thread of its own.

    A read that fails, or of which no part comes for ``timeout_ms``, marks the cluster as away. From then on a cycle only
    looks whether the read that goes on in the background has succeeded. However long a read of many groups takes, it is
    waited for as long as parts of it come; but after ``timeout_ms`` of asking for commits no further groups are asked for:
    the cycle goes on with those that were, and the others rest.
    """

    def __init__(self, writer: ClusterWriter, timeout_ms: int, now_ms: Callable[[], int]) -> None:
        self.writer = writer
        self._now_ms = now_ms
        self._timeout_s = timeout_ms / 1_000
        self._thread = ThreadPoolExecutor(1, f"sync-{writer.cluster}")
        self._askers = ThreadPoolExecutor(_ASKED_AT_ONCE, f"sync-{writer.cluster}-groups")
        self._reading: Future[ClusterSnapshot] | None = None
        self._heard_at_s = -math.inf  # when the last part came; threads write it, each a later moment
        self._away = False
        self._told_refused: set[GroupName] = set()  # of groups that are known now
        self._partitions: dict[GroupName, int] = {}

    @property
    def cluster(self) -> ClusterName:
        """The cluster's name."""
        return self.writer.cluster

    @property
    def away(self) -> bool:
        """Whether the cluster did not answer the last time."""
        return self._away

    def begin(
        self,
        wanted: Callable[[GroupName], bool],
        known: Sequence[GroupName],
        resting: frozenset[GroupName] = frozenset(),
    ) -> None:
        """Start to read, unless an earlier read goes on.

        Args:
            wanted: which of the cluster's groups are of interest.
            known: groups to ask for even if the cluster does not list them, in this order; others come after them.
            resting: groups that are not to be read.
        """
        if self._reading is None:
            self._note_heard()
            self._reading = self._thread.submit(self._read, wanted, known, resting, self._now_ms())

    def result(self) -> ClusterSnapshot | None:
        """What was read; None if the cluster is away."""
        reading = self._reading
        if reading is None:
            return None
        if not self._is_read(reading):
            self._say_away("it does not answer in time")
            return None
        try:
            snapshot = reading.result()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next cycle reads anew
            self._reading = None
            self._say_away(str(error) if isinstance(error, ParallaxError) else repr(error))
            return None
        self._reading = None
        if self._away:
            _log.info("cluster_back", cluster=self.cluster)
            self._away = False
        return snapshot

    def close(self) -> None:
        """Read no more; a read under way ends by its own time-out."""
        for pool in (self._thread, self._askers):
            pool.shutdown(wait=False, cancel_futures=True)

    def _is_read(self, reading: Future[ClusterSnapshot]) -> bool:
        """Whether the read has ended; waits for it while parts come, unless the cluster is away."""
        while not reading.done():
            left_s = 0.0 if self._away else self._heard_at_s + self._timeout_s - time.monotonic()
            if left_s <= 0:
                return False
            wait([reading], timeout=left_s)
        return True

    def _note_heard(self) -> None:
        self._heard_at_s = time.monotonic()

    def _say_away(self, problem: str) -> None:
        if not self._away:
            _log.warning("cluster_away", cluster=self.cluster, problem=problem)
        self._away = True

    def _read(
        self,
        wanted: Callable[[GroupName], bool],
        known: Sequence[GroupName],
        resting: frozenset[GroupName],
        at_ms: int,
    ) -> ClusterSnapshot:
        topics = self.writer.topics()
        self._note_heard()
        listed = [
            state for state in self.writer.groups(wanted, resting=resting) if state.group not in resting
        ]
        self._note_heard()
        refused = frozenset(state.group for state in listed if state.refused)
        states = {state.group: state for state in listed if not state.refused}
        asked = [group for group in known if group not in refused and group not in resting]
        groups = [*asked, *sorted(states.keys() - set(asked))]
        self._told_refused.intersection_update(resting.union(groups))
        found: dict[GroupName, Commits | ConfigError] = {}
        in_time = Deadline.after_ms(self._timeout_s * 1_000)
        for answer in self._askers.map(
            lambda part: {} if in_time.passed else self._commits(part), in_parts(groups, self._partitions)
        ):
            found |= answer
        commits = {group: it for group, it in found.items() if not isinstance(it, ConfigError)}
        self._partitions.update((group, len(offsets)) for group, offsets in commits.items())
        if len(self._partitions) > 2 * (len(groups) + len(resting)):
            self._partitions = {group: len(offsets) for group, offsets in commits.items()}
        self._tell_refused({group: it for group, it in found.items() if isinstance(it, ConfigError)})
        return ClusterSnapshot(
            {name: info.topic_id for name, info in topics.items()},
            commits,
            with_members=frozenset(
                group for group in commits if group in states and states[group].members > 0
            ),
            assigned={group: states[group].assigned for group in commits if group in states},
            read_at_ms=at_ms,
            refused=refused.union(found.keys() - commits.keys()),
            resting=resting.union(groups) - found.keys(),
            partitions={name: info.partitions for name, info in topics.items()},
        )

    def _commits(self, groups: Collection[GroupName]) -> Mapping[GroupName, Commits | ConfigError]:
        found = self.writer.committed_each(groups)
        self._note_heard()
        return found

    def _tell_refused(self, refused: Mapping[GroupName, ConfigError]) -> None:
        for group, error in refused.items():
            if group not in self._told_refused:
                self._told_refused.add(group)
                _log.warning("commits_refused", cluster=self.cluster, group=group, problem=str(error))


def in_parts(groups: Iterable[GroupName], partitions: Mapping[GroupName, int]) -> list[list[GroupName]]:
    """Groups to ask for together, in order; one that is large by itself is asked for alone.

    Args:
        groups: the groups.
        partitions: on how many each has commits, as far as that is known.
    """
    parts: list[list[GroupName]] = []
    room = 0
    for group in groups:
        size = 1 + partitions.get(group, _PARTITIONS_UNKNOWN)
        if size > room:
            parts.append([])
            room = _PARTITIONS_AT_ONCE
        parts[-1].append(group)
        room -= size
    return parts


def to_remember(
    group: GroupName,
    cluster: ClusterName,
    commits: Commits,
    before: Commits,
    topic_ids: Mapping[TopicName, TopicId],
    stored: Iterable[ObservedCommit],
    read_at_ms: int,
) -> list[ObservedCommit]:
    """The commits as observations, but for those that tell less than a member has just reported.

    A member is done with records before it commits them, and says so every second: its report is what lets the
    group go on exactly there once the cluster is gone. A commit that has gone back is a rewind, and counts.

    Args:
        group: the group.
        cluster: where the commits were read.
        commits: as read now.
        before: as read a cycle ago.
        topic_ids: the topics of that cluster.
        stored: what is remembered already.
        read_at_ms: when the reading began: a report that came during it is newer.
    """
    reports = {item.topic_partition: item for item in stored if item.counts_at(read_at_ms)}
    found = []
    for item, commit in commits.items():
        topic_id = topic_ids.get(item.topic)
        if topic_id is None:
            continue
        report, earlier = reports.get(item), before.get(item)
        rewound = earlier is not None and commit.next_offset < earlier.next_offset
        same_topic = report is not None and report.topic_id == topic_id
        ahead = report is not None and report.next_offset > commit.next_offset
        if rewound or not (same_topic and ahead):
            found.append(
                ObservedCommit(
                    group, cluster, item, topic_id, commit.next_offset, commit.leader_epoch, read_at_ms
                )
            )
    return found
