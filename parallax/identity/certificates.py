"""The name that a client's certificate proves. Whether an authority vouches for it, TLS has looked at before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID

from parallax.config.auth import CertificateName
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import UnauthenticatedError

LONGEST_NAME = 512
"""Of a principal: it stands in logs, errors and the audit."""

_KINDS_TOLD: Mapping[CertificateName, str] = {"dns": "dns:", "email": "email:", "common_name": "common_name:"}
"""What a principal's name begins with, so that names of several kinds with one text are several principals. A URI stands
alone, for it begins with a scheme of its own."""

_ALTERNATIVES: Mapping[
    CertificateName, type[x509.UniformResourceIdentifier | x509.DNSName | x509.RFC822Name]
] = {
    "uri": x509.UniformResourceIdentifier,
    "dns": x509.DNSName,
    "email": x509.RFC822Name,
}


def principal_of_certificate(
    der: bytes, names: Sequence[CertificateName], now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Principal:
    """The principal of a certificate that TLS has accepted.

    Args:
        der: the certificate.
        names: where its name is looked for; the first that is there counts.
        now: TLS looks at the dates once, connections live for longer.

    Raises:
        UnauthenticatedError: it has expired, or has no such name, or one that can't name a principal: another kind of name
            does not stand in for that, and no name may look like one of another kind.
    """
    found, ends = _read(der)
    if now() > ends:
        raise UnauthenticatedError(
            f"the certificate has expired ({ends:%Y-%m-%d %H:%M} UTC): connect with a newer one"
        )
    kind = next((kind for kind in names if kind in found), None)
    if kind is None:
        raise UnauthenticatedError(
            f"the certificate names nobody: it has none of {', '.join(names)} (service.auth.certificate_names)"
        )
    told = _KINDS_TOLD.get(kind, "")
    name = told + found[kind]
    if not found[kind] or not is_a_name(name):
        raise UnauthenticatedError(
            f"the certificate names nobody: its first name is longer than {LONGEST_NAME} characters, empty, or no text of "
            "one line"
        )
    if not told and name.lower().startswith(tuple(_KINDS_TOLD.values())):
        raise UnauthenticatedError("the certificate names nobody: its URI looks like a name of another kind")
    return Principal(name, ProvenBy.CERTIFICATE)


@lru_cache(maxsize=1_024)
def _read(der: bytes) -> tuple[Mapping[CertificateName, str], datetime]:
    """The first name of each kind, and when the certificate ends."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        found: dict[CertificateName, str] = {}
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if common:
            found["common_name"] = str(common[0].value)
        try:
            alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            pass
        else:
            for kind, general in _ALTERNATIVES.items():
                values = alternative.get_values_for_type(general)
                if values:
                    found[kind] = str(values[0])
        ends = certificate.not_valid_after_utc
    except ValueError as error:
        raise UnauthenticatedError("the certificate can't be read") from error
    return found, ends


def is_a_name(name: object) -> bool:
    """Whether it may name a principal: text of one line that a page can show."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()
