"""Tokens are fetched once, ahead of time, and told apart when they can't be had."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parallax.adapters.kafka import tokens
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.adapters.kafka.proof import ClientProof
from parallax.adapters.kafka.tokens import Token, TokenSource, aws_token, fetch_token, token_source
from parallax.config.config import Cluster
from parallax.config.security import OAuth, Security
from parallax.errors import ClusterUnavailableError, ConfigError
from tests.worlds.certificates import Authority, tls_server
from tests.worlds.dripping import HEADS, LASTS_S, dripping
from tests.worlds.token_issuer import CLIENT, SECRET, TokenIssuer


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[TokenIssuer]:
    with TokenIssuer(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_sources", {})


def oauth(issuer: TokenIssuer, **changed: Any) -> OAuth:
    settings = {"token_endpoint": issuer.url, "client_id": CLIENT, "client_secret": SECRET, **changed}
    return OAuth.model_validate(settings)


class TestFetching:
    def test_a_token_comes_with_its_end(self, issuer: TokenIssuer) -> None:
        token = fetch_token(oauth(issuer, scope="kafka all", extensions={"logicalCluster": "x"}))

        assert issuer.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka all"]}]
        assert 290 < token.expires_at_s - time.time() <= 300
        assert token.extensions == {"logicalCluster": "x"}
        assert token.value not in repr(token)

    def test_the_token_itself_may_say_when_it_expires(self, issuer: TokenIssuer) -> None:
        issuer.answer = 200, json.dumps({"access_token": issuer.token()}).encode()
        assert 290 < fetch_token(oauth(issuer)).expires_at_s - time.time() <= 300

    @pytest.mark.parametrize(
        ("answer", "kind", "problem"),
        [
            ((401, b'{"error": "invalid_client"}'), ConfigError, "HTTP 401 invalid_client: check client_id"),
            ((400, b'{"error": "<script>"}'), ConfigError, "HTTP 400: check"),
            ((302, b""), ConfigError, "HTTP 302"),
            ((503, b"busy"), ClusterUnavailableError, "HTTP 503"),
            ((200, b"<html>"), ConfigError, "has no access_token"),
            ((200, b"[]"), ConfigError, "has no access_token"),
            ((200, b" " * 300_000), ClusterUnavailableError, "did not answer: more than 262144 bytes"),
            ((200, b'{"access_token": "opaque"}'), ConfigError, "nothing says when it expires"),
            ((200, b'{"access_token": "a b", "expires_in": 5}'), ConfigError, "no usable access_token"),
            ((200, b'{"access_token": "a\\u0001b", "expires_in": 5}'), ConfigError, "no usable access_token"),
            ((200, b'{"access_token": "ab", "expires_in": 0}'), ConfigError, "an expired one"),
        ],
    )
    def test_what_can_t_be_used_is_told_apart(
        self, issuer: TokenIssuer, answer: tuple[int, bytes], kind: type[Exception], problem: str
    ) -> None:
        issuer.answer = answer
        with pytest.raises(kind, match=problem) as caught:
            fetch_token(oauth(issuer))
        assert SECRET not in str(caught.value)
        assert "script" not in str(caught.value)

    @HEADS
    def test_an_answer_that_drips_is_given_up(
        self, issuer: TokenIssuer, head: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All that need a token wait for it meanwhile."""
        monkeypatch.setattr(tokens, "_ANSWER_S", 0.3)
        began_s = time.monotonic()
        with (
            dripping(head) as address,
            pytest.raises(ClusterUnavailableError, match=r"did not answer: .*not there after 0\.3 s"),
        ):
            fetch_token(oauth(issuer, token_endpoint=address))
        assert time.monotonic() - began_s < LASTS_S / 2

    def test_another_server_gets_no_secret(self, issuer: TokenIssuer, tmp_path: Path) -> None:
        ours, foreign = Authority(tmp_path / "ours"), Authority(tmp_path / "foreign")
        with (
            tls_server(foreign.pair("server")) as address,
            pytest.raises(
                ConfigError, match=r"token endpoint .*: its certificate is not signed by an authority"
            ),
        ):
            fetch_token(
                oauth(issuer, token_endpoint=f"https://{address}/", ca_location=str(ours.certificate))
            )

    @pytest.mark.parametrize(
        ("endpoint", "problem"), [("http://idp.example/", "use https"), ("idp.example", "begins with https")]
    )
    def test_an_endpoint_in_plain_text_is_refused(
        self, issuer: TokenIssuer, endpoint: str, problem: str
    ) -> None:
        with pytest.raises(ValueError, match=problem):
            oauth(issuer, token_endpoint=endpoint)


class Issuing:
    """Tokens of 100 s each, by a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.fetched = 0
        self.problem: Exception | None = None
        self.source = TokenSource(self.fetch, clock=lambda: self.now_s)

    def fetch(self) -> Token:
        self.fetched += 1
        if self.problem is not None:
            raise self.problem
        return Token(f"t{self.fetched}", self.now_s + 100, self.now_s)


class TestKeeping:
    def test_one_token_serves_until_it_is_due(self) -> None:
        issuing = Issuing()
        assert {issuing.source.get().value for _ in range(5)} == {"t1"}
        issuing.now_s += 69
        assert issuing.source.get().value == "t1"
        issuing.now_s += 1
        assert issuing.source.get().value == "t2"

    def test_while_the_issuer_is_away_the_last_one_serves_to_its_end(self) -> None:
        issuing = Issuing()
        issuing.source.get()
        issuing.problem = ClusterUnavailableError("away")
        issuing.now_s += 99
        assert issuing.source.get().value == "t1"
        assert issuing.source.known().value == "t1"
        issuing.now_s += 1
        with pytest.raises(ClusterUnavailableError, match="away"):
            issuing.source.get()
        with pytest.raises(ClusterUnavailableError, match="away"):
            issuing.source.known()
        issuing.problem = None
        issuing.now_s += 1
        assert issuing.source.get().value == "t4"

    def test_a_refusal_is_not_asked_for_again_at_once(self) -> None:
        issuing = Issuing()
        issuing.problem = ConfigError("no")
        for _ in range(1_000):
            with pytest.raises(ConfigError, match="no"):
                issuing.source.get()
        assert issuing.fetched == 1

    def test_who_asks_is_not_held_up(self) -> None:
        issuing, go, heard = Issuing(), threading.Event(), threading.Event()

        def fetch() -> Token:
            go.wait(10)
            return issuing.fetch()

        source = TokenSource(fetch)
        source.ask(heard.set)
        with pytest.raises(ClusterUnavailableError, match="has not answered yet"):
            source.known()
        go.set()
        assert heard.wait(10)

    def test_all_clients_of_a_process_share_it(self, issuer: TokenIssuer) -> None:
        settings = {"protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth": oauth(issuer)}
        cluster = Cluster(bootstrap_servers="127.0.0.1:1", security=Security.model_validate(settings))
        for _ in range(3):
            callback = client_settings(cluster, client_id="t")["oauth_cb"]
        provider = ClientProof(cluster.security).fixed_settings()["sasl_oauth_token_provider"]
        assert callback("")[0] == provider.token()
        assert len(issuer.asked) == 1


AWS = {"protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM", "sasl_aws_region": "eu-west-1"}


class TestAws:
    def test_a_signed_token_is_an_oauth_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        signed = SimpleNamespace(generate_auth_token=lambda region: (f"signed-{region}", 9e12))
        module = SimpleNamespace(MSKAuthTokenProvider=signed)
        monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
        security = Security.model_validate(AWS)

        source = token_source(security)
        assert source is not None
        assert source.get().value == "signed-eu-west-1"
        assert source.get().expires_at_s == 9e9
        assert ClientProof(security).fixed_settings()["sasl_mechanism"] == "OAUTHBEARER"
        settings = client_settings(Cluster(bootstrap_servers="127.0.0.1:1", security=security), client_id="t")
        assert settings["sasl.mechanism"] == "OAUTHBEARER"

    def test_the_package_that_is_missing_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
        with pytest.raises(ConfigError, match=r"install parallax-kafka\[aws\]"):
            aws_token("eu-west-1")

    def test_keys_that_are_missing_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(_region: str) -> None:
            raise RuntimeError("secret AKIA")

        module = SimpleNamespace(MSKAuthTokenProvider=SimpleNamespace(generate_auth_token=fails))
        monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
        with pytest.raises(
            ConfigError, match="no token could be signed for eu-west-1: RuntimeError"
        ) as caught:
            aws_token("eu-west-1")
        assert "AKIA" not in str(caught.value)


class TestNeeded:
    @pytest.mark.parametrize(
        ("changed", "missing"),
        [
            ({"sasl_mechanism": "OAUTHBEARER"}, "needs a section sasl_oauth"),
            ({"sasl_mechanism": "AWS_MSK_IAM"}, "needs a sasl_aws_region"),
            ({**AWS, "protocol": "SASL_PLAINTEXT"}, "needs protocol SASL_SSL"),
        ],
    )
    def test_what_a_mechanism_needs_is_named(self, changed: dict[str, str], missing: str) -> None:
        with pytest.raises(ValueError, match=missing):
            Security.model_validate({"protocol": "SASL_SSL"} | changed)

    def test_kerberos_is_refused_where_the_libraries_lack_it(self) -> None:
        """The wheels of this environment have none."""
        security = Security.model_validate({"protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"})
        with pytest.raises(ConfigError, match="build confluent-kafka"):
            client_settings(Cluster(bootstrap_servers="127.0.0.1:1", security=security), client_id="t")
        with pytest.raises(ConfigError, match="the batch path needs the package gssapi"):
            ClientProof(security)
