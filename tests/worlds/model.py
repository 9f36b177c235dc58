"""A brute-force model of the world that the resume rule lives in.

Regional logs, replicators that copy them in transactions, aggregate logs and one consumer group, all as plain
lists. The model knows every record by name (`Record`), so it can tell what the group has consumed without any
offset arithmetic, and it judges the production rule by that alone. Everything random comes from one seeded
generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.worlds.model_copier import Copier
from tests.worlds.model_group import Group
from tests.worlds.model_logs import Cluster, Options, ViolationError
from tests.worlds.model_replication import Replication

__all__ = [
    "Copier",
    "Group",
    "Options",
    "ViolationError",
    "World",
    "kind_of",
    "options_of",
    "run_long_world",
    "run_world",
]


class World(Replication):
    """The whole stage. `step` does one random thing; each move checks every property."""

    def __init__(self, seed: int, options: Options) -> None:
        super().__init__(seed, options)
        self.group = Group(self, self.clusters[0])

    def step(self) -> None:
        options = self.options
        cluster = self.random.choice(self.clusters)
        region = self.random.choice(self.regions)
        actions: list[tuple[float, Callable[[], None]]] = [
            (8, self.produce),
            (14, lambda: self.replicate(cluster, region)),
            (3, lambda: self.write_watermark(cluster, region)),
            (6, lambda: self.group.consume(self.random.randint(0, 12))),
            (2, self.group.refresh),
            (1, self.group.restart),
            (2, lambda: self.group.move(self.random.choice(self.clusters))),
        ]
        if options.truncation:
            actions += [(1, self.truncate_source), (0.3, self.truncate_target)]
        if options.retention:
            actions += [
                (0.5, self.trim_source),
                (0.7, lambda: self.trim_target(cluster, self._trimmable(cluster))),
            ]
        if options.recreation:
            actions.append((0.5, self.recreate_source))
        if options.rewinds:
            actions.append((0.5, self.group.rewind))
        if options.short_run_logs:
            actions.append((1, lambda: self.trim_run_log(cluster, region)))
        if options.compaction:
            actions.append((0.5, self.compact_source))
        self.random.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()

    def _trimmable(self, cluster: Cluster) -> int:
        """A group that retention overtakes loses records on its own cluster: not what is tried here."""
        return self.group.settled_commit() if cluster is self.group.cluster else len(cluster.entries)

    def finish(self) -> None:
        """Let everything arrive, and check that the group gets it."""
        cluster = self.group.cluster
        for _ in range(400):
            if all(
                copier.has_all_of(self.incarnations[region][-1]) for region, copier in cluster.copiers.items()
            ):
                break
            for region in self.regions:
                self.replicate(cluster, region)
        else:
            raise ViolationError("replication does not come to the end")
        self.settle(cluster)
        self.group.refresh()
        self.group.consume(len(cluster.entries))
        missed = [
            record
            for record in cluster.entries[cluster.low :]
            if record is not None and not self.group.is_consumed(record)
        ]
        if missed and not self.group.waiting:
            raise ViolationError(f"lost at the end: {missed[:5]}")
        if self.group.waiting and self.options.complete and not self.options.truncation:
            raise ViolationError("still waiting although everything has arrived")


def run_world(seed: int, options: Options, steps: int = 60) -> World:
    """Play one world from its seed.

    Raises:
        ViolationError: a property does not hold, or the production code raised on a valid history.
    """
    world = World(seed, options)
    try:
        for _ in range(steps):
            world.step()
        world.finish()
    except ViolationError as violation:
        raise ViolationError(f"seed {seed}, {options}: {violation}") from violation
    except Exception as error:
        raise ViolationError(f"seed {seed}, {options}: raised {error!r}") from error
    return world


def options_of(seed: int) -> Options:
    """A varied world for a seed."""
    choice = random.Random(f"options-{seed}")
    return Options(
        regions=choice.randint(1, 4),
        clusters=choice.choice([2, 2, 3]),
        complete=choice.random() < 0.7,
        truncation=choice.random() < 0.25,
        retention=choice.random() < 0.3,
        recreation=choice.random() < 0.3,
        rewinds=choice.random() < 0.3,
        compaction=choice.random() < 0.2,
        epochs=choice.random() < 0.5,
        hidden=choice.random() < 0.5,
        short_run_logs=choice.random() < 0.2,
    )


_KINDS: dict[str, dict[str, bool]] = {
    "truncation": {"truncation": True, "retention": False},
    "truncation and retention": {"truncation": True, "retention": True},
    "retention and recreation, complete rows": {
        "truncation": False,
        "retention": True,
        "recreation": True,
        "complete": True,
    },
}
_LONG_STEPS = 400


def kind_of(seed: int) -> str:
    """What happens in the long world of a seed for certain."""
    return list(_KINDS)[seed % len(_KINDS)]


def run_long_world(seed: int) -> World:
    """Play a long world in which something happens that is rare in others.

    Raises:
        ViolationError: as in `run_world`.
    """
    return run_world(seed, replace(options_of(seed), **_KINDS[kind_of(seed)]), _LONG_STEPS)
