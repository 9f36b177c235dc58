"""The four compressions of record batches, bounded: a small batch can't demand any amount of memory."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator

import lz4.frame
import pyarrow as pa

from replicator.batches.header import Compression

LARGEST_RECORDS_BYTES = 512 * 1024 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_BLOCK_BYTES = 64 * 1024
_USUAL_RATIO = 8
_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Magic number, version 1 with independent blocks (Kafka's readers take no others) of 64 KiB, header checksum."""
_LZ4_STORED = 0x80000000


class BadCompressionError(ValueError):
    """The bytes are not what the batch's attributes say, or more than allowed come out of them."""


def decompressed(data: memoryview, how: Compression, limit: int = LARGEST_RECORDS_BYTES) -> memoryview:
    """The records of a batch.

    Args:
        data: what follows the batch's header.
        how: the batch's compression.
        limit: more bytes than this are refused.

    Raises:
        BadCompressionError: they can't be decompressed, or are more than ``limit`` bytes.
    """
    if how is Compression.NONE:
        return data
    try:
        if how is Compression.SNAPPY:
            result = _unsnapped(data, limit)
        elif how is Compression.GZIP:
            result = _gunzipped(data, limit)
        elif how is Compression.LZ4:
            result = _unpacked_lz4(data, limit)
        else:
            with pa.CompressedInputStream(pa.BufferReader(data), how.name.lower()) as stream:
                result = _read_out(stream.read, len(data), limit)
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
        raise BadCompressionError(f"more than {limit} bytes come out of it")
    return memoryview(result)


def compressed(data: bytes, how: Compression) -> bytes:
    """The records as every Kafka client reads them."""
    match how:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return gzip.compress(data, mtime=0)
        case Compression.SNAPPY:
            blocks = (bytes(pa.compress(block, "snappy", asbytes=True)) for block in _blocks(data))
            return _XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
        case Compression.LZ4:
            return _LZ4_HEADER + b"".join(map(_lz4_block, _blocks(data))) + bytes(4)
        case Compression.ZSTD:
            return bytes(pa.compress(data, "zstd", asbytes=True))


def _blocks(data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), _BLOCK_BYTES):
        yield data[begin : begin + _BLOCK_BYTES]


def _lz4_block(block: bytes) -> bytes:
    packed = bytes(pa.compress(block, "lz4_raw", asbytes=True))
    if len(packed) < len(block):
        return struct.pack("<I", len(packed)) + packed
    return struct.pack("<I", len(block) | _LZ4_STORED) + block


def _gunzipped(data: memoryview, limit: int) -> bytes:
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    result = stream.decompress(data, limit + 1)
    if not stream.eof and len(result) <= limit:
        raise EOFError("it ends too early")
    return result


def _unpacked_lz4(data: memoryview, limit: int) -> bytes:
    # Not by pyarrow, whose streams cost more to open than a small batch to read.
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
        raise BadCompressionError(f"more than {limit} bytes come out of it")
    return bytes(pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True))
