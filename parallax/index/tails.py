"""What turns tell: the rows of each lineage that blocks do not have yet."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from parallax.domain.block_rows import Turn, decode_turn
from parallax.domain.blocks import Block
from parallax.domain.formats import unreadable
from parallax.domain.ids import Route
from parallax.errors import UnreadableRowError
from parallax.ports.blocks import BlockReaderStore, Reached, TurnsWanted


class TurnRows(NamedTuple):
    """Rows of one lineage in one turn, none of those between them left out, and when the last of them was committed (ms)."""

    block: Block
    committed_at_ms: int

    @property
    def start(self) -> tuple[int, int]:
        """Where its first row lies."""
        return self.block.target_base, self.block.source_base

    @property
    def last(self) -> tuple[int, int, int]:
        """Where its last row lies, and how many records it has: a run comes after a watermark at the same place."""
        place = len(self.block) - 1
        return self.block.target_start(place), self.block.source_start(place), self.block.counts[place]


_Place = tuple[Route, int, int]
"""A lease's route, layout and shard."""


@dataclass(slots=True)
class _Lease:
    """What the turns of one lease tell since its blocks reached ``reached.run_log_next``."""

    reached: Reached
    after: int
    quiet: int = 0
    """How often it told nothing new when it was asked last."""
    asked_at_s: float = -math.inf
    pieces: defaultdict[int, list[TurnRows]] = field(default_factory=lambda: defaultdict(list))

    @property
    def age(self) -> tuple[int, int]:
        return self.reached.term, self.reached.run_log_next


class Generation(NamedTuple):
    """When something was read of blocks: it is all there until another one follows.

    Attributes:
        reached: how far the blocks of all leases of the route reach.
        losses: how often the store had lost what it held.
    """

    reached: tuple[Reached, ...] = ()
    losses: int = 0


_QUIET = 3
"""So often a lease tells nothing until it is asked less often: one that is at work tells something each second time at least."""


Told = tuple[int, int]


class Tails:
    """The turns of routes, read anew where the caller says so. Safe to use from several threads.

    Args:
        store: where they are.
        quiet_s: a lease that has told nothing for a while is not asked again so soon: what it tells next may be known so much later.
        clock: seconds, never going back.
    """

    def __init__(
        self, store: BlockReaderStore, *, quiet_s: float = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._quiet_s = quiet_s
        self._clock = clock
        self._lock = threading.Lock()
        """Guards what was read; nothing is asked of the store under it."""
        self._leases: defaultdict[Route, dict[tuple[int, int], _Lease]] = defaultdict(dict)
        self._changes: defaultdict[Route, int] = defaultdict(int)
        self._takeovers: defaultdict[Route, int] = defaultdict(int)
        self._losses: defaultdict[Route, int] = defaultdict(int)
        self._told: defaultdict[Route, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        self._in_order: defaultdict[Route, dict[int, tuple[int, list[TurnRows]]]] = defaultdict(dict)
        """Pieces by `lineage_number` as `pieces` gives them, where it was asked for them."""

    def refresh(self, routes: Collection[Route]) -> None:
        """Read what the leases of the routes have told since it was last read.

        Raises:
            StoreUnavailableError: the store did not answer in time.
            UnreadableRowError: a turn can't be read by this release.
        """
        reached, doubted = self._reached(routes)
        if doubted:
            # A replica that lags behind may have said it once. Rows are given up at once where it is so: beside lost ranges that
            # are not in the store again yet, they would tell that what was lost was consumed.
            reached, still = self._reached(routes)
            self._forget(doubted & still, reached)
        wanted, anew = self._wanted(reached)
        if not wanted:
            return
        told = self._store.turns(wanted)
        decoded = [
            [(upto, _turn(asked, upto, body)) for upto, body in turns]
            for asked, turns in zip(wanted, told, strict=True)
        ]
        with self._lock:
            for asked, turns in zip(wanted, decoded, strict=True):
                lease = self._lease(asked, anew.get((asked.route, asked.layout, asked.shard)))
                if lease is None or asked.after > lease.after:
                    continue  # those between were not read
                lease.quiet = 0 if turns else lease.quiet + 1
                for upto, turn in turns:
                    if upto > lease.after:
                        lease.after = upto
                        self._changes[asked.route] += 1
                        for number, block in turn.pieces.items():
                            self._told[asked.route][number] += 1
                            piece = TurnRows(block, turn.committed_at_ms)
                            lease.pieces[number].append(piece)
                            self._add_in_order(asked, number, piece)

    def _reached(self, routes: Collection[Route]) -> tuple[Mapping[Route, Sequence[Reached]], set[_Place]]:
        """How far blocks reach, and the leases of which the store knows less than was known when it was asked."""
        with self._lock:
            known = self._known(routes)
        reached = self._store.reached(routes)
        return reached, _less(known, reached)

    def _known(self, routes: Iterable[Route]) -> dict[_Place, Reached]:
        return {
            (route, *place): lease.reached for route in routes for place, lease in self._leases[route].items()
        }

    def _forget(self, places: Collection[_Place], reached: Mapping[Route, Sequence[Reached]]) -> None:
        """Begin anew with routes of which the store has lost leases: another one is in its place, which has lost them all."""
        with self._lock:
            # Somebody else may have begun anew meanwhile.
            known = self._known({route for route, _, _ in places})
            for route in {route for route, _, _ in _less(known, reached).intersection(places)}:
                self._leases[route].clear()
                self._losses[route] += 1
                self._take_over(route)

    def _wanted(
        self, reached: Mapping[Route, Sequence[Reached]]
    ) -> tuple[list[TurnsWanted], dict[tuple[Route, int, int], _Lease]]:
        """The turns to be read, and the leases of which all are."""
        wanted: list[TurnsWanted] = []
        anew: dict[tuple[Route, int, int], _Lease] = {}
        now_s = self._clock()
        with self._lock:
            for route, leases in reached.items():
                latest = max((item.layout for item in leases), default=0)
                for item in leases:
                    lease = self._leases[route].get((item.layout, item.shard))
                    if lease is None or (item.term, item.run_log_next) > lease.age:
                        lease = anew[route, item.layout, item.shard] = _Lease(item, item.run_log_next)
                    # Of an earlier layout nobody writes any more, but for who was late.
                    if item.layout != latest and lease.after != lease.reached.run_log_next:
                        continue
                    if lease.quiet < _QUIET or now_s - lease.asked_at_s >= self._quiet_s:
                        lease.asked_at_s = now_s
                        wanted.append(TurnsWanted(route, item.layout, item.shard, lease.after))
        return wanted, anew

    def _lease(self, asked: TurnsWanted, anew: _Lease | None) -> _Lease | None:
        """What is known of a lease, or what takes its place: not before its turns were read, for it begins without any.

        None: it was forgotten while they were read.
        """
        leases = self._leases[asked.route]
        known = leases.get((asked.layout, asked.shard))
        if anew is not None and (known is None or anew.age > known.age):
            leases[asked.layout, asked.shard] = known = anew
            self._take_over(asked.route)
        return known

    def _take_over(self, route: Route) -> None:
        self._changes[route] += 1
        self._takeovers[route] += 1
        self._told[route].clear()
        self._in_order[route].clear()

    def _add_in_order(self, asked: TurnsWanted, number: int, piece: TurnRows) -> None:
        """Put a piece behind the others of its lineage, where it comes last of all; else they are put in order anew."""
        known = self._in_order[asked.route].get(number)
        if known is None:
            return
        layout, pieces = known
        last = pieces[-1]
        if layout == asked.layout and piece.start > last.start and piece.last > last.last:
            pieces.append(piece)
        else:
            del self._in_order[asked.route][number]

    def told(self, route: Route) -> int:
        """A number that changes whenever something new was read of the route."""
        with self._lock:
            return self._changes[route]

    def told_of(self, wanted: Sequence[tuple[Route, int]]) -> list[Told]:
        """Of each lineage, by `lineage_number`, what changes whenever something new was read of it, or a lease's blocks reach further."""
        with self._lock:
            return [(self._takeovers[route], self._told[route].get(number, 0)) for route, number in wanted]

    def generation(self, route: Route) -> Generation:
        """How far the blocks of the route reach."""
        with self._lock:
            reached = tuple(lease.reached for lease in self._leases[route].values())
            return Generation(reached, self._losses[route])

    def pieces(self, route: Route, number: int) -> tuple[int, Sequence[TurnRows]]:
        """The rows of a lineage in turns, in order: each piece begins and ends behind the one before it.

        Of an earlier layout only as long as the one that follows tells of none: what it has left lies in blocks before those.

        Args:
            route: the route.
            number: `parallax.domain.block_rows.lineage_number`.

        Returns:
            The layout whose leases told them, and the pieces.
        """
        with self._lock:
            known = self._in_order[route].get(number)
            if known is not None:
                return known[0], known[1][:]
            leases = [lease for lease in self._leases[route].values() if number in lease.pieces]
            layout = max((lease.reached.layout for lease in leases), default=0)
            pieces = in_order(
                piece for lease in leases if lease.reached.layout == layout for piece in lease.pieces[number]
            )
            if pieces:
                self._in_order[route][number] = layout, pieces
            return layout, pieces[:]


def _turn(asked: TurnsWanted, upto: int, body: bytes) -> Turn:
    try:
        return decode_turn(body)
    except UnreadableRowError as error:
        where = f"turns of {asked.route}, layout {asked.layout}, shard {asked.shard}, run_log_next {upto},"
        raise unreadable(where, error) from error


def _less(known: Mapping[_Place, Reached], reached: Mapping[Route, Sequence[Reached]]) -> set[_Place]:
    """The leases of which less is told than was known.

    No term grows less, nor how far the blocks of one reach. A later term may begin below the end of the one before, whose owner
    went on while it was followed; the terms of a store that begins anew begin with the first.
    """
    told = {(route, item.layout, item.shard): item for route, leases in reached.items() for item in leases}
    return {place for place, lease in known.items() if _is_less(told.get(place), lease)}


def _is_less(told: Reached | None, known: Reached) -> bool:
    if told is None or told.term < known.term:
        return True
    return told.term == known.term and told.run_log_next < known.run_log_next


def in_order(pieces: Iterable[TurnRows]) -> list[TurnRows]:
    """Pieces by where they begin, without those that others hold: owners that follow each other tell the same."""
    kept: list[TurnRows] = []
    ordered = sorted(
        pieces, key=lambda piece: (*piece.start, *(-at for at in piece.last), -piece.committed_at_ms)
    )
    for piece in ordered:
        # Of two watermarks at one place the later one tells more.
        again = kept and piece.last == kept[-1].last and piece.committed_at_ms > kept[-1].committed_at_ms
        if not kept or piece.last > kept[-1].last or (again and len(piece.block) == 1):
            kept.append(piece)
    return kept
