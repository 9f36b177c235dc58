"""The load and the faults of a soak: those of a storm, but steady, and a kill a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from lab.soak.brokers import BrokerCare
from lab.stack.layout import SPARK
from lab.storm.options import GROUPS, StormOptions
from lab.storm.scenario import Storm
from lab.storm.schedule import CLUSTERS, Act, ActKind, Schedule
from lab.workload.journal import Journal
from lab.workload.playing import Stack

_MINUTE_S = 60.0
_AFTER_S = 300.0
_SOON_S = 3.0
_OTHER = {"a": "b", "b": "a"}
_MEMBERS_RESTART = "pair-a"
NEVER_KILLED = (SPARK, "offsetsvc-a", "cassandra")
"""Processes of the stack that live all the time: whatever else is killed, these are judged."""


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """Sizes and places.

    Attributes:
        minutes: how long, once everybody is at work.
        per_s: records a second of both regions together.
        seed: chooses the order of the faults.
        directory: reports, logs and the stack's folder go here.
        keep: leave the stack running.
    """

    minutes: int = 60
    per_s: float = 200.0
    seed: int = 1
    directory: Path = field(default_factory=lambda: Path("build/soak"))
    keep: bool = False

    @property
    def storm(self) -> StormOptions:
        """The same in a storm's words."""
        return StormOptions(
            seed=self.seed,
            per_s=self.per_s,
            records=20_000,
            at_most_s=self.minutes * _MINUTE_S + _AFTER_S,
            topic="soak",
            directory=self.directory,
            keep=self.keep,
        )


class Soak(Storm):
    """One run. What is never killed lives all the time: Spark's driver, region a's service, Cassandra, most members.

    Args:
        options: sizes.
        stack: empty and up.
        journal: gets the steps; its clock is the soak's.
    """

    def __init__(self, options: SoakOptions, stack: Stack, journal: Journal) -> None:
        super().__init__(options.storm, Schedule(options.seed, {}, ()), stack, journal)
        self._clock, self._minutes = journal, options.minutes
        self.care = BrokerCare(stack, CLUSTERS, journal.remark)
        self._deck = draw_faults(options.seed, {name: plan.home for name, plan in GROUPS.items()})

    def acts(self) -> Iterator[tuple[Act, str]]:
        """A fault a minute; what it needs to start what it killed follows soon."""
        began_s = self._clock.elapsed_s
        for minute in range(1, self._minutes):
            for number, act in enumerate(next(self._deck)):
                wait_s = began_s + minute * _MINUTE_S - self._clock.elapsed_s
                pause_s = _SOON_S if number else max(_SOON_S, wait_s)
                yield replace(act, pause_s=pause_s), f"minute {minute} {act.kind}: {act.told()}"

    def _until(self, reached: Callable[[], bool], within_s: float, otherwise: str) -> None:
        self.care.patiently(lambda: super(Soak, self)._until(reached, within_s, otherwise))

    def _check(self) -> None:
        super()._check()
        self.care.look()


def draw_faults(seed: int, homes: Mapping[str, str]) -> Iterator[tuple[Act, ...]]:
    """Faults without end, each with what starts again what it killed; all kinds come equally often.

    Args:
        seed: chooses their order.
        homes: by group, the region where it begins.
    """
    draw, places = Random(seed), dict(homes)  # noqa: S311 - chance, not secrets
    while True:
        deck = [
            *((Act(ActKind.AGGREGATE_KILLED, part=f"aggregate-{region}", down_s=3.0),) for region in _OTHER),
            *(
                (Act(ActKind.REGIONAL_KILLED, part=part), Act(ActKind.START, part=part))
                for part in ("regional-a", "regional-b")
            ),
            (
                Act(ActKind.SERVICE_KILLED, part="offsetsvc-b"),
                Act(ActKind.START, part="offsetsvc-b"),
            ),
            *((Act(ActKind.WORKER_KILLED, part=SPARK),) for _ in range(2)),
            (Act(ActKind.RESTART, group=_MEMBERS_RESTART),),
            *((Act(ActKind.PLANNED, group=group),) for group in ("solo-a", "solo-b")),
        ]
        draw.shuffle(deck)
        for acts in deck:
            if acts[0].kind is not ActKind.PLANNED:
                yield acts
                continue
            group = acts[0].group
            here, places[group] = places[group], _OTHER[places[group]]
            yield (replace(acts[0], region=here, to=places[group], groups=(group,), lag_s=2.0),)
