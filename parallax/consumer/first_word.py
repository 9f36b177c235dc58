"""What a consumer that follows its group's primary does before it knows where that is."""

from __future__ import annotations

import time

from parallax.consumer.errors import OffsetServiceAwayError
from parallax.consumer.service_state import ServiceState
from parallax.consumer.settings import Policies


class FirstWord:
    """Waits for the first answer: until it is there, joining would be a guess, and might read what others read.

    Args:
        policies: how long to wait, and what to do then.
        service_state: told if no service answers.
    """

    def __init__(self, policies: Policies, service_state: ServiceState) -> None:
        self._policies = policies
        self._service_state = service_state
        self._since_s: float | None = None

    def settled(self, region: str, *, heard: bool) -> bool:
        """Whether to begin: an answer has come, or the policy is to begin without it.

        Args:
            region: the region that the application named.
            heard: whether an answer has come.

        Raises:
            OffsetServiceAwayError: no service answers, and the policy is to stop.
        """
        if heard:
            self._service_state.tell(region, away=False)
            return True
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        if (now_s - self._since_s) * 1_000 < self._policies.service_timeout_ms:
            return False
        self._service_state.tell(region, away=True)
        if self._policies.on_service_away == "stop":
            raise OffsetServiceAwayError("no offset service tells where the group is primary")
        return self._policies.on_service_away == "metadata"
