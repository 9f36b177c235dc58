"""Who may call the offset service: how callers prove who they are, and what they may do (docs/security.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from parallax.config.secret import Secret
from parallax.config.values import Pattern, Section, is_loopback

CertificateName = Literal["uri", "dns", "email", "common_name"]
"""Where in a certificate a name stands: in the subject's alternative names, or in the subject itself."""

RightName = Literal["read", "report", "decide", "administer"]
"""`parallax.domain.rights.Right.word`."""


def _key_set(text: str) -> str:
    if "://" not in text:
        return text
    parts = urlsplit(text)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(f"{parts.hostname}:0")):
        raise ValueError(f"{text!r}: whoever is on the way could put keys of its own there; use https")
    return text


class Jwt(Section):
    """Which tokens are accepted."""

    issuer: Annotated[str, Field(min_length=1)]
    """The only ``iss`` that is accepted."""
    audience: Annotated[str, Field(min_length=1)]
    """What ``aud`` has to hold: the name under which the issuer knows this service."""
    jwks: Annotated[str, Field(min_length=1), AfterValidator(_key_set)]
    """The issuer's public keys (RFC 7517): a file, or an address that begins with ``https://``."""
    jwks_ca: str | None = None
    """PEM file of the authority of that address's certificate; None: those of the system."""
    keys_max_age_s: Annotated[int, Field(ge=600)] = 86_400
    """Keys behind an address that could not be fetched again for so long prove nobody any more."""
    principal_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim that names the principal."""
    leeway_s: Annotated[int, Field(ge=0, le=300)] = 30
    """So much may this clock differ from the issuer's."""


class ClientSettings(Section):
    """What our own commands and processes show to offset services, and whom they trust; files are read again when they change."""

    ca: str | None = None
    """PEM file of the authorities that sign the services' certificates; None: what ``service.tls.certificate_chain`` holds."""
    certificate_chain: str | None = None
    """PEM file of the caller's own certificate and those above it."""
    private_key: str | None = None
    """PEM file of its key."""
    token: Secret | None = None
    """A bearer token."""
    token_file: str | None = None
    """A file that holds it, and is read again when it changes."""
    insecure: bool = False
    """Send the token in plain text to other machines, too."""

    @model_validator(mode="after")
    def _pairs(self) -> ClientSettings:
        if (self.certificate_chain is None) != (self.private_key is None):
            raise ValueError("certificate_chain and private_key go together")
        if self.token is not None and self.token_file is not None:
            raise ValueError("name either token or token_file")
        return self


class AuthRule(Section):
    """Rights of principals for groups."""

    principals: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    groups: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    allow: Annotated[tuple[RightName, ...], Field(min_length=1)]


class Auth(Section):
    """Who may call; the mode alone may stand for the section: ``auth: none``."""

    mode: Literal["none", "mtls", "jwt"] = "none"
    """What proves who calls: nothing, a certificate, or a token."""
    insecure: bool = False
    """Serve everybody, or take tokens in plain text, on an address that others than this machine reach."""
    certificate_names: Annotated[tuple[CertificateName, ...], Field(min_length=1)] = (
        "uri",
        "dns",
        "email",
        "common_name",
    )
    """Where a certificate's name is looked for; the first that is there counts."""
    jwt: Jwt | None = None
    rules: tuple[AuthRule, ...] = ()
    """They add up; what none of them gives is forbidden."""

    @model_validator(mode="before")
    @classmethod
    def _mode_alone(cls, values: Any) -> Any:
        return {"mode": values} if isinstance(values, str) else values

    @model_validator(mode="after")
    def _fits_together(self) -> Auth:
        if (self.mode == "jwt") != (self.jwt is not None):
            raise ValueError("mode 'jwt' and a section 'jwt' go together: one of them is missing")
        if self.mode == "none" and self.rules:
            raise ValueError("rules mean nothing while mode is 'none': set it to mtls or jwt")
        return self
