"""Which offset services a move asks."""

from __future__ import annotations

import pytest

from parallax.config.config import Config
from parallax.domain.ids import RegionName
from parallax.errors import (
    ConfigError,
    ServiceUnavailableError,
)
from parallax.failover.opening import without
from parallax.wiring import service_targets
from tests.worlds.failover_bench import (
    Bench,
)
from tests.worlds.offset_world import GROUP


def test_services_are_asked_from_the_living_side_on(bench: Bench) -> None:
    cluster = {"bootstrap_servers": "127.0.0.1:1"}

    def config(*names: str) -> Config:
        regions = {
            name: {"aggregate": cluster, "offsetsvc": {"grpc": f"{name}:7600", "rest": f"{name}:7601"}}
            for name in names
        }
        return Config.model_validate({"regions": regions, "cassandra": {"contact_points": ["127.0.0.1"]}})

    order = service_targets(config("a", "b", "c"), first=RegionName("c"), last=RegionName("a"))
    assert order == ["c:7600", "b:7600", "a:7600"]
    lost = {RegionName("a")}
    assert service_targets(config("a", "b", "c"), first=RegionName("b"), lost=lost) == ["b:7600", "c:7600"]
    assert service_targets(config("a"), first=RegionName("b"), lost=lost) == ["a:7600"]
    with pytest.raises(ConfigError, match="nobody to ask"):
        service_targets(bench.world.config)


def test_a_client_without_the_lost_regions_is_another_one(bench: Bench) -> None:
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    services = {
        name: {
            "aggregate": cluster,
            "offsetsvc": {"grpc": f"127.0.0.1:{port}", "rest": f"127.0.0.1:{port + 1}"},
        }
        for name, port in (("a", 2), ("b", 4))
    }
    config = Config.model_validate(
        {"regions": services, "cassandra": {"contact_points": ["127.0.0.1"]}, "service": {"deadline_ms": 300}}
    )
    with without(config, bench.outside, set()) as same:
        assert same is bench.outside
    with (
        without(config, bench.outside, {RegionName("a")}, first=RegionName("b")) as living,
        pytest.raises(ServiceUnavailableError, match=r"127\.0\.0\.1:4") as failure,
    ):
        living.services.assignment(GROUP)
    assert "127.0.0.1:2" not in str(failure.value)
