"""Certificates, authorities, keys of an issuer and tokens change under load, and no call fails."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from parallax.client.client import OffsetClient
from parallax.client.credentials import ServiceCredentials
from parallax.errors import ServiceUnavailableError
from parallax.identity import tls as tls_module
from parallax.runtime.retry import RetryPolicy
from tests.worlds.authority import Authority, Issuer, rsa_key
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, World
from tests.worlds.under_load import some_more, under_load

READ = {"groups": [GROUP], "allow": ["read"]}


class Bank:
    """An authority with its files, all of which may change."""

    def __init__(self, directory: Path) -> None:
        self.first = Authority(directory, "first")
        second_directory = directory / "second"
        second_directory.mkdir()
        self.second = Authority(second_directory, "second")
        self.trusted = directory / "trusted.pem"
        self.trusted.write_bytes(self.first.certificate.read_bytes())
        self.server, self.client = self.first.server(), self.first.client("spiffe://bank/reader")

    def serve(self, stack: ExitStack) -> Served:
        tls = {
            "certificate_chain": str(self.server.certificate),
            "private_key": str(self.server.key),
            "client_ca": str(self.trusted),
        }
        rules = [{"principals": ["spiffe://bank/reader"], **READ}]
        return stack.enter_context(
            serving(World(("a", "b"), service={"tls": tls, "auth": {"mode": "mtls", "rules": rules}}))
        )

    @property
    def credentials(self) -> ServiceCredentials:
        return ServiceCredentials(ca=self.trusted, certificate=self.client.certificate, key=self.client.key)

    def change_everything(self, between: Callable[[], None]) -> None:
        """From the first authority to the second, as docs/security.md tells."""
        both = self.first.certificate.read_bytes() + self.second.certificate.read_bytes()
        self.trusted.write_bytes(both)
        between()
        self.server.take(self.second.server())
        self.client.take(self.second.client("spiffe://bank/reader"))
        between()
        self.trusted.write_bytes(self.second.certificate.read_bytes())
        between()


def test_certificates_and_authorities_change_under_load(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    with ExitStack() as stack:
        served = bank.serve(stack)
        client = stack.enter_context(OffsetClient([served.target], credentials=bank.credentials))

        def connect_anew() -> None:
            with OffsetClient([served.target], credentials=bank.credentials) as newcomer:
                newcomer.get_primary(GROUP)

        def ask_over_rest() -> None:
            with served.https(bank.trusted, bank.client) as http:
                assert http.get(f"/v1/groups/{GROUP}/primary").status_code == 200

        calls = (lambda: client.get_primary(GROUP), connect_anew)
        with under_load(*calls) as counts:
            bank.change_everything(lambda: some_more(counts))
        ask_over_rest()
        old = bank.first.client("spiffe://bank/reader")
        with served.https(bank.trusted, old) as http, pytest.raises(httpx.TransportError):
            http.get("/livez")
        credentials = ServiceCredentials(ca=bank.trusted, certificate=old.certificate, key=old.key)
        with (
            OffsetClient([served.target], credentials=credentials, timeout_ms=2_000) as late,
            pytest.raises(ServiceUnavailableError),
        ):
            late.get_primary(GROUP)


@contextmanager
def held_up(served: Served) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The first call that describes regions waits inside of its server; set when it is there, to be set to let it go on."""
    there, go_on, right = threading.Event(), threading.Event(), served.service.describe_regions
    first = threading.Lock()

    def describe(*arguments: Any) -> Any:
        if first.acquire(blocking=False):
            there.set()
            go_on.wait(60)
        return right(*arguments)

    served.service.describe_regions = describe  # type: ignore[method-assign]
    try:
        yield there, go_on
    finally:
        go_on.set()


def test_a_call_that_outlives_two_changes_of_certificates_is_answered(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    with ExitStack() as stack:
        served = bank.serve(stack)
        client = stack.enter_context(OffsetClient([served.target], credentials=bank.credentials))
        there, _ = stack.enter_context(held_up(served))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        under_way = pool.submit(client.describe_regions, timeout_ms=50_000)
        assert there.wait(30)
        for _ in range(2):
            bank.client.take(bank.first.client("spiffe://bank/reader"))
            client.get_primary(GROUP)
        assert len(under_way.result(60).regions) == 2


def test_a_call_whose_server_stops_is_answered_by_another() -> None:
    with ExitStack() as stack:
        stopping, other = stack.enter_context(serving(World())), stack.enter_context(serving(World()))
        client = stack.enter_context(OffsetClient([stopping.target, other.target]))
        there, go_on = stack.enter_context(held_up(stopping))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        under_way = pool.submit(client.describe_regions, timeout_ms=50_000)
        assert there.wait(30)
        stopped = pool.submit(stopping.grpc.stop, 0.0)
        assert len(under_way.result(60).regions) == 2
        go_on.set()
        stopped.result(60)


def test_a_call_that_a_server_cancels_is_answered_by_another() -> None:
    """As one that took it for half-sent does, or a proxy that is about to end."""

    def cancels(_request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.CANCELLED, "ended")

    class Cancelling(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            del handler_call_details
            return grpc.unary_unary_rpc_method_handler(cancels)

    with ThreadPoolExecutor(1) as threads, serving(World()) as other:
        server = grpc.server(threads, handlers=[Cancelling()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with OffsetClient([f"127.0.0.1:{port}", other.target]) as client:
            assert len(client.describe_regions().regions) == 2
        with (
            OffsetClient([f"127.0.0.1:{port}"], timeout_ms=500) as client,
            pytest.raises(ServiceUnavailableError, match="no offset service answered"),
        ):
            client.describe_regions()
        server.stop(0).wait()


def test_a_client_that_is_closed_keeps_no_call_waiting() -> None:
    with ExitStack() as stack:
        served = stack.enter_context(serving(World()))
        client = OffsetClient([served.target], retry=RetryPolicy(60_000, 60_000))
        there, _ = stack.enter_context(held_up(served))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        under_way = pool.submit(client.describe_regions, timeout_ms=600_000)
        assert there.wait(30)
        client.close()
        with pytest.raises(ServiceUnavailableError, match="the offset client is closed"):
            under_way.result(30)


class Once:
    """What a server would have that reads its files when it starts."""

    def __init__(self, _: object, make: Callable[[], Any]) -> None:
        self._value = make()

    def get(self) -> Any:
        return self._value


def test_a_server_that_reads_its_files_once_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Bank(tmp_path)
    with ExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(tls_module, "Reread", Once)
            served = bank.serve(stack)
        bank.change_everything(lambda: None)
        with (
            OffsetClient([served.target], credentials=bank.credentials, timeout_ms=2_000) as client,
            pytest.raises(ServiceUnavailableError),
        ):
            client.get_primary(GROUP)


def serve_tokens(stack: ExitStack, directory: Path, issuer: Issuer) -> tuple[Served, Path]:
    keys = directory / "keys.json"
    keys.write_bytes(issuer.document())
    jwt = {"issuer": issuer.name, "audience": issuer.audience, "jwks": str(keys)}
    auth = {"mode": "jwt", "jwt": jwt, "rules": [{"principals": ["reader"], **READ}]}
    return stack.enter_context(serving(World(("a", "b"), service={"auth": auth}))), keys


def test_keys_of_the_issuer_and_tokens_change_under_load(tmp_path: Path) -> None:
    issuer = Issuer()
    token = tmp_path / "token"
    token.write_text(issuer.token() + "\n", encoding="utf-8")
    with ExitStack() as stack:
        served, keys = serve_tokens(stack, tmp_path, issuer)
        client = stack.enter_context(served.client(credentials=ServiceCredentials(token_file=token)))

        def fetch() -> str:
            return issuer.token(exp=int(time.time()) + 3)

        fetching = stack.enter_context(served.client(credentials=ServiceCredentials(token=fetch)))
        http = stack.enter_context(served.http())

        def ask_over_rest() -> None:
            headers = {"Authorization": f"Bearer {token.read_text(encoding='utf-8').strip()}"}
            assert http.get("/v1/routes", headers=headers).status_code == 200

        with under_load(
            lambda: client.get_primary(GROUP), lambda: fetching.get_primary(GROUP), ask_over_rest
        ) as counts:
            some_more(counts)
            issuer.keys["second"] = rsa_key()
            keys.write_bytes(issuer.document())
            newer = tmp_path / "newer"
            newer.write_text(issuer.token(key_id="second"), encoding="utf-8")
            newer.replace(token)
            some_more(counts)


def test_a_token_that_is_not_taken_any_more_is_fetched_again(tmp_path: Path) -> None:
    issuer = Issuer(keys={"first": rsa_key(), "second": rsa_key()})
    fetched: list[str] = []

    def fetch() -> str:
        fetched.append("second" if fetched else "first")
        return issuer.token(key_id=fetched[-1], exp=int(time.time()) + 3_600)

    with ExitStack() as stack:
        served, keys = serve_tokens(stack, tmp_path, issuer)
        client = stack.enter_context(served.client(credentials=ServiceCredentials(token=fetch)))
        for _ in range(20):
            client.get_primary(GROUP)
        assert fetched == ["first"]
        document = json.loads(keys.read_bytes())
        keys.write_text(json.dumps({"keys": document["keys"][1:]}), encoding="utf-8")
        for _ in range(20):
            client.get_primary(GROUP)
        assert fetched == ["first", "second"]
