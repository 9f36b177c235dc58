from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from parallax.config.auth import CertificateName
from parallax.domain.rights import Policy, Principal, ProvenBy, Right, Rule
from parallax.errors import UnauthenticatedError
from parallax.identity import certificates as module
from parallax.identity.certificates import principal_of_certificate
from tests.worlds.authority import Authority

ALL: tuple[CertificateName, ...] = ("uri", "dns", "email", "common_name")
URI = x509.UniformResourceIdentifier("spiffe://bank/billing")
DNS = x509.DNSName("billing.bank.example")
EMAIL = x509.RFC822Name("ops@bank.example")
KINDS = (x509.UniformResourceIdentifier, x509.DNSName, x509.RFC822Name)


@pytest.mark.parametrize(
    ("common_name", "alternatives", "name"),
    [
        ("billing", [EMAIL, DNS, URI], "spiffe://bank/billing"),
        ("billing", [EMAIL, DNS], "dns:billing.bank.example"),
        ("billing", [EMAIL], "email:ops@bank.example"),
        ("billing", [], "common_name:billing"),
        ("", [DNS, x509.DNSName("other.example")], "dns:billing.bank.example"),
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


def of_each_kind(directory: Path, text: str) -> list[str]:
    """Who a text is as a URI, a DNS name, an e-mail address and a common name."""
    authority = Authority(directory)
    pairs = [authority.sign(alternatives=[kind(text)]) for kind in KINDS] + [authority.sign(text)]
    return [principal_of_certificate(pair.der, ALL).name for pair in pairs]


@pytest.mark.parametrize("text", ["spiffe://bank/operator", "operator.bank.example", "ops@bank.example"])
def test_one_text_is_another_principal_by_each_kind_of_name(tmp_path: Path, text: str) -> None:
    names = of_each_kind(tmp_path, text)
    assert len(set(names)) == len(ALL)
    rule = Policy((Rule((re.escape(text),), (".*",), frozenset({Right.READ})),))
    readers = [Principal(name, ProvenBy.CERTIFICATE) for name in names]
    assert [rule.allows_somewhere(reader, Right.READ) for reader in readers] == [True, False, False, False]


def test_names_that_do_not_tell_their_kind_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KINDS_TOLD", {})
    with pytest.raises(AssertionError):
        test_one_text_is_another_principal_by_each_kind_of_name(tmp_path, "spiffe://bank/operator")


@pytest.mark.parametrize("text", ["dns:operator.bank.example", "DNS:operator", "common_name:operator"])
def test_no_uri_looks_like_a_name_of_another_kind(tmp_path: Path, text: str) -> None:
    pair = Authority(tmp_path).sign(alternatives=[x509.UniformResourceIdentifier(text)])
    with pytest.raises(UnauthenticatedError, match="another kind"):
        principal_of_certificate(pair.der, ALL)


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
