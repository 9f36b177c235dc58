"""Asks for further skip ranges, in the background, until nothing is pending."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from parallax.client.messages import progress_to_pb, ranges_from_pb
from parallax.consumer.ports import Key, OffsetService, SkipUpdateStream
from parallax.domain.metadata import CommittedMetadata
from parallax.domain.skips import SkipRange
from parallax.errors import ParallaxError, UnknownTopicError
from parallax.v1 import offsets_pb2 as pb

_log = structlog.get_logger("parallax.failover_consumer")

_TURN_S = 2.0
"""How long one partition's stream may keep a thread while others wait for one."""

_AGAIN_AFTER_S = 1.0
"""The pause after an answer that was an error."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Skip ranges of one partition, as they became known.

    Attributes:
        void: why nothing will become known any more: the service knows the topic no longer.
    """

    key: Key
    skip_ranges: tuple[SkipRange, ...]
    known_to: int | None
    void: str | None = None


@dataclass(slots=True)
class _Task:
    """One partition that is being watched."""

    key: Key
    skipping: CommittedMetadata
    start: int
    watch: SkipUpdateStream | None = None
    since_s: float = 0.0
    cancelled: bool = False


class SkipWatcher:
    """Watches every partition with something pending, a few at a time.

    Args:
        service: the offset service.
        region: where the group is.
        from_region: where it came from, or None if that is not known.
        threads: streams at one time; further partitions wait their turn.
    """

    def __init__(
        self,
        service: OffsetService,
        region: str,
        *,
        from_region: str | None,
        threads: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._at = pb.Place(region=region)
        self._origin = None if from_region is None else pb.Place(region=from_region)
        self._most_threads = threads
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[_Task] = deque()
        self._tasks: dict[Key, _Task] = {}
        self._learned: deque[Learned] = deque()
        self._threads = 0
        self._closed = False

    def open(self, key: Key, skipping: CommittedMetadata, known_to: int) -> None:
        """Begin to watch a partition from ``known_to`` on."""
        with self._changed:
            self._stop(key)
            task = _Task(key, skipping, known_to)
            self._tasks[key] = task
            self._waiting.append(task)
            if self._threads < min(self._most_threads, len(self._tasks)):
                self._threads += 1
                # Daemons: an application that forgets close() can still end.
                threading.Thread(target=self._work, name="parallax-skip-watch", daemon=True).start()
            self._changed.notify()

    def stop(self, key: Key) -> None:
        """Watch a partition no more."""
        with self._changed:
            self._stop(key)

    def close(self) -> None:
        """Watch nothing more."""
        with self._changed:
            self._closed = True
            for key in list(self._tasks):
                self._stop(key)
            self._changed.notify_all()

    def take(self) -> list[Learned]:
        """What has become known since the last call. Called often, it also sees to it that everyone gets a turn."""
        with self._changed:
            found = list(self._learned)
            self._learned.clear()
            if self._waiting:
                now = self._clock()
                for task in self._tasks.values():
                    if task.watch is not None and now - task.since_s > _TURN_S:
                        task.watch.close()
            return found

    def _stop(self, key: Key) -> None:
        task = self._tasks.pop(key, None)
        self._learned = deque(item for item in self._learned if item.key != key)
        if task is not None:
            task.cancelled = True
            if task.watch is not None:
                task.watch.close()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                task = self._waiting.popleft()
            if not task.cancelled and not self._watch(task):
                with self._changed:
                    if not task.cancelled:
                        self._waiting.append(task)

    def _watch(self, task: _Task) -> bool:
        """Follow one partition for its turn.

        Returns:
            Whether nothing is pending any more.
        """
        watch = self._service.watch_skips(
            task.key[0],
            task.key[1],
            at=self._at,
            target_topic_id=task.skipping.target_topic_id,
            progress=progress_to_pb(task.skipping.positions),
            start=task.start,
            origin=self._origin,
        )
        with self._changed:
            if task.cancelled:
                watch.close()
                return True
            task.watch, task.since_s = watch, self._clock()
        try:
            return self._follow(task, watch)
        except UnknownTopicError as error:  # a region that was just configured may be missing for a while
            with self._changed:
                if not task.cancelled:
                    self._learned.append(Learned(task.key, (), None, void=str(error)))
                    del self._tasks[task.key]
            return True
        except ParallaxError as error:
            _log.warning(
                "watch_skips_failed",
                topic=task.key[0],
                partition=task.key[1],
                code=error.code,
                error=str(error),
            )
        except Exception as error:  # noqa: BLE001 - a partition that is watched no more would deliver nothing more
            _log.error("watch_skips_failed", topic=task.key[0], partition=task.key[1], exc_info=error)
        finally:
            with self._changed:
                task.watch = None
            watch.close()
        with self._changed:
            self._changed.wait_for(lambda: self._closed or task.cancelled, timeout=_AGAIN_AFTER_S)
        return False

    def _follow(self, task: _Task, watch: SkipUpdateStream) -> bool:
        for update in watch:
            known_to = update.complete_to if update.HasField("complete_to") else None
            with self._changed:
                if task.cancelled:
                    return True
                self._learned.append(Learned(task.key, ranges_from_pb(update.skip_ranges), known_to))
                if known_to is None:
                    del self._tasks[task.key]
                    return True
                task.start = max(task.start, known_to)
        return False
