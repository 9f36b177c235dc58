"""Rows of few partitions predict one of many, as docs/scale.md says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lab.bench.plan import FULL
from lab.bench.prediction import COSTS, FEW, MANY, MORE, by_tenfolds, main, predictions
from lab.bench.report import Measure, Round, rows_of
from parallax.domain import sizing

PAGE = (Path(__file__).parents[4] / "docs" / "scale.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (copier|brokers) \| (\d+) .*\| (\d+) .*\| (\d+) \| (\d+) .*\| ([+-]\d+) % \|$", re.MULTILINE
)
TOLD = {
    cost: list(map(int, rest)) for cost in COSTS for name, *rest in ROW.findall(PAGE) if cost.startswith(name)
}
"""Of each cost: over 4 and 40 partitions, predicted for 400, measured there, and by how many percent the prediction is off."""


def report(directory: Path, partitions: int, costs: dict[str, float], *, smoke: bool = False) -> None:
    """A report of three rounds, of which the middle one has these costs."""
    name = f"partitions-{partitions}"
    rounds = [
        Round(
            "parallax",
            number,
            tuple(
                Measure(f"{FULL[name].name}: {cost}", "", "lower", value * share)
                for cost, value in costs.items()
            ),
        )
        for number, share in ((1, 3.0), (2, 1.0), (3, 0.5))
    ]
    found: dict[str, Any] = {"rows": rows_of(rounds, void=False), "smoke": smoke}
    (directory / f"report-{name}.json").write_text(json.dumps(found), encoding="utf-8")


def reports(directory: Path, **changed: Any) -> None:
    for place, partitions in enumerate((FEW, MORE, MANY)):
        costs = {cost: TOLD[cost][[0, 1, 3][place]] for cost in COSTS}
        report(directory, partitions, costs, **(changed if partitions == MANY else {}))


def test_each_tenfold_costs_the_same_step() -> None:
    assert by_tenfolds(FEW, 10, 13) == 10
    assert by_tenfolds(MORE, 10, 13) == pytest.approx(13)
    assert by_tenfolds(MANY, 10, 13) == pytest.approx(16)
    per_tenfold = sizing.LEASE_CORES_PER_TENFOLD * 1_000_000 / 2_000
    assert TOLD["copier's CPU"][1] - TOLD["copier's CPU"][0] == pytest.approx(per_tenfold)


def test_the_page_has_what_its_rows_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports(tmp_path)
    for found in predictions(tmp_path):
        _, _, predicted, measured, off = TOLD[found.cost]
        assert (round(found.predicted), found.measured, round(100 * found.off)) == (predicted, measured, off)
        assert found.holds
    assert main([str(tmp_path)]) == 0
    assert "400: 335 predicted, 317 measured, off by +6%" in capsys.readouterr().out


def test_one_that_is_too_far_off_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports(tmp_path)
    report(tmp_path, MANY, dict.fromkeys(COSTS, 200.0))
    assert main([str(tmp_path)]) == 1
    assert "off by +68%" in capsys.readouterr().out


def test_what_is_missing_or_does_not_count_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 1
    assert "make bench-full ROW=partitions-4" in capsys.readouterr().err
    reports(tmp_path, smoke=True)
    assert main([str(tmp_path)]) == 1
    assert "a smoke run" in capsys.readouterr().err
