"""Where a group is primary: decisions with fencing numbers, and what several of them mean together. Pure.

Every decision names the decisions that it knew and replaces (``supersedes``). Two regions that can't see each other
may both decide; once they see each other, the decisions that no other one supersedes are the *heads*. The head with
the highest fencing number wins. Another head that says something else is a rival: the group is DUAL_ACTIVE until a
decision that knows both supersedes them (docs/decisions/0009-primaries.md).

Invariants, asserted by `check`:

* A: fencing numbers are unique, and each is greater than all that its decision supersedes.
* B: only an active/passive group has a cluster that it consumes, and only such a group moves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from parallax.domain.ids import ClusterName, GroupName, RegionName, aggregate_cluster
from parallax.errors import FencedError, InvariantError, RefusedError, UnknownRegionError

KEPT_DECISIONS = 64
"""So many of a group's newest decisions are kept, beside all that no other one supersedes."""

NO_NUMBER = 0
"""The fencing number of a group for which nothing was ever decided."""

DISASTER_STEP = 1_000
"""How many decisions a disaster decision leaps over: it outranks any that the region which is gone made unseen."""


class Mode(Enum):
    """How a group works over regions."""

    ACTIVE_PASSIVE = "active_passive"
    """One region consumes; the offsets of the others follow."""
    ACTIVE_ACTIVE = "active_active"
    """Every region consumes on its own; the primary is the one that publishes results."""


class Stage(Enum):
    """What a decision asks of the group's consumers."""

    SETTLED = "settled"
    """The primary consumes."""
    MOVING = "moving"
    """Nobody consumes: the group leaves its cluster and waits until the next decision says where it goes on."""


@dataclass(frozen=True, slots=True)
class PrimaryDecision:
    """One decision. It is never changed; a later one replaces it.

    Attributes:
        fencing_number: unique for the group and greater than that of every decision known when it was made.
        primary: active/passive: the region that consumes; active/active: the one that publishes results.
        cluster: the aggregate cluster that the primary consumes: its own, unless that alone is down. None for
            active/active groups, of which every region consumes its own.
        moving_from: where the group was consuming when a move began; None unless ``stage`` is MOVING.
        decided_in: the region whose service carried the decision out.
        supersedes: fencing numbers of the decisions that it replaces, ascending.
        disaster: made without the other regions' agreement.
        reason: the operator's own words.
    """

    group: GroupName
    fencing_number: int
    mode: Mode
    primary: RegionName
    cluster: ClusterName | None
    stage: Stage
    moving_from: ClusterName | None
    decided_in: RegionName
    decided_at_ms: int
    supersedes: tuple[int, ...] = ()
    disaster: bool = False
    reason: str = ""

    def agrees_with(self, other: PrimaryDecision) -> bool:
        """Whether both send the group's consumers and writers to the same place."""
        return (self.mode, self.primary, self.cluster) == (other.mode, other.primary, other.cluster)


Decisions = Iterable[PrimaryDecision] | InvariantError
"""Of one group; or why they can't be read, which is no reason not to serve the others."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What holds for a group.

    Attributes:
        decision: the head with the highest fencing number.
        rivals: other heads that say something else, the highest first; not empty: DUAL_ACTIVE.
    """

    decision: PrimaryDecision
    rivals: tuple[PrimaryDecision, ...] = ()

    @property
    def dual_active(self) -> bool:
        """Whether regions that could not see each other decided differently, and nobody has settled it since."""
        return bool(self.rivals)

    @property
    def consumed_cluster(self) -> ClusterName | None:
        """The only cluster on which the group's commits are the truth; None while there is no single one."""
        settled = self.decision.stage is Stage.SETTLED and not self.dual_active
        return self.decision.cluster if settled else None

    def is_primary(self, region: RegionName) -> bool:
        """Whether the region's writers publish; nobody's do while the group moves."""
        return self.decision.primary == region and self.decision.stage is Stage.SETTLED


@dataclass(frozen=True, slots=True)
class Change:
    """What an operator wants.

    Attributes:
        mode: None: as before; active/passive for a group without a decision.
        cluster: what the primary shall consume; None: its own aggregate cluster.
        moving_from: with MOVING, where the group consumes; None: as the standing decision says.
        expected_number: refuse unless this is the group's fencing number; None: whatever it is.
        disaster: decide without the other regions.
        renew: decide even if nothing changes: a new fencing number for the same place.
    """

    group: GroupName
    primary: RegionName
    mode: Mode | None = None
    cluster: ClusterName | None = None
    stage: Stage = Stage.SETTLED
    moving_from: ClusterName | None = None
    expected_number: int | None = None
    disaster: bool = False
    renew: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """The regions and aggregate clusters that can be named, and where the decision is made."""

    regions: frozenset[RegionName]
    clusters: frozenset[ClusterName]
    decided_in: RegionName


def assignment_of(decisions: Decisions) -> Assignment | None:
    """What holds, given decisions of one group in any order; None without any.

    Raises:
        InvariantError: two decisions have the same number, one supersedes a later one, or one can't be read.
    """
    if isinstance(decisions, InvariantError):
        raise type(decisions)(str(decisions))
    known = sorted(decisions, key=lambda item: item.fencing_number, reverse=True)
    check(known)
    if not known:
        return None
    heads = _heads(known)
    winner = heads[0]
    return Assignment(winner, tuple(item for item in heads[1:] if not item.agrees_with(winner)))


def check(decisions: Sequence[PrimaryDecision]) -> None:
    """Assert the invariants.

    Raises:
        InvariantError: one does not hold; the message has its letter.
    """
    numbers = [item.fencing_number for item in decisions]
    if len(set(numbers)) < len(numbers):
        raise InvariantError(f"A: two decisions share a fencing number: {sorted(numbers)}")
    for item in decisions:
        if any(number >= item.fencing_number for number in item.supersedes):
            raise InvariantError(
                f"A: decision {item.fencing_number} of group {item.group!r} supersedes {list(item.supersedes)}"
            )
        passive = item.mode is Mode.ACTIVE_PASSIVE
        if passive != (item.cluster is not None) or (item.stage is Stage.MOVING) != (
            item.moving_from is not None
        ):
            raise InvariantError(
                f"B: decision {item.fencing_number} of group {item.group!r}: a {item.mode.value} group, "
                f"{item.stage.value}, with cluster {item.cluster} and moving from {item.moving_from}"
            )
        if item.stage is Stage.MOVING and not passive:
            raise InvariantError(f"B: decision {item.fencing_number} moves an active/active group")


def next_number(highest: int, site: Site, *, disaster: bool) -> int:
    """``(counter + 1) * regions + region index``: greater than ``highest``, and no other region's.

    The index is the region's place among the sorted names. Adding a region keeps numbers ascending.
    """
    counter = highest // len(site.regions) + 1 + (DISASTER_STEP if disaster else 0)
    return counter * len(site.regions) + sorted(site.regions).index(site.decided_in)


def outlived(decisions: Collection[PrimaryDecision]) -> list[PrimaryDecision]:
    """Decisions that need not be kept, the oldest first: long superseded.

    They are to be forgotten in this order: then none outlives the one that supersedes it. A decision that comes into
    sight later, of a region that was cut off, is superseded by none of those that are kept, as it was by none that is not.
    """
    heads = {item.fencing_number for item in _heads(decisions)}
    oldest_first = sorted(decisions, key=lambda item: item.fencing_number)
    return [item for item in oldest_first[:-KEPT_DECISIONS] if item.fencing_number not in heads]


def decide(
    change: Change,
    known: Collection[PrimaryDecision],
    site: Site,
    decided_at_ms: int,
    latest: int = NO_NUMBER,
) -> PrimaryDecision:
    """The decision that carries a change out; the standing one if it says the same already.

    Args:
        change: what is wanted.
        known: the group's decisions.
        site: where it is decided.
        decided_at_ms: when.
        latest: the number of the last decision, though it may be forgotten: the next is greater.

    Raises:
        UnknownRegionError: the region or cluster is not configured.
        FencedError: the group's fencing number is not the expected one.
        RefusedError: the change contradicts itself, or a move that is under way.
    """
    standing = assignment_of(known)
    number = NO_NUMBER if standing is None else standing.decision.fencing_number
    expected = change.expected_number
    if expected is not None and expected != number and not _carried_out(change, standing):
        raise FencedError(
            f"group {change.group!r} has fencing number {number}, not {expected}: somebody else "
            "has decided meanwhile; look again with `parallax primary`"
        )
    mode, cluster = _mode(change, standing), _cluster(change, standing, site)
    moving_from = _moving_from(change, standing, site, mode, cluster)
    made = PrimaryDecision(
        group=change.group,
        fencing_number=next_number(max(number, latest), site, disaster=change.disaster),
        mode=mode,
        primary=change.primary,
        cluster=cluster,
        stage=change.stage,
        moving_from=moving_from,
        decided_in=site.decided_in,
        decided_at_ms=decided_at_ms,
        supersedes=tuple(sorted(item.fencing_number for item in _heads(known))),
        disaster=change.disaster,
        reason=change.reason,
    )
    renew = change.renew and expected in {None, number}
    if standing is not None and not standing.dual_active and not renew:
        before = standing.decision
        if made.agrees_with(before) and (made.stage, made.moving_from) == (before.stage, before.moving_from):
            return before
    check([made])
    return made


def _heads(decisions: Collection[PrimaryDecision]) -> list[PrimaryDecision]:
    """Decisions that no other one supersedes, the highest first."""
    replaced = {number for item in decisions for number in item.supersedes}
    heads = [item for item in decisions if item.fencing_number not in replaced]
    return sorted(heads, key=lambda item: item.fencing_number, reverse=True)


def _carried_out(change: Change, standing: Assignment | None) -> bool:
    """Whether the standing decision is this very change, asked for again because its answer was lost."""
    if standing is None or standing.dual_active:
        return False
    before = standing.decision
    replaced = max(before.supersedes, default=NO_NUMBER)
    return replaced == change.expected_number and (before.primary, before.stage, before.reason) == (
        change.primary,
        change.stage,
        change.reason,
    )


def _mode(change: Change, standing: Assignment | None) -> Mode:
    if change.mode is not None:
        return change.mode
    return Mode.ACTIVE_PASSIVE if standing is None else standing.decision.mode


def _cluster(change: Change, standing: Assignment | None, site: Site) -> ClusterName | None:
    if change.primary not in site.regions:
        raise UnknownRegionError(
            f"primary: unknown region {change.primary!r}; configured: {', '.join(sorted(site.regions))}"
        )
    if _mode(change, standing) is Mode.ACTIVE_ACTIVE:
        if change.cluster is not None:
            raise RefusedError(
                f"group {change.group!r} is active/active: every region consumes its own aggregate cluster, so "
                f"that it can't be given {change.cluster}"
            )
        return None
    cluster = aggregate_cluster(change.primary) if change.cluster is None else change.cluster
    if cluster not in site.clusters:
        raise UnknownRegionError(
            f"cluster: there is no aggregate cluster {cluster!r}; configured: {', '.join(sorted(site.clusters))}"
        )
    return cluster


def _moving_from(
    change: Change, standing: Assignment | None, site: Site, mode: Mode, cluster: ClusterName | None
) -> ClusterName | None:
    if change.stage is Stage.SETTLED:
        if change.moving_from is not None:
            raise RefusedError("moving_from: only a move names where it comes from")
        return None
    if mode is Mode.ACTIVE_ACTIVE:
        raise RefusedError(
            f"group {change.group!r} is active/active: it consumes everywhere and does not move; set its primary"
        )
    before = None if standing is None else standing.decision
    if before is not None and before.stage is Stage.MOVING:
        if before.cluster != cluster and not change.disaster:
            raise RefusedError(
                f"group {change.group!r} is moving from {before.moving_from} to {before.cluster}: finish that "
                "move or roll it back first"
            )
        return change.moving_from or before.moving_from
    origin = change.moving_from or (None if before is None else before.cluster)
    if origin is None:
        raise RefusedError(f"group {change.group!r} has no primary yet: say where it consumes (moving_from)")
    if origin not in site.clusters:
        raise UnknownRegionError(
            f"moving_from: there is no aggregate cluster {origin!r}; configured: {', '.join(sorted(site.clusters))}"
        )
    if origin == cluster:
        raise RefusedError(f"group {change.group!r} consumes {cluster} already")
    return origin
