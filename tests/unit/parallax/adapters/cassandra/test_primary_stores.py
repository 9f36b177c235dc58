"""What the stores of primaries do where regions are apart, and how decisions are written down."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.adapters.cassandra.decisions import CassandraPrimaryStore, decision_from_text, decision_to_text
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import Change, Mode, PrimaryDecision, Site, Stage, assignment_of, decide
from parallax.errors import InvariantError
from parallax.ports.groups import PrimaryLog, Reach
from tests.memory.groups import MemoryPrimaryStore

if TYPE_CHECKING:
    from parallax.adapters.cassandra.connection import CassandraConnection

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


UNREADABLE = (
    "{",
    "[]",
    "{}",
    decision_to_text(decide(Change(GROUP, A), [], SITE, 1)).replace("active_passive", "active_maybe"),
)


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_cant_be_read_is_said_in_so_many_words(text: str) -> None:
    with pytest.raises(
        InvariantError, match="primary_decisions of group 'billing', decision 2 of region a, can't be read"
    ):
        decision_from_text(GROUP, 2, A, text)


class OneRow:
    """A connection whose every group has one decision, that of the first group unreadable."""

    def prepare(self, cql: str) -> str:
        return cql

    def run_all(self, requests: list[tuple[str, tuple[GroupName]]]) -> list[list[tuple[int, int, str, str]]]:
        readable = decision_to_text(decide(Change(GROUP, A), [], SITE, 1))
        return [[(2, 2, A, "{" if turn == 0 else readable)] for turn, _ in enumerate(requests)]


def test_one_group_that_cant_be_read_leaves_the_others_readable() -> None:
    store = CassandraPrimaryStore(cast("CassandraConnection", OneRow()), "k")
    found = store.decisions([GROUP, GroupName("fraud")])
    assert isinstance(found[GROUP], InvariantError)
    other = assignment_of(found[GroupName("fraud")])
    assert other is not None
    assert other.decision.primary == A
    with pytest.raises(InvariantError, match="can't be read"):
        assignment_of(found[GROUP])


def test_regions_that_decided_apart_both_keep_their_word_and_the_next_decision_settles_it() -> None:
    here, there = MemoryPrimaryStore(), MemoryPrimaryStore()
    first = decide(Change(GROUP, A, disaster=True), [], SITE, 1)
    second = decide(Change(GROUP, B, disaster=True), [], replace(SITE, decided_in=B), 2)
    assert here.append(first, log=PrimaryLog((), 0), reach=Reach.HERE)
    assert there.append(second, log=PrimaryLog((), 0), reach=Reach.HERE)

    here.absorb(there)

    log = here.read_log(GROUP, Reach.EVERYWHERE)
    healed = assignment_of(log.decisions)
    assert healed is not None
    assert (healed.decision, healed.rivals) == (second, (first,))
    settled = decide(Change(GROUP, B), log.decisions, SITE, 3)
    assert here.append(settled, log=log, reach=Reach.EVERYWHERE)
    assert settled.supersedes == (first.fencing_number, second.fencing_number)
    after = assignment_of(here.decisions([GROUP])[GROUP])
    assert after is not None
    assert not after.dual_active
