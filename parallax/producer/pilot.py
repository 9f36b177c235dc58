"""The thread that asks the clusters, and decides while the application does something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from confluent_kafka import KafkaException

from parallax.errors import ParallaxError
from parallax.producer.engine import ProducerEngine
from parallax.producer.ports import ClusterTopics, Probe, ProbeFactory
from parallax.producer.site import not_made

_log = structlog.get_logger("parallax.failover_producer")

PROBE_WITHIN_S = 1.0
"""A broker that is there answers in milliseconds, one in another region in tenths of a second."""
_ROUND_S = 0.2
_IDLE_S = 1.0
"""An application that has not polled for so long is polled for; its callbacks wait for it all the same."""


class Pilot:
    """Makes the probes that are due, and looks after the engine.

    Args:
        engine: whose regions.
        factory: makes probes.
        refresh_every_s: how often to ask where the clusters are.
        clock: the engine's.
    """

    def __init__(
        self,
        engine: ProducerEngine,
        factory: ProbeFactory,
        *,
        refresh_every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._factory = factory
        self._refresh_every_s = refresh_every_s
        self._clock = clock
        self._refreshed_at_s = clock()
        self._probes: dict[str, tuple[dict[str, Any], Probe]] = {}
        self._stopped = False
        # A daemon: an application that forgets close() can still end.
        self._thread = threading.Thread(target=self._run, name="parallax-producer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End after the round under way; whether it has ended in time."""
        self._stopped = True
        self._engine.delivery.woken.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        ended = not self._thread.is_alive()
        if ended:
            for _, probe in self._probes.values():
                probe.close()
        return ended

    def round(self) -> None:
        """Ask whoever is due, all at once; then decide."""
        now = self._clock()
        if now - self._refreshed_at_s >= self._refresh_every_s:
            self._refreshed_at_s = now
            self._engine.refresh()
        waiting = []
        for due, config in self._engine.probes_due():
            asked_at_s = self._clock()
            try:
                answer = self._probe(due.region, config).ask(due.topics, PROBE_WITHIN_S)
            except Exception as failure:  # noqa: BLE001 - the other regions do without this one
                self._engine.probed(due, asked_at_s, not_made(failure))
            else:
                waiting.append((due, asked_at_s, answer))
        for due, asked_at_s, answer in waiting:
            result: ClusterTopics | ParallaxError
            try:
                result = answer()
            except ParallaxError as error:
                result = error
            self._engine.probed(due, asked_at_s, result)
        if self._clock() - self._engine.turned_at_s >= _IDLE_S:
            self._engine.pump()
        self._engine.tick(make=True)
        self._engine.let_go()

    def _probe(self, region: str, config: dict[str, Any]) -> Probe:
        kept = self._probes.get(region)
        if kept is not None and kept[0] == config:
            return kept[1]
        if kept is not None:
            del self._probes[region]
            kept[1].close()
        probe = self._factory(config)
        self._probes[region] = (config, probe)
        return probe

    def _run(self) -> None:
        while not self._stopped:
            self._engine.delivery.woken.clear()
            try:
                self.round()
            except (KafkaException, ParallaxError) as error:
                _log.warning("producer_round_failed", detail=str(error))
            except Exception as error:  # noqa: BLE001 - without it nothing would turn to another region any more, or back
                _log.error("producer_round_failed", exc_info=error)
            self._engine.delivery.woken.wait(_ROUND_S)
