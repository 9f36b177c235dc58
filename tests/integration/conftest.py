"""Regions at work over the shared brokers, for tests of moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import Stack
from tests.worlds.live import Live, live_world, new_keyspace


@pytest.fixture(scope="module")
def regions(infrastructure: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Two regions that go on from test to test."""
    store = new_keyspace(infrastructure.cassandra_address())
    directory = tmp_path_factory.mktemp("regions")
    with live_world(dict.fromkeys("ab", infrastructure), dict.fromkeys("ab", store), directory) as made:
        yield made


@pytest.fixture
def live(regions: Live) -> Live:
    """These regions with a topic of the test's own; what an earlier test has killed is there."""
    regions.serve(*(region for region in regions.names if region not in regions.services))
    return regions.on_new_topic()
