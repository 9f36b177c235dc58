"""The REST face of the offset service: the same use cases, JSON with the proto's names, problems as RFC 9457."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from offsetsvc.answers import TimestampPolicy
from offsetsvc.lookups import MOST_ROWS
from offsetsvc.metrics import ServiceMetrics
from offsetsvc.names import group_named
from offsetsvc.resume.request import FailoverRequest
from offsetsvc.service import OffsetService
from offsetsvc.transport import messages
from offsetsvc.transport.messages import timestamp_policy
from offsetsvc.transport.rest_json import (
    POSITIONS_SCHEMA,
    READINESS_SCHEMA,
    WATERMARKS_SCHEMA,
    described,
    json_answer,
    positions_json,
    watermark_json,
    with_schema,
)
from offsetsvc.transport.rest_primaries import primaries_router
from offsetsvc.transport.rest_problems import ProblemApp, problems
from parallax.domain.ids import ClusterName, SourceOffset, TargetOffset, TopicName
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2 as pb

_DESCRIPTION = """
Where does a consumer group resume in another aggregate cluster, and why?

Every offset is a *next offset* (what a Kafka group commits: the first record not yet consumed), unless its name
says `record_offset`. `null` means unknown or none; it never means 0. Errors are problems (RFC 9457) with the
`code` that gRPC, logs and metrics use too.
"""

_LARGEST_OFFSET = 2**63 - 1
_LARGEST_PARTITION = 2**31 - 1

Group = Annotated[str, Path(description="A consumer group.")]
Topic = Annotated[str, Path(description="A topic.")]
Partition = Annotated[
    int, Path(le=_LARGEST_PARTITION, description="A partition; source and target have the same number.")
]
RouteText = Annotated[str, Path(description="A route, written `a->b` (the `>` may be encoded as %3E).")]
PlaceText = Annotated[str, Query(alias="to", description="Where the group goes: a region or a cluster.")]
OriginText = Annotated[
    str | None,
    Query(alias="from", description="Where it comes from; absent: the only other aggregate cluster."),
]


def _policy_of(
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
            le=_LARGEST_OFFSET,
            description="With by_timestamp: how much older than the position an unconsumed record may be.",
        ),
    ] = None,
    timestamp_ms: Annotated[
        int | None,
        Query(
            le=_LARGEST_OFFSET,
            description="With by_timestamp: go by this time (Unix epoch) instead of the position's.",
        ),
    ] = None,
) -> TimestampPolicy | None:
    """The caller's choice of record timestamps."""
    return timestamp_policy(chosen=by_timestamp, margin_ms=margin_ms, timestamp_ms=timestamp_ms)


_LIMIT_TEXT = f"Rows of each lineage, about; 0: the server's choice; at most {MOST_ROWS}."

ByTimestamp = Annotated[TimestampPolicy | None, Depends(_policy_of)]


def create_app(service: OffsetService, metrics: ServiceMetrics) -> FastAPI:
    """The application over one service."""
    app = ProblemApp(title="Parallax offset service", version="1", description=_DESCRIPTION)
    app.include_router(_failover(service, metrics))
    app.include_router(_mapping(service, metrics))
    app.include_router(primaries_router(service, metrics))
    app.include_router(_operation(service, metrics))
    return app


def _failover(service: OffsetService, metrics: ServiceMetrics) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["failover"])

    def move(origin: str | None, to: str) -> tuple[ClusterName, ClusterName]:
        destination = _place(service, to, "to")
        if origin is None:
            return service.places.origin_of(destination), destination
        return _place(service, origin, "from"), destination

    def deadline() -> Deadline:
        return Deadline.after_ms(service.config.service.deadline_ms)

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
        with metrics.request("rest", "GetGroupFailoverOffsets"):
            source, destination = move(origin, to)
            topics = tuple(dict.fromkeys(TopicName(name) for name in topic or ()))
            asked = FailoverRequest(
                group_named(group), source, destination, topics=topics, by_timestamp=by_timestamp
            )
            found = service.failover_offsets(asked, deadline())
            metrics.answered(found)
            return json_answer(messages.group_to_pb(found))

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
            Query(
                le=_LARGEST_OFFSET, description="The position to go by; absent: the group's committed offset."
            ),
        ] = None,
        by_timestamp: ByTimestamp = None,
    ) -> Response:
        """Where one partition of a group resumes, with explanation."""
        with metrics.request("rest", "GetFailoverOffset"):
            source, destination = move(origin, to)
            item = messages.partition_from(topic, partition)
            own = {} if next_offset is None else {item: TargetOffset(next_offset)}
            asked = FailoverRequest(
                group_named(group), source, destination, own, only=item, by_timestamp=by_timestamp
            )
            found = service.failover_offsets(asked, deadline())
            metrics.answered(found)
            return json_answer(messages.failover_to_pb(found[0]))

    @router.get("/groups/{group}/positions", **with_schema(POSITIONS_SCHEMA, 404, 503))
    def group_positions(group: Group) -> Response:
        """The group's positions on every aggregate cluster, and what was published for it there."""
        with metrics.request("rest", "GroupPositions"):
            name = group_named(group)
            return JSONResponse(positions_json(name, service.group_positions(name)))

    return router


def _mapping(service: OffsetService, metrics: ServiceMetrics) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["mapping"])

    @router.get("/routes", **described(pb.ListRoutesResponse, 503, 504))
    def routes() -> Response:
        """Every route with the topics that it has copied."""
        with metrics.request("rest", "ListRoutes"):
            deadline = Deadline.after_ms(service.config.service.deadline_ms)
            return json_answer(messages.routes_to_pb(service.routes(deadline)))

    @router.get(
        "/routes/{route}/topics/{topic}/partitions/{partition}/runs",
        **described(pb.ListRunsResponse, 400, 404, 503),
    )
    def runs(
        route: RouteText,
        topic: Topic,
        partition: Partition,
        start: Annotated[int, Query(ge=0, le=_LARGEST_OFFSET, description="From this target offset on.")] = 0,
        limit: Annotated[int, Query(ge=0, le=MOST_ROWS, description=_LIMIT_TEXT)] = 0,
    ) -> Response:
        """Runs and watermarks (count 0) of a partition of a route."""
        with metrics.request("rest", "ListRuns"):
            item = messages.partition_from(topic, partition)
            return json_answer(
                messages.runs_to_pb(
                    service.runs(service.places.route(route), item, TargetOffset(start), limit)
                )
            )

    @router.get(
        "/routes/{route}/topics/{topic}/partitions/{partition}/watermarks",
        **with_schema(WATERMARKS_SCHEMA, 400, 404, 503),
    )
    def watermarks(route: RouteText, topic: Topic, partition: Partition) -> Response:
        """How far each lineage of a partition has come: its newest row and that row's age."""
        with metrics.request("rest", "Watermarks"):
            item = messages.partition_from(topic, partition)
            views = service.watermarks(service.places.route(route), item)
            return JSONResponse({"watermarks": [watermark_json(view) for view in views]})

    @router.get(
        "/routes/{route}/topics/{topic}/partitions/{partition}/translation",
        **described(pb.TranslateOffsetResponse, 400, 404, 503),
    )
    def translation(
        route: RouteText,
        topic: Topic,
        partition: Partition,
        source_next_offset: Annotated[
            int | None, Query(le=_LARGEST_OFFSET, description="Of the regional cluster.")
        ] = None,
        target_next_offset: Annotated[
            int | None, Query(le=_LARGEST_OFFSET, description="Of the aggregate cluster.")
        ] = None,
    ) -> Response:
        """A next offset of one side of a route, on the other; name exactly one."""
        with metrics.request("rest", "TranslateOffset"):
            found = service.translate_offset(
                service.places.route(route),
                messages.partition_from(topic, partition),
                source_next=None if source_next_offset is None else SourceOffset(source_next_offset),
                target_next=None if target_next_offset is None else TargetOffset(target_next_offset),
            )
            return json_answer(messages.translation_to_pb(found))

    @router.get(
        "/clusters/{cluster}/topics/{topic}/partitions/{partition}/records/{record_offset}/origin",
        **described(pb.LookupOriginResponse, 400, 404, 503),
    )
    def origin(
        cluster: Annotated[str, Path(description="An aggregate cluster, or its region.")],
        topic: Topic,
        partition: Partition,
        record_offset: Annotated[int, Path(le=_LARGEST_OFFSET, description="The place of a record.")],
    ) -> Response:
        """Which source record is the record at this offset?"""
        with metrics.request("rest", "LookupOrigin"):
            name = _place(service, cluster, "cluster")
            item = messages.partition_from(topic, partition)
            return json_answer(messages.origin_to_pb(service.lookup_origin(name, item, record_offset)))

    return router


def _operation(service: OffsetService, metrics: ServiceMetrics) -> APIRouter:
    router = APIRouter(tags=["operation"])

    @router.get("/livez")
    def livez() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    readiness = {"content": {"application/json": {"schema": READINESS_SCHEMA}}}

    @router.get(
        "/readyz",
        response_class=JSONResponse,
        responses={
            200: {"description": "Ready.", **readiness},
            503: {"description": "Not ready; it may answer nevertheless.", **readiness},
            **problems(500),
        },
    )
    def readyz() -> Response:
        """Whether the store and the region's own aggregate cluster answer; the body says what does not."""
        missing = service.missing()
        return JSONResponse(
            {
                "status": "not ready" if missing else "ready",
                "dependencies": {name: missing.get(name, "ok") for name in service.dependencies()},
            },
            status_code=503 if missing else 200,
        )

    @router.get("/metrics", include_in_schema=False)
    def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router


def _place(service: OffsetService, text: str, what: str) -> ClusterName:
    """A region or a cluster: what is configured under the name."""
    if text in service.config.regions:
        return service.places.cluster(region=text, what=what)
    if text.startswith(("aggregate-", "regional-")):
        return service.places.cluster(cluster=text, what=what)
    return service.places.cluster(region=text, what=what)
