"""A child's side of the conversation with its parent: JSON lines, commands in, status out.

The end of the parent's side means that it is gone: the child takes it as a command to stop.
"""

from __future__ import annotations

import json
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, TextIO

Message = Mapping[str, Any]

STOP: Message = {"do": "stop"}
TELL_STACKS = signal.SIGUSR1
"""A child that gets it writes what each of its threads is at to its standard error."""
_STATUS_EVERY_S = 0.25


class Channel:
    """Commands from the parent, status to it.

    Args:
        incoming: lines from the parent; read by a thread of this object.
        outgoing: lines to it.
    """

    def __init__(self, incoming: TextIO = sys.stdin, outgoing: TextIO = sys.stdout) -> None:
        self._outgoing = outgoing
        self._commands: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._next_status_at = 0.0
        threading.Thread(target=self._read, args=(incoming,), name="commands", daemon=True).start()

    def _read(self, incoming: TextIO) -> None:
        for line in incoming:
            self._commands.put(json.loads(line))
        self._commands.put(STOP)

    def take(self) -> Message | None:
        """The next command, or None when there is none right now."""
        try:
            return self._commands.get_nowait()
        except queue.Empty:
            return None

    def say(self, event: str, **fields: Any) -> None:
        """Tell the parent that something happened."""
        self._write({"event": event, **fields})

    def status_is_due(self) -> bool:
        """Whether it is time for the next `status`."""
        return time.monotonic() >= self._next_status_at

    def status(self, **fields: Any) -> None:
        """Tell the parent where things stand."""
        self._next_status_at = time.monotonic() + _STATUS_EVERY_S
        self._write({"status": fields})

    def _write(self, message: Message) -> None:
        self._outgoing.write(json.dumps(message) + "\n")
        self._outgoing.flush()
