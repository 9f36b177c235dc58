"""What a load takes: by the figures of docs/scale.md and docs/sizing.md."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from parallax.domain import sizing
from parallax.domain.sizing import Load, size_of
from parallax.errors import InvalidNameError

DOCS = Path(__file__).parents[4] / "docs"
LOAD = Load(
    sources=2, records_per_s=100_000, record_bytes=500, batch_bytes=128 * 1024, partitions=400, busy=0.5
)


def row(page: str, begin: str) -> str:
    """The line of a table that begins so."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    [found] = [line for line in lines if line.startswith(f"| {begin}")]
    return found


@pytest.mark.parametrize(
    ("page", "begin", "said"),
    [
        (
            "scale.md",
            "copier, 128 KiB batches",
            f"{sizing.COPIER_S_PER_GB[sizing.LARGE_BATCH_BYTES]} CPU s per GB",
        ),
        (
            "scale.md",
            "copier, 4 KiB batches",
            f"{sizing.COPIER_S_PER_GB[sizing.SMALL_BATCH_BYTES]} per GB",
        ),
        ("scale.md", "the same, 4 KiB batches", f"{sizing.BROKERS_S_PER_GB} per GB"),
        *(
            ("scale.md", f"Cassandra, catching up, {kib} KiB", f"{sizing.STORE_S_PER_GB[kib * 1024]} per GB")
            for kib in (128, 4)
        ),
        ("scale.md", "a stream of single records", f"{sizing.LEASE_CORES} cores and"),
        ("scale.md", "one lease", f"{sizing.LEASE_BYTES_PER_S // 10**6} MB/s"),
        ("scale.md", "a lease's process", f"{sizing.LEASE_MIB} MiB"),
        (
            "sizing.md",
            "CPU, while it catches up",
            (
                f"{sizing.COPIER_S_PER_MILLION[5]} in batches of {sizing.FEW_RECORDS} records, "
                f"{sizing.COPIER_S_PER_MILLION[1]} in batches of one"
            ),
        ),
        ("sizing.md", "latency", "p50 9 ms over 4 partitions, 12 over 40, 43 over 400"),
    ],
)
def test_the_pages_have_the_very_coefficients(page: str, begin: str, said: str) -> None:
    assert said in row(page, begin)


def test_a_lease_takes_more_by_the_step_that_was_measured() -> None:
    cells = re.findall(r"\d+", row("scale.md", "copier | 259"))
    four, _, _, forty = map(int, cells[:4])
    step = (forty - four) * 2_000 / 1_000_000
    assert pytest.approx(step) == sizing.LEASE_CORES_PER_TENFOLD


def test_a_load_is_reckoned() -> None:
    found = size_of(LOAD)
    assert (found.shards_per_route, found.leases, found.lease_memory_mib) == (1, 2, 620)
    assert found.copied_bytes_per_s == 100_000_000
    # Two leases of 400 partitions, two tenfolds above four, and 0.1 GB/s, all of it half of the time.
    assert found.copier_cores == pytest.approx((2 * (0.514 + 2 * 0.076) + 0.1 * 1.28) / 0.5, abs=0.01)
    assert found.broker_cores == pytest.approx(0.1 * 2.31 / 0.5, abs=0.01)
    assert found.store_cores == pytest.approx(0.1 * 0.14 / 0.5, abs=0.01)
    assert (found.median_latency_ms, found.store_rows_per_s, found.store_blocks_per_minute) == (43, 10, 800)


def test_leases_go_by_what_needs_more_of_them() -> None:
    by_partitions = size_of(replace(LOAD, partitions=401))
    assert (by_partitions.shards_per_route, by_partitions.median_latency_ms) == (2, 43)
    assert "leases go by partitions" in by_partitions.notes[0]
    by_bytes = size_of(replace(LOAD, records_per_s=1_000_000))
    assert by_bytes.shards_per_route == 5  # 500 MB/s, of which half of 214 in each
    assert "leases go by bytes" in by_bytes.notes[0]
    assert by_bytes.median_latency_ms == 43
    assert size_of(replace(LOAD, partitions=40)).median_latency_ms == 12


@pytest.mark.parametrize(
    ("batch_bytes", "record_bytes", "cpu_s_per_s", "store_s_per_gb"),
    [
        (64 * 1024, 500, 0.1 * 5.68, 0.27),
        (4_000, 500, 0.2 * 1.8, None),
        (1_000, 500, 0.2 * 2.7, None),
    ],
)
def test_smaller_batches_are_dearer_and_of_the_smallest_the_store_is_unknown(
    batch_bytes: int, record_bytes: int, cpu_s_per_s: float, store_s_per_gb: float | None
) -> None:
    found = size_of(replace(LOAD, batch_bytes=batch_bytes, record_bytes=record_bytes))
    leases = 2 * (0.514 + 2 * 0.076)
    assert found.copier_cores == pytest.approx((leases + cpu_s_per_s) / 0.5, abs=0.01)
    reckoned = None if store_s_per_gb is None else pytest.approx(0.1 * store_s_per_gb / 0.5, abs=0.01)
    assert found.store_cores == reckoned
    assert any("store" in note for note in found.notes) is (reckoned is None)


@pytest.mark.parametrize(
    "change", [{"sources": 0}, {"records_per_s": 0.0}, {"partitions": -1}, {"busy": 1.5}, {"busy": 0.0}]
)
def test_a_load_that_is_none_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidNameError):
        replace(LOAD, **change)  # type: ignore[arg-type]
