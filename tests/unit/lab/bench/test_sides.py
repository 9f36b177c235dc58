"""How the sides of a row reach the clusters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from lab.bench import sides
from lab.bench.plan import FULL
from lab.bench.rows.catch_up import CatchUpRow
from lab.bench.sides import Side
from lab.bench.sides.parallax import write_config
from lab.bench.stage import BenchStage
from lab.bench.table import _HEADINGS
from lab.stack.layout import StackLayout, port_names
from lab.stack.process import ProcessSpec
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from parallax.config.config import load
from parallax.domain.route_graph import CopiesKind

OVER_TLS = {"regional-a": "127.0.0.1:1", "aggregate-a": "127.0.0.1:2"}
AUTHORITY = Path("/trusted/ca.pem")


def stage(**has: Any) -> BenchStage:
    return cast("BenchStage", SimpleNamespace(far_bootstrap=dict, authority=AUTHORITY, **has))


@pytest.mark.parametrize("side", ["parallax", "mirrormaker2"])
def test_what_is_compared_over_tls_goes_over_tls_alone(side: Side) -> None:
    row = FULL["tls-catch-up"]
    assert isinstance(row, CatchUpRow)
    assert {"parallax", "mirrormaker2"} < set(row.sides)
    assert row.place.tls
    options = row.options(side, stage(tls_bootstrap=lambda: OVER_TLS))
    assert (options.bootstrap, options.authority) == (OVER_TLS, AUTHORITY)


def test_plain_text_is_beside_it_and_everywhere_else() -> None:
    rows = [(row, side) for row in FULL.values() if isinstance(row, CatchUpRow) for side in row.sides]
    plain = [(row, side) for row, side in rows if not row.tls or side == "parallax_plain_text"]
    assert len(rows) - len(plain) == 2
    for row, side in plain:
        options = row.options(side, stage())
        assert (options.bootstrap, options.authority) == ({}, None)


@pytest.mark.parametrize("authority", [AUTHORITY, None])
def test_both_clusters_of_parallax_are_reached_over_tls_or_neither(
    tmp_path: Path, authority: Path | None
) -> None:
    spec = StackSpec(("a",), tls=True)
    layout = StackLayout(spec, tmp_path, {name: 20_000 + n for n, name in enumerate(port_names(spec))})
    write_config(
        tmp_path / "p.yaml",
        cast("LocalStack", SimpleNamespace(layout=layout)),
        topics=("t",),
        routes=("a->a",),
        settings={},
        bootstrap=OVER_TLS,
        authority=authority,
    )
    region = load(tmp_path / "p.yaml").regions["a"]
    for kind, cluster in (("regional", region.regional), ("aggregate", region.aggregate)):
        assert cluster is not None
        assert cluster.bootstrap_servers == OVER_TLS[f"{kind}-a"]
        assert cluster.security.protocol == ("PLAINTEXT" if authority is None else "SSL")
        assert cluster.security.ssl_ca_location == (None if authority is None else str(authority))


def test_where_both_clusters_have_both_roles_each_route_copies_what_is_its_own(tmp_path: Path) -> None:
    spec = StackSpec(("a",))
    layout = StackLayout(spec, tmp_path, {name: 20_000 + n for n, name in enumerate(port_names(spec))})
    write_config(
        tmp_path / "p.yaml",
        cast("LocalStack", SimpleNamespace(layout=layout)),
        topics=("t",),
        routes=("one->two", "two->one"),
        settings={},
        bootstrap={},
        both_roles=True,
    )
    config = load(tmp_path / "p.yaml")
    at = {region: of.cluster and of.cluster.bootstrap_servers for region, of in config.regions.items()}
    assert at == {"one": layout.bootstrap("regional-a"), "two": layout.bootstrap("aggregate-a")}
    assert {str(edge.route): edge.copies.kind for edge in config.edges()} == {
        "one->two": CopiesKind.OWN,
        "two->one": CopiesKind.OWN,
    }


def test_only_the_prepared_side_finds_sparks_classes_whatever_the_user_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARALLAX_CACHE", str(tmp_path / "the users"))
    spec = StackSpec(("a",))
    layout = StackLayout(spec, tmp_path, {name: 20_000 + n for n, name in enumerate(port_names(spec))})
    made: list[Path] = []
    monkeypatch.setattr(sides, "prepare_spark", lambda _stack, cache: made.append(cache))

    def cache_of(side: Side) -> str:
        at = stage(
            next_life=lambda: 1,
            directory=tmp_path,
            process=lambda spec: spec,
            stack=SimpleNamespace(layout=layout, java=SimpleNamespace(home=tmp_path)),
        )
        copier = sides.Copier(at, side, ["t"], sides.CopierOptions())
        return str(cast("ProcessSpec", copier._process).environment["PARALLAX_CACHE"])

    plain = cache_of("parallax")
    assert made == []
    prepared = cache_of("parallax_prepared")
    assert [str(path) for path in made] == [prepared]
    assert len({plain, prepared, str(tmp_path / "the users")}) == 3


def test_every_side_has_a_column_in_the_table() -> None:
    assert set(get_args(Side)) <= set(_HEADINGS)
