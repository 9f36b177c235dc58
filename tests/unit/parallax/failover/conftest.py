"""The bench that most tests of moves begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worlds.failover_bench import Bench, failover_bench, two_sources


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The group has consumed a0..9 and b0..4 on a."""
    with failover_bench() as made:
        two_sources(made.world)
        made.world.commit("a", 15)
        yield made
