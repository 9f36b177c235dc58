"""How long a commit has been seen to be gone, or to have gone back, before anything is forgotten for it.

A coordinator that was killed, and has just started, answers before it has loaded its log: Kafka 4.3.1 did so for two seconds
under load, without an error, with no commit or an old one. What is forgotten in such a moment does not come back: the group
would read again at its next move what it has consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from parallax.domain.ids import GroupName, TargetOffset
from syncjob.facts import GroupFacts, Place
from syncjob.rewinds import gone_back


@dataclass(frozen=True, slots=True)
class _Sign:
    since_s: float
    stood: TargetOffset


class Patience:
    """Which commits are not yet to be believed that they are gone, or have gone back.

    Believed is what every look has shown for so long; a look at which the cluster does not answer begins the wait anew, and
    so does a start of the process. No more is kept than the places where something has gone back at this moment. Groups may
    be looked at from several threads, each from one at a time.

    Args:
        confirm_ms: how long.
        clock: seconds, monotonic.
    """

    def __init__(self, confirm_ms: int, clock: Callable[[], float]) -> None:
        self._confirm_s = confirm_ms / 1_000
        self._clock = clock
        self._signs: dict[GroupName, dict[Place, _Sign]] = {}

    def unconfirmed(self, facts: GroupFacts) -> frozenset[Place]:
        """Where what is seen of a group now may be a coordinator's that is still loading."""
        now_s, before = self._clock(), self._signs.pop(facts.group, {})
        found = gone_back(facts, {place: sign.stood for place, sign in before.items()})
        signs = {
            place: _Sign(before[place].since_s if place in before else now_s, stood)
            for place, stood in found.items()
        }
        if signs:
            self._signs[facts.group] = signs
        return frozenset(place for place, sign in signs.items() if now_s - sign.since_s < self._confirm_s)

    def forget_all_but(self, groups: Collection[GroupName]) -> None:
        """Forget groups that are gone."""
        for group in self._signs.keys() - set(groups):
            del self._signs[group]
