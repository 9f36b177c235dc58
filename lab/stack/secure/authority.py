"""A certificate authority of a stack's own, and the certificates that its processes show each other.

As PEM, which brokers, Cassandra, librdkafka, gRPC and Python all read. The authority lives longer than what it signs: a
leaf is signed anew at each start, and whenever somebody asks (`Authority.leaf`), under the same names and in the same
files, which are replaced whole. So rotation can be tried with lives of seconds.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lab.stack.ports import HOST

DEFAULT_LIFE_S = 30 * 86_400
TRUST_DOMAIN = "parallax.lab"
_AUTHORITY_LIVES = 100
_CLOCKS_DIFFER = timedelta(minutes=5)
_SECRET = 0o600


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate and its key.

    Attributes:
        certificate: PEM of the certificate, and of the authority behind it.
        private_key: PEM (PKCS 8, without a password; only its owner may read the file).
        both: the two in one file, as the JVM's PEM key stores want them.
    """

    certificate: Path
    private_key: Path
    both: Path


def principal_uri(name: str) -> str:
    """The URI by which a certificate tells whose it is (a SPIFFE id, as service meshes write them)."""
    return f"spiffe://{TRUST_DOMAIN}/{name}"


class Authority:
    """An authority in a folder: made once, then found again.

    Args:
        directory: holds ``ca.pem``, ``ca.key`` and the leaves; only its owner may enter it.
        life_s: how long a leaf is valid, in seconds; the authority is for a hundred times as long.
        now: the time, with its zone.
    """

    def __init__(
        self,
        directory: Path,
        *,
        life_s: float = DEFAULT_LIFE_S,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._directory = directory
        self._life = timedelta(seconds=life_s)
        self._now = now
        self.certificate = directory / "ca.pem"
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.certificate.exists():
            self._found()
        key = load_pem_private_key((directory / "ca.key").read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{directory / 'ca.key'} is no elliptic curve key: it was not written here")
        self._key = key
        self._own = x509.load_pem_x509_certificate(self.certificate.read_bytes())

    def leaf(
        self,
        name: str,
        *,
        principal: str | None = None,
        life_s: float | None = None,
        addresses: Sequence[str] = (),
    ) -> Leaf:
        """Sign a new certificate, for a server on this machine or a client, in the place of the former one.

        Args:
            name: of the files, and of the machine where each process has one of its own.
            principal: whose it is: the common name, and a URI among the alternative names; ``name`` by default.
            life_s: valid for so long; negative: it has expired already. None: as long as all others.
            addresses: where a server is found besides this machine.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        whose = name if principal is None else principal
        until = self._now() + (self._life if life_s is None else timedelta(seconds=life_s))
        alternatives = [
            x509.DNSName("localhost"),
            x509.DNSName(name),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in (HOST, *addresses)),
            x509.UniformResourceIdentifier(principal_uri(whose)),
        ]
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            self._builder(_common_name(whose), key, min(self._now(), until) - _CLOCKS_DIFFER, until)
            .issuer_name(self._own.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(usage, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        found = Leaf(*(self._directory / f"{name}.{suffix}" for suffix in ("crt", "key", "pem")))
        certificate_pem = certificate.public_bytes(Encoding.PEM) + self.certificate.read_bytes()
        key_pem = pem_of(key)
        write_secret(found.private_key, key_pem)
        write_secret(found.both, key_pem + certificate_pem)
        write_secret(found.certificate, certificate_pem)
        return found

    def _found(self) -> None:
        """Make the authority itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        name, now = _common_name("Parallax lab"), self._now()
        certificate = (
            self._builder(name, key, now - _CLOCKS_DIFFER, now + self._life * _AUTHORITY_LIVES)
            .issuer_name(name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(key, hashes.SHA256())
        )
        write_secret(self._directory / "ca.key", pem_of(key))
        write_secret(self.certificate, certificate.public_bytes(Encoding.PEM))

    @staticmethod
    def _builder(
        subject: x509.Name, key: ec.EllipticCurvePrivateKey, since: datetime, until: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(until)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def write_secret(path: Path, content: bytes) -> None:
    """Replace a file in one step by one that only its owner may read: a reader never sees half of it. Its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.touch(mode=_SECRET)
    draft.write_bytes(content)
    draft.replace(path)


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM (PKCS 8, without a password)."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
