"""Which right each call needs, and for which group: gRPC and REST ask here alone. What has no entry is served to nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from parallax.domain.ids import GroupName
from parallax.domain.rights import ANYBODY, Policy, Principal, Right
from parallax.identity.door import Door
from parallax.identity.identity import Identity, Shown


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a call needs.

    Attributes:
        right: at least.
        group: the request's field that names the group; empty, or a field that may be absent and is: it is about none, so
            the right for any will do.
        flag: the request's field that, when set, makes it need ``flagged`` instead.
        flagged: see ``flag``.
    """

    right: Right
    group: str = "group"
    flag: str = ""
    flagged: Right = Right.READ

    def of(self, request: Any) -> tuple[Right, str | None]:
        """The right, and the group that it is about."""
        right = self.flagged if self.flag and getattr(request, self.flag) else self.right
        field = request.DESCRIPTOR.fields_by_name[self.group] if self.group else None
        if field is None or (field.has_presence and not request.HasField(self.group)):
            return right, None
        return right, getattr(request, self.group)


_READ = Requirement(Right.READ)
_READ_ANY = Requirement(Right.READ, group="")

NEEDS: Mapping[str, Requirement] = {
    "GetFailoverOffset": _READ,
    "GetGroupFailoverOffsets": Requirement(Right.READ, flag="record_move", flagged=Right.REPORT),
    "MapPositions": _READ_ANY,
    "WatchSkips": _READ_ANY,
    "TranslateOffset": _READ_ANY,
    "LookupOrigin": _READ_ANY,
    "ListRoutes": _READ_ANY,
    "ListRuns": _READ_ANY,
    "ListWatermarks": _READ_ANY,
    "GetGroupPositions": _READ,
    "ReportPositions": Requirement(Right.REPORT),
    "GetPrimary": _READ,
    "SetPrimary": Requirement(Right.DECIDE, flag="disaster", flagged=Right.ADMINISTER),
    "WatchPrimary": _READ,
    "ListPrimaries": _READ_ANY,
    "DescribeRegions": _READ_ANY,
    "ListAudit": Requirement(Right.ADMINISTER),
    "ListGroups": _READ_ANY,
    "ListReplication": _READ_ANY,
    "ListReplicationPartitions": _READ_ANY,
    "ListMoves": _READ,
    "ListDrills": _READ_ANY,
    "ListSyncProblems": _READ_ANY,
    "DescribeConfiguration": _READ_ANY,
    "PlanMove": _READ,
    "GetMove": _READ,
    "VerifyGroup": _READ,
    "PlanDrill": _READ_ANY,
    "GetDrill": _READ,
    "RunDrill": Requirement(Right.DECIDE),
    "StopDrill": Requirement(Right.DECIDE),
    "ExecuteMove": Requirement(Right.DECIDE, flag="disaster", flagged=Right.ADMINISTER),
    "CancelMove": Requirement(Right.DECIDE),
    "RollBackMove": Requirement(Right.DECIDE, flag="disaster", flagged=Right.ADMINISTER),
}
"""By the name of each call of our own services."""

_OVERALL = "the overall health"
_HEALTH = f"/{health.SERVICE_NAME}/"

FOREIGN_NEEDS: Mapping[str, str | Requirement] = {
    f"{_HEALTH}Check": _OVERALL,
    f"{_HEALTH}Watch": _OVERALL,
    f"{_HEALTH}List": _READ_ANY,
    f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": _READ_ANY,
}
"""By the path of each call of the services that gRPC brings along. The overall health is anybody's."""

PAGES_FOR_ANYBODY = frozenset({"/livez", "/readyz"})
"""Of REST; without a right /readyz tells the overall state alone."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as a handler sees it.

    Attributes:
        principal: who.
        policy: what principals may do.
    """

    principal: Principal
    policy: Policy

    def readable(self, groups: Iterable[GroupName]) -> list[GroupName]:
        """Those of the groups that the caller may read: lists show no others."""
        return self.policy.readable(self.principal, groups)

    def reads(self, group: GroupName) -> bool:
        """Whether the caller may read the group."""
        return self.policy.allows(self.principal, Right.READ, group)

    def administers(self, group: GroupName) -> bool:
        """Whether the caller may administer the group."""
        return self.policy.allows(self.principal, Right.ADMINISTER, group)


class Access:
    """Lets calls in that may be made.

    Args:
        identity: knows who calls, and what it may.
    """

    def __init__(self, identity: Identity) -> None:
        self._door = Door(identity)
        self._anybody = Caller(ANYBODY, identity.policy)

    @property
    def asks(self) -> bool:
        """Whether callers have to prove who they are."""
        return self._door.identity.asks

    def admits(self, shown: Shown) -> bool:
        """Whether a caller may read anything at all; nobody is told of one who may not."""
        return self._door.admits(shown)

    def caller(self, transport: str, method: str, request: Any, shown: Callable[[], Shown]) -> Caller:
        """The caller of one of our own calls.

        Args:
            transport: for the log.
            method: the call's name.
            request: its message.
            shown: what the caller has shown of itself.

        Raises:
            UnauthenticatedError: nobody was proven.
            ForbiddenError: the caller lacks the right, or nobody has it.
            UnavailableError: the issuer's keys can't be had just now.
        """
        need = NEEDS.get(method)
        if need is not None and not self.asks:
            return self._anybody
        return self._let_in(transport, method, shown, None if need is None else need.of(request))

    def vouched_for(self, principal: Principal) -> Caller:
        """The caller of a call that another process of this service has let in."""
        return Caller(principal, self._anybody.policy)

    def page(self, path: str, shown: Callable[[], Shown]) -> Caller:
        """The caller of a page of REST that is about no group: metrics, the description of the API.

        Raises:
            ParallaxError: see `caller`; a right for any group will do.
        """
        return self._let_in("rest", path, shown, (Right.READ, None))

    def foreign(self, path: str, request: Any, shown: Callable[[], Shown]) -> None:
        """Let a call of gRPC's own services in.

        Raises:
            ParallaxError: see `caller`; a right for any group will do.
        """
        need = FOREIGN_NEEDS.get(path)
        if need == _OVERALL and not request.service:
            return
        self._let_in("grpc", path, shown, None if need is None else (Right.READ, None))

    def _let_in(
        self,
        transport: str,
        method: str,
        shown: Callable[[], Shown],
        need: tuple[Right, str | None] | None,
    ) -> Caller:
        return Caller(self._door.let_in(transport, method, shown, need), self._door.identity.policy)
