"""What a shard's entries in its run log add up to, or why nothing may be built on them.

Pure: `replicator.kafka.run_log.load_states` reads, this judges. A record that is none of the shard's own, a state that
goes back, a log without the snapshot that every layout begins with: each is refused with what is wrong, where, and what
to do. None of them is guessed around, because a wrong position copies records twice or leaves them out
(docs/run-log.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from parallax.domain.ids import UNKNOWN_EPOCH, ClusterName, TopicId, TopicPartition
from parallax.errors import FencedError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.session_end import SessionError
from replicator.copying.state import ENTRY_FORMAT, PartitionState, fold, state_of, topic_partition_of

LoggedRecord = tuple[int, Entry | None]
"""A record of a run log: its offset, and the entry; None if it can't be read as one."""

States = Mapping[TopicPartition, PartitionState]


class RunLogProblem(Enum):
    """Why a run log is refused."""

    LAYOUT_MISSING = "LAYOUT_MISSING"
    """The route's layout record is gone, or older than the entries: nobody knows which run log is the right one."""
    REBUILD_UNFINISHED = "REBUILD_UNFINISHED"
    """Its rebuild was begun, and has not come to its end: only another one may say what follows."""
    RUN_LOG_MISSING = "RUN_LOG_MISSING"
    """The topic is gone."""
    RUN_LOG_REPLACED = "RUN_LOG_REPLACED"
    """Another topic has its name: it was deleted and created anew."""
    RUN_LOG_HEADLESS = "RUN_LOG_HEADLESS"
    """No snapshot of the layout is left, and each begins with one."""
    RUN_LOG_TRUNCATED = "RUN_LOG_TRUNCATED"
    """It ends below what is known to have been written."""
    RUN_LOG_FOREIGN = "RUN_LOG_FOREIGN"
    """It holds a record that no owner of the shard wrote."""
    RUN_LOG_NEWER = "RUN_LOG_NEWER"
    """A newer release has written an entry that this one would misunderstand; there is nothing to mend."""


_MEND = "nothing of it is copied until it is mended: see `parallax runlog check`, then `parallax runlog rebuild` (docs/run-log.md)"
_RUN_THE_NEWER = "nothing of it is copied until a release that reads it runs again (docs/formats.md)"


class RunLogError(SessionError):
    """A run log from which nothing may be copied.

    Attributes:
        problem: its name, which begins the message.
    """

    code = "RUN_LOG"

    def __init__(self, problem: RunLogProblem, where: str, what: str) -> None:
        advice = _RUN_THE_NEWER if problem is RunLogProblem.RUN_LOG_NEWER else _MEND
        super().__init__(f"{problem.value}: {where}: {what}; {advice}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Shard:
    """Whose entries are looked for.

    Attributes:
        cluster: where the run log is.
        run_log: the shard's partition of it.
        run_log_id: the topic's id.
        layout: the layout that cut the route so.
    """

    cluster: ClusterName
    run_log: TopicPartition
    run_log_id: TopicId
    layout: int

    def refused(self, problem: RunLogProblem, what: str, offset: int | None = None) -> RunLogError:
        """The error that names the shard's run log."""
        at = "" if offset is None else f" at offset {offset}"
        return RunLogError(problem, f"{self.cluster}: run log {self.run_log}{at}", what)

    def owns(self, entry: Entry | None) -> bool:
        """Whether an owner of the shard, under this layout, wrote the entry to this very topic."""
        return (
            entry is not None
            and entry.layout == self.layout
            and entry.shard == self.run_log.partition
            and entry.run_log_id == self.run_log_id
        )


def states_of(records: Sequence[LoggedRecord], shard: Shard) -> States | None:
    """Every partition of the shard after these records; None if they hold no whole snapshot of its own.

    Args:
        records: the end of the run log, in order.
        shard: whose entries count.

    Raises:
        FencedError: a newer layout has taken over.
        RunLogError: after the first such snapshot a record is not the shard's own, takes a partition back, or forgets one;
            or an entry is of a newer format.
    """
    _refuse_newer(records, shard)
    first = next(_snapshots(records, shard), None)
    if first is None:
        return None
    states: dict[TopicPartition, PartitionState] = {}
    before: States = {}
    for offset, entry in records[first:]:
        if entry is not None and entry.run_log_id == shard.run_log_id and entry.layout > shard.layout:
            raise FencedError(f"{shard.run_log}: layout {entry.layout} has taken over from {shard.layout}")
        if entry is None or not shard.owns(entry):
            raise shard.refused(RunLogProblem.RUN_LOG_FOREIGN, _stranger(entry, shard), offset)
        if entry.snapshot and entry.piece == 0:
            before = states
        after = fold(states, [entry])
        gone_back = _gone_back(states if not entry.snapshot else before, entry)
        if gone_back:
            raise shard.refused(RunLogProblem.RUN_LOG_FOREIGN, gone_back, offset)
        if entry.snapshot:
            closed = {topic_partition_of(part) for part in entry.partitions if part.closed}
            before = {item: state for item, state in before.items() if item not in closed}
            if entry.piece + 1 >= entry.pieces and (forgotten := sorted(before.keys() - after.keys())):
                names = ", ".join(map(str, forgotten[:3]))
                what = f"a snapshot forgets {len(forgotten)} partition(s) that were known before it ({names})"
                raise shard.refused(RunLogProblem.RUN_LOG_FOREIGN, what, offset)
        states = after
    return states


def leader_epoch_of(records: Sequence[LoggedRecord]) -> int:
    """A leader epoch of the run log's that its leader had before it took the newest of its records; UNKNOWN_EPOCH: not told."""
    newest = records[-1][1] if records else None
    told = newest is not None and newest.HasField("run_log_leader_epoch")
    return newest.run_log_leader_epoch if newest is not None and told else UNKNOWN_EPOCH


def _refuse_newer(records: Sequence[LoggedRecord], shard: Shard) -> None:
    """Refuse what only a newer release understands, before anything is taken for lost or foreign."""
    for offset, entry in records:
        if entry is not None and shard.owns(entry) and entry.format > ENTRY_FORMAT:
            what = f"the entry has format {entry.format}, and this release reads formats up to {ENTRY_FORMAT}"
            raise shard.refused(RunLogProblem.RUN_LOG_NEWER, what, offset)


def _snapshots(records: Sequence[LoggedRecord], shard: Shard) -> Iterator[int]:
    """Where the shard's whole snapshots begin among the records."""
    for index, (_, entry) in enumerate(records):
        if entry is not None and entry.snapshot and entry.piece == 0 and shard.owns(entry):
            pieces = [entry for _, entry in records[index : index + max(1, entry.pieces)]]
            if len(pieces) == max(1, entry.pieces):
                yield index


def _gone_back(states: States, entry: Entry) -> str:
    """What of the entry lies behind what was known before it; empty if nothing does."""
    known = dict(states)
    for part in entry.partitions:
        item = topic_partition_of(part)
        state = known.get(item)
        if part.closed:
            known.pop(item, None)
            continue
        known[item] = state_of(part)
        if state is not None:
            was, now = (state.sequence, state.source_next), (part.lineage_sequence, part.source_next)
            if now < was:
                return (
                    f"an entry takes {item} back to source offset {now[1]} of lineage number {now[0]}; it had come to "
                    f"{was[1]} of number {was[0]}"
                )
    return ""


def _stranger(entry: Entry | None, shard: Shard) -> str:
    if entry is None:
        return "the record is no run-log entry: somebody else writes to this topic"
    return (
        f"the entry is of layout {entry.layout}, shard {entry.shard}, run log {entry.run_log_id or 'unnamed'}, and here "
        f"only layout {shard.layout}, shard {shard.run_log.partition}, run log {shard.run_log_id} may write"
    )
