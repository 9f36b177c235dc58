"""Which topics are copied, by which routes, and under which names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from parallax.config.values import Pattern, RegionKey, Section
from parallax.domain.access_rules import AccessMode, AccessPolicy
from parallax.domain.ids import RegionName, Route
from parallax.domain.route_graph import Copies, CopiesKind
from parallax.domain.topic_choice import Patterns, Residency, TopicNaming, is_left_out_builtin, matches
from parallax.domain.topic_settings import FIXED_KEYS, FixedSettings, SettingsRule
from parallax.errors import InvalidNameError

# Every question to the offset service asks for routes: text is parsed and held against the model once.
_parsed = lru_cache(maxsize=10_000)(Route.parse)


class Names(Section):
    """A choice of names by regular expressions that must match the whole name."""

    include: tuple[Pattern, ...] = (".*",)
    exclude: tuple[Pattern, ...] = ()

    def patterns(self) -> Patterns:
        """The choice by itself."""
        return Patterns(self.include, self.exclude)

    def chosen(self, name: str) -> bool:
        """Whether the name is included and not excluded."""
        return self.patterns().choose(name)


class ResidencyRule(Section):
    """Where records of some topics may lie."""

    match: Pattern
    regions: Annotated[tuple[RegionKey, ...], Field(min_length=1)]


class SettingsOverride(Section):
    """Settings that target topics get instead of their sources' ones."""

    match: Pattern
    """Of the topics' names at the target."""
    regions: tuple[RegionKey, ...] = ()
    """Target regions; empty: all."""
    settings: Annotated[Mapping[str, str], Field(min_length=1)]

    @field_validator("settings")
    @classmethod
    def _none_is_fixed(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        for key in settings:
            if matches(FIXED_KEYS, key):
                raise ValueError(
                    f"{key}: batches are passed on as they are, which needs the value that target topics have"
                )
        return settings

    def override(self) -> FixedSettings:
        """It by itself."""
        return FixedSettings(self.match, dict(self.settings), frozenset(map(RegionName, self.regions)))


class ConfigSync(Names):
    """How settings of target topics are kept in step with their sources' (docs/topics-in-step.md)."""

    enabled: bool = True
    interval_s: Annotated[float, Field(ge=1)] = 30
    exclude: tuple[Pattern, ...] = (
        r"leader\.replication\.throttled\.replicas",
        r"follower\.replication\.throttled\.replicas",
        r"message\.timestamp\..*",
        r"compression\.type",
        r"unclean\.leader\.election\.enable",
        r"min\.insync\.replicas",
    )
    """Keys; ``include`` and ``exclude`` must match them whole."""
    conflict: Literal["widest", "keep"] = "widest"
    """Where sources differ: the wider retention or size, or nothing is changed."""
    on_drift: Literal["keep", "revert"] = "keep"
    """Of what somebody has set at the target: it stays and is told, or is undone."""
    shrink: Literal["refuse_if_unread", "allow"] = "refuse_if_unread"
    """Whether a change may let the target forget records that a group has not read."""
    replication_factor: Annotated[int, Field(ge=1, le=32_767)] | None = None
    """Of target topics that are created; None: as the cluster's own key says."""
    overrides: tuple[SettingsOverride, ...] = ()

    def rule(self) -> SettingsRule:
        """The rule by itself."""
        return SettingsRule(
            self.patterns(), widest=self.conflict == "widest", revert=self.on_drift == "revert"
        )


class AclSync(Section):
    """How rules of access are copied to target clusters (docs/access-in-step.md)."""

    enabled: bool = False
    mode: Literal["safe", "mm2"] = "safe"
    """``safe``; or MirrorMaker 2's very set, ``mm2``."""
    interval_s: Annotated[float, Field(ge=1)] = 30
    wildcard: Literal["refuse", "expand"] = "refuse"
    """A rule about all topics is refused, or becomes one for each topic that is copied."""
    prefixed: bool = True
    """A rule about topics that begin so becomes one for each that is copied."""
    groups: bool = False
    """Copy rules about groups, too."""
    delete: Literal["owned", "never"] = "owned"
    """Whether rules that were made by us go when no source has them any more."""
    principals: Mapping[str, str] = Field(default_factory=dict)
    """Who is called otherwise at the target."""

    def policy(self) -> AccessPolicy:
        """It by itself."""
        return AccessPolicy(
            AccessMode(self.mode),
            wildcard=self.wildcard == "expand",
            prefixed=self.prefixed,
            groups=self.groups,
            delete=self.delete == "owned",
            principals=dict(self.principals),
        )


class Topics(Names):
    """Which topics are copied; routes may narrow the choice."""

    new: Literal["auto", "manual"] = "auto"
    """Of a topic that its target lacks: it is created there, or waits until somebody has done so (`parallax topics add`)."""
    on_recreate: Literal["continue", "stop"] = "continue"
    """Of a source topic that was deleted and made anew: its records follow, or its partitions are stopped."""
    builtin_excludes: bool = True
    """Leave out what brokers, registries, MirrorMaker 2, Connect and Streams keep for themselves
    (`parallax.domain.topic_choice.BUILTIN_EXCLUDES`), unless ``include`` spells its name out. Kafka's own topics and Parallax's are never copied."""
    residency: tuple[ResidencyRule, ...] = ()
    """It outweighs ``include`` and all routes."""
    config_sync: ConfigSync = ConfigSync()
    acl_sync: AclSync = AclSync()

    def chosen(self, name: str) -> bool:
        """Whether a route may choose it: included, not excluded, and not left out by a built-in exclude."""
        left_out = is_left_out_builtin(self.patterns(), name, builtin=self.builtin_excludes)
        return super().chosen(name) and not left_out

    def residencies(self) -> tuple[Residency, ...]:
        """The rules by themselves."""
        return tuple(
            Residency(rule.match, frozenset(map(RegionName, rule.regions))) for rule in self.residency
        )


class RouteSettings(Section):
    """One route; the text ``a->b`` alone may stand for the section."""

    route: str
    """``a->b``."""
    from_: Literal["regional", "aggregate"] = Field(default="regional", alias="from")
    """The cluster of region a that is read: the regional one, or the aggregate one, for chains."""
    copies: Literal["own", "all"] | tuple[RegionKey, ...] | None = None
    """Records that were produced at the cluster that is read, all, or those produced in some regions; None: ``own`` from a
    regional cluster, ``all`` from an aggregate one, where nothing is produced."""
    start: Literal["earliest", "latest"] | Annotated[int, Field(ge=0)] = "earliest"
    """Where a topic that was never copied begins; a number is a time, in milliseconds since 1970."""
    topics: Names = Names()
    """They narrow the choice of the section ``topics``."""
    naming: str = "${topic}"

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, values: Any) -> Any:
        return {"route": values} if isinstance(values, str) else values

    @field_validator("route")
    @classmethod
    def _is_a_route(cls, text: str) -> str:
        try:
            Route.parse(text)
        except InvalidNameError as error:
            raise ValueError(str(error)) from error
        return text

    @field_validator("naming")
    @classmethod
    def _is_a_name(cls, template: str) -> str:
        try:
            return TopicNaming(template).template
        except InvalidNameError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _copies_something(self) -> Self:
        if self.copies == ():
            raise ValueError("copies: an empty list copies nothing: name regions, or set 'own' or 'all'")
        return self

    def parsed(self) -> Route:
        """The route by itself."""
        return _parsed(self.route)

    def copied(self) -> Copies:
        """Which records it copies."""
        if isinstance(self.copies, tuple):
            return Copies(CopiesKind.REGIONS, frozenset(map(RegionName, self.copies)))
        default = CopiesKind.OWN if self.from_ == "regional" else CopiesKind.ALL
        return Copies(default if self.copies is None else CopiesKind(self.copies))


@lru_cache(maxsize=10_000)
def plain_route(text: str) -> RouteSettings:
    """The settings of a route of which nothing more is said."""
    return RouteSettings(route=text)
