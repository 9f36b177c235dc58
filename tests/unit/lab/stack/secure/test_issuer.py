"""Tokens of a secure stack's issuer: who gets one, and who takes it."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from lab.stack.secure.issuer import IssuerServer, granted
from lab.stack.secure.material import ADMIN, ISSUER, OPERATOR, SPARK, Material
from lab.stack.secure.tokens import ISSUER_NAME, KAFKA, SERVICES, Signer
from parallax.adapters.kafka.tokens import fetch_token
from parallax.config.auth import Jwt
from parallax.config.security import OAuth, Security
from parallax.errors import ConfigError, UnauthenticatedError
from parallax.identity.key_sets import key_set
from parallax.identity.tokens import TokenVerifier

FORM = {"grant_type": ["client_credentials"], "scope": [KAFKA]}


@pytest.fixture
def material(tmp_path: Path) -> Material:
    made = Material(tmp_path / "security", mechanism="OAUTHBEARER")
    made.prepare({ISSUER: ISSUER, OPERATOR: OPERATOR})
    return made


@pytest.fixture
def served(material: Material) -> Iterator[Material]:
    """The issuer answers at `Material.issuer`."""
    with IssuerServer(material, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield Material(material.directory, mechanism="OAUTHBEARER", issuer_port=server.server_port)
        server.shutdown()
        thread.join()


def basic(user: str, secret: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{secret}'.encode()).decode()}"


def verifier(jwks: str, audience: str, ca: Path | None = None) -> TokenVerifier:
    settings = Jwt(issuer=ISSUER_NAME, audience=audience, jwks=jwks, jwks_ca=None if ca is None else str(ca))
    return TokenVerifier(settings, key_set(settings))


@pytest.mark.parametrize("user", [SPARK, OPERATOR, ADMIN])
def test_a_user_gets_a_token_by_its_password(material: Material, user: str) -> None:
    status, answer = granted(material, basic(user, material.password(user)), FORM)
    assert status is HTTPStatus.OK
    keys = str(material.signer.public_keys)
    assert verifier(keys, KAFKA).principal(f"Bearer {answer['access_token']}").name == user
    with pytest.raises(UnauthenticatedError, match="another audience"):
        verifier(keys, SERVICES).principal(f"Bearer {answer['access_token']}")


@pytest.mark.parametrize(
    ("user", "secret", "changed", "status", "error"),
    [
        (SPARK, "hunter2", {}, 401, "invalid_client"),
        ("stranger", "", {}, 401, "invalid_client"),
        ("../secrets/spark", "", {}, 401, "invalid_client"),
        (SPARK, None, {"grant_type": ["password"]}, 400, "unsupported_grant_type"),
        (SPARK, None, {"scope": ["everything"]}, 400, "invalid_scope"),
    ],
)
def test_others_get_none(
    material: Material,
    user: str,
    secret: str | None,
    changed: dict[str, list[str]],
    status: int,
    error: str,
) -> None:
    known = material.password(SPARK) if secret is None else secret
    assert granted(material, basic(user, known), FORM | changed) == (status, {"error": error})
    assert granted(material, "Basic ?", FORM) == (401, {"error": "invalid_client"})


def test_tokens_and_keys_are_fetched_over_tls(served: Material) -> None:
    settings = Security.model_validate(served.cluster_security(SPARK)).sasl_oauth
    assert settings is not None
    token = fetch_token(settings).value
    assert verifier(f"{served.issuer}/jwks.json", KAFKA, served.ca).principal(f"Bearer {token}").name == SPARK
    wrong = OAuth.model_validate(served.cluster_security(SPARK)["sasl_oauth"] | {"client_id": OPERATOR})
    with pytest.raises(ConfigError, match="HTTP 401 invalid_client"):
        fetch_token(wrong)


def test_a_token_for_offset_services_lies_in_a_file(material: Material) -> None:
    token = material.token_file(OPERATOR).read_text(encoding="ascii")
    keys = str(material.signer.public_keys)
    assert verifier(keys, SERVICES).principal(f"Bearer {token}").name == OPERATOR


def test_a_key_is_made_once(material: Material, tmp_path: Path) -> None:
    token = material.signer.token(SPARK, KAFKA)
    material.prepare({ISSUER: ISSUER})
    assert verifier(str(material.signer.public_keys), KAFKA).principal(f"Bearer {token}").name == SPARK
    with pytest.raises(UnauthenticatedError, match="no key of the issuer"):
        verifier(str(Signer(tmp_path / "other").public_keys), KAFKA).principal(f"Bearer {token}")
