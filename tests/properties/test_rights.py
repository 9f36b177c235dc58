"""Rules give what they say and nothing else, held against tables written by hand; and rules that are broken are noticed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping

import pytest

from parallax.domain import rights as module
from parallax.domain.ids import GroupName
from parallax.domain.rights import ANYBODY, OPEN, Policy, Principal, ProvenBy, Right, Rule
from parallax.errors import ForbiddenError, ParallaxError, UnauthenticatedError

NAMES = ("team", "team-a", "team-b", "steam", "team-a\n", "other", "")
FITTING: Mapping[str, frozenset[str]] = {
    "team": frozenset({"team"}),
    "team-.": frozenset({"team-a", "team-b"}),
    "tea": frozenset(),
    "team|other": frozenset({"team", "other"}),
    ".*": frozenset({"team", "team-a", "team-b", "steam", "other", ""}),
    "s?team": frozenset({"team", "steam"}),
}
"""Which of the names each pattern fits, as a person reads it."""
HELD: Mapping[Right, frozenset[Right]] = {
    Right.READ: frozenset({Right.READ}),
    Right.REPORT: frozenset({Right.READ, Right.REPORT}),
    Right.DECIDE: frozenset({Right.READ, Right.REPORT, Right.DECIDE}),
    Right.ADMINISTER: frozenset(Right),
}


def a_rule(chance: random.Random) -> Rule:
    def some(choices: Iterable[str]) -> tuple[str, ...]:
        return tuple(chance.sample(sorted(choices), chance.randint(1, 2)))

    return Rule(some(FITTING), some(FITTING), frozenset(chance.sample(list(Right), chance.randint(1, 2))))


def fits(name: str, patterns: Iterable[str]) -> bool:
    return any(name in FITTING[pattern] for pattern in patterns)


def held_by(rules: Iterable[Rule], name: str) -> set[tuple[Right, str]]:
    """Every right and group that a principal has, counted out."""
    return {
        (right, group)
        for rule in rules
        if fits(name, rule.principals)
        for given in rule.allow
        for right in HELD[given]
        for group in NAMES
        if fits(group, rule.groups)
    }


def check(seed: int) -> None:
    chance = random.Random(seed)
    rules = tuple(a_rule(chance) for _ in range(chance.randint(0, 3)))
    policy = Policy(rules)
    for name in NAMES:
        principal = Principal(name, chance.choice(list(ProvenBy)))
        held = held_by(rules, name)
        for right in Right:
            assert {group for group in NAMES if policy.allows(principal, right, group)} == {
                group for given, group in held if given is right
            }
            somewhere = any(
                right in HELD[given] for rule in rules if fits(name, rule.principals) for given in rule.allow
            )
            assert policy.allows_somewhere(principal, right) == somewhere
        assert policy.readable(principal, [GroupName(group) for group in NAMES]) == [
            group for group in NAMES if (Right.READ, group) in held
        ]


def check_all() -> None:
    for seed in range(400):
        check(seed)


def test_rules_give_what_they_say_and_nothing_else() -> None:
    check_all()


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a part of a name is enough": lambda patch: patch.setattr(
        module, "_fits", lambda name, patterns: any(re.match(pattern, name) for pattern in patterns)
    ),
    "the end of a line ends a name": lambda patch: patch.setattr(
        module, "_fits", lambda name, patterns: any(re.match(f"(?:{pattern})$", name) for pattern in patterns)
    ),
    "the first pattern counts": lambda patch: patch.setattr(
        module, "_fits", lambda name, patterns: re.fullmatch(next(iter(patterns)), name) is not None
    ),
    "a right holds itself alone": lambda patch: patch.setattr(
        Rule,
        "gives",
        lambda rule, who, right: right in rule.allow and module._fits(who.name, rule.principals),
    ),
    "a right holds the greater ones": lambda patch: patch.setattr(
        Rule,
        "gives",
        lambda rule, who, right: min(rule.allow) <= right and module._fits(who.name, rule.principals),
    ),
    "anybody is meant": lambda patch: patch.setattr(
        Rule, "gives", lambda rule, _, right: max(rule.allow) >= right
    ),
    "every group is meant": lambda patch: patch.setattr(Rule, "is_about", lambda *_: True),
    "a right somewhere is a right everywhere": lambda patch: patch.setattr(
        Policy, "allows", lambda policy, who, right, _: policy.allows_somewhere(who, right)
    ),
    "what no rule forbids is allowed": lambda patch: patch.setattr(
        Policy,
        "allows",
        lambda policy, who, right, group: (
            not policy.rules or any(rule.gives(who, right) and rule.is_about(group) for rule in policy.rules)
        ),
    ),
    "the last rule counts": lambda patch: patch.setattr(
        Policy,
        "allows",
        lambda policy, who, right, group: any(
            rule.gives(who, right) and rule.is_about(group) for rule in policy.rules[-1:]
        ),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        check_all()


READER = Policy((Rule(("reader",), ("billing",), frozenset({Right.READ})),))


def error_of(policy: Policy, principal: Principal | None, right: Right, group: str | None) -> ParallaxError:
    with pytest.raises(ParallaxError) as raised:
        policy.require(principal, right, group)
    return raised.value


def test_without_a_name_nothing_is_allowed() -> None:
    error = error_of(OPEN, None, Right.READ, None)
    assert isinstance(error, UnauthenticatedError)


def test_an_error_names_the_missing_right_and_nothing_that_exists() -> None:
    reader = Principal("reader", ProvenBy.TOKEN)
    errors = [error_of(READER, reader, Right.DECIDE, group) for group in ("billing", "nobody-has-this")]
    assert {type(error) for error in errors} == {ForbiddenError}
    assert len({str(error) for error in errors}) == 1
    assert "lacks the right to decide" in str(errors[0])
    assert "billing" not in str(errors[0])
    stranger = error_of(READER, Principal("stranger", ProvenBy.TOKEN), Right.READ, None)
    assert "lacks the right to read" in str(stranger)


def test_who_has_the_right_is_told_back() -> None:
    reader = Principal("reader", ProvenBy.CERTIFICATE)
    assert READER.require(reader, Right.READ, "billing") is reader
    assert READER.require(reader, Right.READ) is reader


@pytest.mark.parametrize("group", ["", "billing", "two\nlines"])
def test_where_nobody_is_asked_everybody_may_do_everything(group: str) -> None:
    assert all(OPEN.allows(ANYBODY, right, group) for right in Right)
