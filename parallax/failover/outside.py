"""What a move asks of the outside, each question in one place: services, clusters, store."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from parallax.client.client import OffsetClient, at_cluster
from parallax.client.primary_messages import primary_from_pb
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.domain.primary import Assignment, Change
from parallax.domain.progress import Progress
from parallax.domain.resume import LogRange
from parallax.errors import (
    ClusterUnavailableError,
    ConfigError,
    InvariantError,
    ParallaxError,
    UnknownRegionError,
)
from parallax.failover.facts import Kind, Move, MoveFacts, PartitionFacts, facts_from_pb
from parallax.failover.journal import Commits, MoveRecord, Snapshot, Step, note_of, record_of, without_skips
from parallax.failover.plan import StoppedError
from parallax.ports.clusters import ClusterWriter, GroupState, TopicInfo
from parallax.ports.decisions import OperationJournal
from parallax.ports.groups import GroupStore
from parallax.v1 import offsets_pb2 as pb

_SHARED_S = 0.5
"""So old may an answer be that groups moving side by side share."""

_AWAY_S = 5.0
"""A cluster that did not answer is not asked again for so long: a dead one costs a time-out per question."""

T = TypeVar("T")
Positions = Mapping[TopicPartition, TargetOffset]


class _Turns:
    """One question to a cluster at a time; whoever has waited for one that failed shares its failure."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: tuple[float, str] | None = None

    @contextmanager
    def one(self) -> Iterator[float]:
        """A turn, with the time at which it begins.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time, now or a moment ago.
        """
        with self._lock:
            now_s = self._clock()
            if self._failed is not None and now_s - self._failed[0] < _SHARED_S:
                raise ClusterUnavailableError(self._failed[1])
            try:
                yield now_s
            except ClusterUnavailableError as error:
                self._failed = (self._clock(), str(error))
                raise


class Membership:
    """A cluster's groups, listed at most twice a second."""

    def __init__(self, writer: ClusterWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._writer = writer
        self._turns = _Turns(clock)
        self._listed: tuple[float, Mapping[GroupName, GroupState]] | None = None

    def of(self, group: GroupName) -> GroupState | None:
        """The group; None if the cluster does not list it.

        Raises:
            ConfigError: this client may not see the group.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._turns.one() as now_s:
            if self._listed is None or now_s - self._listed[0] >= _SHARED_S:
                self._listed = (now_s, {state.group: state for state in self._writer.groups()})
            found = self._listed[1].get(group)
        if found is not None and found.refused:
            raise ConfigError(found.refused)
        return found


class Places:
    """A cluster's topics and log ranges, asked about at most twice a second."""

    def __init__(self, writer: ClusterWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._writer = writer
        self._turns = _Turns(clock)
        self._topics: tuple[float, Mapping[TopicName, TopicInfo]] | None = None
        self._ranges: dict[TopicPartition, tuple[float, LogRange | None]] = {}

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        """The cluster's topics.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._turns.one() as now_s:
            if self._topics is None or now_s - self._topics[0] >= _SHARED_S:
                self._topics = (now_s, self._writer.topics())
            return self._topics[1]

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """The log ranges of those of the partitions that are there and have a leader.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """
        with self._turns.one() as now_s:
            old = [item for item in partitions if not self._is_young(item, now_s)]
            if old:
                found = self._writer.log_ranges(old)
                self._ranges.update({item: (now_s, found.get(item)) for item in old})
            known = {item: self._ranges[item][1] for item in partitions}
            return {item: log for item, log in known.items() if log is not None}

    def _is_young(self, item: TopicPartition, now_s: float) -> bool:
        return item in self._ranges and now_s - self._ranges[item][0] < _SHARED_S


def wall_clock_ms() -> int:
    """Milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


@dataclass
class Outside:
    """Everything that a move touches.

    Attributes:
        client: asks the offset services.
        writers: every aggregate cluster.
        groups: what is remembered of groups.
        journal: keeps what moves have done.
        now_ms: the wall clock.
        wait: waits so many seconds.
        clock: a monotonic clock, in seconds.
        stop: set to end moves before their next step.
        by_timestamp: the operator's choice where no row proves anything; None: the log start.
    """

    client: OffsetClient
    writers: Mapping[ClusterName, ClusterWriter]
    groups: GroupStore
    journal: OperationJournal
    now_ms: Callable[[], int] = wall_clock_ms
    wait: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    stop: threading.Event = field(default_factory=threading.Event)
    by_timestamp: pb.TimestampPolicy | None = None
    _members: dict[ClusterName, Membership] = field(default_factory=dict)
    _places: dict[ClusterName, Places] = field(default_factory=dict)
    _away: dict[ClusterName, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._members = {name: Membership(writer, self.clock) for name, writer in self.writers.items()}
        self._places = {name: Places(writer, self.clock) for name, writer in self.writers.items()}

    def go_on(self) -> None:
        """Between two steps.

        Raises:
            StoppedError: the command is to end here.
        """
        if self.stop.is_set():
            raise StoppedError

    def pause(self, seconds: float) -> None:
        """Wait within a step that may be given up at any time.

        Raises:
            StoppedError: as `go_on` says.
        """
        self.go_on()
        self.wait(seconds)
        self.go_on()

    def writer(self, cluster: ClusterName) -> ClusterWriter:
        """The cluster's writer.

        Raises:
            UnknownRegionError: there is no such aggregate cluster.
        """
        if cluster not in self.writers:
            raise UnknownRegionError(
                f"unknown aggregate cluster {cluster!r}; known: {', '.join(sorted(self.writers)) or 'none'}"
            )
        return self.writers[cluster]

    def places(self, cluster: ClusterName) -> Places:
        """The cluster's topics and log ranges, for moves that look at them side by side."""
        return self._places[cluster]

    def members(self, group: GroupName, cluster: ClusterName) -> int | None:
        """How many members the group has there; None if the cluster does not answer."""

        def count(_writer: ClusterWriter) -> int:
            found = self._members[cluster].of(group)
            return 0 if found is None else found.members

        return self._ask(cluster, count)

    def dismiss_own(self, group: GroupName, cluster: ClusterName) -> None:
        """Take FailoverConsumers with ids of their own making out of a group; nothing if the cluster does not answer."""

        def dismiss(writer: ClusterWriter) -> None:
            if (found := self._members[cluster].of(group)) is not None:
                writer.dismiss(group, found.own_instances)

        self._ask(cluster, dismiss)

    def assigned(self, group: GroupName, cluster: ClusterName) -> frozenset[TopicName]:
        """The topics of which the group's members there have partitions; none if the cluster does not answer."""
        found = self._ask(cluster, lambda _: self._members[cluster].of(group))
        return frozenset() if found is None else found.assigned

    def commits(self, group: GroupName, cluster: ClusterName) -> Commits | None:
        """The group's commits there; None if the cluster does not answer."""
        return self._ask(cluster, lambda writer: dict(writer.committed(group)))

    def unsettled(self, group: GroupName, cluster: ClusterName) -> frozenset[TopicPartition] | None:
        """Partitions on which an open transaction of the group may commit; None if the cluster does not answer."""
        return self._ask(cluster, lambda writer: writer.unsettled(group))

    def _ask(self, cluster: ClusterName, question: Callable[[ClusterWriter], T]) -> T | None:
        """The cluster's answer; None if it does not answer, or did not a moment ago."""
        writer = self.writer(cluster)
        away_until_s = self._away.get(cluster)
        if away_until_s is not None:
            if self.clock() < away_until_s:
                return None
            self._away[cluster] = self.clock() + _AWAY_S  # one asks whether it is back, for everybody
        try:
            found = question(writer)
        except ClusterUnavailableError:
            self._away[cluster] = self.clock() + _AWAY_S
            return None
        self._away.pop(cluster, None)
        return found

    def assignment(self, group: GroupName) -> Assignment | None:
        """Where the group is recorded as primary."""
        return primary_from_pb(self.client.get_primary(group))

    def offsets(
        self, move: Move, reported: Positions | None = None, topics: Collection[TopicName] = ()
    ) -> tuple[PartitionFacts, ...]:
        """The services' answers for a move.

        Args:
            move: the move.
            reported: positions that outweigh what the group has committed.
            topics: to be answered even if the group has committed nothing on them.

        Raises:
            ParallaxError: as `OffsetClient.get_group_failover_offsets` says.
        """
        ask = partial(
            self.client.get_group_failover_offsets,
            move.group,
            origin=at_cluster(move.origin),
            to=at_cluster(move.target),
            by_timestamp=self.by_timestamp,
        )
        own = [
            pb.PartitionPosition(topic=item.topic, partition=item.partition, next_offset=next_offset)
            for item, next_offset in (reported or {}).items()
        ]
        offsets = list(ask(positions=own).offsets)
        untold = sorted(set(topics).difference(item.topic for item in offsets))
        if untold:
            offsets += ask(topics=untold).offsets
        return facts_from_pb(offsets)

    def reported_since(self, move: Move, at_ms: int) -> Positions:
        """How far consumers have reported to be since a moment, where that is beyond what they have committed.

        A cluster that does not answer tells of no commits; the services then go by reports themselves.
        """
        commits = self.commits(move.group, move.origin)
        if commits is None:
            return {}
        found = {}
        for item in self.groups.observed(move.group, move.origin):
            commit = commits.get(item.topic_partition)
            beyond = commit is None or item.next_offset > commit.next_offset
            if item.observed_at_ms >= at_ms and beyond:
                found[item.topic_partition] = item.next_offset
        return found

    def facts(
        self,
        move: Move,
        reported: Positions | None = None,
        topics: Collection[TopicName] = (),
        known: tuple[PartitionFacts, ...] = (),
        decided: Assignment | None = None,
    ) -> MoveFacts:
        """All that a plan of the move is made of; an answer that is missing is said, not raised.

        Args:
            move: the move.
            reported: as in `offsets`.
            topics: what was assigned to members at the origin before they left.
            known: the services' answers if they still hold; they are asked if a topic is not among them.
            decided: where the group is primary, if that was decided a moment ago.

        Raises:
            UnavailableError: the services can't say where the group is primary.
        """
        partitions, now_ms = known, self.now_ms()
        assignment, problem = decided, ""
        assigned = self.assigned(move.group, move.origin).union(topics)
        told = {item.topic_partition.topic for item in known}
        try:
            if not known or not assigned <= told:
                partitions = self.offsets(move, reported, assigned)
        except ParallaxError as error:
            partitions = ()
            problem = f"[{error.code}] {error}"
        try:
            assignment = assignment or self.assignment(move.group)
        except InvariantError as error:
            problem = f"[{error.code}] {error}"
        return MoveFacts(
            move=move,
            partitions=partitions,
            assignment=assignment,
            members=None if move.kind is Kind.DISASTER else self.members(move.group, move.origin),
            members_at_target=self.members(move.group, move.target),
            assigned=assigned,
            problem=problem,
            now_ms=now_ms,
        )

    def decide(self, change: Change) -> Assignment:
        """Have the services decide where a group is primary; what holds then.

        Raises:
            ParallaxError: as `OffsetClient.set_primary` says.
        """
        found = primary_from_pb(self.client.set_primary(change))
        if found is None:
            raise InvariantError(f"group {change.group}: the service decided and tells of no decision")
        return found

    def snapshot(self, move: Move, assignment: Assignment | None) -> Snapshot:
        """The group as it is now, as far as clusters answer."""
        commits = {
            cluster: found
            for cluster in (move.origin, move.target)
            if (found := self.commits(move.group, cluster)) is not None
        }
        if move.target in commits:
            commits[move.target] = {
                item: without_skips(commit) for item, commit in commits[move.target].items()
            }
        topics = sorted(self._topics(move, commits))
        progress: dict[TopicPartition, Progress] = {
            TopicPartition(topic, partition): stored
            for topic in topics
            for partition, stored in self.groups.progress(move.group, topic).items()
        }
        return Snapshot(
            commits,
            progress,
            0 if assignment is None else assignment.decision.fencing_number,
            None if assignment is None else assignment.decision.primary,
        )

    def _topics(self, move: Move, commits: Mapping[ClusterName, Commits]) -> set[TopicName]:
        """The group's topics: those of a cluster that does not answer are remembered."""
        remembered = (
            item.topic_partition.topic
            for cluster in (move.origin, move.target)
            if cluster not in commits
            for item in self.groups.observed(move.group, cluster)
        )
        return {item.topic for found in commits.values() for item in found} | set(remembered)

    def begin(
        self,
        move: Move,
        snapshot: Snapshot,
        newest: MoveRecord | None,
        assigned: frozenset[TopicName] = frozenset(),
    ) -> MoveRecord:
        """A new operation after the group's ``newest`` one, kept before anything is changed."""
        # Records are sorted by this, and not every operator's clock is right.
        now_ms = self.now_ms() if newest is None else max(self.now_ms(), newest.started_at_ms + 1)
        name = uuid.uuid4().hex
        return self.keep(MoveRecord(move, name, now_ms, now_ms * 1_000, Step.BEGUN, snapshot, assigned))

    def keep(self, record: MoveRecord) -> MoveRecord:
        """Keep how far a move is; returns it with its new version."""
        newer = replace(record, version=max(record.version + 1, self.now_ms() * 1_000))
        self.journal.save_operation(note_of(newer))
        return newer

    def records(self, group: GroupName) -> Sequence[MoveRecord]:
        """The group's moves, the newest first."""
        return [record_of(note) for note in self.journal.operations(group)]
