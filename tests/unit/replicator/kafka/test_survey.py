"""What a survey tells of a source that answers for some of its partitions only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._listoffsets import OffsetSpec
from structlog.testing import capture_logs

from parallax.adapters.kafka.librdkafka import EARLIEST
from parallax.config.config import Config
from parallax.domain.ids import Route, TopicId, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, ConfigError
from parallax.ports.clusters import TopicInfo
from replicator.copying.ports import Survey
from replicator.kafka import survey as discovery
from replicator.kafka.survey import Beginnings, KafkaSurveyor
from replicator.lease import Lease
from tests.support import poll_until

LEASE = Lease(Route.parse("a->b"), 0, 1, layout=1, epoch=1, deadline_unix_ms=0)
TOPICS = {
    TopicName(name): TopicInfo(TopicName(name), TopicId(f"id of {name}"), 2) for name in ("trips", "orders")
}
LEADERLESS = TopicPartition(TopicName("trips"), 0)


@pytest.fixture
def ids() -> dict[str, str]:
    """Ids of clusters; one that is not here has its name for an id."""
    return {}


@pytest.fixture
def closed() -> list[str]:
    """Clusters whose connections are closed."""
    return []


@pytest.fixture
def surveyor(
    monkeypatch: pytest.MonkeyPatch, ids: dict[str, str], closed: list[str]
) -> Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor]:
    """A surveyor of a source whose partitions have no leader where the test says so."""

    def made(
        leaderless: Callable[[TopicPartition], bool], beginnings: Beginnings | None = None, **route: Any
    ) -> KafkaSurveyor:
        def list_offsets(_admin: object, request: Mapping[Any, Any], **_: object) -> dict[Any, Future[Any]]:
            answers: dict[Any, Future[Any]] = {}
            for place in request:
                answers[place] = future = Future()
                if leaderless(TopicPartition(TopicName(place.topic), place.partition)):
                    future.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
                else:
                    future.set_result(SimpleNamespace(offset=offset_of(request[place]), leader_epoch=1))
            return answers

        def cluster(name: str, *_: object, **__: object) -> object:
            return SimpleNamespace(
                topics=lambda: TOPICS,
                cluster_id=lambda: ids.get(name, name),
                hidden=lambda _topics: frozenset(),
                usable=lambda _topics: frozenset(),
                close=lambda: closed.append(name),
            )

        monkeypatch.setattr(discovery, "list_offsets", list_offsets)
        monkeypatch.setattr(discovery, "KafkaCluster", cluster)
        config = Config.model_validate(
            {
                "regions": {
                    "a": {"regional": {"bootstrap_servers": "127.0.0.1:1"}},
                    "b": {"aggregate": {"bootstrap_servers": "127.0.0.1:1"}},
                },
                "cassandra": {"contact_points": ["127.0.0.1:1"]},
                "routes": [{"route": "a->b", **route}],
            }
        )
        return KafkaSurveyor(config, LEASE, beginnings or Beginnings())

    return made


def offset_of(spec: OffsetSpec) -> int:
    """Every log is [0, 7); the record of a time lies at its number."""
    timestamp_ms = getattr(spec, "timestamp", None)
    if timestamp_ms is None:
        return 0 if spec is EARLIEST else 7
    return timestamp_ms if timestamp_ms < 7 else -1


def surveyed(surveyor: KafkaSurveyor, *known: TopicName, refused: Collection[TopicName] = ()) -> Survey:
    surveyor.request(known, refused)
    return poll_until(surveyor.result, 10, "a survey")


def test_a_partition_without_a_leader_is_left_out_and_told_of_once(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor],
) -> None:
    made = surveyor(lambda item: item == LEADERLESS)
    with capture_logs() as logs:
        found = [surveyed(made).source_logs.keys() for _ in range(2)]
    made.close()
    every = {TopicPartition(name, number) for name in TOPICS for number in range(2)}
    assert found == [every - {LEADERLESS}] * 2
    assert [line["partition"] for line in logs] == [str(LEADERLESS)]


def test_a_source_of_which_nothing_answers_is_told_of_as_one(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor],
) -> None:
    made = surveyor(lambda _item: True)
    with capture_logs() as logs:
        assert surveyed(made).source_logs == {}
    made.close()
    assert len(logs) == 1


def test_a_source_that_has_become_its_own_target_is_found_at_the_next_look(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor], ids: dict[str, str]
) -> None:
    made = surveyor(lambda _item: False)
    assert not surveyed(made).same_cluster
    ids["regional-a"] = "aggregate-b"
    found = surveyed(made)
    assert found.same_cluster.startswith(
        "SAME_CLUSTER: regional-a and aggregate-b are one Kafka cluster, of the id aggr"
    )
    assert found.source_logs == {}
    ids.clear()
    assert not surveyed(made).same_cluster
    made.close()


def test_nothing_is_known_of_clusters_while_one_does_not_say_who_it_is(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> str:
        raise ClusterUnavailableError("aggregate-b: no answer")

    made = surveyor(lambda _item: False)
    monkeypatch.setattr(made._target, "cluster_id", away)
    found = surveyed(made)
    made.close()
    assert (found.source, found.target, found.same_cluster) == (None, None, "")


@pytest.mark.parametrize("asked", ["topics", "usable"])
def test_a_defect_is_told_of_and_the_next_survey_comes_all_the_same(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor],
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("nobody thought of this")

    made = surveyor(lambda _item: False)
    with monkeypatch.context() as defect, capture_logs() as logs:
        defect.setattr(made._target, asked, broken)
        found = [surveyed(made) for _ in range(2)]
    assert [(item.ticket, item.failed, item.source, item.target) for item in found] == [
        (1, True, None, None),
        (2, True, None, None),
    ]
    assert [(line["event"], line["log_level"], line["exc_info"]) for line in logs] == [
        ("survey_failed", "error", True)
    ] * 2
    sound = surveyed(made)
    made.close()
    assert (sound.failed, sound.source) == (False, TOPICS)


def test_a_topic_that_is_hidden_is_told_of_by_the_right_that_is_missing_and_not_created(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = surveyor(lambda _item: False)
    trips, orders, both = (TopicName(name) for name in ("trips", "orders", "both"))
    fitted: list[str] = []
    monkeypatch.setattr(made._source, "topics", lambda: {trips: TOPICS[trips]})
    monkeypatch.setattr(made._target, "topics", lambda: {orders: TOPICS[orders]})
    monkeypatch.setattr(made._source, "hidden", lambda topics: frozenset(topics) & {orders, both})
    monkeypatch.setattr(made._target, "hidden", lambda topics: frozenset(topics) & {trips, both})
    monkeypatch.setattr(made._target_topics, "fit", lambda info: fitted.append(info.topic))
    found = surveyed(made, both, TopicName("gone"))
    made.close()
    assert found.hidden.keys() == {trips, orders, both}
    assert "Read on topic orders at regional-a" in found.hidden[orders]
    assert "Read and Write on topic trips at aggregate-b" in found.hidden[trips]
    assert all(cluster in found.hidden[both] for cluster in ("regional-a", "aggregate-b"))
    assert fitted == []


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_side_that_does_not_say_what_it_hides_does_not_count_as_one_that_lacks_it(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor],
    monkeypatch: pytest.MonkeyPatch,
    side: str,
) -> None:
    def silent(_topics: object) -> frozenset[TopicName]:
        raise ClusterUnavailableError("no answer")

    made = surveyor(lambda _item: False)
    monkeypatch.setattr(getattr(made, f"_{side}"), "topics", dict)
    monkeypatch.setattr(getattr(made, f"_{side}"), "hidden", silent)
    found = surveyed(made)
    made.close()
    assert getattr(found, side) is None


@pytest.mark.parametrize("answers", [True, False])
def test_a_target_is_asked_whether_it_still_refuses_what_it_has_refused(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor],
    monkeypatch: pytest.MonkeyPatch,
    *,
    answers: bool,
) -> None:
    trips, orders = TOPICS

    def usable(asked: Collection[TopicName]) -> frozenset[TopicName]:
        if not answers:
            raise ClusterUnavailableError("no answer")
        return frozenset(asked) & {trips}

    made = surveyor(lambda _item: False)
    monkeypatch.setattr(made._target, "usable", usable)
    found = surveyed(made, refused=(trips, orders))
    made.close()
    assert set(found.usable) == ({trips} if answers else set())
    assert found.source == TOPICS


def test_a_target_with_fewer_partitions_is_made_to_fit_and_one_with_as_many_is_left_alone(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = surveyor(lambda _item: False)
    trips, orders = TOPICS.values()
    here = {trips.topic: replace(trips, partitions=1), orders.topic: orders}
    fitted: list[TopicInfo] = []
    monkeypatch.setattr(made._target, "topics", lambda: here)
    monkeypatch.setattr(made._target_topics, "fit", fitted.append)
    surveyed(made)
    made.close()
    assert fitted == [trips]


def test_why_a_target_does_not_fit_is_told_once_for_each_change(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = surveyor(lambda _item: False)
    said: list[str] = []

    def fit(there: TopicInfo) -> None:
        if said[-1] and there.topic == "trips":
            raise ConfigError(said[-1])

    monkeypatch.setattr(made._target, "topics", dict)
    monkeypatch.setattr(made._target_topics, "fit", fit)
    with capture_logs() as logs:
        for problem in ["no right", "no right", "no answer", "", "no answer", "no answer"]:
            said.append(problem)
            surveyed(made)
    made.close()
    told = [(line["topic"], line["problem"]) for line in logs if line["event"] == "target_topic_unfit"]
    assert told == [("trips", "no right"), ("trips", "no answer"), ("trips", "no answer")]


@pytest.mark.parametrize(("start", "begins_at"), [("earliest", None), ("latest", 7), (4, 4), (9, 7)])
def test_a_route_begins_where_it_says_and_keeps_to_it(
    surveyor: Callable[..., KafkaSurveyor], start: str | int, begins_at: int | None
) -> None:
    made = surveyor(lambda _item: False, start=start)
    found = [{log.begins_at for log in surveyed(made).source_logs.values()} for _ in range(2)]
    made.close()
    assert found == [{begins_at}] * 2


def test_of_a_topic_or_partition_that_comes_while_it_looks_nothing_is_left_out(
    surveyor: Callable[..., KafkaSurveyor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = surveyor(lambda _item: False, start="latest")
    trips, orders = TOPICS
    monkeypatch.setattr(made._source, "topics", lambda: {trips: replace(TOPICS[trips], partitions=1)})
    surveyed(made)
    monkeypatch.setattr(made._source, "topics", lambda: TOPICS)
    found = surveyed(made).source_logs
    made.close()
    assert {item: log.begins_at for item, log in found.items()} == {
        TopicPartition(trips, 0): 7,
        TopicPartition(trips, 1): 0,
        TopicPartition(orders, 0): 0,
        TopicPartition(orders, 1): 0,
    }


def test_nor_is_what_came_while_a_session_ended_and_another_began(
    surveyor: Callable[..., KafkaSurveyor], monkeypatch: pytest.MonkeyPatch
) -> None:
    beginnings, (trips, orders) = Beginnings(), TOPICS
    first = surveyor(lambda _item: False, beginnings, start="latest")
    monkeypatch.setattr(first._source, "topics", lambda: {trips: TOPICS[trips]})
    surveyed(first)
    first.close()
    with capture_logs():
        second = surveyor(lambda _item: True, beginnings, start="latest")
        surveyed(second)
        second.close()
    third = surveyor(lambda _item: False, beginnings, start="latest")
    found = surveyed(third).source_logs
    third.close()
    assert {log.begins_at for item, log in found.items() if item.topic == trips} == {7}
    assert {log.begins_at for item, log in found.items() if item.topic == orders} == {0}


def test_it_leaves_no_connection_open(
    surveyor: Callable[[Callable[[TopicPartition], bool]], KafkaSurveyor], closed: list[str]
) -> None:
    made = surveyor(lambda _item: False)
    surveyed(made)
    assert not closed
    made.close()
    poll_until(lambda: closed == ["regional-a", "aggregate-b"], 10, "the end of its connections")
