"""Settings of topics in step: random lives of a topic against a model that knows who has written what."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from parallax.domain import topic_settings
from parallax.domain.ids import RegionName
from parallax.domain.topic_settings import (
    Agreed,
    MergedSettings,
    SettingsRule,
    SettingState,
    TopicSetting,
    held_back,
    merge,
)
from tests.worlds.deadly import Mutants

LIVES = 800
STEPS = 14
ORDERED, PLAIN = "retention.ms", "segment.ms"
KEYS = (ORDERED, PLAIN)
DEFAULT = "100"
VALUES = ("-1", "50", "100", "200", "1000")
A, B = RegionName("a"), RegionName("b")

Own = dict[str, str]
"""What a topic says itself, by key."""


def settings_of(own: Mapping[str, str]) -> dict[str, TopicSetting]:
    return {
        key: TopicSetting(own.get(key, DEFAULT), own.get(key), DEFAULT, builtin=key not in own)
        for key in KEYS
    }


def wanted_of(sources: Sequence[Own], key: str, *, widest: bool) -> tuple[bool, str | None]:
    """Whether the sources agree, or can be made to, and on what: by trying every value against every source."""
    said = {own.get(key) for own in sources}
    if len(said) == 1:
        return True, next(iter(said))
    in_force = [own.get(key, DEFAULT) for own in sources]
    if len(set(in_force)) == 1:
        return True, in_force[0]
    if key == PLAIN or not widest:
        return False, None
    keeps = lambda value, age: value == "-1" or age < int(value)  # noqa: E731 - a record of that age is still there
    candidates = [
        value
        for value in in_force
        if all(keeps(value, age) for of in in_force for age in range(1_001) if keeps(of, age))
    ]
    return True, candidates[0]


@dataclass
class Life:
    """A topic at its sources and at the target, with who wrote the target's values."""

    rng: random.Random
    rule: SettingsRule
    sources: list[Own]
    target: Own = field(default_factory=dict)
    noted: dict[str, Agreed] = field(default_factory=dict)
    operators: set[str] = field(default_factory=set)
    """Keys that somebody has set at the target, or taken away, and that no round has found equal to the sources' since."""
    taken: Own = field(default_factory=dict)
    """What the target had when it was last found equal."""

    def edit(self) -> None:
        key = self.rng.choice(KEYS)
        at_target = self.rng.random() < 0.4
        side = self.target if at_target else self.rng.choice(self.sources)
        if self.rng.random() < 0.3:
            side.pop(key, None)
        else:
            side[key] = self.rng.choice(VALUES)
        if at_target:
            as_it_was = side.get(key) == self.taken.get(key)
            self.operators = self.operators - {key} if as_it_was else self.operators | {key}

    def merged(self) -> MergedSettings:
        regions = dict(zip((A, B), map(settings_of, self.sources), strict=False))
        return merge(regions, settings_of(self.target), self.noted, self.rule)

    def round(self, *, crash: bool = False, refused: str = "") -> None:
        merged = self.merged()
        before, noted = dict(self.target), self.noted
        merged = held_back(merged, {refused: "no"}, SettingState.CONFIG_REFUSED)
        for key, value in merged.changes.items():
            if value is None:
                self.target.pop(key, None)
            else:
                self.target[key] = value
        if not crash:
            self.noted = merged.agreed_after(merged.changes.keys())
        self.check(merged, before, noted, refused)
        if crash:
            self.round()  # what was not noted is found

    def check(self, merged: MergedSettings, before: Own, noted: Mapping[str, Agreed], refused: str) -> None:
        told = {item.key: item for item in merged.findings}
        for key in KEYS:
            agree, wanted = wanted_of(self.sources, key, widest=self.rule.widest)
            now, was = self.target.get(key), before.get(key)
            in_step = agree and (now == wanted or (wanted is None and now == DEFAULT))
            if not agree:
                assert now == was, "sources disagree, and the target was changed"
                assert key in told
                assert told[key].state is SettingState.CONFIG_CONFLICT
                continue
            assert now in (was, wanted), "a value that nobody wants"
            if key == refused and key in told:
                assert now == was
                continue
            if key in self.operators and not self.rule.revert:
                assert now == was, f"{key}: what somebody has set at the target is gone: {noted.get(key)}"
                told_as = (SettingState.CONFIG_DRIFT, SettingState.CONFIG_CONFLICT)
                assert in_step or (key in told and told[key].state in told_as), "nobody is told"
            else:
                assert in_step, (
                    f"{key}: the sources want {wanted}, and the target has {now}: {noted.get(key)}"
                )
            if now == wanted or (in_step and key not in noted):
                self.operators.discard(key)
                self.taken.pop(key, None)
                self.taken |= {} if now is None else {key: now}
        again = merge(
            dict(zip((A, B), map(settings_of, self.sources), strict=False)),
            settings_of(self.target),
            merged.agreed_after(merged.changes.keys()),
            self.rule,
        )
        assert not again.changes.keys() - {refused}, "a second round changes something again"


def play(seed: int) -> None:
    rng = random.Random(seed)
    rule = SettingsRule(widest=rng.random() < 0.7, revert=rng.random() < 0.3)
    life = Life(rng, rule, [{} for _ in range(rng.choice((1, 1, 2)))])
    for own in life.sources:
        if rng.random() < 0.5:
            own[rng.choice(KEYS)] = rng.choice(VALUES)
    if rng.random() < 0.5:  # as the replicator creates it: with what holds at its first source
        life.target = {ORDERED: life.sources[0].get(ORDERED, DEFAULT)}
        if len(life.sources) == 1:
            life.taken = dict(life.target)
            life.round()
        else:
            life.operators.add(
                ORDERED
            )  # nobody can tell whose it is where the other source wants something else
    for _ in range(STEPS):
        choice = rng.random()
        if choice < 0.5:
            life.edit()
        elif choice < 0.6:
            life.round(crash=True)
        elif choice < 0.65:
            life.round(refused=rng.choice(KEYS))
        else:
            life.round()


def both_ways(seed: int) -> None:
    """Two clusters that copy to each other come to rest, and to one value where only one of them was changed."""
    rng = random.Random(seed)
    own: dict[RegionName, Own] = {A: {}, B: {}}
    noted: dict[RegionName, dict[str, Agreed]] = {A: {}, B: {}}

    def one_round(target: RegionName) -> bool:
        source = B if target == A else A
        merged = merge(
            {source: settings_of(own[source])}, settings_of(own[target]), noted[target], SettingsRule()
        )
        for key, value in merged.changes.items():
            own[target].pop(key, None)
            own[target] |= {} if value is None else {key: value}
        noted[target] = merged.agreed_after(merged.changes.keys())
        return bool(merged.changes)

    def rest() -> None:
        for _ in range(4):
            if not [target for target in rng.sample((A, B), 2) if one_round(target)]:
                return
        raise AssertionError("they change each other for ever")

    rest()
    in_step = True
    for _ in range(5):
        changed = rng.sample((A, B), rng.choice((1, 1, 2)))
        for region in changed:
            own[region][PLAIN] = rng.choice(VALUES)
        rest()
        if in_step and len(changed) == 1:
            assert own[A] == own[B]
        in_step = own[A] == own[B]


def lives(count: int) -> None:
    for seed in range(count):
        try:
            play(seed)
            both_ways(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_targets_take_what_changes_at_sources_and_keep_what_is_theirs() -> None:
    lives(LIVES)


MUTANTS = Mutants()


def instead(monkeypatch: pytest.MonkeyPatch, of: SettingState, state: SettingState | None) -> None:
    right = topic_settings._state

    def wrong(*args: object, **named: object) -> SettingState | None:
        found = right(*args, **named)  # type: ignore[arg-type]
        return state if found is of else found

    monkeypatch.setattr(topic_settings, "_state", wrong)


@MUTANTS.add
def drift_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, SettingState.CONFIG_DRIFT, SettingState.CHANGE)


@MUTANTS.add
def drift_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, SettingState.CONFIG_DRIFT, None)


@MUTANTS.add
def the_source_wins_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, SettingState.CONFIG_CONFLICT, SettingState.CHANGE)


@MUTANTS.add
def nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    instead(monkeypatch, SettingState.CHANGE, None)


@MUTANTS.add
def nothing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MergedSettings, "agreed_after", lambda self, _applied: dict(self.agreed))


@MUTANTS.add
def changes_that_were_refused_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        MergedSettings,
        "agreed_after",
        lambda self, _applied: (
            dict(self.agreed)
            | {item.key: Agreed(item.wanted, item.wanted) for item in self.findings if item.problem != ""}
            | {key: Agreed(value, value) for key, value in self.changes.items()}
        ),
    )


@MUTANTS.add
def the_narrower_value_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    right = topic_settings._width

    def wrong(key: str, value: str) -> float | None:
        width = right(key, value)
        return None if width is None else -width

    monkeypatch.setattr(topic_settings, "_width", wrong)


@MUTANTS.add
def no_bound_counts_as_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_settings, "_BOUNDED_BELOW", frozenset())


@MUTANTS.add
def deletions_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MergedSettings.changes.fget
    assert right is not None
    monkeypatch.setattr(
        MergedSettings,
        "changes",
        property(lambda self: {key: value for key, value in right(self).items() if value is not None}),
    )


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_die(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises(AssertionError):
        lives(LIVES)
