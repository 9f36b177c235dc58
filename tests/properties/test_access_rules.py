"""Rules of access at a target: against an authorizer that is asked at every source."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from parallax.domain import access_rules
from parallax.domain.access_rules import (
    WITHHELD,
    AccessKind,
    AccessOperation,
    AccessPolicy,
    AccessRule,
    NameMatch,
    SourceAccess,
    WantedRules,
    copied,
    merge_rules,
    wanted_rules,
)
from parallax.domain.ids import RegionName, TopicName
from tests.worlds.deadly import Mutants

DRAWS = 1_500
TOPICS = ("trips", "trips-eu", "rides")
PRINCIPALS = ("User:a", "User:b")
IMPLYING = {
    AccessOperation.DESCRIBE: {
        AccessOperation.READ,
        AccessOperation.WRITE,
        AccessOperation.DELETE,
        AccessOperation.ALTER,
    },
    AccessOperation.DESCRIBE_CONFIGS: {AccessOperation.ALTER_CONFIGS},
}


def may(rules: Collection[AccessRule], principal: str, operation: AccessOperation, topic: str) -> bool:
    """What a broker answers: who is forbidden it may not, whoever allows it, and what nobody allows is not allowed."""
    about = [rule for rule in rules if rule.principal == principal and rule.holds_for(topic)]
    if any(not rule.allow and rule.operation in {operation, AccessOperation.ALL} for rule in about):
        return False
    enough = {operation, AccessOperation.ALL, *IMPLYING.get(operation, ())}
    return any(rule.allow and rule.operation in enough for rule in about)


def drawn_rule(rng: random.Random) -> AccessRule:
    match = rng.choice((NameMatch.LITERAL, NameMatch.LITERAL, NameMatch.PREFIXED))
    names = ("trips", "tr", "r") if match is NameMatch.PREFIXED else (*TOPICS, "*")
    return AccessRule(
        AccessKind.TOPIC,
        match,
        rng.choice(names),
        rng.choice(PRINCIPALS),
        "*",
        rng.choice(list(AccessOperation)),
        rng.random() < 0.75,
    )


def check(seed: int) -> None:
    rng = random.Random(seed)
    sources: dict[RegionName, SourceAccess] = {}
    for region in map(RegionName, "ab"[: rng.choice((1, 2, 2))]):
        rules = {drawn_rule(rng) for _ in range(rng.randrange(6))}
        copies = {TopicName(topic): TopicName(topic) for topic in rng.sample(TOPICS, rng.randint(1, 3))}
        sources[region] = SourceAccess(frozenset(rules), copies)
    policy = AccessPolicy(wildcard=rng.random() < 0.5, prefixed=rng.random() < 0.7)
    wanted = wanted_rules(sources, policy)
    there = copied_to(sources)
    for principal in PRINCIPALS:
        for topic in (*TOPICS, "other", "parallax.runs.a"):
            having = [of for of in sources.values() if topic in of.copies]
            for operation in set(AccessOperation) - {AccessOperation.ALL}:
                allowed = may(wanted.rules, principal, operation, topic)
                everywhere = bool(having) and all(may(of.rules, principal, operation, topic) for of in having)
                assert everywhere or not allowed, (
                    f"{principal} may {operation} {topic}, and not at every source"
                )
                assert not (allowed and operation in WITHHELD), f"{principal} may {operation} {topic}"
                if (
                    len(having) == 1
                    and everywhere
                    and operation is AccessOperation.READ
                    and policy.prefixed
                    and policy.wildcard
                ):
                    assert allowed, f"{principal} may {operation} {topic} at its only source"
    merged_in_step(rng, wanted, there, policy)


def copied_to(sources: Mapping[RegionName, SourceAccess]) -> list[AccessRule]:
    """Some rules as a target may have them."""
    return [item.rule for of in sources.values() for item in copied(of, AccessPolicy())]


def merged_in_step(
    rng: random.Random, wanted: WantedRules, may_be: Collection[AccessRule], policy: AccessPolicy
) -> None:
    pool = sorted({*may_be, *(drawn_rule(rng) for _ in range(4))})
    there = {rule for rule in pool if rng.random() < 0.5}
    owned = {rule for rule in pool if rng.random() < 0.5}
    promoted = {rule for rule in owned if rng.random() < 0.3}
    policy = replace(policy, delete=rng.random() < 0.7)
    merged = merge_rules(wanted, there, owned, promoted, policy)
    after = (there | set(merged.add)) - set(merged.remove)
    assert after >= wanted.rules
    assert after >= there - owned, "somebody else's rule is gone"
    assert after >= there & promoted, "what was promoted is gone"
    if policy.delete:
        assert not after & (owned - promoted - wanted.rules), "a rule of ours stays that no source has"
    assert not set(merged.forget) & after


def draws(count: int) -> None:
    for seed in range(count):
        try:
            check(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_target_allows_what_every_source_allows_and_never_to_write() -> None:
    draws(DRAWS)


MUTANTS = Mutants()


@MUTANTS.add
def to_write_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_rules, "WITHHELD", frozenset())


@MUTANTS.add
def one_source_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_rules, "_missing", lambda _rule, _regions, _sources: [])


@MUTANTS.add
def what_is_forbidden_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = access_rules._allowed
    monkeypatch.setattr(
        access_rules, "_allowed", lambda rule, withheld: right(rule, withheld) if rule.allow else iter(())
    )


@MUTANTS.add
def rules_about_many_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        access_rules,
        "_allowed",
        lambda rule, _withheld: iter(
            [access_rules._Copied(replace(rule, match=NameMatch.PREFIXED, name=rule.name[:1]))]
        ),
    )


@MUTANTS.add
def all_stays_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_rules, "_allowed", lambda rule, _withheld: iter([access_rules._Copied(rule)]))


@MUTANTS.add
def nothing_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    right = access_rules.merge_rules
    monkeypatch.setitem(
        globals(),
        "merge_rules",
        lambda wanted, there, _owned, promoted, policy: right(wanted, there, there, promoted, policy),
    )


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_die(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        draws(DRAWS)
