from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.worlds.sync_bench import Bench, sync_benches


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    with sync_benches() as make:
        yield make
