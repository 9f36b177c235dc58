"""The doors to what is remembered of groups: their positions, where they are primary, and what operators did with them.

The rules of `parallax.ports.clusters` hold here too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from parallax.domain.commits import ObservedCommit, PublishedOffset
from parallax.domain.formats import UnreadableRow
from parallax.domain.ids import ClusterName, GroupName, TopicName
from parallax.domain.primary import PrimaryDecision
from parallax.domain.progress import Progress
from parallax.errors import InvariantError

# --- positions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamePage:
    """Which names are wanted, in the order of their code points.

    Attributes:
        limit: so many at most.
        prefix: names that begin so.
        after: names behind this one; empty: from the first on.
    """

    limit: int
    prefix: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """What is remembered of a group's positions.

    Attributes:
        observed: by cluster, the group's commits as last seen there.
        published: by cluster, what was last published for it there.
        progress: by topic and partition, what its last move left, with the moment of the move.
    """

    observed: Mapping[ClusterName, Sequence[ObservedCommit | UnreadableRow]]
    published: Mapping[ClusterName, Sequence[PublishedOffset | UnreadableRow]]
    progress: Mapping[TopicName, Mapping[int, Progress | UnreadableRow]]


class GroupStore(Protocol):
    """What groups committed, what was published for them, and their progress.

    In the place of a row that this release can't read stands an `UnreadableRow`.
    """

    def groups(self) -> Sequence[GroupName]:
        """Every group that any table knows."""

    def group_page(self, page: NamePage) -> Sequence[GroupName]:
        """The next of them."""

    def knows(self, group: GroupName) -> bool:
        """Whether it is one of them."""

    def stored(
        self, groups: Collection[GroupName], clusters: Collection[ClusterName]
    ) -> Mapping[GroupName, StoredGroup]:
        """`observed` and `published` of these clusters, and `progress` of every topic, of each of the groups."""

    def progress(self, group: GroupName, topic: TopicName) -> Mapping[int, Progress | UnreadableRow]:
        """What the group's last move left, by partition, with the moment of the move."""

    def save_progress(
        self,
        group: GroupName,
        topic: TopicName,
        progress: Mapping[int, Progress],
        *,
        moved_at_ms: int,
        stored: Mapping[int, Progress | UnreadableRow] | None = None,
    ) -> None:
        """Replace it: once per move. An older ``moved_at_ms`` than the stored one is ignored.

        Args:
            group: whose.
            topic: of which.
            progress: by partition.
            moved_at_ms: when.
            stored: what `progress` gave a moment ago; None: it is read.

        Raises:
            UnreadableRowError: what is stored of one of them can't be read and stands; the others were saved.
        """

    def void_progress(self, group: GroupName, topic: TopicName, partitions: Collection[int]) -> None:
        """Forget it: a move was rolled back. Only a later move counts again.

        Raises:
            UnreadableRowError: what is stored of one of them can't be read and stands; the others were forgotten.
        """

    def observed(self, group: GroupName, cluster: ClusterName) -> Sequence[ObservedCommit | UnreadableRow]:
        """The group's commits as last seen on the cluster."""

    def save_observed(self, commits: Sequence[ObservedCommit]) -> None:
        """Remember commits; an older ``observed_at_ms`` than the stored one is ignored."""

    def note_standing(self, cluster: ClusterName, groups: Collection[GroupName], at_ms: int) -> None:
        """Remember that what was seen of these groups' commits on the cluster stood there at the moment.

        `observed` then tells of that moment where it is the later one; members' reports keep the time of their own.
        """

    def reported(self, cluster: ClusterName, groups: Collection[GroupName]) -> Mapping[GroupName, int]:
        """When a member last reported of each of the groups on the cluster, milliseconds since the Unix epoch.

        Those of which none did, or not for long, are left out.
        """

    def void_observed(self, commits: Collection[ObservedCommit]) -> None:
        """Forget what was seen: it stands there no more. What was seen later than any of these is kept."""

    def published(self, group: GroupName, cluster: ClusterName) -> Sequence[PublishedOffset | UnreadableRow]:
        """What was last published for the group on the cluster."""

    def save_published(self, offsets: Sequence[PublishedOffset]) -> None:
        """Remember what was published; an older ``published_at_ms`` than the stored one is ignored."""

    def void_published(self, offsets: Collection[PublishedOffset]) -> None:
        """Forget what was published: it stands there no more. What was published later than any of these is kept."""

    def empty_since(self) -> Mapping[GroupName, int]:
        """Groups that were noted to have no commit anywhere, and when that was first seen, milliseconds since the epoch."""

    def note_empty(self, group: GroupName, since_ms: int) -> None:
        """Remember that a group has no commit anywhere."""

    def note_alive(self, group: GroupName) -> None:
        """Remember that it has."""

    def forget(self, group: GroupName, *, at_ms: int) -> None:
        """Forget all that is known of a group but decisions and operations; what is said of a later moment is kept."""


# --- primaries -------------------------------------------------------------------------------------------------


class Reach(Enum):
    """Whose agreement a decision about a primary needs."""

    EVERYWHERE = "everywhere"
    """A majority over all regions: planned changes."""
    HERE = "here"
    """A majority of the region that decides: disasters, when others are gone."""


@dataclass(frozen=True, slots=True)
class PrimaryLog:
    """A group's decisions as read in order to append one.

    Attributes:
        decisions: all but those that have long been superseded (`parallax.domain.primary.outlived`).
        latest: what `PrimaryStore.append` compares: the number that the last append left; 0 before the first.
    """

    decisions: tuple[PrimaryDecision, ...]
    latest: int


class PrimaryStore(Protocol):
    """Decisions about primaries: appended one at a time, never changed."""

    def assigned_groups(self) -> Sequence[GroupName]:
        """Every group with a decision, sorted."""

    def assigned_page(self, page: NamePage) -> Sequence[GroupName]:
        """The next of them."""

    def decisions(
        self, groups: Collection[GroupName]
    ) -> Mapping[GroupName, Sequence[PrimaryDecision] | InvariantError]:
        """The decisions of each group as this region sees them; groups without any are left out.

        In the place of decisions that can't be read stands why.
        """

    def read_log(self, group: GroupName, reach: Reach) -> PrimaryLog:
        """The group's decisions, agreed on as far as ``reach`` says.

        Raises:
            StoreUnavailableError: too few regions answer for that reach.
            UnreadableRowError: a decision can't be read; no other one may follow until it is.
        """

    def append(self, decision: PrimaryDecision, *, log: PrimaryLog, reach: Reach) -> bool:
        """Append unless somebody has appended since `read_log` gave ``log``; whether it was appended.

        Raises:
            StoreUnavailableError: it is not known whether it was appended; read the log again.
        """

    def forget(self, group: GroupName, decisions: Collection[PrimaryDecision]) -> bool:
        """Forget a group's decisions if they are all that there are; whether they were.

        The number of the last append stays, so that the next decision's number is greater.

        Raises:
            StoreUnavailableError: it is not known whether all are forgotten; forgetting them again does no harm.
            InvariantError: a decision can't be read.
        """


# --- operations ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperationNote:
    """What an operator's command has done to a group so far: enough to go on after an interruption.

    Attributes:
        version: grows with every note of the operation.
        body: JSON, whose meaning is the operation's own.
        summary: what lists of the operations of all groups show of it, likewise; empty: they don't show it.
    """

    group: GroupName
    started_at_ms: int
    operation_id: str
    version: int
    body: str
    summary: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class OperationPlace:
    """Where an operation stands in a list, which has the newest first, and those of one millisecond by their ids."""

    started_at_ms: int
    operation_id: str = ""


class OperationJournal(Protocol):
    """Operators' commands, kept for going on, going back and for the record."""

    def operations(self, group: GroupName) -> Sequence[OperationNote]:
        """The newest note of each of the group's newest operations, the newest operation first."""

    def operation_page(
        self, group: GroupName, after: OperationPlace, limit: int, *, summarised: bool
    ) -> Sequence[OperationNote]:
        """The next of a group's operations behind a place, so many at most.

        Args:
            group: whose.
            after: the place.
            limit: so many at most.
            summarised: with their summaries, and without their bodies, which are large; one that was kept without a
                summary has its body all the same. Else with bodies, and without summaries.
        """

    def summaries(self, after: OperationPlace, limit: int) -> Sequence[OperationNote]:
        """The next operations of all groups behind a place that were kept with a summary, so many at most, without bodies."""

    def save_operation(self, note: OperationNote) -> None:
        """Keep a note; one with a smaller version than the stored one is ignored."""
