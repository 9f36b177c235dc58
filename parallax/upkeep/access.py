"""Keeps the rules of access of one target in step with its sources' (`parallax.domain.access_rules`).

What was made by us is written down in the compacted topic `parallax.acls` of the target, before it is made: a rule that stands
there and is missing is made again, while one that were made first, and not written down, would stay for ever. What is withheld there
is remembered in `parallax.acls.withheld`: the day on which a target is promoted may be the one on which its source is lost.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parallax.adapters.kafka.access_rules import AccessDoor
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.compacted import CompactedTable
from parallax.config.config import Config
from parallax.domain.access_rules import (
    AccessFinding,
    AccessKind,
    AccessMode,
    AccessPolicy,
    AccessRule,
    AccessState,
    MergedRules,
    SourceAccess,
    WantedRules,
    copied,
    may_write,
    merge_rules,
    wanted_rules,
)
from parallax.domain.formats import read_text, stored_text
from parallax.domain.ids import ClusterName, RegionName, TopicName, aggregate_cluster
from parallax.domain.route_graph import Edge
from parallax.errors import ParallaxError, RefusedError, UnknownTopicError

ACLS_TOPIC = TopicName("parallax.acls")
WITHHELD_TOPIC = TopicName("parallax.acls.withheld")
FORMAT = 1
"""Of its records; a greater one is a newer release's."""
_TIMEOUT_MS = 10_000

_DONE = {AccessState.ADD: "ADDED", AccessState.REMOVE: "REMOVED"}
_THERE, _NOT_THERE = "there", "not there"


@dataclass(frozen=True, slots=True)
class OwnedRule:
    """A rule that was made by us.

    Attributes:
        promoted: by an operator's word, whose end alone takes it away.
    """

    rule: AccessRule
    promoted: bool = False

    @property
    def key(self) -> str:
        """The record's key."""
        return json.dumps(self.rule.to_json(), sort_keys=True, separators=(",", ":"))

    def encoded(self) -> bytes:
        """The record's value."""
        return stored_text({"rule": self.rule.to_json(), "promoted": self.promoted}, FORMAT).encode()

    @classmethod
    def decoded(cls, key: str, value: bytes) -> OwnedRule:
        """The record of a value that `encoded` made.

        Raises:
            UnreadableRowError: it is something else, or of a newer format.
        """
        return read_text(
            value.decode(errors="replace"),
            FORMAT,
            lambda values: cls(AccessRule.from_json(values["rule"]), bool(values["promoted"])),
            f"the record {key} in {ACLS_TOPIC}",
        )


@dataclass(frozen=True, slots=True)
class AccessRow:
    """A rule that is not, or was not, in step.

    Attributes:
        applied: it was made, or taken away.
    """

    cluster: ClusterName
    finding: AccessFinding
    applied: bool = False

    @property
    def state(self) -> str:
        """How it is: an `AccessState` as a word, or what was done."""
        return _DONE[self.finding.state] if self.applied else self.finding.state.value

    @property
    def what(self) -> str:
        """Which rule, and where."""
        return f"{self.cluster} {self.finding.rule.line()}"

    @property
    def before(self) -> str:
        """Whether it is there before it is put in step."""
        return _THERE if self.finding.state is AccessState.REMOVE else _NOT_THERE

    @property
    def after(self) -> str:
        """Whether it shall be there after."""
        return _NOT_THERE if self.finding.state is AccessState.REMOVE else _THERE

    def line(self) -> str:
        """It for people."""
        told = f"{self.state}: {self.what}"
        return f"{told}: {self.finding.problem}" if self.finding.problem else told

    def to_json(self) -> dict[str, Any]:
        """It as JSON types."""
        return {
            "cluster": self.cluster,
            "state": self.state,
            "rule": self.finding.rule.to_json(),
            "sources": list(self.finding.sources),
            "problem": self.finding.problem,
        }


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """What is to be done at one target.

    Attributes:
        there: the rules that it has.
        owned: those that are written down as made by us.
        unreadable: sources that don't show their rules, with why.
        kept_back: what the target does not allow until it is promoted; of sources that don't show their rules, what is remembered
            and no other source refuses.
        remembered: of that, what is written down.
        topics: those of the target.
    """

    cluster: ClusterName
    wanted: WantedRules
    merged: MergedRules
    there: frozenset[AccessRule]
    owned: tuple[OwnedRule, ...]
    unreadable: Mapping[str, str]
    kept_back: frozenset[AccessRule]
    remembered: frozenset[AccessRule]
    topics: frozenset[str]

    def rows(self) -> list[AccessRow]:
        """Everything that is not in step."""
        found = [AccessFinding(rule, AccessState.ADD) for rule in self.merged.add]
        found += [AccessFinding(rule, AccessState.REMOVE) for rule in self.merged.remove]
        found += self.wanted.findings
        return [AccessRow(self.cluster, finding) for finding in found]

    def changes(self) -> list[AccessRow]:
        """What carrying it out changes at the target."""
        return [row for row in self.rows() if row.finding.state in _DONE]

    def problem(self) -> str:
        """Why some rules are left as they are; empty: every source has shown its own."""
        told = "; ".join(f"{region}: {why}" for region, why in sorted(self.unreadable.items()))
        what = "sources that don't show their rules, so that nothing is changed for their topics"
        return f"{what}: {told}" if told else ""

    def withheld(self) -> list[AccessRow]:
        """What the target does not allow until it is promoted."""
        return [
            AccessRow(self.cluster, AccessFinding(rule, AccessState.ACL_WITHHELD))
            for rule in sorted(self.kept_back - self.there)
        ]


class AccessKeeper:
    """Keeps one target's rules in step; for one thread.

    Args:
        config: all configuration.
        target: the target region.
    """

    def __init__(self, config: Config, target: RegionName) -> None:
        self._config = config
        self.cluster = aggregate_cluster(target)
        self._edges = config.edges_into(target)
        of = config.cluster(self.cluster)
        self._door = AccessDoor(self.cluster, of, timeout_ms=_TIMEOUT_MS)
        self._reader = KafkaCluster(self.cluster, of, timeout_ms=_TIMEOUT_MS)
        self._table = CompactedTable(self.cluster, of, ACLS_TOPIC, timeout_ms=_TIMEOUT_MS)
        self._memory = CompactedTable(self.cluster, of, WITHHELD_TOPIC, timeout_ms=_TIMEOUT_MS)
        self._sources = {edge.source: self._source(edge) for edge in self._edges}

    def _source(self, edge: Edge) -> tuple[KafkaCluster, AccessDoor]:
        cluster = self._config.source_cluster(edge.route)
        of = self._config.cluster(cluster)
        return (
            KafkaCluster(cluster, of, timeout_ms=_TIMEOUT_MS),
            AccessDoor(cluster, of, timeout_ms=_TIMEOUT_MS),
        )

    @property
    def _policy(self) -> AccessPolicy:
        policy = self._config.topics.acl_sync.policy()
        user = self._config.cluster(self.cluster).security.sasl_username
        own = frozenset() if user is None else frozenset({f"User:{user}"})
        return replace(policy, group_chosen=self._config.groups.chosen, own=own)

    def plan(self) -> AccessPlan:
        """Look at both sides and say what is to be done; change nothing.

        Raises:
            ConfigError: the target does not show its rules to this client.
            RefusedError: the target has no authorizer.
            UnreadableRowError: what was made by us can't be read.
            ClusterUnavailableError: the target did not answer in time.
        """
        there = self._door.read()
        owned = tuple(OwnedRule.decoded(key, value) for key, value in sorted(self._table.read().items()))
        remembered = frozenset(OwnedRule.decoded(*item).rule for item in self._memory.read().items())
        sources: dict[RegionName, SourceAccess] = {}
        unreadable: dict[str, str] = {}
        away: list[Edge] = []
        held: set[str] = set()  # topics here that a source may have, and does not show
        lost: list[
            tuple[RegionName, SourceAccess]
        ] = []  # with topics here that the source has not, or no more
        here = self._reader.topics()
        for edge in self._edges:
            reader, door = self._sources[edge.source]
            try:
                listed = reader.topics()
                if not listed:
                    raise RefusedError(f"{door.cluster} lists no topic at all")
                topics = [name for name in listed if edge.choice.chosen(name)]
                origins = {name: origin for name in here if (origin := _origin(edge, name)) is not None}
                hidden = reader.hidden({origin for origin in origins.values() if origin not in listed})
                rules = door.read()
            except ParallaxError as error:
                unreadable[edge.route.source] = f"[{error.code}] {error}"
                away.append(edge)
                continue
            if hidden:
                held.update(name for name, origin in origins.items() if origin in hidden)
                unreadable[edge.route.source] = (
                    f"it does not show {', '.join(sorted(hidden))} (Describe on the topic)"
                )
            copies = {name: edge.naming.of(name, edge.route.source) for name in topics}
            sources[edge.route.source] = SourceAccess(rules, copies)
            gone = {origin: TopicName(name) for name, origin in origins.items() if origin not in listed}
            lost.append((edge.route.source, SourceAccess(rules, gone)))
        lasting = _lasting(sources, lost, self._policy)

        def frozen(rule: AccessRule) -> bool:
            kept = rule.kind is AccessKind.TOPIC and (rule.name in held or rule in lasting)
            return kept or any(_may_have(edge, rule) for edge in away)

        wanted = wanted_rules(sources, self._policy)
        merged = merge_rules(
            wanted,
            there,
            [item.rule for item in owned],
            [item.rule for item in owned if item.promoted],
            self._policy,
            frozen,
        )
        kept_back = frozenset(
            [
                *(rule for rule in wanted.withheld if not frozen(rule)),
                *(rule for rule in _still_allowed(remembered, sources, self._policy) if frozen(rule)),
            ]
        )
        return AccessPlan(
            self.cluster, wanted, merged, there, owned, unreadable, kept_back, remembered, frozenset(here)
        )

    def carry_out(self, plan: AccessPlan) -> list[AccessRow]:
        """Make a plan true; what was done, and what is not in step then.

        Raises:
            ConfigError: this client may not change the target's rules.
            ClusterUnavailableError: the target did not answer in time; the next plan goes on.
        """
        merged = plan.merged
        self._memory.write(
            {OwnedRule(rule).key: None for rule in plan.remembered - plan.kept_back}
            | {item.key: item.encoded() for item in map(OwnedRule, plan.kept_back - plan.remembered)}
        )
        refused = self._made([OwnedRule(rule) for rule in merged.add])
        kept = self._door.remove(merged.remove)
        gone = [*merged.forget, *(rule for rule in merged.remove if rule not in kept)]
        self._table.write({OwnedRule(rule).key: None for rule in gone})
        problems = {**kept, **refused}
        return [_tried(row, problems) if row.finding.state in _DONE else row for row in plan.rows()]

    def _made(self, rules: Collection[OwnedRule]) -> Mapping[AccessRule, str]:
        """Write rules down as ours, and make them; those that the target does not take, with why."""
        self._table.write({item.key: item.encoded() for item in rules})
        refused = self._door.add([item.rule for item in rules])
        self._table.write({item.key: None for item in rules if item.rule in refused})
        return refused

    def promotion(self, plan: AccessPlan, topics: Collection[str] | None = None) -> list[AccessRow]:
        """The withheld rules that `promote` makes; of these topics at the target, None: of all.

        Raises:
            UnknownTopicError: the target has no such topic.
        """
        return _of_topics(plan, plan.withheld(), topics)

    def promote(self, rows: Collection[AccessRow]) -> list[AccessRow]:
        """Allow what was withheld; what was allowed, and what the target did not take.

        Raises:
            ConfigError: this client may not change the target's rules.
            ClusterUnavailableError: the target did not answer in time; call again.
        """
        refused = self._made([OwnedRule(row.finding.rule, promoted=True) for row in rows])
        return [
            _tried(replace(row, finding=replace(row.finding, state=AccessState.ADD)), refused) for row in rows
        ]

    def demotion(self, plan: AccessPlan, topics: Collection[str] | None = None) -> list[AccessRow]:
        """The rules that `demote` takes away: those that a promotion has made.

        Raises:
            UnknownTopicError: the target has no such topic.
        """
        promoted = [
            AccessRow(self.cluster, AccessFinding(item.rule, AccessState.REMOVE))
            for item in plan.owned
            if item.promoted
        ]
        return _of_topics(plan, promoted, topics)

    def demote(self, rows: Collection[AccessRow]) -> list[AccessRow]:
        """Take away what a promotion has allowed; what was taken away, and what the target left.

        Raises:
            ConfigError: this client may not change the target's rules.
            ClusterUnavailableError: the target did not answer in time; call again.
        """
        kept = self._door.remove([row.finding.rule for row in rows])
        self._table.write(
            {OwnedRule(row.finding.rule).key: None for row in rows if row.finding.rule not in kept}
        )
        return [_tried(row, kept) for row in rows]

    def others_who_write(self, own: Collection[str]) -> list[tuple[AccessRule, list[str]]]:
        """The rules by which others than these principals may change copies, run logs or other topics of ours."""
        names = [
            name
            for name in self._reader.topics()
            if name.startswith("parallax.") or any(_origin(edge, name) is not None for edge in self._edges)
        ]
        return may_write(self._door.read(), names, own)


def _of_topics(
    plan: AccessPlan, rows: Sequence[AccessRow], topics: Collection[str] | None
) -> list[AccessRow]:
    """Those of the rows that are about these topics, which are there or have one; None: all."""
    if topics is None:
        return list(rows)
    unknown = set(topics) - plan.topics - {row.finding.rule.name for row in rows}
    if unknown:
        raise UnknownTopicError(f"{plan.cluster} has no topic {min(unknown)!r}")
    return [row for row in rows if row.finding.rule.name in topics]


def _tried(row: AccessRow, refused: Mapping[AccessRule, str]) -> AccessRow:
    """The row after it was to be put in step: with why not, where the target has refused it."""
    problem = refused.get(row.finding.rule)
    if problem is None:
        return replace(row, applied=True)
    return replace(row, finding=replace(row.finding, state=AccessState.ACL_REFUSED, problem=problem))


def _origin(edge: Edge, name: str) -> TopicName | None:
    """The topic of the route's source whose copy may be called so."""
    origin = edge.naming.source_of(TopicName(name), edge.route.source)
    return origin if origin is not None and edge.choice.chosen(origin) else None


def _lasting(
    sources: Mapping[RegionName, SourceAccess],
    lost: Collection[tuple[RegionName, SourceAccess]],
    policy: AccessPolicy,
) -> frozenset[AccessRule]:
    """What each source still says of topics here that none of them has: they may just be created anew."""
    had = {name for of in sources.values() for name in of.copies.values()}
    found: set[AccessRule] = set()
    for region, of in lost:
        copies = {origin: name for origin, name in of.copies.items() if name not in had}
        said = wanted_rules({region: replace(of, copies=copies)}, policy)
        found |= said.rules | said.withheld
    return frozenset(found)


def _still_allowed(
    remembered: Collection[AccessRule], sources: Mapping[RegionName, SourceAccess], policy: AccessPolicy
) -> list[AccessRule]:
    """What is remembered, but for what a source that shows its rules, and has the topic, allows no more."""
    if policy.mode is AccessMode.MM2:
        return list(remembered)
    refused: set[AccessRule] = set()
    for of in sources.values():
        said, copies = {item.rule for item in copied(of, policy)}, {*of.copies.values()}
        about = {rule for rule in remembered if rule.kind is AccessKind.TOPIC and rule.name in copies}
        refused |= about - said
    return [rule for rule in remembered if rule not in refused]


def _may_have(edge: Edge, rule: AccessRule) -> bool:
    return rule.kind is AccessKind.GROUP or _origin(edge, rule.name) is not None
