"""The live view of replication."""

from __future__ import annotations

import sys

import pytest
from structlog.testing import capture_logs

from parallax.domain.ids import RegionName, Route
from replicator.lease import LeaseKey
from replicator.leases import console
from replicator.leases.board import ProgressBoard, RouteSummary
from replicator.leases.console import progress_view, rates, route_table

A_TO_B = Route(RegionName("a"), RegionName("b"))


def test_rates_are_differences_over_time() -> None:
    def summary(records: int) -> RouteSummary:
        return RouteSummary(A_TO_B, records, records * 100, 3, 12.0, 5.0, 1, "")

    (rate,) = rates({A_TO_B: summary(100)}, [summary(400)], elapsed_s=2.0)
    assert (rate.records_per_s, rate.bytes_per_s) == (150, 15_000)
    (first,) = rates({}, [summary(400)], elapsed_s=2.0)
    assert first.records_per_s == 0
    assert route_table([rate]).row_count == 1


def test_elsewhere_than_on_a_terminal_every_route_is_a_log_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with capture_logs() as lines, progress_view(ProgressBoard([LeaseKey(A_TO_B, 0)])) as view:
        view()
        assert not lines, "it is not yet time"
        monkeypatch.setattr(console, "LINE_EVERY_S", 0.0)
        with progress_view(ProgressBoard([LeaseKey(A_TO_B, 0)])) as at_once:
            at_once()
    (line,) = lines
    assert (line["event"], line["route"], line["records"]) == ("progress", "a->b", 0)


def test_on_a_terminal_it_is_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(console, "TABLE_EVERY_S", 0.0)
    with capture_logs() as lines, progress_view(ProgressBoard([LeaseKey(A_TO_B, 0)])) as view:
        view()
    assert not lines
    assert "a->b" in capsys.readouterr().err
