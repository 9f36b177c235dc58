"""What the rows of the bench have in common; every kind of row is a module here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from lab.bench.budget import Budget, Steps
from lab.bench.report import RoundStore
from lab.bench.stage import BenchStage

CPU_UNIT = "CPU s per million records"


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What holds for a whole run.

    Attributes:
        rounds: of rows that are played several times.
        smoke: tiny data and short windows: shows that everything works, and no figure of it counts.
    """

    rounds: int
    smoke: bool = False


@dataclass(frozen=True, slots=True)
class BenchPlace:
    """Where a row is played; rows of the same place share brokers.

    Attributes:
        regions: each with a regional and an aggregate cluster.
        round_trip_ms: how far away the regional clusters are, behind a proxy; None: no proxy.
        tls: brokers speak TLS too.
    """

    regions: tuple[str, ...] = ("a",)
    round_trip_ms: float | None = None
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Play:
    """One row being played.

    Attributes:
        stage: the brokers of its place.
        settings: of the whole run.
        store: has the rounds that were played before, and gets the further ones.
        tell: gets a line now and then.
        budget: gets the time that each step takes.
    """

    stage: BenchStage
    settings: BenchSettings
    store: RoundStore
    tell: Callable[[str], None]
    budget: Budget

    @property
    def missing_rounds(self) -> list[int]:
        """The numbers of Parallax's rounds that were not played yet."""
        return [
            number for number in range(1, self.settings.rounds + 1) if not self.store.has("parallax", number)
        ]


@dataclass(frozen=True)
class Row(ABC):
    """A row of the main or of the full set.

    Attributes:
        name: its figures are called so in the report.
    """

    name: str

    @property
    def place(self) -> BenchPlace:
        """Where it is played."""
        return BenchPlace()

    @property
    def tells_machine(self) -> bool:
        """Whether it measures MirrorMaker 2 on the first data set, and so tells whether the machine was busy."""
        return False

    def steps(self, settings: BenchSettings) -> Steps:
        """The time that its steps are given, from what they took in earlier runs; empty: nobody has planned it."""
        _ = settings
        return {}

    @abstractmethod
    def play(self, play: Play) -> None:
        """Play the rounds that have not been played yet.

        Raises:
            ParallaxError: something did not work; the rounds so far are kept.
        """
