"""The query that replicates into a region: its leases, its holder."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from structlog.testing import capture_logs

from parallax.adapters.spark.reporting import StatusTarget
from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route
from replicator.lease import Lease
from replicator.leases import query as query_module
from replicator.leases.query import AggregateHolder, LeasePlan, lease_keys, routes_of

A_TO_B = Route(RegionName("a"), RegionName("b"))
B_TO_B = Route(RegionName("b"), RegionName("b"))
TOKEN = "a-test's-own"  # noqa: S105 - no secret
PASSWORD = "never-to-be-seen"  # noqa: S105 - looked for


def config(**replicator: object) -> Config:
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    region = {"regional": cluster, "aggregate": cluster}
    return Config.model_validate(
        {
            "regions": {"a": region, "b": region},
            "cassandra": {"contact_points": ["127.0.0.1:2"], "username": "u", "password": PASSWORD},
            "replicator": replicator,
        }
    )


def test_an_epoch_has_one_lease_per_route_and_shard() -> None:
    plan = LeasePlan({B_TO_B: 7, A_TO_B: 3}, shard_count=2, epoch_ms=600_000)
    leases = [Lease.from_json(values) for values in plan.plan(epoch=5)]
    assert [(lease.route, lease.shard, lease.layout) for lease in leases] == [
        (A_TO_B, 0, 3),
        (A_TO_B, 1, 3),
        (B_TO_B, 0, 7),
        (B_TO_B, 1, 7),
    ]
    assert {(lease.epoch, lease.shard_count, lease.available_now) for lease in leases} == {(5, 2, False)}
    assert len({lease.deadline_unix_ms for lease in leases}) == 1


def test_an_epoch_s_deadline_counts_from_its_own_plan() -> None:
    plan = LeasePlan({A_TO_B: 1}, shard_count=1, epoch_ms=1_000)
    first, second = (plan.plan(epoch)[0]["deadline_unix_ms"] for epoch in (1, 2))
    assert second >= first


def test_a_lease_survives_json() -> None:
    lease = Lease(A_TO_B, 1, 2, 3, 4, 5, available_now=True)
    assert Lease.from_json(json.loads(json.dumps(lease.to_json()))) == lease


def test_leases_are_counted_over_all_routes_of_all_regions() -> None:
    settings = config(shards_per_route=3)
    routes = routes_of(settings, [RegionName("a"), RegionName("b"), RegionName("a")])
    assert len(routes) == 4
    assert len(set(lease_keys(settings, routes))) == 12


def test_neither_holder_nor_target_shows_a_secret() -> None:
    target = StatusTarget("127.0.0.1", 1, TOKEN)
    shown = repr(AggregateHolder(config(), target, "b", {})) + repr(target)
    assert TOKEN not in shown
    assert PASSWORD not in shown


class Going:
    """Stands for a holding that goes on."""

    lasts = True

    def __init__(self, *_: Any) -> None:
        pass

    def goes_on(self, _lease: Lease) -> bool:
        return True

    def wait(self) -> dict[str, int]:
        return {"records": 3}


def test_which_process_begins_to_hold_a_lease_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_module, "Holding", Going)
    monkeypatch.setattr(query_module, "_holdings", {})
    holder = AggregateHolder(config(), StatusTarget("127.0.0.1", 9, ""), "b", {A_TO_B: 7})
    with capture_logs() as logs:
        for epoch in (1, 2):
            holder.hold(Lease(A_TO_B, 0, 1, 7, epoch, 0).to_json())
    begun = [item for item in logs if item["event"] == "lease_begun"]
    assert [(item["lease"], item["process"]) for item in begun] == [
        (str(Lease(A_TO_B, 0, 1, 7, 1, 0)), os.getpid())
    ]
    assert [item["event"] for item in logs].count("lease_ended") == 2
