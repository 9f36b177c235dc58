"""Which broker a partition is read from: its leader, or the nearer replica that the leader has named (KIP-392)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from replicator.kafka.batch.exchange import FetchedPartition

LEADER_EVERY_S = 5.0
"""So often a leader is asked all the same: it tells where the log ends, and whom to read from by now."""
ALONE_S = 30.0
"""So long nobody but the leader is read from once a replica has given a bad answer: that long Kafka takes by default to see that
one is out of sync (``replica.lag.time.max.ms``), after which leaders name it no more."""
_PATIENCE_S = 1.0
"""So long after the leader has told of more a replica may still lack it."""


@dataclass(slots=True)
class Nearest:
    """Who is asked for one partition, and what may be believed of the answers.

    Kafka's brokers answer readers whether they lead a partition or not. What a replica hands out is committed, and the same
    everywhere. What it does not hand out says nothing: it may not have it yet, or not know yet of its topic, of a right or of
    a newer leader. So records are taken from anybody, and only the leader decides where a log ends, what was lost of it,
    and that something can't be read.

    Invariants:
        A. The end that is told never lies below what the leader told last.
        B. A replica is read from only within `LEADER_EVERY_S` of the leader's naming it.
        C. For `ALONE_S` after a bad answer the leader alone is asked.

    Attributes:
        high_watermark: -1: not told yet.
        stable_end: where readers of committed records end; -1: not told yet.
    """

    high_watermark: int = -1
    stable_end: int = -1
    _replica: int | None = None
    _leader_told_at_s: float = -math.inf
    _alone_until_s: float = -math.inf

    def broker(self, leader: int, now_s: float) -> int:
        """Whom to ask next.

        Args:
            leader: the partition's.
            now_s: monotonic seconds, here and below.
        """
        if self._replica is None or now_s - self._leader_told_at_s >= LEADER_EVERY_S:
            return leader
        return self._replica

    def alone(self, now_s: float) -> bool:
        """Whether the leader is to answer itself, and not to name another broker."""
        return now_s < self._alone_until_s

    def leader_answered(self, part: FetchedPartition, now_s: float) -> None:
        """The leader has answered, without an error."""
        self.high_watermark = part.high_watermark
        self.stable_end = part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark
        self._leader_told_at_s = now_s
        self._replica = None if part.nearer_replica < 0 or self.alone(now_s) else part.nearer_replica

    def replica_answered(self, part: FetchedPartition, position: int, now_s: float) -> str:
        """Another broker has answered.

        Args:
            part: its answer.
            position: what was asked for.
            now_s: as above.

        Returns:
            Why the answer must not be taken; empty: it may be.
        """
        if part.error_code:
            return f"error {part.error_code}"
        if part.diverging_from is not None and part.diverging_from[1] >= 0:
            return "its log ends earlier, or is another one"
        if not part.records and position < self.stable_end and now_s - self._leader_told_at_s > _PATIENCE_S:
            return "it lacks what the leader has"
        self.high_watermark = max(self.high_watermark, part.high_watermark)
        self.stable_end = max(self.stable_end, part.last_stable_offset)
        return ""

    def leave(self, now_s: float) -> None:
        """The replica has given a bad answer, or none."""
        self._replica = None
        self._alone_until_s = now_s + ALONE_S
