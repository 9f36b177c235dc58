"""Examples of the merge, one for each row of the page, and what a change lets a target forget."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from parallax.domain.ids import RegionName, TopicName
from parallax.domain.topic_choice import Patterns
from parallax.domain.topic_settings import (
    A_MOMENT_MS,
    Agreed,
    FixedSettings,
    SettingsRule,
    SettingState,
    TopicSetting,
    held_back,
    merge,
    shrinking,
)

A, B = RegionName("a"), RegionName("b")
KEY = "segment.ms"
DEFAULTS = {
    KEY: "7",
    "retention.ms": "100",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
}


def settings(**own: str) -> dict[str, TopicSetting]:
    said = {name.replace("_", "."): value for name, value in own.items()}
    return {
        key: TopicSetting(said.get(key, value), said.get(key), value, builtin=key not in said)
        for key, value in DEFAULTS.items()
    }


def merged_state(
    source: str | None, target: str | None, agreed: Agreed | None, *, revert: bool = False
) -> tuple[SettingState | None, Agreed | None]:
    """What becomes of a key, and what both sides agree on then."""
    of = {A: settings(**({} if source is None else {"segment_ms": source}))}
    there = settings(**({} if target is None else {"segment_ms": target}))
    merged = merge(of, there, {} if agreed is None else {KEY: agreed}, SettingsRule(revert=revert))
    state = merged.findings[0].state if merged.findings else None
    return state, merged.agreed_after(merged.changes.keys()).get(KEY)


CHANGE, DRIFT, CONFLICT = SettingState.CHANGE, SettingState.CONFIG_DRIFT, SettingState.CONFIG_CONFLICT


@pytest.mark.parametrize(
    ("source", "target", "agreed", "state", "after"),
    [
        ("1", "1", Agreed("1", "1"), None, Agreed("1", "1")),
        ("2", "1", Agreed("1", "1"), CHANGE, Agreed("2", "2")),
        (None, "1", Agreed("1", "1"), CHANGE, None),
        ("1", "2", Agreed("1", "1"), DRIFT, Agreed("1", "1")),
        ("1", None, Agreed("1", "1"), DRIFT, Agreed("1", "1")),
        ("3", "2", Agreed("1", "1"), CONFLICT, Agreed("1", "1")),
        ("2", "2", Agreed("1", "1"), None, Agreed("2", "2")),
        ("1", None, None, CHANGE, Agreed("1", "1")),
        ("1", "2", None, DRIFT, None),
        (None, "2", None, DRIFT, None),
        (None, "7", None, None, Agreed(None, "7")),  # as the replicator creates it
        ("8", "7", Agreed(None, "7"), CHANGE, Agreed("8", "8")),
        (None, None, None, None, None),
    ],
)
def test_each_row_of_the_rule(
    source: str | None,
    target: str | None,
    agreed: Agreed | None,
    state: SettingState | None,
    after: Agreed | None,
) -> None:
    assert merged_state(source, target, agreed) == (state, after)
    if source != target and (source, target) != (None, "7"):
        assert merged_state(source, target, agreed, revert=True)[0] is CHANGE


def test_settings_that_every_target_has_are_never_touched() -> None:
    source = settings(compression_type="zstd", message_timestamp_type="LogAppendTime")
    everything = SettingsRule(Patterns((".*",)))
    assert merge({A: source}, settings(), {}, everything).findings == ()


def test_what_the_brokers_of_a_source_say_counts_as_said() -> None:
    source = {KEY: TopicSetting("9", None, "9", builtin=False)}
    (finding,) = merge({A: source}, settings(), {}, SettingsRule()).findings
    assert (finding.state, finding.wanted) == (CHANGE, "9")


def test_a_key_that_the_target_does_not_know_is_refused_only_where_the_source_says_something() -> None:
    for builtin, states in ((True, []), (False, [SettingState.CONFIG_REFUSED])):
        source = {"new.key": TopicSetting("9", None if builtin else "9", "9", builtin=builtin)}
        found = merge({A: source}, settings(), {}, SettingsRule()).findings
        assert [item.state for item in found] == states


def test_an_override_outweighs_sources_drift_and_patterns() -> None:
    rule = SettingsRule(Patterns((".*",), (r"segment\.ms",)))
    fixed = FixedSettings("tr.*", {KEY: "5"}, frozenset({B}))
    assert fixed.holds_for(TopicName("trips"), B)
    assert not fixed.holds_for(TopicName("trips"), A)
    assert not fixed.holds_for(TopicName("other"), B)
    merged = merge({A: settings(segment_ms="1")}, settings(segment_ms="2"), {}, rule, fixed.settings)
    assert merged.changes == {KEY: "5"}


def test_what_is_held_back_is_told_and_not_agreed_on() -> None:
    merged = merge({A: settings(segment_ms="1")}, settings(), {}, SettingsRule())
    held = held_back(merged, {KEY: "why", "other": "no"}, SettingState.CONFIG_REFUSED)
    assert [(item.state, item.problem) for item in held.findings] == [(SettingState.CONFIG_REFUSED, "why")]
    assert held.changes == held.agreed_after([KEY]) == {}


@pytest.mark.parametrize(
    ("there", "changes", "ages"),
    [
        ({}, {"retention.ms": "50"}, {"retention.ms": 50}),
        ({}, {"retention.ms": "200"}, {}),
        ({}, {"retention.ms": "-1"}, {}),
        ({"retention_ms": "-1"}, {"retention.ms": "500"}, {"retention.ms": 500}),
        ({"retention_ms": "500"}, {"retention.ms": None}, {"retention.ms": 100}),
        ({}, {"retention.bytes": "1000"}, {"retention.bytes": A_MOMENT_MS}),
        ({"retention_bytes": "1000"}, {"retention.bytes": None}, {}),
        ({"cleanup_policy": "compact"}, {"retention.ms": "50"}, {}),
        ({"cleanup_policy": "compact"}, {"cleanup.policy": "compact,delete"}, {"cleanup.policy": 100}),
        ({"cleanup_policy": "compact"}, {"cleanup.policy": None}, {"cleanup.policy": 100}),
        ({}, {"cleanup.policy": "compact"}, {"cleanup.policy": A_MOMENT_MS}),
        (
            {},
            {"cleanup.policy": "compact", "retention.ms": "50"},
            {"cleanup.policy": A_MOMENT_MS, "retention.ms": 50},
        ),
        ({}, {KEY: "1"}, {}),
    ],
)
def test_which_changes_let_a_target_forget(
    there: Mapping[str, str], changes: Mapping[str, str | None], ages: Mapping[str, int]
) -> None:
    assert shrinking(settings(**there), changes) == ages
