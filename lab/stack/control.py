"""Commands to a running stack from other processes: one JSON line over a loopback connection, one back.

Who may read `stack.json` (the owner of the folder) may give commands: it holds the port and a token.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.stack.errors import StackError, StackStateError
from lab.stack.layout import StackLayout, write_json
from lab.stack.links import LinkState
from lab.stack.ports import HOST
from lab.stack.stack import LocalStack

_COMMAND_TIMEOUT_S = 400.0
_DOWN_TIMEOUT_S = 120.0
_POLL_S = 0.1
"""Between two looks at a supervisor that is not our child: nothing tells of its end."""


class ControlServer:
    """Serves commands for a stack until `close`; `down` only sets `down_requested`.

    Args:
        stack: A stack that is up.
        directory: Its folder; `stack.json` appears there while this serves.
    """

    def __init__(self, stack: LocalStack, directory: Path) -> None:
        self.down_requested = threading.Event()
        self._state_path = directory / "stack.json"
        self._token = secrets.token_hex(16)
        self._commands: dict[str, Callable[..., Any]] = {
            "status": lambda _: stack.status(),
            "kill": stack.kill,
            "stop": stack.stop,
            "freeze": stack.freeze,
            "fill_disk": stack.fill_disk,
            "start": stack.start,
            "down": lambda _: self.down_requested.set(),
            "link": lambda name, **state: stack.link(name, LinkState(**state)),
            "steer": stack.steer,
        }
        answer = self._answer

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(answer(self.rfile.readline()))

        self._server = socketserver.ThreadingTCPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="stack-control"
        )

    def __enter__(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        port = self._server.server_address[1]
        write_json(self._state_path, {"pid": os.getpid(), "port": port, "token": self._token}, mode=0o600)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state_path.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, line: bytes) -> bytes:
        try:
            request = json.loads(line)
            if not hmac.compare_digest(str(request.get("token")), self._token):
                raise StackStateError("This is not the stack that stack.json belongs to.")
            result = self._commands[request["command"]](request["name"], **request.get("arguments", {}))
            reply = {"result": result}
        except StackError as error:
            reply = {"error": str(error)}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            reply = {"error": f"not a command: {error!r}"}
        return json.dumps(reply).encode() + b"\n"


class StackClient:
    """A stack that another process runs: the same questions and commands as `LocalStack`.

    Args:
        directory: The stack's folder.

    Raises:
        StackStateError: No stack was ever started there.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.layout = StackLayout.load(self.directory)

    @property
    def config_path(self) -> Path:
        """Configuration file for services and commands."""
        return self.layout.config_path

    def bootstrap(self, cluster: str) -> str:
        """Bootstrap servers of a cluster such as `aggregate-a`."""
        return self.layout.bootstrap(cluster)

    def cassandra_address(self, region: str | None = None) -> str:
        """Host and CQL port of a region's Cassandra node."""
        return self.layout.cassandra_address(region)

    def status(self) -> dict[str, Any]:
        """What `parallax stack status --json` prints."""
        status: dict[str, Any] = self._command("status")
        return status

    def kill(self, name: str) -> None:
        """SIGKILL a process, a cluster or a region.

        Raises:
            UnknownProcessError: There is none of that name.
        """
        self._named("kill", name)

    def stop(self, name: str) -> None:
        """Stop a process, a cluster or a region cleanly.

        Raises:
            UnknownProcessError: There is none of that name.
        """
        self._named("stop", name)

    def freeze(self, name: str) -> None:
        """SIGSTOP a process, a cluster or a region: it keeps its connections and says nothing until `start`.

        Raises:
            UnknownProcessError: There is none of that name.
            StackError: It does not run.
        """
        self._named("freeze", name)

    def fill_disk(self, name: str) -> None:
        """Leave a process, a cluster or a region no room to write, until it is started anew.

        Raises:
            UnknownProcessError: There is none of that name.
            StackError: It does not run.
        """
        self._named("fill_disk", name)

    def link(self, name: str, state: LinkState) -> None:
        """Change the link by which the services of a steerable stack reach a Kafka cluster or a Cassandra node.

        Raises:
            StackError: There is none of that name.
        """
        self._command("link", name, asdict(state))

    def steer(self, name: str, *, clock_ahead_ms: int = 0, resolver_late_ms: int = 0) -> None:
        """Make the clock of a service of a steerable stack wrong, or its resolver slow; without arguments all is right.

        Raises:
            StackError: There is none of that name.
        """
        wrong = {"clock_ahead_ms": clock_ahead_ms, "resolver_late_ms": resolver_late_ms}
        self._command("steer", name, wrong)

    def start(self, name: str) -> None:
        """Start what is not running and wait until it answers; thaw what is frozen.

        Raises:
            UnknownProcessError: There is none of that name.
            StackError: It did not come up.
        """
        self._named("start", name)

    def down(self) -> None:
        """Stop the stack and wait until nothing of it is left.

        Raises:
            StackStateError: It does not run, or does not end in time.
        """
        self._command("down")
        deadline = time.monotonic() + _DOWN_TIMEOUT_S
        while is_running(self.directory):
            if time.monotonic() > deadline:
                raise StackStateError(
                    f"The stack in {self.directory} has not ended within {_DOWN_TIMEOUT_S:.0f} s."
                )
            time.sleep(_POLL_S)

    def _named(self, command: str, name: str) -> None:
        self.layout.resolve(name)
        self._command(command, name)

    def _command(self, command: str, name: str = "", arguments: Mapping[str, Any] | None = None) -> Any:
        path = self.directory / "stack.json"
        if not is_running(self.directory):
            raise StackStateError(
                f"The stack in {self.directory} is not running. Start it with `parallax stack up --detach`."
            )
        if not path.is_file():
            raise StackStateError(
                f"The stack in {self.directory} is just starting or ending; try again in a moment."
            )
        state = json.loads(path.read_text(encoding="utf-8"))
        request = {"token": state["token"], "command": command, "name": name, "arguments": arguments or {}}
        try:
            with (
                socket.create_connection((HOST, state["port"]), timeout=_COMMAND_TIMEOUT_S) as connection,
                connection.makefile("rwb") as stream,
            ):
                stream.write(json.dumps(request).encode() + b"\n")
                stream.flush()
                line = stream.readline()
        except OSError as error:
            raise StackStateError(f"The stack in {self.directory} does not answer: {error}") from error
        if not line:
            raise StackStateError(f"The stack in {self.directory} ended before it answered.")
        reply = json.loads(line)
        if "error" in reply:
            raise StackError(reply["error"])
        return reply["result"]


def is_running(directory: Path) -> bool:
    """Whether some process runs a stack in the folder: it holds the folder's lock for all its life."""
    try:
        with (directory / "stack.lock").open("r", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
