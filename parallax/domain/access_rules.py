"""Which rules of access a target cluster takes from its sources. Pure.

A rule (Kafka's ACL) of a source becomes one of the target as follows (`copied`):

A. A rule about a topic that is copied becomes one about its copy. Rules about names that begin so, or about all, become one for each
   topic that is copied, so that nothing else is opened by them.
B. Whoever may do everything may read. To write is withheld: the target is written by its replicator alone, until it is promoted. So are
   to create, to delete and to alter.
C. What a rule forbids is forbidden at the target, too.
D. Of several sources of one topic all must allow what the target allows; what one of them forbids is forbidden.

`AccessMode.MM2` is MirrorMaker 2's set instead: rules about single names alone, of B only to write is withheld, and D is left out.
Rules that nobody wrote down as made by us are never removed (`merge_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Any, Self

from parallax.domain.ids import RegionName, TopicName

EVERY_NAME = "*"
"""Of a literal rule: it is about every resource of its kind."""
EVERYBODY = "User:*"
"""The principal of rules about whoever it is."""


class AccessKind(StrEnum):
    """What a rule is about."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"


class NameMatch(StrEnum):
    """Which names a rule is about."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class AccessOperation(StrEnum):
    """What may, or may not, be done."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


class AccessMode(StrEnum):
    """Which rules are copied."""

    SAFE = "safe"
    MM2 = "mm2"


WITHHELD = frozenset(
    {
        AccessOperation.WRITE,
        AccessOperation.CREATE,
        AccessOperation.DELETE,
        AccessOperation.ALTER,
        AccessOperation.ALTER_CONFIGS,
    }
)
"""What `AccessMode.SAFE` does not allow at a target."""


@dataclass(frozen=True, slots=True, order=True)
class AccessRule:
    """An ACL, as Kafka has it.

    Attributes:
        kind: topics or groups.
        match: how ``name`` is meant.
        principal: such as ``User:billing``.
        host: an address, or ``*``.
        allow: whether it allows; else it forbids.
    """

    kind: AccessKind
    match: NameMatch
    name: str
    principal: str
    host: str
    operation: AccessOperation
    allow: bool

    @property
    def about_all(self) -> bool:
        """Whether it is about every resource of its kind."""
        return self.match is NameMatch.LITERAL and self.name == EVERY_NAME

    def holds_for(self, name: str) -> bool:
        """Whether it is about the resource of that name."""
        if self.match is NameMatch.PREFIXED:
            return name.startswith(self.name)
        return self.name in (EVERY_NAME, name)

    def line(self) -> str:
        """It for people, on one line."""
        does = "allows" if self.allow else "forbids"
        where = "" if self.host == EVERY_NAME else f" from {self.host}"
        names = f"{self.name}*" if self.match is NameMatch.PREFIXED else self.name
        return f"{does} {self.principal}{where} {self.operation} on {self.kind.lower()} {names}"

    def to_json(self) -> dict[str, Any]:
        """It as JSON types."""
        return {
            "kind": self.kind.value,
            "match": self.match.value,
            "name": self.name,
            "principal": self.principal,
            "host": self.host,
            "operation": self.operation.value,
            "permission": "ALLOW" if self.allow else "DENY",
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The rule of what `to_json` made.

        Raises:
            KeyError, ValueError: it is something else.
        """
        return cls(
            AccessKind(values["kind"]),
            NameMatch(values["match"]),
            str(values["name"]),
            str(values["principal"]),
            str(values["host"]),
            AccessOperation(values["operation"]),
            {"ALLOW": True, "DENY": False}[values["permission"]],
        )


class AccessState(Enum):
    """What becomes of a rule."""

    ADD = "ADD"
    """The target gets it."""
    REMOVE = "REMOVE"
    """It was made by us, and no source has it any more."""
    ACL_DIFFERS = "ACL_DIFFERS"
    """Not every source of the topic allows it; the target does not."""
    ACL_WIDE = "ACL_WIDE"
    """A source has a rule about every name, which is not copied."""
    ACL_WITHHELD = "ACL_WITHHELD"
    """The target does not allow it, until it is promoted; or does not forbid it, since that would hit the replicator."""
    ACL_REFUSED = "ACL_REFUSED"
    """The target does not take it."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """How rules are copied.

    Attributes:
        wildcard: whether a rule about all names becomes one for each topic; else it is refused.
        prefixed: whether one about names that begin so does; else it is left out.
        groups: whether rules about groups are copied too (to read and to describe, and what is forbidden).
        delete: whether a rule that was made by us goes when no source has it any more.
        principals: who is called otherwise at the target.
        group_chosen: which groups are looked after.
        own: the replicator's principals at the target, as far as they are known. What forbids them something is left out.
    """

    mode: AccessMode = AccessMode.SAFE
    wildcard: bool = False
    prefixed: bool = True
    groups: bool = False
    delete: bool = True
    principals: Mapping[str, str] = field(default_factory=dict)
    group_chosen: Callable[[str], bool] = lambda _name: True
    own: frozenset[str] = frozenset()

    def locks_out(self, rule: AccessRule) -> bool:
        """Whether a rule forbids the replicator itself something."""
        return not rule.allow and (rule.principal in self.own or rule.principal == EVERYBODY)


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """What one source has to say.

    Attributes:
        rules: those of its cluster.
        copies: by topic there, the topic at the target.
    """

    rules: Collection[AccessRule]
    copies: Mapping[TopicName, TopicName]


@dataclass(frozen=True, slots=True)
class AccessFinding:
    """What becomes of one rule.

    Attributes:
        rule: as the target would have it.
        sources: which of them have it.
    """

    rule: AccessRule
    state: AccessState
    sources: tuple[RegionName, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WantedRules:
    """What the target shall have, and what it shall not."""

    rules: frozenset[AccessRule]
    withheld: frozenset[AccessRule]
    findings: tuple[AccessFinding, ...]


@dataclass(frozen=True, slots=True)
class _Copied:
    rule: AccessRule
    withheld: bool = False
    wide: bool = False


def copied(of: SourceAccess, policy: AccessPolicy) -> Iterator[_Copied]:
    """What becomes of one source's rules."""
    for rule in sorted(of.rules):
        named = replace(rule, principal=policy.principals.get(rule.principal, rule.principal))
        if rule.kind is AccessKind.GROUP:
            yield from _of_group(named, policy)
        elif policy.mode is AccessMode.MM2:
            if rule.match is NameMatch.LITERAL and (there := of.copies.get(TopicName(rule.name))) is not None:
                yield from _allowed(replace(named, name=there), frozenset({AccessOperation.WRITE}))
        elif rule.about_all and rule.allow and not policy.wildcard:
            yield _Copied(named, wide=True)
        elif rule.match is NameMatch.PREFIXED and rule.allow and not policy.prefixed:
            continue
        else:
            for here, there in of.copies.items():
                if rule.holds_for(here):
                    yield from _allowed(replace(named, match=NameMatch.LITERAL, name=there), WITHHELD)


def _allowed(rule: AccessRule, withheld: frozenset[AccessOperation]) -> Iterator[_Copied]:
    if not rule.allow:
        yield _Copied(rule)
    elif rule.operation is AccessOperation.ALL:
        yield _Copied(replace(rule, operation=AccessOperation.READ))
        yield _Copied(replace(rule, operation=AccessOperation.WRITE), withheld=True)
    else:
        yield _Copied(rule, withheld=rule.operation in withheld)


def _of_group(rule: AccessRule, policy: AccessPolicy) -> Iterator[_Copied]:
    if not policy.groups or policy.mode is AccessMode.MM2:
        return
    if rule.about_all:
        if rule.allow:
            yield _Copied(rule, wide=True)
            return
    elif (rule.match is NameMatch.PREFIXED and rule.allow and not policy.prefixed) or not policy.group_chosen(
        rule.name
    ):
        return
    if rule.allow and rule.operation is AccessOperation.ALL:
        yield _Copied(replace(rule, operation=AccessOperation.READ))
    elif not rule.allow or rule.operation in (AccessOperation.READ, AccessOperation.DESCRIBE):
        yield _Copied(rule)


def wanted_rules(sources: Mapping[RegionName, SourceAccess], policy: AccessPolicy) -> WantedRules:
    """What the target shall have of its sources together."""
    having: dict[AccessRule, set[RegionName]] = {}
    withheld: dict[AccessRule, set[RegionName]] = {}
    findings: list[AccessFinding] = []
    left_out: set[AccessRule] = set()
    for region, of in sources.items():
        for item in copied(of, policy):
            if policy.locks_out(item.rule):
                left_out.add(item.rule)
                findings.append(AccessFinding(item.rule, AccessState.ACL_WITHHELD, (region,), _LOCKS_OUT))
            elif item.wide:
                findings.append(AccessFinding(item.rule, AccessState.ACL_WIDE, (region,), _WIDE))
            else:
                (withheld if item.withheld else having).setdefault(item.rule, set()).add(region)
    rules: set[AccessRule] = set()
    for rule, regions in sorted(having.items()):
        missing = _missing(rule, regions, sources) if policy.mode is AccessMode.SAFE else []
        if missing:
            told = (
                f"{', '.join(missing)} does not allow it"
                if len(missing) == 1
                else f"{', '.join(missing)} do not allow it"
            )
            findings.append(AccessFinding(rule, AccessState.ACL_DIFFERS, tuple(sorted(regions)), told))
        else:
            rules.add(rule)
    kept = {
        rule
        for rule, regions in withheld.items()
        if policy.mode is AccessMode.MM2 or not _missing(rule, regions, sources)
    }
    rules, kept = (
        {rule for rule in some if not any(_forbids(other, rule) for other in left_out)}
        for some in (rules, kept)
    )
    return WantedRules(frozenset(rules), frozenset(kept), tuple(findings))


def _forbids(forbidding: AccessRule, rule: AccessRule) -> bool:
    """Whether what the first one forbids is something that the other allows."""
    return (
        rule.allow
        and rule.kind is forbidding.kind
        and forbidding.principal in (EVERYBODY, rule.principal)
        and (forbidding.holds_for(rule.name) or rule.holds_for(forbidding.name))
        and forbidding.operation in (AccessOperation.ALL, rule.operation, *_IMPLIED.get(rule.operation, ()))
    )


_IMPLIED = {
    AccessOperation.ALTER_CONFIGS: (AccessOperation.DESCRIBE_CONFIGS,),
    **dict.fromkeys(
        (AccessOperation.READ, AccessOperation.WRITE, AccessOperation.DELETE, AccessOperation.ALTER),
        (AccessOperation.DESCRIBE,),
    ),
}
"""What else may be done by whoever may do this."""
_LOCKS_OUT = (
    "it would forbid the replicator what it does there: what it forbids others is not allowed them either"
)

_WIDE = "it is about every name, also of what is not copied: name the topics, or set topics.acl_sync.wildcard to 'expand'"


def _missing(
    rule: AccessRule, regions: Collection[RegionName], sources: Mapping[RegionName, SourceAccess]
) -> list[RegionName]:
    """The sources of the rule's topic that don't have what it allows."""
    if not rule.allow or rule.kind is not AccessKind.TOPIC:
        return []
    return sorted(
        region for region, of in sources.items() if region not in regions and rule.name in of.copies.values()
    )


@dataclass(frozen=True, slots=True)
class MergedRules:
    """What is to be done at a target.

    Attributes:
        add: rules to make.
        remove: rules to take away, all of them made by us.
        forget: rules written down as ours that are gone.
    """

    add: tuple[AccessRule, ...]
    remove: tuple[AccessRule, ...]
    forget: tuple[AccessRule, ...]


def merge_rules(
    wanted: WantedRules,
    there: Collection[AccessRule],
    owned: Collection[AccessRule],
    promoted: Collection[AccessRule],
    policy: AccessPolicy,
    frozen: Callable[[AccessRule], bool] = lambda _rule: False,
) -> MergedRules:
    """What is to be done at the target.

    Args:
        wanted: what it shall have.
        there: what it has.
        owned: what was made by us.
        promoted: those of them that an operator's word has made; only its end takes them away.
        policy: how rules are copied.
        frozen: whether a source that does not answer may have a say in the rule.
    """
    present, ours, lasting = set(there), set(owned), set(promoted)
    add = sorted(rule for rule in wanted.rules - present if not frozen(rule))
    gone = ours - wanted.rules - lasting
    remove = sorted(rule for rule in gone & present if policy.delete and not frozen(rule))
    forget = sorted(rule for rule in gone - present if not frozen(rule))
    return MergedRules(tuple(add), tuple(remove), tuple(forget))


def may_write(
    rules: Iterable[AccessRule], names: Collection[str], own: Collection[str]
) -> list[tuple[AccessRule, list[str]]]:
    """The rules by which somebody else may change what is in these topics, each with the topics.

    Args:
        rules: those of the target.
        names: its topics.
        own: principals that are ours.
    """
    changing = {AccessOperation.ALL, *WITHHELD} - {AccessOperation.CREATE}
    found = []
    for rule in sorted(rules):
        if (
            rule.kind is AccessKind.TOPIC
            and rule.allow
            and rule.operation in changing
            and rule.principal not in own
        ):
            topics = sorted(name for name in names if rule.holds_for(name))
            if topics:
                found.append((rule, topics))
    return found
