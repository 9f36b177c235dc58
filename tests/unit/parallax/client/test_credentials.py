from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from parallax.client.client import OffsetClient
from parallax.client.credentials import OpenCredentials, ServiceCredentials, credentials_of
from parallax.errors import ConfigError, UnauthenticatedError
from tests.worlds.authority import Authority


def header(credentials: OpenCredentials) -> str:
    [(name, value)] = credentials.metadata()
    assert name == "authorization"
    return value


def test_nothing_is_shown_unless_told() -> None:
    credentials = OpenCredentials(ServiceCredentials())
    assert credentials.metadata() == ()
    assert credentials.channel("offsets.example:1") is None


def test_a_token_may_stand_in_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("one\n", encoding="utf-8")
    in_file = OpenCredentials(ServiceCredentials(token_file=path))
    assert header(in_file) == "Bearer one"
    path.write_text("another", encoding="utf-8")
    assert header(in_file) == "Bearer another"
    in_variable = OpenCredentials(ServiceCredentials(token_variable="MY_TOKEN"))  # noqa: S106 - a name
    with pytest.raises(UnauthenticatedError, match="MY_TOKEN"):
        in_variable.metadata()
    monkeypatch.setenv("MY_TOKEN", "third")
    assert header(in_variable) == "Bearer third"


def test_a_function_is_called_before_its_token_expires() -> None:
    now_s, calls = [1_000.0], []

    def fetch() -> str:
        calls.append(now_s[0])
        claims = json.dumps({"exp": now_s[0] + 100}).encode()
        return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.e30"

    credentials = OpenCredentials(ServiceCredentials(token=fetch), clock=lambda: now_s[0])
    for second in (0, 50, 69, 71, 100):
        now_s[0] = 1_000.0 + second
        header(credentials)
    assert calls == [1_000, 1_071]


def test_a_token_that_does_not_say_when_it_expires_is_fetched_every_minute() -> None:
    now_s, calls = [0.0], []
    credentials = OpenCredentials(
        ServiceCredentials(token=lambda: f"opaque-{calls.append(1) or len(calls)}"), clock=lambda: now_s[0]
    )
    assert header(credentials) == "Bearer opaque-1"
    now_s[0] = 59.0
    assert header(credentials) == "Bearer opaque-1"
    now_s[0] = 60.0
    assert header(credentials) == "Bearer opaque-2"


def test_a_function_that_fails_says_so_with_a_type() -> None:
    def fetch() -> str:
        raise OSError("the issuer is away")

    with (
        OffsetClient(["127.0.0.1:1"], credentials=ServiceCredentials(token=fetch)) as client,
        pytest.raises(UnauthenticatedError, match="the issuer is away"),
    ):
        client.list_routes()


@pytest.mark.parametrize("target", ["offsets.example:1", "10.0.0.1:1", "localhost.example:1"])
def test_a_token_does_not_cross_the_network_in_plain_text(target: str) -> None:
    with (
        OffsetClient([target], credentials=ServiceCredentials(token="abc")) as client,  # noqa: S106
        pytest.raises(ConfigError, match="plain text"),
    ):
        client.list_routes()
    assert OpenCredentials(ServiceCredentials(token="abc", insecure=True)).channel(target) is None  # noqa: S106
    assert OpenCredentials(ServiceCredentials(token="abc", tls=True)).channel(target) is not None  # noqa: S106


def test_nor_does_that_of_somebody_else() -> None:
    with OffsetClient(["offsets.example:1"]) as client, pytest.raises(ConfigError, match="plain text"):
        client.showing("abc").list_routes()


def test_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="go together"):
        ServiceCredentials(certificate="a.pem")
    with pytest.raises(ConfigError, match="one of"):
        ServiceCredentials(token="abc", token_variable="B")  # noqa: S106
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        OpenCredentials(ServiceCredentials(ca=tmp_path / "nowhere.pem"))


def test_a_token_is_not_shown() -> None:
    assert "abc" not in repr(ServiceCredentials(token="abc"))  # noqa: S106


def test_a_channel_is_the_same_until_its_files_change(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.client("a"), authority.client("b")
    settings = ServiceCredentials(ca=authority.certificate, certificate=pair.certificate, key=pair.key)
    credentials = OpenCredentials(settings)
    first = credentials.channel("x:1")
    assert credentials.channel("x:1") is first
    time.sleep(0.01)
    pair.take(other)
    assert credentials.channel("x:1") is not first


def test_variables_say_the_same() -> None:
    assert credentials_of({}) is None
    assert credentials_of({"PARALLAX_TOKEN": "abc", "PARALLAX_TLS_CA": "ca.pem"}) == ServiceCredentials(
        ca="ca.pem",
        token_variable="PARALLAX_TOKEN",  # noqa: S106
    )
    with pytest.raises(ConfigError, match="go together"):
        credentials_of({"PARALLAX_TLS_KEY": "a.key"})


def test_variables_outweigh_a_configuration_where_they_say_something() -> None:
    named = ServiceCredentials(ca="ca.pem", certificate="own.pem", key="own.key", token_file="token")  # noqa: S106 - a file
    assert credentials_of({}, named) == named
    assert credentials_of({"PARALLAX_TOKEN": "abc"}, named) == replace(
        named,
        token_file=None,
        token_variable="PARALLAX_TOKEN",  # noqa: S106 - its name
    )
    assert credentials_of({"PARALLAX_TLS_CA": "other.pem"}, named) == replace(named, ca="other.pem")
    pair = {"PARALLAX_TLS_CERTIFICATE": "a.pem", "PARALLAX_TLS_KEY": "a.key"}
    assert credentials_of(pair, named) == replace(named, certificate="a.pem", key="a.key")
    with pytest.raises(ConfigError, match="go together"):
        credentials_of({"PARALLAX_TLS_CERTIFICATE": "a.pem"}, named)
    with pytest.raises(ConfigError, match="name one of token"):
        credentials_of({"PARALLAX_TOKEN": "abc", "PARALLAX_TOKEN_FILE": "token"}, named)


def test_files_in_the_middle_of_being_written_change_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "bank")
    pair, other = authority.client("spiffe://bank/one"), authority.client("spiffe://bank/two")
    files = (authority.certificate, pair.certificate, pair.key)
    settings = ServiceCredentials(ca=files[0], certificate=files[1], key=files[2])
    credentials = OpenCredentials(settings)
    good = credentials.channel("offsets.example:1")

    for path in files:
        right = path.read_bytes()
        for unfinished in (b"", b"\n", right[: len(right) // 2], other.key.read_bytes()):
            path.write_bytes(unfinished)
            # An empty one would end the process as soon as gRPC has it.
            assert credentials.channel("offsets.example:1") is good, (path, unfinished)
            with pytest.raises(ConfigError, match=r"can't be used|is empty"):
                OpenCredentials(settings)
        path.write_bytes(right)
    assert credentials.channel("offsets.example:1") is not None
