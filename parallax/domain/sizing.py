"""What a load takes, reckoned from what was measured. Pure.

Every coefficient is a row of docs/scale.md or docs/sizing.md, measured on two cores that brokers, store and copier shared; a test
holds them to those pages. What comes out is arithmetic: nobody has measured it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from parallax.errors import InvalidNameError

GB = 10**9
MILLION = 10**6
LARGE_BATCH_BYTES, SMALL_BATCH_BYTES = 128 * 1024, 4 * 1024
COPIER_S_PER_GB = {LARGE_BATCH_BYTES: 1.28, SMALL_BATCH_BYTES: 5.68}
"""By the least batch for which it was measured."""
FEW_RECORDS = 5
COPIER_S_PER_MILLION = {FEW_RECORDS: 1.8, 1: 2.7}
"""In batches that are smaller than both: by the least number of records in one."""
BROKERS_S_PER_GB = 2.31
STORE_S_PER_GB = {LARGE_BATCH_BYTES: 0.14, SMALL_BATCH_BYTES: 0.27}
"""As the copier's; nothing was measured for smaller ones."""
LEASE_CORES = 0.514
"""That a lease of four partitions takes for transactions, however few records they have."""
LEASE_CORES_PER_TENFOLD = 0.076
"""More for each ten times as many partitions: 38 CPU s per million records, at 2,000 records/s."""
FEWEST_PARTITIONS, MOST_PARTITIONS = 4, 400
"""Of a lease, that were measured."""
LEASE_BYTES_PER_S = 214 * 10**6
LEASE_MIB = 310
MEDIAN_MS = {4: 9, 40: 12, 400: 43}
"""By partitions of a lease, at 2,000 records/s."""
TURNS_PER_S = 5
"""Of a lease, in which it may write a row to the store (`index.interval_ms`)."""
_MOST = 10**15
"""More of anything than there can be: what is reckoned stays a number."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be copied into one region.

    Attributes:
        sources: clusters that are copied: one route each.
        records_per_s: of each source.
        record_bytes: keys and values, before compression.
        batch_bytes: of producers' batches, before compression.
        partitions: of each source, of all topics together.
        busy: how much of a core may be used: the rest is for catching up.
    """

    sources: int
    records_per_s: float
    record_bytes: int
    batch_bytes: int
    partitions: int
    busy: float = 0.75

    def __post_init__(self) -> None:
        """Check that something is to be copied.

        Raises:
            InvalidNameError: a number is none that can be.
        """
        numbers = (self.sources, self.records_per_s, self.record_bytes, self.batch_bytes, self.partitions)
        if not all(0 < number <= _MOST for number in numbers) or not 0 < self.busy <= 1:
            raise InvalidNameError(
                "sources, records, bytes and partitions are greater than 0 and no more than 10^15, and 'busy' lies between 0 and 1"
            )

    @property
    def bytes_per_s(self) -> float:
        """Of each source."""
        return self.records_per_s * self.record_bytes


@dataclass(frozen=True, slots=True)
class Size:
    """What the load takes in the region that it is copied into. None: it was not measured.

    Attributes:
        copied_bytes_per_s: over all routes.
        shards_per_route: leases of each route; ``leases``, of all.
        copier_cores, broker_cores, store_cores: to have, for they are `Load.busy` of the time at most; brokers: source and target together,
            for copying alone, without replicas.
        lease_memory_mib: of the processes that hold leases; Spark's own comes on top.
        median_latency_ms: no more than this, from a record's timestamp to the commit of its copy.
        store_rows_per_s: at most; ``store_blocks_per_minute``, where each partition gets a record every minute.
        notes: what limits, and what nobody has measured.
    """

    copied_bytes_per_s: float
    shards_per_route: int
    leases: int
    copier_cores: float
    broker_cores: float
    store_cores: float | None
    lease_memory_mib: int
    median_latency_ms: int | None
    store_rows_per_s: int
    store_blocks_per_minute: int
    notes: tuple[str, ...]


def size_of(load: Load) -> Size:
    """What a load takes."""
    by_bytes = math.ceil(load.bytes_per_s / (LEASE_BYTES_PER_S * load.busy))
    by_partitions = math.ceil(load.partitions / MOST_PARTITIONS)
    shards = max(1, by_bytes, by_partitions)
    leases, partitions = shards * load.sources, math.ceil(load.partitions / shards)
    copied = load.bytes_per_s * load.sources
    copier = leases * _lease_cores(partitions) + load.sources * _copying_cores(load)
    of_store = _of_batches(STORE_S_PER_GB, load)
    medians = [median for least, median in MEDIAN_MS.items() if partitions <= least]
    return Size(
        copied_bytes_per_s=copied,
        shards_per_route=shards,
        leases=leases,
        copier_cores=round(copier / load.busy, 2),
        broker_cores=round(copied / GB * BROKERS_S_PER_GB / load.busy, 2),
        store_cores=None if of_store is None else round(copied / GB * of_store / load.busy, 2),
        lease_memory_mib=leases * LEASE_MIB,
        median_latency_ms=min(medians, default=None),
        store_rows_per_s=leases * TURNS_PER_S,
        store_blocks_per_minute=load.partitions * load.sources,
        notes=tuple(_notes(load, by_bytes, by_partitions)),
    )


def _lease_cores(partitions: int) -> float:
    tenfolds = math.log10(max(partitions, FEWEST_PARTITIONS) / FEWEST_PARTITIONS)
    return LEASE_CORES + LEASE_CORES_PER_TENFOLD * tenfolds


def _copying_cores(load: Load) -> float:
    """Of one route, besides its transactions."""
    per_gb = _of_batches(COPIER_S_PER_GB, load)
    if per_gb is not None:
        return load.bytes_per_s / GB * per_gb
    records = load.batch_bytes // load.record_bytes
    per_million = COPIER_S_PER_MILLION[FEW_RECORDS if records >= FEW_RECORDS else 1]
    return load.records_per_s / MILLION * per_million


def _of_batches(per_gb: Mapping[int, float], load: Load) -> float | None:
    """What was measured with the largest batches that are no larger than the load's; None: nothing."""
    return next((cost for least_bytes, cost in per_gb.items() if load.batch_bytes >= least_bytes), None)


def _notes(load: Load, by_bytes: int, by_partitions: int) -> Iterator[str]:
    if by_partitions > max(1, by_bytes):
        yield f"leases go by partitions: beyond {MOST_PARTITIONS} of a lease nothing was measured"
    elif by_bytes > 1:
        yield f"leases go by bytes: one carries {LEASE_BYTES_PER_S // 10**6} MB/s"
    if load.batch_bytes < SMALL_BATCH_BYTES:
        yield "what the store takes with smaller batches was not measured"
        yield "small batches make the copier dear: raise producers' linger.ms and batch.size before anything else"
    yield "TLS (1.6 times the copier's CPU) and replicas of the target's brokers come on top"
    yield "reckoned from measurements of one machine (docs/scale.md): try yours with make bench"
