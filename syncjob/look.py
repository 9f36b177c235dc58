"""A look at one group, from what was read of it to what was written for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parallax.client.answer import Pair
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.progress import Progress
from parallax.errors import ParallaxError
from syncjob.clusters import ClusterSnapshot
from syncjob.decide import Decision
from syncjob.facts import GroupFacts, Place
from syncjob.idle import Sight


@dataclass(slots=True)
class Look:
    """A look at one group, and what comes of it.

    Attributes:
        snapshots: the clusters as they are to the group.
        facts: what is known of it, once that is read.
        wanted: what has to be asked of the offset service, topics by origin and target.
        has_moved: it has gone on, or was decided anew, since it was last read, or what follows from that is still missing.
        holds: the decisions hold as long as the group stands still.
        whole: the clusters on which nothing else is remembered of the group than what was seen now.
        doubtful: where a commit is not yet believed to be gone, or to have gone back.
        set_back: where it has just been set back.
        is_void: what was remembered of the group has just been made void.
        problem: why nothing could be decided; empty: it could.
    """

    group: GroupName
    snapshots: Mapping[ClusterName, ClusterSnapshot | None]
    sight: Sight
    began_ms: int
    has_moved: bool = False
    facts: GroupFacts | None = None
    decisions: list[Decision] = field(default_factory=list)
    holds: bool = False
    whole: frozenset[ClusterName] = frozenset()
    moves: int = 0
    rewinds: int = 0
    is_empty: bool = False
    doubtful: frozenset[Place] = frozenset()
    is_void: bool = False
    set_back: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    wanted: Mapping[Pair, Sequence[TopicName]] = field(default_factory=dict)
    problem: str = ""

    def fail(self, error: ParallaxError) -> None:
        """Nothing came of it."""
        self.decisions, self.holds, self.is_empty, self.problem = [], False, False, said(error)
        self.moves = self.rewinds = 0
        self.doubtful = frozenset()

    def take(self, cluster: ClusterName, done: Sequence[Decision]) -> None:
        """What became of the decisions that write to a cluster."""
        if self.problem:
            return
        others = [item for item in self.decisions if item.commit is None or item.target != cluster]
        self.decisions = sorted([*others, *done], key=lambda item: (item.topic_partition, item.target))


def said(error: ParallaxError) -> str:
    """An error in a line."""
    return f"[{error.code}] {error}"
