"""What all questions about a partition between two clusters share, kept as long as its rows are the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import NamedTuple

from offsetsvc.index.memory import IndexMemory, LineageRows
from parallax.domain.ids import ClusterName, RegionName, TargetOffset, TopicPartition
from parallax.domain.index_rows import StampedRow
from parallax.domain.lineages import LineageView, TopicLineages
from parallax.domain.place import rows_end
from parallax.domain.plain import PlainPartition, plain_partition
from parallax.domain.progress import SourceHistory
from parallax.runtime.newest import Newest

MOST_PLANS = 5_000
"""Remembered."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """A partition between two clusters.

    Attributes:
        regions: every region that the topic has as a source of the destination.
        origin, destination: the rows of either side.
        own_at_origin, own_at_destination: what was produced at either cluster. It goes by where a group is, and is not kept.
        whole: what was produced at the destination is all that lies there: ``destination`` is left out.
        from_origin, at_destination: their histories.
        leading_on: those of the origin whose source is replicated to the destination too.
        plain: what the short cut takes; None: the partition is not plain.
        plain_alone: whether the sources of ``plain`` are all that either side has.
        newest_at_origin, newest_at_destination: the row of each region that was committed last.
        row_ends: up to where the rows of each region's source reach at the destination; -1 without a row.
    """

    regions: Sequence[RegionName]
    origin: Sequence[LineageRows]
    destination: Sequence[LineageRows]
    own_at_origin: Sequence[SourceHistory] = ()
    own_at_destination: Sequence[SourceHistory] = ()
    whole: bool = False
    from_origin: Sequence[SourceHistory] = field(init=False)
    at_destination: Sequence[SourceHistory] = field(init=False)
    leading_on: Sequence[SourceHistory] = field(init=False)
    plain: PlainPartition | None = field(init=False)
    plain_alone: bool = field(init=False)
    newest_at_origin: Mapping[RegionName, StampedRow] = field(init=False)
    newest_at_destination: Mapping[RegionName, StampedRow] = field(init=False)
    row_ends: Mapping[RegionName, TargetOffset] = field(init=False)

    def __post_init__(self) -> None:
        """Look at what is the same for each question."""
        origin = [*(rows.history() for rows in self.origin), *self.own_at_origin]
        copied = () if self.whole else self.destination
        destination = [*(rows.history() for rows in copied), *self.own_at_destination]
        leading_on = [item for item in origin if item.source.region in self.regions]
        plain = plain_partition(self.regions, leading_on, destination)
        found = {
            "from_origin": origin,
            "at_destination": destination,
            "leading_on": leading_on,
            "plain": plain,
            "plain_alone": plain is not None and len(leading_on) == len(origin),
            "newest_at_origin": _newest([rows.view for rows in self.origin]),
            "newest_at_destination": _newest([rows.view for rows in self.destination]),
            "row_ends": _row_ends(self.regions, destination),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def holds(
        self, regions: Sequence[RegionName], origin: Sequence[LineageRows], destination: Sequence[LineageRows]
    ) -> bool:
        """Whether it is one of these regions and of the very same rows."""
        return self.regions == regions and _same(self.origin, origin) and _same(self.destination, destination)


class PlanWanted(NamedTuple):
    """Of what a plan is made.

    Attributes:
        regions: every region that the topic has as a source of the destination.
        at_origin: the topic's lineages there.
        at_destination: likewise.
    """

    origin: ClusterName
    destination: ClusterName
    topic_partition: TopicPartition
    regions: Sequence[RegionName]
    at_origin: TopicLineages
    at_destination: TopicLineages


class _Made(NamedTuple):
    """A plan, and what the index had told of its lineages before it was made."""

    wanted: PlanWanted
    views: Sequence[LineageView]
    told: Sequence[object]
    plan: PartitionPlan


class PartitionPlans:
    """Plans that were made, as many as is bounded. Safe to use from several threads.

    Args:
        index: has the rows.
        most: remembered.
    """

    def __init__(self, index: IndexMemory, most: int = MOST_PLANS) -> None:
        self._index = index
        self._made: Newest[tuple[ClusterName, ClusterName, TopicPartition], _Made] = Newest(most)

    def of(self, wanted: Sequence[PlanWanted]) -> list[Callable[[], PartitionPlan]]:
        """A plan for each partition, of the rows as they are now: made when it is asked for, if it is not known.

        Raises:
            StoreUnavailableError: the index did not answer in time; so may a plan that is asked for.
        """
        found: dict[int, Callable[[], PartitionPlan]] = {}
        missing: list[tuple[int, PlanWanted, list[LineageView]]] = []
        for place, item in enumerate(wanted):
            made = self._made.get(item[:3])
            if made is not None and _is_of(made, item) and self._index.told(made.views) == made.told:
                found[place] = partial(_plan_of, made)
            else:
                partition = item.topic_partition.partition
                views = [*item.at_origin.of(partition), *item.at_destination.of(partition)]
                missing.append((place, item, views))
        if missing:
            views = [view for _, _, ours in missing for view in ours]
            # What is told after that, of rows that are read already, makes a plan anew for nothing.
            told = iter(self._index.told(views))
            rows = iter(self._index.rows_of(views))
            for place, item, ours in missing:
                marks, theirs = list(islice(told, len(ours))), list(islice(rows, len(ours)))
                found[place] = partial(self._make, item, ours, marks, theirs)
        return [found[place] for place in range(len(wanted))]

    def _make(
        self,
        wanted: PlanWanted,
        views: Sequence[LineageView],
        told: Sequence[object],
        rows: Sequence[LineageRows],
    ) -> PartitionPlan:
        key = wanted[:3]
        at_origin = len(wanted.at_origin.of(wanted.topic_partition.partition))
        origin, destination = rows[:at_origin], rows[at_origin:]
        made = self._made.get(key)
        plan = None if made is None else made.plan
        if plan is None or not plan.holds(wanted.regions, origin, destination):
            plan = PartitionPlan(wanted.regions, origin, destination)
        self._made.put(key, _Made(wanted, views, told, plan))
        return plan


def _plan_of(made: _Made) -> PartitionPlan:
    return made.plan


def _is_of(made: _Made, wanted: PlanWanted) -> bool:
    """Whether it was made of the very same: what tells nothing new of a topic are the same lineages."""
    ours = made.wanted
    return (
        ours.at_origin is wanted.at_origin
        and ours.at_destination is wanted.at_destination
        and ours.regions == wanted.regions
    )


def _same(ours: Sequence[LineageRows], theirs: Sequence[LineageRows]) -> bool:
    return len(ours) == len(theirs) and all(mine is other for mine, other in zip(ours, theirs, strict=True))


def _newest(views: Sequence[LineageView]) -> dict[RegionName, StampedRow]:
    """The row of each region that was committed last: a lineage that another one follows gets no more."""
    newest: dict[RegionName, StampedRow] = {}
    for view in views:
        known = newest.get(view.source.region)
        if view.newest is not None and (
            known is None or known.committed_at_ms <= view.newest.committed_at_ms
        ):
            newest[view.source.region] = view.newest
    return newest


def _row_ends(
    regions: Collection[RegionName], items: Sequence[SourceHistory]
) -> dict[RegionName, TargetOffset]:
    """Up to where the rows of each region's source reach; -1 without a row."""
    named = sorted({*regions, *(item.source.region for item in items)})
    return {region: rows_end(item for item in items if item.source.region == region) for region in named}
