"""A row that this release can't read concerns its own partition or group; the real adapters run on a keyspace in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from offsetsvc.resume.call import FailoverRequest
from parallax.adapters.cassandra import groups as groups_module
from parallax.domain.formats import UnreadableRow
from parallax.domain.ids import TargetOffset, TopicId, TopicPartition
from parallax.domain.progress import Progress
from parallax.errors import UnreadableRowError
from parallax.runtime.deadline import Deadline
from syncjob.decide import Reason
from syncjob.idle import HOLDS_ALONE_MS
from tests.memory.cql import MemoryKeyspace
from tests.support import poll_until
from tests.worlds.newer_release import newer, worlds_on
from tests.worlds.offset_world import GROUP, TOPIC
from tests.worlds.sync_bench import OTHER, P0, Bench, only

P1 = TopicPartition(TOPIC, 1)


@pytest.fixture
def keyspace(monkeypatch: pytest.MonkeyPatch) -> MemoryKeyspace:
    return worlds_on(monkeypatch)


def two_groups(bench: Callable[..., Bench]) -> Bench:
    """Both at 15 of aggregate-a, on two partitions, and published on aggregate-b."""
    it = bench(partitions=2)
    for partition in (0, 1):
        for source, target in (("a", "a"), ("b", "a"), ("b", "b"), ("a", "b")):
            it.world.copy(source, target, 10, partition)
        it.world.watermarks(partition)
    it.world.commit("a", 15)
    it.world.commit("a", 15, partition=1)
    it.writer("a").commits[OTHER] = dict(it.writer("a").commits[GROUP])
    for _ in range(3):
        it.cycle()
    return it


def both_go_on(it: Bench, next_offset: int) -> None:
    it.world.commit("a", next_offset)
    it.world.commit("a", next_offset, partition=1)
    it.writer("a").commits[OTHER] = dict(it.writer("a").commits[GROUP])


PUBLISHED = ("other", "aggregate-b", TOPIC, 0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"outcome": "SOMETHING_NEW"}, "SOMETHING_NEW"),
        ({"format": 2}, "format 2, and this release reads formats up to 1"),
        ({"format": "x"}, "format 'x'"),
        ({"progress": {}}, "KeyError: 'cluster'"),
    ],
)
def test_one_row_of_a_newer_release_stops_its_partition_alone(
    bench: Callable[..., Bench], keyspace: MemoryKeyspace, values: dict[str, Any], said: str
) -> None:
    it = two_groups(bench)
    theirs = newer(keyspace.bodies("group_published")[PUBLISHED], **values)
    keyspace.rewrite("group_published", PUBLISHED, theirs)
    both_go_on(it, 20)

    report = it.cycle()

    refused = only(report, "b", group=OTHER)
    assert refused.reason is Reason.UNREADABLE_ROW
    assert refused.commit is None
    for words in ("group_published of group 'other', trips-0 on aggregate-b", said, "docs/formats.md"):
        assert words in refused.problem
    assert report.unreadable == [refused.problem]
    assert report.failures == {}
    for group, partition in ((GROUP, 0), (GROUP, 1), (OTHER, 1)):
        assert only(report, "b", partition, group).reason is Reason.PUBLISHED
        assert it.commit("b", partition, group).next_offset == 20  # type: ignore[union-attr]
    assert it.commit("b", group=OTHER).next_offset == 5  # type: ignore[union-attr]
    assert keyspace.bodies("group_published")[PUBLISHED] == theirs
    # It is looked at again in every cycle, and told of once.
    assert only(it.cycle(), "b", group=OTHER).reason is Reason.UNREADABLE_ROW

    keyspace.rewrite("group_published", PUBLISHED, newer(theirs, **json.loads(_of_partition_1(keyspace))))
    assert only(it.cycle(), "b", group=OTHER).reason is Reason.PUBLISHED


def _of_partition_1(keyspace: MemoryKeyspace) -> str:
    return keyspace.bodies("group_published")[*PUBLISHED[:3], 1]


def test_names_that_a_newer_release_has_added_are_ignored(
    bench: Callable[..., Bench], keyspace: MemoryKeyspace
) -> None:
    it = two_groups(bench)
    for table in ("group_published", "group_observed"):
        for key, body in keyspace.bodies(table).items():
            keyspace.rewrite(table, key, newer(body, of_release_2={"nested": [1]}))
    both_go_on(it, 20)

    report = it.cycle()
    assert (report.unreadable, report.failures) == ([], {})
    assert {item.reason for item in report.decisions} == {Reason.PUBLISHED}


def test_untranslated_it_would_end_the_cycle_of_all(
    bench: Callable[..., Bench], keyspace: MemoryKeyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = two_groups(bench)
    body = keyspace.bodies("group_published")[PUBLISHED]
    keyspace.rewrite("group_published", PUBLISHED, newer(body, outcome="SOMETHING_NEW"))
    both_go_on(it, 20)
    monkeypatch.setattr(
        groups_module, "read_text", lambda text, _newest, make, _where: make(json.loads(text))
    )
    with pytest.raises(KeyError, match="SOMETHING_NEW"):
        it.cycle()


class TestProgress:
    KEY = (GROUP, TOPIC, 0)

    def moved(self, bench: Callable[..., Bench], keyspace: MemoryKeyspace) -> tuple[Bench, str]:
        """Partition 0 of the group has a progress of a newer release, partition 1 one of this."""
        it = two_groups(bench)
        left = Progress(it.writer("a").cluster, TopicId("aggregate-a-1"), TargetOffset(10), {})
        it.world.groups.save_progress(GROUP, TOPIC, {0: left, 1: left}, moved_at_ms=it.world.now_ms)
        theirs = newer(keyspace.bodies("group_progress")[self.KEY], format=2)
        keyspace.rewrite("group_progress", self.KEY, theirs)
        return it, theirs

    def test_that_cant_be_read_is_neither_replaced_nor_forgotten(
        self, bench: Callable[..., Bench], keyspace: MemoryKeyspace
    ) -> None:
        it, theirs = self.moved(bench, keyspace)
        store, other = it.world.groups, Progress(it.writer("b").cluster, TopicId("t"), TargetOffset(3), {})
        later_ms = it.world.now_ms + 5_000

        with pytest.raises(UnreadableRowError, match="group_progress of group 'billing', trips-0"):
            store.save_progress(GROUP, TOPIC, {0: other, 1: other}, moved_at_ms=later_ms)
        assert keyspace.bodies("group_progress")[self.KEY] == theirs
        assert store.progress(GROUP, TOPIC)[1] == other
        assert isinstance(store.progress(GROUP, TOPIC)[0], UnreadableRow)

        with pytest.raises(UnreadableRowError, match="format 2"):
            store.void_progress(GROUP, TOPIC, [0, 1])
        assert keyspace.bodies("group_progress") == {self.KEY: theirs}

    def test_of_one_partition_leaves_the_others_and_other_groups_answered(
        self, bench: Callable[..., Bench], keyspace: MemoryKeyspace
    ) -> None:
        it, _ = self.moved(bench, keyspace)
        both_go_on(it, 20)
        report = it.cycle()
        assert only(report, "b").reason is Reason.UNREADABLE_ROW
        assert only(report, "b", group=OTHER).reason is Reason.PUBLISHED
        # The service refuses questions that concern it; what it can't answer is not published.
        assert only(report, "b", partition=1).reason is Reason.NO_ANSWER


@pytest.mark.parametrize("away", [True, False])
def test_what_was_seen_concerns_its_partition_whether_the_cluster_is_gone_or_not(
    bench: Callable[..., Bench], keyspace: MemoryKeyspace, *, away: bool
) -> None:
    it = two_groups(bench)
    key = (GROUP, "aggregate-a", TOPIC, 0)
    ours = keyspace.bodies("group_observed")[key]
    keyspace.rewrite("group_observed", key, newer(ours, format=2))
    both_go_on(it, 20)
    it.writer("a").away = away
    for _ in range(10):
        report = it.cycle()
        assert only(report, "b").reason is Reason.UNREADABLE_ROW
        assert only(report, "b", group=OTHER).reason is not Reason.UNREADABLE_ROW
    assert keyspace.bodies("group_observed")[key] == newer(ours, format=2)

    it.writer("a").away = False
    keyspace.rewrite("group_observed", key, ours)
    poll_until(lambda: only(it.cycle(), "b").reason is Reason.PUBLISHED, 10, "published anew")
    assert json.loads(keyspace.bodies("group_observed")[key])["next_offset"] == 20


def test_without_what_was_seen_the_service_does_not_go_by_progress(
    bench: Callable[..., Bench], keyspace: MemoryKeyspace
) -> None:
    """It might be void, and nothing tells."""
    it = two_groups(bench)
    left = Progress(it.writer("a").cluster, TopicId("aggregate-a-1"), TargetOffset(10), {})
    it.world.groups.save_progress(GROUP, TOPIC, {0: left}, moved_at_ms=it.world.now_ms)
    key = (GROUP, "aggregate-a", TOPIC, 0)
    keyspace.rewrite("group_observed", key, newer(keyspace.bodies("group_observed")[key], format=2))

    def asking(partition: int) -> Any:
        request = FailoverRequest(
            GROUP, it.writer("a").cluster, it.writer("b").cluster, only=TopicPartition(TOPIC, partition)
        )
        return it.service.failover.answers(request, Deadline.after_ms(10_000))

    with pytest.raises(UnreadableRowError, match="group_observed of group 'billing', trips-0 on aggregate-a"):
        asking(0)
    assert asking(1)[0].resume_offset == 5


def test_what_was_seen_is_named_by_its_key(keyspace: MemoryKeyspace, bench: Callable[..., Bench]) -> None:
    it = two_groups(bench)
    key = (GROUP, "aggregate-a", TOPIC, 0)
    keyspace.rewrite("group_observed", key, "no JSON")
    (row,) = (
        item for item in it.world.groups.observed(GROUP, "aggregate-a") if isinstance(item, UnreadableRow)
    )
    assert row.topic_partition == P0
    assert "group_observed of group 'billing', trips-0 on aggregate-a, can't be read" in row.problem


def test_a_row_that_becomes_unreadable_while_the_group_stands_still_is_not_overwritten(
    bench: Callable[..., Bench], keyspace: MemoryKeyspace
) -> None:
    it = two_groups(bench)
    for _ in range(3):
        it.cycle()
    key = (GROUP, "aggregate-a", TOPIC, 0)
    theirs = newer(keyspace.bodies("group_observed")[key], format=2)
    keyspace.rewrite("group_observed", key, theirs)
    for _ in range(HOLDS_ALONE_MS // 1_000 + 1):
        report = it.cycle()
    assert only(report, "b").reason is Reason.UNREADABLE_ROW
    assert keyspace.bodies("group_observed")[key] == theirs


def test_the_list_of_a_groups_positions_says_what_it_lacks(
    bench: Callable[..., Bench], keyspace: MemoryKeyspace
) -> None:
    it = two_groups(bench)
    keyspace.rewrite("group_published", PUBLISHED, "{}")
    here, there = it.service.positions.show(OTHER).clusters
    problems = {item.partition: item.problem for item in there.positions if item.HasField("problem")}
    assert problems.keys() == {0}
    assert "group_published of group 'other', trips-0 on aggregate-b, can't be read" in problems[0]
    assert [item.published_offset for item in there.positions] == [0, 5]
    assert not any(item.HasField("problem") for item in here.positions)
