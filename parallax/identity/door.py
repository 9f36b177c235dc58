"""Lets callers in by an identity's rules, and tells the log of those that it does not: one for every server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from parallax.domain.rights import ANYBODY, Principal, Right
from parallax.errors import ForbiddenError, ParallaxError
from parallax.identity.identity import Identity, Shown

_log = structlog.get_logger(__name__)

_REFUSALS_LOGGED_PER_S = 10


class Door:
    """Asks who calls. Safe to use from many threads.

    Args:
        identity: knows who calls, and what it may.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._lock = threading.Lock()
        self._second, self._logged, self._unlogged = 0, 0, 0

    def admits(self, shown: Shown) -> bool:
        """Whether a caller may read anything at all; nobody is told of one who may not."""
        try:
            self.identity.require(shown, Right.READ)
        except ParallaxError:
            return False
        return True

    def let_in(
        self,
        transport: str,
        method: str,
        shown: Callable[[], Shown],
        need: tuple[Right, str | None] | None,
    ) -> Principal:
        """Who calls, if it may.

        Args:
            transport: for the log.
            method: what is called, for the log.
            shown: what the caller has shown of itself.
            need: the right, and the group that it is about (None: a right for any will do); None: nobody may.

        Raises:
            UnauthenticatedError: nobody was proven.
            ForbiddenError: the caller lacks the right, or nobody has it.
            UnavailableError: the issuer's keys can't be had just now.
        """
        if not self.identity.asks and need is not None:
            return ANYBODY
        principal = None
        try:
            if need is None:
                raise ForbiddenError(f"{method} is served to nobody")
            principal = self.identity.who(shown())
            return self.identity.policy.require(principal, *need)
        except ParallaxError as error:
            self._tell(transport, method, error, principal)
            raise

    def _tell(self, transport: str, method: str, error: ParallaxError, principal: Principal | None) -> None:
        """Log a call that was not let in; of a flood some, and later how many others there were."""
        with self._lock:
            second = int(time.monotonic())
            if second != self._second:
                self._second, self._logged = second, 0
            self._logged += 1
            if self._logged > _REFUSALS_LOGGED_PER_S:
                self._unlogged += 1
                return
            unlogged, self._unlogged = self._unlogged, 0
        _log.warning(
            "call_refused",
            transport=transport,
            method=method,
            code=error.code,
            reason=str(error),
            principal=None if principal is None else principal.name,
            refused_unlogged=unlogged,
        )
