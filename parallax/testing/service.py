"""An offset service in memory: it answers by looking at the records, and knows nothing of offset arithmetic."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from parallax.consumer.ports import Key
from parallax.errors import ServiceUnavailableError, UnknownRegionError, UnknownTopicError
from parallax.testing.cluster import MemoryCluster, SourceRecord
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2

ConsumedVector = dict[str, int]
"""How far a group has consumed: by region the next offset there."""

_LOOK_AGAIN_S = 0.002
_AWAY_S = 0.005


class MemorySkips:
    """What `OffsetClient.watch_skips` returns: an iterator that can be closed.

    Args:
        updates: what it gives.
        closed: set by `close`.
    """

    def __init__(self, updates: Iterator[pb.SkipUpdate], closed: threading.Event) -> None:
        self._updates = updates
        self._closed = closed

    def __iter__(self) -> MemorySkips:
        return self

    def __next__(self) -> pb.SkipUpdate:
        return next(self._updates)

    def close(self) -> None:
        """End."""
        self._closed.set()


class MemoryDecisions:
    """What `OffsetClient.watch_primary` returns: what was decided, and every later decision."""

    def __init__(self) -> None:
        self._decisions: queue.SimpleQueue[primaries_pb2.Primary | Exception | None] = queue.SimpleQueue()

    def put(self, decision: primaries_pb2.Primary | Exception) -> None:
        """The next one, or what goes wrong in place of it."""
        self._decisions.put(decision)

    def __iter__(self) -> MemoryDecisions:
        return self

    def __next__(self) -> primaries_pb2.Primary:
        decision = self._decisions.get()
        if decision is None:
            raise StopIteration
        if isinstance(decision, Exception):
            raise decision
        return decision

    def close(self) -> None:
        """End."""
        self._decisions.put(None)


class MemoryService:
    """`OffsetClient`, which answers by looking at the logs, as a service whose index is complete.

    Args:
        clusters: the aggregate clusters by region.

    Attributes:
        away: no offset service answers.
        reports: what consumers have reported, in order.
        progress: by group, region, topic and partition where the group resumed when it last moved there, and what it
            had consumed then.
        most_ranges: so many skip ranges are told at once.
    """

    def __init__(self, clusters: Mapping[str, MemoryCluster]) -> None:
        self.clusters = clusters
        self.away = False
        self.reports: list[pb.ReportPositionsRequest] = []
        self.progress: dict[tuple[str, str, Key], tuple[int, ConsumedVector]] = {}
        self._seen: dict[tuple[str, str, Key], int] = {}
        self.most_ranges = 1_000
        self._decided: dict[str, primaries_pb2.Primary] = {}
        self._watches: dict[str, list[MemoryDecisions]] = defaultdict(list)

    # --- where to resume ----------------------------------------------------------------------------------

    def get_group_failover_offsets(
        self,
        group: str,
        *,
        to: pb.Place,
        origin: pb.Place | None = None,
        positions: Iterable[pb.PartitionPosition] = (),
        topics: Iterable[str] = (),
        record_move: bool = False,  # noqa: ARG002 - the client's own signature
        timeout_ms: float | None = None,  # noqa: ARG002 - as above
    ) -> pb.GetGroupFailoverOffsetsResponse:
        """Where every partition resumes, from the positions given or else from what is committed."""
        self._check()
        wanted = set(topics)
        if not wanted <= {topic for cluster in self.clusters.values() for topic, _ in cluster.logs}:
            raise UnknownTopicError(f"one of {sorted(wanted)} is known to no cluster")
        region = to.region if origin is None else origin.region
        self._look(group, region)
        given = {(item.topic, item.partition): item.next_offset for item in positions}
        committed = {key: offset for key, (offset, _) in self.clusters[region].groups[group].items()}
        keys = sorted(set(given) | {key for key in committed if not wanted or key[0] in wanted})
        offsets = [
            self.answer(group, region, to.region, key, given.get(key, committed.get(key, 0))) for key in keys
        ]
        return pb.GetGroupFailoverOffsetsResponse(offsets=offsets, outcome=pb.OK if offsets else pb.NO_COMMIT)

    def answer(self, group: str, origin: str, to: str, key: Key, next_offset: int) -> pb.FailoverOffset:
        """Where one partition resumes that was consumed below ``next_offset`` of ``origin``."""
        vector = self.consumed(group, origin, key, next_offset)
        log = list(self.clusters[to].logs[key])
        resume = next((offset for offset, record in enumerate(log) if _is_new(record, vector)), len(log))
        pending = _pending(log, vector)
        ranges = _skip_ranges(log, resume, vector)
        answer = pb.FailoverOffset(
            group=group,
            topic=key[0],
            partition=key[1],
            resume_offset=resume,
            outcome=pb.PENDING if pending else pb.OK,
            pending_records=pending,
            progress=[pb.SourceProgress(region=r, source_next_offset=n) for r, n in sorted(vector.items())],
            skip_ranges=ranges[: self.most_ranges],
            skip_ranges_continue_at=ranges[self.most_ranges].start
            if len(ranges) > self.most_ranges
            else None,
            complete_to=len(log) if pending else None,
        )
        answer.to.topic_id = f"{to}-id"
        answer.to.high_watermark = len(log)
        origin_side: pb.ClusterPosition = getattr(answer, "from")
        origin_side.next_offset = origin_side.indexed_to = next_offset
        if not self.clusters[origin].dead:
            origin_side.high_watermark = len(self.clusters[origin].logs[key])
        return answer

    def consumed(self, group: str, region: str, key: Key, next_offset: int) -> ConsumedVector:
        """What a group has consumed below an offset, an earlier move included."""
        vector = _vector_of(self.clusters[region].logs[key][:next_offset])
        resumed_at, moved = self.progress.get((group, region, key), (0, {}))
        if next_offset >= resumed_at:
            vector = {name: max(vector.get(name, 0), moved.get(name, 0)) for name in {*vector, *moved}}
        return vector

    def watch_skips(
        self,
        topic: str,
        partition: int,
        *,
        at: pb.Place,
        target_topic_id: str,
        progress: Iterable[pb.SourceProgress],
        start: int,
        origin: pb.Place | None = None,
    ) -> MemorySkips:
        """Skip ranges as records come, until nothing is pending."""
        if origin is not None and origin.region not in self.clusters:
            raise UnknownRegionError(f"region {origin.region!r} is none of {', '.join(self.clusters)}")
        vector = {item.region: item.source_next_offset for item in progress}
        closed = threading.Event()
        log = self.clusters[at.region].logs[topic, partition]

        def updates() -> Iterator[pb.SkipUpdate]:
            place = start
            told = False
            while not closed.is_set():
                if self.away:
                    closed.wait(_AWAY_S)
                    continue
                if target_topic_id != self.topic_id(at.region):
                    raise UnknownTopicError("the topic was created anew")
                records = list(log)
                pending = _pending(records, vector)
                if told and len(records) <= place and pending:
                    closed.wait(_LOOK_AGAIN_S)
                    continue
                ranges = _skip_ranges(records, place, vector)
                cut = len(ranges) > self.most_ranges
                update = pb.SkipUpdate(skip_ranges=ranges[: self.most_ranges])
                if cut:
                    place = update.complete_to = ranges[self.most_ranges].start
                elif pending:
                    place = update.complete_to = max(place, len(records))
                told = True
                yield update
                if not cut and not pending:
                    return

        return MemorySkips(updates(), closed)

    def topic_id(self, region: str) -> str:
        """The id of all topics in a region now; another one than an answer's says that they were created anew."""
        return f"{region}-id"

    def report_positions(
        self,
        group: str,
        *,
        at: pb.Place,
        positions: Iterable[pb.PartitionPosition],
        moves: Iterable[pb.PartitionMove] = (),
        timeout_ms: float | None = None,  # noqa: ARG002 - the client's own signature
    ) -> pb.ReportPositionsResponse:
        """Keep what a consumer reports; a move counts from then on."""
        self._check()
        request = pb.ReportPositionsRequest(group=group, at=at, positions=positions, moves=moves)
        self.reports.append(request)
        self._look(group, at.region)
        for move in request.moves:
            vector = {item.region: item.source_next_offset for item in move.progress}
            key = group, at.region, (move.topic, move.partition)
            self.progress[key] = (move.resume_offset, vector)
            self._seen.pop(key, None)
        return pb.ReportPositionsResponse()

    def _look(self, group: str, region: str) -> None:
        """A group whose commit vanishes, or goes back, since its last move inherits nothing of that."""
        cluster = self.clusters[region]
        if cluster.dead:
            return
        committed = cluster.groups.get(group, {})
        for place in [item for item in self.progress if item[:2] == (group, region)]:
            offset = committed[place[2]][0] if place[2] in committed else None
            seen = self._seen.get(place)
            if seen is not None and (offset is None or offset < seen):
                del self.progress[place], self._seen[place]
            elif offset is not None:
                self._seen[place] = offset

    # --- primaries ----------------------------------------------------------------------------------------

    def record_primary(self, decided: primaries_pb2.Primary) -> None:
        """Record where a group is primary, and tell those that watch."""
        self._decided[decided.group] = decided
        for watch in self._watches[decided.group]:
            watch.put(decided)

    def get_primary(self, group: str, *, timeout_ms: float | None = None) -> primaries_pb2.Primary:  # noqa: ARG002 - as above
        """Where the group is primary; without ``decision`` if nothing was decided."""
        self._check()
        return self._decided.get(group, primaries_pb2.Primary(group=group))

    def describe_regions(
        self,
        *,
        groups: Iterable[str] = (),  # noqa: ARG002 - as above
        topics: Iterable[str] = (),  # noqa: ARG002 - as above
        timeout_ms: float | None = None,  # noqa: ARG002 - as above
    ) -> primaries_pb2.DescribeRegionsResponse:
        """The regions; every group and topic is chosen."""
        self._check()
        return primaries_pb2.DescribeRegionsResponse(
            regions=[
                primaries_pb2.RegionDescription(
                    region=region,
                    aggregate=primaries_pb2.ClusterDescription(cluster=f"aggregate-{region}"),
                )
                for region in self.clusters
            ]
        )

    def watch_primary(self, group: str) -> MemoryDecisions:
        """Where the group is primary, and every later decision."""
        watch = MemoryDecisions()
        watch.put(self._decided.get(group, primaries_pb2.Primary(group=group)))
        self._watches[group].append(watch)
        return watch

    def close(self) -> None:
        """Nothing to close."""

    def _check(self) -> None:
        if self.away:
            raise ServiceUnavailableError("no target answered")


def _vector_of(records: Iterable[SourceRecord | None]) -> ConsumedVector:
    """How far each region is in the records; each region's come in order and without holes."""
    vector: ConsumedVector = {}
    for record in records:
        if record is not None:
            vector[record[0]] = max(vector.get(record[0], 0), record[1] + 1)
    return vector


def _is_new(record: SourceRecord | None, vector: ConsumedVector) -> bool:
    return record is not None and record[1] >= vector.get(record[0], 0)


def _pending(log: Iterable[SourceRecord | None], vector: ConsumedVector) -> int:
    """Records that were consumed and are not in the log."""
    there = _vector_of(log)
    return sum(max(0, end - there.get(region, 0)) for region, end in vector.items())


def _skip_ranges(log: list[SourceRecord | None], start: int, vector: ConsumedVector) -> list[pb.OffsetRange]:
    """Maximal ranges of consumed records from ``start`` on."""
    ranges: list[pb.OffsetRange] = []
    for offset in range(start, len(log)):
        if log[offset] is None or _is_new(log[offset], vector):
            continue
        if ranges and ranges[-1].end == offset:
            ranges[-1].end = offset + 1
        else:
            ranges.append(pb.OffsetRange(start=offset, end=offset + 1))
    return ranges
