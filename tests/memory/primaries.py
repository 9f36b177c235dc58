"""`PrimaryStore` in memory."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from parallax.domain.ids import GroupName
from parallax.domain.primary import NO_NUMBER, PrimaryDecision
from parallax.ports.decisions import PrimaryLog, Reach


class MemoryPrimaryStore:
    """What one region sees of decisions. Safe to use from several threads.

    Another region that can't be seen is another store; `absorb` is what happens when they see each other again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decisions: dict[GroupName, dict[int, PrimaryDecision]] = {}
        self._latest: dict[GroupName, int] = {}

    def assigned_groups(self) -> Sequence[GroupName]:
        """Every group with a decision, sorted."""
        with self._lock:
            return sorted(self._decisions)

    def decisions(self, groups: Collection[GroupName]) -> Mapping[GroupName, Sequence[PrimaryDecision]]:
        """The decisions of each group, the newest first; groups without any are left out."""
        with self._lock:
            return {group: self._newest_first(group) for group in groups if group in self._decisions}

    def read_log(self, group: GroupName, reach: Reach) -> PrimaryLog:
        """The group's decisions."""
        del reach  # one process agrees with itself
        with self._lock:
            return PrimaryLog(self._newest_first(group), self._latest.get(group, NO_NUMBER))

    def append(self, decision: PrimaryDecision, *, after: int, reach: Reach) -> bool:
        """Append unless somebody has appended since ``after`` was read; whether it was appended."""
        del reach
        with self._lock:
            if self._latest.get(decision.group, NO_NUMBER) != after:
                return False
            self._decisions.setdefault(decision.group, {})[decision.fencing_number] = decision
            self._latest[decision.group] = decision.fencing_number
            return True

    def absorb(self, other: MemoryPrimaryStore) -> None:
        """See all that the other store has seen; of two latest numbers either may stay, as in the real store."""
        for group in other.assigned_groups():
            log = other.read_log(group, Reach.HERE)
            with self._lock:
                stored = self._decisions.setdefault(group, {})
                stored.update({item.fencing_number: item for item in log.decisions})
                self._latest[group] = log.latest

    def _newest_first(self, group: GroupName) -> tuple[PrimaryDecision, ...]:
        stored = self._decisions.get(group, {})
        return tuple(stored[number] for number in sorted(stored, reverse=True))
