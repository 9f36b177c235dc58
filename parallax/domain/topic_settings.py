"""Which settings a target topic takes from its sources: for each key a merge of three, with what both sides had when they last agreed.

For one key, let S be what the sources want now, T what stands at the target now, and (S0, T0) the pair at which both were
last found or made to agree; None stands for no value of the topic's own. Then

A. S = T: they agree, and that is noted.
B. S = S0 and T = T0: nothing has changed, nothing is done.
C. only S has changed: the target gets it. Where S is None the target's value is taken away.
D. only T has changed: somebody has set it there. It stays, and is told as `CONFIG_DRIFT`.
E. both have changed: the target's stays, and is told as `CONFIG_CONFLICT`.

Without a pair a value at the target may be anybody's: it stays (D), unless it says what holds at the source anyway. With
``on_drift: revert`` the target gets S in all of these cases. Sources that differ are first made one (`wanted`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from parallax.domain.ids import RegionName, TopicName
from parallax.domain.topic_choice import Patterns

FIXED_KEYS = (r"compression\.type", r"message\.timestamp\..*")
"""What every target topic has, whatever its sources say: batches pass as they are, with their own times."""

UNLIMITED = -1
"""Kafka's word for no bound, of retention."""

_BOUNDED_BELOW = frozenset({"retention.ms", "retention.bytes"})
_WIDER_IS_GREATER = _BOUNDED_BELOW | {
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.compaction.lag.ms",
}
"""Keys of which the greater value keeps, or admits, more."""

A_MOMENT_MS = 60_000
"""Where it can't be told by time how far records go (a bound in bytes, compaction), everything older than this may."""


class SettingState(Enum):
    """What becomes of a key."""

    CHANGE = "CHANGE"
    """The target gets the sources' value."""
    CONFIG_DRIFT = "CONFIG_DRIFT"
    """Somebody has set it at the target; it stays."""
    CONFIG_CONFLICT = "CONFIG_CONFLICT"
    """Sources disagree, or source and target were both changed; the target stays as it is."""
    CONFIG_SHRINK = "CONFIG_SHRINK"
    """The change would take records that a group has not read."""
    CONFIG_REFUSED = "CONFIG_REFUSED"
    """The target does not take it."""
    CONFIG_UNREADABLE = "CONFIG_UNREADABLE"
    """A source or the target does not show the topic's settings; nothing of it is changed."""


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """A key of a topic at one cluster.

    Attributes:
        value: the one in force.
        own: the topic's own value; None: it has none.
        inherited: what holds where it has none; empty: the cluster does not show it.
        builtin: whether the value in force is Kafka's own default: neither the topic nor its brokers say anything.
    """

    value: str
    own: str | None
    inherited: str
    builtin: bool

    @property
    def said(self) -> str | None:
        """What the topic or its brokers say; None: nothing, so that Kafka's default holds."""
        return None if self.builtin else self.value


Settings = Mapping[str, TopicSetting]
"""A topic's settings by key."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """What both sides had when they last agreed; None: no value."""

    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class FixedSettings:
    """Settings that target topics get instead of their sources' ones.

    Attributes:
        match: a pattern of the topics' names.
        settings: by key.
        regions: target regions; empty: all.
    """

    match: str
    settings: Mapping[str, str]
    regions: frozenset[RegionName] = frozenset()

    def holds_for(self, topic: TopicName, target: RegionName) -> bool:
        """Whether the topic gets them there."""
        return re.fullmatch(self.match, topic) is not None and (not self.regions or target in self.regions)


@dataclass(frozen=True, slots=True)
class SettingsRule:
    """How settings are kept in step.

    Attributes:
        keys: which.
        widest: of sources that differ, take the one that keeps or admits most, where a key has such an order.
        revert: the target's own changes are undone.
    """

    keys: Patterns = field(default_factory=Patterns)
    widest: bool = True
    revert: bool = False

    def chosen(self, key: str) -> bool:
        """Whether the key is kept in step."""
        return self.keys.choose(key) and not any(re.fullmatch(fixed, key) for fixed in FIXED_KEYS)


@dataclass(frozen=True, slots=True)
class SettingFinding:
    """What becomes of one key that is not in step.

    Attributes:
        wanted: the sources' value; None: none. Of a conflict among sources nothing is wanted.
        present: the target's own value; None: it has none.
        sources: each source's value in force.
    """

    key: str
    state: SettingState
    wanted: str | None
    present: str | None
    sources: Mapping[RegionName, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MergedSettings:
    """What is to be done about a topic.

    Attributes:
        findings: each key that is not in step, in order.
        agreed: what both sides agree on as they are now.
    """

    findings: tuple[SettingFinding, ...]
    agreed: Mapping[str, Agreed]

    @property
    def changes(self) -> dict[str, str | None]:
        """What the target gets; None: its own value is taken away."""
        return {item.key: item.wanted for item in self.findings if item.state is SettingState.CHANGE}

    def agreed_after(self, applied: Collection[str]) -> dict[str, Agreed]:
        """What both sides agree on once these of the changes are made."""
        made = {key: Agreed(value, value) for key, value in self.changes.items() if key in applied}
        return {key: pair for key, pair in (dict(self.agreed) | made).items() if pair != Agreed(None, None)}


@dataclass(frozen=True, slots=True)
class _Wanted:
    value: str | None
    in_force: str
    """At the sources."""


def merge(
    sources: Mapping[RegionName, Settings],
    target: Settings,
    agreed: Mapping[str, Agreed],
    rule: SettingsRule,
    fixed: Mapping[str, str] | None = None,
) -> MergedSettings:
    """What is to be done about a topic.

    Args:
        sources: its settings at each source that has it.
        target: its settings there.
        agreed: on what both sides agreed last, by key.
        rule: how they are kept in step.
        fixed: what the configuration says of the topic, which outweighs its sources.
    """
    fixed = fixed or {}
    findings, now = [], dict(agreed)
    for key in sorted({*fixed, *(key for of in sources.values() for key in of if rule.chosen(key))}):
        finding = _of_key(key, sources, target.get(key), now, rule, fixed.get(key))
        if finding is not None:
            findings.append(finding)
    return MergedSettings(tuple(findings), {key: now[key] for key in now if now[key] != Agreed(None, None)})


def _of_key(
    key: str,
    sources: Mapping[RegionName, Settings],
    there: TopicSetting | None,
    agreed: dict[str, Agreed],
    rule: SettingsRule,
    fixed: str | None,
) -> SettingFinding | None:
    """The finding of a key, None if it is in step; ``agreed`` takes down what both sides agree on."""
    of = {region: settings[key] for region, settings in sources.items() if key in settings}
    told = {region: setting.value for region, setting in of.items()}
    present = None if there is None else there.own
    wanted = _Wanted(fixed, fixed) if fixed is not None else _one(key, of, widest=rule.widest)
    if wanted is None:
        problem = "the sources differ, and neither is the wider one"
        return SettingFinding(key, SettingState.CONFIG_CONFLICT, None, present, told, problem)
    if there is None:
        if wanted.value is None:
            return None
        return SettingFinding(
            key,
            SettingState.CONFIG_REFUSED,
            wanted.value,
            None,
            told,
            "the target's Kafka does not know the key",
        )
    state = _state(wanted, there, agreed.get(key), revert=rule.revert or fixed is not None)
    if state is None:
        if wanted.value == present or key not in agreed:
            agreed[key] = Agreed(wanted.value, present)
        return None
    return SettingFinding(key, state, wanted.value, present, told)


def _state(
    wanted: _Wanted, there: TopicSetting, agreed: Agreed | None, *, revert: bool
) -> SettingState | None:
    """What becomes of a key; None: it is in step."""
    if wanted.value == there.own:
        return None
    if wanted.value is None and wanted.in_force == there.value and (agreed is None or revert):
        return None  # a new target topic is given what holds at its source, whether the topic says it there or not
    source_changed = agreed is None or wanted.value != agreed.source
    target_changed = there.own is not None if agreed is None else there.own != agreed.target
    if revert or (source_changed and not target_changed):
        return SettingState.CHANGE
    if not source_changed:
        return SettingState.CONFIG_DRIFT if target_changed else None
    return SettingState.CONFIG_DRIFT if agreed is None else SettingState.CONFIG_CONFLICT


def _one(key: str, sources: Mapping[RegionName, TopicSetting], *, widest: bool) -> _Wanted | None:
    """What the sources want together; None: they disagree."""
    settings = list(sources.values())
    if len({setting.said for setting in settings}) == 1:
        return _Wanted(settings[0].said, settings[0].value)
    if len({setting.value for setting in settings}) == 1:  # one says what is the default of the other
        return _Wanted(settings[0].value, settings[0].value)
    widths = {setting.value: _width(key, setting.value) for setting in settings}
    known = {value: width for value, width in widths.items() if width is not None}
    if not widest or len(known) < len(widths):
        return None
    value = max(known, key=known.__getitem__)
    return _Wanted(value, value)


def _width(key: str, value: str) -> float | None:
    """How much a value keeps or admits; None: that can't be said."""
    if key not in _WIDER_IS_GREATER:
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return inf if key in _BOUNDED_BELOW and number == UNLIMITED else number


def shrinking(target: Settings, changes: Mapping[str, str | None]) -> dict[str, int]:
    """Those of the changes that let the target forget records, with the age (milliseconds) from which on it may.

    Args:
        target: the topic's settings there.
        changes: what it shall get; None: its own value is taken away.
    """

    def after(key: str) -> str:
        setting = target.get(key)
        value = changes.get(key, "" if setting is None else setting.value)
        return (setting.inherited if setting is not None else "") if value is None else value

    def before(key: str) -> str:
        return target[key].value if key in target else ""

    found: dict[str, int] = {}
    old, new = (_words(of("cleanup.policy")) for of in (before, after))
    kept_ms, kept_bytes = after("retention.ms"), after("retention.bytes")
    bounds = list(_ages(kept_ms, kept_bytes))
    if "cleanup.policy" in changes and "delete" in new - old and bounds:
        found["cleanup.policy"] = min(bounds)
    if "cleanup.policy" in changes and "compact" in new - old:
        found["cleanup.policy"] = min([A_MOMENT_MS, *found.values()])
    # The change of policy may be held back, or refused, while the others are made: the old one counts, too.
    for key in _BOUNDED_BELOW & changes.keys() if "delete" in new | old else ():
        was, becomes = _width(key, before(key)), _width(key, after(key))
        if becomes is None or (becomes < inf and (was is None or becomes < was)):
            by_time = key == "retention.ms" and becomes is not None
            found[key] = int(after(key)) if by_time else A_MOMENT_MS
    return found


def _ages(kept_ms: str, kept_bytes: str) -> Iterator[int]:
    if (_width("retention.ms", kept_ms) or 0) < inf:
        yield int(kept_ms) if kept_ms.isdecimal() else A_MOMENT_MS
    if (_width("retention.bytes", kept_bytes) or 0) < inf:
        yield A_MOMENT_MS


def _words(policy: str) -> set[str]:
    return {word.strip() for word in policy.split(",")} - {""}


def held_back(merged: MergedSettings, keys: Mapping[str, str], state: SettingState) -> MergedSettings:
    """The same without these of its changes, each told in the state with why."""
    return MergedSettings(tuple(_told(merged.findings, keys, state)), merged.agreed)


def _told(
    findings: Iterable[SettingFinding], keys: Mapping[str, str], state: SettingState
) -> Iterator[SettingFinding]:
    for item in findings:
        if item.state is SettingState.CHANGE and item.key in keys:
            yield SettingFinding(item.key, state, item.wanted, item.present, item.sources, keys[item.key])
        else:
            yield item
