"""REST: every handler that answers once as a URL. Answers are the proto's messages as JSON, errors RFC 9457 problems."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from offsetsvc.audit import MOST_ENTRIES
from offsetsvc.lookups import MOST_ROWS
from offsetsvc.metrics import ServiceMetrics
from offsetsvc.service import UseCases
from offsetsvc.transport.access import Access
from offsetsvc.transport.rest_access import AskedFirst, may_read_something
from offsetsvc.transport.rest_docs import docs_route
from offsetsvc.transport.rest_drills import drill_routes
from offsetsvc.transport.rest_moves import move_routes
from offsetsvc.transport.rest_overview import After, Prefix, overview_routes
from offsetsvc.transport.rest_problems import ProblemApp, problems
from offsetsvc.transport.rest_shell import INT32, INT64, Group, RouteText, Shell, described
from parallax.adapters.http.bodies import BoundedBodies
from parallax.adapters.http.connection import HttpLimits
from parallax.adapters.http.metrics import compressed, metrics_page
from parallax.errors import InvalidNameError
from parallax.identity.identity import Identity
from parallax.v1 import audit_pb2, primaries_pb2
from parallax.v1 import offsets_pb2 as pb

_DESCRIPTION = """
Where does a consumer group resume in another aggregate cluster, and why?

Every offset is a *next offset* (what a Kafka group commits: the first record not yet consumed), unless its name
says `record_offset`. `null` means unknown or none; it never means 0. Errors are problems (RFC 9457) with the
`code` that gRPC, logs and metrics use too.
"""

REST_LIMITS = HttpLimits()
"""The largest body is a decision: some names and a reason."""

Topic = Annotated[str, Path(description="A topic.")]
Partition = Annotated[int, Path(**INT32, description="A partition; source and target have the same number.")]
PlaceText = Annotated[str, Query(alias="to", description="Where the group goes: a region or a cluster.")]
OriginText = Annotated[
    str | None,
    Query(alias="from", description="Where it comes from; absent: the only other aggregate cluster."),
]


def policy_of(
    *,
    by_timestamp: Annotated[
        bool,
        Query(
            description="Where a source has no usable row, go by record timestamps instead of the log start."
        ),
    ] = False,
    margin_ms: Annotated[
        int | None,
        Query(
            **INT64,
            description="With by_timestamp: how much older than the position an unconsumed record may be.",
        ),
    ] = None,
    timestamp_ms: Annotated[
        int | None,
        Query(
            **INT64,
            description="With by_timestamp: go by this time (Unix epoch) instead of the position's.",
        ),
    ] = None,
) -> pb.TimestampPolicy | None:
    """The caller's choice of record timestamps; None: it was not made.

    Raises:
        InvalidNameError: it was not made, but a margin or a time is named.
    """
    if by_timestamp:
        return pb.TimestampPolicy(margin_ms=margin_ms, timestamp_ms=timestamp_ms)
    for value, what in ((margin_ms, "margin_ms"), (timestamp_ms, "timestamp_ms")):
        if value is not None:
            raise InvalidNameError(f"{what} means nothing unless resume offsets by timestamp are asked for")
    return None


ByTimestamp = Annotated[Any, Depends(policy_of)]

BodyText = Annotated[str, Field(min_length=0)]
"""Any text that UTF-8 can say; without a bound, halves of surrogate pairs would pass, which no message takes."""


class PrimaryBody(BaseModel):
    """What shall hold for a group; the proto's SetPrimaryRequest says what each field means."""

    model_config = ConfigDict(extra="forbid")

    region: Annotated[str, Field(min_length=1)]
    mode: Literal["ACTIVE_PASSIVE", "ACTIVE_ACTIVE"] | None = None
    cluster: BodyText | None = None
    stage: Literal["SETTLED", "MOVING"] = "SETTLED"
    moving_from: BodyText | None = None
    expected_fencing_number: Annotated[int, Field(**INT64)] | None = None
    disaster: bool = False
    renew: bool = False
    reason: BodyText = ""
    actor: BodyText = ""
    dry_run: bool = False


def create_app(
    service: UseCases,
    metrics: ServiceMetrics,
    limits: HttpLimits = REST_LIMITS,
    *,
    identity: Identity | None = None,
) -> FastAPI:
    """The application over one service.

    Args:
        service: the use cases.
        metrics: counts requests.
        limits: what callers may cost.
        identity: tells who calls, and whether it may; None: as the configuration says.
    """
    access = Access(identity or Identity(service.config.service.auth))
    app = ProblemApp(
        title="Parallax offset service", version="1", description=_DESCRIPTION, docs_url=None, redoc_url=None
    )
    shell = Shell(service, metrics, access)
    app.include_router(_failover(shell))
    app.include_router(_mapping(shell))
    app.include_router(_primaries(shell))
    app.include_router(_audit(shell))
    app.include_router(overview_routes(shell))
    app.include_router(move_routes(shell))
    app.include_router(drill_routes(shell, service.config.drill.group))
    app.include_router(_operation(service, metrics, access))
    app.include_router(docs_route(app))
    app.add_middleware(BoundedBodies, most_bytes=limits.body_bytes, within_s=limits.body_within_s)
    app.add_middleware(AskedFirst, access=access, metrics=metrics)
    app.add_middleware(compressed)
    return app


def _failover(shell: Shell) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["failover"])

    @router.get(
        "/groups/{group}/failover-offsets",
        **described(pb.GetGroupFailoverOffsetsResponse, 400, 404, 429, 503, 504),
    )
    def group_failover_offsets(
        group: Group,
        to: PlaceText,
        origin: OriginText = None,
        topic: Annotated[list[str] | None, Query(description="Only these topics; may be repeated.")] = None,
        by_timestamp: ByTimestamp = None,
    ) -> Response:
        """Where every partition of a group resumes, with explanation."""
        request = pb.GetGroupFailoverOffsetsRequest(
            group=group, topics=topic, by_timestamp=by_timestamp, **shell.move(origin, to)
        )
        return shell.answer(shell.handlers.GetGroupFailoverOffsets, request)

    @router.get(
        "/groups/{group}/topics/{topic}/partitions/{partition}/failover-offset",
        **described(pb.FailoverOffset, 400, 404, 503, 504),
    )
    def failover_offset(
        group: Group,
        topic: Topic,
        partition: Partition,
        to: PlaceText,
        origin: OriginText = None,
        next_offset: Annotated[
            int | None,
            Query(**INT64, description="The position to go by; absent: the group's committed offset."),
        ] = None,
        by_timestamp: ByTimestamp = None,
        *,
        nearest_checkpoint: Annotated[
            bool, Query(description="Tell `nearest_checkpoint_offset` too, for comparison.")
        ] = False,
    ) -> Response:
        """Where one partition of a group resumes, with explanation."""
        request = pb.GetFailoverOffsetRequest(
            group=group,
            topic=topic,
            partition=partition,
            next_offset=next_offset,
            by_timestamp=by_timestamp,
            nearest_checkpoint=nearest_checkpoint,
            **shell.move(origin, to),
        )
        return shell.answer(shell.handlers.GetFailoverOffset, request)

    @router.get("/groups/{group}/positions", **described(pb.GetGroupPositionsResponse, 404, 503))
    def group_positions(group: Group) -> Response:
        """The group's positions on every aggregate cluster, and what was published for it there."""
        return shell.answer(shell.handlers.GetGroupPositions, pb.GetGroupPositionsRequest(group=group))

    return router


def _mapping(shell: Shell) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["mapping"])
    partition_path = "/routes/{route}/topics/{topic}/partitions/{partition}"

    @router.get("/routes", **described(pb.ListRoutesResponse, 503, 504))
    def routes() -> Response:
        """Every route with the topics that it has copied."""
        return shell.answer(shell.handlers.ListRoutes, pb.ListRoutesRequest())

    @router.get(f"{partition_path}/runs", **described(pb.ListRunsResponse, 400, 404, 503))
    def runs(
        route: RouteText,
        topic: Topic,
        partition: Partition,
        start: Annotated[int, Query(ge=0, le=INT64["le"], description="From this target offset on.")] = 0,
        limit: Annotated[
            int,
            Query(
                ge=0,
                le=MOST_ROWS,
                description=f"Rows of each lineage, about; 0: the server's choice; at most {MOST_ROWS}.",
            ),
        ] = 0,
    ) -> Response:
        """Runs and watermarks (count 0) of a partition of a route."""
        request = pb.ListRunsRequest(route=route, topic=topic, partition=partition, start=start, limit=limit)
        return shell.answer(shell.handlers.ListRuns, request)

    @router.get(f"{partition_path}/watermarks", **described(pb.ListWatermarksResponse, 400, 404, 503))
    def watermarks(route: RouteText, topic: Topic, partition: Partition) -> Response:
        """How far each lineage of a partition has come: its newest row and that row's age."""
        request = pb.ListWatermarksRequest(route=route, topic=topic, partition=partition)
        return shell.answer(shell.handlers.ListWatermarks, request)

    @router.get(f"{partition_path}/translation", **described(pb.TranslateOffsetResponse, 400, 404, 503))
    def translation(
        route: RouteText,
        topic: Topic,
        partition: Partition,
        source_next_offset: Annotated[
            int | None, Query(**INT64, description="Of the regional cluster.")
        ] = None,
        target_next_offset: Annotated[
            int | None, Query(**INT64, description="Of the aggregate cluster.")
        ] = None,
        then: Annotated[
            list[str] | None,
            Query(description="Routes that follow, in their order: the target is the last one's."),
        ] = None,
    ) -> Response:
        """A next offset of one side of a route, or of several that follow each other, on the other; name exactly one."""
        if source_next_offset is not None and target_next_offset is not None:
            raise InvalidNameError("name either source_next_offset or target_next_offset")
        request = pb.TranslateOffsetRequest(
            route="" if then else route,
            path=[route, *then] if then else (),
            topic=topic,
            partition=partition,
            source_next_offset=source_next_offset,
            target_next_offset=target_next_offset,
        )
        return shell.answer(shell.handlers.TranslateOffset, request)

    @router.get(
        "/clusters/{cluster}/topics/{topic}/partitions/{partition}/records/{record_offset}/origin",
        **described(pb.LookupOriginResponse, 400, 404, 503),
    )
    def origin(
        cluster: Annotated[str, Path(description="An aggregate cluster, or its region.")],
        topic: Topic,
        partition: Partition,
        record_offset: Annotated[int, Path(**INT64, description="The place of a record.")],
    ) -> Response:
        """Which source record is the record at this offset?"""
        request = pb.LookupOriginRequest(
            at=shell.place(cluster), topic=topic, partition=partition, record_offset=record_offset
        )
        return shell.answer(shell.handlers.LookupOrigin, request)

    return router


def _primaries(shell: Shell) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["primaries"])

    @router.get("/groups/{group}/primary", **described(primaries_pb2.Primary, 503))
    def get_primary(group: Group) -> Response:
        """Where the group is primary; `decision` is null if nothing was ever decided."""
        return shell.answer(shell.handlers.GetPrimary, primaries_pb2.GetPrimaryRequest(group=group))

    @router.put("/groups/{group}/primary", **described(primaries_pb2.Primary, 400, 404, 409, 503, 504))
    def set_primary(group: Group, body: PrimaryBody) -> Response:
        """Decide where the group is primary. The same again changes nothing."""
        request = primaries_pb2.SetPrimaryRequest(group=group, **body.model_dump())
        return shell.answer(shell.handlers.SetPrimary, request)

    @router.get("/primaries", **described(primaries_pb2.ListPrimariesResponse, 400, 503))
    def primaries(
        prefix: Prefix = "",
        after: After = "",
        limit: Annotated[
            int, Query(ge=0, le=MOST_ENTRIES, description=f"Entries, {MOST_ENTRIES:,} at most; 0: all.")
        ] = 0,
        *,
        attention: Annotated[
            bool, Query(description="Those alone that move, are dual active or can't be read.")
        ] = False,
    ) -> Response:
        """Every group with a decision, by name."""
        request = primaries_pb2.ListPrimariesRequest(
            prefix=prefix, after=after, limit=limit, attention=attention
        )
        return shell.answer(shell.handlers.ListPrimaries, request)

    @router.get("/regions", **described(primaries_pb2.DescribeRegionsResponse, 504))
    def regions(
        group: Annotated[
            list[str] | None, Query(description="Is this group left out? May be repeated.")
        ] = None,
        topic: Annotated[
            list[str] | None, Query(description="Is this topic left out? May be repeated.")
        ] = None,
    ) -> Response:
        """The regions with their clusters and services, without secrets."""
        request = primaries_pb2.DescribeRegionsRequest(groups=group, topics=topic)
        return shell.answer(shell.handlers.DescribeRegions, request)

    return router


def _audit(shell: Shell) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["audit"])

    @router.get("/audit", **described(audit_pb2.ListAuditResponse, 400, 503, 504))
    def audit(
        group: Annotated[
            str | None,
            Query(description="Of this group alone; empty: acts about no group. Absent: of every group."),
        ] = None,
        call: Annotated[str, Query(description="Of acts of this call or command alone.")] = "",
        principal: Annotated[str, Query(description="Of acts of this principal alone: its whole name.")] = "",
        since_ms: Annotated[
            int, Query(**INT64, description="From this moment on, by the store's clock (Unix epoch).")
        ] = 0,
        until_ms: Annotated[
            int | None, Query(**INT64, description="Before this moment; absent: until now.")
        ] = None,
        limit: Annotated[
            int,
            Query(
                ge=0,
                le=MOST_ENTRIES,
                description=f"Entries; 0: the server's choice; at most {MOST_ENTRIES}.",
            ),
        ] = 0,
        before: Annotated[str, Query(description="`next_before` of the page before this one.")] = "",
    ) -> Response:
        """Who changed what, the newest first, of groups that the caller may administer."""
        request = audit_pb2.ListAuditRequest(
            group=group,
            call=call,
            principal=principal,
            since_ms=since_ms,
            until_ms=until_ms,
            limit=limit,
            before=before,
        )
        return shell.answer(shell.handlers.ListAudit, request)

    return router


def _operation(service: UseCases, metrics: ServiceMetrics, access: Access) -> APIRouter:
    router = APIRouter(tags=["operation"])

    @router.get("/livez")
    async def livez() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    readiness = {
        "type": "object",
        "properties": {
            "status": {"enum": ["ready", "not ready"]},
            "dependencies": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["status", "dependencies"],
    }
    content = {"content": {"application/json": {"schema": readiness}}}

    @router.get(
        "/readyz",
        response_class=JSONResponse,
        responses={
            200: {"description": "Ready.", **content},
            503: {"description": "Not ready; it may answer nevertheless.", **content},
            **problems(500),
        },
    )
    def readyz() -> Response:
        """Whether the store and the region's own aggregate cluster answer; the body says what does not, to those who may read."""
        missing = service.missing()
        told = service.dependencies() if may_read_something(access) else []
        return JSONResponse(
            {
                "status": "not ready" if missing else "ready",
                "dependencies": {name: missing.get(name, "ok") for name in told},
            },
            status_code=503 if missing else 200,
        )

    @router.get("/metrics", include_in_schema=False)
    def prometheus() -> Response:
        content_type, page = metrics_page(metrics.registry)
        return Response(page, media_type=content_type)

    return router
