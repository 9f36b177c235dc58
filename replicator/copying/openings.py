"""A run-log entry in two pieces: one that goes with the first records of its transaction, one that tells what became of them.

The entry needs the offsets that the target gives the records, so it comes after them. Its first piece needs nothing: with it the
run log's partition has joined the transaction by then (docs/decisions/0030-openings.md).
"""

from __future__ import annotations

from parallax.domain.ids import UNKNOWN_EPOCH, TopicId
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import encode, pieces_of

MOST_PARTITIONS_OPENED = 1_000
MOST_RUNS_OPENED = 10_000
"""What follows an opening is one record: with so many it stays below Kafka's 1 MB, however long the topics' names are."""
_SMALL_BYTES = 1024 * 1024


class Openings:
    """Which transactions are opened.

    None that may need more than one record besides. Nor those that follow a large one: they are in no hurry, and may stay open for
    long, while readers of the run log wait for their end.
    """

    def __init__(self) -> None:
        self._last_was_small = True

    def wanted(self, partitions: int) -> bool:
        """Whether the next transaction of a shard with so many partitions may be opened."""
        return self._last_was_small and partitions <= MOST_PARTITIONS_OPENED

    def note(self, size_bytes: int, most_runs: int) -> None:
        """A transaction with records has been committed."""
        self._last_was_small = size_bytes < _SMALL_BYTES and most_runs < MOST_RUNS_OPENED


def opening_of(
    *,
    run_log_id: TopicId,
    layout: int,
    shard: int,
    path: str,
    committed_at_ms: int,
    run_log_leader_epoch: int = UNKNOWN_EPOCH,
) -> Entry:
    """The first piece, which tells of no partition yet; arguments are those of `replicator.copying.state.encode`."""
    piece = encode(
        run_log_id=run_log_id,
        layout=layout,
        shard=shard,
        path=path,
        changes=(),
        everything=None,
        committed_at_ms=committed_at_ms,
        run_log_leader_epoch=run_log_leader_epoch,
    )
    piece.pieces = 2
    return piece


def following(opening: Entry | None, entry: Entry) -> list[Entry]:
    """The records that make the entry whole: all of it without an opening, else the second piece."""
    if opening is None:
        return pieces_of(entry)
    piece = Entry()
    piece.CopyFrom(entry)
    piece.piece, piece.pieces = 1, opening.pieces
    return [piece]
