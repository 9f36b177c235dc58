from __future__ import annotations

import struct
from pathlib import Path

from lab.bench.data.batches import FIRST_TIMESTAMP_MS, Shape, prepare
from lab.bench.data.copied import BatchHeader, CopiedLog, committed, headers_in, read_partition
from lab.bench.data.loading import Segment
from lab.bench.rows.copied_figures import figures
from lab.bench.rows.watch import Sample, Window, beyond, find_window, inside

ABORT, COMMIT = 0, 1


def data(offset: int, count: int, producer: int = -1, first: int = 0) -> BatchHeader:
    base = FIRST_TIMESTAMP_MS + first
    return BatchHeader(offset, count, base, base + count - 1, producer, producer >= 0, None)


def marker(offset: int, producer: int, kind: int) -> BatchHeader:
    return BatchHeader(offset, 1, 0, 0, producer, transactional=True, control=kind)


def offsets(*batches: BatchHeader) -> list[int]:
    return [batch.base_offset for batch in committed(batches)]


def test_what_was_committed_is_seen_and_what_was_aborted_is_not() -> None:
    assert offsets(data(0, 5, 7), marker(5, 7, COMMIT), data(6, 2, 7), marker(8, 7, ABORT), data(9, 1)) == [
        0,
        9,
    ]


def test_nothing_is_seen_from_an_open_transaction_on() -> None:
    assert offsets(data(0, 2), data(2, 3, 7), data(5, 1), data(6, 1, 8), marker(7, 8, COMMIT)) == [0]


def test_an_abort_takes_only_its_own_transaction() -> None:
    log = [
        data(0, 1, 8),
        data(1, 1, 7),
        marker(2, 7, COMMIT),
        data(3, 1, 7),
        marker(4, 7, ABORT),
        marker(5, 8, COMMIT),
    ]
    assert offsets(*log) == [0, 1]


def test_a_complete_copy_is_right_however_it_was_batched() -> None:
    log = CopiedLog()
    for batch in (data(0, 5, first=0), data(5, 1, first=5), data(7, 10, first=6)):
        log.add(batch)
    assert (log.records, log.misplaced, log.first_problem) == (16, 0, "")
    assert [log.records_below(offset) for offset in (0, 5, 6, 7, 8, 99)] == [0, 5, 6, 6, 16, 16]


def test_lost_and_repeated_records_are_found() -> None:
    lost = CopiedLog()
    lost.add(data(0, 5, first=0))
    lost.add(data(5, 5, first=6))
    assert lost.misplaced == 1
    assert lost.first_problem == "the batch at offset 5 holds records 6 to 10, not 5 to 9"
    repeated = CopiedLog()
    repeated.add(data(0, 5, first=0))
    repeated.add(data(5, 5, first=4))
    assert repeated.misplaced == 1


def test_segment_files_are_read_as_a_broker_writes_them(tmp_path: Path) -> None:
    batches = prepare(Shape(batch_records=4, variants=2))
    folder = tmp_path / "trips-2"
    folder.mkdir()
    first = b"".join(bytes(batches[number % 2].at(4 * number)) for number in range(3))
    (folder / "00000000000000000000.log").write_bytes(first)
    control = struct.pack(">qiibIhiqqqhii", 16, 66, 0, 2, 0, 0x30, 0, 0, 0, 9, 0, -1, 1)
    # length, attributes, timestamp delta, offset delta, key length 4, version 0, type 1, no value
    control += bytes([0x20, 0, 0, 0, 0x08, 0, 0, 0, 1]) + bytes(8)
    assert [found.control for found in headers_in(control)] == [COMMIT]
    tail = bytes(batches[0].at(12)) + control + bytes(batches[1].at(16))[:-1]
    (folder / "00000000000000000012.log").write_bytes(tail)
    (folder / "00000000000000000020.log").write_bytes(b"")
    log = read_partition(tmp_path, "trips", 2)
    assert (log.records, log.misplaced) == (16, 0)


SEGMENT = Segment("first", 0, 1_000, 170.0)
NEXT = Segment("second", 1_000, 2_000, 170.0)


def sample(at_s: float, *ends: int) -> Sample:
    places = {("aggregate-a", partition): end for partition, end in enumerate(ends)}
    return Sample(at_s, places, {"copier": 2 * at_s})


def test_a_sample_is_inside_while_every_partition_is() -> None:
    assert inside(sample(0, 1, 990), SEGMENT)
    assert not inside(sample(0, 0, 500), SEGMENT)
    assert not inside(sample(0, 500, 991), SEGMENT)
    assert not inside(sample(0, 1_500, 1_000), NEXT)
    assert beyond(sample(0, 500, 991), SEGMENT)
    assert not beyond(sample(0, 500, 990), SEGMENT)


def test_the_window_begins_warm_and_ends_in_time() -> None:
    samples = [sample(second, 90 * second, 80 * second) for second in range(30)]
    window = find_window(samples, SEGMENT, warm_s=2, at_most_s=5)
    assert window is not None
    assert (window.start.at_s, window.end.at_s, window.seconds) == (3, 8, 5)
    assert window.cpu_s("copier") == 10
    assert window.offsets == 5 * (90 + 80)


def test_the_window_ends_with_the_data_set_and_the_next_one_begins_behind_it() -> None:
    samples = [sample(second, 100 * second, 90 * second) for second in range(25)]
    window = find_window(samples, SEGMENT, warm_s=1, at_most_s=60)
    assert window is not None
    assert (window.start.at_s, window.end.at_s) == (2, 9)
    following = find_window(samples, NEXT, warm_s=1, at_most_s=60)
    assert following is not None
    assert (following.start.at_s, following.end.at_s) == (13, 19)


def test_of_many_partitions_some_may_be_done_before_the_window_ends() -> None:
    ahead = [sample(second, *(100 * second for _ in range(3)), 300 * second) for second in range(1, 12)]
    assert find_window(ahead, SEGMENT, warm_s=3, at_most_s=60) is None
    window = find_window(ahead, SEGMENT, warm_s=3, at_most_s=60, share=0.75)
    assert window is not None
    assert (window.start.at_s, window.end.at_s) == (4, 9)
    assert beyond(ahead[3], SEGMENT)
    assert not beyond(ahead[8], SEGMENT, 0.75)
    assert beyond(ahead[9], SEGMENT, 0.75)


def test_too_little_data_gives_no_window() -> None:
    assert find_window([], SEGMENT, warm_s=1, at_most_s=5) is None
    assert find_window([sample(0, 500), sample(1, 2_000)], SEGMENT, warm_s=0, at_most_s=5) is None


def test_figures_are_of_committed_records_in_the_window_only() -> None:
    logs = {}
    for partition in range(2):
        log = CopiedLog()
        for number in range(100):
            log.add(data(11 * number, 10, first=10 * number))
        logs["aggregate-a", partition] = log
    usage = {"copier": 1.0, "brokers": 2.0, "cassandra": 0.5}
    start = Sample(10.0, dict.fromkeys(logs, 110), dict.fromkeys(usage, 0.0))
    end = Sample(12.0, dict.fromkeys(logs, 550), usage)
    found = figures(Window(start, end), Segment("first", 0, 1_000, 200.0), logs)
    assert found is not None
    assert (found.window_s, found.records_per_s) == (2.0, 400.0)
    assert found.mb_per_s == 400 * 200 / 1e6
    assert (found.copier_cpu, found.broker_cpu, found.cassandra_cpu) == (1_250.0, 2_500.0, 625.0)
    assert figures(Window(end, end), Segment("first", 0, 1_000, 200.0), logs) is None
