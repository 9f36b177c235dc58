"""Everything that a move touches, by what it is for, and what is gathered from several of them at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from parallax.client.answer import ResumeAnswer
from parallax.domain.commits import Commits, next_offset_of, went_back
from parallax.domain.formats import apart, readable
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.primary import Assignment
from parallax.domain.progress import Progress
from parallax.domain.rights import Principal
from parallax.errors import ConfigError, InvariantError, ParallaxError
from parallax.failover.clusters import AggregateClusters
from parallax.failover.facts import Move, MoveFacts, MoveKind
from parallax.failover.journal import MoveJournal, Snapshot, without_skips
from parallax.failover.services import OffsetServices, Positions
from parallax.failover.timekeeper import Timekeeper
from parallax.ports.audit import Auditor
from parallax.ports.groups import GroupStore


@contextmanager
def _noting(refused: list[str]) -> Iterator[None]:
    """Goes on where a cluster does not let this client see the group; why is added to ``refused``."""
    try:
        yield
    except ConfigError as error:
        refused.append(f"[{error.code}] {error}")


@dataclass
class Outside:
    """Everything that a move touches.

    Attributes:
        services: answer, decide, and remember what moves leave.
        clusters: where groups consume.
        groups: what is remembered of groups.
        journal: keeps what moves have done.
        time: of this command.
        auditor: keeps what the command does.
        operator: whose command it is.
    """

    services: OffsetServices
    clusters: AggregateClusters
    groups: GroupStore
    journal: MoveJournal
    time: Timekeeper
    auditor: Auditor
    operator: Principal

    def facts(
        self,
        move: Move,
        reported: Positions | None = None,
        topics: Collection[TopicName] = (),
        known: tuple[ResumeAnswer, ...] = (),
        decided: Assignment | None = None,
    ) -> MoveFacts:
        """All that a plan of the move is made of; an answer that is missing is said, not raised.

        Args:
            move: the move.
            reported: as in `OffsetServices.answers`.
            topics: what was assigned to members at the origin before they left.
            known: the services' answers if they still hold; they are asked if a topic is not among them.
            decided: where the group is primary, if that was decided a moment ago.

        Raises:
            UnavailableError: the services can't say where the group is primary.
        """
        partitions, now_ms = known, self.time.now_ms()
        assignment, problem = decided, ""
        refused: list[str] = []
        with _noting(refused):
            topics = self.clusters.assigned(move.group, move.origin).union(topics)
        assigned = frozenset(topics)
        answered = {item.topic_partition.topic for item in known}
        try:
            if not known or not assigned <= answered:
                partitions = self.services.answers(move, reported, assigned)
        except ParallaxError as error:
            partitions = ()
            problem = f"[{error.code}] {error}"
        try:
            assignment = assignment or self.services.assignment(move.group)
        except InvariantError as error:
            problem = f"[{error.code}] {error}"
        members: int | None = 0
        at_target: int | None = 0
        with _noting(refused):
            planned = move.kind is MoveKind.PLANNED
            members = self.clusters.members(move.group, move.origin) if planned else None
            at_target = self.clusters.members(move.group, move.target)
        return MoveFacts(
            move=move,
            partitions=partitions,
            assignment=assignment,
            members=members,
            members_at_target=at_target,
            assigned=assigned,
            problem="; ".join(dict.fromkeys([problem, *refused] if problem else refused)),
            now_ms=now_ms,
        )

    def snapshot(self, move: Move, assignment: Assignment | None) -> Snapshot:
        """The group as it is now, as far as clusters answer.

        Raises:
            UnreadableRowError: what its last moves left can't be read: a move would have to replace it.
        """
        commits, topics = {}, set()
        for cluster in (move.origin, move.target):
            present = self.clusters.commits(move.group, cluster)
            if present is None:  # which topics it consumes there is remembered
                topics |= {item.topic_partition.topic for item in self.groups.observed(move.group, cluster)}
            else:
                topics |= {item.topic for item in present}
                commits[cluster] = present
        if move.target in commits:
            commits[move.target] = {
                item: without_skips(commit) for item, commit in commits[move.target].items()
            }
        stored = {
            TopicPartition(topic, partition): left
            for topic in sorted(topics)
            for partition, left in self.groups.progress(move.group, topic).items()
        }
        moved = dict(zip(stored, readable(stored.values()), strict=True))
        void = set[TopicPartition]().union(
            *(self.went_back(move.group, cluster, present, moved) for cluster, present in commits.items())
        )
        progress = {item: left for item, left in moved.items() if item not in void}
        return Snapshot(
            commits,
            progress,
            0 if assignment is None else assignment.decision.fencing_number,
            None if assignment is None else assignment.decision.primary,
        )

    def went_back(
        self,
        group: GroupName,
        cluster: ClusterName,
        present: Commits,
        moved: Mapping[TopicPartition, Progress],
    ) -> set[TopicPartition]:
        """Where the group's commit has gone back since the move to the cluster, and nobody has noted it yet."""
        there = {item: left for item, left in moved.items() if left.cluster == cluster}
        if not there:  # what was seen there decides nothing
            return set()
        seen = {item.topic_partition: item for item in apart(self.groups.observed(group, cluster))[0]}
        return {
            item
            for item, left in there.items()
            if went_back(next_offset_of(present, item), seen.get(item), left)
        }

    def reported_since(self, move: Move, at_ms: int) -> Positions:
        """How far consumers have reported to be since a moment, where that is beyond what they have committed.

        A cluster that does not answer tells of no commits; the services then go by reports themselves.
        """
        commits = self.clusters.commits(move.group, move.origin)
        if commits is None:
            return {}
        positions = {}
        # A report that can't be read makes the answer earlier.
        for item in apart(self.groups.observed(move.group, move.origin))[0]:
            commit = commits.get(item.topic_partition)
            beyond = commit is None or item.next_offset > commit.next_offset
            if item.reported and item.observed_at_ms >= at_ms and beyond:
                positions[item.topic_partition] = item.next_offset
        return positions
