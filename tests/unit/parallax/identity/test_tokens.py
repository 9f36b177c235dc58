"""Tokens: what is accepted, and that nothing else is, whatever strangers send."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import RSAAlgorithm

from parallax.config.auth import Jwt
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import ConfigError, UnauthenticatedError
from parallax.identity import tokens as module
from parallax.identity.key_sets import FileKeys, SigningKey, keys_of
from parallax.identity.tokens import TokenVerifier
from tests.worlds.authority import Issuer, rsa_key

ISSUER = Issuer(
    keys={"first": rsa_key(), "second": rsa_key(), "curve": ec.generate_private_key(ec.SECP256R1())}
)
FOREIGN = Issuer(keys={"first": rsa_key()})
SETTINGS = Jwt(issuer=ISSUER.name, audience=ISSUER.audience, jwks="unused")


class Fixed:
    def __init__(self, document: bytes) -> None:
        self.keys = keys_of(document)

    def find(self, key_id: str | None) -> tuple[SigningKey, ...]:
        return tuple(key for key in self.keys if key_id in {None, key.key_id})


VERIFIER = TokenVerifier(SETTINGS, Fixed(ISSUER.document()))


def refusal(token: str, verifier: TokenVerifier = VERIFIER) -> str:
    with pytest.raises(UnauthenticatedError) as raised:
        verifier.principal(f"Bearer {token}")
    return str(raised.value)


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def signed_with_the_public_key() -> str:
    """The old trick: the public key as a shared secret."""
    secret = (
        ISSUER.keys["first"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    claims = {"iss": ISSUER.name, "aud": ISSUER.audience, "exp": int(time.time()) + 60, "sub": "operator"}
    text = f"{encoded(json.dumps({'alg': 'HS256', 'kid': 'first'}).encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def unsigned(algorithm: str) -> str:
    claims = {"iss": ISSUER.name, "aud": ISSUER.audience, "exp": int(time.time()) + 60, "sub": "operator"}
    return f"{encoded(json.dumps({'alg': algorithm}).encode())}.{encoded(json.dumps(claims).encode())}."


@pytest.mark.parametrize("key_id", ISSUER.keys)
def test_a_token_proves_who_calls(key_id: str) -> None:
    told = VERIFIER.principal(f"Bearer {ISSUER.token('team-a', key_id=key_id)}")
    assert told == Principal("team-a", ProvenBy.TOKEN)


def test_a_token_may_have_several_audiences_and_a_scheme_in_small_letters() -> None:
    assert VERIFIER.principal(f"bearer {ISSUER.token(aud=['x', ISSUER.audience])}").name == "reader"


def test_a_token_without_a_key_id_is_held_against_every_key() -> None:
    claims = jwt.decode(ISSUER.token(), options={"verify_signature": False})
    token = jwt.encode(claims, ISSUER.keys["second"], algorithm="PS256")
    assert VERIFIER.principal(f"Bearer {token}").name == "reader"


def test_another_claim_may_name_the_principal() -> None:
    verifier = TokenVerifier(SETTINGS.model_copy(update={"principal_claim": "azp"}), Fixed(ISSUER.document()))
    assert verifier.principal(f"Bearer {ISSUER.token(azp='client-7')}").name == "client-7"
    assert "'azp'" in refusal(ISSUER.token(), verifier)


@pytest.mark.parametrize(
    ("make_token", "told"),
    [
        pytest.param(lambda: "", "1 to", id="empty"),
        pytest.param(lambda: "x" * 20_000, "1 to", id="long"),
        pytest.param(lambda: "nonsense", "can't be read", id="one word"),
        pytest.param(lambda: "a.b.c", "can't be read", id="not base64"),
        pytest.param(lambda: f"{encoded(b'[1]')}.e30.e30", "can't be read", id="header of another shape"),
        pytest.param(lambda: f"{encoded(b'[' * 9_000)}.e30.e30", "can't be read", id="deep header"),
        pytest.param(lambda: unsigned("none"), "signed with one of", id="none"),
        pytest.param(lambda: unsigned("NONE"), "signed with one of", id="NONE"),
        pytest.param(lambda: unsigned("RS256"), "no key of the issuer", id="unsigned RS256"),
        pytest.param(signed_with_the_public_key, "signed with one of", id="public key as a secret"),
        pytest.param(FOREIGN.token, "no key of the issuer", id="another key"),
        pytest.param(lambda: ISSUER.token(iss="https://other.test"), "another issuer", id="another issuer"),
        pytest.param(lambda: ISSUER.token(iss=None), "'iss'", id="no issuer"),
        pytest.param(lambda: ISSUER.token(aud="other"), "another audience", id="another audience"),
        pytest.param(lambda: ISSUER.token(aud=None), "'aud'", id="no audience"),
        pytest.param(lambda: ISSUER.token(exp=int(time.time()) - 31), "expired", id="expired"),
        pytest.param(lambda: ISSUER.token(exp=None), "'exp'", id="no expiry"),
        pytest.param(lambda: ISSUER.token(exp="soon"), "can't be read", id="expiry in words"),
        pytest.param(lambda: ISSUER.token(exp=float("inf")), "can't be read", id="endless expiry"),
        pytest.param(lambda: ISSUER.token(nbf=int(time.time()) + 300), "clock", id="not yet"),
        pytest.param(lambda: ISSUER.token(iat=int(time.time()) + 300), "clock", id="issued later"),
        pytest.param(lambda: ISSUER.token(None), "'sub'", id="no subject"),
        pytest.param(lambda: ISSUER.token(""), "'sub'", id="empty subject"),
        pytest.param(lambda: ISSUER.token("two\nlines"), "'sub'", id="subject of two lines"),
        pytest.param(lambda: ISSUER.token("x" * 513), "'sub'", id="long subject"),
    ],
)
def test_what_is_not_accepted_is_told_in_a_word(make_token: Callable[[], str], told: str) -> None:
    token = make_token()  # not before: tokens expire while other tests run
    text = refusal(token)
    assert told in text
    assert not token or token not in text


def test_a_clock_may_be_off_by_the_leeway() -> None:
    now_s = int(time.time())
    for claims in ({"exp": now_s - 20}, {"nbf": now_s + 20}, {"iat": now_s + 20}):
        assert VERIFIER.principal(f"Bearer {ISSUER.token(**claims)}").name == "reader"


@pytest.mark.parametrize("header", ["", "Basic dXNlcjpwYXNz", "Bearer", "Token abc"])
def test_another_header_proves_nobody(header: str) -> None:
    with pytest.raises(UnauthenticatedError, match=r"bearer token|1 to"):
        VERIFIER.principal(header)


def test_bytes_of_strangers_break_nothing() -> None:
    chance = random.Random(7)
    token = ISSUER.token()
    for _ in range(300):
        damaged = list(token)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chr(
                chance.choice([0, 46, 45, 65, 95, 126, 233, 0x1F600])
            )
        text = "".join(damaged)
        try:
            assert VERIFIER.principal(f"Bearer {text}").name == "reader"
        except UnauthenticatedError:
            continue


def test_a_verifier_that_takes_unsigned_tokens_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unproven(token: str, *_: object, **__: object) -> Any:
        return json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))

    monkeypatch.setattr(module.jwt, "decode", unproven)
    with pytest.raises(pytest.fail.Exception):
        refusal(FOREIGN.token())


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": []}',
        b'{"keys": [1]}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "s"}]}',
    ],
)
def test_what_is_no_key_set_is_said_to_be_none(document: bytes, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(document)
    with pytest.raises(ConfigError, match=r"keys\.json"):
        FileKeys(str(path))


def test_keys_that_must_not_sign_are_passed_over() -> None:
    entries = json.loads(ISSUER.document())["keys"]
    short = {**json.loads(RSAAlgorithm.to_jwk(rsa_key(1_024).public_key())), "kid": "short"}
    sealing = {**entries[0], "kid": "sealing", "use": "enc"}
    private = {**json.loads(RSAAlgorithm.to_jwk(ISSUER.keys["first"])), "kid": "private"}
    fixed = {**entries[1], "alg": "PS512"}
    unknown = {"kty": "quantum", "kid": "unknown"}
    keys = keys_of(json.dumps({"keys": [entries[0], short, sealing, private, fixed, unknown]}).encode())
    assert [(key.key_id, len(key.algorithms)) for key in keys] == [("first", 6), ("second", 1)]


def test_keys_in_a_file_are_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    issuer = Issuer(keys={"first": ISSUER.keys["first"]})
    path.write_bytes(issuer.document())
    verifier = TokenVerifier(SETTINGS, FileKeys(str(path)))
    issuer.keys["second"] = ISSUER.keys["second"]
    token = issuer.token("newer", key_id="second")
    assert "no key" in refusal(token, verifier)
    path.write_bytes(issuer.document())
    assert verifier.principal(f"Bearer {token}").name == "newer"
    path.write_bytes(b"half of a docum")
    assert verifier.principal(f"Bearer {token}").name == "newer"
