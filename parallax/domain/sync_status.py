"""How the sync job is, and every group to it: plain values that are kept for other processes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parallax.domain.ids import ClusterName, GroupName, TopicPartition
from parallax.domain.outcome import Outcome

MOST_TROUBLES = 20
"""Of a group that are kept; all are counted."""


@dataclass(frozen=True, slots=True)
class SyncTrouble:
    """Why nothing can be published somewhere.

    Attributes:
        topic_partition: None: it concerns the whole group.
        cluster: the passive cluster; None: it concerns every one.
        reason: `syncjob.decide.Reason`, as a word.
        problem: where more is known than the reason.
        remedy: what to do.
    """

    topic_partition: TopicPartition | None
    cluster: ClusterName | None
    reason: str
    outcome: Outcome
    problem: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class GroupSyncStatus:
    """A group, as the sync job saw it.

    Attributes:
        outcome: the gravest of its partitions and passive clusters.
        reasons: how many of them there are of each.
        active_at: the clusters where it is active.
        partitions: each counted once for each passive cluster.
        since_ms: since when it is so; ``told_at_ms``, when that was written (milliseconds since the Unix epoch).
        problem: why nothing could be decided; empty: it could.
        troubles: the gravest first, `MOST_TROUBLES` at most; ``count_troubles``, how many there are.
    """

    group: GroupName
    outcome: Outcome
    since_ms: int
    told_at_ms: int
    reasons: Mapping[str, int] = field(default_factory=dict)
    active_at: tuple[ClusterName, ...] = ()
    partitions: int = 0
    problem: str = ""
    troubles: tuple[SyncTrouble, ...] = ()
    count_troubles: int = 0


@dataclass(frozen=True, slots=True)
class UnreadableGroup:
    """Stands in the place of a group's status that can't be read; ``problem`` says why and what to do."""

    group: GroupName
    problem: str


@dataclass(frozen=True, slots=True)
class SyncCycle:
    """The sync job's last cycle.

    Attributes:
        owner: its kind, machine and process.
        ended_at_ms: milliseconds since the Unix epoch.
        groups: it has looked at; ``troubled``, for how many of them something can't be published.
        away: clusters that did not answer.
        problem: why it failed; empty: it was good.
    """

    owner: str
    ended_at_ms: int
    groups: int = 0
    troubled: int = 0
    away: tuple[ClusterName, ...] = ()
    problem: str = ""
