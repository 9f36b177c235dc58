"""Every mechanism by which anybody can prove to brokers who they are, over TLS, for all that Parallax does at clusters.

Records are copied (on the batch path), a group's place is published, the group fails over and goes on, a drill goes there and back.
Each process is a user with the least rights; brokers take all mechanisms at once, so one stack serves all of them. With tokens
offset services take tokens too. On the same stack what the store is shown changes: a certificate, an authority, a password.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from cassandra.cluster import NoHostAvailable, Session
from confluent_kafka import Consumer, Message, Producer

from lab.stack.access import kafka_client, let_in
from lab.stack.layout import SPARK, StackLayout
from lab.stack.process import Launcher, ManagedProcess
from lab.stack.secure.material import CONSUMER, OPERATOR, PRODUCER, Material, Mechanism
from lab.stack.secure.services import identity
from lab.stack.secure.setup import grant_store, prepare_material
from lab.stack.secure.store import open_node
from lab.stack.services import PARALLAX, apply_schema, service_environment, service_specs, write_config
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from lab.workload.topics import committed_offsets, create_topic, wait_for_topic
from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.config.config import Cassandra, Config, load
from parallax.domain.ids import Route
from parallax.errors import ParallaxError
from parallax.runtime.deadline import Deadline
from replicator.kafka.layout import ensure_layout
from replicator.lease import Lease
from replicator.shard import hold_lease
from syncjob.run import run_until
from tests.support import poll_until, unique_name
from tests.worlds.certificates import Authority
from tests.worlds.under_load import some_more, under_load

pytestmark = [pytest.mark.stack, pytest.mark.heavy]

PATIENCE_S = 90.0
LIFETIME_S = 300.0
RECORDS = 50
QUIET_S = 1.0
REGIONS = ("a", "b")


@pytest.fixture(scope="module")
def secure_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Brokers, Cassandra and the issuer of tokens; tests bring their own services."""
    spec = StackSpec(services=False, secure=True, schema_kept=False)
    with LocalStack(spec, tmp_path_factory.mktemp("secure")) as stack:
        apply_schema(stack.layout, stack.java)
        grant_store(stack.layout)
        yield stack


def material_of(stack: LocalStack) -> Material:
    assert stack.layout.material is not None
    return stack.layout.material


class AtWork:
    """Replicators, sync job and offset services of a secure stack that prove by one mechanism who they are.

    Args:
        stack: whose brokers.
        mechanism: theirs.
        drill_group: the group of a drill.
    """

    def __init__(self, stack: LocalStack, mechanism: Mechanism, drill_group: str) -> None:
        settings = {
            "replicator": {"discovery_interval_ms": 500, "watermark_interval_ms": 1_000},
            "sync": {"interval_ms": 500},
            # Many processes share a few cores here: none gives another one up for that.
            "cassandra": {"request_timeout_ms": 20_000},
            "service": {"cluster_timeout_ms": 20_000, "deadline_ms": 40_000},
            "drill": {"group": drill_group, "records_per_s": 20},
        }
        spec = replace(stack.layout.spec, mechanism=mechanism, services=True, config=settings)
        self.layout = replace(stack.layout, spec=spec)
        self._environment = service_environment(self.layout, stack.java)
        prepare_material(self.layout)
        write_config(self.layout)
        self._launcher = Launcher()
        specs = [spec for spec in service_specs(self.layout, stack.java) if spec.name != SPARK]
        self._services = [ManagedProcess(spec, self._launcher) for spec in specs]
        self._ended = threading.Event()
        self._failures: list[BaseException] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """All of them run; what ended one is raised."""
        config = load(self.layout.config_path, identity(self.layout, SPARK))
        assert config.replicator.copy_path == "batch"
        with ExitStack() as opened:
            opened.callback(self._launcher.close)
            stores = opened.enter_context(CassandraStores(config.cassandra, config.index))
            works: list[Callable[[], object]] = [
                *(lambda route=route: self._copy(config, route, stores) for route in config.all_routes()),
                lambda: run_until(config, Deadline.after_ms(LIFETIME_S * 1_000), self._ended),
            ]
            starts = [lambda service=service: self._start(service, opened) for service in self._services]
            for start in [self._thread(start) for start in starts]:
                start.join(PATIENCE_S)
            self.check()
            threads = [self._thread(work) for work in works]
            try:
                yield
            finally:
                self._ended.set()
                for thread in threads:
                    thread.join(PATIENCE_S)
        self.check()

    def check(self) -> None:
        """Whether all goes on; what ended one is raised."""
        for failure in self._failures:
            raise failure

    def _thread(self, work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - handed to the test
                self._failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    @staticmethod
    def _start(service: ManagedProcess, opened: ExitStack) -> None:
        opened.callback(service.stop)
        service.start()

    def _copy(self, config: Config, route: Route, stores: CassandraStores) -> None:
        layout = ensure_layout(config, route, 1).layout
        lease = Lease(route, 0, 1, layout, 1, int((time.time() + LIFETIME_S) * 1_000))
        hold_lease(
            lease,
            config,
            index=stores.index,
            report=lambda _progress: None,
            end_asked=self._ended.is_set,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of the operator's."""
        return subprocess.Popen(
            [*PARALLAX, *arguments, "--config", str(self.layout.config_path), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )


def fail_over(work: AtWork, group: str, to: str) -> Any:
    """What the move ended with; None: it was refused because a cluster could not be reached, which says to run it again."""
    command = work.start("failover", group, "--to", to, "--execute")
    out, err = command.communicate(timeout=PATIENCE_S)
    ended = json.loads(out)
    if ended["ending"] == "refused" and ended["problem"].endswith("run the command again in a moment"):
        return None
    assert command.returncode == 0, f"{out}\n{err}"
    return ended


def ended(drill: subprocess.Popen[str]) -> Any:
    """What a drill ended with; None: a cluster did not answer in time, so that nothing could be proven either way."""
    out, err = drill.communicate(timeout=PATIENCE_S)
    found = json.loads(out)
    if found["problem"].endswith("says 'unknown'"):
        return None
    assert drill.returncode == 0, f"{out}\n{err}"
    return found


def produce(layout: StackLayout, region: str, topic: str, values: Sequence[str]) -> None:
    producer = Producer(kafka_client(layout.bootstrap(f"regional-{region}"), PRODUCER))
    told: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert told == [None] * len(values)


def consume(layout: StackLayout, region: str, topic: str, group: str, count: int) -> list[str]:
    """So many records as a plain consumer of a group reads them, and commits them; and all others that come in a moment."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**kafka_client(layout.bootstrap(f"aggregate-{region}"), CONSUMER), **settings})
    consumer.subscribe([topic])
    found: list[str] = []
    deadline = Deadline.after_ms(PATIENCE_S * 1_000)
    while len(found) < count and not deadline.passed:
        found += [_text(message) for message in consumer.consume(count, 0.2)]
    found += [_text(message) for message in consumer.consume(count, QUIET_S)]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def _text(message: Message) -> str:
    assert message.error() is None, message.error()
    return (message.value() or b"").decode()


@pytest.mark.parametrize("mechanism", get_args(Mechanism))
def test_records_are_copied_and_groups_move(
    secure_stack: LocalStack, mechanism: Mechanism, tmp_path: Path
) -> None:
    topic = unique_name(mechanism.lower())
    group = f"group-{topic}"
    work = AtWork(secure_stack, mechanism, drill_group=f"parallax-drill-{topic}")
    layout = work.layout
    with let_in(layout.material), work.running(), ExitStack() as ends:

        def start_drill() -> subprocess.Popen[str]:
            command = work.start("drill", "--from", "a", "--to", "b", "--directory", str(tmp_path))
            ends.enter_context(command)
            ends.callback(command.kill)
            return command

        drill = start_drill()
        sent = {region: [f"{region} {number}" for number in range(RECORDS)] for region in REGIONS}
        for region, values in sent.items():
            create_topic(layout.bootstrap(f"regional-{region}"), topic, 1)
            produce(layout, region, topic, values)
        for region in REGIONS:
            wait_for_topic(layout.bootstrap(f"aggregate-{region}"), topic, 1, PATIENCE_S)
        assert sorted(consume(layout, "a", topic, group, 2 * RECORDS)) == sorted(sent["a"] + sent["b"])

        def published() -> bool:
            work.check()
            found = committed_offsets(layout.bootstrap("aggregate-b"), group, topic, [0])
            return found.get(0, 0) >= 2 * RECORDS

        poll_until(published, PATIENCE_S, "the group's place in b")
        moved = poll_until(lambda: fail_over(work, group, "b"), PATIENCE_S, "the group's move to b")
        assert (moved["ending"], moved["plan"]["pending_records"]) == ("moved", 0)
        produce(layout, "a", topic, ["after the move"])
        assert consume(layout, "b", topic, group, 1) == ["after the move"]

        drilled = ended(drill) or poll_until(lambda: ended(start_drill()), 2 * PATIENCE_S, "a drill")
        assert (drilled["ending"], drilled["problem"], drilled["proof"]) == ("passed", "", "once")
        figures = drilled["figures"]
        assert (figures["lost"], figures["redelivered"]) == (0, 0)
        assert figures["delivered"] == figures["acknowledged"] > 0


def anybody(stack: LocalStack, directory: Path, **changed: str) -> Cassandra:
    """How one that has files of its own reaches the store."""
    store = load(stack.config_path).cassandra
    assert store.tls is not None
    assert store.tls.ca is not None
    assert store.tls.certificate is not None
    ca, own = directory / "ca.pem", directory / "own.pem"
    ca.write_bytes(Path(store.tls.ca).read_bytes())
    own.write_bytes(Path(store.tls.certificate).read_bytes())
    tls = store.tls.model_copy(update={"ca": str(ca), "certificate": str(own)})
    return store.model_copy(update={"tls": tls, "request_timeout_ms": 20_000, **changed})


def put(path: Path, content: bytes) -> None:
    """As a rotation does: whole, in one step."""
    (beside := path.with_name("beside")).write_bytes(content)
    beside.replace(path)


def ask(connection: CassandraConnection) -> None:
    assert connection.run("SELECT key FROM system.local") == [("local",)]


def connect_anew(connection: CassandraConnection) -> None:
    """New connections of the same driver: as when it connects again by itself."""
    connection.ask(lambda session: session.cluster.connect()).shutdown()


def cut(connection: CassandraConnection) -> None:
    """Every connection of the driver breaks, as when a network does."""

    def broken(session: Session) -> None:
        for one in (session.cluster.control_connection, *session.get_pools()):
            one._connection._socket.shutdown(socket.SHUT_RDWR)

    connection.ask(broken)


def test_certificates_for_the_store_change_under_load_without_a_failed_call(
    secure_stack: LocalStack, tmp_path: Path
) -> None:
    settings, authority = anybody(secure_stack, tmp_path), material_of(secure_stack).authority
    ca, own, foreign = tmp_path / "ca.pem", tmp_path / "own.pem", Authority(tmp_path / "foreign", "foreign")
    with closing(CassandraConnection(settings, lambda _session: None)) as connection:
        ask(connection)
        calls = (lambda: ask(connection), lambda: connect_anew(connection))
        with under_load(*calls) as counts:
            put(ca, foreign.certificate.read_bytes() + ca.read_bytes())
            some_more(counts)
            put(own, authority.leaf("renewed", principal=OPERATOR).both.read_bytes())
            some_more(counts)
        good = own.read_bytes()
        put(own, foreign.pair("foreign").both.read_bytes())
        with pytest.raises(ParallaxError):
            connect_anew(connection)
        put(own, good)
        poll_until(lambda: succeeds(ask, connection), PATIENCE_S, "the store is found again")


def is_taken(session: Session, statement: str) -> bool:
    try:
        session.execute(statement)
    except NoHostAvailable as error:
        if "can only be changed every" not in str(error):
            raise
        return False
    return True


def succeeds(call: Callable[[CassandraConnection], None], connection: CassandraConnection) -> bool:
    try:
        call(connection)
    except ParallaxError:
        return False
    return True


def test_a_node_that_refused_the_password_is_found_again_once_it_is_right(
    secure_stack: LocalStack, tmp_path: Path
) -> None:
    role, password = unique_name("rotated").replace("-", "_"), tmp_path / "password"
    password.write_text("the old one", encoding="utf-8")
    settings = anybody(secure_stack, tmp_path, username=role, password_file=str(password))
    node = open_node(secure_stack.layout.ports["cassandra"], material_of(secure_stack))
    with ExitStack() as ends:
        ends.callback(node.shutdown)
        superuser = node.connect()
        connection = ends.enter_context(closing(CassandraConnection(settings, lambda _session: None)))
        superuser.execute(f"CREATE ROLE {role} WITH PASSWORD = 'the old one' AND LOGIN = true")
        ask(connection)
        change = f"ALTER ROLE {role} WITH PASSWORD = 'the new one'"
        poll_until(lambda: is_taken(superuser, change), PATIENCE_S, "Cassandra lets a password change again")
        poll_until(lambda: not succeeds(connect_anew, connection), PATIENCE_S, "the old one is refused")
        cut(connection)
        poll_until(lambda: not succeeds(ask, connection), PATIENCE_S, "the node is away")
        put(password, b"the new one")
        poll_until(lambda: succeeds(ask, connection), PATIENCE_S, "the node is asked again")
