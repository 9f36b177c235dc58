"""The gRPC face of the offset service: thin methods, one table of errors, deadlines passed on, bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.names import group_named
from offsetsvc.resume.request import FailoverRequest
from offsetsvc.resume.skip_updates import WatchRequest
from offsetsvc.service import OffsetService
from offsetsvc.transport import messages
from offsetsvc.transport.grpc_calls import WATCH_MS, Errors, Watches, deadline_of
from offsetsvc.transport.grpc_primaries import PrimaryServicer
from offsetsvc.transport.messages import policy_from_pb
from parallax.client.messages import progress_from_pb
from parallax.client.targets import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES, PRIMARY_SERVICE, SERVICE
from parallax.domain.ids import ClusterName, SourceOffset, TargetOffset, TopicId, TopicName
from parallax.errors import ConfigError
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import offsets_pb2_grpc, primaries_pb2_grpc

Answer = TypeVar("Answer")

_HEALTH_EVERY_S = 1.0
_HEALTH_THREADS = 4


class GrpcServer:
    """A server for one `OffsetService`.

    Args:
        service: the use cases.
        metrics: counts requests.
        address: ``host:port``; port 0 takes a free one.
        credentials: TLS; None: plain text.
    """

    def __init__(
        self,
        service: OffsetService,
        metrics: ServiceMetrics,
        *,
        address: str,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        calls = service.config.service.max_concurrent_calls
        self._stopping = threading.Event()
        # Watches hold a thread each, so each kind has as many of its own as calls have.
        threads = 3 * calls + _HEALTH_THREADS
        self._executor = ThreadPoolExecutor(threads, "offsetsvc-grpc")
        self._server = grpc.server(
            self._executor,
            maximum_concurrent_rpcs=threads,
            options=[
                ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
            ],
        )
        servicer = Servicer(service, metrics, self._stopping, calls)
        offsets_pb2_grpc.add_OffsetServiceServicer_to_server(servicer, self._server)  # type: ignore[no-untyped-call] # generated
        primaries_pb2_grpc.add_PrimaryServiceServicer_to_server(  # type: ignore[no-untyped-call] # generated
            PrimaryServicer(service, metrics, self._stopping, calls), self._server
        )
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE, PRIMARY_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        self._monitor = threading.Thread(
            target=_watch_health,
            args=(service, self._health, self._stopping),
            name="offsetsvc-health",
            daemon=True,
        )
        self.port = self._bind(address, credentials)

    def _bind(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ConfigError(f"gRPC can't listen on {address}: {error}") from error

    def start(self) -> None:
        """Begin to serve."""
        self._server.start()
        self._monitor.start()

    def stop(self, grace_s: float) -> None:
        """Take no further calls, let those under way end for ``grace_s`` seconds, end the rest."""
        self._stopping.set()
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait()
        if self._monitor.is_alive():
            self._monitor.join()
        self._executor.shutdown(wait=True)


class Servicer(offsets_pb2_grpc.OffsetServiceServicer):
    """Messages in, messages out; everything else is `OffsetService`'s."""

    def __init__(
        self, service: OffsetService, metrics: ServiceMetrics, stopping: threading.Event, watches: int
    ) -> None:
        self._service = service
        self._metrics = metrics
        self._watches = Watches(watches, stopping)

    def GetFailoverOffset(  # noqa: N802 - the proto's name
        self, request: pb.GetFailoverOffsetRequest, context: grpc.ServicerContext
    ) -> pb.FailoverOffset:
        """One partition's resume offset."""

        def answer(deadline: Deadline) -> pb.FailoverOffset:
            partition = messages.partition_from(request.topic, request.partition)
            origin, destination = self._move(request)
            own = {partition: TargetOffset(request.next_offset)} if request.HasField("next_offset") else {}
            asked = FailoverRequest(
                group_named(request.group),
                origin,
                destination,
                own,
                only=partition,
                by_timestamp=policy_from_pb(request),
            )
            found = self._service.failover_offsets(asked, deadline)
            self._metrics.answered(found)
            return messages.failover_to_pb(found[0])

        return self._call("GetFailoverOffset", context, answer)

    def GetGroupFailoverOffsets(  # noqa: N802 - the proto's name
        self, request: pb.GetGroupFailoverOffsetsRequest, context: grpc.ServicerContext
    ) -> pb.GetGroupFailoverOffsetsResponse:
        """Every partition's resume offset."""

        def answer(deadline: Deadline) -> pb.GetGroupFailoverOffsetsResponse:
            origin, destination = self._move(request)
            positions = [messages.position_from_pb(item) for item in request.positions]
            asked = FailoverRequest(
                group_named(request.group),
                origin,
                destination,
                {item.topic_partition: item.next_offset for item in positions},
                tuple(dict.fromkeys(TopicName(topic) for topic in request.topics)),
                by_timestamp=policy_from_pb(request),
            )
            found = self._service.failover_offsets(asked, deadline, record_move=request.record_move)
            self._metrics.answered(found)
            return messages.group_to_pb(found)

        return self._call("GetGroupFailoverOffsets", context, answer)

    def WatchSkips(  # noqa: N802 - the proto's name
        self, request: pb.WatchSkipsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.SkipUpdate]:
        """Skip ranges as they become known."""
        with (
            self._watches.one(context) as wait,
            self._errors("WatchSkips", context),
            self._metrics.stream("grpc", "WatchSkips"),
        ):
            asked = WatchRequest(
                messages.partition_from(request.topic, request.partition),
                self._cluster(request.at, "at"),
                TopicId(request.target_topic_id),
                progress_from_pb(request.progress),
                TargetOffset(request.start),
                self._cluster(getattr(request, "from"), "from") if request.HasField("from") else None,
            )
            deadline = self._deadline(context).at_most_ms(WATCH_MS)
            for page in self._service.watch_skips(asked, deadline, wait):
                yield messages.page_to_pb(page)

    def TranslateOffset(  # noqa: N802 - the proto's name
        self, request: pb.TranslateOffsetRequest, context: grpc.ServicerContext
    ) -> pb.TranslateOffsetResponse:
        """One offset on the other side of a route."""

        def answer(_: Deadline) -> pb.TranslateOffsetResponse:
            source = (
                SourceOffset(request.source_next_offset) if request.HasField("source_next_offset") else None
            )
            target = (
                TargetOffset(request.target_next_offset) if request.HasField("target_next_offset") else None
            )
            found = self._service.translate_offset(
                self._service.places.route(request.route),
                messages.partition_from(request.topic, request.partition),
                source_next=source,
                target_next=target,
            )
            return messages.translation_to_pb(found)

        return self._call("TranslateOffset", context, answer)

    def LookupOrigin(  # noqa: N802 - the proto's name
        self, request: pb.LookupOriginRequest, context: grpc.ServicerContext
    ) -> pb.LookupOriginResponse:
        """The source record of a target record."""

        def answer(_: Deadline) -> pb.LookupOriginResponse:
            partition = messages.partition_from(request.topic, request.partition)
            cluster = self._cluster(request.at, "at")
            return messages.origin_to_pb(
                self._service.lookup_origin(cluster, partition, request.record_offset)
            )

        return self._call("LookupOrigin", context, answer)

    def ListRoutes(  # noqa: N802 - the proto's name
        self, request: pb.ListRoutesRequest, context: grpc.ServicerContext
    ) -> pb.ListRoutesResponse:
        """Every route."""
        del request
        return self._call(
            "ListRoutes", context, lambda deadline: messages.routes_to_pb(self._service.routes(deadline))
        )

    def ListRuns(  # noqa: N802 - the proto's name
        self, request: pb.ListRunsRequest, context: grpc.ServicerContext
    ) -> pb.ListRunsResponse:
        """Runs and watermarks of a partition."""

        def answer(_: Deadline) -> pb.ListRunsResponse:
            page = self._service.runs(
                self._service.places.route(request.route),
                messages.partition_from(request.topic, request.partition),
                TargetOffset(request.start),
                request.limit,
            )
            return messages.runs_to_pb(page)

        return self._call("ListRuns", context, answer)

    def ReportPositions(  # noqa: N802 - the proto's name
        self, request: pb.ReportPositionsRequest, context: grpc.ServicerContext
    ) -> pb.ReportPositionsResponse:
        """Remember positions and moves."""

        def answer(_: Deadline) -> pb.ReportPositionsResponse:
            cluster = self._cluster(request.at, "at")
            self._service.report(
                group_named(request.group),
                cluster,
                [messages.position_from_pb(item) for item in request.positions],
                [messages.move_from_pb(item, cluster) for item in request.moves],
            )
            return pb.ReportPositionsResponse()

        return self._call("ReportPositions", context, answer)

    def _call(
        self, method: str, context: grpc.ServicerContext, use_case: Callable[[Deadline], Answer]
    ) -> Answer:
        with self._errors(method, context), self._metrics.request("grpc", method):
            return use_case(self._deadline(context))

    def _errors(self, method: str, context: grpc.ServicerContext) -> Errors:
        return Errors(method, context)

    def _deadline(self, context: grpc.ServicerContext) -> Deadline:
        return deadline_of(context, self._service.config.service.deadline_ms)

    def _move(
        self, request: pb.GetFailoverOffsetRequest | pb.GetGroupFailoverOffsetsRequest
    ) -> tuple[ClusterName, ClusterName]:
        destination = self._cluster(request.to, "to")
        if not request.HasField("from"):
            return self._service.places.origin_of(destination), destination
        return self._cluster(getattr(request, "from"), "from"), destination

    def _cluster(self, place: pb.Place, what: str) -> ClusterName:
        return self._service.places.cluster(region=place.region, cluster=place.cluster, what=what)


def _watch_health(service: OffsetService, servicer: Any, stopping: threading.Event) -> None:
    """Keep the health of each dependency current. Without its aggregate cluster the service still answers."""
    serving, not_serving = (
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    )
    while True:
        missing = service.missing()
        for name in service.dependencies():
            servicer.set(name, not_serving if name in missing else serving)
        for name in ("", SERVICE, PRIMARY_SERVICE):
            servicer.set(name, not_serving if "store" in missing else serving)
        if stopping.wait(_HEALTH_EVERY_S):
            return
