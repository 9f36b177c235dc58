"""What a move waits for between its fence and its final offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat

from parallax.client.answer import ResumeAnswer
from parallax.domain.commits import Commits
from parallax.domain.ids import TopicName, TopicPartition
from parallax.failover.clusters import AggregateClusters
from parallax.failover.facts import Move
from parallax.failover.services import OffsetServices
from parallax.failover.timekeeper import Timekeeper

POLL_S = 0.25
"""The longest pause between two looks."""

_FIRST_PAUSES_S = (0.02, 0.04, 0.08, 0.16)
"""What is nearly there costs no whole pause."""

_STILL_S = 0.2
"""Commits that are the same over so long stand still."""

_NAMED = 5
"""So many partitions are named in a sentence."""

Tell = Callable[[str], None]
"""Called with a few words at each step."""


class AbandonedError(Exception):
    """The move can't go on, and nothing has come of it yet."""


@dataclass
class Waiting:
    """Waits for the two sides of one move.

    Attributes:
        time: of the command.
        clusters: where the group is to leave, and to arrive.
        services: tell what has arrived.
        move: the move.
        tell: hears what is waited for.
    """

    time: Timekeeper
    clusters: AggregateClusters
    services: OffsetServices
    move: Move
    tell: Tell = lambda _words: None

    def for_reports(self, until_s: float) -> None:
        """Let FailoverConsumers hear of the fence and report what they have delivered.

        Args:
            until_s: until when, on the command's clock.
        """
        remaining_s = until_s - self.time.clock()
        if remaining_s > 0:
            self.tell("waiting for consumers to report")
            self.time.pause(remaining_s)

    def for_remnants_to_leave(self, listed: int, within_ms: float) -> None:
        """Wait until the target lists no member any more; before the fence, so that nobody stands still meanwhile.

        Former places of FailoverConsumers are given up for them: by the record they consume elsewhere, and whoever died
        with its cluster does not come back for its place. Other members may be at work, whatever the record says.

        Raises:
            AbandonedError: it took longer.
        """
        group, target = self.move.group, self.move.target
        deadline = self.time.deadline(within_ms)
        members: int | None = listed
        if listed:
            self.clusters.dismiss_own(group, target)
        while members:
            if deadline.passed:
                raise AbandonedError(
                    f"{target} still lists {members} member(s) of group {group}: if they are at work there, stop "
                    "them; else wait until their sessions have ended; then run the command again"
                )
            self.tell("waiting for former members to have left the target")
            self.time.pause(POLL_S)
            members = self.clusters.members(group, target)
        if members is None:
            raise AbandonedError(f"{target} stopped answering: run the command again")

    def for_members_to_leave(self, within_ms: float, seen: tuple[float, Commits | None]) -> Commits:
        """Wait until nobody consumes at the origin: no members, no open transaction, and commits that stand still.

        Args:
            within_ms: how long.
            seen: the group's commits there before, and when on the command's clock.

        Returns:
            The commits.

        Raises:
            AbandonedError: it took longer.
        """
        origin = self.move.origin
        deadline = self.time.deadline(within_ms)
        seen_at_s, before = seen
        while True:
            members = self.clusters.members(self.move.group, origin)
            # In this order: a transaction that ends between the two is seen by the latter.
            unsettled = None if members else self.clusters.unsettled(self.move.group, origin)
            commits = self.clusters.commits(self.move.group, origin)
            if commits is None or commits != before or unsettled:
                seen_at_s, before = self.time.clock(), commits
            elif members == 0 and unsettled is not None and self.time.clock() - seen_at_s >= _STILL_S:
                return commits
            if deadline.passed:
                raise AbandonedError(self.still_there(members, unsettled or ()))
            self.tell(
                "waiting for the group to leave" if members else "waiting for its commits to stand still"
            )
            still_s = self.time.clock() - seen_at_s
            # What stands still is looked at as soon as it has stood for long enough; members are listed twice a second at most.
            left_s = POLL_S if members or still_s >= _STILL_S else _STILL_S - still_s
            self.time.pause(max(left_s, _FIRST_PAUSES_S[0]))

    def still_there(self, members: int | None, unsettled: Collection[TopicPartition] = ()) -> str:
        """Who or what keeps the group from having left, and what to do about it."""
        group, origin = self.move.group, self.move.origin
        if members is None:
            return f"{origin} stopped answering; with --disaster the move goes by what was last seen of it"
        if members:
            return (
                f"group {group} still has {members} member(s) in {origin}: stop them and run the command again "
                "(a FailoverConsumer that follows the primary stops by itself)"
            )
        if unsettled:
            names = ", ".join(str(item) for item in sorted(unsettled)[:5])
            return (
                f"group {group} has commits in an open transaction in {origin} ({names}): run the command again "
                "when it has ended, or its transaction.timeout.ms is over"
            )
        return f"group {group} goes on committing in {origin} without members: stop its consumers"

    def for_all_to_arrive(
        self, commits: Commits, within_ms: float, topics: Collection[TopicName] = ()
    ) -> tuple[ResumeAnswer, ...]:
        """Wait until all that was consumed is at the target, and index and services know it.

        Args:
            commits: the group's at the origin.
            within_ms: how long.
            topics: to be answered even if the group has committed nothing on them.

        Returns:
            The answers that tell so.

        Raises:
            AbandonedError: it took longer.
        """
        deadline = self.time.deadline(within_ms)
        pauses_s = chain(_FIRST_PAUSES_S, repeat(POLL_S))
        while True:
            answers = self.services.answers(self.move, topics=topics)
            missing = list(_missing(self.move, answers, commits))
            if not missing:
                return answers
            if deadline.passed:
                more = f"; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
                raise AbandonedError(
                    f"{'; '.join(missing[:_NAMED])}{more}: look whether replication runs (parallax routes)"
                )
            self.tell("waiting for consumed records to arrive")
            self.time.pause(next(pauses_s))


def _missing(move: Move, answers: Iterable[ResumeAnswer], commits: Commits) -> Iterator[str]:
    """What the answers lack to be good for all that was consumed: a sentence for each partition."""
    answers = list(answers)
    late = set(behind(answers, commits))
    for item in answers:
        name = str(item.topic_partition)
        if name in late:
            yield f"{name}: the services do not know the newest commit in {move.origin} yet"
        elif not item.settled:
            yield f"{name}: {item.lacks}"


def behind(facts: Iterable[ResumeAnswer], commits: Commits) -> list[str]:
    """Partitions whose answers start from less than the group has committed: a service may answer from memory."""
    return [
        str(item.topic_partition)
        for item in facts
        if (commit := commits.get(item.topic_partition)) is not None
        and (item.origin_next_offset is None or item.origin_next_offset < commit.next_offset)
    ]
