"""An issuer of OpenID Connect on loopback: people sign in at it by the authorization code flow with PKCE, each code once."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.worlds.authority import Issuer, rsa_key

CLIENT, SECRET = "console", "s3cr/t:+%"
SERVICES = "offset-services"
"""The audience of what people show to offset services."""

Reply = tuple[int, Mapping[str, str], bytes]


@dataclass
class Code:
    """What a code stands for."""

    challenge: str
    nonce: str | None
    redirect: str
    claims: Mapping[str, Any]


@dataclass
class PeopleIssuer:
    """Whoever opens its page has signed in as ``who``, with no questions asked.

    Attributes:
        who: claims of who signs in.
        refuses: the error that they are sent back with instead of a code.
        methods: by which clients may prove themselves.
        change: changes the claims of an ID token before it is signed.
        signed_by: signs ID tokens.
        life_s: of access tokens; None: it does not tell.
        refreshes: whether it gives refresh tokens.
        away: it answers nothing but this status.
        answers: what it answers to a path instead.
        asked: the paths, and forms, that came.
    """

    registered: tuple[str, ...] = ()
    who: Mapping[str, Any] = field(default_factory=lambda: {"sub": "ada", "groups": ["staff"]})
    refuses: str = ""
    methods: tuple[str, ...] | None = ("client_secret_basic", "client_secret_post")
    public: bool = False
    change: Callable[[dict[str, Any]], dict[str, Any]] = dict
    issuer: Issuer = field(default_factory=lambda: Issuer(keys={"first": rsa_key()}))
    signed_by: Issuer | None = None
    life_s: float | None = 300.0
    refreshes: bool = False
    away: int = 0
    answers: dict[str, Reply] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    codes: dict[str, Code] = field(default_factory=dict)
    refresh_tokens: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        people = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(dict, people.got)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {key: values[0] for key, values in parse_qs(body).items()}
                self._answer(lambda: form, lambda path, _: people.posted(path, form, dict(self.headers)))

            def _answer(
                self, form: Callable[[], dict[str, str]], answer: Callable[[str, dict[str, str]], Reply]
            ) -> None:
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                people.asked.append((parts.path, form() or query))
                status, headers, content = (
                    (people.away, {}, b"away")
                    if people.away
                    else people.answers.get(parts.path) or answer(parts.path, query)
                )
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.issuer.name = self.url
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def got(self, path: str, query: dict[str, str]) -> Reply:
        """The answer to a GET."""
        if path == "/.well-known/openid-configuration":
            return _json(200, self.description())
        if path == "/jwks":
            return 200, {}, self.issuer.document()
        if path == "/authorize":
            return self._authorized(query)
        return 404, {}, b"no such page"

    def description(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "end_session_endpoint": f"{self.url}/leave",
        }
        return (
            told if self.methods is None else {**told, "token_endpoint_auth_methods_supported": self.methods}
        )

    def _authorized(self, query: dict[str, str]) -> Reply:
        redirect = query.get("redirect_uri", "")
        if query.get("client_id") != CLIENT or redirect not in self.registered:
            return 400, {}, b"no client of ours, or not its address"
        back = {"state": query["state"], "iss": self.url}
        wanted = query.get("response_type"), query.get("code_challenge_method"), "openid" in query["scope"]
        if self.refuses or wanted != ("code", "S256", True):
            back["error"] = self.refuses or "invalid_request"
        else:
            back["code"] = secrets.token_urlsafe(16)
            self.codes[back["code"]] = Code(
                query["code_challenge"], query.get("nonce"), redirect, dict(self.who)
            )
        return 302, {"Location": f"{redirect}?{urlencode(back)}"}, b""

    def posted(self, path: str, form: dict[str, str], headers: Mapping[str, str]) -> Reply:
        """The answer to a form."""
        if path != "/token":
            return 404, {}, b"no such page"
        if not self._is_our_client(form, headers.get("Authorization", "")):
            return _json(401, {"error": "invalid_client"})
        if form.get("grant_type") == "refresh_token":
            claims = self.refresh_tokens.pop(form.get("refresh_token", ""), None)
            return (
                _json(400, {"error": "invalid_grant"}) if claims is None else _json(200, self._tokens(claims))
            )
        code = self.codes.pop(form.get("code", ""), None)
        proven = _challenge(form.get("code_verifier", ""))
        if (
            code is None
            or (code.challenge, code.redirect) != (proven, form.get("redirect_uri"))
            or form.get("grant_type") != "authorization_code"
        ):
            return _json(400, {"error": "invalid_grant"})
        return _json(200, self._tokens(code.claims, code.nonce))

    def _is_our_client(self, form: dict[str, str], authorization: str) -> bool:
        if self.public:
            return form.get("client_id") == CLIENT and "client_secret" not in form and not authorization
        if authorization.startswith("Basic "):
            shown = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            return [unquote(part) for part in shown.split(":", 1)] == [CLIENT, SECRET]
        posted = "client_secret_post" in (self.methods or ())
        return posted and (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)

    def _tokens(self, claims: Mapping[str, Any], nonce: str | None = None) -> dict[str, Any]:
        access = self.issuer.token(
            **{**claims, "subject": claims["sub"], "aud": SERVICES}, jti=secrets.token_hex(4)
        )
        hashed = hashlib.sha256(access.encode()).digest()[:16]
        at_hash = base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
        said = {"aud": CLIENT, "nonce": nonce, "at_hash": at_hash, "exp": int(time.time()) + 60, **claims}
        signer = self.signed_by or self.issuer
        said = self.change({"iss": self.url, **said})
        answer = {
            "token_type": "Bearer",
            "access_token": access,
            "id_token": signer.token(said.pop("sub"), **said),
        }
        if self.life_s is not None:
            answer["expires_in"] = self.life_s
        if self.refreshes:
            answer["refresh_token"] = secrets.token_urlsafe(16)
            self.refresh_tokens[answer["refresh_token"]] = claims
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Be gone."""
        self._server.shutdown()
        self._server.server_close()


def _json(status: int, document: Any) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps(document).encode()


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
