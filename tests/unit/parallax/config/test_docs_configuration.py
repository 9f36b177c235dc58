"""docs/configuration.md has every key of the configuration, with its default, and none that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from parallax.config.config import Cluster, Config, Region, Security, load
from parallax.domain.ids import ClusterName
from parallax.domain.topic_choice import BUILTIN_EXCLUDES

PAGE = (Path(__file__).parents[4] / "docs" / "configuration.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| (.+) \|$", re.MULTILINE)
ROWS = {key: (kind, default, meaning) for key, kind, default, meaning in ROW.findall(PAGE)}


def sections(annotation: Any) -> list[type[BaseModel]]:
    parts = get_args(annotation)
    found = (annotation, *parts, *(item for part in parts for item in get_args(part)))
    return [item for item in found if isinstance(item, type) and issubclass(item, BaseModel)]


def keys(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key that has a value of its own, and every section that may be missing."""
    for own_name, field in model.model_fields.items():
        name = field.alias or own_name
        inner = sections(field.annotation)
        if not inner or type(None) in get_args(field.annotation):
            yield above + name, field
        if inner == [Region]:
            yield from keys(Region, f"{above}{name}.<region>.")
        elif inner == [Cluster]:
            yield from keys(Cluster, f"{above}<cluster>.")
        elif inner:
            yield from keys(inner[0], f"{above}{name}.")


KEYS = dict(keys(Config))


def default_of(key: str) -> Any:
    """The default as YAML would have it, with the section's own default where that says more than the field's."""
    section, _, name = key.rpartition(".")
    if section in {"topics", "groups"}:
        return Config.model_fields[section].default.model_dump(mode="json")[name]
    field = KEYS[key]
    value = field.get_default(call_default_factory=True)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def test_every_key_has_one_row() -> None:
    found = [key for key, *_ in ROW.findall(PAGE)]
    assert sorted(found) == sorted(KEYS)


def test_every_table_row_was_read() -> None:
    """A row that the expression above does not fit would be held against nothing."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(lines) == len(ROWS)


@pytest.mark.parametrize("key", KEYS)
def test_the_default_is_the_real_one(key: str) -> None:
    told = ROWS[key][1]
    if told == "required":
        assert KEYS[key].is_required()
    elif told == "none":
        assert not KEYS[key].is_required()
        assert default_of(key) is None
    else:
        assert not KEYS[key].is_required()
        assert yaml.safe_load(told.strip("`")) == default_of(key)


@pytest.mark.parametrize("key", KEYS)
def test_the_choices_are_named(key: str) -> None:
    kind, _, meaning = ROWS[key]
    annotation = KEYS[key].annotation
    choices = [
        choice
        for item in (annotation, *get_args(annotation))
        if get_origin(item) is Literal
        for choice in get_args(item)
    ]
    assert (kind in {"one of", "list of words"}) == bool(choices)
    assert all(f"`{choice}`" in meaning for choice in choices)


def test_secrets_are_told_as_such() -> None:
    told = {key for key, (kind, _, _) in ROWS.items() if kind == "secret"}
    assert told == {key for key, field in KEYS.items() if "Secret" in str(field.annotation)}
    assert {f"{key}_file" for key in told} <= set(KEYS)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    [text] = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
    path = tmp_path / "parallax.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_loads(example: Path) -> None:
    config = load(example, {})
    assert {str(route) for route in config.all_routes()} >= {"eu-west->us-east", "us-east->eu-west"}
    clusters = [
        cluster for region in config.regions.values() for cluster in (region.regional, region.aggregate)
    ]
    assert all(cluster.security != Security() for cluster in clusters if cluster is not None)
    assert config.service.tls is not None


def test_the_variables_load(example: Path) -> None:
    lines = re.findall(r"^(PARALLAX__\w+)=(.+)$", PAGE, re.MULTILINE)
    config = load(example, {name: value.strip("'") for name, value in lines})
    assert len(lines) == 4
    regional = config.cluster(ClusterName("regional-eu-west"))
    assert regional.security.sasl_password is not None
    assert regional.security.sasl_password.get_secret_value() == "12345"
    assert config.topics.chosen("payments.x")


def test_the_built_in_excludes_are_told_and_survive_a_section(example: Path) -> None:
    topics = load(example, {}).topics
    assert topics.model_fields_set == {"include"}
    for pattern in BUILTIN_EXCLUDES:
        assert f"`{pattern}`" in PAGE


def test_a_section_of_groups_replaces_the_default_exclude(example: Path) -> None:
    assert load(example, {}).groups.exclude != ()
    assert load(example, {"PARALLAX__GROUPS__INCLUDE": "['.*']"}).groups.exclude == ()
