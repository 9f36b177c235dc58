"""What must hold of a route's copy and of its mapping, by the records themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from parallax.domain.history import History
from parallax.domain.ids import Lineage, RoutePartition, TargetOffset, TopicName, TopicPartition
from parallax.domain.runs import LostRange, Run
from replicator.copying.state import lineage_of, lost_of, rows_of, topic_partition_of
from tests.memory.index import MemoryMappingIndex
from tests.worlds.sim.kafka import Log
from tests.worlds.sim.route import RouteLife
from tests.worlds.sim.sides import TOPIC, SourceRecord

_ALL_ROWS = 100_000


@dataclass(slots=True)
class _Told:
    """What the mapping tells of one lineage.

    Attributes:
        cut: a later lineage of the same topic on the target began here: what lies above is void.
    """

    sequence: int
    target_first: int
    rows: list[Run] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    cut: int | None = None


def check_route(life: RouteLife, index: MemoryMappingIndex) -> None:
    """Hold what lies on the target's present topic, and what the run log and the index say of it, against the truth."""
    topic = life.aggregate.cluster.topics.get(TOPIC)
    assert topic is not None
    twice = 0
    for number, log in enumerate(topic.logs):
        item = TopicPartition(TopicName(TOPIC), number)
        _check_readable(item, log)
        copied = {
            slot.offset: slot.value
            for slot in log.committed()
            if isinstance(slot.value, SourceRecord) and slot.value.region == life.regional.region
        }
        indexed = _of_index(life, index, item, topic.topic_id)
        twice += _check_content(life, item, copied, indexed)
        _check_mapping(item, log, copied, indexed, harmed=life.run_log_harmed)
        if not life.run_log_harmed:
            logged = _of_run_log(life, item, topic.topic_id)
            _check_mapping(item, log, copied, logged, harmed=life.run_log_harmed)
            _check_same(life, index, item, indexed, logged)
    told = life.twice_told
    assert twice <= told, f"{life.route}: {twice} records came twice, and rebuilds had told of {told}"


def _check_readable(item: TopicPartition, log: Log) -> None:
    """No replicator's transaction holds readers back: what lies above is copied, and nobody sees it."""
    hanging = {
        owner: start for owner, start in log.open_transactions().items() if owner.startswith("parallax.")
    }
    assert not hanging, (
        f"{item}: readers wait for transactions that never end, from these offsets on: {hanging}"
    )


def _of_run_log(life: RouteLife, item: TopicPartition, topic_id: str) -> dict[Lineage, _Told]:
    found: dict[Lineage, _Told] = {}
    for _, _, entry in life.entries():
        for part in entry.partitions:
            lineage = lineage_of(part)
            if topic_partition_of(part) != item or lineage.target_topic_id != topic_id:
                continue
            told = found.setdefault(lineage, _Told(part.lineage_sequence, part.lineage_target_first))
            told.rows += rows_of(part)
            told.lost += lost_of(part)
    return _with_cuts(found)


def _of_index(
    life: RouteLife, index: MemoryMappingIndex, item: TopicPartition, topic_id: str
) -> dict[Lineage, _Told]:
    partition = RoutePartition(life.route, item)
    found: dict[Lineage, _Told] = {}
    for record in index.lineages(life.route, item.topic):
        if record.partition != partition or record.lineage.target_topic_id != topic_id:
            continue
        page = index.rows_from_target(partition, record.lineage, TargetOffset(0), _ALL_ROWS)
        found[record.lineage] = _Told(
            record.sequence,
            record.target_first,
            list(page.rows),
            list(index.lost_ranges([(partition, record.lineage)])[partition, record.lineage]),
        )
    return _with_cuts(found)


def _with_cuts(found: dict[Lineage, _Told]) -> dict[Lineage, _Told]:
    """As `parallax.domain.lineages` reads them: void is what lies above the opening of a later one."""
    for told in found.values():
        later = [other.target_first for other in found.values() if other.sequence > told.sequence]
        end = max((row.target_end for row in told.rows), default=TargetOffset(0))
        told.cut = min(later) if later and min(later) < end else None
    return found


def _check_content(
    life: RouteLife, item: TopicPartition, copied: dict[int, SourceRecord], told: dict[Lineage, _Told]
) -> int:
    """How many records came twice: where nothing was rebuilt, none may."""
    regional = life.regional
    serials = [copied[offset].serial for offset in sorted(copied)]
    trimmed = life.aggregate.trimmed.get(life.aggregate.cluster.topics[TOPIC].topic_id, set())
    first = serials
    if life.rebuilt:  # the first copy of what comes twice stands in order, unless retention has taken it
        first = [serial for serial in dict.fromkeys(serials) if serial not in trimmed]
    assert first == sorted(set(first)), f"{life.route} {item}: copied twice or out of order: {serials}"
    assert all(record.partition == item.partition for record in copied.values())
    got = set(serials)
    excused = regional.thrown_away | regional.gone_unseen | trimmed
    for record in regional.records:
        if record.partition != item.partition:
            continue
        if regional.aborted(record):
            assert record.serial not in got, f"{life.route}: {record} was aborted at the source"
            continue
        if record.serial in got | excused or record.incarnation in regional.gone_incarnations:
            continue
        lost = [(lineage, gap) for lineage, lineage_told in told.items() for gap in lineage_told.lost]
        lost += [(lineage, gap) for of, lineage, gap in life.gone_lost_ranges if of == item]
        assert any(
            gap.source_start <= record.offset < gap.source_end
            for lineage, gap in lost
            if lineage.source_topic_id == record.incarnation
        ), f"{life.route} {item}: {record} is missing, and no lost range says so"
    return len(serials) - len(got)


def _check_mapping(
    item: TopicPartition,
    log: Log,
    copied: dict[int, SourceRecord],
    told: dict[Lineage, _Told],
    *,
    harmed: bool,
) -> None:
    """Every copied record is in one run, and each row tells the truth; what retention took can't be looked at.

    Args:
        harmed: the run log has lost entries that were perhaps not indexed yet: of some records no row may tell.
    """
    mapped: dict[int, int] = {}
    for lineage, lineage_told in told.items():
        history = History(lineage, lineage_told.rows, lineage_told.lost)  # invariants A to E
        if lineage_told.cut is not None:
            history = history.cut_at(TargetOffset(lineage_told.cut))
        _check_rows(lineage, history.rows, log, copied, mapped)
    missing = [str(record) for offset, record in copied.items() if offset not in mapped]
    assert harmed or not missing, f"{item}: copied, and in no run: {missing}"


def _check_rows(
    lineage: Lineage,
    rows: Sequence[Run],
    log: Log,
    copied: dict[int, SourceRecord],
    mapped: dict[int, int],
) -> None:
    of_lineage: list[tuple[int, int]] = []
    for row in rows:
        for index in range(row.count):
            target = row.target_start + index
            if target < log.start:
                continue
            record = copied.get(target)
            assert record is not None, f"{lineage}: {row} points at no record of ours at {target}"
            assert (record.incarnation, record.offset) == (
                lineage.source_topic_id,
                row.source_start + index,
            ), f"{lineage}: {row} points at {record}"
            assert record.epoch == row.source_leader_epoch, (
                f"{lineage}: {row} has another epoch than {record}"
            )
            assert target not in mapped, f"{target} is in two runs"
            mapped[target] = record.offset
            of_lineage.append((record.offset, target))
    for row in rows:
        for source, target in of_lineage:
            below = source < row.source_start
            assert not below or target < row.target_start, f"{lineage}: {row} does not hold for {source}"
            beyond = source >= row.source_end
            assert not beyond or target >= row.target_end, f"{lineage}: {row} does not hold for {source}"
            assert not row.previous_source_end <= source < row.source_start, f"{row} hides {source}"


def _check_same(
    life: RouteLife,
    index: MemoryMappingIndex,
    item: TopicPartition,
    indexed: dict[Lineage, _Told],
    logged: dict[Lineage, _Told],
) -> None:
    def mapping(some: Sequence[Run]) -> set[tuple[int, int]]:
        return {(row.source_start + i, row.target_start + i) for row in some for i in range(row.count)}

    for lineage, told in logged.items():
        rows = indexed[lineage].rows if lineage in indexed else []
        assert mapping(rows) == mapping(told.rows), f"{lineage}: the index and the run log differ"
        newest = max(told.rows, key=lambda row: (row.target_end, row.source_end), default=None)
        if not rows and not mapping(told.rows):
            continue  # it ended before anything was copied, with the layout of that time
        if newest is not None:
            stored = index.newest(life.route, item.topic)[item.partition, lineage].row
            assert (stored.target_end, stored.source_end) == (newest.target_end, newest.source_end)
