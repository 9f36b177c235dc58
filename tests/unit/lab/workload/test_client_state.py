"""What a member tells of its librdkafka, read from statistics of a real one."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

from confluent_kafka import Consumer

from lab.workload.channel import TELL_STACKS
from lab.workload.client_state import ClientState


def test_the_newest_statistics_are_told_by_group_partition_and_broker() -> None:
    out = io.StringIO()
    state = ClientState(out)
    kept: list[str] = []
    consumer = Consumer(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "group.id": "g",
            "client.id": "member",
            "log_level": 0,
            "statistics.interval.ms": 50,
            "stats_cb": kept.append,
        }
    )
    try:
        consumer.subscribe(["t"])
        for _ in range(200):
            consumer.poll(0.05)
            if len(kept) > 1:
                break
        statistics = json.loads(kept[-1])
        statistics["topics"]["t"] = {
            "partitions": {
                "-1": {"fetch_state": "none"},
                "0": {"fetch_state": "active", "next_offset": 8, "rxbytes": 5},
            }
        }
        state.keep(json.dumps(statistics))
        state.tell()
    finally:
        consumer.close()
    told = json.loads(out.getvalue())
    assert told["client"].startswith("member")
    assert told["group"]["state"] == "query-coord"
    assert told["group"]["join_state"] == "init"
    assert "127.0.0.1:1/bootstrap" in told["brokers"]
    assert told["partitions"] == {"t-0": {"fetch_state": "active", "next_offset": 8}}


def test_nothing_is_told_before_there_is_anything() -> None:
    out = io.StringIO()
    ClientState(out).tell()
    assert not out.getvalue()


def test_a_signal_writes_both_stacks_and_state() -> None:
    program = f"""
import faulthandler, os, time
from lab.workload.client_state import ClientState
faulthandler.register({int(TELL_STACKS)})
state = ClientState()
state.keep('{{"name": "member", "time": 1, "brokers": {{}}, "topics": {{}}}}')
state.tell_with_stacks()
os.kill(os.getpid(), {int(TELL_STACKS)})
time.sleep(0.01)
print("lived on")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "lived on\n"
    assert "Current thread" in done.stderr
    assert '"client": "member"' in done.stderr
