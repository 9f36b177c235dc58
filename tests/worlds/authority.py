"""Authorities of tests: certificates as a bank's authority signs them, and tokens as its issuer does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

LOOPBACK: Sequence[x509.GeneralName] = (
    x509.DNSName("localhost"),
    x509.IPAddress(ip_address("127.0.0.1")),
)


def named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)] if text else [])


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, in files."""

    certificate: Path
    key: Path

    @property
    def der(self) -> bytes:
        found = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        return found.public_bytes(serialization.Encoding.DER)

    def take(self, other: Pair) -> None:
        """Have the other's content from now on: the key first, as clumsy scripts do."""
        self.key.write_bytes(other.key.read_bytes())
        self.certificate.write_bytes(other.certificate.read_bytes())


class Authority:
    """Signs certificates.

    Args:
        directory: where files go.
        name: of the authority.
    """

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self._made = 0
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(name))
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        )
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def sign(
        self,
        common_name: str = "",
        alternatives: Sequence[x509.GeneralName] = (),
        *,
        days: float = 1,
    ) -> Pair:
        """A certificate that ends in so many days; one that has ended already if they are negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(common_name))
            .issuer_name(named(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1.5))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=not common_name
            )
        self._made += 1
        stem = self._directory / f"{self._name}-{self._made}"
        pair = Pair(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        pair.certificate.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def client(self, uri: str) -> Pair:
        """A client's certificate, with a name as SPIFFE has it."""
        return self.sign(alternatives=[x509.UniformResourceIdentifier(uri)])

    def server(self) -> Pair:
        """The certificate of a server of this machine."""
        return self.sign("a server", LOOPBACK)


def rsa_key(bits: int = 2_048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=bits)


@dataclass
class Issuer:
    """Signs tokens."""

    name: str = "https://issuer.test"
    audience: str = "parallax"
    keys: dict[str, Any] = field(default_factory=lambda: {"first": rsa_key()})

    def token(self, subject: str | None = "reader", *, key_id: str = "first", **claims: Any) -> str:
        """A token of a minute; claims that are None are left out."""
        now_s = int(time.time())
        key = self.keys[key_id]
        values = {
            "iss": self.name,
            "aud": self.audience,
            "iat": now_s,
            "exp": now_s + 60,
            "sub": subject,
            **claims,
        }
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(
            {name: value for name, value in values.items() if value is not None},
            key,
            algorithm=algorithm,
            headers={"kid": key_id},
        )

    def document(self) -> bytes:
        """The public keys (RFC 7517)."""
        entries = []
        for key_id, key in self.keys.items():
            kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
            entries.append({**json.loads(kind.to_jwk(key.public_key())), "kid": key_id, "use": "sig"})
        return json.dumps({"keys": entries}).encode()


@contextmanager
def serving_document(document: Any) -> Iterator[tuple[str, list[str]]]:
    """Serve what a function returns, at the address that is handed out; the list grows with each path that was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body: bytes = document()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/keys", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
