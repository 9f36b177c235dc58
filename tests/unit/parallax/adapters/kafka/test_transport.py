"""Large messages through a socket: whole, in order, and refused where they can't be true."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import kafka.errors
import pytest

from parallax.adapters.kafka import transport
from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.transport import (
    Messages,
    OwnRequest,
    TlsRefusedError,
    TlsTransport,
    Transport,
    WholeAnswer,
    after_tags,
    packed_unsigned_varint,
    unsigned_varint,
)
from tests.worlds.certificates import Authority

LARGEST_BYTES = 5_000_000


class Protocol:
    """Takes what a transport hands on, as a connection does."""

    _sensors = None

    def __init__(self) -> None:
        self.parser = Messages(client_id="test", receive_message_max_bytes=LARGEST_BYTES)
        self.answers: list[bytes] = []
        self.lost: list[Exception | None] = []

    def data_received(self, data: WholeAnswer) -> None:
        self.answers.append(bytes(data.read()))

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Far:
    """The other end of a connection, which never waits."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)  # noqa: FBT003 - the socket's own method

    def on_the_wire(self, data: bytes) -> bytes:
        """What has to be sent for this to be received."""
        return data

    def send(self, data: bytes) -> None:
        self.sock.sendall(self.on_the_wire(data))

    def recv(self, size: int) -> bytes:
        try:
            return self.sock.recv(size)
        except BlockingIOError:
            return b""


class TlsFar(Far):
    """One whose records are in memory, so that a test may cut them where it likes."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.records = 0
        """How many have come; one read opens one."""

    def shake(self) -> bool:
        """Take a step of the handshake; whether it was the last one."""
        self._incoming.write(super().recv(65_536))
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self.sock.sendall(self._outgoing.read())
        return True

    def on_the_wire(self, data: bytes) -> bytes:
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
        return self._outgoing.read()

    def recv(self, size: int) -> bytes:
        self._incoming.write(super().recv(size))
        found = bytearray()
        try:
            while piece := self._tls.read(65_536):
                self.records += 1
                found += piece
        except ssl.SSLWantReadError:
            pass
        return bytes(found)


class Pair:
    """A transport, and the socket at its other end."""

    def __init__(self, directory: Path | None = None, *, host: str = "127.0.0.1") -> None:
        self.loop, self.protocol = EventLoop(), Protocol()
        near, far = socket.socketpair()
        near.setblocking(False)  # noqa: FBT003 - the socket's own method
        self.far: Far
        if directory is None:
            self.far = Far(far)
            self.transport = Transport(self.loop.net, near, host="test")
        else:
            authority = Authority(directory)
            pair = authority.pair("server")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pair.certificate, pair.key)
            trust = ssl.create_default_context(cafile=str(authority.certificate))
            self.far = TlsFar(far, context)
            self.transport = TlsTransport(self.loop.net, near, host=host, timeout_at=None, context=trust)
            self._shake(self.far, self.transport)
        self.transport.set_protocol(self.protocol)
        self.transport.resume_reading()

    def _shake(self, far: TlsFar, transport: TlsTransport) -> None:
        ended: list[Exception | None] = []

        async def shake() -> None:
            try:
                await transport.handshake()
            except kafka.errors.KafkaError as error:
                ended.append(error)
            else:
                ended.append(None)

        self.loop.net.call_soon(shake)
        agreed = False
        while not ended:
            agreed = agreed or far.shake()
            self.loop.turn(1)
        if ended[0] is not None:
            self.close()
            raise ended[0]
        while not agreed:
            agreed = far.shake()

    def close(self) -> None:
        self.transport.abort()
        self.far.sock.close()
        self.loop.close()


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    found = Pair(tmp_path if request.param == "tls" else None)
    yield found
    found.close()


@pytest.fixture
def tls_pair(tmp_path: Path) -> Iterator[Pair]:
    found = Pair(tmp_path)
    yield found
    found.close()


def framed(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


@pytest.mark.parametrize("seed", range(8))
def test_answers_arrive_whole_and_in_order_however_they_are_cut(pair: Pair, seed: int) -> None:
    draw = Random(seed)
    sizes = [0, 1, 3, 4, 5, 65_532, 65_536, 65_537, 3_000_000] + [draw.randrange(2_000) for _ in range(200)]
    draw.shuffle(sizes)
    answers = [draw.randbytes(size) for size in sizes]
    coming = memoryview(pair.far.on_the_wire(b"".join(map(framed, answers))))
    while len(pair.protocol.answers) < len(answers):
        if coming:
            try:
                sent = pair.far.sock.send(coming[: draw.choice((1, 3, 100, 5_000, 70_000, 1_000_000))])
            except BlockingIOError:
                sent = 0
            coming = coming[sent:]
        pair.loop.turn(0)
        assert not pair.protocol.lost
    assert pair.protocol.answers == answers


@pytest.mark.parametrize("seed", range(4))
def test_parts_are_sent_whole_and_in_order_however_little_the_kernel_takes(pair: Pair, seed: int) -> None:
    draw = Random(seed)
    sent, received = bytearray(), bytearray()
    for _ in range(50):
        parts = [
            draw.choice((bytes, bytearray, memoryview))(draw.randbytes(draw.choice((0, 1, 10, 70_000))))
            for _ in range(draw.randrange(1, 300))
        ]
        pair.transport.write(parts)
        sent += b"".join(parts)
        if draw.random() < 0.5:
            pair.loop.turn(0)
            received += pair.far.recv(draw.randrange(1, 1_000_000))
    while len(received) < len(sent):
        pair.loop.turn(0)
        received += pair.far.recv(1_000_000)
    assert received == sent


@pytest.mark.parametrize("size", [-1, LARGEST_BYTES + 1, 2**31 - 1])
def test_an_impossible_length_ends_the_connection(pair: Pair, size: int) -> None:
    pair.far.send(framed(b"fine") + struct.pack(">i", size) + b"rest")
    for _ in range(3):
        pair.loop.turn(10)
    assert pair.protocol.answers == [b"fine"]
    (error,) = pair.protocol.lost
    assert isinstance(error, kafka.errors.InvalidReceiveError)


def test_a_lost_connection_is_told_in_the_midst_of_an_answer(pair: Pair) -> None:
    pair.far.send(struct.pack(">i", 1_000_000) + b"the beginning")
    pair.loop.turn(10)
    pair.far.sock.close()
    for _ in range(3):
        pair.loop.turn(10)
    (error,) = pair.protocol.lost
    assert isinstance(error, kafka.errors.KafkaConnectionError)
    assert pair.protocol.answers == []


def test_a_connection_lost_while_sending_is_told(pair: Pair) -> None:
    pair.far.sock.close()
    pair.transport.write([b"into the void"])
    for _ in range(3):
        pair.loop.turn(10)
    (error,) = pair.protocol.lost
    assert isinstance(error, kafka.errors.KafkaConnectionError)


def answers_of_one_record(pair: Pair) -> list[bytes]:
    """What arrives of a large answer and small ones that follow it in its last record, when nothing else does."""
    large = bytes(40_000)
    pair.far.send(b"".join(map(framed, (large, b"small", b"", b"last"))))
    for _ in range(5):
        pair.loop.turn(10)
    return [answer if len(answer) < len(large) else b"large" for answer in pair.protocol.answers]


def test_nothing_of_an_opened_record_is_left_lying(tls_pair: Pair) -> None:
    assert answers_of_one_record(tls_pair) == [b"large", b"small", b"", b"last"]


def test_the_kernel_would_not_tell_of_the_rest_of_a_record(
    tls_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TlsTransport, "_receive", Transport._receive)
    assert answers_of_one_record(tls_pair) == [b"large"]


def test_a_connection_cut_in_mid_record_is_lost_and_hands_nothing_on(tls_pair: Pair) -> None:
    record = tls_pair.far.on_the_wire(framed(b"an answer"))
    tls_pair.far.sock.send(record[:-1])
    tls_pair.loop.turn(10)
    assert not tls_pair.protocol.lost
    tls_pair.far.sock.close()
    for _ in range(3):
        tls_pair.loop.turn(10)
    (error,) = tls_pair.protocol.lost
    assert isinstance(error, kafka.errors.KafkaConnectionError)
    assert tls_pair.protocol.answers == []


def test_a_record_that_was_changed_on_its_way_ends_the_connection(tls_pair: Pair) -> None:
    record = bytearray(tls_pair.far.on_the_wire(framed(b"an answer")))
    record[-1] ^= 1
    tls_pair.far.sock.send(record)
    for _ in range(3):
        tls_pair.loop.turn(10)
    (error,) = tls_pair.protocol.lost
    assert isinstance(error, kafka.errors.KafkaConnectionError)
    assert "TLS failed" in str(error)
    assert tls_pair.protocol.answers == []


def records_of_small_pieces(pair: Pair) -> int:
    pieces = [b"header", bytes(100)] * 150
    pair.transport.write(list(pieces))
    assert isinstance(pair.far, TlsFar)
    received = bytearray()
    while len(received) < len(b"".join(pieces)):
        received += pair.far.recv(1_000_000)
        pair.loop.turn(0)
    assert received == b"".join(pieces)
    return pair.far.records


def test_small_pieces_share_a_record(tls_pair: Pair) -> None:
    assert records_of_small_pieces(tls_pair) == 1


def test_sent_one_by_one_each_would_have_a_record(tls_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_RECORD_BYTES", 0)
    assert records_of_small_pieces(tls_pair) == 300


def test_a_server_whose_certificate_names_another_host_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TlsRefusedError, match=r"other\.example"):
        Pair(tmp_path, host="other.example.")


class Echo(OwnRequest):
    """Says what it was given, and reads it back."""

    API_KEY, name = 99, "Echo"

    def __init__(self, *pieces: bytes) -> None:
        super().__init__(1, 1)
        self.API_VERSION = 1
        self._pieces = pieces

    def parts(self) -> tuple[bytes, ...]:
        return self._pieces

    def read(self, answer: memoryview) -> Any:
        if bytes(answer[:4]) == b"null":
            raise ValueError("nothing there")
        return bytes(answer)


def messages() -> Messages:
    return Messages(client_id="test", receive_message_max_bytes=LARGEST_BYTES)


def test_an_own_request_is_framed_with_a_header_of_version_2() -> None:
    speaking = messages()
    number = speaking.send_request(Echo(b"one", b"two"))
    raw = b"".join(speaking.send_bytes())
    assert struct.unpack_from(">ihhih", raw) == (len(raw) - 4, 99, 1, number, 4)
    assert raw[14:] == b"test\0onetwo"
    assert speaking.send_bytes() == []


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_is_read_by_the_request_that_it_belongs_to(streamed: bool) -> None:  # noqa: FBT001
    speaking = messages()
    numbers = [speaking.send_request(Echo(b"x")) for _ in range(2)]
    found = []
    for number in numbers:
        # Of version 1 the header has tags: here one, number 5, of three bytes.
        raw = struct.pack(">i", number) + b"\1\5\3abc" + b"answer %d" % number
        found += speaking.receive_bytes(framed(raw) if streamed else WholeAnswer(memoryview(raw)))
    assert found == [(number, b"answer %d" % number) for number in numbers]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "the answer to Echo, 0 bytes, can't be read"),
        (b"\0\0\0\1", "the answer to Echo, 4 bytes, can't be read"),
        (b"\0\0\0\1\1\0\x7f", "tagged fields beyond the end"),
        (b"\0\0\0\1\0null", "nothing there"),
        (b"\0\0\0\7\0", "answer 7 to request 1"),
    ],
)
def test_an_answer_that_can_not_be_one_says_so(raw: bytes, problem: str) -> None:
    speaking = messages()
    assert speaking.send_request(Echo(b"x")) == 1
    with pytest.raises(kafka.errors.KafkaProtocolError, match=problem):
        speaking.receive_bytes(WholeAnswer(memoryview(raw)))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**14, 2**21 - 1, 2**28, 2**32 - 1])
def test_lengths_are_written_and_read(value: int) -> None:
    written = packed_unsigned_varint(value)
    assert unsigned_varint(b"x" + written + b"y", 1) == (value, 1 + len(written))


@pytest.mark.parametrize(("raw", "error"), [(b"\x80", IndexError), (b"\xff" * 6, ValueError)])
def test_a_length_without_an_end_is_refused(raw: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        unsigned_varint(raw, 0)


def test_tagged_fields_are_passed_over() -> None:
    assert after_tags(memoryview(b"\2\0\1a\7\2bcrest"), 0) == 8
