"""What is read from a broker's answer about a topic's settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from parallax.adapters.kafka.topic_settings import _setting
from parallax.domain.ids import RegionName
from parallax.domain.topic_settings import (
    A_MOMENT_MS,
    Agreed,
    SettingsRule,
    TopicSetting,
    merge,
    shrinking,
)

TOPIC, BROKERS, DEFAULT = 1, 4, 5
MONTH, TWO_MONTHS, WEEK = "2592000000", "5184000000", "604800000"
A = RegionName("a")


def read(key: str, value: str, source: int, synonyms: list[tuple[str, int]]) -> TopicSetting:
    below = [SimpleNamespace(name=key, value=of, source=where) for of, where in synonyms]
    item: Any = SimpleNamespace(name=key, value=value, config_source=source, synonyms=below)
    return _setting(item)


BY_HOURS = read("retention.ms", MONTH, DEFAULT, [])
"""As Kafka tells of brokers with `log.retention.hours=720`: it shows `log.retention.ms` alone."""
OWN = read("retention.ms", TWO_MONTHS, TOPIC, [(TWO_MONTHS, TOPIC)])


@pytest.mark.parametrize(
    ("key", "value", "synonyms", "said"),
    [
        ("retention.ms", MONTH, [], MONTH),
        ("retention.ms", WEEK, [], None),
        ("segment.ms", "3600000", [], "3600000"),
        ("segment.ms", WEEK, [], None),
        ("segment.jitter.ms", "60000", [], "60000"),
        ("segment.jitter.ms", "0", [], None),
        ("segment.bytes", "1073741824", [("1073741824", DEFAULT)], None),
        ("remote.storage.enable", "false", [], None),
    ],
)
def test_what_brokers_say_by_a_key_that_kafka_does_not_show_is_told_by_its_value(
    key: str, value: str, synonyms: list[tuple[str, int]], said: str | None
) -> None:
    assert read(key, value, DEFAULT, synonyms).said == said


def test_what_is_inherited_is_known_only_where_kafka_shows_it() -> None:
    assert BY_HOURS.inherited == MONTH
    assert OWN.inherited == ""
    shown = read("retention.ms", TWO_MONTHS, TOPIC, [(TWO_MONTHS, TOPIC), (MONTH, BROKERS)])
    assert shown.inherited == MONTH


def test_a_source_that_keeps_what_its_brokers_say_by_hours_is_followed() -> None:
    merged = merge(
        {A: {"retention.ms": BY_HOURS}},
        {"retention.ms": OWN},
        {"retention.ms": Agreed(TWO_MONTHS, TWO_MONTHS)},
        SettingsRule(),
    )
    assert merged.changes == {"retention.ms": MONTH}


def test_taking_an_own_retention_away_for_one_that_is_not_shown_may_forget_records() -> None:
    there = {"retention.ms": OWN, "cleanup.policy": TopicSetting("delete", None, "delete", builtin=True)}
    assert shrinking(there, {"retention.ms": None}) == {"retention.ms": A_MOMENT_MS}
