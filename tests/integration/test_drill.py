"""`parallax drill` there and back on a whole stack, and the proof of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support import Stack, unique_name
from tests.worlds.plays import told


@pytest.fixture
def config(stack: Stack, tmp_path: Path) -> Path:
    """The stack's own configuration, with a canary topic and a group of this test's."""
    values = yaml.safe_load(stack.config_path.read_text(encoding="utf-8"))
    name = unique_name("canary")
    path = tmp_path / "parallax.yaml"
    path.write_text(yaml.safe_dump({**values, "drill": {"topic": name, "group": name}}), encoding="utf-8")
    return path


def test_a_drill_goes_there_and_back_and_loses_and_repeats_nothing(config: Path, tmp_path: Path) -> None:
    found = told("drill", "--from", "a", "--to", "b", "--directory", str(tmp_path), config=config)
    assert (found["ending"], found["problem"], found["proof"]) == ("passed", "", "once")
    figures = found["figures"]
    assert (figures["lost"], figures["redelivered"]) == (0, 0)
    assert figures["delivered"] == figures["acknowledged"] > 0
    assert [(leg["leg"]["to"], leg["rto_ms"] > 0) for leg in figures["legs"]] == [("b", True), ("a", True)]
    assert "without members" in found["left"]
    assert "| passed |" in (tmp_path / "parallax-drill.md").read_text(encoding="utf-8")
    assert "<svg" in (tmp_path / "parallax-drill.html").read_text(encoding="utf-8")

    proof = told("verify", found["group"], "--moves", "2", "--consumers", "failover", config=config)
    assert proof["verdict"] == "once"
    assert {source["region"] for item in proof["partitions"] for source in item["sources"]} == {"a", "b"}
    assert proof["records"]["once"] > 0
