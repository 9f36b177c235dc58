"""CRC-32C in plain Python, and what a change of a few bytes does to it.

The checksum is linear: changing one byte of a long message changes the checksum by an amount that depends on the
byte's old and new value and on how many bytes follow, not on the rest. So a batch is checksummed once, slowly, and
each copy with other timestamps costs a few table look-ups.
"""

from __future__ import annotations

from functools import cache

_POLYNOMIAL = 0x82F63B78
_MASK = 0xFFFFFFFF
_BITS = 32


def _byte_entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(_byte_entry(value) for value in range(256))


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The checksum of some bytes."""
    register = _MASK
    for byte in data:
        register = _TABLE[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ _MASK


def changes_of_byte(following_bytes: int) -> tuple[int, ...]:
    """What the checksum changes by, for each difference (XOR) of one byte's old and new value.

    Args:
        following_bytes: how many bytes of the message come after it.

    Returns:
        256 values to XOR the checksum with.
    """
    powers = [_after_zeros(_TABLE[1 << bit], following_bytes) for bit in range(8)]
    changes = [0] * 256
    for value in range(1, 256):
        lowest = value & -value
        changes[value] = changes[value ^ lowest] ^ powers[lowest.bit_length() - 1]
    return tuple(changes)


def _after_zeros(register: int, zero_bytes: int) -> int:
    """The register after so many zero bytes: one matrix for each power of two."""
    power = 0
    while zero_bytes:
        if zero_bytes & 1:
            register = _times(_matrix(power), register)
        zero_bytes >>= 1
        power += 1
    return register


@cache
def _matrix(power: int) -> tuple[int, ...]:
    """What ``2 ** power`` zero bytes do to each bit of the register."""
    if power == 0:
        return tuple(_TABLE[bit & 0xFF] ^ (bit >> 8) for bit in (1 << position for position in range(_BITS)))
    half = _matrix(power - 1)
    return tuple(_times(half, column) for column in half)


def _times(matrix: tuple[int, ...], vector: int) -> int:
    result = 0
    position = 0
    while vector:
        if vector & 1:
            result ^= matrix[position]
        vector >>= 1
        position += 1
    return result
