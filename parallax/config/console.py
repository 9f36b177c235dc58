"""Who may look at the web console, and who may move groups there (docs/console.md)."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from parallax.config.secret import Secret, check_given_once, read_secret
from parallax.config.values import HostName, Pattern, Section, is_loopback

RoleName = Literal["viewer", "operator", "admin"]
"""A ladder: each may do all that stands before it."""


class ConsoleProxy(Section):
    """A proxy that has asked who looks, and says so in headers."""

    trusted: Annotated[tuple[IPv4Network | IPv6Network, ...], Field(min_length=1)]
    """Addresses from which headers are believed; whoever comes from elsewhere is sent away."""
    user_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "X-Forwarded-User"
    """The header with the user's name."""
    groups_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = "X-Forwarded-Groups"
    """The header with the names of the groups that the user belongs to, with commas between them."""


def _web_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is no address that begins with https://")
    if parts.scheme == "http" and not is_loopback(f"{parts.hostname}:0"):
        raise ValueError(f"{text!r}: whoever is on the way could sign in as anybody; use https")
    return text


def _origin(text: str) -> str:
    parts = urlsplit(_web_address(text))
    if parts.path not in {"", "/"} or parts.username is not None:
        raise ValueError(
            f"{text!r}: the console's own address is scheme, host and, if need be, port: https://parallax.example"
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


class ConsoleOidc(Section):
    """Whom people sign in at: an issuer of OpenID Connect, by the authorization code flow with PKCE."""

    issuer: Annotated[str, AfterValidator(_web_address)]
    """As its tokens name it in ``iss``; what else is to be known stands at ``/.well-known/openid-configuration`` below it."""
    ca: str | None = None
    """PEM file of the authority of its certificate; None: those of the system."""
    client_id: Annotated[str, Field(min_length=1)]
    """The console's name there."""
    client_secret: Secret | None = None
    """None, and no file either: a public client."""
    client_secret_file: str | None = None
    url: Annotated[str, AfterValidator(_origin)]
    """The console's own address as browsers have it. The issuer sends people back to its ``/signed-in``."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    user_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim of the ID token that names who looks. ``email`` counts only where the issuer says that it was verified."""
    groups_claim: Annotated[str, Field(min_length=1)] = "groups"
    """The claim with the names of the groups that they belong to."""
    session_max_age_s: Annotated[int, Field(ge=60, le=604_800)] = 28_800
    """After so long people sign in anew, and their roles are looked up again."""
    acts_as: Literal["console", "person"] = "console"
    """Whose credentials offset services see where something is changed: the console's, which names the person; or the person's token."""
    leeway_s: Annotated[int, Field(ge=0, le=300)] = 30
    """So much may this clock differ from the issuer's."""

    @model_validator(mode="after")
    def _fits_together(self) -> ConsoleOidc:
        check_given_once(self)
        if "openid" not in self.scopes:
            raise ValueError("scopes have to hold 'openid': without it the issuer says nobody's name")
        return self

    def secret(self) -> str | None:
        """The client's secret, as it is now; None: it has none.

        Raises:
            ConfigError: its file can't be read.
        """
        key = "console.auth.oidc.client_secret"
        return read_secret(self.client_secret, self.client_secret_file, key)


class ConsoleRole(Section):
    """A role of people. Patterns match whole names."""

    role: RoleName
    users: tuple[Pattern, ...] = ()
    members_of: tuple[Pattern, ...] = ()
    """Of people who belong to a group of such a name, as the proxy or the issuer says."""
    groups: Annotated[tuple[Pattern, ...], Field(min_length=1)] = (".*",)
    """For which consumer groups an operator's or admin's role holds."""


class ConsoleAuth(Section):
    """Who looks; the mode alone may stand for the section: ``auth: none``."""

    mode: Literal["none", "proxy", "oidc"] = "none"
    """``none``: nobody is asked, and the console listens on loopback alone. ``proxy``: a proxy says who looks. ``oidc``: people
    sign in."""
    proxy: ConsoleProxy | None = None
    oidc: ConsoleOidc | None = None
    roles: tuple[ConsoleRole, ...] = ()
    """They add up; whom none of them fits may not look either."""
    insecure: bool = False
    """Believe a proxy, or let people sign in, in plain text on an address that others than this machine reach."""

    @model_validator(mode="before")
    @classmethod
    def _mode_alone(cls, values: Any) -> Any:
        return {"mode": values} if isinstance(values, str) else values

    @model_validator(mode="after")
    def _fits_together(self) -> ConsoleAuth:
        for mode, section in (("proxy", self.proxy), ("oidc", self.oidc)):
            if (self.mode == mode) != (section is not None):
                raise ValueError(f"mode '{mode}' and a section '{mode}' go together: one of them is missing")
        if self.mode == "none" and self.roles:
            raise ValueError("roles mean nothing while mode is 'none': nobody is asked who looks")
        return self


class ConsoleTls(Section):
    """Certificates of the console, as paths of PEM files; read again when they change."""

    certificate_chain: str
    private_key: str
    client_ca: str | None = None
    """Whoever asks, which is the proxy, must show a certificate of this authority; None: it needs none."""


class ConsoleSettings(Section):
    """The web console."""

    tls: ConsoleTls | None = None
    """None: plain text."""
    auth: ConsoleAuth = ConsoleAuth()
    role: RoleName = "viewer"
    """Where nobody is asked who looks: what everybody on this machine may do, as far as the console's own credentials let it."""
    hosts: tuple[HostName, ...] = ()
    """Names by which browsers ask for it, without a port, besides those of this machine and its own address."""
