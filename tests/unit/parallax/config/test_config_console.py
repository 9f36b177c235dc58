"""`console.auth`: what fits together, and what is refused with a sentence that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from parallax.config.console import ConsoleAuth, ConsoleSettings

OIDC = {
    "issuer": "https://login.example/realms/staff",
    "client_id": "console",
    "url": "https://parallax.example",
}
PROXY = {"trusted": ["10.0.0.0/8"]}


def auth(**values: Any) -> ConsoleAuth:
    return ConsoleAuth.model_validate(values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"mode": "oidc"}, "section 'oidc' go together"),
        ({"mode": "none", "oidc": OIDC}, "section 'oidc' go together"),
        ({"mode": "oidc", "oidc": OIDC, "proxy": PROXY}, "section 'proxy' go together"),
        ({"mode": "proxy", "oidc": OIDC}, "go together"),
        ({"mode": "oidc", "oidc": {**OIDC, "issuer": "http://login.example"}}, "use https"),
        ({"mode": "oidc", "oidc": {**OIDC, "issuer": "login.example"}}, "https://"),
        ({"mode": "oidc", "oidc": {**OIDC, "issuer": "https://login.example?x"}}, "https://"),
        ({"mode": "oidc", "oidc": {**OIDC, "url": "http://parallax.example"}}, "use https"),
        ({"mode": "oidc", "oidc": {**OIDC, "url": "https://parallax.example/console"}}, "own address"),
        ({"mode": "oidc", "oidc": {**OIDC, "url": "https://ada@parallax.example"}}, "own address"),
        ({"mode": "oidc", "oidc": {**OIDC, "scopes": ["profile"]}}, "openid"),
        ({"mode": "oidc", "oidc": {**OIDC, "client_secret": "x", "client_secret_file": "y"}}, "both set"),
        ({"mode": "oidc", "oidc": {**OIDC, "acts_as": "ada"}}, "'console' or 'person'"),
    ],
)
def test_what_does_not_fit_together_is_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        auth(**values)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://Parallax.Example/", "https://parallax.example"),
        ("https://parallax.example:8443", "https://parallax.example:8443"),
        ("http://127.0.0.1:7680", "http://127.0.0.1:7680"),
        ("http://localhost:7680/", "http://localhost:7680"),
    ],
)
def test_the_own_address_is_kept_without_a_path(url: str, kept: str) -> None:
    found = auth(mode="oidc", oidc={**OIDC, "url": url}).oidc
    assert found is not None
    assert found.url == kept


def test_the_secret_is_read_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("first\n")
    found = auth(mode="oidc", oidc={**OIDC, "client_secret_file": str(path)}).oidc
    assert found is not None
    assert found.secret() == "first"
    path.write_text("second\n")
    assert found.secret() == "second"
    given = auth(mode="oidc", oidc={**OIDC, "client_secret": "marked"}).oidc
    assert given is not None
    assert given.secret() == "marked"
    assert "marked" not in repr(given) + given.model_dump_json()
    public = auth(mode="oidc", oidc=OIDC).oidc
    assert public is not None
    assert public.secret() is None


@pytest.mark.parametrize("name", ["parallax.example", "10.0.0.1", "[::1]"])
def test_hosts_are_names_alone(name: str) -> None:
    assert ConsoleSettings(hosts=(name,)).hosts == (name,)


@pytest.mark.parametrize(
    "name", ["parallax.example:8443", "https://parallax.example", "::1", "[::1]:8443", ""]
)
def test_a_host_that_no_browser_could_ask_for_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="without a port"):
        ConsoleSettings(hosts=(name,))
