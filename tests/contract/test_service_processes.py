"""Several processes answer at one address: alike, each what it takes, and what rests on the memory of one is asked of that."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.transport.grpc_server import GrpcServer
from offsetsvc.transport.passing_on import PASSED_ON, Among
from parallax.client.client import OffsetClient, at_region
from parallax.client.credentials import ServiceCredentials
from parallax.errors import ForbiddenError, NotFoundError, ServiceUnavailableError
from parallax.identity.tls import server_credentials
from parallax.v1 import offsets_pb2 as pb
from tests.support import poll_until
from tests.worlds.authority import Authority
from tests.worlds.authority import Pair as CertificatePair
from tests.worlds.failover_bench import two_sources
from tests.worlds.offset_servers import asked_by_many
from tests.worlds.offset_world import GROUP, TOPIC, World
from tests.worlds.processes import descendants, has_ended

CHANNELS = 24
COUNT = 2
PATIENCE_S = 180.0


@dataclass
class Processes:
    """A service of several processes."""

    first: subprocess.Popen[str]
    address: str
    rest: str

    @property
    def further(self) -> list[psutil.Process]:
        return descendants(self.first.pid)

    def asked(self) -> tuple[list[bytes], set[int]]:
        """Answers over many connections, and which processes have taken those."""
        request = pb.GetFailoverOffsetRequest(group=GROUP, topic=TOPIC, to=at_region("b"))
        return asked_by_many(self.address, request, CHANNELS, self.first.pid)

    def shown(self) -> dict[str, float]:
        """The sums that the first process shows."""
        page = httpx.get(f"{self.rest}/metrics", timeout=PATIENCE_S).text
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0) + sample.value
        return found


@contextmanager
def processes(count: int) -> Iterator[Processes]:
    command = [sys.executable, "-m", "tests.worlds.served_processes", str(count)]
    with (
        # Who is killed leaves what it has there; a path of pytest's would be too long for a socket.
        tempfile.TemporaryDirectory() as temporary,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": temporary},
        ) as process,
    ):
        assert process.stdout is not None
        address, rest = process.stdout.readline().split()
        try:
            yield Processes(process, address, rest)
        finally:
            process.kill()


def test_all_answer_alike_and_end_with_the_first_and_one_that_ends_is_started_again() -> None:
    with processes(COUNT) as found:
        assert len(found.further) == COUNT - 1
        answers, taken = found.asked()
        assert len(answers) == CHANNELS
        assert len(set(answers)) == 1
        assert len(taken) > 1
        shown = found.shown()
        assert shown["parallax_offsetsvc_requests_total"] == CHANNELS
        assert shown["parallax_offsetsvc_request_duration_seconds_count"] == CHANNELS
        assert shown["parallax_offsetsvc_outcomes_total"] == CHANNELS
        assert shown["parallax_offsetsvc_processes"] == COUNT

        ended = found.further[0]
        ended.kill()
        poll_until(
            lambda: found.shown()["parallax_offsetsvc_processes_started_again_total"] == 1,
            PATIENCE_S,
            "the process is started again",
        )
        poll_until(
            lambda: found.shown()["parallax_offsetsvc_processes"] == COUNT, PATIENCE_S, "it answers again"
        )
        assert has_ended(ended)
        again, taken = found.asked()
        assert set(again) == set(answers)
        assert taken - {ended.pid}
        # What was counted by a process that has ended counts on.
        assert found.shown()["parallax_offsetsvc_requests_total"] == 2 * CHANNELS
        further = found.further
        assert len(further) == COUNT - 1
    # However it ends: this one was killed.
    poll_until(lambda: all(map(has_ended, further)), PATIENCE_S, "the further processes end")


@dataclass
class Pair:
    """Two servers of one service, as two processes have them; each counts for itself."""

    world: World
    first: OffsetClient
    second: OffsetClient
    metrics: tuple[ServiceMetrics, ServiceMetrics]

    def counted(self, method: str, code: str = "OK") -> tuple[float | None, ...]:
        """How often each counted a call."""
        labels = {"transport": "grpc", "method": method, "code": code}
        return tuple(
            item.registry.get_sample_value("parallax_offsetsvc_requests_total", labels)
            for item in self.metrics
        )


@contextmanager
def pair(tmp_path: Path, world: World, credentials: ServiceCredentials | None = None) -> Iterator[Pair]:
    with ExitStack() as stack:
        metrics, clients = (ServiceMetrics(), ServiceMetrics()), []
        for counts, is_first in zip(metrics, (True, False), strict=True):
            # Two use cases: neither remembers what the other one does.
            service = stack.enter_context(world.service())
            server = GrpcServer(
                service,
                counts,
                address="127.0.0.1:0",
                credentials=server_credentials(world.config.service.tls),
                among=Among(tmp_path / "first.sock", is_first=is_first),
            )
            server.start()
            stack.callback(server.stop, 0.0)
            clients.append(
                stack.enter_context(
                    OffsetClient([f"127.0.0.1:{server.port}"], credentials=credentials, timeout_ms=20_000)
                )
            )
        yield Pair(world, clients[0], clients[1], metrics)


def waiting() -> World:
    """A world in which a planned move waits: what the group has read of a has not come to b yet."""
    world = World()
    world.let_write()
    two_sources(world)
    world.copy("a", "a", 10)
    world.watermarks(0)
    world.commit("a", 30)
    return world


def test_a_move_is_told_and_called_off_by_whichever_process_is_asked(tmp_path: Path) -> None:
    with pair(tmp_path, waiting()) as both:
        planned = both.first.plan_move(GROUP, to_region="b")
        begun = both.second.execute_move(planned, actor="ada")
        assert begun.state == "running"

        def told_words() -> set[str]:
            return {event.words for event in both.first.get_move(GROUP, planned.move_id).events}

        # Called off while it still plans it would have begun nothing, and be refused.
        poll_until(lambda: "waiting for consumed records to arrive" in told_words(), 20, "the move waits")
        both.second.cancel_move(GROUP, planned.move_id, actor="bob")

        def ended() -> bool:
            return both.first.get_move(GROUP, planned.move_id).state != "running"

        poll_until(ended, 20, "the move ends")
        told = both.first.get_move(GROUP, planned.move_id)
        assert (told.state, told.actor) == ("interrupted", "ada")
        assert both.second.get_move(GROUP, planned.move_id) == told
        # Who takes a call counts it.
        assert both.counted("ExecuteMove") == (None, 1)
        assert both.counted("PlanMove") == (1, None)


def test_errors_of_the_first_process_are_those_of_all(tmp_path: Path) -> None:
    with pair(tmp_path, waiting()) as both:
        for client in (both.first, both.second):
            with pytest.raises(NotFoundError, match="no move has the id 'x'"):
                client.get_move(GROUP, "x")
        assert both.counted("GetMove", "NOT_FOUND") == (1, 1)


def test_a_first_process_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    world = waiting()
    with ExitStack() as stack:
        server = GrpcServer(
            stack.enter_context(world.service()),
            ServiceMetrics(),
            address="127.0.0.1:0",
            among=Among(tmp_path / "nobody.sock", is_first=False),
        )
        server.start()
        stack.callback(server.stop, 0.0)
        client = stack.enter_context(OffsetClient([f"127.0.0.1:{server.port}"], timeout_ms=1_000))
        assert client.get_failover_offset(GROUP, TOPIC, 0, to=at_region("b")).resume_offset
        with pytest.raises(ServiceUnavailableError):
            client.get_move(GROUP, "x")


def test_whoever_one_process_has_let_in_is_who_acts_at_the_first(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "bank")
    server, reader, operator = (
        authority.server(),
        authority.client("spiffe://bank/reader"),
        authority.client("spiffe://bank/operator"),
    )
    rules = [
        {"principals": ["spiffe://bank/reader"], "groups": [GROUP], "allow": ["read"]},
        {"principals": ["spiffe://bank/operator"], "groups": [GROUP], "allow": ["decide"]},
    ]
    world = World(
        service={
            "tls": {
                "certificate_chain": str(server.certificate),
                "private_key": str(server.key),
                "client_ca": str(authority.certificate),
            },
            "auth": {"mode": "mtls", "rules": rules},
        }
    )
    world.let_write()
    two_sources(world)
    world.commit("a", 15)

    def shown(client: CertificatePair) -> ServiceCredentials:
        return ServiceCredentials(ca=authority.certificate, certificate=client.certificate, key=client.key)

    with pair(tmp_path, world, shown(operator)) as both:
        planned = both.second.plan_move(GROUP, to_region="b")
        both.second.execute_move(planned)
        poll_until(
            lambda: both.second.get_move(GROUP, planned.move_id).state == "moved", 20, "the move has ended"
        )
        acted = {entry.principal.name for entry in world.audit.entries()}
        assert acted == {"spiffe://bank/operator"}
    with pair(tmp_path, world, shown(reader)) as both:
        assert both.second.get_move(GROUP, planned.move_id).state == "moved"
        with pytest.raises(ForbiddenError):
            both.second.cancel_move(GROUP, planned.move_id)


def test_only_calls_that_answer_once_are_passed_on() -> None:
    assert not [method.name for method in PASSED_ON if method.server_streaming or method.client_streaming]
