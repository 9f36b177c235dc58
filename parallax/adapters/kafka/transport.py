"""Moves messages of many megabytes between sockets and memory without copying them about.

kafka-python copies an answer some seven times before it is read, and a request three times before it is sent. Here
an answer is received into the place where it stays, with TLS too, a request is sent from the places where its parts
are, and a message whose bytes matter can read or write itself (`OwnRequest`).
"""

from __future__ import annotations

import ssl
import struct
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar

import kafka.errors
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.parser import KafkaProtocol

from parallax.adapters.tls import refusal

Buffer = bytes | bytearray | memoryview

_SMALL_BYTES = 64 * 1024
"""Read at once while it is not known what comes."""
_MOST_PARTS = 128
"""Handed to the kernel at once; it takes no more than 1,024."""
_RECORD_BYTES = 16 * 1024
"""The most that one record of TLS carries (RFC 8446, section 5.1)."""
_NOT_NOW = (BlockingIOError, InterruptedError)
"""What a socket raises that can't do it at once."""
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
_NO_TAGS = b"\0"


def _register_primary(response_class: Any) -> None:
    """Note what reads the answers of an API: the class of all its versions, which lives as long as its module.

    kafka-python notes the classes of single versions too, weakly, as they come into being. Two threads that make one at the
    same time leave a note of the one that did not stay: no answer of that API could be read any more, in the whole
    process.
    """
    if getattr(response_class, "_class_version", None) is None:
        ResponseClassRegistry._response_class_registry[response_class.API_KEY] = response_class  # noqa: SLF001 - see above


ResponseClassRegistry.register_response_class = staticmethod(_register_primary)
for _key, _found in list(ResponseClassRegistry._response_class_registry.items()):  # noqa: SLF001 - what was noted before
    ResponseClassRegistry._response_class_registry[_key] = _found[None]  # noqa: SLF001


class OwnRequest:
    """A request that writes itself, and reads its own answer. Of flexible versions only (KIP-482).

    Args:
        oldest, newest: versions that it knows; the newest that the broker knows too is taken.
    """

    API_KEY: ClassVar[int]
    name: ClassVar[str]
    """As in Kafka's protocol, for messages."""

    def __init__(self, oldest: int, newest: int) -> None:
        # These names are what kafka-python's connections ask for.
        self.API_VERSION: int | None = None
        self.min_version = self._min_version = oldest
        self.max_version = self._max_version = newest

    @property
    def version(self) -> int:
        """The version that the connection has chosen."""
        if self.API_VERSION is None:
            raise RuntimeError(f"{self.name} has not been sent")
        return self.API_VERSION

    def expect_response(self) -> bool:
        """Whether an answer comes."""
        return True

    def parts(self) -> Sequence[Buffer]:
        """What follows the header, piece by piece; the pieces stay as they are until they have been sent."""
        raise NotImplementedError

    def read(self, answer: memoryview) -> Any:
        """The answer, of which `answer` is what follows the header. It may keep parts of it.

        Raises:
            ValueError, IndexError, struct.error: it can't be one.
        """
        raise NotImplementedError


class _Awaited:
    """What stands for an `OwnRequest` among those that wait for their answers."""

    def __init__(self, correlation_id: int, request: OwnRequest) -> None:
        self.correlation_id, self.request = correlation_id, request


class WholeAnswer:
    """A whole answer in its place, as kafka-python reads it: like a file."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def __len__(self) -> int:
        return len(self._view)

    def __repr__(self) -> str:
        return f"<an answer of {len(self._view)} bytes>"

    def read(self, size: int | None = None) -> Buffer:
        """The next bytes; all that are left as a view."""
        begin = self._at
        if size is None:
            self._at = len(self._view)
            return self._view[begin:]
        self._at = min(len(self._view), begin + size)
        return bytes(self._view[begin : self._at])

    def seek(self, at: int) -> None:
        """Go on there."""
        self._at = at

    def tell(self) -> int:
        """Where it goes on."""
        return self._at


class Messages(KafkaProtocol):  # type: ignore[misc] # kafka-python has no types
    """kafka-python's requests and answers, and `OwnRequest` among them."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.bytes_to_send: list[Buffer] = []

    def send_request(self, request: Any, correlation_id: int | None = None) -> int:
        """Queue a request; its number."""
        if not isinstance(request, OwnRequest):
            return int(super().send_request(request, correlation_id))
        number: int = self._next_correlation_id()
        client_id = self._client_id.encode()
        head = _HEAD.pack(request.API_KEY, request.version, number, len(client_id)) + client_id + _NO_TAGS
        body = request.parts()
        size = len(head) + sum(map(len, body))
        self.bytes_to_send.append(_SIZE.pack(size) + head)
        self.bytes_to_send.extend(body)
        self.in_flight_requests.append(_Awaited(number, request))
        return number

    def send_bytes(self) -> list[Buffer]:
        """What is queued, piece by piece."""
        queued, self.bytes_to_send = self.bytes_to_send, []
        return queued

    def receive_bytes(self, data: Any) -> list[tuple[int, Any]]:
        """The answers that are whole now: one, if ``data`` is an `WholeAnswer`."""
        if isinstance(data, WholeAnswer):
            return [self._process_response(data)]
        found: list[tuple[int, Any]] = super().receive_bytes(data)
        return found

    def check_size(self, size: int) -> None:
        """Refuse an answer of that many bytes, if it can't be one.

        Raises:
            kafka.errors.InvalidReceiveError: negative, or beyond what is allowed.
        """
        self._validate_frame_size(size)

    def _process_response(self, read_buffer: Any) -> tuple[int, Any]:
        awaited = self.in_flight_requests[0] if self.in_flight_requests else None
        if not isinstance(awaited, _Awaited):
            answered: tuple[int, Any] = super()._process_response(read_buffer)
            return answered
        self.in_flight_requests.popleft()
        view = memoryview(read_buffer.read())
        try:
            (number,) = _SIZE.unpack_from(view)
            if number != awaited.correlation_id:
                raise kafka.errors.CorrelationIdError(f"answer {number} to request {awaited.correlation_id}")
            return number, awaited.request.read(view[after_tags(view, _SIZE.size) :])
        except (ValueError, IndexError, struct.error) as error:
            name, size = awaited.request.name, len(view)
            raise kafka.errors.KafkaProtocolError(
                f"the answer to {name}, {size} bytes, can't be read: {error}"
            ) from error


class Transport(KafkaTCPTransport):  # type: ignore[misc] # kafka-python has no types
    """A connection whose messages stay where they are; without TLS."""

    _not_now: ClassVar[tuple[type[OSError], ...]] = _NOT_NOW

    def __init__(self, net: Any, sock: Any, host: str | None = None) -> None:
        super().__init__(net, sock, host=host)
        self._small = memoryview(bytearray(_SMALL_BYTES))
        self._begun = 0
        """Bytes of an answer in `_small`."""
        self._answer: memoryview | None = None
        """An answer of which the rest still has to come."""
        self._received = 0

    # --- reading -----------------------------------------------------------------------------------------------

    async def _read_from_sock(self) -> None:
        net, sock = self._net, self._sock
        try:
            await net.begin_reading(sock)
            while self._read and not self._closed:
                error = self._receive()
                if error is not None:
                    self.abort(error=error)
                    return
                await net.next_bytes()
        finally:
            net.end_reading(sock)

    def _receive(self) -> Exception | None:
        """Take what there is, but no more than the rest of one large answer; returns what is wrong with it."""
        self.last_read = time.monotonic()
        try:
            if self._answer is None:
                self._take_small(self._begun + self._into(self._small[self._begun :]))
            while self._answer is not None:
                self._take_large(self._answer)
        except self._not_now:
            return None
        except OSError as error:
            return self._broken(error)
        except kafka.errors.KafkaError as error:
            broken: Exception = error
            return broken
        except Exception as error:  # noqa: BLE001 - the task would end in silence, and every request wait for its time-out
            unread: Exception = kafka.errors.KafkaProtocolError(
                f"an answer can't be read: {type(error).__name__}: {error}"
            )
            return unread
        return None

    def _into(self, place: memoryview) -> int:
        count: int = self._sock.recv_into(place)
        if not count:
            raise _lost("socket disconnected")
        return count

    def _take_large(self, answer: memoryview) -> None:
        self._received += self._into(answer[self._received :])
        if self._received == len(answer):
            self._answer = None
            self._protocol.data_received(WholeAnswer(answer))

    def _take_small(self, end: int) -> None:
        """Hand on the answers that are whole, and begin the one that is not."""
        small, begin = self._small, 0
        while end - begin >= _SIZE.size:
            (size,) = _SIZE.unpack_from(small, begin)
            self._protocol.parser.check_size(size)
            begin += _SIZE.size
            here = min(size, end - begin)
            answer = memoryview(bytearray(size))
            answer[:here] = small[begin : begin + here]
            begin += here
            if here < size:
                self._answer, self._received = answer, here
                break
            self._protocol.data_received(WholeAnswer(answer))
            if self._closed:
                return
        self._begun = end - begin
        small[: self._begun] = bytes(small[begin:end])

    # --- writing -----------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Send what `Messages.send_bytes` gave: at once, as much as the kernel takes."""
        if not self._write or self._closed:
            raise RuntimeError("Transport closed for writes")
        self._write_buffer.extend(data)
        if self._writing:
            return
        _, error = self._sock_send()
        if error is not None or self._write_buffer:
            self._writing: bool = True
            self._write_task = self._net.call_soon(self._write_to_sock)

    def _sock_send(self) -> tuple[int, Exception | None]:
        """Send as much as the kernel takes: how much that was, and what went wrong."""
        waiting, total = self._write_buffer, 0
        if self._sock is None:
            return 0, _lost("connection closed")
        while waiting:
            try:
                sent = self._send()
            except self._not_now:
                break
            except OSError as error:
                return total, self._broken(error)
            self.last_write = time.monotonic()
            total += sent
            while waiting and sent >= len(waiting[0]):
                sent -= len(waiting.popleft())
            if sent:
                waiting[0] = memoryview(waiting[0])[sent:]
        return total, None

    def _send(self) -> int:
        """Hand the kernel what it takes of what waits: how many bytes that was."""
        sent: int = self._sock.sendmsg(list(islice(self._write_buffer, _MOST_PARTS)))
        return sent

    def _broken(self, error: OSError) -> Exception:
        """What the connection ends with after this."""
        return _lost(error)


class TlsRefusedError(kafka.errors.KafkaConnectionError):  # type: ignore[misc] # kafka-python has no types
    """One side of a TLS connection does not accept the other; that will not change by itself."""


class TlsTransport(Transport):
    """A connection with TLS whose messages stay where they are, and whose handshake ends in time.

    Args:
        net, sock, host: as kafka-python's.
        timeout_at: when the other side must have done its part (monotonic seconds); None: any time.
        context: whom to trust, and what to show.
    """

    _not_now = (*_NOT_NOW, ssl.SSLWantReadError, ssl.SSLWantWriteError)

    def __init__(
        self,
        net: Any,
        sock: Any,
        host: str | None = None,
        *,
        timeout_at: float | None,
        context: ssl.SSLContext,
    ) -> None:
        name = None if host is None else host.rstrip(".")
        encrypted = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
        super().__init__(net, encrypted, host=host)
        self._timeout_at = timeout_at

    async def handshake(self) -> None:
        """Agree with the other side.

        Raises:
            kafka.errors.KafkaTimeoutError: it took a connection, and then said nothing for too long.
            TlsRefusedError: one side does not accept the other.
            kafka.errors.KafkaConnectionError: it does not speak TLS, or not with us.
        """
        try:
            while not await self._shake():
                pass
        except BaseException as error:
            self._sock.close()
            if isinstance(error, OSError):
                raise _tls_lost(error) from error
            raise

    async def _shake(self) -> bool:
        """Do what can be done now, and wait for more; whether all is done."""
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            await self._net.wait_read(self._sock, timeout_at=self._timeout_at)
        except ssl.SSLWantWriteError:
            await self._net.wait_write(self._sock, timeout_at=self._timeout_at)
        else:
            return True
        return False

    def _receive(self) -> Exception | None:
        """Leave nothing of a record that has been opened: of that the kernel tells no more."""
        error = super()._receive()
        while error is None and not self._closed and self._sock.pending():
            error = super()._receive()
        return error

    def _send(self) -> int:
        """Fill a record: one for each small piece would cost more than to join them."""
        waiting = self._write_buffer
        if len(waiting) > 1 and len(waiting[0]) < _RECORD_BYTES:
            record = bytearray()
            while waiting and len(record) < _RECORD_BYTES:
                piece = memoryview(waiting.popleft())
                room = _RECORD_BYTES - len(record)
                record += piece[:room]
                if len(piece) > room:
                    waiting.appendleft(piece[room:])
            waiting.appendleft(record)  # to stay in front until it has gone: TLS wants the same bytes again
        return int(self._sock.send(waiting[0])) if waiting[0] else 0

    def _broken(self, error: OSError) -> Exception:
        """In TLS 1.3 the other side refuses our certificate only here, after the handshake."""
        return _tls_lost(error) if isinstance(error, ssl.SSLError) else _lost(error)


def _tls_lost(error: OSError) -> Exception:
    why = refusal(error)
    if why is not None:
        return TlsRefusedError(f"TLS: {why}")
    return _lost(f"TLS failed: {error}")


def _lost(why: object) -> Exception:
    error: Exception = kafka.errors.KafkaConnectionError(why)
    return error


def unsigned_varint(view: Buffer, at: int) -> tuple[int, int]:
    """The number at ``at`` of ``view``, and where it ends (KIP-482).

    Raises:
        IndexError: it has no end.
        ValueError: it is longer than 32 bits allow.
    """
    found = shift = 0
    while True:
        byte = view[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last byte
            return found, at
        shift += 7
        if shift > 28:  # noqa: PLR2004 - five bytes
            raise ValueError("a length of more than 32 bits")


def packed_unsigned_varint(value: int) -> bytes:
    """`unsigned_varint`, written."""
    pieces = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits to a byte
        pieces.append((value & 0x7F) | 0x80)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


def after_tags(view: memoryview, at: int) -> int:
    """Where the tagged fields at ``at`` end.

    Raises:
        IndexError, ValueError: they can't be such.
    """
    count, at = unsigned_varint(view, at)
    for _ in range(count):
        _, at = unsigned_varint(view, at)
        size, at = unsigned_varint(view, at)
        at += size
    if at > len(view):
        raise ValueError("tagged fields beyond the end")
    return at
