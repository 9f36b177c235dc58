"""The gRPC face of primaries and regions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.service import OffsetService
from offsetsvc.transport.grpc_calls import WATCH_MS, Errors, Watches, deadline_of
from offsetsvc.transport.messages import regions_to_pb
from parallax.client.primary_messages import change_from_pb, primaries_to_pb, primary_to_pb
from parallax.domain.ids import GroupName
from parallax.runtime.deadline import Deadline
from parallax.v1 import primaries_pb2 as pb
from parallax.v1 import primaries_pb2_grpc

Answer = TypeVar("Answer")


class PrimaryServicer(primaries_pb2_grpc.PrimaryServiceServicer):
    """Messages in, messages out; everything else is `OffsetService`'s.

    Args:
        service: the use cases.
        metrics: counts requests.
        stopping: set when the server ends: watches end too.
        watches: how many may go on at once; each holds a thread.
    """

    def __init__(
        self, service: OffsetService, metrics: ServiceMetrics, stopping: threading.Event, watches: int
    ) -> None:
        self._service = service
        self._metrics = metrics
        self._watches = Watches(watches, stopping)

    def GetPrimary(  # noqa: N802 - the proto's name
        self, request: pb.GetPrimaryRequest, context: grpc.ServicerContext
    ) -> pb.Primary:
        """What holds for a group."""
        group = GroupName(request.group)
        return self._call(
            "GetPrimary", context, lambda _: primary_to_pb(group, self._service.primaries.get(group))
        )

    def SetPrimary(  # noqa: N802 - the proto's name
        self, request: pb.SetPrimaryRequest, context: grpc.ServicerContext
    ) -> pb.Primary:
        """Decide where a group is primary."""

        def answer(deadline: Deadline) -> pb.Primary:
            change = change_from_pb(request)
            found = self._service.primaries.set(change, deadline, dry_run=request.dry_run)
            return primary_to_pb(change.group, found)

        return self._call("SetPrimary", context, answer)

    def ListPrimaries(  # noqa: N802 - the proto's name
        self, request: pb.ListPrimariesRequest, context: grpc.ServicerContext
    ) -> pb.ListPrimariesResponse:
        """Every group with a decision."""
        del request
        return self._call(
            "ListPrimaries", context, lambda _: primaries_to_pb(self._service.primaries.all().items())
        )

    def DescribeRegions(  # noqa: N802 - the proto's name
        self, request: pb.DescribeRegionsRequest, context: grpc.ServicerContext
    ) -> pb.DescribeRegionsResponse:
        """Every region."""
        del request
        return self._call(
            "DescribeRegions",
            context,
            lambda deadline: regions_to_pb(self._service.describe_regions(deadline), self._service.region),
        )

    def WatchPrimary(  # noqa: N802 - the proto's name
        self, request: pb.WatchPrimaryRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.Primary]:
        """What holds now, then every change."""
        with (
            self._watches.one(context) as wait,
            Errors("WatchPrimary", context),
            self._metrics.stream("grpc", "WatchPrimary"),
        ):
            group = GroupName(request.group)
            deadline = self._deadline(context).at_most_ms(WATCH_MS)
            for found in self._service.primaries.watch(group, deadline, wait):
                yield primary_to_pb(group, found)

    def _call(
        self, method: str, context: grpc.ServicerContext, use_case: Callable[[Deadline], Answer]
    ) -> Answer:
        with Errors(method, context), self._metrics.request("grpc", method):
            return use_case(self._deadline(context))

    def _deadline(self, context: grpc.ServicerContext) -> Deadline:
        return deadline_of(context, self._service.config.service.deadline_ms)
