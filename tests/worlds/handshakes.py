"""A gRPC server in a process of its own, and callers that do nothing but shake hands with it.

`python -m tests.worlds.handshakes CERTIFICATE KEY AUTHORITY` serves until its input ends; it prints its port. What ends it in
native code ends no test.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from parallax.config.config import Tls
from parallax.identity.tls import server_credentials


@contextmanager
def shaking(certificate: Path, key: Path, authority: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The server's process and its port."""
    command = [sys.executable, "-m", __name__, str(certificate), str(key), str(authority)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.stdin.close()
        process.wait(30)


def shake_hands(port: int, context: ssl.SSLContext, count: int, *, at_once: int) -> int:
    """How many of so many handshakes succeed."""

    def one(_: int) -> bool:
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
                context.wrap_socket(plain, server_hostname="localhost"),
            ):
                return True
        except OSError:
            return False

    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(one, range(count)))


def _serve(certificate: str, key: str, authority: str) -> None:
    tls = Tls(certificate_chain=certificate, private_key=key, client_ca=authority)
    credentials = server_credentials(tls)
    assert credentials is not None
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
