"""What of librdkafka's own lines reaches the log."""

from __future__ import annotations

import logging
import time

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from structlog.testing import capture_logs

from parallax.consumer import client_log as module
from parallax.consumer.client_log import AGAIN_S, ClientLog
from tests.worlds.clocks import StandingClock
from tests.worlds.failover_fakes import World

REFUSED = "[thrd:a:9/bootstrap]: Connect to ipv4#a:9 failed: Connection refused (after {}ms in state CONNECT)"


def test_a_line_that_is_said_again_and_again_is_logged_once_a_minute_with_its_count() -> None:
    clock = StandingClock()
    log = ClientLog("a", lambda: clock.at_ms / 1_000)
    with capture_logs() as lines:
        for number in range(30):
            log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", REFUSED.format(number))
        log.log(logging.INFO, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", "another line")
        clock.sleep_ms(AGAIN_S * 1_000)
        log.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#consumer-1", REFUSED.format(7))
    assert [(line["log_level"], line["region"], line["repeated"]) for line in lines] == [
        ("warning", "a", None),
        ("info", "a", None),
        ("warning", "a", 29),
    ]
    assert "Connection refused" in lines[0]["text"]


def test_ever_new_lines_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LINES", 3)
    log = ClientLog("a")
    with capture_logs() as lines:
        for number in range(10):
            log.log(logging.ERROR, "", "FAIL", "", f"line {number}")
    assert len(lines) == 10
    assert len(log._lines) <= 3


def lines_of_a_dead_cluster(*, collapsed: bool, capfd: pytest.CaptureFixture[str]) -> int:
    """How many lines a handle writes in a second while its group's coordinator is looked for."""
    settings = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 6}
    with capture_logs() as lines:
        consumer = Consumer(settings | ({"logger": ClientLog("a")} if collapsed else {}))
        consumer.subscribe(["t"])
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            with pytest.raises(KafkaException):
                consumer.committed([TopicPartition("t", 0)], 0.1)
            consumer.poll(0)
        consumer.close()
    return len(lines) + capfd.readouterr().err.count("Connection refused")


def test_a_dead_cluster_does_not_drown_events(capfd: pytest.CaptureFixture[str]) -> None:
    assert lines_of_a_dead_cluster(collapsed=True, capfd=capfd) <= 3
    assert lines_of_a_dead_cluster(collapsed=False, capfd=capfd) > 3


def test_every_cluster_has_a_log_of_its_own_unless_the_application_brings_one() -> None:
    own = logging.getLogger("own")
    for given, expected in (({}, ClientLog), ({"logger": own}, logging.Logger)):
        world = World()
        made = []
        make = world._make
        world._make = lambda config, made=made, make=make: (made.append(config), make(config))[1]  # type: ignore[method-assign]
        world.start("a", given)
        world.move("b")
        assert [type(config["logger"]) for config in made] == [expected] * 2
        world.close()
