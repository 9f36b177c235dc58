"""Everything that goes over the loopback interface, as the kernel hands it to whoever may look."""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

# packet(7), and linux/if_packet.h: blocks of frames, packed, in memory that is shared with the kernel. The buffer of a
# socket may be made as large only by who has rights in the machine's own namespace.
_ALL_PROTOCOLS = 3
_SOL_PACKET, _PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION, _TPACKET_V3 = 263, 5, 6, 10, 2
_BLOCK_BYTES, _BLOCKS, _UNIT_BYTES, _BLOCK_AFTER_MS = 1 << 20, 192, 2048, 100
_RING = struct.Struct("7I")
_BLOCK = struct.Struct("6I")
"""Version, private data, status, number of frames, where the first one begins, length."""
_STATUS_AT = 8
_OF_USER = 1
_FRAME = struct.Struct("I20xHH")
"""How far it is to the next frame, and where within this one its link's and its network's headers begin."""
_PORTS = struct.Struct(">HH")
_STATISTICS = struct.Struct("3I")
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_FLAGS = struct.Struct("16sH14x")
_SHOWN_BYTES = 150
_OWN_NETWORK = "PARALLAX_TEST_OWN_NETWORK"


def is_own_network() -> bool:
    """Whether this process is one of `run_where_frames_are_seen`."""
    return os.environ.get(_OWN_NETWORK) == "1"


def raise_loopback() -> None:
    """In a network namespace of one's own the loopback interface is down at first."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as any_socket:
        _, flags = _FLAGS.unpack(fcntl.ioctl(any_socket, _GET_FLAGS, _FLAGS.pack(b"lo", 0)))
        if not flags & _UP:
            fcntl.ioctl(any_socket, _SET_FLAGS, _FLAGS.pack(b"lo", flags | _UP))


def run_where_frames_are_seen(test: str, directory: Path, *, within_s: float) -> None:
    """Run a test in a process that may look at frames: those of a network that is its own alone.

    Others' frames would be looked at too otherwise, and there are more of them than anybody can look at while other tests
    copy. Any user may make such a network where user namespaces are allowed, as Linux has it by default; root needs none.

    Args:
        test: the test, as pytest names it.
        directory: for its temporary files.
        within_s: it has so long.
    """
    inside = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net"]
    pytest_arguments = ["-q", "-p", "no:cacheprovider", f"--basetemp={directory / 'inside'}", test]
    done = subprocess.run(
        [*inside, sys.executable, "-m", "pytest", *pytest_arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {_OWN_NETWORK: "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=within_s,
    )
    assert done.returncode == 0, (
        f"{done.stdout}\nRun as {' '.join(inside)}. Where user namespaces are forbidden, allow them "
        "(kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu) or run it as root."
    )


class Wire:
    """Looks into every frame on the loopback interface for words that must not be there.

    Args:
        words: what to look for, by name.
        apart: ports whose frames may hold them.
    """

    def __init__(self, words: Mapping[str, str], apart: Collection[int] = ()) -> None:
        self._apart = frozenset(apart)
        self._words = {name: word.encode() for name, word in words.items()}
        self.seen: dict[str, bytes] = {}
        """By the name of a word, where it was first: what is before and behind it."""
        self.frames = self.lost = 0
        self._ended = threading.Event()
        # Of no protocol until it is bound: what came while the kernel makes the ring would be lost.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V3)
        units = _BLOCK_BYTES // _UNIT_BYTES * _BLOCKS
        ring = _RING.pack(_BLOCK_BYTES, _BLOCKS, _UNIT_BYTES, units, _BLOCK_AFTER_MS, 0, 0)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, ring)
        self._ring = mmap.mmap(self._socket.fileno(), _BLOCK_BYTES * _BLOCKS)
        self._socket.bind(("lo", _ALL_PROTOCOLS))
        self._thread = threading.Thread(target=self._look, name="wire", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        time.sleep(1)  # what is in the ring
        self._ended.set()
        self._thread.join()
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        _, self.lost, _ = _STATISTICS.unpack(statistics)
        self._ring.close()
        self._socket.close()

    def _look(self) -> None:
        block = 0
        while not self._ended.is_set():
            begin = block * _BLOCK_BYTES
            _, _, status, frames, first, size = _BLOCK.unpack_from(self._ring, begin)
            if not status & _OF_USER:
                select.select([self._socket], [], [], 0.1)
                continue
            self._find(self._ring[begin : begin + size], first, frames)
            self.frames += frames
            struct.pack_into("I", self._ring, begin + _STATUS_AT, 0)
            block = (block + 1) % _BLOCKS

    def _find(self, content: bytes, first: int, frames: int) -> None:
        for name, word in self._words.items():
            at = -1
            while name not in self.seen and (at := content.find(word, at + 1)) >= 0:
                # Frames are told apart only where a word is: there are too many to look at each.
                if self._apart.isdisjoint(_ports_of_frame(content, at, first, frames)):
                    self.seen[name] = content[max(0, at - _SHOWN_BYTES) : at + _SHOWN_BYTES]


def _ports_of_frame(content: bytes, at: int, first: int, frames: int) -> Iterator[int]:
    """The two ports of the TCP segment (of IP version 4) in the frame of a block that holds a place."""
    begin = first
    for number in range(frames):
        to_next, _, network = _FRAME.unpack_from(content, begin)
        if number + 1 < frames and at >= begin + to_next:
            begin += to_next
            continue
        header = begin + network
        if content[header] >> 4 == 4:
            yield from _PORTS.unpack_from(content, header + (content[header] & 0xF) * 4)
        return
