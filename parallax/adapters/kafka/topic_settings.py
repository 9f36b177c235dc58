"""Settings of topics, asked of brokers and changed one by one (DescribeConfigs, IncrementalAlterConfigs), and new topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.errors import for_code
from kafka.protocol.admin import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from parallax.adapters.kafka.links import UNKNOWN_TOPIC, Link, Links
from parallax.adapters.kafka.logs import NOT_ALLOWED
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName, TopicName
from parallax.domain.topic_settings import Settings, TopicSetting
from parallax.errors import RefusedError

_TOPIC = 2
_OF_THE_TOPIC, _BUILTIN = 1, 5
"""Kafka's numbers of where a value comes from; those between are the brokers'."""
_SAID_OTHERWISE = {"retention.ms": "604800000", "segment.ms": "604800000", "segment.jitter.ms": "0"}
"""Kafka's defaults of keys that brokers may set by other units (`log.retention.hours`, `log.roll.hours`), which it does not show."""
_SET, _DELETE = 0, 1
_EXISTS = 36
_REFUSED = frozenset({29, 40, 42, 44})
"""Not allowed, an invalid value, an invalid request, against the cluster's policy: asking again is of no use."""
_AT_ONCE = 200
_BROKERS_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class SeenSettings:
    """What a cluster shows of topics' settings; a topic that does not exist is in neither.

    Attributes:
        topics: settings by topic.
        refused: topics whose settings this client may not see, with why.
    """

    topics: Mapping[TopicName, Settings]
    refused: Mapping[TopicName, str]


class SettingsDoor:
    """The settings of one cluster's topics. Safe to use from several threads.

    Args:
        cluster: the cluster's name.
        settings: its address and security.
        timeout_ms: bound of each call.
    """

    def __init__(self, cluster: ClusterName, settings: Cluster, *, timeout_ms: int) -> None:
        self.cluster = cluster
        self._settings = settings
        self._links = Links(cluster, settings, client_id=f"parallax-{cluster}", timeout_ms=timeout_ms)

    def read(self, topics: Collection[TopicName]) -> SeenSettings:
        """The topics' settings.

        Raises:
            ConfigError: the brokers refuse this client.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        seen: dict[TopicName, Settings] = {}
        refused: dict[TopicName, str] = {}
        for some in _parts(sorted(topics)):
            found, hidden = self._links.do(lambda link, some=some: _read(link, some))  # type: ignore[misc]
            seen |= found
            refused |= hidden
        return SeenSettings(seen, refused)

    def change(self, topic: TopicName, changes: Mapping[str, str | None]) -> None:
        """Give the topic these values, all or none; None takes its own value away.

        Raises:
            RefusedError: the cluster does not take them, or this client may not change them.
            ClusterUnavailableError: the cluster did not answer in time; they may or may not be changed.
        """
        self._links.do(lambda link: _change(link, topic, changes))

    def create_compacted(self, topic: TopicName) -> None:
        """Create a topic of one partition that keeps the newest record of each key, unless it is there.

        Raises:
            RefusedError: the cluster refuses.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        replicas = self._settings.replication_factor
        settings = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
        if replicas is not None:
            settings["min.insync.replicas"] = "2" if replicas > 2 else "1"  # noqa: PLR2004 - one of three may be away
        self._links.do(lambda link: _create(link, topic, replicas or _BROKERS_DEFAULT, settings))


def _parts(topics: Sequence[TopicName]) -> Iterator[Sequence[TopicName]]:
    for begin in range(0, len(topics), _AT_ONCE):
        yield topics[begin : begin + _AT_ONCE]


def _read(link: Link, topics: Sequence[TopicName]) -> tuple[dict[TopicName, Settings], dict[TopicName, str]]:
    asked = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            asked(resource_type=_TOPIC, resource_name=str(topic), configuration_keys=None) for topic in topics
        ],
        include_synonyms=True,
        include_documentation=False,
        min_version=1,
        max_version=4,
    )
    doing = "reading settings of topics"
    answer = link.ask(link.any_node, request, doing)
    seen: dict[TopicName, Settings] = {}
    refused: dict[TopicName, str] = {}
    for result in answer.results:
        topic = TopicName(result.resource_name)
        if result.error_code == NOT_ALLOWED:
            refused[topic] = (
                f"{link.cluster} does not show the settings of {topic!r} (DescribeConfigs on the topic)"
            )
        elif result.error_code != UNKNOWN_TOPIC:
            link.check(result.error_code, f"{doing}: {topic!r}")
            seen[topic] = {
                item.name: _setting(item)
                for item in result.configs
                if item.value is not None and not item.is_sensitive
            }
    return seen, refused


def _setting(item: Any) -> TopicSetting:
    value = str(item.value)
    own = value if item.config_source == _OF_THE_TOPIC else None
    below = (other for other in item.synonyms if other.source != _OF_THE_TOPIC and other.value is not None)
    inherited = next((str(other.value) for other in below), value if own is None else "")
    builtin = item.config_source == _BUILTIN and (
        bool(item.synonyms) or value == _SAID_OTHERWISE.get(item.name, value)
    )
    return TopicSetting(value, own, inherited, builtin=builtin)


def _change(link: Link, topic: TopicName, changes: Mapping[str, str | None]) -> None:
    asked = IncrementalAlterConfigsRequest.AlterConfigsResource
    request = IncrementalAlterConfigsRequest(
        resources=[
            asked(
                resource_type=_TOPIC,
                resource_name=str(topic),
                configs=[
                    asked.AlterableConfig(
                        name=key, config_operation=_DELETE if value is None else _SET, value=value
                    )
                    for key, value in sorted(changes.items())
                ],
            )
        ],
        validate_only=False,
        max_version=1,
    )
    doing = f"changing settings of {topic!r}"
    for result in link.ask(link.any_node, request, doing).responses:
        _check(link, result.error_code, result.error_message, doing)


def _create(link: Link, topic: TopicName, replicas: int, settings: Mapping[str, str]) -> None:
    doing = f"creating topic {topic!r}"
    known = link.metadata([topic], doing)
    nodes = link.nodes(known)
    if any(item.name == topic and not item.error_code for item in known.topics):
        return
    asked = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            asked(
                name=str(topic),
                num_partitions=1,
                replication_factor=replicas,
                assignments=[],
                configs=[
                    asked.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()
                ],
            )
        ],
        timeout_ms=max(1, round(link.deadline.remaining_s * 1_000)),
        validate_only=False,
        max_version=7,
    )
    # Where there is no separate controller any broker passes it on.
    controller = nodes.get(known.controller_id, link.any_node)
    for result in link.ask(controller, request, doing).topics:
        if result.error_code != _EXISTS:
            _check(link, result.error_code, result.error_message, doing)


def _check(link: Link, code: int, message: str | None, doing: str) -> None:
    if code in _REFUSED:
        raise RefusedError(f"{link.cluster}: {doing}: {message or for_code(code).__name__} ({code})")
    link.check(code, doing)
