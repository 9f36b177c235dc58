"""Who may do what: rights, principals, and the rules that give the one to the other. Pure; nothing is given by default.

Rights are a ladder: each holds all that stand below it. Whoever reports for a group reads its answers, whoever decides
about a group reports its moves, and whoever administers it decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from parallax.domain.ids import GroupName
from parallax.errors import ForbiddenError, UnauthenticatedError


class Right(IntEnum):
    """What may be done for a group; the greater holds the lesser."""

    READ = 1
    """Ask where the group resumes, where it is and where it is primary, and watch it."""
    REPORT = 2
    """Say what the group has delivered and which moves it has made: what its own consumers do."""
    DECIDE = 3
    """Say where the group is primary, with the agreement of a majority of the store."""
    ADMINISTER = 4
    """Decide without that agreement (a disaster decision), which two regions can do against each other."""

    @property
    def word(self) -> str:
        """How configuration, errors and pages write it."""
        return self.name.lower()


class ProvenBy(Enum):
    """How a principal's name was proven."""

    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105 - a kind of proof
    NOTHING = "nothing"
    """Nobody was asked for a name: the service takes calls from everybody."""
    ACCOUNT = "account"
    """The account and machine that a command ran under, as that machine says."""
    OWN_WORD = "own_word"
    """Whoever ran a command said so (``--actor``)."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever calls.

    Attributes:
        name: as the certificate or the token has it; the rules' patterns are held against it.
        proven_by: how it was proven.
        acts_for: for whom, as it says itself; empty: it says nothing. It has no rights by that, and is no other principal.
        why: why it acts, as it says itself.
    """

    name: str
    proven_by: ProvenBy
    acts_for: str = field(default="", compare=False)
    why: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.name


ANYBODY = Principal("anybody", ProvenBy.NOTHING)
"""The caller where nobody is asked for a name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Rights of principals for groups. Patterns are Python's regular expressions and match whole names.

    Attributes:
        principals: the rule is for those whose name fits one of these.
        groups: it is about groups whose name fits one of these.
        allow: what it gives, and with it all lesser rights.
    """

    principals: tuple[str, ...]
    groups: tuple[str, ...]
    allow: frozenset[Right]

    def gives(self, principal: Principal, right: Right) -> bool:
        """Whether it gives the principal the right, for whichever groups it is about."""
        return any(given >= right for given in self.allow) and _fits(principal.name, self.principals)

    def is_about(self, group: str) -> bool:
        """Whether it is about the group."""
        return _fits(group, self.groups)


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules together; what none of them gives is forbidden. Rules add up, and none takes away."""

    rules: tuple[Rule, ...] = ()

    def allows(self, principal: Principal, right: Right, group: str) -> bool:
        """Whether the principal has the right for the group."""
        return any(rule.gives(principal, right) and rule.is_about(group) for rule in self.rules)

    def allows_somewhere(self, principal: Principal, right: Right) -> bool:
        """Whether a rule gives the principal the right for any group, be there one or not."""
        return any(rule.gives(principal, right) for rule in self.rules)

    def require(self, principal: Principal | None, right: Right, group: str | None = None) -> Principal:
        """The principal, if it has the right.

        What an error says depends on the caller, the right and the name that it asked for: never on what exists.

        Args:
            principal: who calls; None: nobody was proven.
            right: what the call needs.
            group: for which group; None: the call is about none, so the right for any will do.

        Raises:
            UnauthenticatedError: nobody was proven.
            ForbiddenError: the right is missing.
        """
        if principal is None:
            raise UnauthenticatedError(
                "who calls was not proven: show a certificate or a token that this service accepts"
            )
        if group is None:
            if not self.allows_somewhere(principal, right):
                raise ForbiddenError(f"principal {principal.name!r} lacks the right to {right.word}")
        elif not self.allows(principal, right, group):
            raise ForbiddenError(
                f"principal {principal.name!r} lacks the right to {right.word} for this group name"
            )
        return principal

    def readable(self, principal: Principal, groups: Iterable[GroupName]) -> list[GroupName]:
        """Those of the groups that the principal may read."""
        return [group for group in groups if self.allows(principal, Right.READ, group)]


OPEN = Policy((Rule((r"(?s:.*)",), (r"(?s:.*)",), frozenset({Right.ADMINISTER})),))
"""Everybody may do everything: where nobody is asked for a name."""


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(re.fullmatch(pattern, name) is not None for pattern in patterns)
