from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from parallax.config.auth import CertificateName
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import UnauthenticatedError
from parallax.identity.certificates import principal_of_certificate
from tests.worlds.authority import Authority

ALL: tuple[CertificateName, ...] = ("uri", "dns", "email", "common_name")
URI = x509.UniformResourceIdentifier("spiffe://bank/billing")
DNS = x509.DNSName("billing.bank.example")
EMAIL = x509.RFC822Name("ops@bank.example")


@pytest.mark.parametrize(
    ("common_name", "alternatives", "name"),
    [
        ("billing", [EMAIL, DNS, URI], "spiffe://bank/billing"),
        ("billing", [EMAIL, DNS], "billing.bank.example"),
        ("billing", [EMAIL], "ops@bank.example"),
        ("billing", [], "billing"),
        ("", [DNS, x509.DNSName("other.example")], "billing.bank.example"),
    ],
)
def test_the_first_kind_of_name_counts(
    tmp_path: Path, common_name: str, alternatives: list[x509.GeneralName], name: str
) -> None:
    pair = Authority(tmp_path).sign(common_name, alternatives)
    assert principal_of_certificate(pair.der, ALL) == Principal(name, ProvenBy.CERTIFICATE)


def test_a_name_of_a_kind_that_is_not_asked_for_proves_nobody(tmp_path: Path) -> None:
    pair = Authority(tmp_path).sign("spiffe://bank/operator", [DNS])
    with pytest.raises(UnauthenticatedError, match="names nobody"):
        principal_of_certificate(pair.der, ("uri",))


@pytest.mark.parametrize("name", ["two\nlines", "bell\a"])
def test_a_name_that_no_page_can_show_proves_nobody(tmp_path: Path, name: str) -> None:
    pair = Authority(tmp_path).sign(name)
    with pytest.raises(UnauthenticatedError, match="names nobody"):
        principal_of_certificate(pair.der, ALL)


def test_no_other_name_stands_in_for_one_that_no_page_can_show(tmp_path: Path) -> None:
    unfit = x509.UniformResourceIdentifier("spiffe://bank/" + "x" * 512)
    pair = Authority(tmp_path).sign("operator", [unfit, DNS])
    with pytest.raises(UnauthenticatedError, match="names nobody"):
        principal_of_certificate(pair.der, ALL)


def test_a_connection_outlives_its_certificate_but_proves_nobody(tmp_path: Path) -> None:
    pair = Authority(tmp_path).sign("billing", days=1)
    with pytest.raises(UnauthenticatedError, match="has expired"):
        principal_of_certificate(pair.der, ALL, lambda: datetime.now(UTC) + timedelta(days=2))


def test_what_is_no_certificate_proves_nobody() -> None:
    with pytest.raises(UnauthenticatedError, match="can't be read"):
        principal_of_certificate(b"nonsense", ALL)
