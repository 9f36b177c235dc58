"""Answers after a route's run log was lost and rebuilt: right for every commit, on either side of the loss."""

from __future__ import annotations

import pytest

from offsetsvc.answers import FailoverAnswer
from parallax.domain.ids import TopicId
from parallax.errors import InvariantError
from parallax.runtime.deadline import Deadline
from replicator.copying.rebuild import GoingOn, PartitionSide, Remains, last_of, restored
from replicator.copying.state import encode
from replicator.mapping.feed import IndexRows
from tests.worlds.offset_world import TOPIC, Record, World


def worlds_end(*, unindexed: int = 0) -> World:
    """Two regions, each with ten records of both; of the last of a->b the index has never heard."""
    world = World()
    for source, target in (("a", "a"), ("b", "a"), ("b", "b")):
        world.copy(source, target, 10)
    world.copy("a", "b", 10 - unindexed)
    world.watermarks()
    for number in range(10 - unindexed, 10):
        world.records("b").append(("a", number))  # type: ignore[arg-type] # a region's name
    world._end_at(world.cluster("b").cluster, 0)
    return world


def rebuild(world: World, *, anew: bool, unindexed: int = 0) -> GoingOn:
    """What `parallax runlog rebuild` does for a->b, as far as the index hears of it."""
    item = world.item("a", "b")
    records = [record for record in world.index.lineages(item.route, TOPIC) if record.partition == item]
    last = last_of(records)
    newest = world.index.newest(item.route, TOPIC)[0, last.lineage].row
    log = world.cluster("b").ranges[item.topic_partition]
    source = PartitionSide(TopicId("regional-a-1"), log)
    target = PartitionSide(last.lineage.target_topic_id, log)
    remains = Remains(item.topic_partition, records, newest, False, source, target, unindexed)  # noqa: FBT003 - no cut
    found = restored(remains, anew=anew)
    entry = encode(
        run_log_id=TopicId("log"),
        layout=2,
        shard=0,
        path="layout",
        changes=found.changes,
        everything={},
        committed_at_ms=world.now_ms,
    )
    lineages, batches = IndexRows(item.route).batches([(0, entry)])
    world.index.write_lineages(lineages)
    world.index.write_rows(batches)
    state = found.state
    assert state is not None
    copying = world.copying("a", "b")
    copying.lineage, copying.sequence = state.lineage, state.sequence
    copying.source_next, copying.last_run_end = state.source_next, state.last_run_end
    world._version = 3 << 48
    return found.going_on


def ask(world: World, origin: str, destination: str, commit: int) -> FailoverAnswer:
    world.clusters[world.cluster(origin).cluster].commits.clear()
    world.commit(origin, commit)
    with world.service() as service:
        return service.failover.answers(world.request(origin, destination), Deadline.after_ms(5_000))[0]


def check_every_commit(world: World, origin: str, destination: str) -> None:
    """No record that the group has not consumed is passed, and no answer is a contradiction."""
    here, there = world.records(origin), world.records(destination)
    for commit in range(len(here) + 1):
        answer = ask(world, origin, destination, commit)
        consumed: set[Record | None] = set(here[:commit])
        skipped = {offset for skip in answer.skip_ranges for offset in range(*skip)}
        delivered = {
            record
            for offset, record in enumerate(there)
            if offset >= answer.resume_offset and offset not in skipped
        }
        missed = {record for record in there if record is not None} - consumed - delivered
        assert not missed, (
            f"{origin} at {commit} -> {destination} at {answer.resume_offset}: {missed} are left out"
        )


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("unindexed", [0, 3])
def test_every_answer_after_a_rebuild_is_right(unindexed: int, *, anew: bool) -> None:
    world = worlds_end(unindexed=unindexed)
    going_on = rebuild(world, anew=anew, unindexed=unindexed)
    expected = GoingOn.NEW_GENERATION if unindexed else GoingOn.EXACT
    assert going_on is (GoingOn.ANEW if anew else expected)
    again = 10 if anew else unindexed
    check_every_commit(world, "a", "b")
    check_every_commit(world, "b", "a")
    world.copy("a", "b", again + 4)  # what comes twice, and some more
    world.copy("a", "a", 4)
    world.watermarks()
    check_every_commit(world, "a", "b")
    check_every_commit(world, "b", "a")


def test_under_the_lineage_of_before_every_answer_was_a_contradiction() -> None:
    """What happened without the rebuild: everything copied again under the same lineage."""
    world = worlds_end()
    copying = world.copying("a", "b")
    copying.source_next = copying.last_run_end = 0
    world.copy("a", "b", 10)
    world.watermarks()
    with pytest.raises(InvariantError):
        ask(world, "a", "b", 15)
