"""The four compressions of record batches, bounded: a small batch can't demand any amount of memory."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence

import lz4.frame
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from replicator.format.columns import Numbers, bytes_at
from replicator.format.header import Compression

LARGEST_RECORDS_BYTES = 512 * 1024 * 1024
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
_LZ4_USUAL_HEAD = np.frombuffer(b"\x04\x22\x4d\x18\x60\x40\x82", np.uint8)
"""As the JVM's clients and librdkafka write it: independent blocks of up to 64 KiB, no checksums, no size."""
_LZ4_STORED_AT, _LZ4_END_BYTES, _LZ4_IS_STORED = 11, 4, 0x80000000
"""Behind that the size of the first block, with a bit that says that it is not compressed; a size of zero ends the frame."""


class BadCompressionError(ValueError):
    """The bytes are not what the batch's attributes say, or more than allowed come out of them."""


def decompressed(
    data: memoryview, how: Compression, limit: int = LARGEST_RECORDS_BYTES
) -> bytes | memoryview:
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
        raise BadCompressionError(f"more than {limit} bytes come out of it")
    return result


def decompressed_each(
    buffer: memoryview, begins: Numbers, ends: Numbers, compressions: Sequence[Compression]
) -> list[bytes | memoryview]:
    """What `decompressed` makes of the records of each of some small batches.

    Args:
        buffer: has them all.
        begins: where the records of each begin in it.
        ends: where they end.
        compressions: of each.

    Raises:
        BadCompressionError: those of some batch are out of the ordinary, or damaged: `decompressed` decides.
    """
    places = zip(begins.tolist(), ends.tolist(), strict=True)
    if not min(compressions) is Compression.LZ4 is max(compressions):
        return [
            decompressed(buffer[begin:end], how)
            for (begin, end), how in zip(places, compressions, strict=True)
        ]
    result: list[bytes | memoryview] = []
    context, unpack = lz4.frame.create_decompression_context(), lz4.frame.decompress_chunk
    for (begin, end), is_stored in zip(places, _stored_lz4(buffer, begins, ends).tolist(), strict=True):
        if is_stored:
            result.append(buffer[begin + _LZ4_STORED_AT : end - _LZ4_END_BYTES])
            continue
        frame = buffer[begin:end]
        try:
            content, read_bytes, is_whole = (b"", 0, False) if _says_size(frame) else unpack(context, frame)
        except (RuntimeError, MemoryError) as error:
            raise BadCompressionError(f"it is not lz4: {error}") from error
        if not is_whole or read_bytes != end - begin:
            raise BadCompressionError("an unusual lz4 frame")
        result.append(content)
    return result


def _stored_lz4(buffer: memoryview, begins: Numbers, ends: Numbers) -> npt.NDArray[np.bool_]:
    """Which of the frames hold one block that is not compressed, as those of single records often do."""
    data = np.frombuffer(buffer, np.uint8)
    sizes = ends - begins
    result = sizes > _LZ4_STORED_AT + _LZ4_END_BYTES
    head = bytes_at(data, np.where(result, begins, 0), _LZ4_STORED_AT)
    block_sizes = head[:, len(_LZ4_USUAL_HEAD) :].copy().view("<u4")[:, 0]
    result &= (head[:, : len(_LZ4_USUAL_HEAD)] == _LZ4_USUAL_HEAD).all(axis=1)
    result &= block_sizes == (sizes - _LZ4_STORED_AT - _LZ4_END_BYTES) | _LZ4_IS_STORED
    result &= ~bytes_at(data, np.where(result, ends - _LZ4_END_BYTES, 0), _LZ4_END_BYTES).any(axis=1)
    return result


def compressed(data: bytes | memoryview, how: Compression, *, quickly: bool = False) -> bytes | memoryview:
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


def _says_size(frame: memoryview) -> int:
    return len(frame) > _LZ4_FLAGS_AT and frame[_LZ4_FLAGS_AT] & _LZ4_SAYS_SIZE


def _unpacked_lz4(data: memoryview, limit: int) -> bytes:
    # Not by pyarrow, whose streams cost more to open than a small batch to read.
    most = len(data) * _LZ4_MOST_RATIO
    if _says_size(data):
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
        raise BadCompressionError(f"more than {limit} bytes come out of it")
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
