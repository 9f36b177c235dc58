"""What the stores of primaries do where regions are apart, and how decisions are written down."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from parallax.adapters.cassandra.primaries import decision_from_text, decision_to_text
from parallax.adapters.memory.primaries import MemoryPrimaryStore
from parallax.decision_ports import Reach
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import Change, Mode, PrimaryDecision, Site, Stage, assignment_of, decide

GROUP = GroupName("billing")
A, B = RegionName("a"), RegionName("b")
SITE = Site(frozenset({A, B}), frozenset({ClusterName("aggregate-a"), ClusterName("aggregate-b")}), A)

DECISIONS = st.builds(
    PrimaryDecision,
    group=st.just(GROUP),
    fencing_number=st.integers(1, 2**62),
    mode=st.sampled_from(Mode),
    primary=st.sampled_from([A, B]),
    cluster=st.none() | st.just(ClusterName("aggregate-b")),
    stage=st.sampled_from(Stage),
    moving_from=st.none() | st.just(ClusterName("aggregate-a")),
    decided_in=st.sampled_from([A, B]),
    decided_at_ms=st.integers(0, 2**48),
    supersedes=st.lists(st.integers(1, 2**62)).map(tuple),
    disaster=st.booleans(),
    reason=st.text(),
)


@given(DECISIONS)
def test_a_decision_survives_being_written_down(decision: PrimaryDecision) -> None:
    text = decision_to_text(decision)
    assert decision_from_text(GROUP, decision.fencing_number, decision.decided_in, text) == decision


def test_regions_that_decided_apart_both_keep_their_word_and_the_next_decision_settles_it() -> None:
    here, there = MemoryPrimaryStore(), MemoryPrimaryStore()
    first = decide(Change(GROUP, A, disaster=True), [], SITE, 1)
    second = decide(Change(GROUP, B, disaster=True), [], replace(SITE, decided_in=B), 2)
    assert here.append(first, after=0, reach=Reach.HERE)
    assert there.append(second, after=0, reach=Reach.HERE)

    here.absorb(there)

    log = here.read_log(GROUP, Reach.EVERYWHERE)
    healed = assignment_of(log.decisions)
    assert healed is not None
    assert (healed.decision, healed.rivals) == (second, (first,))
    settled = decide(Change(GROUP, B), log.decisions, SITE, 3)
    assert here.append(settled, after=log.latest, reach=Reach.EVERYWHERE)
    assert settled.supersedes == (first.fencing_number, second.fencing_number)
    after = assignment_of(here.decisions([GROUP])[GROUP])
    assert after is not None
    assert not after.dual_active
