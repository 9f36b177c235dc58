"""Large messages through a socket: whole, in order, and refused where they can't be true."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import kafka.errors
import pytest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.transport import (
    Messages,
    OwnRequest,
    Transport,
    WholeAnswer,
    after_tags,
    packed_unsigned_varint,
    unsigned_varint,
)

LARGEST_BYTES = 5_000_000


class Protocol:
    """Takes what a transport hands on, as a connection does."""

    _sensors = None

    def __init__(self) -> None:
        self.parser = Messages(joins=False, client_id="test", receive_message_max_bytes=LARGEST_BYTES)
        self.answers: list[bytes] = []
        self.lost: list[Exception | None] = []

    def data_received(self, data: WholeAnswer) -> None:
        self.answers.append(bytes(data.read()))

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class Pair:
    """A transport, and the socket at its other end."""

    def __init__(self) -> None:
        self.loop, self.protocol = EventLoop(), Protocol()
        near, self.far = socket.socketpair()
        near.setblocking(False)  # noqa: FBT003 - the socket's own method
        self.far.setblocking(False)  # noqa: FBT003
        self.transport = Transport(self.loop.net, near, host="test")
        self.transport.set_protocol(self.protocol)
        self.transport.resume_reading()


@pytest.fixture
def pair() -> Iterator[Pair]:
    found = Pair()
    yield found
    found.transport.abort()
    found.far.close()
    found.loop.close()


def framed(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


@pytest.mark.parametrize("seed", range(8))
def test_answers_arrive_whole_and_in_order_however_they_are_cut(pair: Pair, seed: int) -> None:
    draw = Random(seed)
    sizes = [0, 1, 3, 4, 5, 65_532, 65_536, 65_537, 3_000_000] + [draw.randrange(2_000) for _ in range(200)]
    draw.shuffle(sizes)
    answers = [draw.randbytes(size) for size in sizes]
    coming = memoryview(b"".join(map(framed, answers)))
    while len(pair.protocol.answers) < len(answers):
        if coming:
            try:
                sent = pair.far.send(coming[: draw.choice((1, 3, 100, 5_000, 70_000, 1_000_000))])
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
    pair.far.close()
    for _ in range(3):
        pair.loop.turn(10)
    (error,) = pair.protocol.lost
    assert isinstance(error, kafka.errors.KafkaConnectionError)
    assert pair.protocol.answers == []


def test_a_connection_lost_while_sending_is_told(pair: Pair) -> None:
    pair.far.close()
    pair.transport.write([b"into the void"])
    for _ in range(3):
        pair.loop.turn(10)
    (error,) = pair.protocol.lost
    assert isinstance(error, kafka.errors.KafkaConnectionError)


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


def messages(*, joins: bool = False) -> Messages:
    return Messages(joins=joins, client_id="test", receive_message_max_bytes=LARGEST_BYTES)


def test_an_own_request_is_framed_with_a_header_of_version_2() -> None:
    speaking = messages()
    number = speaking.send_request(Echo(b"one", b"two"))
    raw = b"".join(speaking.send_bytes())
    assert struct.unpack_from(">ihhih", raw) == (len(raw) - 4, 99, 1, number, 4)
    assert raw[14:] == b"test\0onetwo"
    assert speaking.send_bytes() == []


def test_a_transport_that_knows_only_bytes_gets_the_same_in_one_piece() -> None:
    whole, parts = messages(joins=True), messages()
    for speaking in (whole, parts):
        speaking.send_request(Echo(b"one", b"two"))
        speaking.send_request(Echo(b"three"))
    assert whole.send_bytes() == b"".join(parts.send_bytes())


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
