"""The consuming process that moves between regions: a `FailoverConsumer` that follows its group's primary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog
from confluent_kafka import TopicPartition

from lab.stack.access import kafka_client, offset_client
from lab.stack.secure.material import CONSUMER
from lab.workload.channel import Channel
from lab.workload.client_state import STATISTICS_EVERY_MS, ClientState
from lab.workload.consuming import ConsumeError, ConsumeLoop
from lab.workload.delivered import DeliveredLog
from parallax import FailoverConsumer, FailoverEvent
from parallax.config.config import load
from parallax.errors import ParallaxError

_BACK_AGAIN = {"reconnect.backoff.max.ms": 1_000}
"""A cluster that was away is found a second after its return, not ten."""
_WARNINGS = 4
"""Sessions that time out, and polls that come late, are warnings to librdkafka (syslog's numbers)."""
_COMMITTING = {"enable.auto.commit": True, "auto.commit.interval.ms": 500}
"""A move may begin at any time, and then the consumer itself commits before it leaves."""


class _Member:
    """A member of the group: follows its consumer from region to region.

    Args:
        config: the file that tells where clusters and offset services are.
        region: where to begin.
        group: the consumer group.
        channel: gets `assigned`, and `told` for whatever the consumer tells.
    """

    def __init__(self, config: Path, region: str, group: str, channel: Channel) -> None:
        regions = load(config).regions
        self._channel = channel
        self._region, self._stage = region, 0
        self._skipped = {0: 0}
        state = ClientState()
        state.tell_with_stacks()
        self.consumer = FailoverConsumer(
            {
                "group.id": group,
                "client.id": f"{group}-member",
                "log_level": _WARNINGS,
                "statistics.interval.ms": STATISTICS_EVERY_MS,
                "stats_cb": state.keep,
                **_BACK_AGAIN,
                **_COMMITTING,
            },
            clusters={
                name: kafka_client(section.aggregate.bootstrap_servers, CONSUMER)
                for name, section in regions.items()
                if section.aggregate is not None
            },
            region=region,
            services=offset_client(
                [
                    regions[name].offsetsvc.grpc  # type: ignore[union-attr] # the condition below
                    for name in sorted(regions, key=lambda name: name != region)
                    if regions[name].offsetsvc is not None
                ],
                CONSUMER,
            ),
            on_event=self._on_event,
            follow_primary=True,
        )

    def subscribe(self, topic: str, revoked: Callable[[], None]) -> None:
        """Join the group; ``revoked`` is called when partitions go to other members, or the group to another region."""
        self.consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=lambda _consumer, _partitions: revoked()
        )

    def where(self) -> tuple[int, str]:
        """How many moves were made, and which cluster is read."""
        if self.consumer.region != self._region:
            self._region = self.consumer.region
            self._stage += 1
        return self._stage, f"aggregate-{self._region}"

    def also(self) -> dict[str, Any]:
        """Records skipped so far, over all moves."""
        stage, _ = self.where()
        self._skipped[stage] = self.consumer.skipped_records
        return {"skipped": sum(self._skipped.values())}

    def _on_assign(self, _consumer: object, partitions: Sequence[TopicPartition]) -> None:
        self._channel.say("assigned", partitions=[partition.partition for partition in partitions])

    def _on_event(self, event: FailoverEvent) -> None:
        self._channel.say("told", kind=event.kind.value, text=event.message)


def consume_with_failover(
    *,
    config: Path,
    region: str,
    group: str,
    topic: str,
    log: Path,
    per_s: float | None,
    channel: Channel,
) -> None:
    """Consume as a member of a group, wherever that is primary.

    Raises:
        ConsumeError: the consumer is broken for good.
    """
    # Standard output belongs to the parent.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    member = _Member(config, region, group, channel)
    with DeliveredLog(log) as delivered:
        loop = ConsumeLoop(
            member.consumer,
            commit=lambda _wait: None,  # the consumer does it
            where=member.where,
            log=delivered,
            channel=channel,
            per_s=per_s,
            also=member.also,
        )
        member.subscribe(topic, loop.forget_positions)
        try:
            loop.run()
        except ParallaxError as error:
            raise ConsumeError(f"[{error.code}] {error}") from error
