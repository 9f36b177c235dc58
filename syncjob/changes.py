"""The log of what the sync job decides: what has changed since the cycle before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import structlog

from parallax.domain.ids import ClusterName, GroupName, TopicPartition
from parallax.domain.outcome import Outcome
from syncjob.decide import Decision, Reason
from syncjob.report import CycleReport

_log = structlog.get_logger(__name__)

_OFFSETS_LOGGED = 10
"""In one line, whose count of partitions says whether there are more."""


class ChangesLog:
    """Remembers what it has told of each group."""

    def __init__(self) -> None:
        self._told: dict[GroupName, dict[tuple[TopicPartition, ClusterName], Reason]] = {}

    def forget_all_but(self, groups: Collection[GroupName]) -> None:
        """Keep what is of these groups alone."""
        self._told = {group: told for group, told in self._told.items() if group in groups}

    def tell(self, report: CycleReport) -> None:
        """Log decisions whose reason is another than in the cycle before, those of a group that are alike in one line."""
        changed: defaultdict[tuple[object, ...], list[Decision]] = defaultdict(list)
        for item in report.decided:
            key = (item.topic_partition, item.target)
            told = self._told.setdefault(item.group, {})
            if told.get(key) is not item.reason:
                told[key] = item.reason
                alike = (item.group, item.origin, item.target, item.reason, item.outcome, item.problem)
                changed[alike].append(item)
        for items in changed.values():
            first = items[0]
            asks_for_somebody = first.outcome is Outcome.DUAL_ACTIVE or first.reason is Reason.UNREADABLE_ROW
            said = {"problem": first.problem} if first.problem else {}
            (_log.warning if asks_for_somebody else _log.info)(
                "decision",
                group=first.group,
                partitions=len(items),
                offsets={str(item.topic_partition): item.offset for item in items[:_OFFSETS_LOGGED]},
                origin=first.origin,
                to=first.target,
                reason=first.reason.value,
                outcome=first.outcome.name,
                **said,
            )
        for group, problem in report.failures.items():
            _log.warning("group_failed", group=group, problem=problem)
