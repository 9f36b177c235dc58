"""A cluster is waited for as long as it answers, and no longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing

import pytest

from parallax.domain.commits import Commits
from parallax.domain.ids import ClusterName, GroupName
from parallax.errors import ConfigError
from syncjob.clusters import ClusterSnapshot, ClusterWatch
from tests.support import poll_until
from tests.worlds.offset_world import Writer

TIMEOUT_MS = 600
GROUPS = frozenset(GroupName(f"group-{number:03}") for number in range(360))  # 40 questions, eight at a time


class SlowWriter(Writer):
    """Takes a while for each answer about groups."""

    answer: Callable[[], None]

    def committed_each(self, groups: Collection[GroupName]) -> Mapping[GroupName, Commits | ConfigError]:
        self.answer()
        return super().committed_each(groups)


@pytest.fixture
def writer() -> SlowWriter:
    return SlowWriter(ClusterName("aggregate-a"))


@pytest.fixture
def watch(writer: SlowWriter) -> Iterator[ClusterWatch]:
    with closing(ClusterWatch(writer, TIMEOUT_MS, lambda: 1)) as found:
        yield found


def read(watch: ClusterWatch) -> ClusterSnapshot | None:
    watch.begin(lambda _group: True, GROUPS)
    return watch.result()


def test_a_read_of_many_groups_is_waited_for_while_parts_of_it_come(
    watch: ClusterWatch, writer: SlowWriter
) -> None:
    writer.answer = lambda: time.sleep(TIMEOUT_MS / 3_000)
    began_s = time.monotonic()
    snapshot = read(watch)
    assert time.monotonic() - began_s > 1.5 * TIMEOUT_MS / 1_000
    assert snapshot is not None
    assert snapshot.commits.keys() == GROUPS
    assert not watch.away


def test_a_cluster_that_falls_silent_amid_a_read_is_away(watch: ClusterWatch, writer: SlowWriter) -> None:
    goes_on, left = threading.Event(), iter(range(20))

    def answer() -> None:
        if next(left, None) is None:
            goes_on.wait(30)

    writer.answer = answer
    began_s = time.monotonic()
    try:
        assert read(watch) is None
        assert TIMEOUT_MS / 1_000 <= time.monotonic() - began_s < 10
        assert watch.away
        began_s = time.monotonic()
        assert watch.result() is None  # nobody waits for it a second time
        assert time.monotonic() - began_s < TIMEOUT_MS / 1_000
    finally:
        goes_on.set()
    poll_until(lambda: watch.result() is not None, 10, "the read in the background ends")
    assert not watch.away


def test_a_read_that_fails_by_a_time_out_of_its_own_is_made_again(
    watch: ClusterWatch, writer: SlowWriter
) -> None:
    def answer() -> None:
        raise TimeoutError("a library's")

    writer.answer = answer
    assert read(watch) is None
    writer.answer = lambda: None
    poll_until(lambda: read(watch) is not None, 10, "the cluster is read again")
