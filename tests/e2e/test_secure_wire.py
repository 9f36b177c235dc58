"""A secure stack at work, and everything that goes over loopback meanwhile: nothing of it can be read but consoles' own pages.

And nobody there listens in plain text. All of it in one network of its own, where one stack is enough.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from confluent_kafka import Consumer, Producer

from lab.stack.access import kafka_client, let_in
from lab.stack.ports import HOST
from lab.stack.secure.material import CONSUMER, PRODUCER, Material
from lab.stack.services import PARALLAX, service_environment
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from lab.workload.topics import committed_offsets, create_topic, wait_for_topic
from tests.support import poll_until, unique_name
from tests.worlds.wire import Wire, is_own_network, raise_loopback, run_where_frames_are_seen

pytestmark = [pytest.mark.stack, pytest.mark.heavy, pytest.mark.timeout(600)]

PATIENCE_S = 90.0
INSIDE_S = 560.0
RECORDS = 200
_TLS_ALERT = b"\x15"


@pytest.fixture(scope="module")
def secure_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    local = LocalStack(StackSpec(secure=True, consoles=True), tmp_path_factory.mktemp("secure"))
    with local as running, let_in(running.layout.material):
        yield running


def material_of(stack: LocalStack) -> Material:
    assert stack.layout.material is not None
    return stack.layout.material


def parallax(stack: LocalStack, *arguments: str) -> str:
    environment = service_environment(stack.layout, stack.java)
    done = subprocess.run(
        [*PARALLAX, *arguments, "--config", str(stack.config_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def say_in_plain_text(word: str) -> None:
    """One process to another: so a test knows that it would have seen it."""
    with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as client:
        there, _ = server.accept()
        with there:
            client.sendall(word.encode())
            assert there.recv(100)


def work(stack: LocalStack, topic: str, group: str, record: str) -> None:
    """All processes do what they are for: records are copied, a group consumes, is published and moves."""
    for region in ("a", "b"):
        create_topic(stack.bootstrap(f"regional-{region}"), topic, 1)
    producer = Producer(kafka_client(stack.bootstrap("regional-a"), PRODUCER))
    for number in range(RECORDS):
        producer.produce(topic, value=f"{record} {number}", key=record)
    assert producer.flush(PATIENCE_S) == 0
    for region in ("a", "b"):
        wait_for_topic(stack.bootstrap(f"aggregate-{region}"), topic, 1, PATIENCE_S)
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**kafka_client(stack.bootstrap("aggregate-a"), CONSUMER), **settings})
    consumer.subscribe([topic])
    for _ in range(RECORDS):
        message = poll_until(lambda: consumer.poll(0.2), PATIENCE_S, "a record")
        assert message.error() is None, message.error()
        assert record.encode() in (message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    poll_until(
        lambda: committed_offsets(stack.bootstrap("aggregate-b"), group, topic, [0]),
        PATIENCE_S,
        "the sync job publishes the group's place in b",
    )
    assert group in parallax(stack, "offsets", group, "--to", "b", "--json")
    moved = json.loads(parallax(stack, "failover", group, "--to", "b", "--execute", "--json"))
    assert moved["group"] == group
    for region in ("a", "b"):
        assert topic in seen_in_console(stack, region, group)


def seen_in_console(stack: LocalStack, region: str, group: str) -> str:
    """A page about a group: what a console asks its service it asks over TLS; who looks at it does so in plain text, on loopback."""
    url = f"{stack.layout.console_url(region)}/group"
    page = httpx.get(url, params={"name": group}, timeout=PATIENCE_S).text
    assert group in page
    return page


def test_nothing_can_be_read_on_the_wire(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if not is_own_network():
        # Neither `nodeid` nor `name`: pytest-xdist adds the name of a group to both.
        this = f"{request.path}::{request.node.originalname}"
        run_where_frames_are_seen(this, tmp_path, within_s=INSIDE_S)
        return
    raise_loopback()
    stack = request.getfixturevalue("secure_stack")
    words = {name: unique_name(name) for name in ("topic", "group", "record", "control")}
    passwords = {f"password {number}": word for number, word in enumerate(material_of(stack).secrets())}
    with Wire(words | passwords, apart=console_ports(stack).values()) as wire:
        work(stack, words["topic"], words["group"], words["record"])
        say_in_plain_text(words["control"])
        poll_until(lambda: "control" in wire.seen, PATIENCE_S, "what is said in plain text is seen")
    assert not wire.lost, f"{wire.lost} of {wire.frames} frames were not looked at"
    assert {name: place for name, place in wire.seen.items() if name != "control"} == {}
    check_that_every_listener_speaks_tls_and_nothing_else(stack)


def console_ports(stack: LocalStack) -> dict[str, int]:
    ports = stack.layout.ports.items()
    return {name: port for name, port in ports if name.startswith("console-")}


def check_that_every_listener_speaks_tls_and_nothing_else(stack: LocalStack) -> None:
    assert len(console_ports(stack)) == 2
    listening = {name: port for name, port in stack.layout.ports.items() if _listens(port)}
    ports = {name: port for name, port in listening.items() if name not in console_ports(stack)}
    assert len(ports) == 4 * 3 + 2 + 2 * 2 + 2, ports
    assert {name: _answer_in_plain_text(port) for name, port in ports.items()} == dict.fromkeys(ports, b"")
    context = ssl.create_default_context(cafile=str(material_of(stack).ca))
    assert {name: _speaks_tls(port, context) for name, port in ports.items()} == dict.fromkeys(ports, True)


def _answer_in_plain_text(port: int) -> bytes:
    """What can be read of the answer to a question in plain text; a TLS alert is none."""
    with socket.create_connection((HOST, port), timeout=10) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        try:
            said = plain.recv(100)
        except ConnectionResetError:
            return b""
    return b"" if said[:1] == _TLS_ALERT else said


def _speaks_tls(port: int, context: ssl.SSLContext) -> bool:
    with socket.create_connection((HOST, port), timeout=10) as bare:
        try:
            with context.wrap_socket(bare, server_hostname=HOST):
                return True
        except ssl.SSLError as error:  # it may ask for our certificate at once
            return "ALERT" in (error.reason or "")


def _listens(port: int) -> bool:
    return any(
        item.status == psutil.CONN_LISTEN and item.laddr.port == port
        for item in psutil.net_connections("tcp")
    )
