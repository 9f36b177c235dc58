"""Who may look at the web console, and who may move groups there (docs/console.md)."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from parallax.config.values import Pattern, Section

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


class ConsoleRole(Section):
    """A role of people. Patterns match whole names."""

    role: RoleName
    users: tuple[Pattern, ...] = ()
    members_of: tuple[Pattern, ...] = ()
    """Of people who belong to a group of such a name at the proxy."""
    groups: Annotated[tuple[Pattern, ...], Field(min_length=1)] = (".*",)
    """For which consumer groups an operator's or admin's role holds."""


class ConsoleAuth(Section):
    """Who looks; the mode alone may stand for the section: ``auth: none``."""

    mode: Literal["none", "proxy"] = "none"
    """``none``: nobody is asked, and the console listens on loopback alone. ``proxy``: a proxy says who looks."""
    proxy: ConsoleProxy | None = None
    roles: tuple[ConsoleRole, ...] = ()
    """They add up; whom none of them fits may not look either."""
    insecure: bool = False
    """Believe a proxy in plain text on an address that others than this machine reach."""

    @model_validator(mode="before")
    @classmethod
    def _mode_alone(cls, values: Any) -> Any:
        return {"mode": values} if isinstance(values, str) else values

    @model_validator(mode="after")
    def _fits_together(self) -> ConsoleAuth:
        if (self.mode == "proxy") != (self.proxy is not None):
            raise ValueError("mode 'proxy' and a section 'proxy' go together: one of them is missing")
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
    hosts: tuple[str, ...] = ()
    """Names by which browsers ask for it, without a port, besides those of this machine and its own address."""
