"""Reads a configuration of MirrorMaker 2 (``mm2.properties``), and says what became of each of its keys.

A key of a flow (``a->b.topics``) outweighs one without (``topics``); a client's key of a cluster (``a.ssl...``) outweighs
one without, as in MirrorMaker 2. The file of a single connector (``source.cluster.alias`` ...) is read likewise.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from parallax.config.mirror_maker_keys import (
    PUBLISHED,
    KeyVerdict,
    Ruling,
    known_keys,
    rule_of,
    rule_of_client,
)
from parallax.config.mirror_maker_security import ClusterSecurity, is_security
from parallax.config.properties import Property, read_properties
from parallax.domain.topic_choice import TopicNaming
from parallax.errors import ConfigError, InvalidNameError

_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KINDS = ("consumer", "producer", "admin")
_DEFAULT_TOPIC_EXCLUDES = r"mm2.*\.internal, .*\.replica, __.*"
_DEFAULT_GROUP_EXCLUDES = "console-consumer-.*, connect-.*, __.*"
_OLD_NAMES = {"topics.blacklist": "topics.exclude", "groups.blacklist": "groups.exclude"}
_CONNECTORS = ["MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector"]
_POLICY = "replication.policy.class"
_SECRET_KEY = re.compile(r"password|secret|jaas|token(?!\.endpoint)", re.IGNORECASE)
_NO_LINE = 0
"""Of what a connector's file says without a key of its own."""
_PLACEHOLDER_STORE = "127.0.0.1:9042"
_MOST_DIGITS = 5
"""Of a number of replicas; Kafka has 16 bits for it."""


@dataclass(frozen=True, slots=True)
class ImportedKey:
    """What became of one key.

    Attributes:
        key: as the file has it.
        line: where it begins; None: the file does not have it, and MirrorMaker 2 does so by default.
        value: secrets are not shown.
    """

    key: str
    line: int | None
    value: str
    ruling: Ruling
    accepted: bool = False

    @property
    def blocks(self) -> bool:
        """Whether somebody has to look at it first."""
        return self.ruling.verdict.blocks and not self.accepted

    def to_json(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {
            "key": self.key,
            "line": self.line,
            "value": self.value,
            "verdict": self.ruling.verdict.value,
            "to": self.ruling.to,
            "why": self.ruling.why,
            "accepted": self.accepted,
        }


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The configuration that says the same, as YAML has it, and what became of each key."""

    values: dict[str, Any]
    keys: tuple[ImportedKey, ...]

    @property
    def blocks(self) -> bool:
        """Whether a key has to be looked at first."""
        return any(key.blocks for key in self.keys)


def import_mirror_maker(text: str, accepted: Iterable[str] = ()) -> ImportedFile:
    """Read a file of MirrorMaker 2.

    Args:
        text: what stands in it.
        accepted: keys, as the file has them, that are left out although Parallax can't do what they ask.

    Raises:
        ConfigError: it is no such file: it names no clusters, or no address of one.
    """
    return _Import(read_properties(text), frozenset(accepted)).result()


@dataclass
class _Flow:
    source: str
    target: str
    keys: dict[str, Property] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


class _Import:
    def __init__(self, properties: Sequence[Property], accepted: frozenset[str]) -> None:
        self._accepted = accepted
        self._rows: dict[int, ImportedKey] = {}
        self._written: dict[int, str] = {}
        """By line, the key as the file has it, where it is read under another one."""
        self._defaults: list[ImportedKey] = []
        self._regions: dict[str, dict[str, Any]] = {}
        self._bare: dict[str, Property] = {}
        self._of_cluster: dict[str, dict[str, Property]] = {}
        self._flows: dict[tuple[str, str], _Flow] = {}
        last = {item.key: item for item in properties}
        for item in properties:
            if last[item.key] is not item:
                self._tell(
                    item,
                    Ruling(
                        KeyVerdict.IMPLIED,
                        f"it stands there again in line {last[item.key].line}, which counts",
                    ),
                )
        self._sort(list(last.values()))

    # --- what stands where -----------------------------------------------------------------------------------

    def _sort(self, properties: list[Property]) -> None:
        named = {item.key: item for item in properties}
        if "clusters" not in named and "source.cluster.bootstrap.servers" in named:
            properties = self._of_a_connector(named)
            named = {item.key: item for item in properties}
        if "clusters" not in named:
            raise ConfigError(
                "this is no configuration of MirrorMaker 2: it has no key 'clusters' (nor 'source.cluster.bootstrap.servers', as "
                "one of a connector has); of a Kubernetes resource, write its connectors' configuration as properties"
            )
        aliases = [alias.strip() for alias in named["clusters"].value.split(",") if alias.strip()]
        for alias in aliases:
            if _REGION.fullmatch(alias) is None:
                raise ConfigError(
                    f"line {named['clusters'].line}: clusters: {alias!r} can't be the name of a region"
                )
        self._of_cluster = {alias: {} for alias in aliases}
        self._tell(named["clusters"], Ruling(KeyVerdict.MAPPED, "", "regions"))
        for item in properties:
            if item.key != "clusters":
                self._place(item, aliases)

    def _of_a_connector(self, named: Mapping[str, Property]) -> list[Property]:
        """The same keys as a file of MirrorMaker 2 itself would have them."""
        source, target = (
            named[key].value if (key := f"{side}.cluster.alias") in named else side
            for side in ("source", "target")
        )
        connector = named.get("connector.class")
        made = [
            Property("clusters", f"{source},{target}", _NO_LINE),
            Property(f"{source}->{target}.enabled", "true", _NO_LINE),
        ]
        for key, item in named.items():
            side, _, rest = key.partition(".cluster.")
            if key in {"name", "connector.class"} or rest == "alias":
                known = connector is not None and item.value.rpartition(".")[2] in _CONNECTORS
                self._tell(
                    item,
                    Ruling(KeyVerdict.MAPPED, "", "routes")
                    if key != "connector.class" or known
                    else Ruling(KeyVerdict.UNSUPPORTED, f"{item.value} is no connector of MirrorMaker 2"),
                )
            elif rest and side in {"source", "target"}:
                self._written[item.line] = key
                made.append(replace(item, key=f"{source if side == 'source' else target}.{rest}"))
            else:
                made.append(item)
        return made

    def _place(self, item: Property, aliases: Sequence[str]) -> None:
        found = re.fullmatch(r"(.+?)->(.+)", item.key)
        if found is not None:
            source, rest = found.group(1), found.group(2)
            target = max((name for name in aliases if rest.startswith(f"{name}.")), key=len, default="")
            if source not in aliases or not target:
                named = f"{source}->{rest.partition('.')[0]}"
                self._tell(item, Ruling(KeyVerdict.UNKNOWN, f"'clusters' does not name both ends of {named}"))
                return
            flow = self._flows.setdefault((source, target), _Flow(source, target))
            key = rest.removeprefix(f"{target}.")
            flow.keys[_OLD_NAMES.get(key, key)] = item
            return
        alias = max((name for name in aliases if item.key.startswith(f"{name}.")), key=len, default="")
        if alias:
            self._of_cluster[alias][item.key.removeprefix(f"{alias}.")] = item
        else:
            self._bare[_OLD_NAMES.get(item.key, item.key)] = item

    # --- what becomes of it ----------------------------------------------------------------------------------

    def result(self) -> ImportedFile:
        for alias in self._of_cluster:
            self._region(alias)
        enabled = [flow for flow in self._flows.values() if self._is_enabled(flow)]
        routes = [self._route(flow, enabled) for flow in enabled]
        if not enabled:
            self._default(
                "clusters",
                "",
                Ruling(KeyVerdict.UNSUPPORTED, "no flow has 'enabled = true': nothing would be copied"),
            )
        self._replicas(enabled)
        groups = self._groups(enabled)
        upkeep = {
            name: section
            for name, section in (
                ("config_sync", self._config_sync(enabled)),
                ("acl_sync", self._acl_sync(enabled, routes)),
            )
            if section
        }
        for flow, route in zip(enabled, routes, strict=True):
            item = self._item(flow, "sync.group.offsets.enabled")
            if item is not None and item.value.lower() == "true" and "naming" not in route:
                self._tell(item, PUBLISHED)
        self._rest()
        values: dict[str, Any] = {
            "regions": self._regions,
            "cassandra": {"contact_points": [_PLACEHOLDER_STORE]},
            "routes": routes,
        }
        if upkeep:
            values["topics"] = upkeep
        if groups:
            values["groups"] = groups
        rows = [self._rows[line] for line in sorted(self._rows)]
        return ImportedFile(values, (*rows, *self._defaults))

    def _region(self, alias: str) -> None:
        keys = self._of_cluster[alias]
        servers = keys.get("bootstrap.servers")
        if servers is None:
            raise ConfigError(f"{alias}.bootstrap.servers is missing: 'clusters' names {alias!r}")
        addresses = [part.strip() for part in servers.value.split(",") if part.strip()]
        plain = [address.rpartition("://")[2] for address in addresses]
        self._tell(
            servers,
            Ruling(
                KeyVerdict.MAPPED if plain == addresses else KeyVerdict.CHANGED,
                ""
                if plain == addresses
                else "the protocol before an address says nothing to Kafka's clients either",
                f"regions.{alias}.cluster.bootstrap_servers",
            ),
        )
        region: dict[str, Any] = {"bootstrap_servers": ",".join(plain)}
        given = {key: item for key, item in self._bare.items() if is_security(key)}
        given |= {key: item for key, item in keys.items() if is_security(key)}
        security = ClusterSecurity(alias, servers.value)
        security.read({key: item.value for key, item in given.items()})
        for key, item in given.items():
            self._tell(item, security.rulings[key])
        if security.values:
            region["security"] = security.values
        self._regions[alias] = {"cluster": region}

    def _is_enabled(self, flow: _Flow) -> bool:
        item = flow.keys.get("enabled") or self._bare.get("enabled")
        value = "false" if item is None else item.value.strip().lower()
        if item is not None:
            known = value in {"true", "false"}
            why = f"it is neither true nor false, but {item.value!r}; comments stand on lines of their own"
            mapped = Ruling(KeyVerdict.MAPPED, "" if value == "true" else "no route", "routes")
            self._tell(item, mapped if known else Ruling(KeyVerdict.UNSUPPORTED, why))
        return value == "true"

    def _route(self, flow: _Flow, enabled: Sequence[_Flow]) -> dict[str, Any]:
        route: dict[str, Any] = {"route": str(flow)}
        naming = self._naming(flow)
        round_about = _goes_round(flow, enabled)
        if round_about and naming is None:
            why = f"what was produced at {flow.source} is copied, and copies are not: records do not go round"
            ruling = Ruling(KeyVerdict.CHANGED, why, "routes.copies")
            self._tell(self._item(flow, "enabled"), ruling, again=True)
        elif any(other.target == flow.source for other in enabled):
            route["copies"] = "all"
        topics = self._names("topics", _DEFAULT_TOPIC_EXCLUDES, flow, f"routes of {flow}: topics")
        if round_about and naming is not None:  # as MirrorMaker 2 knows by the name where a topic has been
            before, _, after = naming.partition("${source}")
            separator = after.removesuffix("${topic}")
            passed = re.escape(f"{before}{flow.target}{separator}")
            topics["exclude"] = [*topics.get("exclude", ()), f"(.*{re.escape(separator)})?{passed}.*"]
        if topics:
            route["topics"] = topics
        if naming is not None:
            route["naming"] = naming
        self._start(flow, route)
        return route

    def _replicas(self, enabled: Sequence[_Flow]) -> None:
        """A region has one number for all flows into it: the greatest that any of them asks for."""
        for target in dict.fromkeys(flow.target for flow in enabled):
            asked = [self._item(flow, "replication.factor") for flow in enabled if flow.target == target]
            given = [item for item in asked if item is not None]
            most = max((number for item in given if (number := _replicas_of(item.value)) > 0), default=None)
            if most is not None:
                self._regions[target]["cluster"]["replication_factor"] = most
            for item in given:
                ruling = _ruling_of_replicas(item.value, target, most)
                # What a key stands for may differ from target to target.
                self._tell(item, ruling, again=ruling.verdict is KeyVerdict.CHANGED)

    def _naming(self, flow: _Flow) -> str | None:
        policy, separator = self._item(flow, _POLICY), self._item(flow, "replication.policy.separator")
        name = "DefaultReplicationPolicy" if policy is None else policy.value.rpartition(".")[2]
        if separator is not None:
            self._tell(separator, Ruling(KeyVerdict.MAPPED, "part of the names of copies", "routes.naming"))
        if name == "IdentityReplicationPolicy":
            self._tell(
                policy, Ruling(KeyVerdict.MAPPED, "copies are called as their sources are", "routes.naming")
            )
            return None
        if name != "DefaultReplicationPolicy":
            self._tell(
                policy,
                Ruling(
                    KeyVerdict.UNSUPPORTED, f"{name} is a class of somebody's own, and Parallax loads none"
                ),
            )
            return None
        template = f"${{source}}{'.' if separator is None else separator.value}${{topic}}"
        ruling = Ruling(KeyVerdict.MAPPED, f"copies are called {template}", "routes.naming")
        if policy is not None:
            self._tell(policy, ruling)
        elif not any(row.key == _POLICY for row in self._defaults):
            self._default(_POLICY, "DefaultReplicationPolicy", ruling)
        try:
            return TopicNaming(template).template
        except InvalidNameError as error:
            self._tell(separator, Ruling(KeyVerdict.UNSUPPORTED, str(error)), again=True)
            return None

    def _start(self, flow: _Flow, route: dict[str, Any]) -> None:
        key = "consumer.auto.offset.reset"
        places = (flow.keys.get(key), self._of_cluster[flow.source].get(key), self._bare.get(key))
        item = next((place for place in places if place is not None), None)
        if item is None:
            return
        if item.value not in {"earliest", "latest"}:
            why = f"{item.value!r}: a route begins at the earliest record or at the latest"
            self._tell(item, Ruling(KeyVerdict.UNSUPPORTED, why, "routes.start"))
            return
        why = ""
        if item.value == "latest":
            route["start"] = "latest"
            why = "what was written before the replicator first sees a topic is left out for good"
        self._tell(item, Ruling(KeyVerdict.MAPPED, why, "routes.start"))

    def _config_sync(self, enabled: Sequence[_Flow]) -> dict[str, Any]:
        """The section `topics.config_sync`, where it is not the default."""
        section: dict[str, Any] = {}
        of = "topics.config_sync"
        on = self._switched("sync.topic.configs.enabled", enabled, f"{of}.enabled")
        if on is False:
            section["enabled"] = False
        seconds = self._seconds("sync.topic.configs.interval.seconds", enabled, f"{of}.interval_s")
        if seconds is not None:
            section["interval_s"] = seconds
        item = self._same(("config.properties.exclude", "config.properties.blacklist"), enabled, of)
        if item is not None:
            section["exclude"] = self._patterns(item, f"{of}.exclude")
        return section

    def _acl_sync(self, enabled: Sequence[_Flow], routes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The section `topics.acl_sync`: with MirrorMaker 2's very set, where it can be."""
        key, of = "sync.topic.acls.enabled", "topics.acl_sync"
        given = any(self._item(flow, key) for flow in enabled)
        on = self._switched(key, enabled, f"{of}.enabled")
        if not enabled or on is False or (given and on is None):
            return {}
        secure = all(
            "security" in self._regions[name]["cluster"]
            for flow in enabled
            for name in (flow.source, flow.target)
        )
        pairs = {(flow.source, flow.target) for flow in enabled}
        kept = any("naming" not in route for route in routes)
        why = ""
        if kept and any((target, source) in pairs for source, target in pairs):
            why = "routes with kept names lead both ways, and each would bring back a rule that the other has taken away"
        elif not given and not secure:
            why = "MirrorMaker 2 does it unless told otherwise; here clusters that ask nobody who is there have no rules to copy"
        if why:
            ruling = Ruling(KeyVerdict.CHANGED, why, f"{of}.enabled")
            for flow in enabled:
                self._tell(self._item(flow, key), ruling, again=True)
            if not given:
                self._default(key, "true", ruling)
            return {}
        if not given:
            self._default(
                key,
                "true",
                Ruling(KeyVerdict.MAPPED, "MirrorMaker 2 does it unless told otherwise", f"{of}.enabled"),
            )
        section: dict[str, Any] = {"enabled": True, "mode": "mm2"}
        seconds = self._seconds("sync.topic.acls.interval.seconds", enabled, f"{of}.interval_s")
        return section if seconds is None else section | {"interval_s": seconds}

    def _same(self, keys: Sequence[str], flows: Sequence[_Flow], of: str) -> Property | None:
        """What all flows say under one of the keys; where they differ it is told of each, and the first counts."""
        found = [next(filter(None, (self._item(flow, key) for key in keys)), None) for flow in flows]
        values = {None if item is None else item.value for item in found}
        if len(values) > 1:
            ruling = Ruling(
                KeyVerdict.CHANGED, f"flows differ, and {of} holds for all: the first one counts", of
            )
            for item in found:
                self._tell(item, ruling)
        return next(filter(None, found), None)

    def _switched(self, key: str, flows: Sequence[_Flow], to: str) -> bool | None:
        item = self._same((key,), flows, to)
        if item is None or item.value.lower() not in {"true", "false"}:
            return None  # the latter is told by the rule of the key
        self._tell(item, Ruling(KeyVerdict.MAPPED, "", to))
        return item.value.lower() == "true"

    def _seconds(self, key: str, flows: Sequence[_Flow], to: str) -> int | None:
        item = self._same((key,), flows, to)
        if item is None:
            return None
        if not item.value.isdecimal() or int(item.value) < 1:
            self._tell(item, Ruling(KeyVerdict.UNSUPPORTED, f"{item.value!r} is no number of seconds", to))
            return None
        self._tell(item, Ruling(KeyVerdict.MAPPED, "", to))
        return int(item.value)

    def _groups(self, enabled: Sequence[_Flow]) -> dict[str, list[str]]:
        found = [self._names("groups", _DEFAULT_GROUP_EXCLUDES, flow, "groups") for flow in enabled]
        if not found:
            return {}
        if any(other != found[0] for other in found):
            for flow in enabled:
                for key in ("groups", "groups.exclude"):
                    why = "groups are the same for all routes here: what one flow includes is included, and what all exclude excluded"
                    self._tell(flow.keys.get(key), Ruling(KeyVerdict.CHANGED, why, "groups"), again=True)
        excludes = [set(names.get("exclude", ())) for names in found]
        include = list(dict.fromkeys(name for names in found for name in names.get("include", [".*"])))
        shared = [name for name in found[0].get("exclude", ()) if all(name in other for other in excludes)]
        return {"include": include, "exclude": [*shared, r"parallax\..*"]}

    def _names(self, kind: str, default_excludes: str, flow: _Flow, to: str) -> dict[str, list[str]]:
        include, exclude = self._item(flow, kind), self._item(flow, f"{kind}.exclude")
        names: dict[str, list[str]] = {}
        if include is not None:
            patterns = self._patterns(include, to)
            if not _listed(include.value):
                self._tell(
                    include,
                    Ruling(
                        KeyVerdict.UNSUPPORTED,
                        "it chooses nothing, and a route without topics copies none",
                        to,
                    ),
                    again=True,
                )
            names["include"] = patterns or ["(?!)"]
        names["exclude"] = _listed(default_excludes) if exclude is None else self._patterns(exclude, to)
        return names

    def _patterns(self, item: Property, to: str) -> list[str]:
        found = _listed(item.value)
        for pattern in found:
            try:
                re.compile(pattern)
            except re.error as error:
                why = f"{pattern!r} is no regular expression of Python's: {error}"
                self._tell(item, Ruling(KeyVerdict.UNSUPPORTED, why, to), again=True)
                return [name for name in found if name != pattern]
        self._tell(item, Ruling(KeyVerdict.MAPPED, "", to))
        return found

    # --- what is left ------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        for alias, keys in self._of_cluster.items():
            for key, item in keys.items():
                self._engine_key(item, key, client=True, cluster=alias)
        for key, item in self._bare.items():
            self._engine_key(item, key, client=True)
        for flow in self._flows.values():
            for key, item in flow.keys.items():
                side, _, rest = key.partition(".")
                self._engine_key(item, rest if side in {"source", "target"} else key, client=True)

    def _engine_key(self, item: Property, key: str, *, client: bool, cluster: str = "") -> None:
        if item.line in self._rows:
            return
        kind, _, rest = key.partition(".")
        if kind in _KINDS:
            ruling = rule_of_client(kind, rest, item.value)
        else:
            ruling = rule_of(key, item.value) or (rule_of_client("", key, item.value) if client else None)
        settled = key in {
            "topics",
            "topics.exclude",
            "groups",
            "groups.exclude",
            _POLICY,
            "replication.factor",
            "enabled",
        }
        settled = settled or key == "replication.policy.separator"
        if cluster and (settled or (ruling is not None and rule_of(key, item.value) is not None)):
            why = f"MirrorMaker 2 itself does not read it of a cluster: it is {key} or FROM->TO.{key}"
            ruling = Ruling(KeyVerdict.IMPLIED, why)
        elif settled:
            ruling = Ruling(KeyVerdict.IMPLIED, "no flow that is enabled reads it")
        elif ruling is None:
            near = difflib.get_close_matches(key, known_keys(), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            if "->" in item.value or item.key in self._of_cluster:
                hint = "; a blank ends a key: write a->b.enabled without one"
            ruling = Ruling(KeyVerdict.UNKNOWN, f"no such key is known{hint}")
        self._tell(item, ruling)

    def _item(self, flow: _Flow, key: str) -> Property | None:
        return flow.keys.get(key) or self._bare.get(key)

    def _tell(self, item: Property | None, ruling: Ruling, *, again: bool = False) -> None:
        """Note what became of a key; what was told first stays, but for what is told again because it is graver."""
        if item is None or item.line == _NO_LINE or (item.line in self._rows and not again):
            return
        key = self._written.get(item.line, item.key)
        accepted = ruling.verdict.blocks and key in self._accepted
        self._rows[item.line] = ImportedKey(key, item.line, _shown(key, item.value), ruling, accepted)

    def _default(self, key: str, value: str, ruling: Ruling) -> None:
        accepted = ruling.verdict.blocks and key in self._accepted
        self._defaults.append(ImportedKey(key, None, value, ruling, accepted))


def _shown(key: str, value: str) -> str:
    return "(secret)" if _SECRET_KEY.search(key) else value


def _replicas_of(value: str) -> int:
    """How many are asked for; -1: as many as the broker makes by itself, 0: that is no number of them."""
    if value == "-1":
        return -1
    return int(value) if value.isdecimal() and len(value) <= _MOST_DIGITS else 0


def _ruling_of_replicas(value: str, target: str, most: int | None) -> Ruling:
    to = "regions.<region>.cluster.replication_factor"
    number = _replicas_of(value)
    if number == 0:
        return Ruling(KeyVerdict.UNSUPPORTED, f"{value!r} is no number of replicas")
    if number == most:
        return Ruling(KeyVerdict.MAPPED, "of the topics that are created there", to)
    if most is None:
        return Ruling(KeyVerdict.MAPPED, "the broker's default, as without the key")
    why = f"flows into {target} ask for different numbers, and a region has one: topics are created there with {most}"
    return Ruling(KeyVerdict.CHANGED, why, to)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _goes_round(flow: _Flow, flows: Sequence[_Flow]) -> bool:
    """Whether what the flow copies comes back to its source, so that it has to leave copies out."""
    return _reaches(flow.target, flow.source, flows)


def _reaches(start: str, end: str, flows: Sequence[_Flow]) -> bool:
    """Whether records at ``start`` come to ``end`` by the flows."""
    reached, grown = {start}, True
    while grown:
        more = {flow.target for flow in flows if flow.source in reached} - reached
        reached |= more
        grown = bool(more)
    return end in reached
