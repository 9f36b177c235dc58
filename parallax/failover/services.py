"""What a move asks of the offset services: answers, decisions about primaries, and to remember what it leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog

from parallax.client.answer import ResumeAnswer, answers_from_pb
from parallax.client.client import at_cluster
from parallax.client.messages import progress_to_pb
from parallax.client.primary_messages import primary_from_pb
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.domain.primary import Assignment, Change, Stage
from parallax.domain.progress import Progress
from parallax.errors import InvalidNameError, InvariantError
from parallax.failover.facts import Move, MoveKind
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2

_log = structlog.get_logger(__name__)

Positions = Mapping[TopicPartition, TargetOffset]


class MoveClient(Protocol):
    """What moves ask of an offset service: an `OffsetClient`, or a service that asks itself."""

    def get_group_failover_offsets(
        self,
        group: str,
        *,
        to: pb.Place,
        origin: pb.Place | None = None,
        positions: Iterable[pb.PartitionPosition] = (),
        topics: Iterable[str] = (),
        by_timestamp: pb.TimestampPolicy | None = None,
    ) -> pb.GetGroupFailoverOffsetsResponse:
        """Where every partition of a group resumes."""

    def get_primary(self, group: str) -> primaries_pb2.Primary:
        """Where a group is primary."""

    def list_primaries(self) -> primaries_pb2.ListPrimariesResponse:
        """Every group with a decision."""

    def set_primary(self, change: Change, *, actor: str = "") -> primaries_pb2.Primary:
        """Decide where a group is primary."""

    def report_positions(
        self, group: str, *, at: pb.Place, moves: Iterable[pb.PartitionMove] = ()
    ) -> pb.ReportPositionsResponse:
        """Remember what moves leave."""


@dataclass
class OffsetServices:
    """The offset services; every method raises `ParallaxError` as the `OffsetClient`'s call does.

    Attributes:
        client: asks them.
        by_timestamp: the operator's choice where no row proves anything; None: the log start.
        actor: whose decisions these are, for services that ask nobody who calls; empty: anybody's.
    """

    client: MoveClient
    by_timestamp: pb.TimestampPolicy | None = None
    actor: str = ""

    def answers(
        self, move: Move, reported: Positions | None = None, topics: Collection[TopicName] = ()
    ) -> tuple[ResumeAnswer, ...]:
        """Where the group goes on at the move's target.

        Args:
            move: the move.
            reported: positions that outweigh what the group has committed.
            topics: to be answered even if the group has committed nothing on them.
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
        answers = answers_from_pb(ask(positions=own))
        missing = sorted(set(topics).difference(item.topic for item in answers))
        if missing:
            answers |= answers_from_pb(ask(topics=missing))
        return tuple(answers[item] for item in sorted(answers))

    # --- primaries -----------------------------------------------------------------------------------------

    def assignment(self, group: GroupName) -> Assignment | None:
        """Where the group is recorded as primary."""
        return primary_from_pb(self.client.get_primary(group))

    def assignments(self) -> dict[GroupName, Assignment | None]:
        """Of every group with a decision; None: it can't be read, by the service or here."""
        return {GroupName(item.group): _readable(item) for item in self.client.list_primaries().primaries}

    def fence(self, move: Move, reason: str, expected_number: int) -> Assignment:
        """Record that the group moves: nobody consumes, nobody else publishes. What holds then.

        If it moves already, its number is a new one: of those who carry the move out, the last to fence goes on alone.

        Raises:
            FencedError: another number than the expected one holds.
        """
        arrival = _arrival(move, reason, expected_number)
        return self._decide(replace(arrival, stage=Stage.MOVING, moving_from=move.origin, renew=True))

    def settle(self, move: Move, reason: str, expected_number: int) -> int:
        """Record that the group has arrived; the fencing number that holds then.

        Raises:
            FencedError: another number than the expected one holds.
        """
        return self._decide(_arrival(move, reason, expected_number)).decision.fencing_number

    def publish_from(self, move: Move, reason: str, expected_number: int) -> int:
        """Record that an active/active group publishes from the move's region; the fencing number that holds then.

        Raises:
            FencedError: another number than the expected one holds.
        """
        arrival = _arrival(move, reason, expected_number)
        return self._decide(replace(arrival, cluster=None)).decision.fencing_number

    def _decide(self, change: Change) -> Assignment:
        assignment = primary_from_pb(self.client.set_primary(change, actor=self.actor))
        if assignment is None:
            raise InvariantError(f"group {change.group}: the service decided and tells of no decision")
        return assignment

    # --- progress ------------------------------------------------------------------------------------------

    def report_progress(self, group: GroupName, progress: Mapping[TopicPartition, Progress]) -> None:
        """Remember what moves left: what the next move starts from."""
        by_place: dict[tuple[ClusterName, TopicName], list[pb.PartitionMove]] = {}
        for item, left in sorted(progress.items()):
            by_place.setdefault((left.cluster, item.topic), []).append(
                pb.PartitionMove(
                    topic=item.topic,
                    partition=item.partition,
                    target_topic_id=left.topic_id,
                    resume_offset=left.resume_offset,
                    progress=progress_to_pb(left.positions),
                )
            )
        for (cluster, _topic), moves in by_place.items():
            self.client.report_positions(group, at=at_cluster(cluster), moves=moves)


def _readable(item: primaries_pb2.Primary) -> Assignment | None:
    try:
        return primary_from_pb(item)
    except (InvalidNameError, InvariantError) as error:
        _log.warning("primary_unreadable", group=item.group, problem=f"[{error.code}] {error}")
        return None


def _arrival(move: Move, reason: str, expected_number: int) -> Change:
    return Change(
        move.group,
        move.region,
        cluster=move.target,
        expected_number=expected_number,
        disaster=move.kind is MoveKind.DISASTER,
        reason=reason,
    )
