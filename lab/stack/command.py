"""`parallax stack`: real brokers, Cassandra and the services on this machine."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from lab.stack.control import StackClient
from lab.stack.errors import SpecError
from lab.stack.layout import default_directory
from lab.stack.secure.material import MECHANISM
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack, wipe
from lab.stack.supervisor import run_stack, start_detached

app = typer.Typer(help="Run real brokers, Cassandra and the services on this machine.", no_args_is_help=True)

_REFRESH_S = 1.0
_STATE_STYLES = {
    "ready": "green",
    "starting": "yellow",
    "frozen": "blue",
    "killed": "red",
    "died": "bold red",
    "stopped": "dim",
}

_Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="The stack's folder. Default: PARALLAX_STACK_DIR, or build/stack here."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Name = Annotated[str, typer.Argument(help="A process, a cluster (aggregate-a) or a region (region-a).")]

_console = Console()
_errors = Console(stderr=True)


@app.command()
def up(
    directory: _Directory = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once everything is ready.")] = False,
    regions: Annotated[str, typer.Option(help="Region names, separated by commas.")] = "a,b",
    brokers: Annotated[
        list[str] | None, typer.Option(help="Brokers of a cluster, CLUSTER=COUNT; may be repeated.")
    ] = None,
    as_json: _Json = False,
    only_infrastructure: Annotated[
        bool, typer.Option("--only-infrastructure", help="Brokers and Cassandra without the services.")
    ] = False,
    cassandra_per_region: Annotated[
        bool,
        typer.Option("--cassandra-per-region", help="One Cassandra node and datacenter for each region."),
    ] = False,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="TLS, passwords and least rights everywhere; what they are lies in the folder."
        ),
    ] = False,
    mechanism: Annotated[
        str,
        typer.Option(
            help="With --secure: how everybody proves to brokers who they are: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER "
            "(then tokens at offset services too) or mtls."
        ),
    ] = MECHANISM,
    mode: Annotated[
        str,
        typer.Option(
            help="aggregation, or one cluster in each region: two-way, or active-standby (producers in the first region alone)."
        ),
    ] = "aggregation",
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the data of an earlier run first.")] = False,
) -> None:
    """Start the stack; data and ports of an earlier run in the same folder are used again."""
    spec = StackSpec(
        regions=tuple(name.strip() for name in regions.split(",")),
        brokers=dict(_broker_count(text) for text in brokers or ()),
        services=not only_infrastructure,
        consoles=not only_infrastructure,
        cassandra_per_region=cassandra_per_region,
        secure=secure,
        mode=mode,  # type: ignore[arg-type] # the spec looks at it
        mechanism=mechanism,  # type: ignore[arg-type] # the spec looks at it
    )
    chosen = _chosen(directory)
    if fresh:
        wipe(chosen)
    if detach:
        client = start_detached(spec, chosen, _progress)
        _show(client.status(), as_json=as_json)
    else:
        run_stack(spec, chosen, _progress, _watch_json if as_json else _watch_live)


@app.command()
def status(directory: _Directory = None, as_json: _Json = False) -> None:
    """Show addresses, processes and their logs."""
    _show(StackClient(_chosen(directory)).status(), as_json=as_json)


@app.command()
def down(directory: _Directory = None) -> None:
    """Stop everything; data is kept."""
    client = StackClient(_chosen(directory))
    client.down()
    _progress(f"stopped: {client.directory}")


@app.command()
def kill(name: _Name, directory: _Directory = None) -> None:
    """End a process, a cluster or a region at once with SIGKILL, as a power cut would."""
    StackClient(_chosen(directory)).kill(name)
    _progress(f"{name}: killed")


@app.command()
def freeze(name: _Name, directory: _Directory = None) -> None:
    """Freeze a process, a cluster or a region with SIGSTOP: it keeps its connections and says nothing until `start`."""
    StackClient(_chosen(directory)).freeze(name)
    _progress(f"{name}: frozen")


@app.command()
def start(name: _Name, directory: _Directory = None) -> None:
    """Start a process, a cluster or a region again, on its old ports and data; thaw what is frozen."""
    StackClient(_chosen(directory)).start(name)
    _progress(f"{name}: ready")


def _chosen(directory: Path | None) -> Path:
    return directory.absolute() if directory is not None else default_directory()


def _broker_count(text: str) -> tuple[str, int]:
    cluster, equals, count = text.partition("=")
    if not equals or not count.isdigit():
        raise SpecError(f"--brokers {text}: expected CLUSTER=COUNT, for example aggregate-a=3.")
    return cluster, int(count)


def _progress(line: str) -> None:
    _errors.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _show(state: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(state) + "\n")
        sys.stdout.flush()
    else:
        _console.print(_region_table(state))
        _console.print(_process_table(state))
        # Their folder once: with it no line of the table would fit a terminal.
        for folder in sorted({str(Path(process["log"]).parent) for process in state["processes"]}):
            _console.print(f"logs: {folder}", markup=False, highlight=False, soft_wrap=True)


def _watch_json(stack: LocalStack, down_requested: threading.Event) -> None:
    _show(stack.status(), as_json=True)
    down_requested.wait()


def _watch_live(stack: LocalStack, down_requested: threading.Event) -> None:
    _console.print(_region_table(stack.status()))
    with Live(_process_table(stack.status()), console=_console, auto_refresh=False) as live:
        while not down_requested.wait(_REFRESH_S):
            live.update(_process_table(stack.status()), refresh=True)


def _region_table(state: dict[str, Any]) -> Table:
    """One column per region: it fits a terminal of 80 characters."""
    table = Table("", *(f"region {region}" for region in state["regions"]), box=None)
    for name in ("regional", "aggregate", "grpc", "rest", "replicator", "cassandra", "console"):
        if any(name in addresses for addresses in state["regions"].values()):
            table.add_row(name, *(addresses.get(name, "-") for addresses in state["regions"].values()))
    return table


def _process_table(state: dict[str, Any]) -> Table:
    table = Table("process", "state", "pid", "log", box=None)
    for process in state["processes"]:
        style = _STATE_STYLES[process["state"]]
        name = Path(process["log"]).name
        table.add_row(process["name"], f"[{style}]{process['state']}[/]", str(process["pid"] or ""), name)
    return table
