"""A pool's threads bear its name where tools of the system look."""

from __future__ import annotations

import threading
from pathlib import Path

from offsetsvc.parallel import named_pool


def name_for_the_kernel() -> str:
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text(encoding="utf-8").strip()


def test_the_kernel_knows_a_thread_by_its_pool() -> None:
    with named_pool(2, "some-pool") as pool:
        assert pool.submit(name_for_the_kernel).result() == "some-pool"
    with named_pool(1, "a-name-that-is-too-long") as pool:
        assert pool.submit(name_for_the_kernel).result() == "a-name-that-is-"
    assert "pool" not in name_for_the_kernel()
