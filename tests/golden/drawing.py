"""What drawn examples of the resume rule are written with: rows, lineages and questions in few words."""

from __future__ import annotations

from collections.abc import Sequence

from parallax.domain.history import History
from parallax.domain.ids import Lineage, RegionName, SourceId, SourceOffset, TargetOffset, TopicId
from parallax.domain.place import LogRange
from parallax.domain.progress import Progress, SourceHistory
from parallax.domain.resume import Resume, resume
from parallax.domain.runs import LostRange, Run
from parallax.domain.skips import skip_ranges

A = RegionName("a")
B = RegionName("b")
REGIONS = [A, B]


def run(source: int, target: int, count: int, previous: int | None = None, epoch: int = 0) -> Run:
    before = source if previous is None else previous
    return Run(SourceOffset(source), TargetOffset(target), count, SourceOffset(before), epoch)


def mark(source: int, target: int, last_run_end: int | None = None, epoch: int = 0) -> Run:
    return run(source, target, 0, last_run_end, epoch)


def of(
    region: RegionName,
    *rows: Run,
    topic: str = "1",
    generation: int = 0,
    closed_at: int | None = None,
    lost: Sequence[LostRange] = (),
) -> SourceHistory:
    source = SourceId(region, TopicId(topic))
    history = History(Lineage(source.topic_id, TopicId("t"), generation), rows, lost)
    return SourceHistory(source, history, None if closed_at is None else SourceOffset(closed_at))


def log(low: int, high: int) -> LogRange:
    return LogRange(TargetOffset(low), TargetOffset(high))


def ask(
    commit: int,
    origin: Sequence[SourceHistory],
    destination: Sequence[SourceHistory],
    destination_log: LogRange,
    regions: Sequence[RegionName] = REGIONS,
    progress: Progress | None = None,
) -> Resume:
    return resume(
        commit=TargetOffset(commit),
        regions=regions,
        origin=origin,
        destination=destination,
        destination_log=destination_log,
        progress=progress,
    )


def skips(answer: Resume, destination: Sequence[SourceHistory], end: int) -> list[tuple[int, int]]:
    found = skip_ranges(
        positions=answer.positions,
        origin=(),
        destination=destination,
        start=answer.resume_offset,
        end=TargetOffset(end),
    )
    return [(item.start, item.end) for item in found]
