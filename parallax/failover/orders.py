"""What a move's id says, and what is agreed to when its plan is. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from parallax.domain.ids import ClusterName, GroupName, RegionName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.errors import NotFoundError
from parallax.failover.facts import Move, MoveKind
from parallax.failover.plan import MovePlan

_LONGEST_ID = 4_096
_DIGEST_DIGITS = 32
_AGREED = frozenset(
    {
        Outcome.BY_TIMESTAMP,
        Outcome.NO_COMMIT,
        Outcome.REWOUND,
        Outcome.LINEAGE_CHANGED,
        Outcome.EARLIEST_FALLBACK,
        Outcome.TRIMMED,
        Outcome.NEVER_DELIVERED,
    }
)
"""Outcomes that an operator has to know of: each tells that more is read again, or that something never comes."""


@dataclass(frozen=True, slots=True)
class MoveOrder:
    """A move that somebody has asked for: all that it takes to plan it again.

    Attributes:
        accept_gaps: move although records will never be delivered.
        asked_at_ms: when, by the store's clock.
    """

    move: Move
    accept_gaps: bool
    asked_at_ms: int

    @property
    def move_id(self) -> str:
        """Its id, in letters that a URL takes as they are."""
        move = self.move
        values = [
            move.group,
            move.origin,
            move.target,
            move.region,
            move.kind.value,
            self.accept_gaps,
            self.asked_at_ms,
        ]
        text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @property
    def operation_id(self) -> str:
        """What it is called in the journal."""
        return hashlib.sha256(self.move_id.encode()).hexdigest()[:_DIGEST_DIGITS]


def order_of(move_id: str) -> MoveOrder:
    """The order of an id.

    Raises:
        NotFoundError: it is none.
    """
    try:
        order = _read(move_id) if len(move_id) <= _LONGEST_ID else None
        same = order is not None and order.move_id == move_id  # a lone surrogate has no id
    except (ValueError, TypeError, RecursionError):
        order, same = None, False
    if order is None or not same:
        raise NotFoundError(f"no move has the id {move_id[:80]!r}: plan it, and take the id of that")
    return order


def order_of_kept(move: Move, *, started_at_ms: int, updated_at_ms: int) -> MoveOrder | None:
    """An order that stands for a move in the journal, whoever has asked for it; None: it has only just begun.

    Args:
        move: as the journal has it.
        started_at_ms: when its first note was kept.
        updated_at_ms: when its newest note was kept.
    """
    return (
        MoveOrder(move, accept_gaps=False, asked_at_ms=updated_at_ms)
        if started_at_ms < updated_at_ms
        else None
    )


def _read(move_id: str) -> MoveOrder | None:
    text = base64.b64decode(move_id + "=" * (-len(move_id) % 4), altchars=b"-_", validate=True)
    values = json.loads(text)
    group, origin, target, region, kind, accept_gaps, asked_at_ms = values
    if [*map(type, values)] != [str, str, str, str, str, bool, int]:
        return None
    move = Move(
        GroupName(group), ClusterName(origin), ClusterName(target), RegionName(region), MoveKind(kind)
    )
    return MoveOrder(move, accept_gaps, asked_at_ms)


def digest_of(plan: MovePlan, *, accept_gaps: bool) -> str:
    """A digest of what is agreed to: which way, after which decision, which partitions, what forbids it, what is lost and why.

    Where the group is, and how much is pending, changes all the time and is no part of it.
    """
    move = plan.move
    kinds: dict[TopicPartition, list[str]] = {}
    for gap in plan.gaps:
        kinds.setdefault(gap.topic_partition, []).append(gap.kind.value)
    agreed: list[Any] = [
        [move.group, move.origin, move.target, move.region, move.kind.value],
        plan.fencing_number,
        accept_gaps,
        plan.arrived,
        plan.publisher_only,
        bool(plan.refusals(accept_gaps=accept_gaps)),
        [
            [
                *item.topic_partition,
                item.target_topic_id,
                sorted(found.name for found in _AGREED.intersection({item.outcome, *item.notes})),
                [[lost.region, lost.start, lost.end] for lost in item.lost],
                kinds.get(item.topic_partition, []),
            ]
            for item in plan.partitions
        ],
    ]
    return hashlib.sha256(json.dumps(agreed).encode()).hexdigest()[:_DIGEST_DIGITS]
