"""`parallax size`: what a load takes in the region that it is copied into, reckoned from measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from parallax.cli.options import JsonOption
from parallax.cli.output import console, table
from parallax.cli.rows import DocumentFormat, DocumentOption, written
from parallax.domain.sizing import Load, Size, size_of

_ROWS: tuple[tuple[str, Callable[[Size], str]], ...] = (
    ("copied, MB/s", lambda size: f"{size.copied_bytes_per_s / 1_000_000:,.1f}"),
    ("replicator.shards_per_route", lambda size: f"{size.shards_per_route:,}"),
    ("leases", lambda size: f"{size.leases:,}"),
    ("cores of copiers", lambda size: f"{size.copier_cores:,.1f}"),
    ("cores of brokers, for copying", lambda size: f"{size.broker_cores:,.1f}"),
    ("cores of the store", lambda size: "-" if size.store_cores is None else f"{size.store_cores:,.1f}"),
    ("memory of leases, MiB", lambda size: f"{size.lease_memory_mib:,}"),
    (
        "median latency, ms",
        lambda size: "-" if size.median_latency_ms is None else f"{size.median_latency_ms:,} at most",
    ),
    ("rows/s into the store", lambda size: f"{size.store_rows_per_s:,} at most"),
    ("blocks a minute into the store", lambda size: f"{size.store_blocks_per_minute:,} at most"),
)


def size(
    records_per_s: Annotated[float, typer.Option("--records-per-s", help="Of each source.")],
    partitions: Annotated[
        int, typer.Option("--partitions", help="Of each source, of all topics that are copied together.")
    ],
    sources: Annotated[int, typer.Option("--sources", help="Clusters that are copied into the region.")] = 2,
    record_bytes: Annotated[
        int, typer.Option("--record-bytes", help="Key and value, before compression.")
    ] = 200,
    batch_bytes: Annotated[
        int, typer.Option("--batch-bytes", help="Of producers' batches, before compression.")
    ] = 128 * 1024,
    busy: Annotated[
        float, typer.Option("--busy", help="Of a core that is used; the rest is for catching up.")
    ] = 0.75,
    output: DocumentOption = DocumentFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Reckon what a load takes: leases, cores, memory, latency. Nothing is asked, and nothing started."""
    load = Load(sources, records_per_s, record_bytes, batch_bytes, partitions, busy)
    found = size_of(load)
    if written(document(load, found), output, as_json=as_json):
        return
    rows = table("~what | >how much")
    for name, text in _ROWS:
        rows.add_row(name, text(found))
    console().print(rows)
    for note in found.notes:
        console().print(f"  {note}", markup=False, highlight=False)


def document(load: Load, found: Size) -> dict[str, Any]:
    """The answer, with the question, as JSON types."""
    return {"load": asdict(load), "size": {**asdict(found), "notes": list(found.notes)}}
