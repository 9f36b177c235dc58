"""An issuer of tokens on loopback: the client credentials grant, and the public key for whoever checks them."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

AUDIENCE = "kafka"
CLIENT, SECRET = "parallax", "s3cr/t:+%"


class TokenIssuer:
    """Gives tokens to one client, and remembers what it was asked.

    Attributes:
        life_s: of the tokens.
        answer: what to answer instead: a status and a body.
        delay_s: before each answer.
        asked: the forms that came.
    """

    def __init__(self, directory: Path) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.life_s = 300.0
        self.answer: tuple[int, bytes] | None = None
        self.delay_s = 0.0
        self.asked: list[dict[str, list[str]]] = []
        self.jwks = directory / "jwks.json"
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        self.jwks.write_text(json.dumps({"keys": [public | {"kid": "k", "use": "sig", "alg": "RS256"}]}))
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                issuer.asked.append(form)
                time.sleep(issuer.delay_s)
                status, body = issuer.answer or issuer.answered(self.headers.get("Authorization", ""))
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "http://127.0.0.1:1/")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/token"

    def token(self) -> str:
        now = int(time.time())
        claims = {"sub": CLIENT, "aud": AUDIENCE, "iss": "issuer", "iat": now, "exp": now + int(self.life_s)}
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "k"})

    def answered(self, authorization: str) -> tuple[int, bytes]:
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if (unquote(name), unquote(secret)) != (CLIENT, SECRET):
            return 401, b'{"error": "invalid_client"}'
        answer = {"access_token": self.token(), "token_type": "Bearer", "expires_in": self.life_s}
        return 200, json.dumps(answer).encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
