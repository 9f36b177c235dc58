"""Why an answer is what it is: one word, the same in proto, REST, metrics, logs and docs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Outcome(Enum):
    """Outcomes in the order of their gravity, the mildest first.

    An answer carries the gravest that applies as its ``outcome`` and all others as ``notes``.
    """

    OK = 1
    """The resume offset is exact as far as rows exist; nothing is pending."""
    CLAMPED_TO_END = 3
    """The mapped offset lay beyond the target's end, and was set to it."""
    PENDING = 4
    """Records consumed at the origin have not all reached the target; skipping stays open."""
    STALE = 5
    """The newest row of some source is older than the configured bound: the answer is early, never late."""
    BY_TIMESTAMP = 6
    """Some source has no usable row, and the caller asked for record timestamps instead of the log start."""
    NO_COMMIT = 7
    """The group never committed on the partition: its policy was applied."""
    REWOUND = 8
    """The group's commit was set back, or has vanished, since its last move: its progress vector is void."""
    LINEAGE_CHANGED = 9
    """A source or target topic was created anew or lost its tail: only what is proven was used."""
    EARLIEST_FALLBACK = 10
    """Some source has no usable row, and counts from the log start."""
    TRIMMED = 11
    """The resume offset fell out of the target's retention: records between it and the log start are gone there."""
    NEVER_DELIVERED = 12
    """A range was lost to the source's retention before it was copied; the answer names it."""
    ACTIVE_AT_TARGET = 13
    """The group is consuming at the target: nothing was written."""
    DUAL_ACTIVE = 14
    """The group is consuming in both clusters; neither position is the truth."""
    UNREACHABLE = 15
    """A cluster could not be asked; the answer says which part it had to do without."""
    PARTITION_MISMATCH = 16
    """Source and target have different partition counts for the topic."""


def gravest(outcomes: Iterable[Outcome]) -> Outcome:
    """The gravest of the outcomes; OK when there is none."""
    return max(outcomes, key=lambda outcome: outcome.value, default=Outcome.OK)
