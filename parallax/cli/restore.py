"""`parallax restore`: what a cluster that has come back still lacks of what was produced elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from parallax.cli import completion
from parallax.cli.options import ConfigOption, JsonOption, finite
from parallax.cli.output import console, log_beside_result, print_json, table
from parallax.config.config import load
from parallax.domain.ids import RegionName, aggregate_cluster
from parallax.failover.opening import open_restoring
from parallax.failover.restoring import Coming, all_is_there, names_of, offsets_left, without_end
from parallax.failover.timekeeper import StoppedError
from parallax.runtime.process import stopping


def restore(
    config: ConfigOption,
    region: Annotated[
        str, typer.Option("--region", help="Whose cluster has come back.", autocompletion=completion.regions)
    ],
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Only what is produced there. Default: by every route from another region.",
            autocompletion=completion.regions,
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until everything is there that the others held when the command began."
        ),
    ] = False,
    patience_s: Annotated[
        float,
        typer.Option(
            "--patience-s",
            min=1,
            callback=finite,
            help="With --wait: give up after nothing came for so long.",
        ),
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Tell what a region's cluster still lacks of what was produced elsewhere while it was away, or wait until it is there.

    Nothing is changed: the region's replicator copies it, and deletes nothing. Exit code 1: something is left, or it is not known.
    """
    log_beside_result(json=as_json)
    settings = load(config)
    stop = threading.Event()
    with open_restoring(settings, stop) as restoring, stopping(stop):
        routes = restoring.routes(RegionName(region), None if origin is None else RegionName(origin))
        items = restoring.left(routes)
        if wait:
            with console(stderr=True, quiet=as_json).status(
                f"{offsets_left(items)} offsets are left"
            ) as status:
                try:
                    items = restoring.wait(
                        items,
                        lambda now: status.update(f"{offsets_left(now)} offsets are left"),
                        patience_ms=patience_s * 1_000,
                    )
                except StoppedError:
                    sys.stderr.write("stopped; copying goes on, and the same command waits again\n")
                    raise typer.Exit(1) from None
    if as_json:
        print_json(values_of(region, items))
    else:
        show(region, items, console())
    if not all_is_there(items):
        raise typer.Exit(1)


def values_of(region: str, items: Sequence[Coming]) -> dict[str, Any]:
    """What is left, as JSON types."""
    return {
        "region": region,
        "offsets_left": offsets_left(items),
        "unknown_partitions": len(without_end(items)),
        "partitions": [
            {
                "route": str(item.route),
                "topic": item.topic_partition.topic,
                "partition": item.topic_partition.partition,
                "source_next_offset": item.position,
                "source_end": item.end,
                "offsets_left": item.offsets,
            }
            for item in items
        ],
    }


def show(region: str, items: Sequence[Coming], out: Console) -> None:
    """What is left of each topic, for people."""
    left = [item for item in items if item.offsets != 0]
    if not left:
        out.print(
            f"{region}: everything is at {aggregate_cluster(RegionName(region))}",
            markup=False,
            highlight=False,
        )
        return
    rows = table("route | topic | >partitions | >offsets left", title=f"not yet at {region}")
    for route, topic in dict.fromkeys((item.route, item.topic_partition.topic) for item in left):
        of_topic = [item for item in left if (item.route, item.topic_partition.topic) == (route, topic)]
        offsets = f"{offsets_left(of_topic)}{' + ?' if without_end(of_topic) else ''}"
        rows.add_row(str(route), topic, str(len(of_topic)), offsets)
    out.print(rows)
    if unknown := without_end(left):
        out.print(
            f"not known is what is left of {names_of(unknown)}: no leader tells how much it holds; start its brokers",
            markup=False,
            highlight=False,
        )
    out.print(
        "the region's replicator copies what was produced there, passes over what are copies themselves, and deletes nothing; "
        "--wait waits for it",
        highlight=False,
    )
