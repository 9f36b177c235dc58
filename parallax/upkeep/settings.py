"""Keeps the settings of one target's topics in step with their sources' (`parallax.domain.topic_settings`).

A round reads all, decides, changes, and then writes down what both sides agree on now, in the compacted topic
`parallax.configs` of the target. In this order: a round that ends before the last step finds both sides equal the next time,
while an agreement written too early would be taken for a change that somebody has made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.compacted import CompactedTable
from parallax.adapters.kafka.topic_settings import SettingsDoor
from parallax.config.config import Config
from parallax.domain.formats import read_text, stored_text
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.route_graph import Edge
from parallax.domain.topic_choice import INTERNAL_TOPICS, matches
from parallax.domain.topic_settings import (
    Agreed,
    MergedSettings,
    SettingFinding,
    Settings,
    SettingsRule,
    SettingState,
    held_back,
    merge,
    shrinking,
)
from parallax.errors import ParallaxError, RefusedError, UnreadableRowError
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import wall_clock_ms

CONFIGS_TOPIC = TopicName("parallax.configs")
FORMAT = 1
"""Of its records; a greater one is a newer release's."""
CHANGED = "CHANGED"
"""The word for a change that was made."""
_TIMEOUT_MS = 10_000
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class AgreedSettings:
    """What a target topic and its sources last agreed on.

    Attributes:
        topic_id: the target topic; another one of its name has agreed on nothing.
        settings: by key.
    """

    topic_id: TopicId
    settings: Mapping[str, Agreed]

    def encoded(self) -> bytes:
        """The record's value."""
        pairs = {key: {"source": of.source, "target": of.target} for key, of in sorted(self.settings.items())}
        return stored_text({"topic_id": self.topic_id, "settings": pairs}, FORMAT).encode()

    @classmethod
    def decoded(cls, topic: TopicName, value: bytes) -> AgreedSettings:
        """The record of a value that `encoded` made.

        Raises:
            UnreadableRowError: it is something else, or of a newer format.
        """
        return read_text(
            value.decode(errors="replace"),
            FORMAT,
            lambda values: cls(
                TopicId(values["topic_id"]),
                {key: Agreed(of["source"], of["target"]) for key, of in values["settings"].items()},
            ),
            f"the record of {topic!r} in {CONFIGS_TOPIC}",
        )


@dataclass(frozen=True, slots=True)
class TopicSettingsPlan:
    """What is to be done about one target topic."""

    topic: TopicName
    topic_id: TopicId
    merged: MergedSettings
    stored: AgreedSettings | None


@dataclass(frozen=True, slots=True)
class SettingsRow:
    """A key of a target topic that is not, or was not, in step.

    Attributes:
        applied: the change was made.
    """

    cluster: ClusterName
    topic: TopicName
    finding: SettingFinding
    applied: bool = False

    @property
    def state(self) -> str:
        """How the key is: a `SettingState` as a word, or that it was changed."""
        return CHANGED if self.applied else self.finding.state.value

    @property
    def what(self) -> str:
        """Which key, and where."""
        return f"{self.cluster} {self.topic} {self.finding.key}".rstrip()

    @property
    def before(self) -> str:
        """Its value before it is put in step."""
        return _shown(self.finding.present)

    @property
    def after(self) -> str:
        """The value that it shall have."""
        return _shown(self.finding.wanted)

    def line(self) -> str:
        """It for people."""
        what = f"{self.state}: {self.topic} of {self.cluster}"
        of = self.finding
        if of.key:
            what += f": {of.key} is {_shown(of.present)} there, and the sources want {_shown(of.wanted)}"
        return f"{what}: {of.problem}" if of.problem else what

    def to_json(self) -> dict[str, Any]:
        """It as JSON types."""
        return {
            "cluster": self.cluster,
            "topic": self.topic,
            "key": self.finding.key,
            "state": self.state,
            "target": self.finding.present,
            "wanted": self.finding.wanted,
            "sources": dict(self.finding.sources),
            "problem": self.finding.problem,
        }


@dataclass(frozen=True, slots=True)
class SettingsPlan:
    """What is to be done at one target.

    Attributes:
        topics: those that were looked at.
        unreadable: topics of which nothing is changed, with why.
    """

    cluster: ClusterName
    topics: tuple[TopicSettingsPlan, ...]
    unreadable: Mapping[TopicName, str] = field(default_factory=dict)

    def rows(self) -> list[SettingsRow]:
        """Everything that is not in step."""
        found = [
            SettingsRow(self.cluster, plan.topic, finding)
            for plan in self.topics
            for finding in plan.merged.findings
        ]
        state = SettingState.CONFIG_UNREADABLE
        found += [
            SettingsRow(self.cluster, topic, SettingFinding("", state, None, None, {}, why))
            for topic, why in self.unreadable.items()
        ]
        return sorted(found, key=lambda row: (row.topic, row.finding.key))

    def changes(self) -> list[SettingsRow]:
        """What carrying it out changes at the target."""
        return [row for row in self.rows() if row.finding.state is SettingState.CHANGE]


class SettingsKeeper:
    """Keeps one target's topics in step; for one thread.

    Args:
        config: all configuration.
        target: the target region.
        now_ms: the time, by which records age.
    """

    def __init__(
        self, config: Config, target: RegionName, *, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self._config = config
        self._target = target
        self._now_ms = now_ms
        self.cluster = aggregate_cluster(target)
        self._edges = config.edges_into(target)
        of = config.cluster(self.cluster)
        self._door = SettingsDoor(self.cluster, of, timeout_ms=_TIMEOUT_MS)
        self._reader = KafkaCluster(self.cluster, of, timeout_ms=_TIMEOUT_MS)
        self._table = CompactedTable(self.cluster, of, CONFIGS_TOPIC, timeout_ms=_TIMEOUT_MS)
        self._sources = {edge.source: self._source(edge) for edge in self._edges}

    def _source(self, edge: Edge) -> tuple[KafkaCluster, SettingsDoor]:
        cluster = self._config.source_cluster(edge.route)
        of = self._config.cluster(cluster)
        return (
            KafkaCluster(cluster, of, timeout_ms=_TIMEOUT_MS),
            SettingsDoor(cluster, of, timeout_ms=_TIMEOUT_MS),
        )

    def plan(
        self,
        topics: Collection[TopicName] | None = None,
        *,
        rule: SettingsRule | None = None,
        allow_shrink: bool | None = None,
    ) -> SettingsPlan:
        """Look at both sides and say what is to be done; change nothing.

        Args:
            topics: of the target; None: all that are copied to it.
            rule: instead of the configured one.
            allow_shrink: instead of what is configured.

        Raises:
            ConfigError: the target refuses this client.
            ClusterUnavailableError: the target did not answer in time.
        """
        settings = self._config.topics.config_sync
        rule = settings.rule() if rule is None else rule
        there = {
            name: info
            for name, info in self._reader.topics().items()
            if not matches(INTERNAL_TOPICS, name) and (topics is None or name in topics)
        }
        sources, unreadable = self._from_sources(there)
        seen = self._door.read(sources.keys() - unreadable.keys())
        unreadable |= seen.refused
        table = self._table.read()
        plans = []
        for topic, settings_there in sorted(seen.topics.items()):
            try:
                stored = _stored(table, topic, there[topic])
            except UnreadableRowError as error:
                unreadable[topic] = str(error)
                continue
            fixed: dict[str, str] = {}
            for item in (section.override() for section in settings.overrides):
                if item.holds_for(topic, self._target):
                    fixed |= item.settings
            agreed = {} if stored is None else stored.settings
            merged = merge(sources[topic], settings_there, agreed, rule, fixed)
            plans.append(TopicSettingsPlan(topic, there[topic].topic_id, merged, stored))
        if not (settings.shrink == "allow" if allow_shrink is None else allow_shrink):
            plans = list(self._without_losses(plans, seen.topics, there))
        return SettingsPlan(self.cluster, tuple(plans), unreadable)

    def carry_out(self, plan: SettingsPlan) -> list[SettingsRow]:
        """Make the changes of a plan; what is in step then, and what was changed or is not in step.

        Raises:
            ClusterUnavailableError: the target did not answer in time; the next plan goes on.
        """
        done: list[SettingsRow] = []
        notes: dict[str, bytes | None] = {}
        refused: list[TopicSettingsPlan] = []
        for item in plan.topics:
            applied, problems = self._changed(item)
            merged = held_back(item.merged, problems, SettingState.CONFIG_REFUSED)
            refused.append(replace(item, merged=merged))
            agreed = merged.agreed_after(applied)
            if agreed != ({} if item.stored is None else item.stored.settings):
                notes[item.topic] = AgreedSettings(item.topic_id, agreed).encoded()
            done += [
                SettingsRow(self.cluster, item.topic, finding, applied=True)
                for finding in merged.findings
                if finding.state is SettingState.CHANGE
            ]
        self._table.write(notes)
        rest = SettingsPlan(plan.cluster, tuple(refused), plan.unreadable).rows()
        return [*done, *(row for row in rest if row.finding.state is not SettingState.CHANGE)]

    def _changed(self, item: TopicSettingsPlan) -> tuple[Collection[str], dict[str, str]]:
        """The keys that were changed, and why others were not."""
        changes = item.merged.changes
        if not changes:
            return (), {}
        try:
            self._door.change(item.topic, changes)
        except RefusedError as error:
            if len(changes) == 1:
                return (), dict.fromkeys(changes, str(error))
        else:
            return changes, {}
        problems: dict[str, str] = {}
        for key, value in changes.items():  # one of them is refused, and the others need not wait for it
            try:
                self._door.change(item.topic, {key: value})
            except RefusedError as error:
                problems[key] = str(error)
        return changes.keys() - problems.keys(), problems

    def _from_sources(
        self, there: Mapping[TopicName, TopicInfo]
    ) -> tuple[dict[TopicName, dict[RegionName, Settings]], dict[TopicName, str]]:
        """Settings of target topics at their sources, and the topics of which a source does not show them."""

        def look(edge: Edge) -> dict[TopicName, Settings | str]:
            """By the target's names; a text says why nothing is known of the topic."""
            reader, door = self._sources[edge.source]
            wanted = {
                name: origin
                for name in there
                if (origin := edge.naming.source_of(name, edge.route.source)) is not None
                and edge.choice.chosen(origin)
            }
            try:
                known = reader.topics()
                seen = door.read({origin for origin in wanted.values() if origin in known})
                hidden = reader.hidden({origin for origin in wanted.values() if origin not in known})
            except ParallaxError as error:
                return dict.fromkeys(wanted, f"[{error.code}] {error}")
            said: dict[TopicName, Settings | str] = dict.fromkeys(
                known, f"{door.cluster} lists it, and does not know its settings"
            )
            said |= dict.fromkeys(hidden, f"{door.cluster} does not show it (Describe on the topic)")
            said |= {**seen.topics, **seen.refused}
            return {name: said[origin] for name, origin in wanted.items() if origin in said}

        sources: dict[TopicName, dict[RegionName, Settings]] = {}
        unreadable: dict[TopicName, str] = {}
        with ThreadPoolExecutor(_AT_ONCE, "source-settings") as pool:
            for edge, seen in zip(self._edges, pool.map(look, self._edges), strict=True):
                for name, settings in seen.items():
                    if isinstance(settings, str):
                        unreadable[name] = settings
                    else:
                        sources.setdefault(name, {})[edge.route.source] = settings
        return sources, unreadable

    def _without_losses(
        self,
        plans: Iterable[TopicSettingsPlan],
        there: Mapping[TopicName, Settings],
        topics: Mapping[TopicName, TopicInfo],
    ) -> Iterator[TopicSettingsPlan]:
        """The plans without changes by which groups would lose records that they have not read."""
        positions: dict[GroupName, Mapping[TopicPartition, int]] | None = None
        for plan in plans:
            losses = shrinking(there[plan.topic], plan.merged.changes)
            if losses and positions is None:
                positions = self._positions()
            problems = {
                key: f"records older than {age_ms} ms could go, and these groups have not read them all: {', '.join(groups)}"
                for key, age_ms in losses.items()
                if (groups := self._unread(topics[plan.topic], age_ms, positions or {}))
            }
            merged = held_back(plan.merged, problems, SettingState.CONFIG_SHRINK)
            yield replace(plan, merged=merged)

    def _positions(self) -> dict[GroupName, Mapping[TopicPartition, int]]:
        """What each group that is looked after has committed here."""
        states = self._reader.groups(self._config.groups.chosen)
        groups = [state.group for state in states if not state.refused]
        with ThreadPoolExecutor(_AT_ONCE, "positions") as pool:
            commits = list(pool.map(self._reader.committed, groups))
        return {
            group: {place: int(commit.next_offset) for place, commit in found.items()}
            for group, found in zip(groups, commits, strict=True)
        }

    def _unread(
        self, topic: TopicInfo, age_ms: int, positions: Mapping[GroupName, Mapping[TopicPartition, int]]
    ) -> list[GroupName]:
        """The groups that have not read, or may not have, all records of the topic that are older."""
        places = [TopicPartition(topic.topic, number) for number in range(topic.partitions)]
        reading = {group for group, of in positions.items() if any(place in of for place in places)}
        if not reading:
            return []
        found: set[GroupName] = set()
        before_ms = self._now_ms() - age_ms
        spans = self._reader.log_ranges(places)
        if len(spans) < len(places):  # a partition without a leader: nobody knows what is unread there
            return sorted(reading)
        for place, span in spans.items():
            cut = self._reader.offset_at(place, max(0, before_ms))
            for group in reading:
                position = positions[group].get(place, 0)  # without a commit it has read nothing
                if cut is not None and max(position, span.low_watermark) < cut:
                    found.add(group)
        return sorted(found)


def _stored(table: Mapping[str, bytes], topic: TopicName, info: TopicInfo) -> AgreedSettings | None:
    """What was agreed on of this very topic.

    Raises:
        UnreadableRowError: the record can't be read.
    """
    value = table.get(topic)
    if value is None:
        return None
    stored = AgreedSettings.decoded(topic, value)
    return stored if stored.topic_id == info.topic_id else None


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)
