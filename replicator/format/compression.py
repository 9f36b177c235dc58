"""The four compressions of record batches, bounded: a small batch can't demand any amount of memory."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum

import lz4.frame
import pyarrow as pa

LARGEST_RECORDS_BYTES = 256 * 1024 * 1024
"""As much as a batch may have that is not compressed."""
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_BLOCK_BYTES = 64 * 1024
_USUAL_RATIO = 8
_LZ4_QUICKLY = -4
"""A third less time than at 0, for a few percent more bytes (docs/decisions/0007-copy-paths.md)."""
_LZ4_MOST_RATIO = 256
"""More can't come out of a byte."""
_LZ4_FLAGS_AT, _LZ4_SAYS_SIZE, _LZ4_SIZE = 4, 0x08, slice(6, 14)
"""Where a frame may claim a size; room would be made for all of that at once."""


class Compression(IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


COMPRESSIONS = tuple(Compression)
"""By their number in the attributes."""


class BadCompressionError(ValueError):
    """The bytes are not what the batch's attributes say, or more than allowed come out of them."""


class TooManyBytesError(BadCompressionError):
    """More than allowed come out of them."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} bytes come out of it")


def decompress(data: memoryview, how: Compression, limit: int = LARGEST_RECORDS_BYTES) -> bytes | memoryview:
    """The records of a batch.

    Args:
        data: what follows the batch's header.
        how: the batch's compression.
        limit: more bytes than this are refused.

    Raises:
        TooManyBytesError: they are more than ``limit`` bytes; no more than about twice as many were made to find out.
        BadCompressionError: they can't be decompressed.
    """
    if how is Compression.NONE:
        return data
    try:
        result = _DECOMPRESSORS[how](data, limit)
    except (
        pa.ArrowException,
        OSError,
        zlib.error,
        struct.error,
        MemoryError,
        EOFError,
        RuntimeError,
    ) as error:
        raise BadCompressionError(f"it is not {how.name.lower()}: {error}") from error
    if len(result) > limit:
        raise TooManyBytesError(limit)
    return result


def compress(data: bytes | memoryview, how: Compression, *, quickly: bool = False) -> bytes | memoryview:
    """The records as every Kafka client reads them; ``quickly``: rather in less time than in fewer bytes."""
    match how:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return gzip.compress(data, mtime=0)
        case Compression.SNAPPY:
            blocks = (bytes(pa.compress(block, "snappy", asbytes=True)) for block in _blocks(data))
            return _XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
        case Compression.LZ4:
            # Kafka's readers take only frames of independent blocks.
            return bytes(
                lz4.frame.compress(
                    data,
                    compression_level=_LZ4_QUICKLY if quickly else 0,
                    block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                    block_linked=False,
                    store_size=False,
                )
            )
        case Compression.ZSTD:
            return bytes(pa.compress(data, "zstd", asbytes=True))


def _blocks(data: bytes | memoryview) -> Iterator[bytes | memoryview]:
    for begin in range(0, len(data), _BLOCK_BYTES):
        yield data[begin : begin + _BLOCK_BYTES]


def _gunzipped(data: memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    result = stream.decompress(data, limit + 1)
    if not stream.eof and len(result) <= limit:
        raise EOFError("it ends too early")
    return result


def lz4_has_size(frame: memoryview) -> int:
    """Whether an LZ4 frame claims a size (a number other than 0)."""
    return len(frame) > _LZ4_FLAGS_AT and frame[_LZ4_FLAGS_AT] & _LZ4_SAYS_SIZE


def _unpacked_lz4(data: memoryview, limit: int) -> bytes:
    # Not by pyarrow, whose streams cost more to open than a small batch to read.
    most = len(data) * _LZ4_MOST_RATIO
    if lz4_has_size(data):
        most = max(most, int.from_bytes(data[_LZ4_SIZE], "little"))
    if most <= limit:
        result: bytes = lz4.frame.decompress(data)
        return result
    stream = lz4.frame.LZ4FrameDecompressor()
    rest: list[memoryview] = [data]
    result = _read_out(
        lambda size: b"" if stream.eof else stream.decompress(rest.pop() if rest else b"", size),
        len(data),
        limit,
    )
    if not stream.eof and len(result) <= limit:
        raise EOFError("it ends too early")
    return result


def _read_out(read: Callable[[int], bytes], packed_bytes: int, limit: int) -> bytes:
    """Read to the end, or beyond the limit; no call asks for much more than there is likely to be."""
    size = min(limit + 1, _USUAL_RATIO * packed_bytes + _BLOCK_BYTES)
    result = bytes(read(size))
    if len(result) < size or len(result) > limit:
        return result
    parts, total = [result], len(result)
    while total <= limit:
        parts.append(bytes(read(min(limit + 1 - total, total))))
        total += len(parts[-1])
        if not parts[-1]:
            break
    return b"".join(parts)


def _unsnapped(data: memoryview, limit: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnapped_block(data, limit)
    parts: list[bytes] = []
    size, begin = 0, len(_XERIAL_HEADER)
    while begin < len(data):
        (length,) = struct.unpack_from(">i", data, begin)
        begin += 4
        if length <= 0 or begin + length > len(data):
            raise EOFError(f"a block of {length} bytes does not fit")
        parts.append(_unsnapped_block(data[begin : begin + length], limit - size))
        size += len(parts[-1])
        begin += length
    return b"".join(parts)


def _unsnapped_block(block: memoryview, limit: int) -> bytes:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a variable-length number
            break
    else:
        raise EOFError("a snappy block without a size")
    if size > limit:
        raise TooManyBytesError(limit)
    return bytes(pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True))


def _unpacked_zstd(data: memoryview, limit: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return _read_out(stream.read, len(data), limit)


_DECOMPRESSORS = {
    Compression.GZIP: _gunzipped,
    Compression.SNAPPY: _unsnapped,
    Compression.LZ4: _unpacked_lz4,
    Compression.ZSTD: _unpacked_zstd,
}
