from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from lab.bench.sides.mirrormaker import Flow, Tuning, settings_of

FLOW = Flow(
    source="rega",
    target="agga",
    source_bootstrap="127.0.0.1:19092",
    target_bootstrap="127.0.0.1:29092",
    topics=("trips-1", "trips"),
    tasks=2,
    groups="movers.*",
)


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("tuning", get_args(Tuning))
def test_every_file_is_filled_in(tuning: Tuning, *, exactly_once: bool) -> None:
    settings = settings_of([FLOW], tuning, exactly_once=exactly_once)
    assert settings["clusters"] == "rega, agga"
    assert settings["rega.bootstrap.servers"] == "127.0.0.1:19092"
    assert settings["rega->agga.enabled"] == "true"
    assert settings["agga->rega.enabled"] == "false"
    assert settings["rega->agga.topics"] == "trips-1, trips"
    assert settings["rega->agga.groups"] == "movers.*"
    assert settings["tasks.max"] == "2"
    assert settings["agga.producer.compression.type"] == "lz4"
    assert settings["replication.policy.class"].endswith(".IdentityReplicationPolicy")
    assert settings.get("agga.exactly.once.source.support") == ("enabled" if exactly_once else None)
    assert not any("{" in part for setting in settings.items() for part in setting)


def test_what_each_file_is_for() -> None:
    assert int(settings_of([FLOW], "throughput")["agga.producer.batch.size"]) > 131_072
    assert settings_of([FLOW], "latency")["agga.producer.linger.ms"] == "0"
    assert settings_of([FLOW], "groups")["sync.group.offsets.enabled"] == "true"
    both = settings_of([FLOW], "throughput", exactly_once=True)
    assert both["agga.producer.batch.size"] == "262144"
    assert both["rega.consumer.isolation.level"] == "read_committed"


def test_both_clusters_are_reached_over_tls_or_neither() -> None:
    over_tls = settings_of([replace(FLOW, authority=Path("/trusted/ca.pem"))], "throughput")
    assert {
        name: value for name, value in over_tls.items() if name not in settings_of([FLOW], "throughput")
    } == {
        f"{cluster}.{name}": value
        for cluster in ("rega", "agga")
        for name, value in (
            ("security.protocol", "SSL"),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", "/trusted/ca.pem"),
        )
    }


def test_a_dot_in_a_topics_name_is_no_wildcard() -> None:
    settings = settings_of([replace(FLOW, topics=("trips.eu",))], "latency")
    assert settings["rega->agga.topics"] == r"trips\.eu"


def test_flows_share_one_configuration() -> None:
    second = replace(FLOW, source="regb", source_bootstrap="127.0.0.1:39092")
    settings = settings_of([FLOW, second], "throughput")
    assert settings["clusters"] == "rega, agga, regb"
    assert settings["rega->agga.enabled"] == "true"
    assert settings["regb->agga.enabled"] == "true"
