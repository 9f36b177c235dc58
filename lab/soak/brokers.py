"""Brokers that say of themselves that they need a restart, and are given one, as an operator would."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lab.soak.logs import NewLines
from lab.workload.playing import Stack
from lab.workload.worker import WorkerError

OUT_OF_SYNC = "is out of sync with the underlying log"
"""What Kafka 4 logs of a group coordinator whose state is not that of its log. It means to load it anew; seen with 4.3.1 after
a SIGKILL under much load, it does not come to an end, and groups of that broker stand still until it is restarted."""

_LOOK_EVERY_S = 2.0
_ITS_OWN_S = 10.0
"""So long a broker may help itself."""


class BrokerCare:
    """Reads the logs of brokers, and restarts those that are broken; what it did is told, and stands in ``restarted``.

    Args:
        stack: that they belong to.
        names: the brokers.
        tell: gets a line for each restart.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        stack: Stack,
        names: Sequence[str],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stack, self._tell, self._clock = stack, tell, clock
        self._logs = {name: NewLines(stack.layout.log_path(name)) for name in names}
        self._said: dict[str, tuple[int, float]] = {}
        """By broker: the process that said it, and when that was read."""
        self._looked_at_s = clock()
        self.restarted: list[str] = []

    def look(self) -> None:
        """See to the brokers, every two seconds at most.

        Raises:
            StackError: one did not come up again.
        """
        now_s = self._clock()
        if now_s - self._looked_at_s < _LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        pids = {item["name"]: item["pid"] for item in self._stack.status()["processes"]}
        for name, log in self._logs.items():
            if OUT_OF_SYNC.encode() in log.read() and pids[name] is not None:
                self._said.setdefault(name, (pids[name], now_s))
        for name, (pid, said_at_s) in list(self._said.items()):
            if pids[name] != pid:  # it was killed meanwhile, and has begun anew
                del self._said[name]
            elif now_s - said_at_s >= _ITS_OWN_S:
                del self._said[name]
                self._restart(name)

    def patiently(self, wait: Callable[[], None]) -> None:
        """Wait for something, and once more if a broker had to be restarted meanwhile.

        Raises:
            WorkerError: it did not come to pass.
        """
        before = len(self.restarted)
        try:
            wait()
        except WorkerError:
            if len(self.restarted) == before:
                raise
            wait()

    def _restart(self, name: str) -> None:
        self._tell(f"{name} says that its group coordinator {OUT_OF_SYNC}: it is restarted")
        self.restarted.append(name)
        self._stack.stop(name)
        self._stack.start(name)
