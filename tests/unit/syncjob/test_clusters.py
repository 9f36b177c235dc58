"""A cluster is waited for as long as it answers, and no longer; what it has no time for is not made up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest

from parallax.domain.commits import Commits
from parallax.domain.ids import ClusterName, GroupName, TopicName
from parallax.errors import ConfigError
from parallax.ports.clusters import GroupState, TopicInfo
from syncjob.clusters import ClusterSnapshot, ClusterWatch
from tests.support import poll_until
from tests.worlds.offset_world import Writer

TIMEOUT_MS = 600
GROUPS = [GroupName(f"group-{number:03}") for number in reversed(range(360))]  # 40 questions, eight at a time


class SlowWriter(Writer):
    """Takes a while for each answer."""

    answer: Callable[[], None]

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        self.answer()
        return super().topics()

    def groups(self, *chosen: Any, **options: Any) -> Sequence[GroupState]:
        self.answer()
        return super().groups(*chosen, **options)

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


def read(watch: ClusterWatch, groups: Sequence[GroupName] = GROUPS) -> ClusterSnapshot | None:
    watch.begin(lambda _group: True, groups)
    return watch.result()


def test_a_read_of_many_groups_is_waited_for_while_parts_of_it_come(
    watch: ClusterWatch, writer: SlowWriter
) -> None:
    writer.answer = lambda: time.sleep(0.6 * TIMEOUT_MS / 1_000)
    began_s = time.monotonic()
    snapshot = read(watch, GROUPS[:50])
    assert time.monotonic() - began_s > 1.5 * TIMEOUT_MS / 1_000
    assert snapshot is not None
    assert snapshot.commits.keys() == set(GROUPS[:50])
    assert snapshot.resting == set()
    assert not watch.away


def test_what_there_is_no_time_for_rests_and_the_cycle_goes_on(
    watch: ClusterWatch, writer: SlowWriter
) -> None:
    writer.answer = lambda: time.sleep(0.4 * TIMEOUT_MS / 1_000)
    began_s = time.monotonic()
    snapshot = read(watch)
    assert time.monotonic() - began_s < 10
    assert snapshot is not None
    assert not watch.away
    done = len(snapshot.commits)
    assert 8 <= done < len(GROUPS)
    assert snapshot.commits.keys() == set(GROUPS[:done])  # in the order that was asked for
    assert snapshot.resting == set(GROUPS[done:])
    assert all(snapshot.as_seen_for(group) is None for group in GROUPS[done:])


def test_a_cluster_that_falls_silent_amid_a_read_is_away(watch: ClusterWatch, writer: SlowWriter) -> None:
    goes_on, left = threading.Event(), iter(range(22))

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
