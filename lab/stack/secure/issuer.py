"""An issuer of tokens, as a process of a secure stack: OAuth 2.0's client credentials grant (RFC 6749, 4.4), and its public key.

Every user of the stack is a client, whose secret is its password. ``POST /token`` gives a token for whom the scope names,
``GET /jwks.json`` the key that checks it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import ssl
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from lab.stack.ports import HOST
from lab.stack.secure.material import ADMIN, ISSUER, USERS, Material
from lab.stack.secure.tokens import KAFKA, SERVICES, TOKEN_LIFE_S

_LONGEST_FORM_BYTES = 4_096
_PATIENCE_S = 10.0

Answer = tuple[HTTPStatus, Mapping[str, Any]]


def granted(material: Material, authorization: str, form: Mapping[str, list[str]]) -> Answer:
    """A token, or why there is none (RFC 6749, 5).

    Args:
        material: who is known, and the key.
        authorization: the header of that name.
        form: what was asked for.
    """
    user = _proven(material, authorization)
    if user is None:
        return HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"}
    if form.get("grant_type") != ["client_credentials"]:
        return HTTPStatus.BAD_REQUEST, {"error": "unsupported_grant_type"}
    scope = form.get("scope", [""])[0]
    if scope not in {KAFKA, SERVICES}:
        return HTTPStatus.BAD_REQUEST, {"error": "invalid_scope"}
    token = material.signer.token(user, scope)
    return HTTPStatus.OK, {"access_token": token, "token_type": "Bearer", "expires_in": int(TOKEN_LIFE_S)}


def _proven(material: Material, authorization: str) -> str | None:
    """Whose name and secret a header holds; None: nobody's."""
    try:
        pair = base64.b64decode(authorization.removeprefix("Basic "), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    user, _, secret = (unquote(part) for part in pair.partition(":"))
    if user not in {*USERS, ADMIN}:
        return None
    return user if hmac.compare_digest(secret.encode(), material.password(user).encode()) else None


class IssuerServer(ThreadingHTTPServer):
    """The issuer, over TLS.

    Args:
        material: of the stack.
        port: where it listens.
    """

    daemon_threads = True

    def __init__(self, material: Material, port: int) -> None:
        super().__init__((HOST, port), _Handler)
        self.material = material
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        leaf = material.leaf(ISSUER)
        context.load_cert_chain(leaf.certificate, leaf.private_key)
        # The handshake belongs to a connection's own thread: nobody holds up the others.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's signature
        """A connection that ended badly, in one line."""
        sys.stderr.write(f"{client_address}: {sys.exception()!r}\n")


class _Handler(BaseHTTPRequestHandler):
    server: IssuerServer
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        """The public key."""
        if self.path != "/jwks.json":
            self._say(HTTPStatus.NOT_FOUND, {})
            return
        self._say(HTTPStatus.OK, json.loads(self.server.material.signer.public_keys.read_bytes()))

    def do_POST(self) -> None:
        """A token."""
        length = self.headers.get("Content-Length", "")
        if self.path != "/token" or not length.isdigit() or int(length) > _LONGEST_FORM_BYTES:
            self._say(HTTPStatus.BAD_REQUEST, {"error": "invalid_request"})
            return
        form = parse_qs(self.rfile.read(int(length)).decode("utf-8", errors="replace"))
        self._say(*granted(self.server.material, self.headers.get("Authorization", ""), form))

    def _say(self, status: HTTPStatus, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Nothing."""


def main() -> None:
    """Serve until the process ends: `python -m lab.stack.secure.issuer FOLDER PORT`."""
    IssuerServer(Material.load(Path(sys.argv[1])), int(sys.argv[2])).serve_forever()


if __name__ == "__main__":
    main()
