"""What a cycle of the sync job did, and what it says of every group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from parallax.domain.ids import ClusterName, GroupName
from parallax.domain.latencies import NO_LATENCIES, Latencies
from syncjob.decide import UNPUBLISHABLE, Decision, Reason
from syncjob.idle import Kept
from syncjob.latency import CheckpointLatency
from syncjob.status import FAILED_GROUPS

UNPUBLISHABLE_WORDS = frozenset(reason.value for reason in UNPUBLISHABLE)
"""Of the reasons for which something that should be published is not."""


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What a cycle did.

    Attributes:
        decisions: about every group but those that wait, those that stand still included.
        failures: by group, why nothing could be decided.
        away: clusters that did not answer.
        empty: groups without a commit, a member or a report in any cluster, all of which answered.
        unconfirmed: commits that have gone back, or are gone, and are not believed yet to be.
        export_problem: why checkpoints for MirrorMaker 2's clients could not be written; empty: they could.
        latencies: since the syncer began: from a commit that was seen at a group's origin to its offset that stands elsewhere.
        slowest: which took longest, of the newest of each group and cluster.
        standing: groups about which nothing was decided anew, and what was decided before.
        made: the decisions of this cycle, about all other groups; None: all.
        waiting: groups that could not be read or looked at in this cycle; nothing is said of them.
        waiting_unpublished: for how many of them something could not be published when they were last looked at, by reason.
    """

    decisions: tuple[Decision, ...]
    failures: Mapping[GroupName, str] = field(default_factory=dict)
    away: tuple[ClusterName, ...] = ()
    moves: int = 0
    rewinds: int = 0
    empty: tuple[GroupName, ...] = ()
    unconfirmed: int = 0
    export_problem: str = ""
    latencies: Latencies = NO_LATENCIES
    slowest: tuple[CheckpointLatency, ...] = ()
    standing: Mapping[GroupName, Kept] = field(default_factory=dict)
    made: tuple[Decision, ...] | None = None
    waiting: frozenset[GroupName] = frozenset()
    waiting_unpublished: Mapping[str, int] = field(default_factory=dict)

    @property
    def decided(self) -> tuple[Decision, ...]:
        """The decisions of this cycle."""
        return self.decisions if self.made is None else self.made

    @property
    def counts(self) -> dict[str, int]:
        """How many decisions there were of each reason, and what else happened, by name."""
        counted = Counter(decision.reason.value for decision in self.decided)
        for kept in self.standing.values():
            counted.update(kept.reasons)
        return {**counted, "moves": self.moves, "rewinds": self.rewinds, FAILED_GROUPS: len(self.failures)}

    @property
    def unpublished(self) -> dict[str, int]:
        """How many groups have something that can't be published, by reason; `FAILED_GROUPS`: nothing was decided."""
        held = {(item.group, item.reason) for item in self.decided if item.reason in UNPUBLISHABLE}
        counted = Counter(reason.value for _, reason in held)
        counted.update(self.waiting_unpublished)
        for kept in self.standing.values():
            counted.update(kept.reasons.keys() & UNPUBLISHABLE_WORDS)
        return {**counted, FAILED_GROUPS: counted[FAILED_GROUPS] + len(self.failures)}

    @property
    def unreadable(self) -> list[str]:
        """What is stored and can't be read, each row once."""
        # Nothing stands of which something can't be read.
        rows = (decision.problem for decision in self.decided if decision.reason is Reason.UNREADABLE_ROW)
        return list(dict.fromkeys(rows))
