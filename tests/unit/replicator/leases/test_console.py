"""The live view of replication."""

from __future__ import annotations

from parallax.domain.ids import RegionName, Route
from replicator.leases.board import RouteSummary
from replicator.leases.console import rates, route_table

A_TO_B = Route(RegionName("a"), RegionName("b"))


def test_rates_are_differences_over_time() -> None:
    def summary(records: int) -> RouteSummary:
        return RouteSummary(A_TO_B, records, records * 100, 3, 12.0, 5.0, 1, "")

    (rate,) = rates({A_TO_B: summary(100)}, [summary(400)], elapsed_s=2.0)
    assert (rate.records_per_s, rate.bytes_per_s) == (150, 15_000)
    (first,) = rates({}, [summary(400)], elapsed_s=2.0)
    assert first.records_per_s == 0
    assert route_table([rate]).row_count == 1
