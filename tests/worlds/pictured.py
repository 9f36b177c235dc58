"""Worlds whose answers have something to show: for the tests of pictures and pages, and to look at."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from offsetsvc import messages
from offsetsvc.service import UseCases
from parallax.domain.ids import Route, TargetOffset, TopicName, TopicPartition
from parallax.picture.ask import ask_picture
from parallax.picture.svg import draw
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.offset_world import TOPIC, World


@dataclass
class RunsOf:
    """Lists runs as the offset service does, without a transport."""

    service: UseCases
    asked: int = 0

    def list_runs(
        self, route: str, topic: str, partition: int, *, start: int = 0, limit: int = 0
    ) -> pb.ListRunsResponse:
        self.asked += 1
        item = TopicPartition(TopicName(topic), partition)
        return self.service.mapping.runs(Route.parse(route), item, TargetOffset(start), limit)


def busy_world(
    seed: int, *, regions: tuple[str, ...] = ("a", "b"), rounds: int = 40, most: int = 60
) -> World:
    """Every source is copied to every aggregate in portions of its own, so that the logs have different orders.

    What comes from the first region is late in the last one.
    """
    draw = random.Random(seed)
    world = World(regions)
    for _ in range(rounds):
        for target in draw.sample(regions, len(regions)):
            for source in draw.sample(regions, len(regions)):
                late = source == regions[0] and target == regions[-1] and draw.random() < 0.45
                if not late and draw.random() < 0.8:
                    world.copy(source, target, draw.randint(1, most))
                    world.marker(target)
    world.watermarks()
    return world


def answer_of(
    world: World, next_offset: int | None, *, origin: str = "a", target: str = "b"
) -> tuple[pb.FailoverOffset, RunsOf]:
    """Where the group resumes, as the service's message, and what lists the runs around it."""
    service = world.service()
    if next_offset is not None:
        world.commit(origin, next_offset)
    request = world.request(origin, target)
    (answer,) = service.failover.answers(request, Deadline.after_ms(5_000))
    assert answer.topic_partition.topic == TOPIC
    return messages.failover_to_pb(answer), RunsOf(service)


def example() -> str:
    """The picture of docs/console.md: a group whose destination is late with one source."""
    world = busy_world(3)
    answer, runs = answer_of(world, 1_430)
    return draw(ask_picture(runs, answer))


if __name__ == "__main__":
    (Path(__file__).parents[2] / "docs" / "pictures" / "answer.svg").write_text(example(), encoding="utf-8")
