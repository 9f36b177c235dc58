"""A `FailoverConsumer` that goes where its group is primary."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, TopicPartition

from parallax import (
    ConsumerConfigError,
    EventKind,
    GroupMovingError,
    OffsetServiceAwayError,
)
from parallax.domain import metadata as codec
from parallax.domain.ids import RegionName, SourceId, SourceOffset, TargetOffset, TopicId
from parallax.domain.metadata import CommittedMetadata
from parallax.domain.primary import Stage
from parallax.domain.progress import SourcePosition
from parallax.errors import InvalidNameError, UnknownRegionError
from parallax.testing import MemoryDecisions
from parallax.v1 import primaries_pb2 as pb
from tests.support import poll_until
from tests.worlds.failover_fakes import (
    TOPIC,
    A,
    B,
    FakeCluster,
    FakeConsumer,
    FakeProducer,
    FakeService,
    World,
)


class PrimaryFakeService(FakeService):
    """A service that tells where the group is primary."""

    def __init__(self, clusters: dict[str, FakeCluster]) -> None:
        super().__init__(clusters)
        self.changes: list[MemoryDecisions] = []
        self.watched = threading.Event()
        self.number = 0
        self.last: pb.Primary | None = None
        self.tells = True

    def watch_primary(self, group: str) -> MemoryDecisions:
        assert group == "g"
        made = super().watch_primary(group) if self.tells else MemoryDecisions()
        self.changes.append(made)
        self.watched.set()
        return made

    def decide(
        self,
        region: str,
        stage: pb.PrimaryStage = pb.SETTLED,
        *,
        disaster: bool = False,
        number: int | None = None,
        heard: bool = True,
    ) -> None:
        """Decide; unless ``heard`` there was another decision before, which nobody was told of."""
        before = 0 if self.last is None else self.last.decision.fencing_number
        if not heard:
            before = self.number = self.number + 2
        self.number += 2
        self.last = pb.Primary(
            group="g",
            decision=pb.PrimaryDecision(
                fencing_number=self.number if number is None else number,
                mode=pb.ACTIVE_PASSIVE,
                region=region,
                cluster=f"aggregate-{region}",
                stage=stage,
                moving_from="aggregate-a" if stage == pb.MOVING else None,
                decided_in="a",
                disaster=disaster,
                supersedes=[before] if before else [],
            ),
        )
        self.record_primary(self.last)
        if self.changes and not self.tells:
            self.changes[-1].put(self.last)


class Following(World):
    """A world whose service tells of primaries."""

    def __init__(self, *regions: str) -> None:
        super().__init__(*regions)
        self.service: PrimaryFakeService = PrimaryFakeService(self.clusters)

    def put_offset(
        self, region: str, resume: int, consumed: dict[str, int], fence: int, next_offset: int = -1
    ) -> None:
        """Whoever moves the group commits for it; with ``next_offset`` a member has gone on from there since."""
        metadata = codec.encode(
            CommittedMetadata(
                fencing_number=fence,
                target_topic_id=TopicId(f"{region}-id"),
                resume_offset=TargetOffset(resume),
                positions={
                    SourceId(RegionName(name), TopicId("")): SourcePosition(0, SourceOffset(end), ())
                    for name, end in consumed.items()
                },
                skips=(),
                complete_to=None,
            )
        )
        committed = resume if next_offset < 0 else next_offset
        self.clusters[region].committed[TOPIC, 0] = (committed, metadata)

    def until(self, kind: EventKind) -> None:
        self.poll_until(lambda: kind in self.kinds(), kind.value)

    def settled(self, region: str) -> None:
        consumer = self.consumer
        assert consumer is not None
        self.poll_until(lambda: consumer.region == region and not consumer.moving, f"arriving in {region}")


@pytest.fixture
def world() -> Iterator[Following]:
    made = Following()
    yield made
    made.close()


LATER = [B[1], A[3], A[4]]


def interleaved(world: World) -> None:
    four_records(world)
    world.log("a").extend(LATER)


def four_records(world: World) -> None:
    """On a only what is consumed there before the move."""
    world.log("a").extend([A[0], B[0], A[1], A[2]])
    world.log("b").extend([B[0], B[1], A[0], A[1], A[2], A[3], A[4], B[2]])


def test_it_moves_where_the_primary_goes_without_loss_or_repetition(world: Following) -> None:
    four_records(world)
    world.service.decide("a")
    consumer = world.start("a", follow_primary=True)
    assert world.poll_records(4) == [A[0], B[0], A[1], A[2]]
    world.service.decide("b")
    world.settled("b")
    assert world.poll_records(4) == [B[1], A[3], A[4], B[2]]
    world.poll_nothing()
    assert consumer.primary is not None
    assert (consumer.primary.decision.primary, consumer.primary.decision.fencing_number) == ("b", 4)
    assert consumer.primary.is_primary(consumer.primary.decision.primary)


@pytest.mark.parametrize("follow_primary", [True, False])
def test_going_where_the_group_is_not_primary_is_told(world: Following, *, follow_primary: bool) -> None:
    four_records(world)
    world.service.decide("a")
    consumer = world.start("a", follow_primary=follow_primary)
    world.poll_records(4)
    consumer.move_to("b")
    world.until(EventKind.AGAINST_PRIMARY)
    (told,) = [event for event in world.events if event.kind is EventKind.AGAINST_PRIMARY]
    assert told.region == "b"
    assert "consuming aggregate-a (fencing number 2)" in told.message
    assert "parallax failover g --to b" in told.message
    world.settled("b")


def test_a_process_that_starts_against_the_primary_is_told(world: Following) -> None:
    world.service.decide("a", pb.MOVING)
    world.start("b", moved_from="a")
    world.until(EventKind.AGAINST_PRIMARY)
    (told,) = [event for event in world.events if event.kind is EventKind.AGAINST_PRIMARY]
    assert "is being moved from aggregate-a" in told.message


@pytest.mark.parametrize("primary", ["b", None])
def test_nothing_is_told_of_a_move_that_nothing_speaks_against(world: Following, primary: str | None) -> None:
    four_records(world)
    if primary is not None:
        world.service.decide(primary)
    consumer = world.start("a")
    world.poll_records(4)
    consumer.move_to("b")
    world.settled("b")
    world.poll_until(lambda: not looking(), "the primary was looked up")
    world.poll()
    assert EventKind.AGAINST_PRIMARY not in world.kinds()


def looking() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "parallax-primary"]


def test_a_process_that_starts_elsewhere_goes_there_first(world: Following) -> None:
    interleaved(world)
    world.service.decide("b")
    world.start("a", follow_primary=True)
    world.settled("b")
    world.poll_until(lambda: len(world.delivered) >= 8, "everything once")
    world.poll_until(lambda: world.consumer is not None and world.consumer.skipped_records >= 0, "a poll")
    assert sorted(world.delivered) == sorted([*A[:5], *B[:3]])


@pytest.mark.parametrize("disaster", [False, True])
def test_while_the_group_moves_it_has_left_and_delivers_nothing(world: Following, *, disaster: bool) -> None:
    four_records(world)
    world.service.decide("a")
    consumer = world.start("a", follow_primary=True)
    world.poll_records(4)
    world.clusters["a"].dead = disaster
    world.service.decide("b", pb.MOVING, disaster=disaster)
    world.until(EventKind.FENCED)
    world.log("a").extend(LATER)

    world.poll_nothing()

    assert consumer.moving
    assert consumer.primary is not None
    assert consumer.primary.decision.stage is Stage.MOVING
    assert consumer.assignment() == []
    assert world.inner[0].commits_in_vain == 0
    world.poll_until(
        lambda: any(item.next_offset == 4 for report in world.service.reports for item in report.positions),
        "what was delivered is reported",
    )
    if not disaster:
        world.poll_until(lambda: world.inner[0].closed, "it has left the group")
        assert world.clusters["a"].committed[TOPIC, 0][0] == 4
    with pytest.raises(GroupMovingError):
        consumer.commit()
    with pytest.raises(GroupMovingError):
        consumer.seek(TopicPartition(TOPIC, 0, 0))
    world.service.decide("b", disaster=disaster)
    world.settled("b")
    assert world.poll_records(4) == [B[1], A[3], A[4], B[2]]
    world.poll_nothing()


def refused_while_leaving(world: Following, code: int) -> FakeConsumer:
    """A consumer that has delivered four records and committed nothing, whose last commit the cluster refuses."""
    four_records(world)
    world.service.decide("a")
    world.start("a", {"auto.commit.interval.ms": 60_000}, follow_primary=True)
    world.poll_records(4)
    world.clusters["a"].refusal = KafkaError(code)
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    inner = world.inner[0]
    poll_until(lambda: len(inner.commits) > 1, 5, "the last commit is sent again")
    return inner


def test_a_transaction_that_ends_as_the_group_moves_counts(world: Following) -> None:
    four_records(world)
    world.service.decide("a")
    config = {"enable.auto.commit": False}
    consumer = world.start("a", config, move_from="committed", follow_primary=True, subscribe=False)

    def commit(_consumer: object, partitions: list[TopicPartition]) -> None:
        producer = FakeProducer(world.clusters[consumer.region])
        positions = consumer.position(partitions)
        positions[0].offset -= 1  # the last record is another transaction's, which is aborted
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()

    consumer.subscribe([TOPIC], on_revoke=commit)
    assert world.poll_records(4) == [A[0], B[0], A[1], A[2]]
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    with pytest.raises(GroupMovingError):
        consumer.consumer_group_metadata()
    world.service.decide("b")
    world.settled("b")
    assert world.poll_records(5) == [B[1], A[2], A[3], A[4], B[2]]
    world.poll_nothing()


@pytest.mark.parametrize("code", [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION])
def test_its_last_commit_stands_before_it_leaves(world: Following, code: int) -> None:
    inner = refused_while_leaving(world, code)
    assert inner.committed_when_leaving is None
    world.clusters["a"].refusal = None
    poll_until(lambda: inner.closed, 5, "it has left the group")
    assert inner.committed_when_leaving == {(TOPIC, 0): (4, "")}


def test_a_further_commit_of_another_member_is_left(world: Following) -> None:
    inner = refused_while_leaving(world, KafkaError.REBALANCE_IN_PROGRESS)
    world.clusters["a"].committed[TOPIC, 0] = (6, "")
    world.clusters["a"].refusal = None
    poll_until(lambda: inner.closed, 5, "it has left the group")
    assert inner.committed_when_leaving == {(TOPIC, 0): (6, "")}


def test_who_is_out_of_the_group_commits_no_more(world: Following) -> None:
    inner = refused_while_leaving(world, KafkaError.FENCED_INSTANCE_ID)
    poll_until(lambda: inner.closed, 5, "it has left")
    assert len(inner.commits) == 2
    assert inner.committed_when_leaving == {}


def test_who_leaves_while_joining_anew_waits_until_it_can_say_so(world: Following) -> None:
    four_records(world)
    world.service.decide("a")
    world.start("a", follow_primary=True)
    world.poll_records(4)
    inner = world.inner[0]
    inner.joins = False
    inner.unassign()  # its partitions are revoked, and the group has not given it others yet
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    poll_until(lambda: inner.gave_up_place, 5, "it wants to leave")
    world.poll_nothing()
    assert not inner.closed
    inner.joins = True
    poll_until(lambda: inner.closed, 5, "it has left")


def test_a_move_that_is_given_up_goes_on_where_it_was(world: Following) -> None:
    four_records(world)
    world.service.decide("a")
    world.start("a", follow_primary=True)
    world.poll_records(4)
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    world.log("a").extend(LATER)
    world.service.decide("a")
    world.until(EventKind.UNFENCED)
    assert world.poll_records(3) == [B[1], A[3], A[4]]
    world.poll_nothing()
    assert world.service.asked == []


def test_a_stage_of_a_newer_release_moves_nobody(world: Following) -> None:
    """What it asks is not known; where the group consumes now, it goes on."""
    four_records(world)
    world.service.decide("a")
    consumer = world.start("a", follow_primary=True)
    assert world.poll_records(4) == [A[0], B[0], A[1], A[2]]
    world.service.decide("b", stage=17)  # type: ignore[arg-type]
    world.poll_nothing()
    assert (consumer.region, consumer.moving) == ("a", False)
    world.service.decide("b")
    world.settled("b")
    assert world.poll_records(4) == [B[1], A[3], A[4], B[2]]


def test_it_may_be_closed_while_the_group_moves(world: Following) -> None:
    interleaved(world)
    revoked: list[int] = []
    consumer = world.start("a", subscribe=False, follow_primary=True)
    consumer.subscribe([TOPIC], on_revoke=lambda _consumer, partitions: revoked.append(len(partitions)))
    world.poll_records(2)
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    consumer.close()
    assert revoked == [1]


def test_the_application_may_commit_when_its_partitions_are_revoked(world: Following) -> None:
    four_records(world)
    config = {"enable.auto.commit": False}
    consumer = world.start("a", config, subscribe=False, follow_primary=True)
    consumer.subscribe([TOPIC], on_revoke=lambda _consumer, _partitions: consumer.commit())
    world.poll_records(4)
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    assert world.clusters["a"].committed[TOPIC, 0][0] == 4


def test_active_active_groups_stay_where_they_are(world: Following) -> None:
    interleaved(world)
    world.service.decide("a")
    consumer = world.start("a", follow_primary=True)
    world.poll_records(1)
    assert world.service.watched.wait(5)
    decision = pb.PrimaryDecision(
        fencing_number=9, mode=pb.ACTIVE_ACTIVE, region="b", stage=pb.SETTLED, decided_in="a"
    )
    world.service.changes[-1].put(pb.Primary(group="g", decision=decision))
    world.poll_until(
        lambda: consumer.primary is not None and consumer.primary.decision.fencing_number == 9, "the decision"
    )
    assert world.poll_records(3) == [B[0], A[1], A[2]]
    assert consumer.region == "a"


def test_a_primary_that_no_cluster_was_given_for_is_an_error_until_the_next_decision(
    world: Following,
) -> None:
    four_records(world)
    world.service.decide("a")
    consumer = world.start("a", follow_primary=True)
    world.poll_records(4)
    world.service.decide("elsewhere")
    with pytest.raises(UnknownRegionError, match="'elsewhere' is not among the clusters given"):
        world.poll_until(lambda: False, "the error")
    world.log("a").extend(LATER)
    with pytest.raises(UnknownRegionError):
        world.poll_until(lambda: False, "the same error")
    assert len(world.delivered) == 4
    world.service.decide("a")
    poll_through(world, UnknownRegionError, lambda: EventKind.UNFENCED in world.kinds())
    assert world.poll_records(3) == LATER
    assert consumer.region == "a"


def test_where_no_consumer_can_be_made_for_the_primary_nothing_is_consumed(world: Following) -> None:
    four_records(world)
    world.service.decide("a")
    world.invalid.add("b")
    consumer = world.start("a", follow_primary=True)
    world.poll_records(4)
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    world.service.decide("b")
    with pytest.raises(ConsumerConfigError, match="no consumer can be made for region 'b'"):
        world.poll_until(lambda: False, "the error")
    world.log("a").extend(LATER)
    with pytest.raises(ConsumerConfigError):
        world.poll_until(lambda: False, "the same error")
    assert len(world.delivered) == 4
    world.invalid.clear()
    poll_through(world, ConsumerConfigError, lambda: consumer.region == "b")


def test_it_joins_once_it_is_told_where(world: Following) -> None:
    interleaved(world)
    world.service.tells = False
    world.start("a", follow_primary=True)
    world.until(EventKind.SERVICE_AWAY)
    world.poll_nothing()
    assert world.inner[0].assignment() == []
    world.service.decide("a")
    world.poll_records(7)


def test_by_policy_it_begins_without_being_told(world: Following) -> None:
    interleaved(world)
    world.service.tells = False
    world.start("a", follow_primary=True, on_service_away="metadata")
    world.poll_records(1)
    assert EventKind.SERVICE_AWAY in world.kinds()


def poll_through(world: Following, error: type[Exception], until: Callable[[], bool]) -> None:
    """Poll until the condition holds, whatever is raised meanwhile."""
    while not until():
        with suppress(error):
            world.poll()


def test_by_policy_not_being_told_is_an_error(world: Following) -> None:
    interleaved(world)
    world.service.tells = False
    world.start("a", follow_primary=True, on_service_away="stop")
    with pytest.raises(OffsetServiceAwayError, match="tells where the group is primary"):
        world.poll_until(lambda: False, "the error")
    assert world.delivered == []
    world.service.decide("a")
    poll_through(world, OffsetServiceAwayError, lambda: bool(world.delivered))
    assert EventKind.SERVICE_BACK in world.kinds()


def test_partitions_of_its_own_are_read_once_it_is_told_where(world: Following) -> None:
    interleaved(world)
    world.service.tells = False
    consumer = world.start("a", subscribe=False, follow_primary=True)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    world.poll_nothing()
    world.service.decide("a")
    world.poll_records(7)


def test_where_it_came_from_is_said_by_one_alone(world: Following) -> None:
    with pytest.raises(ConsumerConfigError, match="moved_from"):
        world.start("a", follow_primary=True, moved_from="b")


def test_a_process_that_starts_elsewhere_goes_by_what_is_committed_at_the_primary(world: Following) -> None:
    """What stands in its own region was published for it, or left there by somebody who is late."""
    four_records(world)
    world.clusters["a"].committed[TOPIC, 0] = (1, "")
    world.put_offset("b", 1, {"a": 3, "b": 1}, fence=4, next_offset=6)
    world.service.decide("b")
    world.start("a", follow_primary=True)
    world.settled("b")
    assert world.poll_records(2) == [A[4], B[2]]
    assert world.service.asked == []


def test_a_client_that_has_missed_decisions_goes_by_what_is_committed_at_the_primary(
    world: Following,
) -> None:
    """It was cut off and has read on at the old primary, while others went on at the new one."""
    four_records(world)
    world.service.decide("a")
    world.start("a", follow_primary=True)
    world.poll_records(2)
    world.put_offset("b", 1, {"a": 3, "b": 1}, fence=4, next_offset=6)
    commits = len(world.inner[0].commits)
    world.poll_records(2)
    world.service.decide("b", heard=False)
    world.settled("b")
    assert world.poll_records(2) == [A[4], B[2]]
    assert world.service.asked == []
    assert len(world.inner[0].commits) <= commits + 2


def fenced(world: Following) -> int:
    """At a four records delivered and one committed, then stopped; the number of the fence."""
    four_records(world)
    world.service.decide("a")
    consumer = world.start("a", {"enable.auto.commit": False}, follow_primary=True)
    first = world.poll_records(1)
    assert first == [A[0]]
    consumer.commit()
    world.poll_records(3)
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    return world.service.number


def test_what_was_delivered_and_not_committed_is_not_delivered_again(world: Following) -> None:
    number = fenced(world)
    world.put_offset("b", 0, {"a": 1, "b": 0}, fence=number)
    world.service.decide("b")
    world.settled("b")
    assert world.poll_records(4) == [B[1], A[3], A[4], B[2]]


def test_a_partition_that_another_member_has_gone_on_with_is_taken_from_its_commit(world: Following) -> None:
    number = fenced(world)
    world.put_offset("b", 0, {"a": 1, "b": 0}, fence=number, next_offset=7)
    world.service.decide("b")
    world.settled("b")
    assert world.poll_records(1) == [B[2]]


def test_of_two_owners_the_one_that_has_come_further_counts(world: Following) -> None:
    """This one was put out of the group before the fence, without having noticed, and another has gone on."""
    number = fenced(world)
    world.put_offset("b", 7, {"a": 5, "b": 2}, fence=number)
    world.service.decide("b")
    world.settled("b")
    assert world.poll_records(1) == [B[2]]


def test_an_offset_that_was_chosen_by_time_outweighs_the_log_start(world: Following) -> None:
    """The consumer's own question goes without timestamps: whoever moves the group decides about them."""
    number = fenced(world)
    world.service.knows_rows = False
    world.put_offset("b", 7, {}, fence=number)
    world.service.decide("b")
    world.settled("b")
    assert world.poll_records(1) == [B[2]]


def test_commits_that_tell_nothing_of_a_move_are_somebodys_progress(world: Following) -> None:
    fenced(world)
    world.clusters["b"].committed[TOPIC, 0] = (7, "")
    world.service.decide("b")
    world.settled("b")
    assert world.poll_records(1) == [B[2]]


def test_a_lower_number_from_a_region_that_is_cut_off_is_passed_over(world: Following) -> None:
    interleaved(world)
    world.service.decide("b", number=50)
    world.start("a", follow_primary=True)
    world.settled("b")
    world.service.decide("a", number=10)
    world.poll_until(lambda: len(world.delivered) >= 8, "everything once")
    assert world.consumer is not None
    assert world.consumer.region == "b"


def test_a_watch_that_fails_is_taken_up_again(world: Following) -> None:
    interleaved(world)
    world.start("a", follow_primary=True)
    world.poll_records(1)
    assert world.service.watched.wait(5)
    world.service.changes[-1].put(InvalidNameError("from another release"))
    world.poll_until(lambda: len(world.service.changes) > 1, "another watch")
    world.service.decide("b")
    world.settled("b")


def test_a_watch_that_is_taken_up_again_changes_nothing_of_a_move_under_way(world: Following) -> None:
    four_records(world)
    world.start("a", follow_primary=True)
    world.poll_records(4)
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    world.service.away = True
    world.service.decide("b")
    world.until(EventKind.SERVICE_AWAY)
    watches = len(world.service.changes)
    world.service.changes[-1].put(InvalidNameError("the connection broke"))
    world.poll_until(lambda: len(world.service.changes) > watches, "another watch")
    world.poll_nothing()
    world.service.away = False
    world.settled("b")
    assert world.service.asked[-1][2] == {(TOPIC, 0): 4}, "what was delivered counts"


def test_a_service_that_is_away_while_the_group_moves_is_asked_again(world: Following) -> None:
    four_records(world)
    world.start("a", follow_primary=True)
    assert world.poll_records(4) == [A[0], B[0], A[1], A[2]]
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    world.service.away = True
    world.service.decide("b")
    world.until(EventKind.SERVICE_AWAY)
    world.service.away = False
    world.settled("b")
    assert world.poll_records(4) == [B[1], A[3], A[4], B[2]]


def test_two_members_take_over_each_others_partitions(world: Following) -> None:
    """Each leaves and reports when the move begins; whoever gets a partition goes on where its owner was."""
    for partition in (0, 1):
        world.log("a", partition).extend([A[0], B[0], A[1], A[2], B[1]])
        world.log("b", partition).extend([B[0], B[1], A[0], A[1], A[2], B[2]])
    world.service.decide("a")
    first = world.start("a", follow_primary=True)
    world.poll_records(1)
    world.inner[0].rebalance("revoke", [(TOPIC, 1)] if (TOPIC, 1) in world.inner[0].positions else [])
    world.poll_until(lambda: all(item.partition == 0 for item in first.assignment()), "one partition each")
    world.service.decide("b", pb.MOVING)
    world.until(EventKind.FENCED)
    assert (TOPIC, 0) in world.clusters["a"].committed
    world.clusters["a"].committed[TOPIC, 1] = (3, "")  # the other member's last word
    world.service.decide("b")
    world.settled("b")
    world.until(EventKind.MOVED)
    asked = world.service.asked[-1][2]
    assert (TOPIC, 1) not in asked
    assert world.consumer is not None
    start = {item.partition: item for event in world.events for item in event.partitions}
    assert start[1].resume_offset == 1  # b0 was consumed by the other one, b1 was not


def test_who_unsubscribes_while_the_group_moves_reads_nothing_there(world: Following) -> None:
    fenced(world)
    assert world.consumer is not None
    world.consumer.unsubscribe()
    world.service.decide("b")
    world.settled("b")
    world.poll_nothing()
    assert world.consumer.assignment() == []
