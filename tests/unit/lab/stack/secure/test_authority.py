"""Certificates of a secure stack: two sides that show them know each other, and nobody else."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from lab.stack.secure.authority import Authority, Leaf, principal_uri


def context(authority: Authority, leaf: Leaf, *, server: bool) -> ssl.SSLContext:
    purpose = ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH
    found = ssl.create_default_context(purpose, cafile=str(authority.certificate))
    found.load_cert_chain(leaf.certificate, leaf.private_key)
    found.verify_mode = ssl.CERT_REQUIRED
    return found


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, object]:
    """Both sides of a handshake over memory; what the server learns of its client."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(to_server, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    for _ in range(4):
        for side in (here, there):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    learnt = there.getpeercert()
    assert learnt
    return dict(learnt)


def test_both_sides_prove_themselves(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = authority.leaf("broker-1", principal="broker"), authority.leaf("operator")
    learnt = shake_hands(context(authority, server, server=True), context(authority, client, server=False))
    assert learnt["subject"] == ((("commonName", "operator"),),)
    assert ("URI", principal_uri("operator")) in learnt["subjectAltName"]  # type: ignore[operator]


@pytest.mark.parametrize("whose", ["expired", "foreign"])
def test_a_certificate_that_is_over_or_of_another_authority_is_refused(tmp_path: Path, whose: str) -> None:
    authority, other = Authority(tmp_path / "own"), Authority(tmp_path / "other")
    client = authority.leaf("client", life_s=-60) if whose == "expired" else other.leaf("client")
    server = authority.leaf("server")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context(authority, server, server=True), context(authority, client, server=False))


def test_the_authority_stays_and_leaves_are_signed_anew(tmp_path: Path) -> None:
    before = Authority(tmp_path)
    root, first = before.certificate.read_bytes(), before.leaf("x").certificate.read_bytes()
    after = Authority(tmp_path)
    assert after.certificate.read_bytes() == root
    assert after.leaf("x").certificate.read_bytes() != first


def test_lives_are_as_short_as_one_likes(tmp_path: Path) -> None:
    leaf = Authority(tmp_path, life_s=90).leaf("x")
    certificate = x509.load_pem_x509_certificate(leaf.certificate.read_bytes())
    lasts_s = (certificate.not_valid_after_utc - certificate.not_valid_before_utc).total_seconds()
    assert lasts_s == pytest.approx(90 + 300, abs=2)  # clocks differ: it began five minutes ago


def test_only_its_owner_may_read_a_key(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    leaf = Authority(folder).leaf("x")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in (leaf.private_key, leaf.both, folder / "ca.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
