"""How long a side takes from the start of its process to the first record on the target."""

from __future__ import annotations

import time
from dataclasses import dataclass

from lab.bench.cpu import cpu_s
from lab.bench.data.batches import Shape, prepare
from lab.bench.data.loading import fill
from lab.bench.report import Measure, Round
from lab.bench.rows import Play, Row
from lab.bench.rows.watch import CopyWatch
from lab.bench.sides import BOTH, Copier, CopierOptions, Side, is_parallax

_PARTITIONS = 4
_RECORDS = 1_000


@dataclass(frozen=True)
class StartRow(Row):
    """From nothing to the first record; the topic lies there before."""

    sides: tuple[Side, ...] = BOTH

    def play(self, play: Play) -> None:
        """Start each side in turns, alone."""
        stage = play.stage
        for number in range(1, play.settings.rounds + 1):
            for side in self.sides:
                if play.store.has(side, number):
                    continue
                topic = _topic(side, number)
                stage.create_topic("regional-a", topic, _PARTITIONS)
                batches = prepare(Shape(variants=1))
                fill(stage.bootstrap("regional-a"), topic, _PARTITIONS, [("start", batches, _RECORDS)])
                # With other topics than before Parallax looks for 3 s whether another replicator copies: no restart does.
                topics = self._topics_of_parallax(play.settings.rounds) if is_parallax(side) else [topic]
                copier = Copier(stage, side, topics, CopierOptions())
                began = time.monotonic()
                copier.start()
                try:
                    CopyWatch(stage, copier, topic, _PARTITIONS, ["aggregate-a"]).await_first_record()
                    taken_s = time.monotonic() - began
                    used_s = cpu_s({side: copier.pids})[side]
                finally:
                    copier.stop()
                copier.clean_up()
                play.tell(f"{side}: first record after {taken_s:.1f} s and {used_s:.1f} CPU s")
                measures = (
                    Measure(self.name, "s", "lower", taken_s),
                    Measure(f"{self.name}: copier's CPU", "CPU s", "lower", used_s),
                )
                play.store.add(Round(side, number, measures))

    def _topics_of_parallax(self, rounds: int) -> list[str]:
        """The same for each of its sides in every round."""
        sides = filter(is_parallax, self.sides)
        return [_topic(side, number) for side in sides for number in range(1, rounds + 1)]


def _topic(side: Side, number: int) -> str:
    return f"start-{side.replace('_', '-')}-{number}"
