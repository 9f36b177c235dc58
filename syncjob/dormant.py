"""Groups without a commit anywhere: nobody asks about them, and after some days they are forgotten.

A group that is deleted, or whose offsets expire, leaves its name behind, and perhaps where it was primary. Kafka lists
every group that has a commit or a member: as long as no cluster lists it there is nothing to be done for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog

from parallax.domain.ids import GroupName
from parallax.domain.primary import Mode, PrimaryDecision, Stage, assignment_of
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import InvariantError, ParallaxError
from parallax.ports.audit import Auditor
from parallax.ports.groups import GroupStore, PrimaryStore

_log = structlog.get_logger(__name__)

_FORGOTTEN_AT_ONCE = 50
"""In one cycle: each is some writes to the store."""

SYNC_JOB = Principal("parallax sync", ProvenBy.NOTHING)
"""Whose act it is when decisions are forgotten: nobody's, by the configuration."""


class DormantGroups:
    """Groups that were found without a commit, a member or a report, while every cluster answered.

    Args:
        store: where groups are remembered, and since when they are dormant.
        primaries: where they are primary.
        forget_after_ms: how long they are remembered.
        auditor: keeps that decisions were forgotten.
    """

    def __init__(
        self,
        store: GroupStore,
        primaries: PrimaryStore,
        *,
        forget_after_ms: int,
        auditor: Auditor,
    ) -> None:
        self._auditor = auditor
        self._store = store
        self._primaries = primaries
        self._forget_after_ms = forget_after_ms
        self._asleep: set[GroupName] = set()
        self._since_ms: dict[GroupName, int] | None = None

    @property
    def names(self) -> frozenset[GroupName]:
        """Those that are dormant."""
        return frozenset(self._asleep)

    def note(self, empty: Collection[GroupName], alive: Collection[GroupName], now_ms: int) -> None:
        """Remember what a cycle has found.

        Args:
            empty: groups without anything.
            alive: groups with a commit, or a member, in some cluster.
            now_ms: the wall clock.

        Raises:
            StoreUnavailableError: not all of it is remembered; the next cycle tells it again.
        """
        if self._since_ms is None:
            self._since_ms = dict(self._store.empty_since())
        self._asleep.difference_update(alive)
        for group in self._since_ms.keys() & set(alive):
            self._store.note_alive(group)
            del self._since_ms[group]
        found = set(empty).difference(alive)  # which may have commits on topics that are not chosen
        for group in found:
            if group not in self._since_ms:
                self._store.note_empty(group, now_ms)
                self._since_ms[group] = now_ms
            self._asleep.add(group)

    def forget_all_but(self, known: Collection[GroupName]) -> None:
        """Drop from memory what the store has forgotten, here or elsewhere."""
        self._asleep.intersection_update(known)

    def forget_old(self, now_ms: int) -> Sequence[GroupName]:
        """Forget groups that have been dormant for long enough; which. To be called while every cluster answers."""
        since_ms = self._since_ms or {}
        due = [
            group
            for group in sorted(self._asleep & since_ms.keys())
            if now_ms - since_ms[group] >= self._forget_after_ms
        ]
        return [group for group in due[:_FORGOTTEN_AT_ONCE] if self._forget(group, now_ms)]

    def _forget(self, group: GroupName, now_ms: int) -> bool:
        try:
            decisions = self._primaries.decisions([group]).get(group, ())
            if isinstance(decisions, InvariantError):
                return False  # what can't be read may say that it is needed
            if decisions and _is_over(decisions, now_ms - self._forget_after_ms):
                self._forget_decisions(group, decisions)
            self._store.forget(group, at_ms=now_ms)
        except ParallaxError as error:
            _log.warning("group_not_forgotten", group=group, problem=f"[{error.code}] {error}")
            return False
        self._asleep.discard(group)
        if self._since_ms is not None:
            self._since_ms.pop(group, None)
        _log.info("group_forgotten", group=group)
        return True

    def _forget_decisions(self, group: GroupName, decisions: Sequence[PrimaryDecision]) -> None:
        newest = max(decisions, key=lambda item: item.fencing_number)
        with self._auditor.act(
            SYNC_JOB,
            "forget",
            group,
            before={"primary": newest.primary, "fencing_number": str(newest.fencing_number)},
            after={},
            reason="no commit anywhere for groups.forget_after_days",
        ) as act:
            if not self._primaries.forget(group, decisions):
                act.problem = "somebody decided at the same moment"


def _is_over(decisions: Sequence[PrimaryDecision], before_ms: int) -> bool:
    """Whether a primary was of the life that has ended: nobody has decided since, and nothing is under way.

    An active/active group may publish by its fencing number without ever committing.
    """
    assignment = assignment_of(decisions)
    if assignment is None or assignment.dual_active:
        return False
    decision = assignment.decision
    passive = decision.mode is Mode.ACTIVE_PASSIVE and decision.stage is Stage.SETTLED
    return passive and decision.decided_at_ms <= before_ms
