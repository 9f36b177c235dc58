"""Checkpoints for MirrorMaker 2's clients: which are written, and that a cluster that is away holds up nobody."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from structlog.testing import capture_logs

from parallax.config.mirror_maker_export import MirrorMakerExport
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.domain.mirror_maker import Checkpoint
from parallax.errors import ClusterUnavailableError
from syncjob.checkpoints import CheckpointExport, checkpoints_of
from syncjob.decide import Decision, Reason
from tests.support import poll_until

ON_A, ON_B, ON_C = (ClusterName(f"aggregate-{name}") for name in "abc")
PLACE = TopicPartition(TopicName("trips"), 2)
PUBLISHED = Decision(
    GroupName("billing"),
    PLACE,
    ON_A,
    ON_B,
    Reason.PUBLISHED,
    TargetOffset(5),
    origin_next_offset=TargetOffset(15),
)
TOPIC = TopicName("east.checkpoints.internal")
EXPORT = MirrorMakerExport.model_validate({"checkpoints": True, "alias": {"a": "east"}, "interval_s": 1})


def checkpoint(upstream: int, offset: int) -> tuple[bytes, bytes]:
    made = Checkpoint(GroupName("billing"), PLACE, TargetOffset(upstream), TargetOffset(offset))
    return made.key(), made.value()


def test_what_stands_at_the_target_is_told_under_the_origins_alias_and_nothing_else() -> None:
    untold = [
        replace(PUBLISHED, origin=None),
        replace(PUBLISHED, offset=None),
        replace(PUBLISHED, reason=Reason.ACTIVE_AT_TARGET, origin_next_offset=None),
    ]
    key, value = checkpoint(15, 5)
    assert checkpoints_of([*untold, PUBLISHED], EXPORT) == {ON_B: {(TOPIC, key): value}}


class Topic:
    """A topic in memory, which fails as often as it is told to."""

    def __init__(self) -> None:
        self.writes: list[Mapping[bytes, bytes]] = []
        self.failures = 0
        self.failure: Exception = ClusterUnavailableError("no answer")

    def write_records(self, records: Mapping[bytes, bytes]) -> None:
        if self.failures:
            self.failures -= 1
            raise self.failure
        self.writes.append(records)


def test_only_changes_are_written_and_what_failed_is_written_with_what_came_since() -> None:
    topics = {ON_B: Topic(), ON_C: Topic()}
    topics[ON_C].failures = 1
    fast = EXPORT.model_copy(update={"interval_s": 0.02})
    to_c = replace(PUBLISHED, target=ON_C)
    with (
        capture_logs() as logs,
        closing(CheckpointExport(fast, topics, lambda cluster, _topic: topics[cluster])) as export,
    ):
        export.take([PUBLISHED, to_c])
        poll_until(lambda: export.written == 2, 10, "both are written, one at the second try")
        assert export.problem == ""
        export.take([PUBLISHED, to_c])
        export.take([replace(PUBLISHED, offset=TargetOffset(6), origin_next_offset=TargetOffset(16))])
        poll_until(lambda: export.written == 3, 10, "the change is written")
    assert topics[ON_B].writes == [dict([checkpoint(15, 5)]), dict([checkpoint(16, 6)])]
    assert topics[ON_C].writes == [dict([checkpoint(15, 5)])]
    assert [(entry["event"], entry["cluster"]) for entry in logs] == [("checkpoints_not_written", ON_C)]


def test_a_defect_is_told_of_and_what_it_left_is_written_the_next_time() -> None:
    topic = Topic()
    topic.failures, topic.failure = 1, RuntimeError("nobody thought of this")
    fast = EXPORT.model_copy(update={"interval_s": 0.02})
    with (
        capture_logs() as logs,
        closing(CheckpointExport(fast, [ON_B], lambda *_place: topic)) as export,
    ):
        export.take([PUBLISHED])
        poll_until(lambda: export.written == 1, 10, "it is written at the second try")
        assert export.problem == ""
    assert topic.writes == [dict([checkpoint(15, 5)])]
    assert [(entry["event"], entry["exc_info"]) for entry in logs] == [
        ("checkpoints_not_written", topic.failure)
    ]


def test_the_end_writes_what_is_left() -> None:
    topic = Topic()
    export = CheckpointExport(EXPORT.model_copy(update={"interval_s": 3_600}), [ON_B], lambda *_place: topic)
    export.take([PUBLISHED])
    export.close()
    assert topic.writes == [dict([checkpoint(15, 5)])]
