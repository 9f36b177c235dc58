"""Leaves clusters without waiting for them: the one that is left may be dead."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from parallax.consumer.commits import COORDINATOR_WITHIN_S, missing_commits, named
from parallax.consumer.delivery import key_of
from parallax.consumer.ports import InnerConsumer
from parallax.runtime.deadline import Deadline

_log = structlog.get_logger("parallax.failover_consumer")

ASK_EVERY_S = 0.5
"""Between two attempts to find the coordinator of a cluster that does not answer."""
_LEFT_WITHIN_MS = 5_000
_COMMITTED_WITHIN_MS = 5_000
_POLL_S = 0.05
_COMMIT_EVERY_S = 0.1
_NO_ANSWER = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - librdkafka's own code
        KafkaError._TIMED_OUT,  # noqa: SLF001 - as above
        KafkaError._TRANSPORT,  # noqa: SLF001 - as above
        KafkaError._WAIT_COORD,  # noqa: SLF001 - as above
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

_PASSES_BY = _NO_ANSWER | {KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
"""Why a commit is refused that will be taken a moment later; after any other refusal what another member commits counts."""


class Leaving:
    """Closes inner consumers in threads of their own.

    A cluster that died with a member of the group comes back with that member, and whoever joins then waits until
    its session has timed out (45 s by default). So the inner consumer of a cluster that does not answer is kept,
    and its membership with it, until it can say that it leaves. librdkafka gives the membership up when a session's
    time has passed; who is back before the cluster has noticed takes its old place by its instance id (KIP-345).

    A member with an instance id does not leave by closing: a process that is started again shall find its place.
    Who moves to another cluster does leave, or the group would be thought to consume here until its session ends.

    Args:
        own_member_ids: members make up their ids themselves, and keep them (KIP-848).
    """

    def __init__(self, *, own_member_ids: bool = False) -> None:
        self._own_member_ids = own_member_ids
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    def leave(
        self,
        inner: InnerConsumer,
        region: str,
        topics: Sequence[str],
        commits: Sequence[TopicPartition],
        *,
        give_up_place: bool,
    ) -> None:
        """Leave the group in the background, once the cluster answers.

        Args:
            inner: the consumer; nobody else uses it any more.
            region: whose cluster it consumed, for logs.
            topics: topics of the group.
            commits: sent by this consumer before; one that does not stand is sent again. Whoever waits until the
                group has left goes by what is committed then, and would read again what is missing there.
            give_up_place: the place of its instance id too.
        """

        def close() -> None:
            try:
                try:
                    self._await_coordinator(inner, region, topics)
                    self._see_commits_stand(inner, region, commits)
                    if give_up_place and topics:
                        self._leave_group(inner)
                finally:
                    inner.close()
            except (KafkaException, RuntimeError) as error:
                _log.warning("leaving_failed", region=region, error=str(error))

        # A daemon: the handle of a dead cluster must not keep the application from ending.
        thread = threading.Thread(target=close, name=f"parallax-leave-{region}", daemon=True)
        thread.start()
        self._threads = [item for item in self._threads if item.is_alive()] + [thread]

    def wait(self, timeout_ms: float) -> bool:
        """Close all of them now, whether their clusters answer or not.

        Returns:
            Whether all were closed within ``timeout_ms``.
        """
        self._closing.set()
        deadline = Deadline.after_ms(timeout_ms)
        for thread in self._threads:
            thread.join(deadline.remaining_s)
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            _log.warning("leaving_takes_long", threads=late, waited_ms=timeout_ms)
        return not late

    def _await_coordinator(self, inner: InnerConsumer, region: str, topics: Sequence[str]) -> None:
        if not topics:
            return
        place = TopicPartition(topics[0], 0)
        told = False
        while not self._closing.is_set() and not _answers(inner, place):
            if not told:
                _log.info("leaving_waits", region=region, reason="the cluster does not answer")
                told = True
            inner.poll(0)  # a member that does not poll is put out of the group
            self._closing.wait(ASK_EVERY_S)

    def _see_commits_stand(
        self, inner: InnerConsumer, region: str, commits: Sequence[TopicPartition]
    ) -> None:
        deadline = Deadline.after_ms(_COMMITTED_WITHIN_MS)
        problem, sent = "", commits
        while commits and not deadline.passed:
            try:
                commits = missing_commits(inner, commits)
                if not commits:
                    return
                _log.warning("last_commit_repeated", region=region, partitions=named(commits), why=problem)
                sent = commits
                answer = inner.commit(offsets=commits, asynchronous=False) or ()
                errors = {key_of(item): item.error for item in answer if item.error is not None}
                commits = [item for item in commits if _passes_by(errors.get(key_of(item)))]
                problem = "; ".join(sorted({str(error) for error in errors.values()}))
            except KafkaException as error:
                problem = str(error)
                if not _passes_by(error.args[0]):
                    break
            inner.poll(0)  # joining anew goes on by this, and commits are refused until that is done
            if self._closing.wait(_COMMIT_EVERY_S):
                break
        if problem:
            _log.warning("last_commit_refused", region=region, partitions=named(sent), why=problem)

    def _leave_group(self, inner: InnerConsumer) -> None:
        """Say that this member leaves; a cluster that does not answer is not waited for.

        librdkafka puts it off while it joins, and a member with an instance id that is closed meanwhile keeps its
        place until its session ends. It forgets the member id that a coordinator has given as it says that it leaves.
        """
        inner.unsubscribe()
        deadline = Deadline.after_ms(_LEFT_WITHIN_MS)
        inner.poll(_POLL_S)
        while not deadline.passed and (inner.assignment() or (inner.memberid() and not self._own_member_ids)):
            inner.poll(_POLL_S)


def _passes_by(error: KafkaError | None) -> bool:
    return error is not None and error.code() in _PASSES_BY


def _answers(inner: InnerConsumer, place: TopicPartition) -> bool:
    """Whether the group's coordinator answers, be it with an error."""
    try:
        inner.committed([place], COORDINATOR_WITHIN_S)
    except KafkaException as error:
        return error.args[0].code() not in _NO_ANSWER
    return True
