"""The copy loop of one shard between a start and the first thing that goes wrong.

Everything that it knows comes from the run log, and changes only by a committed entry. It never repairs itself:
whatever goes wrong ends the session, and the next one begins from the run log (`replicator.shard`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

import structlog

from parallax.config.config import Replicator
from parallax.domain.ids import UNKNOWN_EPOCH, SourceOffset, TopicName, TopicPartition
from replicator.copying.kept import RunHistory, UndoneRecords
from replicator.copying.ledger import Ledger
from replicator.copying.ports import (
    Clock,
    Damaged,
    EndReached,
    LogEnd,
    NotAllowed,
    OutOfRange,
    PassedOver,
    ReadFrom,
    RecordBlock,
    SourceEvent,
    SourceReader,
    Survey,
    Surveyor,
    TargetWriter,
    TopicChanged,
)
from replicator.copying.reconcile import PartitionDecision, changes_for, decide, read_from
from replicator.copying.session_end import Absences, SessionError, Stop, Stops
from replicator.copying.state import PartitionChange
from replicator.lease import Lease, PartitionProgress, PartitionStatus

log = structlog.get_logger(__name__)

MAX_RECORDS_PER_POLL = 5_000
_NEARLY_CAUGHT_UP_RECORDS = 500
_LONGEST_POLL_MS = 50
_KNOWN_REQUESTS = 8

_Known = tuple[Mapping[TopicPartition, SourceOffset], Mapping[TopicPartition, OutOfRange], int]
"""Positions, partitions out of range, and when that was, ms since 1970."""


class SurveyRequests:
    """When the next survey is due, and what was known when each was requested."""

    def __init__(self, surveyor: Surveyor, clock: Clock) -> None:
        self._surveyor = surveyor
        self._clock = clock
        self._known: dict[int, _Known] = {}
        self._requested_at_ms = clock.monotonic_ms()
        self._without_end = math.inf
        self._soon = False

    def due(self, interval_ms: float) -> bool:
        """Whether the next survey is to be requested, which happens once in that time at least."""
        return self._soon or self._clock.monotonic_ms() - self._requested_at_ms >= interval_ms

    def note_without_end(self, partitions: int) -> None:
        """So many partitions can't begin before the target tells their ends.

        Those of a topic that was just created get their leaders one by one. The next survey is due at once when some are
        without for the first time, and as long as they become fewer.
        """
        self._soon = 0 < partitions < self._without_end
        self._without_end = partitions or math.inf

    def request(
        self,
        positions: Mapping[TopicPartition, SourceOffset],
        out_of_range: Mapping[TopicPartition, OutOfRange],
        refused: Collection[TopicName],
    ) -> None:
        """Request a survey, knowing these positions, these partitions to be out of range, and these topics refused."""
        self._requested_at_ms, self._soon = self._clock.monotonic_ms(), False
        asked_at_ms = self._clock.now_ms()
        ticket = self._surveyor.request({item.topic for item in positions}, refused)
        self._known = {
            number: known for number, known in self._known.items() if number > ticket - _KNOWN_REQUESTS
        }
        self._known[ticket] = (dict(positions), dict(out_of_range), asked_at_ms)

    def known_at(self, ticket: int) -> _Known:
        """What was known when the survey with this ticket was requested."""
        return self._known.get(ticket, ({}, {}, 0))


class ShardSession:
    """Copies one shard.

    Args:
        lease: the shard.
        settings: intervals and bounds.
        source: where records come from.
        target: where they go; initialised, so that older owners are fenced.
        surveyor: tells of topics.
        clock: time.
        ledger: what is committed at the target, and what is about to be.
        history: rows for finding the source of a cut, should the target have lost its tail.
        stops: what can't go on, as earlier sessions of this lease have found and this one will.
        absences: since when topics are gone.
        goal: what an earlier session of this lease found to be the source's end (``available_now``).
        stops_at_recreated: as `decide` has it.
    """

    def __init__(
        self,
        lease: Lease,
        settings: Replicator,
        *,
        source: SourceReader,
        target: TargetWriter,
        surveyor: Surveyor,
        clock: Clock,
        ledger: Ledger,
        history: RunHistory,
        stops: Stops,
        absences: Absences,
        goal: Mapping[TopicPartition, SourceOffset] | None,
        stops_at_recreated: bool = False,
    ) -> None:
        self._lease = lease
        self._settings = settings
        self._source = source
        self._target = target
        self._surveyor, self._requests = surveyor, SurveyRequests(surveyor, clock)
        self._ledger = ledger
        self._history = history
        self._stops, self._absences, self._clock = stops, absences, clock
        self._behind: set[TopicPartition] = set()
        """Partitions whose target ends below what was committed, or has got another leader."""
        self._kept: set[TopicPartition] = set()
        """Partitions whose target is known to hold what was committed before this session: only these are read."""
        self._reading: dict[TopicPartition, SourceOffset] = {}
        """The next offset that the source may hand out, by partition that is being read."""
        self._skipped_to: dict[TopicPartition, SourceOffset] = {}
        """How far nothing visible follows what is committed."""
        self._status: dict[TopicPartition, tuple[PartitionStatus, str]] = {}
        self._absent: set[TopicPartition] = set()
        self._still_absent: set[TopicPartition] = set()
        """So two surveys have said; a broker may forget to name a topic for a moment."""
        self._source_logs: Mapping[TopicPartition, LogEnd] = {}
        """As last surveyed."""
        self._out_of_range: dict[TopicPartition, OutOfRange] = {}
        self.goal, self._stops_at_recreated = goal, stops_at_recreated
        self._request_survey()

    # --- the loop ----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do what is to be done now; waits a little while there is nothing.

        Raises:
            FencedError: another owner has taken over.
            SessionError: the session is over; its open transaction is void.
            ClusterUnavailableError: the target failed; as above.
        """
        survey = self._surveyor.result()
        if survey is not None:
            self._ledger.counts.survey_failures += survey.failed
            self._reconcile(survey)
        if self._requests.due(self._settings.discovery_interval_ms):
            self._request_survey()
        began_ms = self._clock.monotonic_ms()
        events = self._source.poll(MAX_RECORDS_PER_POLL, self._patience_ms())
        self._ledger.counts.source_wait_ms += self._clock.monotonic_ms() - began_ms
        for event in events:
            self._take_in(event)
            if self._ledger.full():
                self.commit()
        if self._ledger.open is not None:
            self._target.serve()
        if self._commit_due() or self._ledger.watermarks_due():
            self.commit()

    def finished(self) -> bool:
        """Whether everything is copied that the source held when it was first seen (``available_now``)."""
        if self.goal is None or self._ledger.open is not None:
            return False
        return all(
            item in self._ledger.states and self._position(item) >= goal
            for item, goal in self.goal.items()
            if self._status.get(item, (PartitionStatus.WAITING, ""))[0] is not PartitionStatus.STOPPED
            and item not in self._still_absent
        )

    def progress(self) -> tuple[PartitionProgress, ...]:
        """Each partition's part of a report; latencies are of what was committed since the last call."""
        ends = self._source.end_offsets(self._reading)
        return self._ledger.progress(
            self._status, self._position, lambda item: self._lag(item, ends.get(item))
        )

    def _lag(self, item: TopicPartition, end: int | None) -> int:
        """Source offsets that are there and not copied, as last seen; ``end``: the reader's, where it is being read."""
        position: int = self._position(item) if item in self._ledger.states else 0
        if end is None:
            source_log = self._source_logs.get(item)
            if source_log is None:
                return 0
            end, position = source_log.high_watermark, max(position, source_log.low_watermark)
        return max(0, end - position)

    def _patience_ms(self) -> float:
        """Until what has been sent may be committed, or must be; if it may be and is not, more has to arrive first."""
        rest_ms = self._ledger.rest_ms if self._ledger.open is not None else 0.0
        return min(_LONGEST_POLL_MS, rest_ms or _LONGEST_POLL_MS, self._ledger.left_ms)

    def _commit_due(self) -> bool:
        """A bound is reached, or the source is nearly copied to its end and the pause after a commit is over."""
        opened = self._ledger.open
        if opened is None or self._ledger.full():
            return opened is not None
        if self._ledger.rest_ms:
            return False
        ends = self._source.end_offsets(opened.partitions)
        return all(
            ends.get(item, 0) - opened.source_next(item) < _NEARLY_CAUGHT_UP_RECORDS
            for item in opened.partitions
        )

    # --- what the source tells ---------------------------------------------------------------------------------

    def _take_in(self, event: SourceEvent) -> None:
        if isinstance(event, RecordBlock):
            self._copy(event)
        elif isinstance(event, EndReached):
            self._reach_end(event)
        elif isinstance(event, PassedOver):
            self._pass_over(event)
        elif isinstance(event, OutOfRange):
            if event.topic_partition in self._reading:
                self._stop_reading(event.topic_partition)
                self._out_of_range[event.topic_partition] = event
                self._request_survey()
        elif isinstance(event, Damaged):
            self._stop(event)
        elif isinstance(event, NotAllowed):
            self._leave(event)
        elif isinstance(event, TopicChanged):
            for item in [item for item in self._reading if item.topic == event.topic]:
                self._stop_reading(item)
            self._request_survey()
        else:
            log.info("source_trouble", lease=str(self._lease), problem=event.text)

    def _reach_end(self, event: EndReached) -> None:
        item = event.topic_partition
        if event.source_next >= self._reading.get(item, event.source_next + 1):
            self._reading[item] = event.source_next
            opened = self._ledger.open
            if opened is not None and item in opened:
                opened.reached_end(item, event.source_next)
            else:
                self._skipped_to[item] = event.source_next
                self._goes_on(item)

    def _pass_over(self, event: PassedOver) -> None:
        if event.topic_partition in self._reading:
            self._ledger.pass_over(event.topic_partition, event.leader_epoch)
            self._reach_end(EndReached(event.topic_partition, event.source_next))

    def _copy(self, block: RecordBlock) -> None:
        item = block.topic_partition
        next_offset = self._reading.get(item)
        if next_offset is None:
            return
        stop = self._stop_of(item)
        if stop is not None and block.offsets[-1] >= stop.source_next:
            block = block.before(stop.source_next)
            self._stop_reading(item)
            self._tell_stopped(item, stop.reason)
            if not block.offsets:
                return
        if block.offsets[0] < next_offset:
            raise SessionError(f"{item}: the source handed out offset {block.offsets[0]} after {next_offset}")
        if not self._ledger.holds(item) and block.offsets[0] < self._position(item):
            # Where nothing visible was, there are records now: that end of the source's log was thrown away.
            state = self._ledger.states[item]
            self._stop_reading(item)
            self._out_of_range[item] = OutOfRange(item, state.last_run_end, state.source_leader_epoch)
            self._request_survey()
            return
        if UNKNOWN_EPOCH < block.leader_epoch < self._ledger.states[item].source_leader_epoch:
            # The source has another log, of a leader from before: some clients compare the ends of logs alone.
            self._stop_reading(item)
            self._out_of_range[item] = OutOfRange(item, SourceOffset(block.offsets[0]), block.leader_epoch)
            self._request_survey()
            return
        self._ledger.send(block)
        if item in self._reading:
            self._reading[item] = SourceOffset(block.offsets[-1] + 1)
        self._skipped_to.pop(item, None)

    def _stop(self, event: Damaged) -> None:
        """Copy the partition up to the damage, and no further in this lease: the others go on."""
        item = event.topic_partition
        if item in self._reading:
            stop = Stop(item, self._ledger.states[item].lineage, self._reading[item], str(event.problem))
            self._stops.note(stop)
            self._tell_stopped(item, stop.reason)
            self._stop_reading(item)
            log.warning(
                "source_damaged", lease=str(self._lease), problem=event.problem.code, reason=stop.reason
            )

    def _leave(self, event: NotAllowed) -> None:
        """Leave the partition alone until the next survey, which takes it anew from what is committed."""
        item = event.topic_partition
        if item in self._reading:
            self._stop_reading(item)
            if self._tell_stopped(item, event.reason):
                log.warning("source_not_allowed", lease=str(self._lease), reason=event.reason)

    def _tell_stopped(self, item: TopicPartition, reason: str) -> bool:
        """The partition is stopped until it has gone on. Whether that is news."""
        self._status[item] = (PartitionStatus.STOPPED, reason)
        return self._stops.tell(item, reason)

    def _goes_on(self, item: TopicPartition) -> None:
        """Something of the partition was committed, or it is at its end: what stopped it before does so no longer."""
        if item in self._reading and self._stops.gone_on(item):
            self._status[item] = (PartitionStatus.COPYING, "")

    def _stop_reading(self, item: TopicPartition) -> None:
        self._source.drop([item])
        self._reading.pop(item, None)

    def _position(self, item: TopicPartition) -> SourceOffset:
        """The settled position: what is committed, and the non-records after it."""
        return max(self._ledger.states[item].source_next, self._skipped_to.get(item, SourceOffset(0)))

    # --- commit ------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit what is open together with the watermarks that are due."""
        copied = [] if self._ledger.open is None else self._ledger.open.partitions
        began_ms = self._clock.monotonic_ms()
        behind = self._ledger.commit(self._position)
        self._ledger.counts.target_wait_ms += self._clock.monotonic_ms() - began_ms
        for item in copied:
            self._goes_on(item)
        if behind:
            self._behind.update(behind)
            self._request_survey()  # the answer tells whether a topic was created anew

    # --- topics ------------------------------------------------------------------------------------------------

    def _request_survey(self) -> None:
        self._requests.request(
            {item: state.source_next for item, state in self._ledger.states.items()},
            self._out_of_range,
            self._stops.refused,
        )

    def _note_gone(self, survey: Survey) -> None:
        """Tell of topics that both sides have lost at once: about these nothing is decided."""
        if survey.source is None or survey.target is None:
            return
        there = {*survey.source, *survey.target, *survey.hidden}
        for item in {*self._status, *(self.goal or ())}:
            if item.topic in there:
                continue
            if item in self._reading:
                self._stop_reading(item)
            self._status[item] = (
                PartitionStatus.ABSENT,
                "the target has no such topic, and the source has none to copy",
            )

    def _reconcile(self, survey: Survey) -> None:
        if survey.same_cluster:
            raise SessionError(survey.same_cluster)
        # Everything settled first: what is decided now holds for the states as committed.
        if self._ledger.open is not None:
            self.commit()
        if survey.source is not None:
            kept = {item: end for item, end in self._source_logs.items() if item.topic in survey.source}
            self._source_logs = kept | dict(survey.source_logs)
        positions, out_of_range, asked_at_ms = self._requests.known_at(survey.ticket)
        self._ledger.copied_until.surveyed(
            asked_at_ms,
            survey.source_logs,
            lambda item: self._position(item) if item in self._ledger.states else None,
        )
        found = decide(
            survey,
            self._ledger.states,
            positions=positions,
            out_of_range=out_of_range,
            shard=self._lease.shard,
            shard_count=self._lease.shard_count,
            stops_at_recreated=self._stops_at_recreated,
        )
        self._stops.allow(survey.usable)
        decisions = list(map(self._unless_refused, found))
        if self.goal is None and self._lease.available_now and survey.source is not None:
            self.goal = {item: source_log.stable_end for item, source_log in survey.source_logs.items()}
        for decision in decisions:
            item, status, reason = decision.topic_partition, decision.status, decision.reason
            if (stop := self._held_by(item)) is not None:
                status, reason = PartitionStatus.STOPPED, stop.reason
                self._stops.tell(item, reason)
            known = self._status.get(item, (PartitionStatus.WAITING, ""))[0]
            if status is PartitionStatus.WAITING and (
                item in self._reading or known is not PartitionStatus.WAITING
            ):
                continue
            if item in self._reading and status is not PartitionStatus.COPYING:
                self._stop_reading(item)
            if status is PartitionStatus.COPYING and (told := self._stops.told(item)):
                status, reason = PartitionStatus.STOPPED, told  # until it has gone on
            self._status[item] = (status, reason)
        self._note_gone(survey)
        absent = {item for item, (status, _) in self._status.items() if status is PartitionStatus.ABSENT}
        self._absent, self._still_absent = absent, absent & self._absent
        readable = [
            item
            for item in decisions
            if item.status is PartitionStatus.COPYING
            and (item.topic_partition not in self._out_of_range or item.topic_partition in out_of_range)
        ]
        changing = {
            item.topic_partition: item
            for item in decisions
            if item.begins
            or item.lost_up_to is not None
            or (item.topic_partition in self._behind and not self._stops.of_topic(item.topic_partition.topic))
        }
        changing |= {
            item.topic_partition: item for item in readable if item.topic_partition not in self._reading
        }
        self._change(changing)
        self._forget(survey)
        self._read(readable)

    def _forget(self, survey: Survey) -> None:
        """Drop what is long gone: snapshots would name it for ever."""
        states, now_ms = self._ledger.states, self._clock.monotonic_ms()
        seen = None if survey.source is None else {*survey.source, *survey.hidden}
        gone = self._absences.gone({item.topic for item in states}, seen, survey.target, now_ms)
        changes = [
            PartitionChange(state, closed=True) for item, state in states.items() if item.topic in gone
        ]
        for change in changes:
            item = change.state.topic_partition
            self._status.pop(item, None)
            self._stops.gone_on(item)
            if item in self._reading:
                self._stop_reading(item)
        if changes:
            log.info("topics_forgotten", lease=str(self._lease), topics=sorted(gone))
            self._ledger.write(changes)

    def _unless_refused(self, decision: PartitionDecision) -> PartitionDecision:
        """The decision; of a topic that the target refuses, that nothing of it may be begun, lost or copied."""
        item, reason = decision.topic_partition, self._stops.of_topic(decision.topic_partition.topic)
        if not reason:
            return decision
        self._stops.tell(item, reason)
        return PartitionDecision(item, PartitionStatus.STOPPED, reason)

    def _stop_of(self, item: TopicPartition) -> Stop | None:
        stop, state = self._stops.of(item), self._ledger.states.get(item)
        return stop if stop is not None and state is not None and stop.lineage == state.lineage else None

    def _held_by(self, item: TopicPartition) -> Stop | None:
        """The stop that the partition has come to."""
        stop = self._stop_of(item)
        return stop if stop is not None and self._position(item) >= stop.source_next else None

    def _change(self, decisions: Mapping[TopicPartition, PartitionDecision]) -> None:
        """Commit the beginnings and losses that were decided, each with the target's end."""
        states = self._ledger.states
        leader_epochs = {
            item: states[item].target_leader_epoch if item in states else UNKNOWN_EPOCH for item in decisions
        }
        ends = self._target.ends(leader_epochs, patient=True)
        self._requests.note_without_end(len(decisions) - len(ends))
        self._behind -= ends.keys()
        undone = UndoneRecords(self._target, states, ends)
        changes = changes_for(decisions.values(), states, ends, history=self._history, undone=undone)
        for change in changes:
            item = change.state.topic_partition
            if item in self._reading:
                self._stop_reading(item)
            self._skipped_to.pop(item, None)
        if changes:
            self._ledger.write(changes)
        moved = [
            item
            for change in changes
            if (before := states.get(item := change.state.topic_partition)) is not None
            and before.target_leader_epoch not in {UNKNOWN_EPOCH, change.state.target_leader_epoch}
        ]
        if moved:
            # A marker may be among what is lost: what hangs without it has to be ended before this producer's next one
            # would end it, however that may be.
            raise SessionError(f"{moved[0]}: the target has another leader, which is known now")
        self._kept |= {
            item
            for item, state in self._ledger.states.items()
            if item in ends and ends[item].has_kept(state.target_floor, state.target_leader_epoch) is not None
        }

    def _read(self, decisions: Iterable[PartitionDecision]) -> None:
        """Begin to read what is to be copied, is not being read, and has no stop at its position."""
        taking: dict[TopicPartition, ReadFrom] = {}
        for decision in decisions:
            item = decision.topic_partition
            state = self._ledger.states.get(item)
            if item in self._reading or state is None or self._held_by(item) or item not in self._kept:
                continue
            if decision.begins is not None and state.lineage != decision.begins.lineage:
                continue  # not committed: the target's end was not to be had
            self._out_of_range.pop(item, None)
            taking[item] = read_from(state, decision.source_start, self._position(item))
        self._reading |= {item: place.source_next for item, place in taking.items()}
        if taking:
            self._source.take(taking)
