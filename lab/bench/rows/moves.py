"""A group stops in mid-stream and goes on in another cluster: what it reads twice, and what it never reads.

Parallax: a `FailoverConsumer` of aggregate-a moves to aggregate-b. MirrorMaker 2: a plain consumer of the regional
clusters goes on at aggregate-a, where MirrorMaker 2 has published its translated offsets. Both at the same time, on
topics of their own: nothing here is timed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace

from confluent_kafka import Consumer, KafkaException, Producer

from lab.bench import BenchError
from lab.bench.budget import Steps
from lab.bench.report import Measure, Round, slug
from lab.bench.rows import BenchPlace, BenchSettings, Play, Row
from lab.bench.sides import BOTH, Copier, CopierOptions
from lab.bench.sides.parallax import service_spec
from lab.bench.stage import BenchStage, await_true
from lab.stack.process import ManagedProcess
from lab.workload.topics import EndOffsets, committed_offsets
from parallax import FailoverConsumer

_PARTITIONS = 4
_COPIED_WITHIN_S = 600.0
_TRANSLATED_WITHIN_S = 180.0
_UNCHANGED_S = 5.0
_READ_WITHIN_S = 300.0
_QUIET_S = 4.0
_TICKS_PER_S = 20
"""So often records are sent: evenly enough for groups that are read at the pace of a second."""
_LOOK_EVERY_S = 0.5
"""Asking more often for published offsets would take time from who publishes them, once a second."""
_CONSUME = 200
_AROUND_S = 65.0
"""What starting, settling, reading and stopping take, for the plan of the time."""


@dataclass(frozen=True)
class MoveRow(Row):
    """What is produced, and how much of it is read before the move.

    Attributes:
        records: of each source region; they arrive evenly over ``seconds``, a region's first ones at the beginning.
        read_before: MirrorMaker 2's group has read this share of each region's partitions when it moves. Parallax's
            group reads merged partitions; it has read half of each.
        idle: regions whose records all arrive at the beginning.
        seconds: how long producing takes.
    """

    records: Mapping[str, int]
    read_before: Mapping[str, float]
    idle: tuple[str, ...] = ()
    seconds: float = 10.0

    @property
    def place(self) -> BenchPlace:
        """Two aggregate clusters to move between."""
        return BenchPlace(("a", "b"))

    def steps(self, settings: BenchSettings) -> Steps:
        """One step; both sides at once."""
        _ = settings
        return {self.name: _AROUND_S + self.seconds}

    def play(self, play: Play) -> None:
        """Move a group of each side: nothing is timed, so once is enough."""
        if all(play.store.has(side, 1) for side in BOTH):
            return
        row = self
        if play.settings.smoke:
            few = {region: max(20, records // 10) for region, records in self.records.items()}
            row = replace(self, records=few, seconds=3.0)
        with play.budget.step(self.name):
            found = _moves(row, play)
        for side, moved in found.items():
            play.tell(f"{side}: {moved.redelivered} redelivered, {moved.lost} lost")
            measures = (
                Measure(f"{self.name}: redelivered", "records", "lower", moved.redelivered),
                Measure(f"{self.name}: lost", "records", "lower", moved.lost),
            )
            play.store.add(Round(side, 1, measures, asdict(moved)))


@dataclass(frozen=True, slots=True)
class MoveFigures:
    """A move's verdict.

    Attributes:
        redelivered: deliveries after the move of records that were delivered before it.
        lost: records of the sources that were delivered neither before nor after it.
        repeated: deliveries again on the same side of the move, which a move can't excuse.
    """

    redelivered: int
    lost: int
    repeated: int


def judge_move(produced: Collection[bytes], before: Iterable[bytes], after: Iterable[bytes]) -> MoveFigures:
    """Compare what was produced with what the group got.

    Args:
        produced: the ids of all records.
        before: ids delivered before the move.
        after: ids delivered after it.
    """
    first, second = list(before), list(after)
    seen, then = set(first), set(second)
    return MoveFigures(
        redelivered=sum(record in seen for record in second),
        lost=len(set(produced) - seen - then),
        repeated=len(first) - len(seen) + len(second) - len(then),
    )


def _moves(row: MoveRow, play: Play) -> dict[str, MoveFigures]:
    stage, name = play.stage, slug(row.name)
    sources = tuple(row.records)
    with ExitStack() as clean_up:
        ours, theirs = f"{name}-ours", f"{name}-theirs"
        for region in sources:
            for topic in (ours, theirs):
                stage.create_topic(f"regional-{region}", topic, _PARTITIONS)
        parallax = Copier(
            stage,
            "parallax",
            [ours],
            CopierOptions(routes=tuple((source, target) for source in sources for target in ("a", "b"))),
        )
        mirrormaker = Copier(
            stage,
            "mirrormaker2",
            [theirs],
            CopierOptions(
                routes=tuple((source, "a") for source in sources), tuning="groups", groups=f"{name}.*"
            ),
        )
        for copier in (parallax, mirrormaker):
            clean_up.callback(copier.stop)
            copier.start()
        start_services(stage, parallax, clean_up)
        parallax.await_topic(ours, ["aggregate-a", "aggregate-b"], _COPIED_WITHIN_S)
        mirrormaker.await_topic(theirs, ["aggregate-a"], _COPIED_WITHIN_S)
        play.tell(f"{row.name}: both copiers run")
        with ThreadPoolExecutor(max_workers=2) as pool:
            moves = {
                "parallax": pool.submit(_move_with_parallax, play, row, ours),
                "mirrormaker2": pool.submit(_move_with_mirrormaker, play, row, theirs),
            }
            found = {side: move.result() for side, move in moves.items()}
    mirrormaker.clean_up()
    for cluster in stage.clusters:
        stage.delete_topics(cluster, [ours, theirs])
    return found


def start_services(stage: BenchStage, copier: Copier, clean_up: ExitStack) -> dict[str, ManagedProcess]:
    """Start the offset services of both regions with a copier's configuration; ``clean_up`` stops them.

    Returns:
        The services by region.

    Raises:
        StackError: one did not come up.
    """
    services = {}
    for region in ("a", "b"):
        service = services[region] = stage.process(service_spec(stage.stack, copier.config, region))
        clean_up.callback(service.stop)
        service.start()
    return services


def _move_with_parallax(play: Play, row: MoveRow, topic: str) -> MoveFigures:
    stage, group = play.stage, f"{topic}-group"
    produced = _produce(stage, topic, row)
    services = [stage.stack.layout.grpc_address(region) for region in ("a", "b")]
    with FailoverConsumer(
        {"group.id": group, "log_level": 3},
        clusters={region: stage.bootstrap(f"aggregate-{region}") for region in ("a", "b")},
        region="a",
        services=services,
    ) as consumer:
        consumer.subscribe([topic])
        half = {partition: count // 2 for partition, count in _per_partition(produced).items()}
        before = _read(consumer, half)
        consumer.move_to("b")
        after = _read_to_end(consumer, set(produced) - set(before))
    play.tell(f"Parallax's group: {len(before)} records before the move, {len(after)} after it")
    return judge_move(produced, before, after)


def _move_with_mirrormaker(play: Play, row: MoveRow, topic: str) -> MoveFigures:
    stage, group = play.stage, f"{topic}-group"
    produced = _produce(stage, topic, row)
    ends = EndOffsets(stage.bootstrap("aggregate-a"), topic, _PARTITIONS)
    await_true(
        lambda: sum((ends.ask() or {}).values()) >= len(produced),
        _COPIED_WITHIN_S,
        "MirrorMaker 2 has not copied everything",
    )
    before: list[bytes] = []
    committed: set[int] = set()
    for region in row.records:
        wanted = {
            partition: int(count * row.read_before[region])
            for partition, count in _per_partition(
                [x for x in produced if x.startswith(region.encode())]
            ).items()
        }
        consumer = _plain_consumer(stage.bootstrap(f"regional-{region}"), group)
        try:
            consumer.subscribe([topic])
            before += _read(consumer, wanted)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        committed |= {partition for partition, count in wanted.items() if count}
    translated = _await_translation(stage.bootstrap("aggregate-a"), group, topic, committed)
    play.tell(
        f"MirrorMaker 2's group: {len(before)} records before the move, translated offsets {translated}"
    )
    consumer = _plain_consumer(stage.bootstrap("aggregate-a"), group)
    try:
        consumer.subscribe([topic])
        after = _read_to_end(consumer, set(produced) - set(before))
    finally:
        consumer.close()
    return judge_move(produced, before, after)


def _await_translation(bootstrap: str, group: str, topic: str, wanted: set[int]) -> dict[int, int]:
    """The published offsets, once all wanted partitions have one (if they ever do) and none changes any more."""
    deadline = time.monotonic() + _TRANSLATED_WITHIN_S
    found: dict[int, int] = {}
    since = time.monotonic()
    while time.monotonic() < deadline:
        now = committed_offsets(bootstrap, group, topic, range(_PARTITIONS))
        if now != found:
            found, since = now, time.monotonic()
        elif wanted <= set(found) and time.monotonic() - since >= _UNCHANGED_S:
            break
        time.sleep(_LOOK_EVERY_S)
    return found


def _produce(stage: BenchStage, topic: str, row: MoveRow) -> list[bytes]:
    """Send everything, evenly over the time; returns all ids, ``region:number``."""
    ids: list[bytes] = []
    producers = {
        region: Producer({"bootstrap.servers": stage.bootstrap(f"regional-{region}"), "log_level": 3})
        for region in row.records
    }
    sent = dict.fromkeys(row.records, 0)
    ticks = int(row.seconds * _TICKS_PER_S)
    for tick in range(1, ticks + 1):
        for region, records in row.records.items():
            due = records if region in row.idle else records * tick // ticks
            while sent[region] < due:
                name = f"{region}:{sent[region]}".encode()
                producers[region].produce(topic, name, partition=sent[region] % _PARTITIONS)
                ids.append(name)
                sent[region] += 1
            producers[region].poll(0)
        time.sleep(1 / _TICKS_PER_S)
    for region, producer in producers.items():
        if left := producer.flush(_READ_WITHIN_S):
            raise BenchError(f"regional-{region}: {left} records were not acknowledged")
    return ids


def _per_partition(ids: Sequence[bytes]) -> dict[int, int]:
    counts = dict.fromkeys(range(_PARTITIONS), 0)
    for name in ids:
        counts[int(name.partition(b":")[2]) % _PARTITIONS] += 1
    return counts


def _plain_consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 3,
        }
    )


def _read(consumer: Consumer | FailoverConsumer, wanted: Mapping[int, int]) -> list[bytes]:
    """Read until so many records of each partition have come (of some, more may have); returns all of them."""
    left = {partition: count for partition, count in wanted.items() if count}
    ids: list[bytes] = []
    deadline = time.monotonic() + _READ_WITHIN_S
    while left:
        if time.monotonic() > deadline:
            raise BenchError(f"these records did not come: {left}")
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            raise KafkaException(error)
        partition, value = message.partition(), message.value()
        if partition is None or value is None:
            continue
        ids.append(value)
        if partition in left:
            left[partition] -= 1
            if not left[partition]:
                del left[partition]
    return ids


def _read_to_end(consumer: Consumer | FailoverConsumer, missing: set[bytes]) -> list[bytes]:
    """Read until nothing is missing and nothing more comes, or until nothing has come for long."""
    ids: list[bytes] = []
    last = time.monotonic()
    while True:
        patience_s = _QUIET_S if not missing else 4 * _QUIET_S if ids else _READ_WITHIN_S
        if time.monotonic() - last >= patience_s:
            return ids
        for message in consumer.consume(_CONSUME, 0.2):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            value = message.value()
            if value is not None:
                ids.append(value)
                missing.discard(value)
                last = time.monotonic()
