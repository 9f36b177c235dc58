"""A whole region's groups move at once: how long until a plain client finds all their offsets in the other cluster.

The sync job has published offsets for the groups before, as it always has. Those of the move itself carry a fencing
number: only they count.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lab.bench import BenchError
from lab.bench.report import Measure, Round, slug
from lab.bench.rows import BenchPlace, Play, Row
from lab.bench.rows.moves import start_services
from lab.bench.sides import Copier, CopierOptions
from lab.bench.sides.parallax import failover_command, run_command
from lab.bench.stage import BenchStage, await_true
from lab.stack.services import service_environment
from lab.workload.topics import EndOffsets
from parallax.domain.metadata import decode
from parallax.errors import MetadataError

_ROUTES = (("a", "a"), ("b", "a"), ("a", "b"), ("b", "b"))
_ORIGIN, _TARGET = "aggregate-a", "aggregate-b"
_COPIED_WITHIN_S = 600.0
_PUBLISHED_WITHIN_S = 300.0
_MOVED_WITHIN_S = 300.0
_ANSWER_S = 30.0
_ASK_EVERY_S = 0.5
"""So far off a measured time may be, and the time that a question takes: asking costs the brokers time of the move."""


@dataclass(frozen=True)
class ManyGroupsRow(Row):
    """Groups without members, each with positions of its own on all partitions of one topic.

    Attributes:
        groups: how many.
        topics: shared out among them.
        partitions: of each topic.
        records: of each of two source regions in each partition.
    """

    groups: int = 50
    topics: int = 5
    partitions: int = 10
    records: int = 500

    @property
    def place(self) -> BenchPlace:
        """Two regions: one of them is left."""
        return BenchPlace(("a", "b"))

    def play(self, play: Play) -> None:
        """In every round a planned move and a disaster, each of groups of its own and with services started anew."""
        missing = play.missing_rounds
        if not missing:
            return
        row = replace(self, groups=5, topics=1, records=50) if play.settings.smoke else self
        topics = [f"{slug(self.name)}-{number}" for number in range(row.topics)]
        fill_topics(play.stage, topics, row.partitions, row.records)
        for number in missing:
            found = {
                kind: _moved(row, play, topics, f"{kind}-{number}", disaster=kind == "disaster")
                for kind in ("planned", "disaster")
            }
            measures = []
            for kind, moved in found.items():
                play.tell(
                    f"{kind}: {row.groups} groups, offsets there after {moved.published_s:.1f} s, "
                    f"the command ended after {moved.command_s:.1f} s"
                )
                label = f"{self.name}, {kind}"
                measures += [
                    Measure(f"{label}: all offsets there", "s", "lower", moved.published_s),
                    Measure(f"{label}: the command ended", "s", "lower", moved.command_s),
                    Measure(f"{label}: offsets there", "partitions", "higher", moved.partitions),
                ]
            details = {kind: asdict(moved) for kind, moved in found.items()}
            play.store.add(Round("parallax", number, tuple(measures), details))


@dataclass(frozen=True, slots=True)
class RegionMoveFigures:
    """What a region's move showed.

    Attributes:
        published_s: from the start of the command's process to all offsets of the move being there.
        command_s: to its end.
        partitions: so many offsets of the move were there then, over all groups.
        slowest_group_ms: the longest that the command worked on one group.
    """

    published_s: float
    command_s: float
    partitions: int
    slowest_group_ms: int


class PassiveOffsets:
    """What a plain client sees of groups' committed offsets on one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})

    def metadata(self, groups: Sequence[str]) -> dict[str, list[str]]:
        """The metadata of each committed offset of each group.

        Raises:
            BenchError: the cluster did not answer.
        """
        asked = {
            group: self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=_ANSWER_S
            )[group]
            for group in groups
        }
        try:
            answers = {group: future.result(timeout=_ANSWER_S + 1) for group, future in asked.items()}
        except (KafkaException, TimeoutError) as error:
            raise BenchError(f"{_TARGET}: groups' offsets were not told: {error!r}") from error
        return {
            group: [place.metadata or "" for place in answer.topic_partitions or () if place.offset >= 0]
            for group, answer in answers.items()
        }


def moved_there(metadata: str) -> bool:
    """Whether an offset was put there by a move; one that is only kept ready for a move has no fencing number."""
    try:
        return decode(metadata).fencing_number > 0
    except MetadataError:
        return False


def fill_topics(stage: BenchStage, topics: Sequence[str], partitions: int, records: int) -> None:
    """Records of two sources in every partition; values don't matter."""
    for region in ("a", "b"):
        cluster = f"regional-{region}"
        producer = Producer({"bootstrap.servers": stage.bootstrap(cluster), "log_level": 3})
        for topic in topics:
            stage.create_topic(cluster, topic, partitions)
            for number in range(records * partitions):
                while True:
                    try:
                        producer.produce(topic, f"{region}:{number}".encode(), partition=number % partitions)
                    except BufferError:
                        producer.poll(1.0)
                    else:
                        break
                producer.poll(0)
        if left := producer.flush(_COPIED_WITHIN_S):
            raise BenchError(f"{cluster}: {left} records were not acknowledged")


def _moved(
    row: ManyGroupsRow, play: Play, topics: Sequence[str], prefix: str, *, disaster: bool
) -> RegionMoveFigures:
    """Let groups read a part of their topic, then move them all."""
    stage = play.stage
    groups = {f"{prefix}-{number:03}": topics[number % len(topics)] for number in range(row.groups)}
    with ExitStack() as clean_up:
        options = CopierOptions(routes=_ROUTES, groups=f"{prefix}-.*", with_sync=True)
        copier = Copier(stage, "parallax", topics, options)
        clean_up.callback(copier.stop)
        copier.start()
        services = start_services(stage, copier, clean_up)
        for topic in topics:
            copier.await_topic(topic, [_ORIGIN, _TARGET], _COPIED_WITHIN_S)
        ends = {
            topic: await_copied(stage, copier, topic, row.partitions, 2 * row.records) for topic in topics
        }
        for turn, (group, topic) in enumerate(groups.items(), start=1):
            share = turn / (row.groups + 1)
            commit_as(stage, group, topic, {part: int(end * share) for part, end in ends[topic].items()})
        passive = PassiveOffsets(stage.bootstrap(_TARGET))
        copier.await_true(
            lambda: all(len(found) >= row.partitions for found in passive.metadata(list(groups)).values()),
            _PUBLISHED_WITHIN_S,
            "the groups' offsets were not published before the move",
        )
        play.tell(f"{prefix}: {row.groups} groups have committed, and are published")
        if disaster:
            clean_up.callback(stage.stack.start, "region-a")
            services["a"].kill()
            stage.stack.kill("region-a")
        _plan(stage, copier, disaster=disaster)
        return _timed(row, stage, copier, list(groups), passive, disaster=disaster)


def await_copied(
    stage: BenchStage, copier: Copier, topic: str, partitions: int, records: int
) -> dict[int, int]:
    """The ends of the topic's partitions at the origin, once both clusters have so many records of each."""
    found: dict[str, dict[int, int]] = {}
    asking = {name: EndOffsets(stage.bootstrap(name), topic, partitions) for name in (_ORIGIN, _TARGET)}

    def copied() -> bool:
        found.update({name: ends.ask() or {} for name, ends in asking.items()})
        return all(sum(end >= records for end in ends.values()) == partitions for ends in found.values())

    copier.await_true(copied, _COPIED_WITHIN_S, f"{topic} was not copied")
    return found[_ORIGIN]


def commit_as(stage: BenchStage, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """As a consumer that has read so far, and has left."""
    consumer = Consumer({"bootstrap.servers": stage.bootstrap(_ORIGIN), "group.id": group, "log_level": 3})
    try:
        consumer.commit(
            offsets=[TopicPartition(topic, part, offset) for part, offset in offsets.items()],
            asynchronous=False,
        )
    finally:
        consumer.close()


def _plan(stage: BenchStage, copier: Copier, *, disaster: bool) -> None:
    """Look at the plan first, as whoever moves a region does; the services have been asked about a move then."""
    command = failover_command(copier.config, "a", "b", disaster=disaster, execute=False)
    run_command(command, service_environment(stage.stack.layout, stage.stack.java), _MOVED_WITHIN_S)


def _timed(
    row: ManyGroupsRow,
    stage: BenchStage,
    copier: Copier,
    groups: Sequence[str],
    passive: PassiveOffsets,
    *,
    disaster: bool,
) -> RegionMoveFigures:
    """Run the command in a process of its own, and look at the target all the while."""
    output = copier.config.with_suffix(".moved.json")
    wanted, there, left = row.groups * row.partitions, 0, list(groups)
    published_s = command_s = 0.0
    with output.open("wb") as answer, output.with_suffix(".log").open("wb") as log:
        began = time.monotonic()
        command = subprocess.Popen(
            failover_command(copier.config, "a", "b", disaster=disaster),
            stdout=answer,
            stderr=log,
            env=service_environment(stage.stack.layout, stage.stack.java),
        )
        try:

            def moved() -> bool:
                nonlocal there, published_s, command_s
                if not command_s and command.poll() is not None:
                    command_s = time.monotonic() - began
                for group, found in passive.metadata(left).items():
                    of_the_move = sum(map(moved_there, found))
                    if of_the_move >= row.partitions:
                        left.remove(group)
                        there += of_the_move
                if there >= wanted and not published_s:
                    published_s = time.monotonic() - began
                return bool(command_s)

            await_true(moved, _MOVED_WITHIN_S, "the command that moves the groups did not end", _ASK_EVERY_S)
        finally:
            command.kill()
            command.wait()
    if command.returncode or not published_s:
        raise BenchError(
            f"{wanted - there} of {wanted} offsets did not come; exit code {command.returncode}; see {output}: "
            f"{_first_problem(output)}"
        )
    results = json.loads(output.read_text(encoding="utf-8"))
    return RegionMoveFigures(published_s, command_s, there, max(item["took_ms"] for item in results))


def _first_problem(output: Path) -> str:
    try:
        results = json.loads(output.read_text(encoding="utf-8"))
    except json.JSONDecodeError:
        return output.with_suffix(".log").read_text(encoding="utf-8", errors="replace")[-2_000:]
    return next((item["problem"] for item in results if item["problem"]), "no group has a problem")
