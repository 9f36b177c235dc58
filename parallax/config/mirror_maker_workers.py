"""Where a MirrorMaker 2 keeps its positions, by its configuration (Kafka's `MirrorMakerConfig.workerConfig`)."""

from __future__ import annotations

from dataclasses import dataclass

from parallax.config.properties import read_properties
from parallax.domain.ids import Route, TopicName
from parallax.domain.mirror_maker_positions import SOURCE_CONNECTOR, MirrorMakerWorkers
from parallax.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WorkerNames:
    """What an operator says of the workers, which outweighs the file; None: nothing."""

    group: str | None = None
    connector: str | None = None
    offsets_topic: str | None = None
    status_topic: str | None = None


def workers_of(text: str, route: Route, given: WorkerNames | None = None) -> MirrorMakerWorkers:
    """Where the workers of a flow keep what they know of it.

    Args:
        text: what stands in the file of a dedicated MirrorMaker 2, or in that of a connector.
        route: the flow.
        given: what is known otherwise.

    Raises:
        ConfigError: the file does not say it: of a connector, its workers' own file does.
    """
    given = given or WorkerNames()
    keys = {item.key: item.value for item in read_properties(text)}
    source, target = route.source, route.target
    dedicated = "clusters" in keys

    def name(said: str | None, option: str, places: tuple[str, ...], default: str) -> str:
        found = said or next((keys[place] for place in places if place in keys), default if dedicated else "")
        if not found or "${" in found:
            what = (
                f"it is {found!r} there" if found else "it stands in the configuration of its Connect workers"
            )
            raise ConfigError(f"{places[0]} of {route} is not known: {what}: give it by {option}")
        return found

    storage = "{}.storage.topic"
    offsets, status = storage.format("offset"), storage.format("status")
    return MirrorMakerWorkers(
        group=name(given.group, "--worker-group", (f"{target}.group.id",), f"{source}-mm2"),
        connector=name(
            given.connector, "--connector", (f"{route}.name",) if dedicated else ("name",), SOURCE_CONNECTOR
        ),
        alias=str(source),
        offsets_topic=TopicName(
            name(
                given.offsets_topic,
                "--offsets-topic",
                (offsets, f"{target}.{offsets}"),
                f"mm2-offsets.{source}.internal",
            )
        ),
        status_topic=TopicName(
            name(
                given.status_topic,
                "--status-topic",
                (status, f"{target}.{status}"),
                f"mm2-status.{source}.internal",
            )
        ),
    )
