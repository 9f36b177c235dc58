"""Committed metadata: round trips, what does not fit, and text of any other kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.domain.ids import RegionName, SourceId, SourceOffset, TargetOffset, TopicId
from parallax.domain.metadata import (
    MAX_METADATA_BYTES,
    MAX_SKIP_BYTES,
    CommittedMetadata,
    decode,
    encode,
    is_ours,
)
from parallax.domain.progress import SourcePosition
from parallax.domain.skips import SkipRange
from parallax.errors import LimitError, MetadataError

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**62))
offsets = numbers.map(SourceOffset)
names = st.text(st.characters(codec="utf-8"), max_size=12)
positions = st.builds(
    SourcePosition,
    st.integers(-1, 2**31),
    offsets,
    st.lists(st.tuples(st.integers(-1, 2**31), offsets), max_size=3).map(tuple),
)


@st.composite
def ranges(draw: st.DrawFn, max_size: int = 40) -> tuple[SkipRange, ...]:
    place, found = 0, []
    for gap, count in draw(
        st.lists(st.tuples(st.integers(1, 2**40), st.integers(1, 2**20)), max_size=max_size)
    ):
        found.append(SkipRange(TargetOffset(place + gap), TargetOffset(place + gap + count)))
        place += gap + count
    return tuple(found)


any_metadata = st.builds(
    CommittedMetadata,
    numbers,
    names.map(TopicId),
    numbers.map(TargetOffset),
    st.dictionaries(st.builds(SourceId, names.map(RegionName), names.map(TopicId)), positions, max_size=4),
    ranges(),
    st.none() | numbers.map(TargetOffset),
)


@given(any_metadata)
def test_round_trip(metadata: CommittedMetadata) -> None:
    text = encode(metadata)
    assert len(text) <= MAX_METADATA_BYTES
    assert text.isascii()
    assert text.isprintable()
    assert is_ours(text)
    assert decode(text) == metadata
    assert list(decode(text).positions) == list(
        metadata.positions
    )  # older incarnations stay before newer ones


def many_skips(count: int) -> tuple[SkipRange, ...]:
    return tuple(SkipRange(TargetOffset(i * 1_000), TargetOffset(i * 1_000 + 7)) for i in range(count))


def some(skips: tuple[SkipRange, ...], complete_to: int | None, sources: int = 2) -> CommittedMetadata:
    vector = {
        SourceId(RegionName(f"region-{index}"), TopicId("i" * 22)): SourcePosition(
            7, SourceOffset(10**12), tuple((epoch, SourceOffset(10**11 * epoch)) for epoch in range(8))
        )
        for index in range(sources)
    }
    bound = None if complete_to is None else TargetOffset(complete_to)
    return CommittedMetadata(9, TopicId("t" * 22), TargetOffset(0), vector, skips, bound)


@pytest.mark.parametrize("complete_to", [None, 500_000, 4_999_000])
def test_skip_ranges_that_do_not_fit_are_left_out_and_said(complete_to: int | None) -> None:
    whole = some(many_skips(5_000), complete_to)
    text = encode(whole)
    cut = decode(text)
    assert MAX_SKIP_BYTES <= len(text) <= MAX_METADATA_BYTES
    assert 500 < len(cut.skips) < 5_000
    assert tuple(cut.skips) == tuple(whole.skips)[: len(cut.skips)]
    first_left_out = whole.skips[len(cut.skips)].start
    assert cut.complete_to == (first_left_out if complete_to is None else min(first_left_out, complete_to))
    assert cut.positions == whole.positions


def test_many_sources_forget_older_epochs_before_anything_else() -> None:
    kept = decode(encode(some(many_skips(10), None, sources=60)))
    assert len(kept.positions) == 60
    assert {position.epoch_ends for position in kept.positions.values()} == {()}


def test_more_sources_than_fit_are_refused() -> None:
    with pytest.raises(LimitError, match="200 sources"):
        encode(some((), None, sources=200))


@given(st.none() | st.text())
def test_foreign_text_is_not_ours(text: str | None) -> None:
    if not is_ours(text):
        with pytest.raises(MetadataError, match="not written by Parallax"):
            decode(text)


@given(any_metadata, st.data())
def test_damaged_text_is_refused(metadata: CommittedMetadata, data: st.DataObject) -> None:
    text = encode(metadata)
    place = data.draw(st.integers(len("plx"), len(text) - 1))
    damage = data.draw(st.sampled_from(["cut", "change", "insert"]))
    if damage == "cut":
        broken = text[:place]
    else:
        letter = data.draw(
            st.characters(min_codepoint=33, max_codepoint=126).filter(lambda c: c != text[place])
        )
        broken = text[:place] + letter + text[place + (damage == "change") :]
    if broken == text:
        return
    assert is_ours(broken)
    with pytest.raises(MetadataError):
        decode(broken)


@given(st.binary(max_size=200))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    import base64  # noqa: PLC0415 - used here only
    import zlib  # noqa: PLC0415 - used here only

    packed = base64.urlsafe_b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode().rstrip("=")
    try:
        found = decode(f"plx1.{packed}")
    except MetadataError:
        return
    assert decode(encode(found)) == found


def test_a_version_of_the_future_is_named() -> None:
    with pytest.raises(MetadataError, match="version '2'"):
        decode("plx2.AAAA")


def test_negative_offsets_can_not_be_written() -> None:
    with pytest.raises(MetadataError, match="-1"):
        encode(CommittedMetadata(0, TopicId("t"), TargetOffset(-1), {}))
