"""The sections about keeping topics in step."""

from __future__ import annotations

from typing import Any

import pytest

from parallax.config.config import Config, parse
from parallax.errors import ConfigError


def values(**config_sync: Any) -> dict[str, Any]:
    kafka = {"cluster": {"bootstrap_servers": "127.0.0.1:9092"}}
    return {
        "regions": {"a": kafka, "b": {"cluster": {"bootstrap_servers": "127.0.0.1:9093"}}},
        "cassandra": {"contact_points": ["127.0.0.1"]},
        "routes": ["a->b"],
        "topics": {"config_sync": config_sync},
    }


def test_settings_of_brokers_are_left_alone_by_default() -> None:
    rule = parse(values()).topics.config_sync.rule()
    assert isinstance(parse(values()), Config)
    for key in ("retention.ms", "cleanup.policy", "segment.ms", "max.message.bytes"):
        assert rule.chosen(key)
    for key in (
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "compression.type",
        "message.timestamp.before.max.ms",
    ):
        assert not rule.chosen(key)
    assert not parse(values(exclude=[])).topics.config_sync.rule().chosen("compression.type")


@pytest.mark.parametrize(
    ("config_sync", "says"),
    [
        ({"overrides": [{"match": "t", "settings": {"compression.type": "zstd"}}]}, "compression.type"),
        ({"overrides": [{"match": "t", "settings": {}}]}, "settings"),
        ({"overrides": [{"match": "t", "settings": {"a": "1"}, "regions": ["x"]}]}, "unknown region 'x'"),
        ({"overrides": [{"match": "(", "settings": {"a": "1"}}]}, "regular expression"),
        ({"interval_s": 0}, "interval_s"),
        ({"drift": "keep"}, "on_drift"),
    ],
)
def test_what_can_not_be_is_refused(config_sync: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(values(**config_sync))


def test_nothing_is_undone_both_ways() -> None:
    both = {**values(on_drift="revert"), "routes": ["a->b", "b->a"]}
    with pytest.raises(ConfigError, match="each would undo what the other has brought"):
        parse(both)
    both["topics"] = {"config_sync": {"on_drift": "keep"}}
    assert len(parse(both).edges()) == 2


def test_no_rule_of_access_goes_round_in_a_circle() -> None:
    """Both ways and with kept names a rule that is taken away at one side comes back from the other for good."""
    both = {**values(), "topics": {"acl_sync": {"enabled": True}}}
    prefixed = [{"route": "a->b", "naming": "${source}.${topic}"}, "b->a"]
    with pytest.raises(ConfigError, match="bring back a rule"):
        parse({**both, "routes": ["a->b", "b->a"]})
    assert len(parse({**both, "routes": prefixed}).edges()) == 2
