"""Which topics are dropped from a shard's state: those that are gone for good, and no others."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from parallax.domain.ids import TopicName
from replicator.copying.session_end import FORGOTTEN_AFTER_MS, Absences

TRIPS, OTHER = TopicName("trips"), TopicName("other")
HOUR_MS = FORGOTTEN_AFTER_MS


def gone(
    absences: Absences,
    now_ms: float,
    source: Collection[TopicName] | None = (OTHER,),
    target: Collection[TopicName] | None = (OTHER,),
) -> set[TopicName]:
    return absences.gone([TRIPS, OTHER], source, target, now_ms)


def test_a_topic_that_neither_side_has_had_for_an_hour_is_dropped() -> None:
    absences = Absences(lambda _topic: True)
    assert gone(absences, 5.0) == set()
    assert gone(absences, 4.0 + HOUR_MS) == set()
    assert gone(absences, 5.0 + HOUR_MS) == {TRIPS}


@pytest.mark.parametrize("seen", [{"source": (TRIPS,)}, {"target": (TRIPS, OTHER)}])
def test_one_look_at_it_begins_the_hour_anew(seen: dict[str, Collection[TopicName]]) -> None:
    absences = Absences(lambda _topic: True)
    gone(absences, 0.0)
    assert TRIPS not in gone(absences, 2.0 * HOUR_MS, **seen)
    assert TRIPS not in gone(absences, 2.0 * HOUR_MS + 1)
    assert TRIPS in gone(absences, 3.0 * HOUR_MS + 1)


@pytest.mark.parametrize("away", ["source", "target"])
def test_a_cluster_that_does_not_answer_says_nothing(away: str) -> None:
    absences = Absences(lambda _topic: True)
    gone(absences, 0.0)
    assert gone(absences, 2.0 * HOUR_MS, **{away: None}) == set()


def test_a_topic_that_the_configuration_leaves_out_is_kept_for_when_it_is_chosen_again() -> None:
    absences = Absences(lambda topic: topic != TRIPS)
    gone(absences, 0.0)
    assert gone(absences, 2.0 * HOUR_MS) == set()
