from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from bench.mirrormaker import Flow, MirrorMakerConfigError, Tuning, merge, parse, render, template

FLOW = Flow(
    source="rega",
    target="agga",
    source_bootstrap="127.0.0.1:19092",
    target_bootstrap="127.0.0.1:29092",
    topics=("trips-1", "trips"),
    tasks=2,
    groups="movers.*",
)


@pytest.mark.parametrize("tuning", get_args(Tuning))
def test_every_template_is_filled_in(tuning: Tuning) -> None:
    settings = parse(render(template(tuning), FLOW))
    assert settings["clusters"] == "rega, agga"
    assert settings["rega.bootstrap.servers"] == "127.0.0.1:19092"
    assert settings["rega->agga.enabled"] == "true"
    assert settings["agga->rega.enabled"] == "false"
    assert settings["rega->agga.topics"] == "trips-1, trips"
    assert settings["tasks.max"] == "2"
    assert settings["agga.producer.compression.type"] == "lz4"
    assert settings["replication.policy.class"].endswith(".IdentityReplicationPolicy")
    assert not any("{" in part for setting in settings.items() for part in setting)


def test_what_each_template_is_for() -> None:
    assert int(parse(render(template("throughput"), FLOW))["agga.producer.batch.size"]) > 131_072
    assert parse(render(template("latency"), FLOW))["agga.producer.linger.ms"] == "0"
    exactly_once = parse(render(template("exactly-once"), FLOW))
    assert exactly_once["agga.exactly.once.source.support"] == "enabled"
    assert exactly_once["agga.producer.batch.size"] == "262144"
    assert parse(render(template("groups"), FLOW))["sync.group.offsets.enabled"] == "true"
    assert parse(render(template("groups"), FLOW))["rega->agga.groups"] == "movers.*"


def test_a_dot_in_a_topics_name_is_no_wildcard() -> None:
    settings = parse(render(template("latency"), replace(FLOW, topics=("trips.eu",))))
    assert settings["rega->agga.topics"] == r"trips\.eu"


def test_an_alias_that_would_confuse_the_names_is_refused() -> None:
    with pytest.raises(MirrorMakerConfigError, match="letters and digits"):
        render(template("latency"), replace(FLOW, source="reg->a"))
    with pytest.raises(MirrorMakerConfigError, match="both"):
        render(template("latency"), replace(FLOW, source="agga"))


def test_a_template_that_asks_for_something_unknown_is_refused() -> None:
    with pytest.raises(MirrorMakerConfigError, match=r"line 2: nothing is known of \{heap\}"):
        render("a = {source}\nb = {heap}\n", FLOW)


def test_flows_share_one_configuration() -> None:
    second = replace(FLOW, source="regb", source_bootstrap="127.0.0.1:39092")
    settings = parse(merge([render(template("throughput"), flow) for flow in (FLOW, second)]))
    assert settings["clusters"] == "rega, agga, regb"
    assert settings["rega->agga.enabled"] == "true"
    assert settings["regb->agga.enabled"] == "true"


def test_flows_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(MirrorMakerConfigError, match=r"tasks\.max"):
        merge([render(template("latency"), flow) for flow in (FLOW, replace(FLOW, source="regb", tasks=3))])


def test_a_line_without_a_value_is_refused() -> None:
    with pytest.raises(MirrorMakerConfigError, match="line 2"):
        parse("a = 1\nb\n")
