"""What the replicator's status tells of upkeep."""

from __future__ import annotations

from parallax.domain.ids import ClusterName, TopicName
from parallax.domain.topic_settings import SettingFinding, SettingState
from parallax.upkeep.board import MOST_TOLD, UpkeepBoard
from parallax.upkeep.keeping import SETTINGS, STATES
from parallax.upkeep.settings import SettingsRow

CLUSTER = ClusterName("aggregate-b")


def row(topic: str, *, applied: bool = False) -> SettingsRow:
    finding = SettingFinding("retention.ms", SettingState.CONFIG_DRIFT, "1", None)
    return SettingsRow(CLUSTER, TopicName(topic), finding, applied=applied)


def test_a_round_replaces_what_the_one_before_told_and_a_failed_one_leaves_it() -> None:
    now_s = [5.0]
    board = UpkeepBoard(STATES, lambda: now_s[0])
    board.expect(SETTINGS, CLUSTER)
    assert (board.troubles(), board.missing()) == ([], ())
    assert board.state()["upkeep"][0]["last_good_round_age_ms"] is None

    board.good(SETTINGS, CLUSTER, [row("trips"), row("rides", applied=True)])
    now_s[0] += 2
    board.failed(SETTINGS, CLUSTER, "[CLUSTER_UNAVAILABLE] no answer")
    line = "CONFIG_DRIFT: trips of aggregate-b: retention.ms is not set there, and the sources want '1'"
    assert board.troubles() == ["settings of aggregate-b: [CLUSTER_UNAVAILABLE] no answer", line]
    (state,) = board.state()["upkeep"]
    assert (state["changes"], state["last_good_round_age_ms"]) == (1, 2_000)
    assert [item["topic"] for item in state["not_in_step"]] == ["trips"]
    assert not board.missing()

    board.good(SETTINGS, CLUSTER, [])
    assert board.troubles() == []
    assert board.state()["upkeep"][0]["changes"] == 1


def test_many_lines_are_counted_instead_of_told() -> None:
    board = UpkeepBoard(STATES)
    board.expect(SETTINGS, CLUSTER)
    board.good(SETTINGS, CLUSTER, [row(f"topic-{number}") for number in range(MOST_TOLD + 3)])
    told = board.troubles()
    assert (len(told), told[-1]) == (MOST_TOLD + 1, "and 3 more, in /status")
    samples = {
        (family.name, sample.labels.get("state")): sample.value
        for family in board.collect()
        for sample in family.samples
    }
    assert samples["parallax_upkeep_not_in_step", "CONFIG_DRIFT"] == MOST_TOLD + 3
    assert samples["parallax_upkeep_not_in_step", "CONFIG_CONFLICT"] == 0
