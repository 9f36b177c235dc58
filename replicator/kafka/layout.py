"""Layouts: into how many shards a route is cut, and how that changes without a record copied twice or missed.

The layout record of a route lies in the compacted topic `parallax.layouts` on the target cluster. A shard's owner
reads it after it has initialised its transactional id, and leaves if the layout is newer than its own. To change
the number of shards: write layout L+1 as *moving*, initialise every transactional id of L (which ends its owners;
one that comes later finds L+1), merge the states of L's shards, and write them as the first snapshots of L+1 together
with the record that L+1 is *settled*: in one transaction of the transactional id that only changes of this layout use.
Each step can be done again after a crash; leases of L+1 start only when it is settled. Whoever was paused between two
steps has been fenced by the one who went through, and can write neither.

Every layout begins so, the first one with empty snapshots: a shard without a snapshot has lost its entries, and is never
taken for a new one (`replicator.copying.recovery`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self, TypeGuard

import structlog
from confluent_kafka import KafkaException, Producer

from parallax.adapters.kafka.librdkafka import Settings, client_settings, translated
from parallax.config.config import Config
from parallax.domain.ids import Route, TopicId, TopicName, TopicPartition, aggregate_cluster
from parallax.domain.place import LogRange
from parallax.domain.topic_choice import Patterns
from parallax.errors import ClusterUnavailableError, ConfigError, NotFoundError, RefusedError
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import Deadline
from replicator.copying.recovery import RunLogError, RunLogProblem, Shard, States
from replicator.copying.state import PartitionChange, PartitionState, encode, pieces_of
from replicator.kafka.layout_record import LAYOUTS_TOPIC, LayoutRecord
from replicator.kafka.refusals import ID_NOT_ALLOWED, id_not_allowed
from replicator.kafka.run_log import KafkaRunLog, SystemClock, load_states, read_partition, run_log_topic
from replicator.kafka.topics import TopicAdmin, compacted_plan, run_log_plan
from replicator.kafka.transactions.hanging import settle
from replicator.kafka.transactions.hanging_changes import settle_changes
from replicator.kafka.unexplained import unexplained_records
from replicator.lease import Lease, change_id, shard_of, transactional_id

log = structlog.get_logger(__name__)

FIRST_LAYOUT = 1
PATHS = ("record", "batch")
"""Every copy path has a transactional id of its own in each shard."""
_TIMEOUT_MS = 30_000
_WATCHED_INTERVALS = 4
"""So many times the interval of watermarks a run log is watched to see whether anybody writes it."""

Record = tuple[str, int, bytes | None, bytes]
"""Topic, partition, key and value."""


def read_layout(config: Config, route: Route, *, timeout_ms: int = _TIMEOUT_MS) -> LayoutRecord | None:
    """The route's layout, or None if it has none.

    Raises:
        ClusterUnavailableError: the target cluster did not answer in time.
        ConfigError: the route's states are in another run log than the configuration names.
    """
    cluster = aggregate_cluster(route.target)
    settings = client_settings(config.cluster(cluster), client_id="parallax-layouts")
    admin = TopicAdmin(cluster, config.cluster(cluster), timeout_ms=5_000)
    place = TopicPartition(LAYOUTS_TOPIC, 0)
    try:
        span = admin.log_ranges([place]).get(place)
    except NotFoundError:
        span = None
    if span is None and LAYOUTS_TOPIC in admin.topics():
        raise ClusterUnavailableError(f"{cluster}: {LAYOUTS_TOPIC} has no leader")
    if span is None:
        return None
    layout = None
    bounds = (span.low_watermark, span.high_watermark)
    for _, key, value in read_partition(settings, cluster, LAYOUTS_TOPIC, 0, bounds, timeout_ms=timeout_ms):
        if key == str(route).encode():
            layout = None if value is None else LayoutRecord.decoded(value)
    topic = run_log_topic(config, route.source)
    if layout is not None and layout.run_log != topic:
        raise ConfigError(
            f"replicator.run_log_topic_prefix: {cluster} keeps the states of {route} in {layout.run_log}, and by the "
            f"configuration they were in {topic}: everything would be copied again. Put the prefix back"
        )
    return layout


def ensure_layout(
    config: Config, route: Route, shards: int, *, reached: Callable[[str], None] = lambda _step: None
) -> LayoutRecord:
    """Cut the route into so many shards, if it is not so already; owners of an older layout are fenced.

    Also creates the route's run log and the topic of layouts where they are missing. Safe to call again after a
    crash, and from several processes at once: one of them goes through.

    Args:
        config: all configuration.
        route: the route.
        shards: how many shards it shall have.
        reached: told of each step, so that a test may crash between two.

    Raises:
        ClusterUnavailableError: the target cluster did not answer in time.
        ConfigError: the route's states are in another run log than the configuration names.
        RunLogError: the run log is not what was written, and the layout has to change.
        RefusedError: another replicator copies the route now, with other topics (OTHER_TOPICS).
        FencedError: another process is changing the layout of the same route.
    """
    cluster = aggregate_cluster(route.target)
    admin = TopicAdmin(cluster, config.cluster(cluster), timeout_ms=10_000)
    replicas = config.cluster(cluster).replication_factor
    admin.create(compacted_plan(LAYOUTS_TOPIC, replicas), Deadline.after_ms(_TIMEOUT_MS))
    settle_changes(config, cluster)
    current, topics = read_layout(config, route), topics_chosen(config, route)
    if current is not None and current.topics not in ("", topics):
        _refuse_rival(config, route, admin, current, topics)
    if _is_as(current, shards) and current.topics == topics:
        return current
    with change_of_layout(config, route) as writer:
        current = read_layout(config, route)  # again: this process is now the only one that writes it
        if not _is_as(current, shards):
            current = _changed(config, route, admin, writer, current, shards, reached)
        if current.topics != topics:
            current = replace(current, topics=topics)
            writer.commit([writer.layout_record(current)])
    log.info("layout_settled", route=str(route), layout=current.layout, shards=current.shards)
    return current


def begin_layout(
    config: Config, route: Route, admin: TopicAdmin, changes: Callable[[], Sequence[PartitionChange]]
) -> LayoutRecord:
    """Begin a route that was never copied with what is known of it: its first layout, whose snapshots hold these changes.

    Args:
        config: all configuration.
        route: the route.
        admin: the target cluster.
        changes: asked once nobody else can write the layout. May raise: nothing is written then.

    Raises:
        RefusedError: the route has a layout.
        RunLogError: its run log was written to.
        FencedError: another process is changing the layout of the same route.
        ClusterUnavailableError: the target cluster did not answer in time.
    """
    replicas = config.cluster(admin.cluster).replication_factor
    admin.create(compacted_plan(LAYOUTS_TOPIC, replicas), Deadline.after_ms(_TIMEOUT_MS))
    shards = config.replicator.shards_per_route
    settle_changes(config, admin.cluster)
    with change_of_layout(config, route) as writer:
        found = changes()
        if read_layout(config, route) is not None:
            raise RefusedError(f"{admin.cluster}: {route} has a layout: it is copied already")
        return _first(config, route, writer, _run_log(config, route, admin, None, shards), shards, found)


def ensure_layouts(config: Config, routes: Sequence[Route], shards: int) -> dict[Route, int]:
    """The number of each route's layout, once it is cut into so many shards (`ensure_layout`).

    A route whose run log is refused, where its layout had to change, is left out and told of: the others go on.

    Raises:
        RunLogError: all of them are.
        ParallaxError: as `ensure_layout`, for anything else.
    """
    layouts: dict[Route, int] = {}
    refused: RunLogError | None = None
    for route in routes:
        try:
            layouts[route] = ensure_layout(config, route, shards).layout
        except RunLogError as error:
            refused = error
            log.error("run_log_refused", route=str(route), problem=str(error))  # noqa: TRY400 - it names its place
    if refused is not None and not layouts:
        raise refused
    return layouts


def _is_as(current: LayoutRecord | None, shards: int) -> TypeGuard[LayoutRecord]:
    """Whether nothing has to change. If the run log is still the same is for each lease to see: the other routes go on."""
    return current is not None and current.settled and current.shards == shards


def _changed(
    config: Config,
    route: Route,
    admin: TopicAdmin,
    writer: Writer,
    current: LayoutRecord | None,
    shards: int,
    reached: Callable[[str], None],
) -> LayoutRecord:
    run_log = _run_log(config, route, admin, current, shards)
    if current is not None and current.is_rebuilt:
        raise unfinished_rebuild(current, route)
    if current is None:
        current = _first(config, route, writer, run_log, shards, ())
    if not current.settled:
        current = _move(config, route, writer, current, reached)
    if current.shards != shards:
        following = LayoutRecord(
            current.layout + 1,
            shards,
            settled=False,
            run_log=run_log.topic,
            run_log_id=run_log.topic_id,
            previous_shards=current.shards,
            topics=topics_chosen(config, route),
        )
        writer.commit([writer.layout_record(following)])
        reached("announced")
        current = _move(config, route, writer, following, reached)
    return current


def _first(
    config: Config,
    route: Route,
    writer: Writer,
    run_log: TopicInfo,
    shards: int,
    changes: Sequence[PartitionChange],
) -> LayoutRecord:
    """Write the first layout, and its shards' snapshots, which begin with these changes."""
    first = LayoutRecord(
        FIRST_LAYOUT,
        shards,
        settled=True,
        run_log=run_log.topic,
        run_log_id=run_log.topic_id,
        topics=topics_chosen(config, route),
    )
    writer.commit([*snapshots(config, route, first, {}, changes), writer.layout_record(first)])
    return first


def topics_chosen(config: Config, route: Route) -> str:
    """Which topics the route copies, as text that is the same for the same choice."""
    choice = config.topic_choice(route)
    told: dict[str, object] = _patterns(choice.general)
    if choice.own != Patterns():
        told["route"] = _patterns(choice.own)
    if choice.builtin:
        told["builtin_excludes"] = True
    if not (naming := config.route_topics(route).naming).keeps:
        told["naming"] = naming.template
    if choice.residency:
        told["residency"] = sorted([rule.match, *sorted(rule.regions)] for rule in choice.residency)
    return json.dumps(told)


def _patterns(patterns: Patterns) -> dict[str, object]:
    return {"include": sorted(patterns.include), "exclude": sorted(patterns.exclude)}


def _refuse_rival(
    config: Config, route: Route, admin: TopicAdmin, current: LayoutRecord, topics: str
) -> None:
    """Refuse to take the route from a replicator that copies other topics, as it would take it back for ever.

    One that copies writes watermarks all the time. After one that has ended the topics may have changed.

    Raises:
        RefusedError: the run log grows.
    """
    places = [TopicPartition(TopicName(current.run_log), shard) for shard in range(current.shards)]
    before = admin.log_ranges(places)
    SystemClock().sleep_ms(_WATCHED_INTERVALS * config.replicator.watermark_interval_ms)
    after = admin.log_ranges(places)
    if any(place in before and after[place].high_watermark > before[place].high_watermark for place in after):
        raise RefusedError(
            f"OTHER_TOPICS: {aggregate_cluster(route.target)}: another replicator is copying {route}, with other topics: {current.topics}; "
            f"here they are {topics}. The two would take the route from each other for ever. Stop that one, or give "
            "both the same topics (sections 'topics' and 'routes')"
        )


def change_of_layout(config: Config, route: Route) -> Writer:
    """The writer that alone changes the route's layout, to be entered: whoever was at it before is fenced."""
    settings = client_settings(config.cluster(aggregate_cluster(route.target)), client_id="parallax-layout")
    return Writer(settings, route, change_id(route))


def _run_log(
    config: Config, route: Route, admin: TopicAdmin, current: LayoutRecord | None, shards: int
) -> TopicInfo:
    """The route's run log with a partition for each shard.

    Raises:
        RunLogError: it is not the topic that the layout knows; or there is no layout, and it holds entries.
    """
    topic = run_log_topic(config, route.source)
    replicas = config.cluster(admin.cluster).replication_factor
    plan = run_log_plan(topic, shards, config.replicator.run_log_retention_ms, replicas)
    if current is None:
        info = admin.create(plan, Deadline.after_ms(_TIMEOUT_MS))
        spans = admin.log_ranges([TopicPartition(topic, shard) for shard in range(info.partitions)])
        if any(_was_written(config, route, item, span) for item, span in spans.items()):
            raise RunLogError(
                RunLogProblem.LAYOUT_MISSING,
                f"{admin.cluster}: {route}",
                f"{LAYOUTS_TOPIC} has no record of the route, but its run log {topic} was written to",
            )
    else:
        found = admin.topics().get(topic)
        if found is None or found.topic_id != current.run_log_id:
            raise other_run_log(current, None if found is None else found.topic_id, route)
        info = found
    if info.partitions < shards:  # one for each shard; they never become fewer
        info = admin.grow(topic, shards, Deadline.after_ms(_TIMEOUT_MS))
    return info


def _was_written(config: Config, route: Route, run_log: TopicPartition, span: LogRange) -> bool:
    """Whether the partition holds entries, or held some; what a first change of layout left undone is none."""
    if span.high_watermark == span.low_watermark:
        return span.high_watermark > 0
    reader = KafkaRunLog(config, route, run_log.partition)
    return any(True for _ in reader.read(span.low_watermark, span.high_watermark))


def other_run_log(layout: LayoutRecord, found: TopicId | None, route: Route) -> RunLogError:
    """The error that the run log is not the topic that the layout knows.

    Args:
        layout: the route's layout.
        found: the id of the topic that there is now; None: there is none.
        route: the route.
    """
    where = f"{aggregate_cluster(route.target)}: {route}"
    if found is None:
        what = f"the run log {layout.run_log} (id {layout.run_log_id}) is gone"
        return RunLogError(RunLogProblem.RUN_LOG_MISSING, where, what)
    what = (
        f"the run log {layout.run_log} was deleted and created anew: its id is {found}, and the states were in "
        f"{layout.run_log_id or 'a topic of unknown id'}"
    )
    return RunLogError(RunLogProblem.RUN_LOG_REPLACED, where, what)


def unfinished_rebuild(layout: LayoutRecord, route: Route) -> RunLogError:
    """The error that a rebuild has announced the layout and has not settled it."""
    where = f"{aggregate_cluster(route.target)}: {route}"
    what = f"a rebuild of its run log has announced layout {layout.layout}, and has not come to its end: it is to be given again"
    return RunLogError(RunLogProblem.REBUILD_UNFINISHED, where, what)


def _move(
    config: Config, route: Route, writer: Writer, to: LayoutRecord, reached: Callable[[str], None]
) -> LayoutRecord:
    """Fence the owners of the layout before, and let its states be the first snapshots of this one, which is settled."""
    fence_shards(config, route, to.layout - 1, to.previous_shards)
    reached("fenced")
    states: dict[TopicPartition, PartitionState] = {}
    for shard in range(to.previous_shards):
        lease = Lease(route, shard, to.previous_shards, to.layout - 1, epoch=0, deadline_unix_ms=0)
        settle(config, lease, PATHS)
        reader = KafkaRunLog(config, route, shard)
        states |= load_states(reader, shard_in(to, lease), unexplained=unexplained_in(config, lease))[0]
    reached("loaded")
    settled = replace(to, settled=True)
    writer.commit([*snapshots(config, route, settled, states), writer.layout_record(settled)])
    reached("settled")
    return settled


def shard_in(layout: LayoutRecord, lease: Lease) -> Shard:
    """The lease's shard, whose entries lie in the layout's run log."""
    run_log = TopicPartition(TopicName(layout.run_log), lease.shard)
    return Shard(aggregate_cluster(lease.route.target), run_log, layout.run_log_id, lease.layout)


def unexplained_in(config: Config, lease: Lease) -> Callable[[States], Mapping[TopicPartition, int]]:
    """Counts the records on the target that only entries which are lost can have told of (`load_states`)."""
    return lambda states: unexplained_records(config, lease, states)


def snapshots(
    config: Config,
    route: Route,
    layout: LayoutRecord,
    states: Mapping[TopicPartition, PartitionState],
    changes: Sequence[PartitionChange] = (),
) -> Iterator[Record]:
    """The first records of the layout: each shard's snapshot, with what the states of some partitions came from."""
    for shard in range(layout.shards):
        entry = encode(
            run_log_id=layout.run_log_id,
            layout=layout.layout,
            shard=shard,
            path="layout",
            changes=[
                change for change in changes if shard_of(change.state.topic_partition, layout.shards) == shard
            ],
            everything={
                item: state for item, state in states.items() if shard_of(item, layout.shards) == shard
            },
            committed_at_ms=SystemClock().now_ms(),
            run_log_leader_epoch=KafkaRunLog(config, route, shard).leader_epoch(),
        )
        for piece in pieces_of(entry):
            yield layout.run_log, shard, None, piece.SerializeToString()


def fence_shards(config: Config, route: Route, layout: int, shards: int) -> None:
    """Fence the owners of every shard of a layout.

    Raises:
        ClusterUnavailableError: the target cluster did not answer in time.
    """
    for shard in range(shards):
        for path in PATHS:
            fence(config, Lease(route, shard, shards, layout, epoch=0, deadline_unix_ms=0), path)


def fence(config: Config, lease: Lease, path: str) -> None:
    """Fence whoever copies the lease's shard on this path.

    Raises:
        ClusterUnavailableError: the target cluster did not answer in time.
    """
    cluster = aggregate_cluster(lease.route.target)
    settings = client_settings(config.cluster(cluster), client_id=f"parallax-{lease.route.source}")
    with Writer(settings, lease.route, transactional_id(lease.route, lease.layout, lease.shard, path)):
        pass


class Writer:
    """A transactional producer; initialising it fences whoever had its id before.

    Every call raises `ConfigError` where the id is not allowed.
    """

    def __init__(self, settings: Settings, route: Route, transactional: str) -> None:
        self._route = route
        self._cluster = aggregate_cluster(route.target)
        self._transactional_id = transactional
        self._producer = Producer({**settings, "transactional.id": transactional, "acks": "all"})

    def __enter__(self) -> Self:
        self._try("initialising a transactional id", self._producer.init_transactions, _TIMEOUT_MS / 1_000)
        return self

    def __exit__(self, *_: object) -> None:
        del self._producer  # letting go of it waits for nothing, which close() does

    def layout_record(self, layout: LayoutRecord) -> Record:
        """The route's layout as a record."""
        return LAYOUTS_TOPIC, 0, str(self._route).encode(), layout.encoded()

    def commit(self, records: Iterable[Record]) -> None:
        """Write the records in one transaction: all of them, or, once another has the id, none.

        Raises:
            FencedError: another has.
            ClusterUnavailableError: the cluster did not answer in time; they may be written or not.
        """
        self._try("beginning a transaction", self._producer.begin_transaction)
        topics = set()
        for topic, partition, key, value in records:
            topics.add(topic)
            self._producer.produce(topic, value=value, key=key, partition=partition)
        doing = f"writing to {', '.join(sorted(topics))}"
        self._try(doing, self._producer.commit_transaction, _TIMEOUT_MS / 1_000)

    def _try(self, doing: str, method: Callable[..., object], *args: object) -> None:
        try:
            method(*args)
        except KafkaException as error:
            if error.args[0].code() == ID_NOT_ALLOWED:
                raise id_not_allowed(self._cluster, self._transactional_id, doing) from error
            raise translated(error, self._cluster, doing) from error
