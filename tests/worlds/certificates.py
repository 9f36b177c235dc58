"""Certificates for tests: an authority, and what it signs, good and bad."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
"""Python 3.13 and later ask for it, and for the identifiers of keys."""


@dataclass(frozen=True)
class Pair:
    """A certificate, its key, and both in one file."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs what it is asked to, into a folder."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = directory / f"{name}.pem"
        own = (
            _builder(self._name, self._key, timedelta(days=1))
            .issuer_name(self._name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate.write_bytes(own.public_bytes(Encoding.PEM))

    def pair(
        self,
        name: str,
        *,
        host: str = "127.0.0.1",
        life: timedelta = timedelta(hours=12),
        password: str | None = None,
    ) -> Pair:
        """For a server at a host, or a client of that name; a life below zero has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            alternative = x509.DNSName(host)
        signed = (
            _builder(_named(name), key, life)
            .issuer_name(self._name)
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        locked = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
        made = Pair(*(self._directory / f"{name}.{suffix}" for suffix in ("crt", "key", "pem")))
        made.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
        made.key.write_bytes(key_pem)
        made.both.write_bytes(key_pem + signed.public_bytes(Encoding.PEM))
        return made


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey, life: timedelta) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + life) - timedelta(minutes=5))
        .not_valid_after(now + life)
    )


@contextmanager
def tls_server(pair: Pair, *, clients: Path | None = None) -> Iterator[str]:
    """The address of one that agrees on TLS, or doesn't, and then closes.

    Args:
        pair: what it shows.
        clients: must show a certificate of this authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            with taken:
                taken.settimeout(5)
                with suppress(OSError):
                    context.wrap_socket(taken, server_side=True).close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)
