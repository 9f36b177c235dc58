"""What the sync job tells the store: how each group is to it, for which something can't be published and why, and that it is at work.

A group is told of when something about it changes, and again every `REFRESH_S`; between, the time of the job's last good cycle says that
it still holds.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import structlog

from parallax.domain.ids import GroupName
from parallax.domain.outcome import Outcome, gravest
from parallax.domain.sync_status import MOST_TROUBLES, GroupSyncStatus, SyncCycle, SyncTrouble
from parallax.errors import ParallaxError
from parallax.ports.status import StatusStore
from syncjob.decide import Decision, Reason
from syncjob.idle import Kept
from syncjob.report import CycleReport

_log = structlog.get_logger(__name__)

TELL_EVERY_S = 5.0
REFRESH_S = 300.0
MOST_AT_ONCE = 500
"""Groups that are told of at a time: a job that begins has to tell of all, and may take some rounds for it."""

REMEDIES: Mapping[Reason, str] = {
    Reason.REWIND_REFUSED: "the group was set back, and sync.on_rewind says not to follow: set it back at the target "
    "too, or leave it",
    Reason.ACTIVE_AT_TARGET: "somebody consumes or commits there: stop that consumer, or record where the group "
    "belongs (parallax primary GROUP --set REGION)",
    Reason.DUAL_ACTIVE: "the group makes progress in several clusters: stop all but one, then decide "
    "(parallax primary GROUP --set REGION)",
    Reason.ACTIVE_ELSEWHERE: "the group consumes another cluster than its recorded primary: move it "
    "(parallax failover), or record where it is (parallax primary GROUP --set REGION)",
    Reason.UNDECIDED: "an offset service did not answer: look at the services and the store (parallax doctor)",
    Reason.TARGET_AWAY: "the cluster does not answer: look at its brokers; it is tried again every cycle",
    Reason.NO_TOPIC: "the target has no such topic or partition: look at the replication of the topic "
    "(parallax partitions ROUTE)",
    Reason.NO_ANSWER: "the offset service gave no answer for the partition: parallax explain GROUP TOPIC PARTITION",
    Reason.UNREADABLE_ROW: "run the release that wrote the row, or see docs/formats.md",
    Reason.WRITE_FAILED: "the target did not confirm the write; it is tried again every cycle",
}
"""What to do about each reason for which something that should be published is not."""

FAILED = "failed"
"""The reason of a group about which nothing could be decided."""

_FAILED_REMEDY = (
    "nothing could be decided for the group; it is tried again every cycle: the problem says what is missing"
)


def statuses_of(report: CycleReport, now_ms: int) -> dict[GroupName, GroupSyncStatus]:
    """Every group about which a cycle has decided, as it is told of."""
    decisions: dict[GroupName, list[Decision]] = defaultdict(list)
    for decision in report.decided:
        decisions[decision.group].append(decision)
    return {
        group: _status(group, decisions.get(group, ()), report.failures.get(group, ""), now_ms)
        for group in {*decisions, *report.failures}
    }


def _status(group: GroupName, decisions: Iterable[Decision], problem: str, now_ms: int) -> GroupSyncStatus:
    made = list(decisions)
    troubles = [_trouble(item) for item in made if item.reason in REMEDIES]
    troubles.sort(key=lambda item: -item.outcome.value)
    if problem:
        troubles.insert(0, SyncTrouble(None, None, FAILED, Outcome.OK, problem, _FAILED_REMEDY))
    return GroupSyncStatus(
        group=group,
        outcome=gravest(item.outcome for item in made),
        since_ms=now_ms,
        told_at_ms=now_ms,
        reasons=dict(sorted(Counter(item.reason.value for item in made).items())),
        active_at=tuple(sorted({item.origin for item in made if item.origin is not None})),
        partitions=len(made),
        problem=problem,
        troubles=tuple(troubles[:MOST_TROUBLES]),
        count_troubles=len(troubles),
    )


def _trouble(decision: Decision) -> SyncTrouble:
    return SyncTrouble(
        decision.topic_partition,
        decision.target,
        decision.reason.value,
        decision.outcome,
        decision.problem,
        REMEDIES[decision.reason],
    )


class SyncTeller:
    """Tells the store of a job's cycles. A store that does not answer is told the next time.

    Args:
        store: where it is told.
        owner: the job's process.
        now_ms: the store's clock.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        store: StatusStore,
        owner: str,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._owner = owner
        self._now_ms = now_ms
        self._clock = clock
        self._next_s = -math.inf
        self._told: dict[GroupName, tuple[float, GroupSyncStatus]] = {}
        self._standing: dict[GroupName, tuple[Kept, GroupSyncStatus]] = {}
        self._away = False

    def tell(self, report: CycleReport | None, problem: str = "") -> None:
        """Tell of a cycle, if it is time.

        Args:
            report: what it did; None: it failed.
            problem: why it failed.
        """
        if self._clock() < self._next_s:
            return
        self._next_s = self._clock() + TELL_EVERY_S
        try:
            self._tell(report, problem)
            self._away = False
        except ParallaxError as error:
            if not self._away:
                _log.warning("status_not_told", problem=f"[{error.code}] {error}")
            self._away = True

    def _tell(self, report: CycleReport | None, problem: str) -> None:
        now_ms = self._now_ms()
        if report is None:
            self._store.save_cycle(SyncCycle(self._owner, now_ms, problem=problem))
            return
        found = statuses_of(report, now_ms) | self._of_standing(report, now_ms)
        self._tell_groups(found)
        gone = self._told.keys() - found.keys() - report.waiting
        if gone:
            self._store.forget_groups(gone)
            for group in gone:
                del self._told[group]
        waiting = [self._told[group][1] for group in report.waiting & self._told.keys()]
        troubled = sum(bool(item.count_troubles) for item in (*found.values(), *waiting))
        groups = len(found.keys() | report.waiting)
        self._store.save_cycle(
            SyncCycle(self._owner, now_ms, groups=groups, troubled=troubled, away=report.away)
        )

    def _of_standing(self, report: CycleReport, now_ms: int) -> dict[GroupName, GroupSyncStatus]:
        """Groups about which nothing was decided anew: what was made of the very same decisions before is made no more."""
        before, self._standing = self._standing, {}
        for group, kept in report.standing.items():
            known = before.get(group)
            if known is None or known[0].decisions is not kept.decisions:
                known = kept, _status(group, kept.decisions, "", now_ms)
            self._standing[group] = known
        return {group: status for group, (_, status) in self._standing.items()}

    def _tell_groups(self, found: Mapping[GroupName, GroupSyncStatus]) -> None:
        now_s, due, solved = self._clock(), [], []
        never = (-math.inf, None)
        # Those first that were told of longest ago: others may change all the time.
        for group in sorted(found, key=lambda group: self._told.get(group, never)[0]):
            status = found[group]
            told_at_s, told = self._told.get(group, never)
            same = told is not None and _same(told, status)
            if same and now_s - told_at_s < REFRESH_S:
                continue
            due.append(replace(status, since_ms=told.since_ms) if told is not None and same else status)
            if told is not None and told.count_troubles and not status.count_troubles:
                solved.append(group)
            if len(due) >= MOST_AT_ONCE:
                break
        if due:
            self._store.save_groups(due, solved=solved)
            self._told.update((item.group, (now_s, item)) for item in due)


def _same(told: GroupSyncStatus, now: GroupSyncStatus) -> bool:
    """Whether nothing is new but how many offsets were published just now."""
    return (
        told is now
        or replace(now, since_ms=told.since_ms, told_at_ms=told.told_at_ms, reasons=told.reasons) == told
    )
