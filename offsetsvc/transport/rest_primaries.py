"""Primaries and regions over REST."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.service import OffsetService
from offsetsvc.transport.messages import regions_to_pb
from offsetsvc.transport.rest_json import described, json_answer
from parallax.client.primary_messages import primaries_to_pb, primary_to_pb
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import Change, Mode, Stage
from parallax.runtime.deadline import Deadline
from parallax.v1 import primaries_pb2 as pb

Group = Annotated[str, Path(description="A consumer group.")]


class PrimaryBody(BaseModel):
    """What shall hold for a group; the proto's SetPrimaryRequest says what each field means."""

    model_config = ConfigDict(extra="forbid")

    region: Annotated[str, Field(min_length=1)]
    mode: Literal["ACTIVE_PASSIVE", "ACTIVE_ACTIVE"] | None = None
    cluster: str | None = None
    stage: Literal["SETTLED", "MOVING"] = "SETTLED"
    moving_from: str | None = None
    expected_fencing_number: int | None = None
    disaster: bool = False
    renew: bool = False
    reason: str = ""
    dry_run: bool = False

    def change(self, group: GroupName) -> Change:
        """The change for a group."""
        return Change(
            group=group,
            primary=RegionName(self.region),
            mode=None if self.mode is None else Mode[self.mode],
            cluster=None if self.cluster is None else ClusterName(self.cluster),
            stage=Stage[self.stage],
            moving_from=None if self.moving_from is None else ClusterName(self.moving_from),
            expected_number=self.expected_fencing_number,
            disaster=self.disaster,
            renew=self.renew,
            reason=self.reason,
        )


def primaries_router(service: OffsetService, metrics: ServiceMetrics) -> APIRouter:
    """Routes over one service."""
    router = APIRouter(prefix="/v1", tags=["primaries"])

    def deadline() -> Deadline:
        return Deadline.after_ms(service.config.service.deadline_ms)

    @router.get("/groups/{group}/primary", **described(pb.Primary, 503))
    def get_primary(group: Group) -> Response:
        """Where the group is primary; `decision` is null if nothing was ever decided."""
        with metrics.request("rest", "GetPrimary"):
            name = GroupName(group)
            return json_answer(primary_to_pb(name, service.primaries.get(name)))

    @router.put("/groups/{group}/primary", **described(pb.Primary, 400, 404, 409, 503, 504))
    def set_primary(group: Group, body: PrimaryBody) -> Response:
        """Decide where the group is primary. The same again changes nothing."""
        with metrics.request("rest", "SetPrimary"):
            name = GroupName(group)
            found = service.primaries.set(body.change(name), deadline(), dry_run=body.dry_run)
            return json_answer(primary_to_pb(name, found))

    @router.get("/primaries", **described(pb.ListPrimariesResponse, 503))
    def primaries() -> Response:
        """Every group with a decision."""
        with metrics.request("rest", "ListPrimaries"):
            return json_answer(primaries_to_pb(service.primaries.all().items()))

    @router.get("/regions", **described(pb.DescribeRegionsResponse, 504))
    def regions() -> Response:
        """The regions with their clusters and services, without secrets."""
        with metrics.request("rest", "DescribeRegions"):
            return json_answer(regions_to_pb(service.describe_regions(deadline()), service.region))

    return router
