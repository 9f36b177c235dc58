"""In which order the incarnations of a region's topic came: it may be made anew at the source, or come late. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from parallax.domain.ids import SourceId


class Incarnations:
    """The incarnations of one region's topic that several orders name, each of them partly.

    What no order tells stays open: nothing follows from the place in `sources` then.

    Args:
        orders: older incarnations first in each, the most trustworthy order first. A source without a topic id stands
            for the time before the topic was there: every other one came after it.
    """

    def __init__(self, *orders: Sequence[SourceId]) -> None:
        named = list(dict.fromkeys(source for order in orders for source in order))
        self._later: dict[SourceId, set[SourceId]] = {
            source: set() if source.topic_id else {other for other in named if other.topic_id}
            for source in named
        }
        for order in orders:
            for place, source in enumerate(order):
                for other in order[place + 1 :]:
                    self._learn(source, other)
        self.sources = self._sorted(named)
        """Each once, older ones first; where nothing is known, in the order in which they were named."""

    def is_newer(self, source: SourceId, than: SourceId) -> bool:
        """Whether a source is known to have come after another one."""
        return source in self._later[than]

    def _learn(self, older: SourceId, newer: SourceId) -> None:
        """An order came to tell that; unless one that is trusted more has told otherwise."""
        if older == newer or newer in self._later[older] or older in self._later[newer]:
            return
        following = {newer, *self._later[newer]}
        for source, later in self._later.items():
            if source == older or older in later:
                later.update(following)

    def _sorted(self, named: Sequence[SourceId]) -> list[SourceId]:
        result: list[SourceId] = []
        for source in named:
            later = [place for place, other in enumerate(result) if self.is_newer(other, source)]
            result.insert(min(later, default=len(result)), source)
        return result
