"""Puts a group back to the snapshot of its last move, as long as nobody has consumed since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from parallax.domain.commits import Commits
from parallax.domain.formats import readable
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.ownership import is_resume_offset
from parallax.domain.primary import Assignment, Mode
from parallax.errors import (
    ClusterUnavailableError,
    NotFoundError,
    RefusedError,
)
from parallax.failover.facts import Move, MoveKind
from parallax.failover.journal import MoveRecord, Step, mark_of, own_reason, reason_of
from parallax.failover.outside import Outside
from parallax.failover.put_back import CommitsNow, has_gone_back, report_left


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What going back would do.

    Attributes:
        restore: commits to put back, by cluster.
        kept: commits that the move made at its target where there had been none: they can't be taken back, and
            hold a safe offset.
        obstacles: what forbids it, one sentence each with what to do.
        fencing_number: that holds; the rollback is off if somebody decides before it begins.
    """

    record: MoveRecord
    restore: dict[ClusterName, Commits]
    kept: tuple[TopicPartition, ...]
    obstacles: tuple[str, ...]
    fencing_number: int

    @property
    def move(self) -> Move:
        """The move that is undone."""
        return self.record.move


def plan_rollback(outside: Outside, group: GroupName, *, disaster: bool = False) -> RollbackPlan:
    """What a rollback of the group's last move would do.

    Args:
        outside: services, clusters, store.
        group: the group.
        disaster: other regions of the store are gone: decide without them.

    Raises:
        NotFoundError: no move of the group is recorded.
        UnreadableRowError: what is stored of the group can't be read by this release.
        UnavailableError: store or services do not answer.
    """
    record = outside.journal.newest(group)
    if record is None:
        raise NotFoundError(
            f"group {group!r} was never moved by `parallax failover`: there is nothing to roll back"
        )
    record = replace(
        record, move=replace(record.move, kind=MoveKind.DISASTER if disaster else MoveKind.PLANNED)
    )
    for topic in _topics(record):  # it will have to be replaced
        readable(outside.groups.progress(group, topic).values())
    now = _commits_now(outside, record.move)
    assignment = outside.services.assignment(group)
    before = record.snapshot.commits.get(record.move.target, {})
    return RollbackPlan(
        record,
        _to_restore(outside, record, now),
        kept=tuple(sorted(record.written.keys() - before.keys())),
        obstacles=tuple(_obstacles(outside, record, assignment, now)),
        fencing_number=0 if assignment is None else assignment.decision.fencing_number,
    )


def _commits_now(outside: Outside, move: Move) -> CommitsNow:
    return {cluster: outside.clusters.commits(move.group, cluster) for cluster in (move.origin, move.target)}


def _to_restore(outside: Outside, record: MoveRecord, now: CommitsNow) -> dict[ClusterName, Commits]:
    """Commits of the snapshot that do not stand any more, of clusters that answer.

    At the origin only what others than the group have changed: what it has committed itself since, as it was stopped
    or because it never was, is how far it has come.
    """
    restore: dict[ClusterName, Commits] = {}
    for cluster, before in record.snapshot.commits.items():
        present = now.get(cluster)
        if present is None:
            continue
        own = _own_commits(outside, record, present) if cluster == record.move.origin else set()
        differing = {
            item: commit for item, commit in before.items() if item not in own and present.get(item) != commit
        }
        if differing:
            restore[cluster] = differing
    return restore


def _own_commits(outside: Outside, record: MoveRecord, at_origin: Commits) -> set[TopicPartition]:
    """Partitions whose commit at the origin is the group's own: all but what the sync job has published there since."""
    move = record.move
    published = {
        item.topic_partition: item.progress.resume_offset
        for item in readable(outside.groups.published(move.group, move.origin))
        if item.published_at_ms >= record.started_at_ms
    }
    return {
        item
        for item, commit in at_origin.items()
        if published.get(item) != commit.next_offset and not is_resume_offset(commit)
    }


def _obstacles(
    outside: Outside, record: MoveRecord, assignment: Assignment | None, now: CommitsNow
) -> Iterable[str]:
    move, group = record.move, record.move.group
    if record.step in {Step.ABANDONED, Step.ROLLED_BACK}:
        yield f"the last move of group {group} was {record.step.value.replace('_', ' ')}: there is nothing to undo"
        return
    if assignment is not None and assignment.decision.mode is Mode.ACTIVE_ACTIVE:
        yield (
            f"group {group} is active/active: a move changes only who publishes its results; "
            "`parallax failback` gives that back"
        )
        return
    if not _is_own(record, assignment):
        number = 0 if assignment is None else assignment.decision.fencing_number
        yield (
            f"group {group} has fencing number {number}, its last move left {max(_numbers(record))}: somebody has "
            "decided about it since; move it with `parallax failover`"
        )
    for cluster in (move.origin, move.target):
        if now[cluster] is None:
            yield f"{cluster} does not answer: the group can't be put back as it was"
    present = now[move.target]
    if present is not None and (gone_on := _gone_on(record, present)):
        yield (
            f"group {group} has committed in {move.target} since ({', '.join(map(str, gone_on[:5]))}): "
            "to go back without losing that, use `parallax failback`"
        )
    members = outside.clusters.members(group, move.target)
    if members:
        yield f"group {group} has {members} member(s) in {move.target}: stop them first"


def _is_own(record: MoveRecord, assignment: Assignment | None) -> bool:
    """Whether what holds for the group is of this move, or of its rollback, or from before them."""
    number = 0 if assignment is None else assignment.decision.fencing_number
    known = {record.fencing_number} if record.step is Step.DONE else _numbers(record)
    if number in known or assignment is None:
        return number in known
    decision, move = assignment.decision, record.move
    if decision.reason.startswith(_reason_of(record)):
        return True
    under_way = (decision.moving_from, decision.cluster) == (move.origin, move.target)
    return record.step is not Step.DONE and (
        under_way or decision.reason.startswith(reason_of(record.operation_id))
    )


def _numbers(record: MoveRecord) -> set[int]:
    """By which an unfinished move may know the group: before its fence that of the snapshot holds."""
    return {record.fencing_number, record.snapshot.fencing_number}


def roll_back(outside: Outside, plan: RollbackPlan) -> MoveRecord:
    """Put the snapshot back; the record then.

    Raises:
        RefusedError: an obstacle is in the way, or the group has committed at the last moment.
        FencedError: the group has members where commits are to be put back: run it again once they have left; or
            somebody else has decided about the group since the plan.
        UnavailableError: something did not answer; run it again.
    """
    if plan.obstacles:
        raise RefusedError("; ".join(plan.obstacles))
    move = plan.move
    with outside.auditor.act(
        outside.operator,
        "rollback",
        move.group,
        before={"cluster": move.target, "fencing_number": str(plan.fencing_number)},
        after={"cluster": move.origin, "primary": plan.record.snapshot.primary or ""},
        reason=f"undoes the move {plan.record.operation_id}",
    ) as act:
        record = _put_back(outside, plan)
        act.after = {"fencing_number": str(record.fencing_number)}
    return record


def _put_back(outside: Outside, plan: RollbackPlan) -> MoveRecord:
    record, move = plan.record, plan.move
    back = move.reversed(record.snapshot.primary)
    reason = own_reason(_reason_of(record))
    fence = plan.fencing_number
    if record.step is Step.DONE:
        fence = outside.services.fence(back, reason, fence).decision.fencing_number
    elif record.fenced:
        # Whoever carries the move out may still be at it: once the record has this number it writes nothing any more.
        fence = outside.services.fence(move, reason, fence).decision.fencing_number
        record = outside.journal.keep(replace(record, fencing_number=fence))
    # Consumers at the target, and the sync job at both clusters, were at work until now.
    now = _commits_now(outside, move)
    present = now[move.target]
    if present is None:
        raise ClusterUnavailableError(f"{move.target} stopped answering; run the rollback again")
    if _gone_on(record, present):
        number = outside.services.settle(move, f"{reason} given up", fence)
        outside.journal.keep(replace(record, step=Step.DONE, fencing_number=number))
        raise RefusedError(
            f"group {move.group} has just committed in {move.target}: it stays there; use `parallax failback`"
        )
    restore = _to_restore(outside, record, now)
    for cluster, commits in restore.items():
        outside.clusters.writer(cluster).commit_for(move.group, commits)
    _restore_progress(outside, record, now, restore)
    number = outside.services.settle(back, reason, fence)
    return outside.journal.keep(replace(record, step=Step.ROLLED_BACK, fencing_number=number))


def _restore_progress(
    outside: Outside, record: MoveRecord, now: CommitsNow, restore: Mapping[ClusterName, Commits]
) -> None:
    """Remember what the group's moves had left before the snapshot, and nothing that came after.

    Not where the group itself has gone back since: by its own commit, that it has consumed all that is not known any more.

    Raises:
        ParallaxError: as `OffsetServices.report_progress` says; what was left is void then, which is safe.
    """
    group, progress = record.move.group, record.snapshot.progress
    for topic in _topics(record):
        outside.groups.void_progress(group, topic, list(outside.groups.progress(group, topic)))
        before = {
            item: left
            for item, left in progress.items()
            if item.topic == topic
            and not has_gone_back(record, now, item, left.cluster, restore.get(left.cluster, {}))
        }
        report_left(outside, group, before)


def _topics(record: MoveRecord) -> list[TopicName]:
    return sorted({item.topic for item in (*record.written, *record.snapshot.progress)})


def _reason_of(record: MoveRecord) -> str:
    """How the reason of a rollback's decisions begins, by which an interrupted one is known again."""
    return f"rollback {record.operation_id}"


def _gone_on(record: MoveRecord, present: Commits) -> list[TopicPartition]:
    """Partitions with another commit at the target than the move's, or than the one that a rollback has put back."""
    before = record.snapshot.commits.get(record.move.target, {})
    return sorted(
        item
        for item, mark in record.written.items()
        if not ((commit := present.get(item)) is not None and mark_of(commit) == mark)
        and not (item in before and before[item].is_same(commit))
    )
