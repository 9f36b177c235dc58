"""Where a MirrorMaker 2 keeps its positions, by its file and by what an operator says."""

from __future__ import annotations

import pytest

from parallax.config.mirror_maker_workers import WorkerNames, workers_of
from parallax.domain.ids import Route
from parallax.errors import ConfigError

ROUTE = Route.parse("a->b")
FILE = "clusters = a, b\n"
CONNECTOR = "name = a->b.MirrorSourceConnector\nsource.cluster.bootstrap.servers = a:9092\n"


def test_a_dedicated_one_has_names_of_its_own() -> None:
    found = workers_of(FILE, ROUTE)
    assert (found.group, found.connector, found.alias) == ("a-mm2", "MirrorSourceConnector", "a")
    assert (found.offsets_topic, found.status_topic) == ("mm2-offsets.a.internal", "mm2-status.a.internal")


def test_a_key_for_all_outweighs_one_of_the_target_and_the_operator_both() -> None:
    text = (
        "b.offset.storage.topic = theirs\noffset.storage.topic = ours\nb.status.storage.topic = states\n"
        "b.group.id = workers\na->b.name = copier\na.group.id = not read\n"
    )
    found = workers_of(FILE + text, ROUTE)
    assert (found.offsets_topic, found.status_topic, found.group, found.connector) == (
        "ours",
        "states",
        "workers",
        "copier",
    )
    assert workers_of(FILE + text, ROUTE, WorkerNames(offsets_topic="other")).offsets_topic == "other"


def test_of_a_connector_its_workers_have_to_be_named() -> None:
    with pytest.raises(
        ConfigError, match=r"a->b is not known: it stands in .* Connect workers: give it by --worker-group"
    ):
        workers_of(CONNECTOR, ROUTE)
    given = WorkerNames(group="workers", offsets_topic="offsets", status_topic="status")
    assert workers_of(CONNECTOR, ROUTE, given).connector == "a->b.MirrorSourceConnector"


def test_what_stands_elsewhere_can_not_be_read() -> None:
    with pytest.raises(ConfigError, match="give it by --offsets-topic"):
        workers_of(FILE + "offset.storage.topic = ${env:TOPIC}\n", ROUTE)
