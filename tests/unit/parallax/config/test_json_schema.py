"""The JSON schema of the configuration takes what `load` takes, and tells mistakes that `load` would tell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from parallax.cli.main import app

DOCS = Path(__file__).parents[4] / "docs"
FILES = sorted((DOCS / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads(CliRunner().invoke(app, ["config", "schema"]).stdout)


def mistakes(schema: Any, text: str) -> list[str]:
    return [error.json_path for error in Draft202012Validator(schema).iter_errors(yaml.safe_load(text))]


def test_what_the_docs_show_fits(schema: Any) -> None:
    Draft202012Validator.check_schema(schema)
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    texts += re.findall(
        r"```yaml\n(regions:.+?)```", (DOCS / "configuration.md").read_text("utf-8"), re.DOTALL
    )
    assert len(texts) > len(FILES) > 0
    assert [mistakes(schema, text) for text in texts] == [[]] * len(texts)


def test_short_forms_fit_and_mistakes_do_not(schema: Any) -> None:
    text = """
regions: {a: {cluster: {bootstrap_servers: "k:9092"}}, b: {cluster: {bootstrap_servers: "l:9092"}}}
cassandra: {contact_points: ["c"]}
routes: ["a->b", {route: "b->a", from: regional, copies: own}]
service: {auth: none}
console: {auth: none}
"""
    assert mistakes(schema, text) == []
    assert mistakes(schema, text + "index: {interval_ms: 1}\n") == ["$.index.interval_ms"]
    assert mistakes(schema, text + "nonsense: 1\n") == ["$"]


def test_keys_have_their_meaning(schema: Any) -> None:
    replicator = schema["$defs"]["Replicator"]["properties"]
    assert "whole batches" in replicator["copy_path"]["description"]
    assert replicator["spark_secret"]["anyOf"][0]["format"] == "password"
    assert "description" in schema["$defs"]["Topics"]["properties"]["builtin_excludes"]
    assert "description" in schema["$defs"]["RouteSettings"]["anyOf"][1]["properties"]["from"]
