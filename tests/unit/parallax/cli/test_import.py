"""`parallax import mm2`: exit codes, what is written, and that no secret is shown."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from parallax.cli.main import app
from parallax.config.config import load
from parallax.domain.ids import ClusterName
from parallax.errors import ConfigError, RefusedError

FILE = """\
clusters = a, b
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
a->b.enabled = true
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
LOGIN = """\
a.security.protocol = SASL_SSL
a.sasl.mechanism = PLAIN
a.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";
"""


def run(directory: Path, text: str, *options: str) -> Result:
    path = directory / "mm2.properties"
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(app, ["import", "mm2", str(path), *options])


def keys(result: Result) -> dict[str, dict[str, Any]]:
    return {item["key"]: item for item in json.loads(result.stdout)["keys"]}


def test_what_is_written_loads_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    out = tmp_path / "parallax.yaml"
    result = run(tmp_path, FILE + LOGIN, "--out", str(out), "--report", "json")
    assert result.exit_code == 0, result.output
    assert "hunter2" not in result.output
    assert keys(result)["a.sasl.jaas.config"]["value"] == "(secret)"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    config = load(out, {})
    assert [str(route) for route in config.all_routes()] == ["a->b"]
    assert config.cluster(ClusterName("regional-a")).security.password() == "hunter2"


def test_a_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "parallax.yaml"
    out.write_text("mine", encoding="utf-8")
    result = run(tmp_path, FILE, "--out", str(out))
    assert isinstance(result.exception, RefusedError)
    assert out.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("line", "key", "verdict", "why"),
    [
        ("offset.lag.maxx = 1", "offset.lag.maxx", "UNKNOWN", "did you mean 'offset.lag.max'?"),
        ("a->b.topics = *", "a->b.topics", "UNSUPPORTED", "'*' is no regular expression of Python's"),
        (
            "a->b.topics = \\\\p{Alpha}+",
            "a->b.topics",
            "UNSUPPORTED",
            "no regular expression of Python's: bad escape",
        ),
        ("a->b.topics =", "a->b.topics", "UNSUPPORTED", "it chooses nothing"),
        (
            "a.consumer.ssl.key.password = x",
            "a.consumer.ssl.key.password",
            "UNSUPPORTED",
            "one identity at a cluster",
        ),
        ("b.security.protocol = TLS", "b.security.protocol", "UNSUPPORTED", "'TLS' is none of PLAINTEXT"),
        (
            "b.security.protocol = SASL_SSL\\nb.sasl.mechanism = PLAIN",
            "b.security.protocol",
            "UNSUPPORTED",
            "PLAIN needs",
        ),
        (
            "b.sasl.jaas.config = ${env:JAAS}",
            "b.sasl.jaas.config",
            "UNSUPPORTED",
            "it is filled in elsewhere",
        ),
        (
            "sync.group.offsets.enabled = true",
            "sync.group.offsets.enabled",
            "UNSUPPORTED",
            "groups move between",
        ),
        ("replication.factor = many", "replication.factor", "UNSUPPORTED", "'many' is no number of replicas"),
    ],
)
def test_a_key_that_is_not_obeyed_ends_with_1_until_it_is_accepted(
    tmp_path: Path, line: str, key: str, verdict: str, why: str
) -> None:
    out = tmp_path / "parallax.yaml"
    text = FILE + line.replace("\\n", "\n") + "\n"
    result = run(tmp_path, text, "--out", str(out), "--report", "json")
    told = keys(result)[key]
    assert (result.exit_code, told["verdict"], told["accepted"]) == (1, verdict, False)
    assert why in told["why"]
    assert not out.exists()
    accepted = run(tmp_path, text, "--out", str(out), "--report", "json", "--accept", key)
    assert accepted.exit_code == 0, accepted.output
    load(out, {})


def test_the_names_of_copies_are_kept_only_if_that_is_accepted(tmp_path: Path) -> None:
    text = FILE.replace("Identity", "Default")
    refused = run(tmp_path, text, "--report", "json")
    assert refused.exit_code == 1
    assert "copies would be called ${source}.${topic}" in keys(refused)["replication.policy.class"]["why"]
    out = tmp_path / "parallax.yaml"
    assert run(tmp_path, text, "--out", str(out), "--accept", "replication.policy.class").exit_code == 0
    assert [edge.naming.keeps for edge in load(out, {}).edges()] == [True]


def test_one_of_two_directions_may_be_left_out(tmp_path: Path) -> None:
    both = FILE + "b->a.enabled = true\n"
    assert run(tmp_path, both).exit_code == 1
    out = tmp_path / "parallax.yaml"
    assert run(tmp_path, both, "--out", str(out), "--accept", "b->a.enabled").exit_code == 0
    assert [str(route) for route in load(out, {}).all_routes()] == ["a->b"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\n", "it has no key 'clusters'"),
        ("", "it has no key 'clusters'"),
        ("clusters = a, b\na.bootstrap.servers = a:1\n", "b.bootstrap.servers is missing"),
        ("clusters = a b\n", "line 1: clusters: 'a b' can't be the name of a region"),
        ("clusters = a\na.bootstrap.servers = a\n", "'a' is not of the form host:port"),
        ("clusters = \\u12\n", "line 1: \\u without four hexadecimal digits"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, why: str) -> None:
    result = run(tmp_path, text)
    assert isinstance(result.exception, ConfigError)
    assert why in str(result.exception)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", "mm2", str(tmp_path / "none")])
    assert isinstance(result.exception, ConfigError)
    assert "cannot be read" in str(result.exception)
