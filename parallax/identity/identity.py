"""Who calls and what for: the one place that every server asks, whatever it speaks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import structlog

from parallax.config.auth import Auth
from parallax.config.values import is_loopback
from parallax.domain.rights import ANYBODY, OPEN, Policy, Principal, ProvenBy, Right, Rule
from parallax.errors import ConfigError, InvalidNameError, UnauthenticatedError
from parallax.identity.certificates import LONGEST_NAME, is_a_name, principal_of_certificate
from parallax.identity.key_sets import key_set
from parallax.identity.tokens import TokenVerifier

_log = structlog.get_logger(__name__)

_RIGHTS = {right.word: right for right in Right}


@dataclass(frozen=True, slots=True)
class Shown:
    """What a caller has shown of itself.

    Attributes:
        certificate: in DER, as TLS has accepted it; None: it showed none.
        authorization: every header of that name.
    """

    certificate: bytes | None = None
    authorization: tuple[str, ...] = ()


NOTHING_SHOWN = Shown()


class Identity:
    """Tells who calls, and whether it may. Safe to use from many threads.

    Args:
        auth: how callers prove who they are, and what they may do.

    Raises:
        ConfigError: a file can't be read.
    """

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self.policy = policy_of(auth)
        self._tokens = None if auth.jwt is None else TokenVerifier(auth.jwt, key_set(auth.jwt))
        if auth.mode != "none" and not auth.rules:
            _log.warning("nobody_has_a_right", key="service.auth.rules")

    @property
    def asks(self) -> bool:
        """Whether callers have to prove who they are."""
        return self._auth.mode != "none"

    def keys_age_ms(self) -> float | None:
        """How long ago the issuer's keys were fetched; None: there are none yet, or they come from no address."""
        return None if self._tokens is None else self._tokens.keys.age_ms()

    def who(self, shown: Shown) -> Principal:
        """The caller.

        Raises:
            UnauthenticatedError: it showed nothing, or something that is not accepted, or the issuer's keys are too old.
            UnavailableError: the issuer's keys can't be had just now.
        """
        if self._auth.mode == "none":
            return ANYBODY
        if self._tokens is None:
            if shown.certificate is None:
                raise UnauthenticatedError("a certificate is needed")
            return principal_of_certificate(shown.certificate, self._auth.certificate_names)
        if len(shown.authorization) != 1:
            raise UnauthenticatedError("a bearer token is needed, in one 'authorization' header")
        return self._tokens.principal(shown.authorization[0])

    def require(self, shown: Shown, right: Right, group: str | None = None) -> Principal:
        """The caller, if it has the right for the group; without a group: for any.

        Raises:
            UnauthenticatedError: see `who`.
            ForbiddenError: the right is missing.
            UnavailableError: see `who`.
        """
        return self.policy.require(self.who(shown), right, group)


def in_whose_name(principal: Principal, actor: str, why: str = "") -> Principal:
    """Whose act it is: whoever was proven, on behalf of whom it names; where nobody is asked, whom the caller names, if anybody.

    Args:
        principal: whoever was proven.
        actor: whom the caller names.
        why: what the caller says of its reason.

    Raises:
        InvalidNameError: it can't name a principal.
    """
    principal = replace(principal, why=why.strip())
    if not actor:
        return principal
    if not is_a_name(actor):
        raise InvalidNameError(f"actor: text of one line and {LONGEST_NAME} characters at most")
    if principal.proven_by is ProvenBy.NOTHING:
        return Principal(actor, ProvenBy.OWN_WORD, why=principal.why)
    return principal if actor == principal.name else replace(principal, acts_for=actor)


def policy_of(auth: Auth) -> Policy:
    """The rules as the domain has them."""
    if auth.mode == "none":
        return OPEN
    return Policy(
        tuple(
            Rule(rule.principals, rule.groups, frozenset(_RIGHTS[word] for word in rule.allow))
            for rule in auth.rules
        )
    )


ASKS_NOBODY = Identity(Auth())
"""Everybody may do everything: the default, and for loopback alone."""


def require_safe(auth: Auth, addresses: Collection[str], *, tls: bool, missing: str = "service.tls") -> None:
    """Refuse to listen where strangers could call unasked, or read tokens on their way.

    Args:
        auth: how callers prove who they are.
        addresses: ``host:port``, of what is listened on.
        tls: whether connections are encrypted.
        missing: the key that would have them so.

    Raises:
        ConfigError: it is not safe, and ``service.auth.insecure`` does not say that it shall be so.
    """
    reached = [address for address in addresses if not is_loopback(address)]
    if not reached or auth.mode == "mtls" or (auth.mode == "jwt" and tls):
        return
    problem = (
        "nobody is asked who calls (service.auth is none), and whoever calls may make groups lose records"
        if auth.mode == "none"
        else f"tokens would cross the network in plain text (there is no {missing})"
    )
    where = ", ".join(reached)
    if not auth.insecure:
        raise ConfigError(
            f"{where}: others than this machine reach it, and {problem}; see docs/security.md, or set "
            "service.auth.insecure: true if you want it so"
        )
    _log.warning("insecure", addresses=reached, problem=problem)


def require_safe_pages(auth: Auth, address: str, *, tls: bool) -> None:
    """The same for the pages of a status server. They change nothing: where nobody is asked, they are anybody's who reaches them.

    Raises:
        ConfigError: see `require_safe`.
    """
    if auth.mode == "jwt":
        require_safe(auth, (address,), tls=tls, missing="status_tls")
    elif auth.mode == "mtls" and not tls:
        _log.warning(
            "pages_for_nobody",
            address=address,
            problem="service.auth asks for certificates, and without status_tls nobody can show one: /metrics and /status "
            "are refused",
        )
    elif auth.mode == "none" and not is_loopback(address):
        _log.warning(
            "pages_for_anybody",
            address=address,
            problem="others than this machine reach it, and nobody is asked who reads (service.auth is none): /metrics and /status "
            "tell names of topics, groups and clusters",
        )
