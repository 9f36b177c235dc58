"""`FailoverProducer` with make-believe clusters: where each record ends, and what its report says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from parallax import (
    DeliveryReport,
    DownReason,
    FailoverProducer,
    PartitionCountError,
    ProducerClosedError,
    ProducerConfigError,
    ProducerEventKind,
    TransactionsUnsupportedError,
)
from parallax.errors import (
    ClusterUnavailableError,
    ConfigError,
    ServiceUnavailableError,
    UnknownRegionError,
    UnknownTopicError,
)
from parallax.producer.addresses import DescribedAddresses
from parallax.producer.ports import ClusterTopics
from parallax.v1 import primaries_pb2 as pb
from tests.support import poll_until
from tests.worlds.producer_fakes import TOPIC, ProducerWorld

WITHIN_S = 10.0


def test_records_go_to_the_region_named_first() -> None:
    world = ProducerWorld()
    name = world.produce("x")
    assert world.delivery.ledger.held_records == 1, "nothing is handed over before the region has answered"
    world.settle()
    assert world.report(name) == (None, DeliveryReport("a"))
    assert world.clusters["a"].log == [name]
    assert world.clusters["b"].log == []


def test_a_dead_region_is_left_in_order_and_without_needless_doubts() -> None:
    world = ProducerWorld()
    world.settle()
    world.produce("first")
    world.settle()
    world.clusters["a"].up = False
    handed = [world.produce(f"handed-{number}") for number in range(3)]
    world.step()
    held = [world.produce(f"held-{number}") for number in range(3)]
    world.settle()
    assert world.clusters["b"].log == [*handed, *held]
    assert [world.report(name) for name in handed] == [(None, DeliveryReport("b", ("a",)))] * 3
    assert all(world.report(name)[1].maybe_duplicate for name in handed)
    assert [world.report(name) for name in held] == [(None, DeliveryReport("b"))] * 3
    (moved,) = [event for event in world.events if event.kind is ProducerEventKind.MOVED]
    assert (moved.from_region, moved.region, moved.reason) == ("a", "b", DownReason.UNREACHABLE)
    assert (moved.taken_back_records, moved.held_records) == (3, 3)
    counts = world.delivery.ledger.counts
    assert (counts.acknowledged, counts.resent, counts.maybe_duplicate) == ({"a": 1, "b": 6}, 3, 3)


def test_a_region_that_is_down_from_the_start_leaves_no_doubt() -> None:
    world = ProducerWorld()
    world.clusters["a"].up = False
    name = world.produce("x")
    world.settle()
    assert world.report(name) == (None, DeliveryReport("b"))


def test_records_return_once_the_region_has_been_well_for_a_while() -> None:
    world = ProducerWorld(return_after_ms=10_000)
    world.clusters["a"].up = False
    world.produce("in-b")
    world.settle()
    world.clusters["a"].up = True
    back_at_s = world.now_s
    while world.delivery.site.region == "b":
        assert world.now_s < back_at_s + 60
        world.step()
    assert world.now_s >= back_at_s + 10
    name = world.produce("in-a-again")
    world.settle()
    assert world.report(name) == (None, DeliveryReport("a"))
    assert world.kinds().count("RETURNED") == 1


def test_a_region_that_goes_down_after_each_return_is_trusted_less() -> None:
    world = ProducerWorld(return_after_ms=10_000)
    away_s = []
    for _ in range(3):
        world.clusters["a"].up = False
        while world.delivery.site.region == "a":
            world.step()
        world.clusters["a"].up = True
        since_s = world.now_s
        while world.delivery.site.region == "b":
            world.step()
        away_s.append(world.now_s - since_s)
    assert away_s[1] > 1.8 * away_s[0]
    assert away_s[2] > 1.8 * away_s[1]


def test_records_that_a_region_owes_at_a_return_are_left_to_it() -> None:
    world = ProducerWorld(return_after_ms=1_000)
    world.clusters["a"].up = False
    world.produce("first")
    world.settle()
    world.clusters["a"].up = True
    while world.delivery.site.region == "b":
        world.clusters["b"].mute = world.now_s > 0
        world.step()
        if not world.accepted[1:]:
            world.produce("slow")
    world.clusters["b"].mute = False
    world.settle()
    assert world.report(b"slow") == (None, DeliveryReport("b"))
    assert world.clusters["a"].log == []


def test_a_region_that_acknowledges_nothing_is_down_though_it_answers() -> None:
    world = ProducerWorld(stalled_after_ms=20_000)
    world.settle()
    world.clusters["a"].mute = True
    name = world.produce("x")
    since_s = world.now_s
    world.settle()
    assert world.now_s - since_s >= 20
    assert world.report(name) == (None, DeliveryReport("b", ("a",)))
    assert world.clusters["a"].log == world.clusters["b"].log == [name], (
        "this is what maybe_duplicate warns of"
    )


def test_what_librdkafka_gives_up_late_is_sent_late() -> None:
    world = ProducerWorld()
    world.settle()
    world.clusters["a"].mute = True
    owed = world.produce("owed")
    world.step()
    world.clusters["a"].up = False
    world.step()
    while world.delivery.site.region == "a":
        assert world.now_s < 200
        world.clusters["a"].inners[0].silent_until_s = world.now_s + 5
        world.step()
    later = world.produce("later")
    world.settle()
    assert world.clusters["b"].log == [later, owed]
    assert world.report(owed) == (None, DeliveryReport("b", ("a",)))
    assert world.delivery.others == []


def test_slow_acknowledgements_are_waited_for() -> None:
    world = ProducerWorld()
    world.settle()
    world.clusters["a"].mute = True
    slow = world.produce("slow")
    world.step(times=50)
    later = world.produce("later")
    world.clusters["a"].mute = False
    world.settle()
    assert [world.report(name)[1].region for name in (slow, later)] == ["a", "a"]
    assert "MOVED" not in world.kinds()


def test_unacknowledged_records_may_be_reported_instead() -> None:
    world = ProducerWorld(on_unacknowledged="report")
    world.settle()
    world.clusters["a"].mute = True
    owed = world.produce("owed")
    world.step()
    world.clusters["a"].up = False
    world.step()
    later = world.produce("later")
    world.settle()
    error, report = world.report(owed)
    assert error is not None
    assert error.code() == KafkaError._PURGE_INFLIGHT
    assert report == DeliveryReport(None, ("a",))
    assert not report.maybe_duplicate
    assert world.report(later) == (None, DeliveryReport("b"))
    assert world.clusters["b"].log == [later]


def test_one_dead_partition_moves_what_times_out() -> None:
    world = ProducerWorld(config={"message.timeout.ms": 5_000})
    world.settle()
    world.produce("fine", key="a")
    world.clusters["a"].leaderless = {0}
    stuck = world.produce("stuck", partition=0)
    for number in range(100):
        world.produce(f"fine-{number}", partition=1)
        world.step()
    world.settle()
    assert world.report(stuck) == (None, DeliveryReport("b", ("a",)))
    assert DownReason.TIMED_OUT in [event.reason for event in world.events]


def test_without_another_region_a_timed_out_record_fails_as_with_kafka() -> None:
    world = ProducerWorld(("a",), config={"message.timeout.ms": 5_000})
    world.settle()
    world.clusters["a"].leaderless = {0}
    stuck = world.produce("stuck", partition=0)
    world.settle()
    error, report = world.report(stuck)
    assert error is not None
    assert error.code() == KafkaError._MSG_TIMED_OUT
    assert report == DeliveryReport(None, ("a",))
    world.clusters["a"].leaderless = set()
    after = world.produce("after")
    world.settle()
    assert world.report(after) == (None, DeliveryReport("a"))


def test_all_regions_down_is_said_and_records_wait() -> None:
    world = ProducerWorld()
    world.settle()
    world.clusters["a"].up = world.clusters["b"].up = False
    world.step()
    names = [world.produce(f"waits-{number}") for number in range(3)]
    world.step(times=60)
    assert world.kinds().count("STUCK") == 1
    assert len(world.delivery.ledger) == 3
    world.clusters["a"].up = True
    world.settle()
    assert [world.report(name) for name in names] == [(None, DeliveryReport("a"))] * 3
    assert world.kinds()[-1] == "UNSTUCK"


def test_records_that_no_region_ever_takes_fail_in_time() -> None:
    world = ProducerWorld(config={"message.timeout.ms": 30_000})
    world.clusters["a"].up = world.clusters["b"].up = False
    name = world.produce("x")
    since_s = world.now_s
    world.settle(within_s=120)
    error, report = world.report(name)
    assert error is not None
    assert error.code() == KafkaError._MSG_TIMED_OUT
    assert report == DeliveryReport(None)
    assert world.now_s - since_s < 65


@pytest.mark.parametrize(
    ("topics", "error"),
    [({}, UnknownTopicError), ({TOPIC: 6}, PartitionCountError)],
    ids=["missing", "counts"],
)
def test_a_region_that_does_not_fit_is_told_of_early_and_passed_over(
    topics: dict[str, int], error: type[Exception]
) -> None:
    world = ProducerWorld(("a", "b", "c"))
    world.clusters["b"].topics = topics
    world.produce("x")
    world.step(times=3)
    (unfit,) = [event for event in world.events if event.kind is ProducerEventKind.UNFIT]
    assert unfit.region == "b"
    assert isinstance(unfit.error, error)
    assert isinstance(world.engine.problems()["b"], error)
    world.clusters["a"].up = False
    name = world.produce("y")
    world.settle()
    assert world.report(name)[1].region == "c"


def test_a_region_with_settings_that_are_refused_stops_no_other() -> None:
    world = ProducerWorld(("a", "b", "c"))
    world.invalid |= {"b"}
    world.invalid_for_probes |= {"b"}
    name = world.produce("x")
    world.settle()
    assert world.clusters["a"].log == [name]
    assert "librdkafka refuses its settings: ssl.ca.location failed" in str(world.engine.problems()["b"])
    assert [(event.kind, event.region) for event in world.events] == [(ProducerEventKind.UNFIT, "b")]
    world.invalid_for_probes.clear()
    world.now_s += 3_600
    world.step()
    assert not world.engine.problems()


def test_a_move_passes_over_a_region_whose_producer_can_not_be_made() -> None:
    world = ProducerWorld(("a", "b", "c"))
    world.settle()
    world.invalid |= {"b"}
    world.clusters["a"].up = False
    name = world.produce("x")
    world.settle()
    assert world.delivery.site.region == "c"
    assert world.clusters["c"].log == [name]
    assert "UNFIT" in world.kinds()


@pytest.mark.parametrize("refusal", [None, ValueError("the application's own token callback")])
def test_where_nobody_can_take_over_for_his_settings_records_wait(refusal: Exception | None) -> None:
    world = ProducerWorld()
    world.refusal = refusal or world.refusal
    world.settle()
    world.invalid |= {"b"}
    world.clusters["a"].up = False
    name = world.produce("x")
    world.step(0.1, 100)
    assert world.delivery.site.region == "a"
    assert "STUCK" in world.kinds()
    world.invalid.clear()
    world.settle()
    assert world.clusters["b"].log == [name]


def test_no_return_to_a_region_whose_producer_can_not_be_made() -> None:
    world = ProducerWorld(return_after_ms=5_000)
    world.settle()
    world.clusters["a"].up = False
    world.produce("x")
    world.settle()
    assert world.delivery.site.region == "b"
    world.invalid |= {"a"}
    world.clusters["a"].up = True
    world.step(0.1, 200)
    assert world.delivery.site.region == "b"
    world.invalid.clear()
    world.step(0.1, 200)
    assert world.delivery.site.region == "a"


def while_one_is_made(world: ProducerWorld, happens: Callable[[], object]) -> None:
    """As where a token has to be waited for: something happens meanwhile."""
    make = world.delivery._factory

    def slowly(config: dict[str, Any]) -> Any:
        assert not world.delivery.lock.locked(), "everything would wait"
        happens()
        return make(config)

    world.delivery._factory = slowly


def test_nothing_waits_while_a_producer_is_made() -> None:
    world = ProducerWorld(return_after_ms=1_000)
    world.produce("first")
    world.settle()
    made: list[bytes] = []
    while_one_is_made(world, lambda: made.append(world.produce(f"meanwhile-{len(made)}")))
    world.clusters["a"].up = False
    world.produce("moved")
    world.settle()
    world.clusters["a"].up = True
    world.step(times=50)
    assert world.delivery.site.region == "a"
    assert [world.report(name) for name in made] == [(None, DeliveryReport("b"))] * 2


def test_an_application_s_thread_waits_for_no_producer_to_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ProducerWorld(return_after_ms=1_000)
    world.clusters["a"].up = False
    world.produce("x")
    world.settle()
    world.clusters["a"].up = True
    tick = world.engine.tick
    monkeypatch.setattr(world.engine, "tick", lambda **_pilots: tick())
    world.step(times=50)
    assert world.delivery.site.region == "b"


def test_a_producer_that_was_made_for_what_has_changed_meanwhile_takes_nothing() -> None:
    world = ProducerWorld(return_after_ms=1_000)
    world.clusters["a"].up = False
    world.produce("x")
    world.settle()
    changes = [lambda: world.engine.set_credentials("new", "secret")]
    while_one_is_made(world, lambda: changes.pop()() if changes else None)
    world.clusters["a"].up = True
    world.step(times=50)
    _, outdated, used = world.clusters["a"].inners
    assert world.delivery.site.inner is used
    assert "sasl.username" not in outdated.config
    assert used.config["sasl.username"] == "new"


def test_an_unfit_region_is_told_to_be_fit_again() -> None:
    world = ProducerWorld(check_interval_ms=1_000)
    world.clusters["b"].up = False
    world.produce("x")
    world.step(times=30)
    assert world.kinds() == ["UNFIT"]
    assert isinstance(world.engine.problems()["b"], ClusterUnavailableError)
    world.clusters["b"].up = True
    world.step(times=30)
    assert world.kinds() == ["UNFIT", "FIT"]
    assert world.engine.problems() == {}


def test_a_topic_that_is_nowhere_fails_its_own_records_alone() -> None:
    world = ProducerWorld()
    typo = world.produce("typo", topic="tirps")
    fine = world.produce("fine")
    world.settle()
    error, report = world.report(typo)
    assert error is not None
    assert error.code() == KafkaError._UNKNOWN_TOPIC
    assert report == DeliveryReport(None)
    assert world.report(fine) == (None, DeliveryReport("a"))
    world.clusters["a"].up = False
    moved = world.produce("moved")
    world.settle()
    assert world.report(moved)[1].region == "b", "the slip does not keep b from taking over"


REFUSALS = (KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("code", REFUSALS)
def test_a_topic_that_is_refused_fails_its_own_records_alone(code: int) -> None:
    world = ProducerWorld()
    world.clusters["a"].refused["no topic"] = code
    refused = world.produce("refused", topic="no topic")
    world.settle()
    assert world.report(refused)[0] == KafkaError(code)
    world.clusters["a"].up = False
    moved = world.produce("moved")
    world.settle()
    assert world.report(moved)[1].region == "b", "the slip does not keep b from taking over"


def test_a_topic_that_is_refused_when_it_is_handed_over_fails_its_own_records_alone() -> None:
    world = ProducerWorld()
    world.clusters["a"].refused["no topic"] = KafkaError.TOPIC_EXCEPTION
    world.produce("refused", topic="no topic")
    world.settle()
    world.clusters["a"].up = False
    world.step()
    again = world.produce("again", topic="no topic")
    assert world.delivery.ledger.held_records == 1
    world.clusters["a"].up = True
    world.settle()
    assert world.report(again)[0] == KafkaError(KafkaError.TOPIC_EXCEPTION)
    world.clusters["a"].up = False
    moved = world.produce("moved")
    world.settle()
    assert world.report(moved)[1].region == "b"


def test_a_fatal_error_of_librdkafka_costs_a_new_producer_in_the_same_region() -> None:
    world = ProducerWorld()
    world.settle()
    world.clusters["a"].mute = True
    owed = world.produce("owed")
    world.step()
    inner = world.clusters["a"].inners[-1]
    inner.config["error_cb"](KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "gap", fatal=True))
    world.clusters["a"].mute = False
    later = world.produce("later")
    world.settle()
    assert [world.report(name)[1].region for name in (owed, later)] == ["a", "a"]
    assert len(world.clusters["a"].inners) == 2


def test_purging_reports_everything_and_sends_nothing_elsewhere() -> None:
    world = ProducerWorld()
    world.settle()
    world.clusters["a"].mute = True
    owed = world.produce("owed")
    world.step()
    world.clusters["a"].up = False
    world.step()
    held = world.produce("held")
    world.delivery.purge(in_queue=True, in_flight=True, blocking=True)
    world.settle()
    assert [world.report(name)[1] for name in (owed, held)] == [
        DeliveryReport(None, ("a",)),
        DeliveryReport(None),
    ]
    world.step(times=60)
    assert world.clusters["b"].log == []


def test_the_queue_is_bounded_over_all_regions() -> None:
    world = ProducerWorld(config={"queue.buffering.max.messages": 10})
    world.clusters["a"].up = world.clusters["b"].up = False
    for number in range(10):
        world.produce(f"x-{number}")
    with pytest.raises(BufferError, match="Queue full"):
        world.produce("one too many")
    world.clusters["b"].up = True
    world.settle()
    assert len(world.clusters["b"].log) == 10
    world.produce("room again")
    world.settle()


def test_the_bytes_waiting_are_bounded_too() -> None:
    world = ProducerWorld(config={"queue.buffering.max.kbytes": 1})
    world.produce("x" * 900)
    with pytest.raises(BufferError):
        world.produce("y" * 900)
    world.settle()
    world.produce("y" * 900)
    world.settle()


def test_a_record_is_the_same_wherever_it_is_written() -> None:
    world = ProducerWorld()
    world.settle()
    world.clusters["a"].mute = True
    headers: dict[str, Any] = {"id": b"7"}
    world.delivery.produce(TOPIC, bytearray(b"v"), "key", 3, None, 0, headers)
    headers["id"] = b"changed by the application afterwards"
    (before,) = world.clusters["a"].inners[-1].queue
    world.step()
    world.clusters["a"].up = False
    while world.delivery.site.region == "a":
        assert world.now_s < 200
        world.now_s += 0.2
        world.pilot.round()
    (after,) = world.clusters["b"].inners[-1].queue
    assert after[1:5] == before[1:5] == (TOPIC, b"v", b"key", 3)
    assert after[6:] == before[6:] == (100_000, [("id", b"7")])
    world.settle()


def test_an_application_that_does_not_poll_is_moved_too_and_called_when_it_polls() -> None:
    world = ProducerWorld()
    world.settle()
    world.clusters["a"].up = False
    name = world.produce("x")
    for _ in range(100):
        world.now_s += 0.2
        world.pilot.round()
    assert world.delivery.site.region == "b"
    assert world.reported[name] == []
    assert world.clusters["b"].log == [name]
    world.settle()
    assert world.report(name) == (None, DeliveryReport("b", ("a",)))


def test_what_a_callback_raises_comes_out_of_poll_and_nothing_is_lost() -> None:
    world = ProducerWorld()

    def fails(*_: object) -> None:
        raise ValueError("the application's own")

    world.delivery.produce(TOPIC, "x", None, 0, fails, 0, None)
    name = world.produce("y")
    with pytest.raises(ValueError, match="own"):
        world.settle()
    world.settle()
    assert world.report(name) == (None, DeliveryReport("a"))


class Describing:
    """An offset service that describes regions, while it is there."""

    def __init__(self) -> None:
        self.away = self.closed = False
        self.servers = "regional-b:9092"
        self.mechanism = "SCRAM-SHA-512"

    def describe_regions(self, *, timeout_ms: float | None = None) -> pb.DescribeRegionsResponse:  # noqa: ARG002 - the client's signature
        if self.away:
            raise ServiceUnavailableError("away")
        return pb.DescribeRegionsResponse(
            regions=[
                pb.RegionDescription(
                    region="b",
                    regional=pb.ClusterDescription(
                        bootstrap_servers=self.servers,
                        security_protocol="SASL_SSL",
                        sasl_mechanism=self.mechanism,
                    ),
                ),
                pb.RegionDescription(region="hub", aggregate=pb.ClusterDescription(bootstrap_servers="x:1")),
            ]
        )

    def close(self) -> None:
        self.closed = True


def test_only_a_client_that_was_made_here_is_closed() -> None:
    service = Describing()
    DescribedAddresses(service, {}).close()
    assert not service.closed
    DescribedAddresses(service, {}, made_here=True).close()
    assert service.closed


def test_amazon_s_mechanism_is_librdkafka_s_oauthbearer() -> None:
    service = Describing()
    service.mechanism = "AWS_MSK_IAM"
    assert DescribedAddresses(service, {}).clusters["b"]["sasl.mechanism"] == "OAUTHBEARER"


def test_described_clusters_outlive_the_service() -> None:
    service = Describing()
    addresses = DescribedAddresses(service, {"sasl.username": "u"})
    assert addresses.clusters == {
        "b": {
            "bootstrap.servers": "regional-b:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
        }
    }
    service.away = True
    addresses.refresh()
    assert addresses.clusters["b"]["bootstrap.servers"] == "regional-b:9092"
    service.away, service.servers = False, "elsewhere:9092"
    addresses.refresh()
    assert addresses.clusters["b"]["bootstrap.servers"] == "elsewhere:9092"


def test_what_the_application_says_of_security_goes_before_the_description() -> None:
    addresses = DescribedAddresses(
        Describing(), {"security.protocol": "PLAINTEXT", "sasl.mechanisms": "PLAIN"}
    )
    assert addresses.clusters == {"b": {"bootstrap.servers": "regional-b:9092"}}


def test_without_any_answer_at_the_start_there_is_no_producer() -> None:
    service = Describing()
    service.away = True
    with pytest.raises(ServiceUnavailableError):
        FailoverProducer({}, region="b", services=service)


def test_a_region_without_a_regional_cluster_is_refused() -> None:
    with pytest.raises(UnknownRegionError, match=r"'hub' has no regional cluster here; those that have: b"):
        FailoverProducer({}, region="hub", services=Describing())


CLUSTERS = {"a": "127.0.0.1:1", "b": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("config", "arguments", "word"),
    [
        ({"bootstrap.servers": "x:1"}, {}, "bootstrap.servers belongs"),
        ({"acks": 1}, {}, "acks=1"),
        ({"request.required.acks": "0"}, {}, "acks=0"),
        ({"delivery.report.only.error": True}, {}, "delivery.report.only.error"),
        ({"default.topic.config": {}}, {}, "default.topic.config"),
        ({"on_delivery": 3}, {}, "on_delivery"),
        ({}, {"clusters": None}, "either clusters"),
        ({}, {"services": ["x:1"]}, "either clusters"),
        ({}, {"clusters": None, "services": "x:1"}, "not one string"),
        ({}, {"topics": "trips"}, "topics is a list"),
        ({}, {"clusters": {"a": {"partitioner": "murmur2", "bootstrap.servers": "x:1"}}}, "partitioner"),
        ({}, {"clusters": {"a": ""}}, "names no bootstrap.servers"),
        ({}, {"clusters": "x:1"}, "clusters is a mapping"),
        ({}, {"clusters": {"a": ["x:1"]}}, r"clusters\['a'\] is 'host:port' or a mapping"),
        ({}, {"on_event": 3}, "on_event is not callable"),
        ({}, {"on_unacknowledged": "hope"}, "resend, report"),
        ({}, {"stalled_after_ms": 0}, "stalled_after_ms"),
        ({}, {"stalled_after_ms": "20000"}, "stalled_after_ms must be above 0 milliseconds, not '20000'"),
    ],
)
def test_settings_that_can_not_be_honoured(
    config: dict[str, Any], arguments: dict[str, Any], word: str
) -> None:
    with pytest.raises(ConfigError, match=word) as caught:
        FailoverProducer(config, region="a", **{"clusters": CLUSTERS, **arguments})
    assert isinstance(caught.value, ProducerConfigError)


def test_transactions_are_refused() -> None:
    with pytest.raises(TransactionsUnsupportedError):
        FailoverProducer({"transactional.id": "x"}, region="a", clusters=CLUSTERS)
    with FailoverProducer({"log_level": 0}, region="a", clusters=CLUSTERS) as producer:
        for method in (
            producer.init_transactions,
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets_to_transaction([], None),
        ):
            with pytest.raises(TransactionsUnsupportedError, match="can't span regions"):
                method()


def test_a_new_login_holds_in_every_region_whatever_it_was_configured_with() -> None:
    world = ProducerWorld()
    for cluster in world.addresses.clusters.values():
        cluster.update({"sasl.username": "old", "sasl.password": "old"})
    world.engine.set_credentials("new", "secret")
    (due,) = [config for due, config in world.engine.probes_due() if due.region == "b"]
    world.clusters["a"].up = False
    world.produce("moved")
    world.settle()
    (inner,) = world.clusters["b"].inners
    for config in (due, inner.config):
        assert (config["sasl.username"], config["sasl.password"]) == ("new", "secret")


def test_a_login_that_is_none_changes_nothing() -> None:
    with FailoverProducer({"log_level": 0}, region="a", clusters=CLUSTERS) as producer:
        with pytest.raises(TypeError):
            producer.set_sasl_credentials(None, None)  # type: ignore[arg-type] # what is tried
        assert "sasl.username" not in producer._engine._settings.for_cluster({})


def test_a_login_that_a_producer_refuses_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ProducerWorld()
    world.engine.set_credentials("old", "secret")

    def refuses(*_: str) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    monkeypatch.setattr(world.delivery.site.inner, "set_sasl_credentials", refuses)
    with pytest.raises(KafkaException):
        world.engine.set_credentials("new", "secret")
    assert world.engine._settings.for_cluster({})["sasl.username"] == "old"


def test_a_region_whose_probe_can_not_be_made_keeps_no_records_from_another_one() -> None:
    world = ProducerWorld(("a", "b", "c"))
    world.refusal = ValueError("no such mechanism")
    world.invalid_for_probes |= {"b"}
    world.clusters["a"].up = False
    name = world.produce("x")
    world.settle()
    assert world.clusters["c"].log == [name]
    assert "no such mechanism" in str(world.engine.problems()["b"])


def test_closing_reports_what_no_cluster_took() -> None:
    reports: list[tuple[Any, ...]] = []
    producer = FailoverProducer({"log_level": 0}, region="a", clusters=CLUSTERS, close_timeout_ms=100)
    producer.produce(TOPIC, "x", on_delivery=lambda *found: reports.append(found))
    assert producer
    assert len(producer) == 1
    assert producer.close() is False
    ((error, message, report),) = reports
    assert error.code() == KafkaError._PURGE_QUEUE
    assert message.value() == b"x"
    assert report == DeliveryReport(None)
    assert producer.close() is True
    with pytest.raises(ProducerClosedError):
        producer.produce(TOPIC, "y")


def test_closing_reports_all_though_a_callback_fails() -> None:
    reports: list[tuple[Any, ...]] = []

    def fails(*_: object) -> None:
        raise ValueError("the application's own")

    producer = FailoverProducer({"log_level": 0}, region="a", clusters=CLUSTERS, close_timeout_ms=100)
    producer.produce(TOPIC, "x", on_delivery=fails)
    producer.produce(TOPIC, "y", on_delivery=lambda *found: reports.append(found))
    with pytest.raises(ValueError, match="the application's own"):
        producer.close()
    assert len(reports) == 1
    assert len(producer) == 0
    assert producer._pilot._stopped
    with pytest.raises(ProducerClosedError):
        producer.produce(TOPIC, "z")
    assert producer.close() is True


def test_what_a_round_under_way_still_uses_is_not_closed() -> None:
    world = ProducerWorld()
    asked, answers = threading.Event(), threading.Event()

    def slow() -> ClusterTopics:
        asked.set()
        assert answers.wait(WITHIN_S)
        return ClusterTopics({})

    world.pilot._factory = lambda _config: SimpleNamespace(  # type: ignore[return-value] # as much as is needed
        ask=lambda _topics, _timeout_s: slow, close=lambda: None
    )
    world.pilot.start()
    try:
        assert asked.wait(WITHIN_S)
        assert world.pilot.stop(0.01) is False
    finally:
        answers.set()
    assert world.pilot.stop(WITHIN_S) is True


def test_a_round_that_meets_a_defect_is_told_of_and_the_next_one_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, rounds = ProducerWorld(), 0

    def broken() -> None:
        nonlocal rounds
        rounds += 1
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(world.pilot, "round", broken)
    with capture_logs() as logs:
        world.pilot.start()
        poll_until(lambda: rounds > 1, WITHIN_S, "a second round")
        assert world.pilot.stop(WITHIN_S)
    assert {(line["event"], line["log_level"]) for line in logs} == {("producer_round_failed", "error")}
