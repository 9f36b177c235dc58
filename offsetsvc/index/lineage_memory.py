"""Remembers which lineages of a topic count: what the index is asked for is mostly what it was."""

from __future__ import annotations

from collections.abc import Mapping

from parallax.domain.ids import (
    ClusterName,
    Route,
    TopicId,
    TopicName,
)
from parallax.domain.index_rows import RouteTopic
from parallax.domain.lineages import (
    TopicLineages,
    lineages_that_count,
)

_MOST_TOPICS = 1_000


class LineageMemory:
    """The last `lineages_that_count` of each cluster and topic: what the index is asked for is mostly what it was.

    Safe to use from several threads: at worst one of them finds them anew.
    """

    def __init__(self) -> None:
        self._known: dict[
            tuple[ClusterName, TopicName], tuple[Mapping[Route, RouteTopic], TopicId | None, TopicLineages]
        ] = {}

    def that_count(
        self,
        cluster: ClusterName,
        topic: TopicName,
        found: Mapping[Route, RouteTopic],
        topic_id: TopicId | None,
    ) -> TopicLineages:
        """As `lineages_that_count`, on a cluster."""
        known = self._known.get((cluster, topic))
        if known is not None and known[1] == topic_id and _same(known[0], found):
            return known[2]
        lineages = lineages_that_count(found, topic_id)
        if len(self._known) >= _MOST_TOPICS:
            self._known = {}
        self._known[cluster, topic] = (found, topic_id, lineages)
        return lineages


def _same(ours: Mapping[Route, RouteTopic], theirs: Mapping[Route, RouteTopic]) -> bool:
    """Whether both came from the same reads, which are remembered for a moment."""
    return ours.keys() == theirs.keys() and all(ours[route] is item for route, item in theirs.items())
