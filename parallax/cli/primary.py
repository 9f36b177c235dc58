"""`parallax primary` and `parallax regions`: where groups are primary, and what regions there are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from parallax.cli import completion
from parallax.cli.connecting import connect
from parallax.cli.options import (
    MOST_64,
    TIMEOUT_MS,
    ActorOption,
    AuthorityOption,
    JsonOption,
    ServiceOption,
    ServicesConfigOption,
    TimeoutOption,
)
from parallax.cli.output import console, table
from parallax.cli.rows import DocumentFormat, DocumentOption, written
from parallax.client.json import to_json
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import Change, Mode
from parallax.errors import InvalidNameError
from parallax.picture.text import name_of, visible
from parallax.ports.audit import operator_of
from parallax.v1 import primaries_pb2 as pb


def primary(
    group: Annotated[
        str | None,
        typer.Argument(
            help="A consumer group. Default: every group with a recorded primary.",
            autocompletion=completion.groups,
        ),
    ] = None,
    set_to: Annotated[
        str | None,
        typer.Option(
            "--set",
            help="The region that shall be primary. Moves no offsets.",
            autocompletion=completion.regions,
        ),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            "--mode",
            help="active_passive: the primary consumes; active_active: every region consumes, the primary "
            "publishes. Default: as before.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="The aggregate cluster to consume. Default: the region's own."),
    ] = None,
    disaster: Annotated[
        bool,
        typer.Option("--disaster", help="Decide where the service lives, without the regions that are gone."),
    ] = False,
    expect: Annotated[
        int | None,
        typer.Option(
            "--expect",
            min=0,
            max=MOST_64,
            help="Refuse unless this is the group's fencing number (0: none yet).",
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the decision.")] = "",
    actor: ActorOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be decided, decide nothing.")
    ] = False,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    output: DocumentOption = DocumentFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Show where a group is primary, or set it.

    Setting it moves no offsets: `parallax failover` moves a group with its offsets and sets the primary itself.
    """
    if group is None and set_to is not None:
        raise InvalidNameError("--set: name the group whose primary shall be set")
    if set_to is None and (
        disaster or dry_run or any(given is not None for given in (mode, cluster, expect, actor))
    ):
        raise InvalidNameError(
            "--mode, --cluster, --disaster, --expect, --actor and --dry-run go with --set REGION"
        )
    with connect(config, service, tls_ca, timeout_ms) as client:
        if group is None:
            found = list(client.list_primaries().primaries)
        elif set_to is None:
            found = [client.get_primary(group)]
        else:
            change = Change(
                group=GroupName(group),
                primary=RegionName(set_to),
                mode=mode,
                cluster=None if cluster is None else ClusterName(cluster),
                expected_number=expect,
                disaster=disaster,
                reason=reason,
            )
            found = [client.set_primary(change, dry_run=dry_run, actor=operator_of(actor).name)]
    values = [to_json(item) for item in found]
    if written(values if group is None else values[0], output, as_json=as_json):
        return
    _show(found, console(), dry_run=dry_run)
    if set_to is not None and found[0].decision.mode == pb.ACTIVE_PASSIVE:
        console().print(
            f"no offsets were moved: if group {group} goes on consuming another cluster than "
            f"{found[0].decision.cluster}, nothing is synced for it any more (`parallax sync` says active "
            "elsewhere) until it is moved (parallax failover) or recorded where it is (--set)",
            style="yellow",
            markup=False,
        )


def _show(found: list[pb.Primary], out: Console, *, dry_run: bool) -> None:
    if not any(item.HasField("decision") or item.problem for item in found):
        out.print("no primary is recorded: offsets follow where the group makes progress")
        return
    decisions = table(
        "group | mode | primary | consumes | stage | >fencing number | ~decided | ~in | ~reason",
        title="would be decided; nothing was" if dry_run else None,
    )
    for item in found:
        if item.HasField("decision"):
            decisions.add_row(item.group, *_cells(item.decision))
        for rival in item.rivals:
            named = Text.assemble(visible(item.group), " ", ("DUAL_ACTIVE", "bold red"))
            decisions.add_row(named, *_cells(rival), style="red")
    out.print(decisions)
    for item in found:
        if item.problem:
            out.print(f"group {item.group}: {item.problem}", style="bold red", markup=False)
        if item.dual_active:
            out.print(
                f"group {item.group}: regions that could not see each other decided differently; the highest "
                "fencing number wins, and nothing is synced until the primary is set again "
                f"(parallax primary {item.group} --set REGION)",
                style="red",
                markup=False,
            )


def _cells(decision: pb.PrimaryDecision) -> tuple[str, ...]:
    at = datetime.fromtimestamp(decision.decided_at_ms / 1_000, UTC)
    moving = f" from {decision.moving_from}" if decision.HasField("moving_from") else ""
    return (
        name_of(pb.PrimaryMode.Name, decision.mode).lower().replace("_", "/"),
        decision.region,
        decision.cluster if decision.HasField("cluster") else "every region",
        f"{name_of(pb.PrimaryStage.Name, decision.stage).lower()}{moving}",
        str(decision.fencing_number),
        f"{at:%Y-%m-%d %H:%M:%S}Z{' (disaster)' if decision.disaster else ''}",
        decision.decided_in,
        decision.reason,
    )


def regions(
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    output: DocumentOption = DocumentFormat.TABLE,
    as_json: JsonOption = False,
) -> None:
    """List the regions with their clusters and services, and which aggregate clusters answer the service asked."""
    with connect(config, service, tls_ca, timeout_ms) as client:
        answer = client.describe_regions()
    if written(to_json(answer), output, as_json=as_json):
        return
    clusters = table("region | cluster | bootstrap servers | security | health | offset service")
    for region in answer.regions:
        for kind in ("aggregate", "regional"):
            if region.HasField(kind):
                item: pb.ClusterDescription = getattr(region, kind)
                clusters.add_row(
                    region.region,
                    item.cluster,
                    item.bootstrap_servers,
                    f"{item.security_protocol} {item.sasl_mechanism}".strip(),
                    _health(item),
                    region.service_grpc if region.HasField("service_grpc") else "-",
                )
    out = console()
    out.print(clusters)
    out.print(f"answered by the service of region {answer.answered_in}")


def _health(item: pb.ClusterDescription) -> Text:
    if item.health == pb.AWAY:
        return Text.assemble(("away", "red"), f": {visible(item.problem)}")
    return Text("up", "green") if item.health == pb.UP else Text("not asked")
