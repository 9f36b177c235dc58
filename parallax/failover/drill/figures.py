"""What a drill measured. Pure: the same samples give the same figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CanaryRecord = tuple[str, int]
"""Region that produced it, and its number there."""


@dataclass(frozen=True, slots=True)
class CanaryDelivery:
    """A record that the group's consumer was given, and in which region."""

    record: CanaryRecord
    at_ms: float
    region: str


@dataclass(frozen=True, slots=True)
class Samples:
    """What happened to canary records; all times in milliseconds since the drill began.

    Attributes:
        acknowledged: when a regional cluster acknowledged each record.
        delivered: in order.
        arrived: by region: when each record was seen in that region's aggregate cluster.
        events: what the consumer told, with the time.
    """

    acknowledged: Mapping[CanaryRecord, float] = field(default_factory=dict)
    delivered: Sequence[CanaryDelivery] = ()
    arrived: Mapping[str, Mapping[CanaryRecord, float]] = field(default_factory=dict)
    events: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True, slots=True)
class Leg:
    """One move of a drill: asked for at, ended at, in milliseconds since the drill began."""

    origin: str
    to: str
    asked_ms: float
    ended_ms: float


@dataclass(frozen=True, slots=True)
class LegFigures:
    """What a move cost.

    Attributes:
        rto_ms: from the command to the first record delivered in the new region; None: none was.
        silence_ms: from the last record delivered before to that one.
        rpo_records: acknowledged by a regional cluster when the move was asked for, and not yet seen in the
            aggregate cluster that it leads to: what a disaster at that moment would have held back.
        rpo_ms: the age of the oldest of them.
    """

    leg: Leg
    rto_ms: float | None
    silence_ms: float | None
    rpo_records: int
    rpo_ms: float


@dataclass(frozen=True, slots=True)
class DrillFigures:
    """A drill as measured.

    Attributes:
        lost: acknowledged and not delivered; None: the drill ended before all could have come.
        redelivered: deliveries of a record after its first one.
    """

    acknowledged: int
    delivered: int
    lost: int | None
    redelivered: int
    legs: tuple[LegFigures, ...]


def outstanding(samples: Samples) -> int:
    """Records that were acknowledged and not delivered yet."""
    return len(samples.acknowledged.keys() - {item.record for item in samples.delivered})


def figures(samples: Samples, legs: Sequence[Leg], *, complete: bool = True) -> DrillFigures:
    """The figures of a drill; ``complete``: all that was acknowledged had its time to come."""
    counts = Counter(item.record for item in samples.delivered)
    return DrillFigures(
        len(samples.acknowledged),
        counts.total(),
        outstanding(samples) if complete else None,
        counts.total() - len(counts),
        tuple(_leg(samples, leg) for leg in legs),
    )


def _leg(samples: Samples, leg: Leg) -> LegFigures:
    first = min(
        (item.at_ms for item in samples.delivered if item.region == leg.to and item.at_ms > leg.asked_ms),
        default=None,
    )
    before = max(
        (
            item.at_ms
            for item in samples.delivered
            if item.region == leg.origin and (first is None or item.at_ms <= first)
        ),
        default=None,
    )
    there = samples.arrived.get(leg.to, {})
    waiting = [
        at_ms
        for record, at_ms in samples.acknowledged.items()
        if at_ms <= leg.asked_ms and there.get(record, leg.asked_ms + 1) > leg.asked_ms
    ]
    return LegFigures(
        leg,
        None if first is None else first - leg.asked_ms,
        None if first is None or before is None else first - before,
        len(waiting),
        leg.asked_ms - min(waiting, default=leg.asked_ms),
    )


@dataclass(frozen=True, slots=True)
class Timeline:
    """Records per time slot, for the picture.

    Attributes:
        slot_ms: how long a slot is.
        acknowledged: per slot, of all regions.
        delivered: by region, per slot.
        events: what the consumer told.
    """

    slot_ms: float
    acknowledged: tuple[int, ...]
    delivered: Mapping[str, tuple[int, ...]]
    events: tuple[tuple[float, str], ...]


_SLOTS = 120


def timeline(samples: Samples, regions: Sequence[str]) -> Timeline:
    """The samples in `_SLOTS` slots of the same length."""
    delivered_ms = (item.at_ms for item in samples.delivered)
    times = [*samples.acknowledged.values(), *delivered_ms, *(at_ms for at_ms, _ in samples.events)]
    slot_ms = max(times, default=0.0) / _SLOTS + 1.0

    def counted(found: Sequence[float]) -> tuple[int, ...]:
        slots = Counter(int(at_ms / slot_ms) for at_ms in found)
        return tuple(slots[slot] for slot in range(_SLOTS))

    return Timeline(
        slot_ms,
        counted(list(samples.acknowledged.values())),
        {
            region: counted([item.at_ms for item in samples.delivered if item.region == region])
            for region in regions
        },
        tuple(samples.events),
    )
