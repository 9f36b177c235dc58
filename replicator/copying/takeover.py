"""How a partition that MirrorMaker 2 has copied goes on.

Pure: `replicator.kafka.takeover` gathers, this decides. What MirrorMaker 2 has recorded tells up to where it has copied, and all of
that lies below the present end of the target. That is what a watermark says; where single records lie it has not written
down. So a lineage begins at the two, as after a rebuild of a run log (`replicator.copying.rebuild`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from parallax.domain.ids import Lineage, SourceOffset, TargetOffset, TopicPartition
from replicator.copying.ports import TargetEnd
from replicator.copying.rebuild import PartitionSide
from replicator.copying.reconcile import Beginning, begin
from replicator.copying.state import PartitionChange

_NOT_THE_FIRST = 1
"""The generation: to a route that reads the target, what lies below the first one's beginning is none of this route's
(`replicator.copying.origins`), and here it may be."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is known of a partition, by the name of its copy.

    Attributes:
        position: up to where MirrorMaker 2 has copied, as it has recorded; None: it has recorded nothing.
        source, target: the partition on both clusters; None: it is not there.
    """

    topic_partition: TopicPartition
    position: SourceOffset | None
    source: PartitionSide | None
    target: PartitionSide | None


class Takeover(Enum):
    """How a partition goes on."""

    GOES_ON = "goes on"
    """Where MirrorMaker 2 has stopped."""
    LOST = "records are lost"
    """There, too; and retention has taken records that nobody has copied."""
    ANEW = "anew"
    """With the first record that the source holds: the position is none of this log's."""
    BEGINS = "begins"
    """As any partition that is first seen: nothing is recorded of it, or nothing of it is at the target."""
    GONE = "gone"
    """The source has no such partition any more."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A partition as it goes on.

    Attributes:
        source_next: where copying goes on; None: the replicator decides when it first sees it.
        target_next: the target's end, below which lies what MirrorMaker 2 has copied.
        left: how many source offsets are left to be copied.
        changes: for the first snapshot of the route.
        why: in a few words; empty: there is nothing to say.
    """

    topic_partition: TopicPartition
    takeover: Takeover
    source_next: SourceOffset | None = None
    target_next: TargetOffset | None = None
    left: int | None = None
    changes: tuple[PartitionChange, ...] = ()
    why: str = ""


def taken_over(recorded: Recorded) -> TakenOver:
    """Decide how a partition goes on. What MirrorMaker 2 has copied and not recorded comes twice; nothing is left out."""
    item, position = recorded.topic_partition, recorded.position
    source, target = recorded.source, recorded.target
    if source is None:
        return TakenOver(item, Takeover.GONE, why="the source has no such partition any more")
    held = (source.log.low_watermark, source.log.high_watermark)
    if position is None or target is None:
        why = (
            "MirrorMaker 2 has recorded nothing of it"
            if position is None
            else "it is not at the target, whatever MirrorMaker 2 has recorded"
        )
        return TakenOver(item, Takeover.BEGINS, left=held[1] - held[0], why=why)
    first, end = SourceOffset(held[0]), TargetOffset(target.log.high_watermark)
    lineage = Lineage(source.topic_id, target.topic_id, _NOT_THE_FIRST)
    if position > held[1]:
        why = f"the source ends at {held[1]}, and MirrorMaker 2 has recorded {position}: its log is another one, or has lost its tail"
        beginning = Beginning(lineage, first, why, parted_at=SourceOffset(0))
        takeover, start = Takeover.ANEW, first
    else:
        beginning = Beginning(lineage, position, "taken over from MirrorMaker 2", parted_at=position)
        takeover, start, why = Takeover.GOES_ON, position, ""
        if position < first:
            takeover, why = Takeover.LOST, f"retention has taken [{position}, {first}) before it was copied"
    changes = begin(item, beginning, None, TargetEnd(end))
    return TakenOver(item, takeover, start, end, held[1] - max(start, first), changes, why)
