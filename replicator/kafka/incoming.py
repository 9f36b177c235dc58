"""Reads the run logs of the routes into a source cluster, and follows them (`replicator.copying.own_records`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from google.protobuf.message import DecodeError

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import Settings, client_settings, translated
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, RegionName, Route, TopicId, TopicName, TopicPartition, region_of
from parallax.domain.place import LogRange
from parallax.errors import ClusterUnavailableError, ParallaxError
from parallax.ports.clusters import TopicInfo
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.origins import LoggedEntry, OriginRule, Origins, ReadPart, RecordFate, take_in
from replicator.copying.recovery import RunLogError, RunLogProblem
from replicator.copying.session_end import SessionError
from replicator.copying.state import ENTRY_FORMAT
from replicator.kafka.layout import other_run_log, read_layout
from replicator.kafka.run_log import read_partitions
from replicator.lease import Lease

log = structlog.get_logger(__name__)

_FIRST_REACH_OFFSETS = 3_000
_TIMEOUT_MS = 10_000
_TURN_S, _REST_S = 0.02, 0.2
_MOST_AT_ONCE = 1_000
_FOLLOWING = "following the run logs of incoming routes"


class IncomingRunLogs:
    """`IncomingLogs` on one Kafka cluster: a thread follows every run log there.

    Those of routes that are configured no more count, too: what they have brought are copies still.

    Args:
        config: all configuration.
        lease: the shard whose partitions are asked about.
        rule: which records its route copies.
    """

    def __init__(self, config: Config, lease: Lease, rule: OriginRule) -> None:
        self._config = config
        self._lease = lease
        self._rule = rule
        self._names = config.route_topics(lease.route)
        self._cluster = config.source_cluster(lease.route)
        self._prefix = f"{config.replicator.run_log_topic_prefix}."
        settings = config.cluster(self._cluster)
        self._settings = client_settings(settings, client_id=f"parallax-incoming-{lease.route.target}")
        self._door = KafkaCluster(self._cluster, settings, timeout_ms=_TIMEOUT_MS)
        self._reach = _FIRST_REACH_OFFSETS
        self._needed: dict[TopicPartition, tuple[TopicId, int]] = {}
        self._lock = threading.Lock()
        """Of what is known: the follower adds to it."""
        self._origins = Origins(rule, self._wanted)
        self._names_all = self._read_whole = False
        self._follower: _Follower | None = None
        self._requested = 0

    def need(self, positions: Mapping[TopicPartition, tuple[TopicId, int]]) -> None:
        """Read as much of the run logs as tells of these."""
        self._needed |= positions
        while self._follower is None or not self._enough(positions):
            if self._follower is not None:
                self._reach *= 4
            self._load()
            positions = self._needed

    def request(self) -> int:
        """Ask for all that is appended until now."""
        self._requested += 1
        if self._follower is not None:
            self._follower.request(self._requested)
        return self._requested

    def settled(self) -> int:
        """The newest ticket of which all is known."""
        if self._follower is None:
            return 0
        return self._requested if self._follower.idle else self._follower.settled()

    def judge(
        self, item: TopicPartition, topic_id: TopicId, leader_epoch: int, offsets: Sequence[int]
    ) -> list[tuple[int, int, RecordFate]]:
        """By what is known now."""
        with self._lock:
            return self._origins.judge(item, topic_id, leader_epoch, offsets)

    def forget_below(self, item: TopicPartition, topic_id: TopicId, offset: int) -> None:
        """Let go of what is below."""
        self._needed[item] = (topic_id, offset)
        with self._lock:
            self._origins.forget_below(item, topic_id, offset)

    def close(self) -> None:
        """End the thread."""
        if self._follower is not None:
            self._follower.close()

    def _wanted(self, item: TopicPartition) -> bool:
        copy = self._names.copy_of(item.topic)
        return copy is not None and self._lease.has(TopicPartition(copy, item.partition))

    def _enough(self, positions: Mapping[TopicPartition, tuple[TopicId, int]]) -> bool:
        """Whether what is known tells of the positions, or nothing more is there to be read."""
        with self._lock:
            return self._read_whole or (
                self._names_all
                and all(
                    self._origins.reach(item, topic_id, offset)
                    for item, (topic_id, offset) in positions.items()
                )
            )

    def _load(self) -> None:
        """Read the run logs anew, so far back, and follow them from there on."""
        self.close()
        topics = {name: info for name, info in self._door.topics().items() if name.startswith(self._prefix)}
        layouts = self._layouts(topics)
        places = [
            TopicPartition(name, shard) for name, info in topics.items() for shard in range(info.partitions)
        ]
        ranges = self._door.log_ranges(places, fresh=True)
        if missing := [str(place) for place in places if place not in ranges]:
            raise ClusterUnavailableError(f"{self._cluster}: run log {missing[0]} has no leader")
        spans = {
            place: (
                int(max(found.low_watermark, found.high_watermark - self._reach)),
                int(found.high_watermark),
            )
            for place, found in ranges.items()
        }
        entries: dict[TopicPartition, list[Entry]] = {place: [] for place in spans}
        for place, _, _, value in read_partitions(
            self._settings, self._cluster, spans, timeout_ms=_TIMEOUT_MS
        ):
            entry = self._entry(place, topics[place.topic].topic_id, value)
            if entry is not None:
                entries[place].append(entry)
        parts = [
            ReadPart(
                self._source(place.topic),
                place.partition,
                entries[place],
                begin == ranges[place].low_watermark,
                ranges[place].low_watermark > 0,
            )
            for place, (begin, _) in spans.items()
        ]
        origins = Origins(self._rule, self._wanted)
        names_all = take_in(origins, parts, layouts)
        for item, (topic_id, offset) in self._needed.items():
            origins.forget_below(item, topic_id, offset)
        with self._lock:
            self._origins, self._names_all = origins, names_all
            self._read_whole = all(part.from_start for part in parts)
        expected = [TopicName(f"{self._prefix}{source}") for source in self._rule.incoming]
        ids = {name: info.topic_id for name, info in topics.items()}
        self._follower = _Follower(
            self._cluster,
            self._settings,
            self._door,
            {place: int(found.high_watermark) for place, found in ranges.items()},
            expected,
            lambda place, value: self._take_in(place, ids.get(place.topic), value),
        )

    def _layouts(self, topics: Mapping[TopicName, TopicInfo]) -> dict[RegionName, tuple[int, int]]:
        """Number and shards of the layout of every route that leads here.

        Raises:
            RunLogError: a run log is gone, or another topic has its name: whose records there are, nobody can tell.
        """
        layouts = {}
        sources = dict.fromkeys([*self._rule.incoming, *map(self._source, topics)])
        for source in sources:
            route = Route(source, region_of(self._cluster))
            layout, info = (
                read_layout(self._config, route),
                topics.get(TopicName(f"{self._prefix}{source}")),
            )
            if layout is not None and (info is None or info.topic_id != layout.run_log_id):
                raise other_run_log(layout, None if info is None else info.topic_id, route)
            if info is not None:
                layouts[source] = (0, info.partitions) if layout is None else layout.copied_as
        return layouts

    def _source(self, run_log: TopicName) -> RegionName:
        return RegionName(run_log[len(self._prefix) :])

    def _take_in(self, place: TopicPartition, run_log_id: TopicId | None, value: bytes | None) -> None:
        entry = self._entry(place, run_log_id, value)
        if entry is not None:
            with self._lock:
                self._origins.add(LoggedEntry(self._source(place.topic), place.partition, entry))

    def _entry(self, place: TopicPartition, run_log_id: TopicId | None, value: bytes | None) -> Entry | None:
        """The entry that a record is; None: it is none, or was written to another topic.

        Raises:
            RunLogError: it is of a newer format.
        """
        try:
            entry = Entry.FromString(value or b"")
        except DecodeError:
            return None
        if run_log_id is not None and entry.run_log_id != run_log_id:
            return None
        if entry.format > ENTRY_FORMAT:
            what = f"an entry has format {entry.format}, and this release reads formats up to {ENTRY_FORMAT}"
            raise RunLogError(RunLogProblem.RUN_LOG_NEWER, f"{self._cluster}: run log {place}", what)
        return entry


class _Follower:
    """Reads run logs on in a thread of its own, and knows up to where.

    Args:
        cluster: where they are.
        settings: for a consumer.
        door: tells the ends.
        positions: where to go on, by partition of a run log.
        expected: run logs that there may be one day.
        take_in: called with every record, in order.
    """

    def __init__(
        self,
        cluster: ClusterName,
        settings: Settings,
        door: KafkaCluster,
        positions: Mapping[TopicPartition, int],
        expected: Collection[TopicName],
        take_in: Callable[[TopicPartition, bytes | None], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._door = door
        self._positions = dict(positions)
        self._expected = expected
        self._take_in = take_in
        self._wake = threading.Condition()
        self._requested = self._settled = 0
        self._problem: ParallaxError | None = None
        self._closed = False
        self._told = ""
        self._thread = threading.Thread(
            target=self._work, name=f"incoming run logs of {cluster}", daemon=True
        )
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether nothing leads into the cluster: nobody has to wait."""
        return not (self._positions or self._expected)

    def request(self, ticket: int) -> None:
        """All that is appended until now is to be known."""
        with self._wake:
            self._requested = ticket
            self._wake.notify()

    def settled(self) -> int:
        """The newest ticket of which all is known.

        Raises:
            ParallaxError: they can't be followed any more.
        """
        with self._wake:
            if self._problem is not None:
                raise self._problem
            return self._settled

    def close(self) -> None:
        """End; a read that goes on ends by itself."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def _work(self) -> None:
        settings = {
            **self._settings,
            "group.id": "parallax.replicator",  # asked for, never used
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
        try:
            with closing(Consumer(settings)) as consumer:
                consumer.assign(
                    [
                        KafkaPartition(place.topic, place.partition, at)
                        for place, at in self._positions.items()
                    ]
                )
                self._follow(consumer)
        except ParallaxError as error:
            self._end(error)
        except KafkaException as error:
            self._end(translated(error, self._cluster, _FOLLOWING))
        except Exception as error:
            # Records are held back until all is known: nobody would know that they wait for nobody.
            log.exception("incoming_run_logs_failed", cluster=self._cluster)
            self._end(SessionError(f"{self._cluster}: {_FOLLOWING} failed: {error!r}"))

    def _end(self, error: ParallaxError) -> None:
        with self._wake:
            self._problem = error

    def _follow(self, consumer: Consumer) -> None:
        ticket, goals = 0, dict[TopicPartition, int]()
        while True:
            with self._wake:
                if self._closed:
                    return
                if all(self._positions.get(place, 0) >= goal for place, goal in goals.items()):
                    self._settled = ticket
                    if not self._positions:
                        self._wake.wait_for(lambda seen=ticket: self._closed or self._requested > seen)  # type: ignore[misc] # mypy can't type the default
                    asked = self._requested
                else:
                    asked = ticket
            if asked > ticket:
                told = self._ends()
                if told is not None:
                    ticket, goals = asked, told
                    self._begin(consumer, told)
                elif not self._positions:
                    self._pause()
            if self._positions:
                self._read(consumer)

    def _pause(self) -> None:
        with self._wake:
            self._wake.wait_for(lambda: self._closed, _REST_S)

    def _ends(self) -> dict[TopicPartition, int] | None:
        """Where each run log ends now, also those that have come since; None: not all answer."""
        # A partition that comes is the next one: so nobody has to list all topics again and again.
        known: dict[TopicName, int] = dict.fromkeys(self._expected, 0)
        for place in self._positions:
            known[place.topic] = max(known.get(place.topic, 0), place.partition + 1)
        wanted = [TopicPartition(name, shard) for name, count in known.items() for shard in range(count + 1)]
        try:
            ranges: Mapping[TopicPartition, LogRange] = self._door.log_ranges(wanted, fresh=True)
        except ParallaxError as error:
            self._tell(str(error))
            return None
        if missing := [str(place) for place in self._positions if place not in ranges]:
            there = self._door.topics()
            if any(place.topic not in there for place in self._positions):
                raise SessionError(f"{self._cluster}: run log {missing[0]} is gone")
            self._tell(f"{self._cluster}: run log {missing[0]} has no leader")
            return None
        self._told = ""
        grown = {place.topic for place in ranges if place not in self._positions}
        if grown:
            # There may be more of them.
            for name, info in self._door.topics().items():
                if name in grown:
                    places = [TopicPartition(name, shard) for shard in range(info.partitions)]
                    ranges = {**ranges, **self._door.log_ranges(places, fresh=True)}
        return {place: int(found.high_watermark) for place, found in ranges.items()}

    def _begin(self, consumer: Consumer, places: Collection[TopicPartition]) -> None:
        """Follow what has come since, from its beginning."""
        new = [place for place in places if place not in self._positions]
        if new:
            consumer.incremental_assign([KafkaPartition(place.topic, place.partition, 0) for place in new])
            self._positions |= dict.fromkeys(new, 0)

    def _read(self, consumer: Consumer) -> None:
        messages = consumer.consume(1, _TURN_S)
        if messages:
            messages += consumer.consume(_MOST_AT_ONCE, 0)
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                self._failed(error)
                continue
            if topic is None or partition is None or offset is None:
                continue
            place = TopicPartition(TopicName(topic), partition)
            if error is None:
                value = message.value()
                self._take_in(place, value.encode() if isinstance(value, str) else value)
                offset += 1
            self._positions[place] = max(self._positions.get(place, 0), offset)

    def _failed(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001 - as above
            raise SessionError(f"{self._cluster}: a run log is not what was read before: {error.str()}")
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise translated(KafkaException(error), self._cluster, _FOLLOWING)
        self._tell(error.str())

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            log.info("incoming_run_logs_waiting", cluster=self._cluster, problem=problem)
            self._told = problem
