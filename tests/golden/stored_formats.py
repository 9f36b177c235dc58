"""Every stored format with a value that uses all of it; `make formats` keeps what the present code writes of them.

A set (`formats/1`, `formats/2`, ...) holds one file of each format, as one state of the code wrote it, and is never
changed. The newest one is what the present code writes; all of them it has to read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from parallax.adapters.cassandra.decisions import decision_from_text, decision_to_text
from parallax.adapters.cassandra.groups import (
    observed_from_text,
    observed_to_text,
    progress_from_text,
    progress_to_text,
    published_from_text,
    published_to_text,
)
from parallax.adapters.cassandra.status import (
    cycle_from_text,
    cycle_to_text,
    group_from_text,
    group_to_text,
    partitions_from_text,
    partitions_to_text,
    shard_from_text,
    shard_to_text,
)
from parallax.domain import metadata
from parallax.domain.access_rules import AccessKind, AccessOperation, AccessRule, NameMatch
from parallax.domain.audit import AuditEntry, AuditStage, entry_from_text, entry_to_text
from parallax.domain.block_rows import decode_turn, encode_turn
from parallax.domain.blocks import Block
from parallax.domain.blocks import encode as encode_block
from parallax.domain.commits import GroupCommit, ObservedCommit, PublishedOffset
from parallax.domain.formats import FIRST_FORMAT, FORMAT
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    Lineage,
    RegionName,
    Route,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.lineage_history import EpochRows
from parallax.domain.metadata import CommittedMetadata
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Mode, PrimaryDecision, Stage
from parallax.domain.progress import Progress, SourcePosition
from parallax.domain.replication_status import ShardPartition, ShardStatus
from parallax.domain.rights import Principal, ProvenBy
from parallax.domain.runs import LostRange, Run
from parallax.domain.skips import SkipRange
from parallax.domain.sync_status import GroupSyncStatus, SyncCycle, SyncTrouble
from parallax.domain.topic_settings import Agreed
from parallax.failover.drill import history
from parallax.failover.drill.figures import DrillFigures, Leg, LegFigures, Timeline
from parallax.failover.drill.history import DrillEnding, DrillRecord
from parallax.failover.facts import Move, MoveKind
from parallax.failover.journal import (
    MoveRecord,
    Snapshot,
    Step,
    mark_of,
    note_of,
    record_of,
    summary_from,
    summary_of,
    summary_to_text,
)
from parallax.ports.groups import OperationNote
from parallax.upkeep.access import OwnedRule
from parallax.upkeep.settings import AgreedSettings
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import PartitionChange, PartitionState, encode
from replicator.kafka.layout_record import LayoutRecord
from tests.memory.groups import MemoryOperationJournal

SETS = Path(__file__).parent / "formats"

A, B = RegionName("a"), RegionName("b")
ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
GROUP = GroupName("billing")
P3 = TopicPartition(TopicName("trips"), 3)

POSITIONS = {
    SourceId(A, TopicId("older-of-a")): SourcePosition(-1, SourceOffset(9)),
    SourceId(A, TopicId("newer-of-a")): SourcePosition(
        5, SourceOffset(12), ((3, SourceOffset(7)), (5, SourceOffset(12)))
    ),
    SourceId(B, TopicId("of-b")): SourcePosition(0, SourceOffset(2**40)),
}
PROGRESS = Progress(ON_B, TopicId("trips-on-b"), TargetOffset(41), POSITIONS)
OBSERVED = ObservedCommit(
    GROUP, ON_A, P3, TopicId("trips-on-a"), TargetOffset(77), 4, 1_700_000_000_123, reported=True
)
PUBLISHED = PublishedOffset(GROUP, P3, PROGRESS, ON_A, TargetOffset(76), Outcome.PENDING, 1_700_000_000_456)
DECISION = PrimaryDecision(
    GROUP,
    4_002,
    Mode.ACTIVE_PASSIVE,
    B,
    ON_B,
    Stage.MOVING,
    ON_A,
    A,
    1_700_000_000_789,
    supersedes=(3, 2_001),
    disaster=True,
    reason="region a is gone",
)
METADATA = CommittedMetadata(
    4_002,
    TopicId("trips-on-b"),
    TargetOffset(41),
    POSITIONS,
    (SkipRange(TargetOffset(43), TargetOffset(45)), SkipRange(TargetOffset(300), TargetOffset(1_000))),
    TargetOffset(1_200),
)
COMMIT = GroupCommit(TargetOffset(41), 6, "the application's own")
MOVE = MoveRecord(
    Move(GROUP, ON_A, ON_B, B, MoveKind.DISASTER),
    "0123456789abcdef",
    1_700_000_001_000,
    1_700_000_001_000_001,
    Step.WRITTEN,
    Snapshot({ON_A: {P3: COMMIT}}, {P3: PROGRESS}, 2_001, A),
    frozenset({TopicName("trips")}),
    4_002,
    {P3: mark_of(COMMIT)},
    {P3: TargetOffset(77)},
    "aggregate-b stopped answering",
    "ada",
)
DRILL = DrillRecord(
    "drill-1",
    GROUP,
    "trips",
    "a",
    "b",
    1_700_000_002_000,
    7,
    DrillEnding.FAILED,
    "2 records were lost",
    "the group is in b",
    "verify: never consumed: 2",
    61_000,
    DrillFigures(100, 99, 2, 1, (LegFigures(Leg("a", "b", 1_000.5, 6_250.5), 5_250.0, None, 1_683, 1.5),)),
    Timeline(10.5, (1, 2), {"a": (1, 0), "b": (0, 2)}, ((3.5, "moved"),)),
    "ada",
)
AUDITED = AuditEntry(
    "0123456789abcdef",
    1_700_000_004_000,
    AuditStage.UNKNOWN,
    Principal("spiffe://bank/operator", ProvenBy.CERTIFICATE),
    "SetPrimary",
    GROUP,
    {"primary": "a", "fencing_number": "2001"},
    {"primary": "b", "fencing_number": "4002"},
    "region a is gone",
    "b",
    "offsetsvc@host:17",
    "the store did not answer",
)
SHARD = ShardStatus(
    Route(A, B),
    3,
    4,
    1_700_000_005_000,
    "replicator@host:18",
    "has been silent for 31 s",
    "aggregate-b",
    2,
    1,
    900,
    12,
    250,
    4_000,
    400_000,
    70_000,
    40,
    canary_late=True,
)
PARTITIONS = (
    ShardPartition(
        P3, "stopped", "RIGHT_MISSING: trips at regional-a", 900, 12, 1_500, SourceOffset(77), 4_000
    ),
    ShardPartition(TopicPartition(TopicName("trips"), 7), "waiting"),
)
SYNCED = GroupSyncStatus(
    GROUP,
    Outcome.UNREACHABLE,
    1_700_000_006_000,
    1_700_000_006_500,
    {"published": 7, "target_away": 1},
    (ON_A,),
    8,
    "[STORE_UNAVAILABLE] no answer",
    (
        SyncTrouble(P3, ON_B, "target_away", Outcome.UNREACHABLE, "no answer", "wait"),
        SyncTrouble(None, None, "failed", Outcome.OK),
    ),
    2,
)
CYCLE = SyncCycle("sync@host:19", 1_700_000_007_000, 12, 1, (ON_B,), "[STORE_UNAVAILABLE] no answer")
STATE = PartitionState(
    P3,
    Lineage(TopicId("trips-at-a"), TopicId("trips-on-b"), 2),
    3,
    SourceOffset(100),
    TargetOffset(200),
    SourceOffset(130),
    SourceOffset(125),
    TargetOffset(231),
    5,
    8,
    7,
    6,
    TargetOffset(230),
)
ENTRY = encode(
    run_log_id=TopicId("runs-of-a-on-b"),
    layout=2,
    shard=1,
    path="batch",
    changes=[
        PartitionChange(
            STATE,
            (
                Run(SourceOffset(110), TargetOffset(215), 15, SourceOffset(108), 5),
                Run(SourceOffset(130), TargetOffset(231), 0, SourceOffset(125), 5),
            ),
            (LostRange(SourceOffset(100), SourceOffset(108), TargetOffset(214)),),
        )
    ],
    everything={},
    committed_at_ms=1_700_000_003_000,
)
ENTRY_BEFORE_RECORD_END = Entry.FromString(ENTRY.SerializeToString())
ENTRY_BEFORE_RECORD_END.partitions[0].ClearField("target_record_end")
ENTRY_BEFORE_PASSED = Entry.FromString(ENTRY_BEFORE_RECORD_END.SerializeToString())
ENTRY_BEFORE_PASSED.partitions[0].ClearField("passed_leader_epoch")
LAYOUT = LayoutRecord(
    2,
    4,
    settled=False,
    run_log="parallax.runs.a",
    run_log_id=TopicId("runs-of-a-on-b"),
    previous_shards=2,
    topics="trips",
)
OWNED = OwnedRule(
    AccessRule(
        AccessKind.TOPIC,
        NameMatch.LITERAL,
        "trips",
        "User:billing",
        "*",
        AccessOperation.WRITE,
        allow=True,
    ),
    promoted=True,
)
AGREED = AgreedSettings(
    TopicId("trips-on-b"),
    {"retention.ms": Agreed("86400000", "86400000"), "segment.ms": Agreed(None, "604800000")},
)


_BlockParts = tuple[list[Run], int, dict[int, EpochRows]]
ROWS = [
    Run(SourceOffset(110), TargetOffset(2**40), 15, SourceOffset(108), 5),
    Run(SourceOffset(130), TargetOffset(2**40 + 400), 0, SourceOffset(125), 5),
    Run(SourceOffset(130), TargetOffset(2**40 + 70_000), 300, SourceOffset(126), 7),
]
BLOCK: _BlockParts = (ROWS, 1_700_000_000_123, {3: EpochRows(SourceOffset(9), 90, -1)})
TURN: tuple[int, int, dict[int, _BlockParts]] = (
    2**40,
    1_700_000_000_123,
    {-(2**63): (ROWS, 1_700_000_000_123, {}), 5: (ROWS[:1], 1_700_000_000_023, {})},
)


@dataclass(frozen=True)
class StoredFormat:
    """One format.

    Attributes:
        file: its name within a set.
        value: uses all of the format.
        write, read: the present code's.
        details: what two texts of one number are compared by: names may be added, and nothing else may change.
        number: the number that a text carries.
        before: what older sets read as, where they don't say all of ``value``: the last set so read, and the value.
    """

    file: str
    value: Any
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    details: Callable[[bytes], Any] = json.loads
    number: Callable[[bytes], int] = lambda raw: int(json.loads(raw).get(FORMAT, FIRST_FORMAT))
    before: tuple[tuple[int, Any], ...] = field(default=())

    def expected_of(self, number_of_set: int) -> Any:
        """What the file of a set has to be read as."""
        return next((value for last, value in self.before if number_of_set <= last), self.value)


def _block_parts(block: Block) -> _BlockParts:
    rows = [block.run(place) for place in range(len(block))]
    return rows, block.committed_at_ms, block.epochs(0)


def _turn_parts(raw: bytes) -> tuple[int, int, dict[int, _BlockParts]]:
    turn = decode_turn(raw)
    return (
        turn.run_log_first,
        turn.committed_at_ms,
        {number: _block_parts(block) for number, block in turn.pieces.items()},
    )


def _drill_body(record: DrillRecord) -> str:
    journal = MemoryOperationJournal()
    history.keep(journal, record)
    return journal.operations(history.DRILLS)[0].body


def _drill_note(body: str) -> OperationNote:
    return OperationNote(history.DRILLS, DRILL.started_at_ms, DRILL.drill_id, DRILL.version, body)


def _move_note(body: str) -> OperationNote:
    return OperationNote(GROUP, MOVE.started_at_ms, MOVE.operation_id, MOVE.version, body)


def _summary_note(summary: str) -> OperationNote:
    return OperationNote(GROUP, MOVE.started_at_ms, MOVE.operation_id, MOVE.version, "", summary)


def _metadata_number(raw: bytes) -> int:
    found = re.match(rb"plx(\d+)\.", raw)
    assert found is not None
    return int(found[1])


FORMATS = (
    StoredFormat(
        "group_progress.json",
        PROGRESS,
        lambda value: progress_to_text(value).encode(),
        lambda raw: progress_from_text(raw.decode()),
    ),
    StoredFormat(
        "group_observed.json",
        OBSERVED,
        lambda value: observed_to_text(value).encode(),
        lambda raw: observed_from_text(GROUP, ON_A, P3, raw.decode()),
    ),
    StoredFormat(
        "group_published.json",
        PUBLISHED,
        lambda value: published_to_text(value).encode(),
        lambda raw: published_from_text(GROUP, ON_B, P3, raw.decode()),
    ),
    StoredFormat(
        "primary_decisions.json",
        DECISION,
        lambda value: decision_to_text(value).encode(),
        lambda raw: decision_from_text(GROUP, DECISION.fencing_number, A, raw.decode()),
    ),
    StoredFormat(
        "operations_move.json",
        MOVE,
        lambda value: note_of(value).body.encode(),
        lambda raw: record_of(_move_note(raw.decode())),
        before=((5, replace(MOVE, actor="")),),
    ),
    StoredFormat(
        "operations_drill.json",
        DRILL,
        lambda value: _drill_body(value).encode(),
        lambda raw: history.record_of(_drill_note(raw.decode())),
        before=((5, replace(DRILL, actor="")),),
    ),
    StoredFormat(
        "audit.json",
        AUDITED,
        lambda value: entry_to_text(value).encode(),
        lambda raw: entry_from_text(GROUP, "entry", raw.decode()),
    ),
    StoredFormat(
        "operations_by_week.json",
        summary_of(MOVE),
        lambda value: summary_to_text(value).encode(),
        lambda raw: summary_from(_summary_note(raw.decode())),
        before=((5, summary_of(replace(MOVE, actor=""))),),
    ),
    StoredFormat(
        "replicator_status.json",
        SHARD,
        lambda value: shard_to_text(value).encode(),
        lambda raw: shard_from_text(SHARD.route, SHARD.shard, raw.decode()),
        before=((9, replace(SHARD, canary_age_ms=None, canary_latency_ms=None, canary_late=False)),),
    ),
    StoredFormat(
        "replicator_partitions.json",
        PARTITIONS,
        lambda value: partitions_to_text(value).encode(),
        lambda raw: partitions_from_text(raw.decode(), SHARD.route, SHARD.shard),
    ),
    StoredFormat(
        "group_status.json",
        SYNCED,
        lambda value: group_to_text(value).encode(),
        lambda raw: group_from_text(GROUP, raw.decode()),
    ),
    StoredFormat(
        "sync_status.json",
        CYCLE,
        lambda value: cycle_to_text(value).encode(),
        lambda raw: cycle_from_text(raw.decode()),
    ),
    StoredFormat(
        "committed_metadata.txt",
        METADATA,
        lambda value: metadata.encode(value).encode(),
        lambda raw: metadata.decode(raw.decode()),
        lambda raw: raw,
        _metadata_number,
    ),
    StoredFormat("layouts.json", LAYOUT, LayoutRecord.encoded, LayoutRecord.decoded),
    StoredFormat(
        "acls.json",
        OWNED,
        OwnedRule.encoded,
        lambda raw: OwnedRule.decoded(OWNED.key, raw),
    ),
    StoredFormat(
        "configs.json",
        AGREED,
        AgreedSettings.encoded,
        lambda raw: AgreedSettings.decoded(TopicName("trips"), raw),
    ),
    StoredFormat(
        "blocks.bin",
        BLOCK,
        lambda value: encode_block(*value),
        lambda raw: _block_parts(Block(raw)),
        list,
        lambda raw: raw[0],
    ),
    StoredFormat(
        "turns.bin",
        TURN,
        lambda value: encode_turn(
            value[0], value[1], {n: encode_block(*part) for n, part in value[2].items()}
        ),
        _turn_parts,
        list,
        lambda raw: raw[0],
    ),
    StoredFormat(
        "run_log_entry.binpb",
        ENTRY,
        lambda value: value.SerializeToString(deterministic=True),
        Entry.FromString,
        lambda raw: MessageToDict(Entry.FromString(raw), preserving_proto_field_name=True),
        lambda raw: getattr(Entry.FromString(raw), FORMAT, FIRST_FORMAT) or FIRST_FORMAT,
        before=((3, ENTRY_BEFORE_PASSED), (8, ENTRY_BEFORE_RECORD_END)),
    ),
)


def sets() -> list[int]:
    """The numbers of the sets that are kept, ascending."""
    return sorted(int(path.name) for path in SETS.iterdir() if path.is_dir()) if SETS.is_dir() else []


def written() -> dict[str, bytes]:
    """What the present code writes, by file."""
    return {item.file: item.write(item.value) for item in FORMATS}


def kept(number_of_set: int) -> dict[str, bytes]:
    """The files of a set."""
    return {path.name: path.read_bytes() for path in sorted((SETS / str(number_of_set)).iterdir())}


def additions_only(older: Any, newer: Any) -> bool:
    """Whether ``newer`` says all that ``older`` says, in the same words, and perhaps more."""
    if isinstance(older, dict) and isinstance(newer, dict):
        return all(name in newer and additions_only(value, newer[name]) for name, value in older.items())
    if isinstance(older, list) and isinstance(newer, list):
        return len(older) == len(newer) and all(map(additions_only, older, newer))
    return bool(older == newer)


def problem(item: StoredFormat, older: bytes, newer: bytes) -> str:
    """What a reader of the older file would misunderstand in the newer one without a word; empty: nothing."""
    if item.number(older) != item.number(newer) or additions_only(item.details(older), item.details(newer)):
        return ""
    return (
        f"{item.file} was changed and has the number {item.number(newer)} still: let its readers read a greater one "
        "first, and write that (docs/formats.md)"
    )


def main() -> int:
    """Keep a new set if the present code writes another one than the newest."""
    present, numbers = written(), sets()
    newest = kept(numbers[-1]) if numbers else {}
    if present == newest:
        sys.stdout.write(f"formats/{numbers[-1]} is what the present code writes\n")
        return 0
    problems = [
        found
        for item in FORMATS
        if (found := problem(item, newest.get(item.file, present[item.file]), present[item.file]))
    ]
    if problems:
        sys.stdout.write("".join(f"{found}\n" for found in problems))
        return 1
    folder = SETS / str(numbers[-1] + 1 if numbers else 1)
    folder.mkdir(parents=True)
    for name, raw in present.items():
        (folder / name).write_bytes(raw)
    sys.stdout.write(f"kept {folder}: commit it, and say in FORMATS what older sets read as (`before`)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
