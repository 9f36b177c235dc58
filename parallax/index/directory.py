"""Where the blocks of lineages begin, and the blocks that were read: what a look-up searches."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from weakref import WeakValueDictionary, ref

from parallax.domain.block_history import BlockTable
from parallax.domain.block_rows import BlockKey, in_order
from parallax.domain.blocks import Block
from parallax.domain.formats import unreadable
from parallax.domain.index_rows import layout_of, left_by
from parallax.domain.lineage_history import MissingBlock
from parallax.errors import UnreadableRowError
from parallax.index.tails import Generation, TurnRows
from parallax.ports.blocks import BlockName, BlockReaderStore, BlocksOf, Reached, ToldKey
from parallax.runtime.newest import Newest

MEMORY_BYTES = 256 << 20
"""For blocks, and as much for keys."""

_BESIDE_A_BLOCK_BYTES = 2_100
"""Its name and the views of its columns; measured, as is the next."""
_KEY_BYTES = 330
"""A key with the block's first row alone."""

_KEYS_AT_ONCE = 512

_READ_AGAIN = 4
"""Keys before the last one: of a lineage whose owner died before blocks reached what it wrote, another one begins earlier."""


@dataclass(frozen=True, slots=True)
class Directory:
    """The keys of a lineage's blocks that count, in order.

    Attributes:
        first_rows: by key: the block's first row alone.
        whole: whether there are no others before them.
        generation: when they were read.
    """

    keys: Sequence[BlockKey]
    first_rows: dict[BlockKey, bytes]
    whole: bool
    generation: Generation

    @property
    def memory_bytes(self) -> int:
        """About what it takes."""
        return _KEY_BYTES * (1 + len(self.first_rows))

    def with_others(self, told: Iterable[ToldKey], *, whole: bool, generation: Generation) -> Directory:
        """The same with further keys."""
        first_rows = self.first_rows | dict(told)
        return Directory(in_order(first_rows), first_rows, whole, generation)


@dataclass(frozen=True, slots=True)
class UnreadBlock(MissingBlock):
    """A block that has to be read, and the directory that names it."""

    name: BlockName
    directory: Directory


@dataclass(frozen=True, slots=True, weakref_slot=True)
class KnownBlock:
    """A block that was read, and when; ``final``: it reaches to where another one had begun by then, unless an earlier layout has left more."""

    block: Block
    generation: Generation
    final: bool

    @property
    def memory_bytes(self) -> int:
        """About what it takes."""
        return _BESIDE_A_BLOCK_BYTES + self.block.nbytes


class Blocks:
    """Directories and blocks that were read, as many as is bounded. Safe to use from several threads.

    Args:
        store: where they are.
        memory_bytes: about what blocks take that are remembered, and about what keys take. What one look-up needs is remembered,
            however much it is.
    """

    def __init__(self, store: BlockReaderStore, *, memory_bytes: int = MEMORY_BYTES) -> None:
        self._store = store
        self._blocks: Newest[BlockName, KnownBlock] = Newest(memory_bytes, lambda known: known.memory_bytes)
        self._held: WeakValueDictionary[BlockName, KnownBlock] = WeakValueDictionary()
        """What somebody has read and still keeps, remembered or not. A call keeps some hundred blocks at most, while it is answered."""
        self._directories: Newest[BlocksOf, Directory] = Newest(
            memory_bytes, lambda directory: directory.memory_bytes
        )

    def directories(self, wanted: Sequence[tuple[BlocksOf, Generation]]) -> list[Directory]:
        """The last keys of lineages, as they were told by these generations at least; those that have to be read, together."""
        known = {place: self._directories.get(place) for place, _ in wanted}
        found: dict[BlocksOf, Directory] = {}
        new: list[tuple[BlocksOf, Generation]] = []
        changed: list[tuple[BlocksOf, Generation, Directory]] = []
        for place, generation in wanted:
            directory = known[place]
            if directory is None or not directory.keys:
                if directory is None or directory.generation != generation:
                    new.append((place, generation))
                else:
                    found[place] = directory
            elif _anew(directory.generation, generation):
                new.append((place, generation))
            elif directory.generation != generation:
                changed.append((place, generation, directory))
            else:
                found[place] = directory
        if new:
            told = self._store.keys_below([(place, None) for place, _ in new], _KEYS_AT_ONCE)
            for (place, generation), keys in zip(new, told, strict=True):
                empty = Directory((), {}, whole=False, generation=generation)
                found[place] = empty.with_others(keys, whole=len(keys) < _KEYS_AT_ONCE, generation=generation)
        if changed:
            asked = [
                (place, directory.keys[max(0, len(directory.keys) - _READ_AGAIN)].target_start)
                for place, _, directory in changed
            ]
            later = self._store.keys_from(asked)
            for (place, generation, directory), keys in zip(changed, later, strict=True):
                found[place] = directory.with_others(keys, whole=directory.whole, generation=generation)
        read = {place for place, _ in new} | {place for place, _, _ in changed}
        self._directories.put_all({place: found[place] for place in read})
        return [found[place] for place, _ in wanted]

    def with_older(self, place: BlocksOf, directory: Directory) -> Directory:
        """A directory that is not whole, with some older keys."""
        lowest = min(key.target_start for key in directory.first_rows)
        (told,) = self._store.keys_below([(place, lowest)], 2 * _KEYS_AT_ONCE)
        known = len(directory.first_rows)
        whole = len(told) < 2 * _KEYS_AT_ONCE
        further = directory.with_others(told, whole=whole, generation=directory.generation)
        if len(further.first_rows) == known:
            further = replace(further, whole=True)
        self._directories.replace(place, directory, further)
        return further

    def known(self, name: BlockName, generation: Generation) -> Block | None:
        """A block that need not be read."""
        known = self._blocks.get(name) or self._held.get(name)
        if known is None or known.generation == generation:
            return None if known is None else known.block
        if known.generation.losses != generation.losses:
            return None
        left = name.key.term == left_by(layout_of(name.key.term))
        grows = left and _of_earlier_layouts(known.generation) != _of_earlier_layouts(generation)
        return known.block if known.final and not grows else None

    def read(self, wanted: Collection[UnreadBlock]) -> Mapping[BlockName, KnownBlock]:
        """Read blocks at once; of those that are gone, their first rows. As long as they are kept, they are `known`, unless others read them too."""
        if not wanted:
            return {}
        stored = self._store.blocks([item.name for item in wanted])
        known: dict[BlockName, KnownBlock] = {}
        for item in wanted:
            name, directory = item.name, item.directory
            body = stored.get(name)
            first_row = directory.first_rows[name.key]
            block = read_block(name, first_row, "block_keys") if body is None else read_block(name, body)
            # One that is missing has expired, or has not come from another datacenter yet.
            final = body is not None and _reaches_next(block, name.key, directory)
            known[name] = KnownBlock(block, directory.generation, final)
        self._held.update(known)
        self._blocks.put_all(known)
        return known


def read_block(name: BlockName, body: bytes, table: str = "blocks") -> Block:
    """A block as it is stored in a table.

    Raises:
        UnreadableRowError: it is of another format, or damaged.
    """
    try:
        return Block(body)
    except UnreadableRowError as error:
        raise unreadable(f"{table} of {name}", error) from error


def _reaches_next(block: Block, key: BlockKey, directory: Directory) -> bool:
    """Whether no run can be missing between a block and the next one.

    What was written of it last may come later from another datacenter than the next one's key.
    """
    following = bisect_right(directory.keys, key.start, key=attrgetter("start"))
    if following == len(directory.keys):
        return False
    if not any(block.counts):
        return True  # a run that follows begins a block of its own
    try:
        following_row = Block(directory.first_rows[directory.keys[following]])
    except UnreadableRowError:
        return False
    # Mostly that row is this block's last; at the end of a term it says where the record before it ends.
    return following_row.previous_source_end(0) <= block.run(len(block) - 1).last_record_end


def _anew(known: Generation, generation: Generation) -> bool:
    """Whether keys that are known are not to be gone on with: other ones may be in their place, or before them."""
    return known.losses != generation.losses or _of_earlier_layouts(known) != _of_earlier_layouts(generation)


def _of_earlier_layouts(generation: Generation) -> Sequence[Reached]:
    """Of the leases that have left something to others: once it is in blocks there may be keys before all that were known."""
    latest = max((lease.layout for lease in generation.reached), default=0)
    return [lease for lease in generation.reached if lease.layout != latest]


class StoredTable(BlockTable):
    """The blocks of one lineage, each read when it is first asked for, and the rows of turns behind them.

    Args:
        blocks: what was read.
        place: the lineage.
        directory: the keys of its blocks.
        told: its rows in turns, and the layout whose leases told them.
    """

    __slots__ = ("_blocks", "_keys", "_last", "_learning", "_pieces", "_place", "_recent")

    def __init__(
        self, blocks: Blocks, place: BlocksOf, directory: Directory, told: tuple[int, Sequence[TurnRows]]
    ) -> None:
        keys, (layout, pieces) = directory.keys, told
        if keys and max(key.term for key in keys) >= left_by(layout):
            pieces = ()  # blocks have them, told by leases of a later layout
        if pieces:
            # A block that begins in the midst of them is told already, and has nothing that they lack.
            keys = keys[: bisect_left([key.start for key in keys], pieces[0].start)]
        self._blocks = blocks
        self._place = place
        self._pieces = pieces
        self._keys = 0, keys, directory
        """As `_known`: the number of the first key, the keys, and the directory that they are from."""
        self._last: Block | None = None
        """The last block, once it was read. It may grow, and what was found in it has to stay; all others are remembered by `Blocks`."""
        self._recent: tuple[int, ref[Block], int | None] | None = None
        """The block that was asked for last, and how many of its rows come before the next one, if that was asked: a question asks for one
        again and again. `Blocks` keeps it, or whoever has read it."""
        self._learning = threading.Lock()
        super().__init__(
            [*(key.source_start for key in keys), *(piece.block.source_base for piece in pieces)],
            [*(key.target_start for key in keys), *(piece.block.target_base for piece in pieces)],
            len(keys),
        )

    def learn(self, *, source: int | None = None, target: int | None = None) -> None:
        """Read older keys until one begins at or below an offset, or there are none."""
        while not self._reaches(source, target):
            low, keys, directory = self._keys
            if directory.whole or not directory.keys:
                return
            further = self._blocks.with_older(self._place, directory)
            with self._learning:
                if self._keys[2] is not directory:
                    continue  # somebody else has learnt meanwhile
                # In the midst nothing changes: those that are known here stand behind all that are new.
                first = keys[0].start if keys else directory.keys[0].start
                older = [key for key in further.keys if key.start < first]
                _, sources, targets = self._known
                self._keys = low - len(older), [*older, *keys], further
                self._known = (
                    low - len(older),
                    [*(key.source_start for key in older), *sources],
                    [*(key.target_start for key in older), *targets],
                )

    def _reaches(self, source: int | None, target: int | None) -> bool:
        _, sources, targets = self._known
        if source is not None:
            return bool(sources) and sources[0] <= source
        return target is not None and bool(targets) and targets[0] <= target

    @property
    def last_stored(self) -> int:
        """The number of the last block that is not of a turn."""
        return min(self.last, self.alone_from - 1)

    @property
    def has_turns(self) -> bool:
        """Whether some of its rows are from turns."""
        return bool(self._pieces)

    def append(self, block: Block, committed_at_ms: int) -> None:
        """Add a row that no block tells of any more. To be called before the table is used."""
        low, sources, targets = self._known
        self._pieces = [*self._pieces, TurnRows(block, committed_at_ms)]
        self._known = low, [*sources, block.source_base], [*targets, block.target_base]

    def missing(self, number: int) -> UnreadBlock | None:
        """What has to be read to `get` a block; None: nothing."""
        low, _, directory = self._keys
        if not low <= number < self.alone_from or self._kept(number) is not None:
            return None
        name = self._name(number)
        known = self._blocks.known(name, directory.generation)
        if known is not None:
            self._keep(number, known)
            return None
        return UnreadBlock(name, directory)

    def _kept(self, number: int) -> Block | None:
        return self._last if number == self.alone_from - 1 else None

    def _keep(self, number: int, block: Block) -> None:
        if number == self.alone_from - 1:
            self._last = block

    def rows_of(self, number: int) -> int:
        """How many rows of a block come before the next block's first row."""
        block, recent = self.get(number), self._recent
        if recent is not None and recent[0] == number and recent[2] is not None and recent[1]() is block:
            return recent[2]
        rows = super().rows_of(number)
        self._recent = number, ref(block), rows
        return rows

    def _name(self, number: int) -> BlockName:
        low, keys, _ = self._keys
        return BlockName(self._place.target, self._place.topic_partition, keys[number - low])

    def get(self, number: int) -> Block:
        """The block of a number, which is read if it is not remembered."""
        if number >= self.alone_from:
            return self._pieces[number - self.alone_from].block
        recent = self._recent
        if recent is not None and recent[0] == number and (again := recent[1]()) is not None:
            return again
        found = self._kept(number)
        if found is None:
            name, directory = self._name(number), self._keys[2]
            found = self._blocks.known(name, directory.generation)
            if found is None:
                found = self._blocks.read([UnreadBlock(name, directory)])[name].block
            self._keep(number, found)
        self._recent = number, ref(found), None
        return found
