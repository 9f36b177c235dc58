"""What librdkafka is at inside a member: told beside the stacks of its threads when a group stands still."""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from typing import Any, TextIO

from lab.workload.channel import TELL_STACKS

STATISTICS_EVERY_MS = 5_000


class ClientState:
    """Keeps the newest statistics of a client, and writes what they say of its group and its partitions.

    Args:
        out: gets a line of JSON each time.
    """

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._newest = ""

    def keep(self, statistics: str) -> None:
        """A ``stats_cb``: read only when somebody asks."""
        self._newest = statistics

    def tell_with_stacks(self) -> None:
        """Write it from now on whenever this process is told to write its stacks.

        A thread that is inside librdkafka goes on to here once its call has returned.
        """
        faulthandler.unregister(TELL_STACKS)  # what was there before it came is what it calls after itself
        signal.signal(TELL_STACKS, lambda _number, _frame: self.tell())
        faulthandler.register(TELL_STACKS, chain=True)

    def tell(self) -> None:
        """Write the newest, if there is any."""
        if self._newest:
            print(json.dumps(_shortened(json.loads(self._newest))), file=self._out, flush=True)


def _shortened(statistics: dict[str, Any]) -> dict[str, Any]:
    return {
        "client": statistics["name"],
        "at_s": statistics["time"],
        "group": _of(
            statistics.get("cgrp", {}), "state", "join_state", "rebalance_reason", "assignment_size"
        ),
        "brokers": {name: broker["state"] for name, broker in statistics["brokers"].items()},
        "partitions": {
            f"{topic}-{number}": _of(
                partition,
                *("fetch_state", "broker", "leader", "leader_epoch", "fetchq_cnt"),
                *("next_offset", "app_offset", "committed_offset", "ls_offset", "hi_offset"),
            )
            for topic, found in statistics["topics"].items()
            for number, partition in found["partitions"].items()
            if int(number) >= 0  # librdkafka's own, of what has no partition yet
        },
    }


def _of(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: found[name] for name in names if name in found}
