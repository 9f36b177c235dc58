"""Which topics a route copies, under which names, and why it leaves others out.

Patterns are regular expressions that must match the whole name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from parallax.domain.ids import RegionName, TopicName
from parallax.errors import InvalidNameError

LONGEST_NAME = 249
"""Kafka refuses a topic whose name is longer."""

INTERNAL_TOPICS = (r"__.*", r"parallax\..*")
"""Kafka's own topics and Parallax's: they mean something in their own cluster alone."""

BUILTIN_EXCLUDES = (
    *INTERNAL_TOPICS,
    r"_schemas",
    r"_confluent.*",
    r".*[-.]internal",
    r"mm2-.*",
    r"(.*\.)?heartbeats",
    r"(.*[-_.])?connect[-_.](configs|offsets|status)",
    r".*-(changelog|repartition)",
    r".*-subscription-(registration|response)(-.*)?-topic",
)
"""What brokers, registries, MirrorMaker 2, Connect and Kafka Streams keep for themselves in topics."""

_MOST_REMEMBERED = 65_536
"""Names held against patterns whose answer is remembered: some 10 MB."""

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_NAME = re.compile(r"[A-Za-z0-9._-]*")
_OPEN_END = re.compile(r"((?:[A-Za-z0-9_-]|\\[.-])*)\.[*+]")


class LeftOut(Enum):
    """Why a route does not copy a topic."""

    EXCLUDED = "EXCLUDED"
    """No ``include`` chooses it, or an ``exclude`` does."""
    BUILTIN = "BUILTIN"
    """A built-in exclude chooses it, and the general ``include`` does not spell its name out."""
    RESIDENCY = "RESIDENCY"
    """Its records may not lie in the route's target region."""
    NOT_ADDED = "NOT_ADDED"
    """The target lacks it, and nobody has added it there (`topics.new`)."""


@dataclass(frozen=True, slots=True)
class Residency:
    """Records of the topics that ``match`` chooses may lie in these regions, and in no other."""

    match: str
    regions: frozenset[RegionName]


@dataclass(frozen=True, slots=True)
class Patterns:
    """Names that are included and not excluded."""

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()

    def choose(self, name: str) -> bool:
        """Whether the name is included and not excluded."""
        return matches(self.include, name) and not matches(self.exclude, name)

    def spell_out(self, name: str) -> bool:
        """Whether a pattern of ``include`` is the very name."""
        return name in self.include


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which topics one route copies.

    Attributes:
        target: the route's target region.
        general: the choice for all routes.
        own: the route's own, which narrows that.
        builtin: whether all of `BUILTIN_EXCLUDES` hold, or `INTERNAL_TOPICS` alone. A name that the general ``include``
            spells out is copied in spite of the others.
        residency: rules that outweigh all of these.
    """

    target: RegionName
    general: Patterns = Patterns()
    own: Patterns = Patterns()
    builtin: bool = True
    residency: tuple[Residency, ...] = ()

    def chosen(self, name: TopicName) -> bool:
        """Whether the route copies the topic."""
        return self.left_out(name) is None

    def left_out(self, name: TopicName) -> LeftOut | None:
        """Why the route does not copy the topic; None: it does."""
        if not (self.general.choose(name) and self.own.choose(name)):
            return LeftOut.EXCLUDED
        if is_left_out_builtin(self.general, name, builtin=self.builtin):
            return LeftOut.BUILTIN
        return None if self.admits(name) else LeftOut.RESIDENCY

    def admits(self, name: TopicName) -> bool:
        """Whether records of a topic of this name may lie in the target region."""
        return all(self.target in rule.regions for rule in self.residency if re.fullmatch(rule.match, name))

    def examples(self) -> Iterator[TopicName]:
        """Names that it chooses, by the patterns alone: a topic of such a name may be created at any time."""
        for pattern in dict.fromkeys((*self.general.include, *self.own.include)):
            if (name := _example(pattern)) is not None and self.chosen(name):
                yield name


@dataclass(frozen=True, slots=True)
class TopicNaming:
    """The name of a topic's copy: text in which ``${topic}`` and ``${source}`` (the source region) are replaced."""

    template: str = "${topic}"

    def __post_init__(self) -> None:
        """Check the template.

        Raises:
            InvalidNameError: it has no ``${topic}``, another placeholder, or what no topic's name may have.
        """
        found = _PLACEHOLDER.findall(self.template)
        if found.count("topic") != 1 or not set(found) <= {"topic", "source"}:
            raise InvalidNameError(
                f"naming {self.template!r}: it takes ${{topic}} once, and ${{source}} for the source region"
            )
        if _NAME.fullmatch(_PLACEHOLDER.sub("", self.template)) is None:
            raise InvalidNameError(
                f"naming {self.template!r}: names of topics have ASCII letters, digits, '.', '_' and '-' alone"
            )

    @property
    def keeps(self) -> bool:
        """Whether copies are named as their sources are."""
        return self.template == "${topic}"

    def of(self, topic: TopicName, source: RegionName) -> TopicName:
        """The name of the copy."""
        values = {"topic": topic, "source": source}
        return TopicName(_PLACEHOLDER.sub(lambda found: values[found.group(1)], self.template))

    def source_of(self, copy: TopicName, source: RegionName) -> TopicName | None:
        """The topic whose copy has the name; None: no topic's has."""
        before, after = (
            _PLACEHOLDER.sub(source, part) for part in self.template.split("${topic}", maxsplit=1)
        )
        if len(copy) <= len(before) + len(after) or not (copy.startswith(before) and copy.endswith(after)):
            return None
        return TopicName(copy[len(before) : len(copy) - len(after)])


@dataclass(frozen=True, slots=True)
class RouteTopics:
    """The topics that a route copies, and what it calls them.

    Attributes:
        choice: by the names at the source.
        naming: of the copies.
        source: the source region.
    """

    choice: TopicChoice
    naming: TopicNaming
    source: RegionName

    def copy_of(self, name: TopicName) -> TopicName | None:
        """What the copy of a source's topic is called; None: the route does not copy it, or no topic may be called so."""
        copy = self.naming.of(name, self.source)
        return copy if self.choice.chosen(name) and len(copy) <= LONGEST_NAME else None

    def source_of(self, copy: TopicName) -> TopicName | None:
        """The source's topic whose copy is called so; None: the route copies none."""
        name = self.naming.source_of(copy, self.source)
        return name if name is not None and self.choice.chosen(name) else None

    def make(self, copy: TopicName) -> bool:
        """Whether a target's topic of the name is one that the route writes to."""
        return self.source_of(copy) is not None


def is_left_out_builtin(general: Patterns, name: str, *, builtin: bool) -> bool:
    """Whether a built-in exclude that holds chooses the name, and the general choice does not spell it out."""
    return matches(BUILTIN_EXCLUDES if builtin and not general.spell_out(name) else INTERNAL_TOPICS, name)


def matches(patterns: Collection[str], name: str) -> bool:
    """Whether one of the patterns matches the whole name."""
    return _matches(tuple(patterns), name)


@lru_cache(maxsize=_MOST_REMEMBERED)
def _matches(patterns: tuple[str, ...], name: str) -> bool:
    # The sync job asks for every partition of every group in every cycle.
    return any(re.fullmatch(pattern, name) is not None for pattern in patterns)


def _example(pattern: str) -> TopicName | None:
    """A name that a simple pattern matches: the name itself, or a beginning with anything after it."""
    if _NAME.fullmatch(pattern) and pattern:
        return TopicName(pattern)
    found = _OPEN_END.fullmatch(pattern)
    return None if found is None else TopicName(found.group(1).replace("\\", "") + "any-topic")
