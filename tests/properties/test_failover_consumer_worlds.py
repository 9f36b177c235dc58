"""A `FailoverConsumer` in worlds that are made up at random: each record is delivered once, in its source's order.

Clusters fill at their own pace and in their own order, the consumer moves about and is started anew, services
go away and come back. The oracle knows the records only.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worlds.failover_fakes import Record, World

REGIONS = ("a", "b", "c")
PARTITIONS = 2


class Producers:
    """Records of every region and partition, and how far each cluster has copied them."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._made = {(region, partition): 0 for region in REGIONS for partition in range(PARTITIONS)}
        self._copied: Counter[tuple[str, str, int]] = Counter()

    def copy_some(self, cluster: str, most: int) -> None:
        """Let a cluster get further records, its own region's more than the others'."""
        for _ in range(self._random.randrange(most)):
            partition = self._random.randrange(PARTITIONS)
            source = cluster if self._random.random() < 0.6 else self._random.choice(REGIONS)
            self._copy(cluster, source, partition)

    def _copy(self, cluster: str, source: str, partition: int) -> None:
        sequence = self._copied[cluster, source, partition]
        self._copied[cluster, source, partition] += 1
        self._made[source, partition] = max(self._made[source, partition], sequence + 1)
        log = self._world.log(cluster, partition)
        log.append((f"{source}{partition}", sequence))
        if self._random.random() < 0.1:
            log.append(None)

    def copy_all(self, cluster: str) -> None:
        """Let a cluster catch up with everything that exists."""
        for (source, partition), made in self._made.items():
            while self._copied[cluster, source, partition] < made:
                self._copy(cluster, source, partition)

    def all_records(self) -> set[Record]:
        """Every record that any cluster has."""
        return {
            (f"{source}{partition}", sequence)
            for (source, partition), made in self._made.items()
            for sequence in range(made)
        }


class Journey:
    """A consumer that goes where chance leads it."""

    def __init__(self, random: Random, *, auto_commit: bool) -> None:
        self._random = random
        self._config = {"enable.auto.commit": auto_commit}
        self._auto_commit = auto_commit
        self._region = "a"
        self.world = World(*REGIONS)
        self.world.service.most_ranges = random.choice((1, 2, 1_000))
        self.producers = Producers(self.world, random)
        for cluster in REGIONS:
            self.producers.copy_some(cluster, 12)
            for partition in range(PARTITIONS):
                self.world.log(cluster, partition)  # the topic exists everywhere
        self.consumer = self.world.start(self._region, self._config)

    def step(self) -> None:
        """Records come, some are polled, and perhaps the consumer moves or is started anew."""
        for cluster in REGIONS:
            self.producers.copy_some(cluster, 10)
        for _ in range(self._random.randrange(10)):
            self.world.poll()
        chance = self._random.random()
        if chance < 0.6:
            self._region = self._random.choice(REGIONS)
            self.world.move(self._region)
        elif chance < 0.8 and (self._auto_commit or self.world.delivered):
            self._restart()

    def _restart(self) -> None:
        if not self._auto_commit:
            commits = [
                item for item in self.consumer.position(self.consumer.assignment()) if item.offset >= 0
            ]
            self.consumer.commit(offsets=commits, asynchronous=False)
        self.consumer.close()
        self.consumer = self.world.start(self._region, self._config)

    def finish(self) -> set[Record]:
        """Let everything arrive where the consumer is, and all of it be delivered."""
        self.producers.copy_all(self._region)
        wanted = self.producers.all_records()
        self.world.poll_until(lambda: len(self.world.delivered) >= len(wanted), "all records")
        for _ in range(5):
            self.world.poll()
        self.consumer.close()
        return wanted


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), auto_commit=st.booleans())
def test_each_record_is_delivered_once_and_in_order(seed: int, auto_commit: bool) -> None:  # noqa: FBT001 - drawn
    random = Random(seed)
    journey = Journey(random, auto_commit=auto_commit)
    for _ in range(random.randrange(1, 8)):
        journey.step()
    wanted = journey.finish()
    delivered = journey.world.delivered
    assert [record for record, count in Counter(delivered).items() if count > 1] == []
    assert set(delivered) == wanted
    for source in {record[0] for record in wanted}:
        sequences = [record[1] for record in delivered if record[0] == source]
        assert sequences == sorted(sequences)
