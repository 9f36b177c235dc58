"""`parallax init` writes configurations that load and that preflight does not refuse; docs/examples has them all."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from parallax.cli.init import RouteMode, example
from parallax.cli.main import app
from parallax.config.config import load
from parallax.domain.ids import ClusterName, Route, TopicName
from parallax.errors import ConfigError, RefusedError
from replicator.graph_check import check_graph

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"
ROUTES = {
    RouteMode.AGGREGATION: {"a->a", "b->a", "a->b", "b->b"},
    RouteMode.ACTIVE_STANDBY: {"a->b"},
    RouteMode.TWO_WAY: {"a->b", "b->a"},
    RouteMode.FAN_OUT: {"a->b", "a->c"},
    RouteMode.FORWARDING: {"a->b", "b->c"},
}


@pytest.mark.parametrize("mode", ROUTES)
def test_the_example_loads_and_nothing_forbids_its_routes(mode: RouteMode) -> None:
    config = load(EXAMPLES / f"{mode.value}.yaml", {})
    assert {str(route) for route in config.all_routes()} == ROUTES[mode]
    seen = {ClusterName(f"regional-{name}"): {TopicName("trips")} for name in config.regions}
    assert list(check_graph(config, config.all_routes(), seen)) == []


@pytest.mark.parametrize("mode", ROUTES)
def test_it_is_what_the_command_writes(mode: RouteMode, tmp_path: Path) -> None:
    out = tmp_path / "parallax.yaml"
    result = CliRunner().invoke(app, ["init", "--mode", mode.value, "--out", str(out)])
    assert result.exit_code == 0, result.output
    text = out.read_text(encoding="utf-8")
    assert text == (EXAMPLES / f"{mode.value}.yaml").read_text(encoding="utf-8")
    again = CliRunner().invoke(app, ["init", "--mode", mode.value, "--out", str(out)])
    assert isinstance(again.exception, RefusedError)
    printed = CliRunner().invoke(app, ["init", "--mode", mode.value])
    assert printed.stdout == text


def test_there_is_no_other_example() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == {mode.value for mode in ROUTES}


def test_regions_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "parallax.yaml"
    path.write_text(example(RouteMode.FORWARDING, ["edge", "eu", "us", "hub"]), encoding="utf-8")
    assert [str(route) for route in load(path, {}).all_routes()] == ["edge->eu", "eu->us", "us->hub"]


def test_a_standby_that_producers_move_to_becomes_what_its_file_says(tmp_path: Path) -> None:
    """Until then groups move between it and the active region with nothing read twice; so they do afterwards."""
    path = tmp_path / "parallax.yaml"
    text = example(RouteMode.ACTIVE_STANDBY, ["a", "b", "c"])
    path.write_text(text, encoding="utf-8")
    before = load(path, {})
    assert [name for name in before.regions if before.is_produced_at(ClusterName(f"aggregate-{name}"))] == [
        "a"
    ]
    path.write_text(text.replace("aggregate:", "cluster:", 1).replace("# - b->", "- b->"), encoding="utf-8")
    after = load(path, {})
    a, b = ClusterName("aggregate-a"), ClusterName("aggregate-b")
    assert after.is_produced_at(b)
    assert (after.route_from_log(a, b), after.route_from_log(b, a)) == (
        Route.parse("a->b"),
        Route.parse("b->a"),
    )
    seen = {ClusterName(f"regional-{name}"): {TopicName("trips")} for name in "ab"}
    assert list(check_graph(after, after.all_routes(), seen)) == []


@pytest.mark.parametrize("mode", ROUTES)
@pytest.mark.parametrize(
    "name", ["no", "on", "null", "1", "1.5", "1e3", "0x1f", "2026-11-29", "2026-13-45", "y"]
)
def test_a_region_may_be_called_what_yaml_takes_for_something_else(
    tmp_path: Path, mode: RouteMode, name: str
) -> None:
    path = tmp_path / "parallax.yaml"
    path.write_text(example(mode, [name, "b", "c"]), encoding="utf-8")
    assert list(load(path, {}).regions) == [name, "b", "c"]


@pytest.mark.parametrize(
    ("regions", "why"),
    [
        (["a"], "at least two"),
        (["a", "a"], "each once"),
        *((["a", name], "no name for a region") for name in ("b b", "[", "{x", "a: b", "'", "&a", "")),
    ],
)
def test_regions_that_can_not_be_are_refused(regions: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        example(RouteMode.AGGREGATION, regions)
