"""What a group consumes of records that were produced where it reads, and what of them lies where it goes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from offsetsvc.index.memory import LineageRows
from parallax.config.config import Config
from parallax.domain.history import History
from parallax.domain.ids import (
    NO_TOPIC,
    ClusterName,
    Lineage,
    RegionName,
    Route,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    region_of,
)
from parallax.domain.lineages import LineageView, TopicLineages
from parallax.domain.own_log import own_log, own_loss, own_truncations
from parallax.domain.place import KeptEpoch
from parallax.domain.progress import (
    Progress,
    SourceHistory,
    SourcePosition,
    TargetTruncation,
    settled_commit,
)
from parallax.domain.route_graph import CopiesKind
from parallax.domain.runs import watermark
from parallax.errors import RefusedError, UnknownRouteError


@dataclass(frozen=True, slots=True)
class OwnRoutes:
    """How two aggregate clusters copy each other's own records.

    Attributes:
        out: the route that brings what is produced at the origin to the destination; None: the origin has no own records.
        back: the route that brings what is produced at the destination to the origin; None: none does.
        produced: the region of the destination, if producers write there.
        whole: the region of the destination, if ``back`` copies all that lies there: then nothing in it is told apart.
    """

    out: Route | None = None
    back: Route | None = None
    produced: RegionName | None = None
    whole: RegionName | None = None

    def at_origin(self, source: SourceId, destination: Sequence[LineageRows]) -> OwnRows:
        """What is known of the origin's own records, by the rows at the destination."""
        return OwnRows.of(source, self.out, destination)

    def at_destination(self, source: SourceId, origin: Sequence[LineageRows]) -> OwnRows:
        """What is known of the destination's own records, by the rows at the origin."""
        return OwnRows.of(source, self.back, origin)

    @property
    def there(self) -> bool:
        """Whether the destination is a source by itself."""
        return self.produced is not None or self.whole is not None

    def regions(self, sources: Sequence[RegionName]) -> list[RegionName]:
        """The regions whose records lie at the destination.

        Args:
            sources: those that routes bring.
        """
        if self.whole is not None:
            return [self.whole]
        return [*sources] if self.produced is None else [*sources, self.produced]

    @property
    def at_all(self) -> bool:
        """Whether either cluster has records that were produced there, or is copied from."""
        return self != NO_OWN


NO_OWN = OwnRoutes()


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Rows that tell of a cluster's own records.

    Attributes:
        source: the cluster's topic as a source of others.
        told: as `own_log` takes it.
    """

    source: SourceId
    told: Sequence[tuple[SourceOffset, SourceHistory]]

    @classmethod
    def of(cls, source: SourceId, route: Route | None, rows: Sequence[LineageRows]) -> OwnRows:
        """Those of the route among the rows of the cluster that it leads to."""
        ours = [item for item in rows if item.view.partition.route == route]
        return cls(source, [(item.view.record.source_first, item.history()) for item in ours])

    def lost(self, read_to: TargetOffset, leader_epoch: int) -> list[TargetTruncation]:
        """Where the cluster's log lost its tail, as far as that concerns who has read it.

        Args:
            read_to: up to where.
            leader_epoch: in which leader epoch; UNKNOWN_EPOCH: not told.
        """
        shown = own_loss(self.source, self.told, (SourceOffset(read_to), leader_epoch))
        return [*own_truncations(self.source, self.told), *([] if shown is None else [shown])]

    @property
    def known(self) -> list[SourceHistory]:
        """The own records that the rows tell of."""
        return own_log(self.source, self.told)

    def read_to(self, next_offset: TargetOffset, leader_epoch: int) -> list[SourceHistory]:
        """The own records, of which a group at that place in the cluster has read all that lie below."""
        return own_log(self.source, self.told, (SourceOffset(next_offset), leader_epoch))

    def consumed_before(
        self,
        moved: SourcePosition | None,
        lost: Sequence[TargetTruncation],
        kept: KeptEpoch | None,
    ) -> list[SourceHistory]:
        """The own records, of which an earlier stay at the cluster has left a position.

        Args:
            moved: that position; None: there is none.
            lost: where the cluster's log lost its tail, as far as other routes saw it.
            kept: what the log has of the position's leader epoch. None: nobody could tell; then the position counts for nothing
                but what rows confirm, as other records may lie there by now.
        """
        if moved is None or not moved.source_next or kept is None:
            return self.known
        read_to = TargetOffset(moved.source_next)
        lost = [*lost, *self.lost(read_to, moved.leader_epoch), *lost_of(kept, moved)]
        place = settled_commit(read_to, lost, moved.leader_epoch)
        lost_epoch = None
        if place < moved.source_next:
            lost_epoch = max([moved.leader_epoch + 1, *(loss.leader_epoch for loss in lost)])
        return own_log(self.source, self.told, (SourceOffset(place), moved.leader_epoch), lost_epoch)


def lost_of(kept: KeptEpoch, moved: SourcePosition) -> list[TargetTruncation]:
    """What a log has lost of what was read there, as its leader tells.

    Args:
        kept: what it has of the leader epoch in which it was read.
        moved: up to where.
    """
    end = kept.end
    if kept.leader_epoch != moved.leader_epoch:
        # The log that is there has another one's records of the older epoch, perhaps more than were read.
        end = min(end, TargetOffset(moved.ends.get(kept.leader_epoch, SourceOffset(0))))
    if end >= moved.source_next:
        return []
    return [TargetTruncation(end, TargetOffset(moved.source_next), moved.leader_epoch + 1)]


NO_ROWS = OwnRows(SourceId(RegionName(""), TopicId("")), ())


def none_of(source: SourceId, next_offset: TargetOffset) -> SourceHistory:
    """A source that no route brings to a cluster: none of it lies below a place there."""
    row = watermark(source_next=SourceOffset(0), target_end=next_offset, last_run_end=SourceOffset(0))
    return SourceHistory(source, History(Lineage(source.topic_id, source.topic_id), [row]))


def of_regions(progress: Progress, regions: Collection[RegionName]) -> Progress:
    """What concerns the records of some regions: the others' come to the destination by no route, and are waited for in vain."""
    kept = {source: it for source, it in progress.positions.items() if source.region in regions}
    return progress if len(kept) == len(progress.positions) else replace(progress, positions=kept)


def own_source(
    cluster: ClusterName, topic_id: TopicId, route: Route | None, partition: int, lineages: TopicLineages
) -> SourceId:
    """A cluster's topic as a source of others.

    Args:
        cluster: the cluster.
        topic_id: the topic's id there; empty: it could not be asked, and the id that the route copied last counts.
        route: the route that reads it.
        partition: the partition; of one that was not there when the route copied last, the topic's other ones tell.
        lineages: those of the cluster that the route leads to.
    """
    if not topic_id:
        ours = [view for view in lineages.of(partition) if view.partition.route == route]
        if not ours or ours[-1].source.topic_id == NO_TOPIC:
            everything = [view for views in lineages.by_partition.values() for view in views]
            copied = [view for view in everything if view.source.topic_id != NO_TOPIC]
            ours = sorted((view for view in copied if view.partition.route == route), key=_committed_at_ms)
        topic_id = ours[-1].source.topic_id if ours else topic_id
    return SourceId(region_of(cluster), topic_id)


def _committed_at_ms(view: LineageView) -> int:
    return -1 if view.newest is None else view.newest.committed_at_ms


def routes_between(config: Config, origin: ClusterName, destination: ClusterName) -> OwnRoutes:
    """How two clusters copy each other's own records.

    Raises:
        RefusedError: producers write to the origin, and no route brings to the destination what they write.
    """
    out = config.route_from_log(origin, destination)
    if out is None and config.is_produced_at(origin):
        raise RefusedError(
            f"NOT_REPLICATED: producers write to {origin}, and no route brings to {destination}, under the same names, what they "
            f"write: the group would leave out what it has not consumed yet. Configure the route {Route(region_of(origin), region_of(destination))}"
        )
    back = config.route_from_log(destination, origin)
    region = region_of(destination)
    copies_all = back is not None and config.settings_of(back).copied().kind is CopiesKind.ALL
    return OwnRoutes(
        out,
        back,
        region if config.is_produced_at(destination) else None,
        region if copies_all else None,
    )


def of_topic(routes: OwnRoutes, copies: Callable[[Route], bool]) -> OwnRoutes:
    """The same for a topic.

    Args:
        routes: of all topics.
        copies: whether a route does not leave the topic out.
    """
    out, back = (
        route if route is not None and copies(route) else None for route in (routes.out, routes.back)
    )
    return OwnRoutes(out, back, routes.produced, routes.whole if back is not None else None)


def routes_into(config: Config, cluster: ClusterName, *, is_read: bool) -> tuple[Route, ...]:
    """The routes into an aggregate cluster; none lead into one that others are copied from.

    Raises:
        UnknownRouteError: nothing is replicated into it, nor from it.
    """
    try:
        return config.routes_into(region_of(cluster))
    except UnknownRouteError:
        if is_read:
            return ()
        raise
