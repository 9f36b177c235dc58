"""What the copy loop of a shard needs of the outside: a source, a target, a survey of topics, a clock.

`replicator.kafka.connector` opens these doors over confluent-kafka, the simulation in ``tests/worlds/sim`` in memory:
the loop itself is the same code in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from parallax.domain.ids import UNKNOWN_EPOCH, SourceOffset, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.errors import PartitionStoppedError
from parallax.ports.clusters import TopicInfo
from parallax.v1.runlog_pb2 import Entry


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Records of one source partition, read under one leader epoch, in order.

    Attributes:
        offsets: each record's own offset, ascending.
        records: the records themselves; only the source and the target path look inside.
        size_bytes: keys and values.
        newest_timestamp_ms: the last record's timestamp, or -1.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    offsets: Sequence[int]
    records: Sequence[Any]
    size_bytes: int
    newest_timestamp_ms: int = -1

    @property
    def most_runs(self) -> int:
        """No more runs than these can come of it: each record may stand alone on the target."""
        return len(self.offsets)

    def before(self, source_next: SourceOffset) -> RecordBlock:
        """The records below ``source_next``."""
        return self.part(0, sum(1 for offset in self.offsets if offset < source_next))

    def part(self, begin: int, end: int) -> RecordBlock:
        """The records with these numbers; bytes are those of the whole block."""
        if (begin, end) == (0, len(self.offsets)):
            return self
        return RecordBlock(
            self.topic_partition,
            self.leader_epoch,
            self.offsets[begin:end],
            self.records[begin:end],
            self.size_bytes,
            self.newest_timestamp_ms,
        )


@dataclass(frozen=True, slots=True)
class EndReached:
    """Nothing visible lies between the last record handed out and ``source_next``, the end as of now."""

    topic_partition: TopicPartition
    source_next: SourceOffset


@dataclass(frozen=True, slots=True)
class PassedOver:
    """What lies between the last record handed out and ``source_next`` is not of the kind that the route copies.

    Attributes:
        leader_epoch: of the last record there.
    """

    topic_partition: TopicPartition
    source_next: SourceOffset
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The partition can't be read at the position: retention overtook it, or the source lost its tail.

    Attributes:
        diverged_at: where the source's log parts from what was read before, if the source told; else None.
        leader_epoch: of the source's last record below that.
    """

    topic_partition: TopicPartition
    diverged_at: SourceOffset | None
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class Damaged:
    """What the source holds at the position is damaged; everything before it was handed out.

    Attributes:
        problem: names cluster, topic, partition and offset, and says what to do.
    """

    topic_partition: TopicPartition
    problem: PartitionStoppedError


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """The source refuses the partition to the replicator; everything before was handed out. Taken anew, it is tried again.

    Attributes:
        reason: which right is missing, and what to do.
    """

    topic_partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """The topic that is being read is no longer the one that was asked for; nothing of it was handed out."""

    topic: TopicName


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something a person may want to know of; the source goes on by itself."""

    text: str


SourceEvent = (
    RecordBlock | EndReached | PassedOver | OutOfRange | Damaged | NotAllowed | TopicChanged | Trouble
)


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Where to read a partition, and of which incarnation of its topic."""

    source_next: SourceOffset
    leader_epoch: int
    topic_id: TopicId


class SourceReader(Protocol):
    """Committed records of the source. It waits out lost connections by itself."""

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        """Begin to read at these positions; a partition that is being read already is set back or forward."""

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these; nothing of them is handed out any more."""

    def poll(self, max_records: int, timeout_ms: float) -> Sequence[SourceEvent]:
        """What has arrived, in order for each partition; waits up to ``timeout_ms`` while there is nothing."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermarks as last seen, without asking anyone; for measuring lag."""

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """One partition of the source: what it holds, ``[low_watermark, high_watermark)``, and under which epoch.

    Attributes:
        stable_end: what ``read_committed`` readers can reach.
        begins_at: where a partition begins of which nothing was ever copied; None: with all that it holds.
    """

    low_watermark: SourceOffset
    high_watermark: SourceOffset
    stable_end: SourceOffset
    leader_epoch: int = UNKNOWN_EPOCH
    begins_at: SourceOffset | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """Which topics there are on both sides, as far as they answered.

    Attributes:
        ticket: that of the request which it answers (`Surveyor.request`).
        source: topics to be replicated; None while the source does not answer.
        source_logs: the shard's partitions; those that did not answer are missing.
        target: topics of the same choice of names; None while the target does not answer.
        refused: topics that can't be replicated, with what is wrong and what to do.
        same_cluster: why nothing may be copied, if both sides are one Kafka cluster; else empty.
        hidden: topics that one of the two does not show to the replicator, with the right that is missing there.
        usable: of the topics that the target had refused (`Surveyor.request`) those that it lets be read and written to now.
        failed: it ended with an error that nobody expected, a defect: it tells nothing, as if neither side had answered.
    """

    ticket: int
    source: Mapping[TopicName, TopicInfo] | None
    source_logs: Mapping[TopicPartition, LogEnd]
    target: Mapping[TopicName, TopicInfo] | None
    refused: Mapping[TopicName, str] = field(default_factory=dict)
    same_cluster: str = ""
    hidden: Mapping[TopicName, str] = field(default_factory=dict)
    usable: Collection[TopicName] = ()
    failed: bool = False


class Surveyor(Protocol):
    """Looks at both clusters beside the copy loop, which never waits for it."""

    def request(self, known: Collection[TopicName], refused: Collection[TopicName]) -> int:
        """Ask for a survey that begins after this call; its ticket grows by 1 with each request.

        Args:
            known: topics that were copied: where one is gone, it may just be hidden.
            refused: topics that the target has refused to the replicator.
        """

    def result(self) -> Survey | None:
        """The newest survey that has come in since the last call, if any."""

    def close(self) -> None:
        """Let go of everything."""


class RecordRefusedError(Exception):
    """The target refused a record for good: its partition can't go on, the transaction has to be aborted.

    Attributes:
        index: how many records of the partition in this transaction were taken before it.
    """

    def __init__(self, topic_partition: TopicPartition, index: int, reason: str) -> None:
        super().__init__(reason)
        self.topic_partition = topic_partition
        self.index = index
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TargetEnd:
    """Where a partition of the target ends, as its leader tells now.

    Attributes:
        next_offset: the high watermark (isolation level 0).
        leader_epoch: the leader's own.
        kept_to: where its log ends in the leader epoch that was asked for, if that is an older one: from there on it
            holds nothing of what that epoch's leader held. None: not asked, or not told.
    """

    next_offset: TargetOffset
    leader_epoch: int = UNKNOWN_EPOCH
    kept_to: TargetOffset | None = None

    def has_kept(self, target_floor: TargetOffset, leader_epoch: int) -> TargetOffset | None:
        """Up to where the log is still what a leader with that epoch held up to ``target_floor``; None: not told."""
        if UNKNOWN_EPOCH in {self.leader_epoch, leader_epoch} or self.leader_epoch == leader_epoch:
            return min(self.next_offset, target_floor)
        if self.leader_epoch < leader_epoch or self.kept_to is None:
            return None  # a leader that does not know yet that it is none any more says nothing
        return min(self.next_offset, self.kept_to, target_floor)


@dataclass(frozen=True, slots=True)
class TargetLog:
    """The log of a target's partition that is written to: another topic of the name has another one.

    Attributes:
        topic_id: of the topic.
        leader_epoch: of its leader; UNKNOWN_EPOCH: any.
    """

    topic_id: TopicId
    leader_epoch: int = UNKNOWN_EPOCH


class TargetWriter(Protocol):
    """The target: one transactional producer, fenced by its id.

    Every method but ``close`` raises ``FencedError`` once another owner has initialised the same id, and
    ``ClusterUnavailableError`` when the outcome is unknown or bad: then the whole writer is thrown away. So it is after
    `replicator.copying.session_end.TopicsRefusedError`, which ``settle`` and ``commit`` raise where a right to a topic is
    missing.
    """

    @property
    def path(self) -> str:
        """The copy path, ``record`` or ``batch``, as run-log entries name it."""

    @property
    def opens_run_log(self) -> bool:
        """Whether it is of use to give `begin` an opening."""

    @property
    def calm_ms(self) -> float:
        """For so long records had better not be sent: the transaction before is being ended at the brokers; 0: send them."""

    def begin(self, opening: Entry | None = None) -> None:
        """Begin a transaction.

        Args:
            opening: the first piece of its entry (`replicator.copying.openings.opening_of`), appended to the run log as the first
                records are sent. `commit` appends what follows it.
        """

    def produce(self, block: RecordBlock) -> None:
        """Send records; returns before they are acknowledged."""

    def serve(self) -> None:
        """Take in acknowledgements that have arrived."""

    def settle(self, logs: Mapping[TopicPartition, TargetLog]) -> Mapping[TopicPartition, Sequence[int]]:
        """Wait until all records of the transaction are acknowledged: their offsets on the target, in order.

        Args:
            logs: what `commit` will be given of partitions that have records: it may be asked about from now on.

        Raises:
            RecordRefusedError: the target refused one.
        """

    def commit(self, entries: Sequence[Entry], logs: Mapping[TopicPartition, TargetLog]) -> Sequence[int]:
        """Append the entries to the run log and commit: their offsets there, after that of the opening if there was one.

        Args:
            entries: what is appended.
            logs: of partitions that the entries speak of. The transaction is committed only if the leader of each has
                this log when its records are acknowledged: another topic of the name holds none of what was copied
                before, and another leader may have lost some of it already.

        Raises:
            ClusterUnavailableError: also if the leader of such a partition has another log.
        """

    def ends(
        self, partitions: Mapping[TopicPartition, int], *, patient: bool = False
    ) -> Mapping[TopicPartition, TargetEnd]:
        """Where partitions end, asked now; those without an answer are missing.

        Args:
            partitions: of topics that may have been deleted meanwhile, or have no leader; each with the leader epoch
                of which `TargetEnd.kept_to` tells, or UNKNOWN_EPOCH.
            patient: wait a moment for leaders that are not known yet. Everything else waits meanwhile, so this is
                for topics that have just been seen.
        """

    def undone(
        self, records: Mapping[TopicPartition, tuple[TargetLog, TargetOffset]]
    ) -> Mapping[TopicPartition, bool]:
        """Whether the transactions that wrote records were aborted; not, if they are open or retention has taken them.

        Args:
            records: by partition the log that is meant, and the record's offset.

        Returns:
            What leaders told; partitions of which they told nothing are missing.
        """

    def close(self) -> None:
        """Let go of everything; an open transaction is aborted by the next owner's start."""


class RunLogReader(Protocol):
    """The committed records of one shard's partition of the run log."""

    def topic_id(self) -> TopicId | None:
        """The id of the topic that there is now; None: there is none."""

    def partitions(self) -> int:
        """How many the topic has: as many as its widest layout had shards.

        Raises:
            ClusterUnavailableError: there is no such topic, or the cluster did not answer in time.
        """

    def end(self) -> int:
        """The next offset (high watermark, isolation level 0)."""

    def stable_end(self) -> int:
        """The next offset below which every transaction is decided."""

    def leader_epoch(self) -> int:
        """The leader's epoch, asked now; UNKNOWN_EPOCH: it does not tell."""

    def start(self) -> int:
        """The first offset that retention has left."""

    def read(self, start: int, end: int) -> Iterable[tuple[int, Entry | None]]:
        """Committed records of ``[start, end)`` with their offsets; waits until the end is decided.

        A record that can't be read as an entry comes as None.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """

    def close(self) -> None:
        """Let go of everything."""


class Clock(Protocol):
    """Time."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""
