"""Primaries under partitions: regions decide with what they see, then see each other again."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import (
    Assignment,
    Change,
    Mode,
    PrimaryDecision,
    Site,
    assignment_of,
    check,
    decide,
    next_number,
)

GROUP = GroupName("billing")
REGIONS = [RegionName(name) for name in ("a", "b", "c")]
CLUSTERS = frozenset(ClusterName(f"aggregate-{name}") for name in REGIONS)


def site(region: RegionName) -> Site:
    return Site(frozenset(REGIONS), CLUSTERS, region)


@dataclass(frozen=True)
class Decide:
    """One region sets the primary, without the others if ``alone``."""

    region: RegionName
    primary: RegionName
    alone: bool


@dataclass(frozen=True)
class Meet:
    """Two regions see each other's decisions."""

    first: RegionName
    second: RegionName


STEPS = st.lists(
    st.one_of(
        st.builds(Decide, st.sampled_from(REGIONS), st.sampled_from(REGIONS), st.booleans()),
        st.builds(Meet, st.sampled_from(REGIONS), st.sampled_from(REGIONS)),
    ),
    max_size=25,
)


@dataclass
class Regions:
    """What each region knows; planned decisions are made with all knowledge, and known by all at once."""

    known: dict[RegionName, set[PrimaryDecision]] = field(
        default_factory=lambda: {region: set() for region in REGIONS}
    )
    made: list[PrimaryDecision] = field(default_factory=list)

    def do(self, step: Decide | Meet) -> None:
        if isinstance(step, Meet):
            both = self.known[step.first] | self.known[step.second]
            self.known[step.first] = self.known[step.second] = both
            return
        sees = self.known[step.region] if step.alone else set().union(*self.known.values())
        change = Change(GROUP, step.primary, disaster=step.alone)
        decision = decide(change, sees, site(step.region), decided_at_ms=len(self.made))
        if decision in sees:
            return
        self.made.append(decision)
        for region in [step.region] if step.alone else REGIONS:
            self.known[region] = {*self.known[region], *([] if step.alone else sees), decision}

    def everything(self) -> set[PrimaryDecision]:
        return set().union(*self.known.values())


def ancestors(decision: PrimaryDecision, decisions: set[PrimaryDecision]) -> set[int]:
    by_number = {item.fencing_number: item for item in decisions}
    found: set[int] = set()
    waiting = [*decision.supersedes]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += by_number[number].supersedes
    return found


def played(steps: list[Decide | Meet]) -> Regions:
    regions = Regions()
    for step in steps:
        regions.do(step)
    return regions


@given(STEPS)
def test_numbers_are_unique_and_grow_with_what_was_known(steps: list[Decide | Meet]) -> None:
    regions = played(steps)
    check(sorted(regions.everything(), key=lambda item: item.fencing_number))
    for decision in regions.made:
        assert all(number < decision.fencing_number for number in ancestors(decision, regions.everything()))


@given(STEPS, st.randoms(use_true_random=False))
def test_after_healing_the_highest_wins_in_whatever_order_decisions_arrive(
    steps: list[Decide | Meet], random: object
) -> None:
    everything = sorted(played(steps).everything(), key=lambda item: item.fencing_number)
    if not everything:
        return
    healed = assignment_of(everything)
    assert healed is not None
    assert healed == assignment_of(reversed(everything))
    shuffled = everything[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    assert healed == assignment_of(shuffled)
    assert healed.decision.fencing_number == max(item.fencing_number for item in everything)


@given(STEPS)
def test_dual_active_means_a_decision_that_no_later_one_knew_and_that_says_something_else(
    steps: list[Decide | Meet],
) -> None:
    everything = played(steps).everything()
    healed = assignment_of(everything)
    if healed is None:
        return
    known = ancestors(healed.decision, everything) | {healed.decision.fencing_number}
    replaced = set().union(*(ancestors(item, everything) for item in everything))
    rivals = {
        item
        for item in everything
        if item.fencing_number not in known | replaced and item.primary != healed.decision.primary
    }
    assert set(healed.rivals) == rivals
    assert healed.dual_active == bool(rivals)


@given(STEPS, st.sampled_from(REGIONS), st.sampled_from(REGIONS))
def test_a_decision_that_knows_all_settles_it(
    steps: list[Decide | Meet], region: RegionName, primary: RegionName
) -> None:
    everything = played(steps).everything()
    decision = decide(Change(GROUP, primary), everything, site(region), 1)
    assert assignment_of({*everything, decision}) == Assignment(decision)
    assert decide(Change(GROUP, primary), {*everything, decision}, site(region), 2) is decision


@given(STEPS)
def test_at_most_one_region_publishes_and_a_moving_group_has_no_cluster(steps: list[Decide | Meet]) -> None:
    healed = assignment_of(played(steps).everything())
    if healed is None:
        return
    assert sum(healed.is_primary(region) for region in REGIONS) == 1
    assert (healed.consumed_cluster is None) == healed.dual_active


@given(
    highest=st.integers(0, 10**9),
    before=st.integers(1, 20),
    added=st.integers(0, 20),
    index=st.integers(0, 40),
    disaster=st.booleans(),
)
def test_numbers_go_on_ascending_when_regions_are_added(
    *, highest: int, before: int, added: int, index: int, disaster: bool
) -> None:
    few = [RegionName(f"r{number:02}") for number in range(before)]
    many = [RegionName(f"r{number:02}") for number in range(before + added)]
    first = next_number(highest, Site(frozenset(few), frozenset(), few[index % len(few)]), disaster=disaster)
    second = next_number(first, Site(frozenset(many), frozenset(), many[index % len(many)]), disaster=False)
    assert highest < first < second


@given(STEPS, st.sampled_from(REGIONS), st.integers(1, 100))
def test_a_disaster_decision_outranks_what_the_lost_region_decided_unseen(
    steps: list[Decide | Meet], lost: RegionName, unseen: int
) -> None:
    survivor = next(region for region in REGIONS if region != lost)
    seen = played(steps).everything()
    hidden = set(seen)
    for turn in range(unseen):
        change = Change(GROUP, REGIONS[turn % 3], renew=True)
        hidden.add(decide(change, hidden, site(lost), turn))
    rescued = decide(Change(GROUP, survivor, disaster=True, renew=True), seen, site(survivor), 0)
    healed = assignment_of({*hidden, rescued})
    assert healed is not None
    assert healed.decision == rescued


@given(STEPS)
def test_active_active_groups_have_a_publisher_and_no_cluster(steps: list[Decide | Meet]) -> None:
    everything = played(steps).everything()
    decision = decide(Change(GROUP, REGIONS[1], mode=Mode.ACTIVE_ACTIVE), everything, site(REGIONS[0]), 1)
    healed = assignment_of({*everything, decision})
    assert healed is not None
    assert healed.consumed_cluster is None
    assert [region for region in REGIONS if healed.is_primary(region)] == [REGIONS[1]]
