"""Who looks, and what they may do: roles, the doors that tell who comes, and what keeps other pages from acting for them."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from starlette.types import Scope

from parallax.config.console import ConsoleProxy, ConsoleRole
from parallax.errors import ForbiddenError, UnauthenticatedError

_LONGEST_NAME = 256


class NotSignedInError(UnauthenticatedError):
    """Whoever looks has to sign in, or to sign in again: it is not the console that proves nobody."""


class NoRoleError(ForbiddenError):
    """Whoever looks may not do that here, whatever offset services would say."""


class Role(IntEnum):
    """What people may do; the greater holds the lesser."""

    VIEWER = 1
    """Look."""
    OPERATOR = 2
    """Planned moves, calling them off, putting groups back."""
    ADMIN = 3
    """Disasters, and moves that leave records out."""

    @property
    def word(self) -> str:
        """How configuration and pages write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Granted:
    """A role, and the consumer groups for which it holds; none: for all."""

    role: Role
    groups: tuple[str, ...] = ()

    def holds_for(self, group: str) -> bool:
        """Whether it holds for the group."""
        return not self.groups or any(re.fullmatch(pattern, group) for pattern in self.groups)


class OwnToken(Protocol):
    """What somebody shows offset services where they change something. Safe to use from many threads."""

    refused: bool
    """There will be none any more: they have to sign in again."""

    def __call__(self) -> str:
        """The token, as good as new.

        Raises:
            NotSignedInError: there is none any more.
            UnavailableError: the issuer does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who looks.

    Attributes:
        name: empty: nobody was asked.
        granted: what they may do.
        token: theirs, for offset services; None: these are shown the console's own credentials.
    """

    name: str
    granted: tuple[Granted, ...]
    token: OwnToken | None = field(default=None, repr=False, compare=False)

    @property
    def role(self) -> Role:
        """The greatest, for whichever group."""
        return max(item.role for item in self.granted)

    def may(self, role: Role, group: str) -> bool:
        """Whether they have the role for the group."""
        return any(item.role >= role and item.holds_for(group) for item in self.granted)

    def require(self, role: Role, group: str) -> None:
        """Nothing, if they have the role for the group.

        Raises:
            NoRoleError: they have not.
        """
        if not self.may(role, group):
            who = f"{self.name} is" if self.name else "whoever looks here is"
            raise NoRoleError(f"{who} not {role.word} for this group (console.auth.roles, console.role)")


class Entrance(Protocol):
    """Tells who comes."""

    def person(self, scope: Scope) -> Person:
        """Who asks.

        Raises:
            UnauthenticatedError: it was not proven.
            ForbiddenError: they may not look.
        """


class OpenEntrance:
    """Asks nobody: the address keeps others out.

    Args:
        role: of everybody.
    """

    def __init__(self, role: str) -> None:
        self._anybody = Person("", (Granted(Role[role.upper()]),))

    def person(self, _scope: Scope) -> Person:
        """Anybody."""
        return self._anybody


class ProxyEntrance:
    """Believes a proxy's headers, if they come from it.

    Args:
        proxy: which, and in which headers.
        roles: of people.
    """

    def __init__(self, proxy: ConsoleProxy, roles: Sequence[ConsoleRole]) -> None:
        self._proxy = proxy
        self._roles = roles
        self._user = proxy.user_header.lower().encode()
        self._groups = proxy.groups_header.lower().encode()

    def person(self, scope: Scope) -> Person:
        """Who the proxy says it is."""
        peer = (scope.get("client") or ("",))[0]
        if not self._trusts(peer):
            raise UnauthenticatedError(
                f"{peer or 'who asks'} is no proxy of this console: ask for it through that"
            )
        names = [value for key, value in scope["headers"] if key == self._user]
        lists = [value for key, value in scope["headers"] if key == self._groups]
        if len(names) != 1 or len(lists) > 1:
            raise UnauthenticatedError(
                f"the proxy does not say who looks, once, in {self._proxy.user_header}"
            )
        name = names[0].decode("utf-8", "replace").strip()
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise UnauthenticatedError(f"{self._proxy.user_header} names nobody")
        of = [part.strip() for text in lists for part in text.decode("utf-8", "replace").split(",")]
        granted = granted_to(name, [part for part in of if part], self._roles)
        if not granted:
            raise NoRoleError(f"{name} has no role here (console.auth.roles)")
        return Person(name, granted)

    def _trusts(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._proxy.trusted)


def granted_to(name: str, member_of: Collection[str], roles: Sequence[ConsoleRole]) -> tuple[Granted, ...]:
    """The roles of somebody."""
    return tuple(
        Granted(Role[item.role.upper()], item.groups)
        for item in roles
        if any(re.fullmatch(pattern, name) for pattern in item.users)
        or any(re.fullmatch(pattern, group) for pattern in item.members_of for group in member_of)
    )


def split_address(text: str) -> SplitResult:
    """The parts of an address in a header; none where it can't be one."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")


class Seal:
    """Marks forms of this console, so that no other page can have one of them sent for somebody.

    Args:
        key: secret; None: one of this process alone, so that a form of an earlier one has to be opened again.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def of(self, person: Person) -> str:
        """The mark of a person's forms."""
        return hmac.new(self._key, person.name.encode(), hashlib.sha256).hexdigest()

    def check(self, person: Person, mark: str, origin: str, host: str, hosts: Collection[str]) -> None:
        """Nothing, if a form is ours and was sent from a page of ours.

        Args:
            person: who sends it.
            mark: in the form.
            origin: the header; empty: there is none.
            host: the header.
            hosts: names under which a proxy shows the console.

        Raises:
            NoRoleError: it is not.
        """
        parts = split_address(origin)
        ours = bool(parts.netloc) and (parts.netloc == host or (parts.hostname or "") in hosts)
        if not ours or not hmac.compare_digest(mark.encode(), self.of(person).encode()):
            raise NoRoleError(
                "this was not sent from a page of this console, or from one of before its last start: open the page again"
            )
