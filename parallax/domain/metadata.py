"""What a group's committed offset says beside the number: progress and skip ranges in Kafka's metadata string.

Kafka keeps a string with each committed offset (``OffsetAndMetadata.metadata``; brokers refuse more than
``offset.metadata.max.bytes``, 4,096 by default). A client that starts from a committed offset skips by it
without asking anybody. The text is ``plx<version>.`` and URL-safe base64 of a binary body with a checksum:
unsigned LEB128 numbers, strings with their length before them, offsets as differences where they ascend.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from parallax.domain.ids import RegionName, SourceId, SourceOffset, TargetOffset, TopicId
from parallax.domain.progress import SourcePosition
from parallax.domain.skips import SkipRange
from parallax.errors import LimitError, MetadataError

VERSION = 1
MAX_METADATA_BYTES = 4096
MAX_SKIP_BYTES = 3584
"""What skip ranges may take of the text, base64 included: 3.5 KB, so that further sources still fit."""

_MARK = "plx"
_CHECKSUM_BYTES = 4
_MAX_NUMBER = 2**63 - 1
_MAX_NUMBER_BYTES = 9
_SEVEN_BITS = 0x7F
"""Of a number in each byte; the high bit tells of a further one."""
_TWO_BYTES, _THREE_BYTES = 1 << 14, 1 << 21
_SHORT = tuple(bytes((value,)) for value in range(_SEVEN_BITS + 1))
_MOST_NAMES = 10_000
"""Of regions and topics of which it is remembered how they are written: the same ones stand in every text."""


@dataclass(frozen=True, slots=True)
class CommittedMetadata:
    """What a move leaves in the destination's committed offset.

    Attributes:
        fencing_number: of the decision that made the destination primary; 0 if none was recorded.
        target_topic_id: the incarnation of the destination's topic; under another one all of this is void. Empty: the
            topic was not there yet, and whichever one came is meant (`holds_for_topic`).
        resume_offset: the resume offset of the move; a commit below it voids the positions.
        positions: how far each source was consumed, older incarnations of a region's topic first.
        skips: target offsets consumed already, merged and ascending.
        complete_to: below this target offset the skip ranges are complete; None: everywhere.
    """

    fencing_number: int
    target_topic_id: TopicId
    resume_offset: TargetOffset
    positions: Mapping[SourceId, SourcePosition]
    skips: Sequence[SkipRange] = ()
    complete_to: TargetOffset | None = None


def is_ours(text: str | None) -> bool:
    """Whether the text was written by Parallax, of whatever version and in whatever state."""
    return text is not None and text.startswith(_MARK)


def encode(metadata: CommittedMetadata) -> str:
    """The text of ``metadata``: printable ASCII, at most `MAX_METADATA_BYTES`.

    Skip ranges that do not fit are left out from the end, and ``complete_to`` then ends before the first of
    them. Positions forget their older leader epochs first if that is what it takes.

    Raises:
        LimitError: the positions alone do not fit.
        MetadataError: a field that can't be written (negative offsets, skip ranges out of order).
    """
    beginning = b"".join(
        [
            _number(metadata.fencing_number),
            _string(metadata.target_topic_id),
            _number(metadata.resume_offset),
        ]
    )
    for with_epochs in (True, False):
        vector = _vector(metadata.positions if with_epochs else _without_epochs(metadata.positions))
        # Reserved: a complete_to that leaving out ranges may add, and the count of the ranges; they take a byte each at least.
        spare = _body_bytes(MAX_METADATA_BYTES) - len(beginning) - len(vector) - 2 - _MAX_NUMBER_BYTES
        if spare < _MAX_NUMBER_BYTES:
            continue
        kept, complete_to = _fitting(metadata, min(spare - _MAX_NUMBER_BYTES, MAX_SKIP_BYTES * 3 // 4))
        known_to = _number(0 if complete_to is None else complete_to + 1)
        return _text(b"".join([beginning, known_to, vector, _number(len(kept)), *kept]))
    raise LimitError(
        f"the progress of {len(metadata.positions)} sources does not fit into {MAX_METADATA_BYTES} bytes of metadata"
    )


def decode(text: str | None) -> CommittedMetadata:
    """What the text says.

    Raises:
        MetadataError: it is not ours (`is_ours` tells), of a version unknown to this release, or damaged.
    """
    if text is None or not is_ours(text):
        raise MetadataError("the committed metadata was not written by Parallax")
    version, dot, packed = text.removeprefix(_MARK).partition(".")
    if not dot or version != str(VERSION):
        raise MetadataError(f"committed metadata of version {version[:10]!r}: this release reads {VERSION}")
    try:
        body = base64.b64decode(
            packed.encode("ascii") + b"=" * (-len(packed) % 4), altchars=b"-_", validate=True
        )
    except (binascii.Error, UnicodeEncodeError) as error:
        raise MetadataError(f"committed metadata is damaged: {error}") from error
    checksum, content = body[:_CHECKSUM_BYTES], body[_CHECKSUM_BYTES:]
    if checksum != _checksum(content) or text != _text(content):
        raise MetadataError("committed metadata is damaged: its checksum does not fit")
    return _read(_Reader(content))


def _without_epochs(positions: Mapping[SourceId, SourcePosition]) -> dict[SourceId, SourcePosition]:
    return {
        source: replace(
            position,  # where the newest epoch was read from on can't be left out
            epoch_ends=tuple(pair for pair in position.epoch_ends if pair[0] == position.leader_epoch)
            if position.starts
            else (),
        )
        for source, position in positions.items()
    }


def _body_bytes(text_bytes: int) -> int:
    """How many body bytes fit into a text of that length."""
    return (text_bytes - len(f"{_MARK}{VERSION}.")) * 3 // 4 - _CHECKSUM_BYTES


def _fitting(metadata: CommittedMetadata, limit_bytes: int) -> tuple[list[bytes], TargetOffset | None]:
    """The skip ranges that fit into so many bytes, as they are written, and up to where they are then complete."""
    kept: list[bytes] = []
    place, left = 0, limit_bytes
    for start, end in metadata.skips:
        written = _number(start - place) + _number(end - start)
        left -= len(written)
        if left < 0:
            return kept, start if metadata.complete_to is None else min(start, metadata.complete_to)
        kept.append(written)
        place = end
    return kept, metadata.complete_to


def _text(content: bytes) -> str:
    packed = base64.urlsafe_b64encode(_checksum(content) + content).decode("ascii").rstrip("=")
    return f"{_MARK}{VERSION}.{packed}"


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big")


def _vector(positions: Mapping[SourceId, SourcePosition]) -> bytes:
    parts = [_number(len(positions))]
    for source, position in positions.items():
        parts += [
            _string(source.region),
            _string(source.topic_id),
            _number(position.leader_epoch + 1),
            _number(position.source_next),
            _number(len(position.epoch_ends)),
        ]
        for epoch, end in position.epoch_ends:
            parts += [_number(epoch + 1), _number(end)]
    return b"".join(parts)


def _number(value: int) -> bytes:
    if 0 <= value <= _SEVEN_BITS:  # nearly all of what lies between ranges
        return _SHORT[value]
    if 0 <= value < _TWO_BYTES:
        return bytes((value & _SEVEN_BITS | 0x80, value >> 7))
    if 0 <= value < _THREE_BYTES:
        return bytes((value & _SEVEN_BITS | 0x80, value >> 7 & _SEVEN_BITS | 0x80, value >> 14))
    if not 0 <= value <= _MAX_NUMBER:
        raise MetadataError(f"{value} can't be written into committed metadata: it is negative or too large")
    out = bytearray()
    while value > _SEVEN_BITS:
        out.append(value & _SEVEN_BITS | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(_MOST_NAMES)
def _string(value: str) -> bytes:
    raw = value.encode()
    return _number(len(raw)) + raw


@dataclass(slots=True)
class _Reader:
    content: bytes
    place: int = field(default=0)

    def number(self) -> int:
        value = 0
        for index in range(_MAX_NUMBER_BYTES):
            if self.place >= len(self.content):
                raise MetadataError("committed metadata is damaged: it ends in the middle")
            byte = self.content[self.place]
            self.place += 1
            value |= (byte & _SEVEN_BITS) << (7 * index)
            if byte <= _SEVEN_BITS:
                return value
        raise MetadataError("committed metadata is damaged: a number has no end")

    def count(self) -> int:
        """A number of things that follow; each takes at least a byte."""
        count = self.number()
        if count > len(self.content) - self.place:
            raise MetadataError("committed metadata is damaged: it names more entries than it holds")
        return count

    def string(self) -> str:
        length = self.count()
        raw = self.content[self.place : self.place + length]
        self.place += length
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MetadataError(f"committed metadata is damaged: {error}") from error


def _read(reader: _Reader) -> CommittedMetadata:
    fencing_number = reader.number()
    target_topic_id = TopicId(reader.string())
    resume_offset = TargetOffset(reader.number())
    complete_to = reader.number()
    positions: dict[SourceId, SourcePosition] = {}
    for _ in range(reader.count()):
        source = SourceId(RegionName(reader.string()), TopicId(reader.string()))
        epoch, source_next = reader.number() - 1, SourceOffset(reader.number())
        ends = tuple((reader.number() - 1, SourceOffset(reader.number())) for _ in range(reader.count()))
        positions[source] = SourcePosition(epoch, source_next, ends)
    skips = []
    place = 0
    for _ in range(reader.count()):
        start = place + reader.number()
        place = start + reader.number()
        if place == start or place > _MAX_NUMBER:
            raise MetadataError("committed metadata is damaged: a skip range that is empty or too large")
        skips.append(SkipRange(TargetOffset(start), TargetOffset(place)))
    if reader.place != len(reader.content):
        raise MetadataError("committed metadata is damaged: something follows its end")
    return CommittedMetadata(
        fencing_number,
        target_topic_id,
        resume_offset,
        positions,
        tuple(skips),
        TargetOffset(complete_to - 1) if complete_to else None,
    )
