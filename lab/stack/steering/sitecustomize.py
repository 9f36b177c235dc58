"""Run by Python before anything else: see `lab.stack.steering`. With the standard library only."""

import mmap
import os
import socket
import struct
import time


def _steer(path: str) -> None:
    with open(path, "rb") as file:  # noqa: PTH123 - before anything else, and as little as can be
        shared = mmap.mmap(file.fileno(), 16, prot=mmap.PROT_READ)
    read = struct.Struct("<qq").unpack_from
    true_time, true_time_ns, look_up = time.time, time.time_ns, socket.getaddrinfo
    # Assigned to other modules: what was there is annotated as a function.
    time.time = lambda: true_time() + read(shared)[0] / 1_000
    time.time_ns = lambda: true_time_ns() + read(shared)[0] * 1_000_000

    def late(*args, **kwargs):  # type: ignore[no-untyped-def] # noqa: ANN002, ANN003, ANN202 - as the function it stands for
        late_ms = read(shared)[1]
        if late_ms:
            time.sleep(late_ms / 1_000)
        return look_up(*args, **kwargs)

    socket.getaddrinfo = late


if path := os.environ.get("PARALLAX_LAB_STEERING"):
    _steer(path)
