from __future__ import annotations

from contextlib import ExitStack

import pytest

from offsetsvc.command import start
from parallax.config.config import ServiceAddresses
from parallax.domain.ids import RegionName
from parallax.errors import ConfigError
from tests.worlds.offset_world import World


@pytest.mark.parametrize(
    "addresses",
    [{"grpc": "0.0.0.0:0", "rest": "127.0.0.1:0"}, {"grpc": "127.0.0.1:0", "rest": "offsets.example:0"}],
)
def test_nobody_serves_strangers_unasked(addresses: dict[str, str]) -> None:
    config = World().config
    region = config.regions["a"]
    service = ServiceAddresses(**addresses)
    regions = {**config.regions, "a": region.model_copy(update={"offsetsvc": service})}
    settings = config.model_copy(update={"regions": regions})
    with ExitStack() as stack, pytest.raises(ConfigError, match=r"service\.auth is none"):
        start(settings, RegionName("a"), stack)
