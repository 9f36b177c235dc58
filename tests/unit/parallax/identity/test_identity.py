from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from parallax.config.auth import Auth, AuthRule, Jwt
from parallax.domain.rights import ANYBODY, Right
from parallax.errors import ConfigError, ForbiddenError, UnauthenticatedError
from parallax.identity.identity import ASKS_NOBODY, NOTHING_SHOWN, Identity, Shown, require_safe
from tests.worlds.authority import Authority, Issuer

RULES = (AuthRule(principals=("reader", "common_name:reader"), groups=("billing",), allow=("read",)),)
JWT = Jwt(issuer="https://issuer.test", audience="parallax", jwks="https://issuer.test/keys")


def test_where_nobody_is_asked_everybody_is_anybody() -> None:
    assert not ASKS_NOBODY.asks
    assert ASKS_NOBODY.require(NOTHING_SHOWN, Right.ADMINISTER, "billing") == ANYBODY


def test_a_certificate_proves_who_calls_and_the_rules_say_what_for(tmp_path: Path) -> None:
    identity = Identity(Auth(mode="mtls", rules=RULES))
    reader = Shown(certificate=Authority(tmp_path).sign("reader").der)
    assert identity.require(reader, Right.READ, "billing").name == "common_name:reader"
    for right, group in ((Right.REPORT, "billing"), (Right.READ, "other")):
        with pytest.raises(ForbiddenError, match=f"lacks the right to {right.word}"):
            identity.require(reader, right, group)
    with pytest.raises(UnauthenticatedError, match="certificate"):
        identity.require(Shown(authorization=("Bearer x",)), Right.READ)


def test_a_token_proves_who_calls_and_a_certificate_does_not_stand_in_for_it(tmp_path: Path) -> None:
    issuer = Issuer()
    path = tmp_path / "keys.json"
    path.write_bytes(issuer.document())
    identity = Identity(Auth(mode="jwt", jwt=JWT.model_copy(update={"jwks": str(path)}), rules=RULES))
    header = f"Bearer {issuer.token()}"
    assert identity.require(Shown(authorization=(header,)), Right.READ, "billing").name == "reader"
    certificate = Authority(tmp_path).sign("reader").der
    for shown in (NOTHING_SHOWN, Shown(certificate), Shown(authorization=(header, header))):
        with pytest.raises(UnauthenticatedError, match="one 'authorization' header"):
            identity.require(shown, Right.READ)


def test_an_identity_without_rules_says_so() -> None:
    with capture_logs() as logs:
        Identity(Auth(mode="mtls"))
    assert [entry["event"] for entry in logs] == ["nobody_has_a_right"]


OPEN, MTLS, JWT_ONLY = Auth(), Auth(mode="mtls", rules=RULES), Auth(mode="jwt", jwt=JWT, rules=RULES)


@pytest.mark.parametrize(
    ("auth", "address", "tls"),
    [
        (OPEN, "127.0.0.1:1", False),
        (OPEN, "[::1]:1", True),
        (MTLS, "0.0.0.0:1", True),
        (JWT_ONLY, "0.0.0.0:1", True),
        (JWT_ONLY, "127.0.0.1:1", False),
    ],
)
def test_what_is_safe_is_served_without_a_word(auth: Auth, address: str, tls: bool) -> None:  # noqa: FBT001
    with capture_logs() as logs:
        require_safe(auth, [address], tls=tls)
    assert logs == []


@pytest.mark.parametrize(
    ("auth", "tls", "told"),
    [(OPEN, False, "nobody is asked"), (OPEN, True, "nobody is asked"), (JWT_ONLY, False, "plain text")],
)
def test_what_is_not_safe_is_refused_unless_told_and_then_warned_of(auth: Auth, tls: bool, told: str) -> None:  # noqa: FBT001
    for address in ("0.0.0.0:1", "offsets.example:1", "10.1.2.3:1"):
        with pytest.raises(ConfigError, match=told) as raised:
            require_safe(auth, ["127.0.0.1:1", address], tls=tls)
        assert str(raised.value).startswith(f"{address}: ")
        with capture_logs() as logs:
            require_safe(auth.model_copy(update={"insecure": True}), [address], tls=tls)
        assert [(entry["event"], entry["log_level"]) for entry in logs] == [("insecure", "warning")]
