"""`FailoverConsumer` takes what the installed `confluent_kafka.Consumer` takes, and raises what it raises."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.aio import AIOConsumer

from parallax import AIOFailoverConsumer, FailoverConsumer
from parallax.consumer.errors import (
    ConsumerClosedError,
    ConsumerConfigError,
    GroupMovingError,
    NoStartOffsetError,
    StaleMessageError,
)
from tests.worlds.failover_fakes import TOPIC, A, FakeService, World

NOWHERE = "127.0.0.1:1"
MANUAL = {"enable.auto.commit": False, "enable.auto.offset.store": False}
HERE = TopicPartition(TOPIC, 0, 3)
ELSEWHERE = TopicPartition("elsewhere", 9, 3)
FAILED = Message(topic=TOPIC, partition=0, offset=3, error=KafkaError(KafkaError._PARTITION_EOF))
RECORD = Message(topic=TOPIC, partition=0, offset=3)
EXAMPLES: dict[str, Any] = {
    "topics": [TOPIC],
    "on_assign": print,
    "on_revoke": print,
    "on_lost": print,
    "timeout": 0.01,
    "num_messages": 1,
    "partitions": [HERE],
    "partition": HERE,
    "message": None,
    "offsets": [HERE],
    "asynchronous": True,
    "cached": False,
    "topic": TOPIC,
    "username": "somebody",
    "password": "secret",
}
"""An argument of each name that occurs."""


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def public(kind: type) -> list[str]:
    """What can be called on an instance, as a context manager too."""
    managing = {"__enter__", "__exit__", "__aenter__", "__aexit__"}
    return [name for name in dir(kind) if not name.startswith("_") or name in managing]


def signature(method: str) -> list[tuple[str, object]]:
    """Names and defaults that the library documents: ``poll([timeout=None])``; Ellipsis: it has to be given."""
    documented = re.search(r"py:function:: \w+\((.*)\)", getattr(Consumer, method).__doc__)
    names = documented.group(1) if documented else {"pause": "partitions"}.get(method, "")
    found: list[tuple[str, object]] = []
    for item in filter(None, names.split(",")):
        name, _, default = item.strip(" []").partition("=")
        found.append((name, ast.literal_eval(default) if default else ...))
    # No bound: the library has both in its documentation, and takes -1 alone.
    return [(name, -1 if name == "timeout" and default is None else default) for name, default in found]


METHODS = [name for name in public(Consumer) if not name.startswith("_")]


def test_every_method_is_there() -> None:
    assert set(public(Consumer)) - set(public(FailoverConsumer)) == set()
    assert set(public(AIOConsumer)) - set(public(AIOFailoverConsumer)) == set()
    assert set(public(Consumer)) - set(public(AIOFailoverConsumer)) == {"__enter__", "__exit__"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [FailoverConsumer, AIOFailoverConsumer])
def test_every_argument_has_its_name_place_and_default(kind: type, method: str) -> None:
    parameters = list(inspect.signature(getattr(kind, method)).parameters.values())[1:]
    own = [
        (item.name, ... if item.default is inspect.Parameter.empty else item.default) for item in parameters
    ]
    assert own == signature(method)
    assert all(item.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for item in parameters)
    assert asyncio.iscoroutinefunction(getattr(kind, method)) == (kind is AIOFailoverConsumer)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("by_name", [True, False])
def test_every_method_takes_its_arguments(world: World, method: str, *, by_name: bool) -> None:
    world.log("a").extend(A[:5])
    consumer = world.start("a", MANUAL, move_from="committed")
    world.poll_records(5)
    arguments = {name: EXAMPLES[name] for name, _ in signature(method)}
    if method.startswith("incremental_assign"):
        consumer.unassign()
    call = getattr(consumer, method)
    result = call(**arguments) if by_name else call(*arguments.values())
    assert result is None or method not in {"subscribe", "assign", "pause", "resume", "seek"}


def raised(call: Callable[[], object]) -> Exception | None:
    """What comes of a call."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - compared
        return error
    return None


def is_caught_as(theirs: Exception | None, ours: Exception | None) -> bool:
    """Whether an application that catches the library's error, and looks at its code, does so with ours."""
    if theirs is None or ours is None:
        return theirs is ours
    same_code = not isinstance(theirs, KafkaException) or theirs.args[0].code() == ours.args[0].code()
    return isinstance(ours, type(theirs)) and same_code


def both(**config: object) -> tuple[Consumer, FailoverConsumer]:
    """The library's consumer and ours, with librdkafka in both and no broker."""
    settings = {"group.id": "g", "log_level": 0, **MANUAL, **config}
    ours = FailoverConsumer(
        settings,
        clusters={"a": NOWHERE},
        region="a",
        services=FakeService({}),
        move_from="committed",
        close_timeout_ms=1,
    )
    return Consumer({"bootstrap.servers": NOWHERE, **settings}), ours


MISTAKES: list[tuple[str, tuple[object, ...]]] = [
    ("assign", ()),
    ("assign", (None,)),
    ("assign", ("x",)),
    ("assign", (HERE,)),
    ("assign", ((HERE,),)),
    ("assign", (["x"],)),
    ("incremental_assign", (None,)),
    ("incremental_assign", (["x"],)),
    ("incremental_assign", ([HERE],)),
    ("incremental_unassign", (None,)),
    ("incremental_unassign", ([ELSEWHERE],)),
    ("unassign", (1,)),
    ("subscribe", ()),
    ("subscribe", (None,)),
    ("subscribe", (TOPIC,)),
    ("subscribe", ((TOPIC,),)),
    ("subscribe", ([],)),
    ("subscribe", (["^("],)),
    ("subscribe", ([TOPIC], 1)),
    ("poll", ("x",)),
    ("poll", (None,)),
    ("poll", (0, 1)),
    ("consume", ("x",)),
    ("consume", (None, 0)),
    ("consume", (1.5, 0)),
    ("consume", (-1, 0)),
    ("consume", (1_000_001, 0)),
    ("consume", (1, "x")),
    ("consume", (1, None)),
    ("consume", (0, 0)),
    ("commit", (1,)),
    ("commit", (None, 1)),
    ("commit", (None, [1])),
    ("commit", (None, (HERE,))),
    ("commit", (RECORD, [HERE])),
    ("commit", ("message", "offsets")),
    ("commit", (FAILED,)),
    ("commit", (None, [], True)),
    ("store_offsets", ()),
    ("store_offsets", (1,)),
    ("store_offsets", (None, 1)),
    ("store_offsets", (None, [1])),
    ("store_offsets", (RECORD, [HERE])),
    ("store_offsets", (FAILED,)),
    ("store_offsets", (None, [ELSEWHERE])),
    ("store_offsets", (None, [])),
    ("committed", ()),
    ("committed", (None, 0.01)),
    ("committed", ([1], 0.01)),
    ("committed", ([HERE], "x")),
    ("committed", ([HERE], None)),
    ("committed", ([HERE], 0.01)),
    ("position", (None,)),
    ("position", (HERE,)),
    ("position", ([1],)),
    ("position", ([ELSEWHERE],)),
    ("pause", (None,)),
    ("pause", ([1],)),
    ("pause", ((HERE,),)),
    ("pause", ([ELSEWHERE],)),
    ("resume", (None,)),
    ("resume", ([1],)),
    ("resume", ([ELSEWHERE],)),
    ("seek", ()),
    ("seek", (None,)),
    ("seek", ([HERE],)),
    ("seek", (ELSEWHERE,)),
    ("get_watermark_offsets", (None,)),
    ("get_watermark_offsets", (TOPIC, 0.01)),
    ("get_watermark_offsets", (HERE, "x")),
    ("get_watermark_offsets", (ELSEWHERE, 0.01, True)),
    ("offsets_for_times", (None,)),
    ("offsets_for_times", ([1], 0.01)),
    ("offsets_for_times", ([], 0.01)),
    ("list_topics", (1,)),
    ("list_topics", (TOPIC, "x")),
    ("list_topics", (None, 0.01)),
    ("cluster_id", ("x",)),
    ("cluster_id", (0.01,)),
    ("memberid", ()),
    ("memberid", (1,)),
    ("consumer_group_metadata", ()),
    ("consumer_group_metadata", (1,)),
    ("set_sasl_credentials", ()),
    ("set_sasl_credentials", ("somebody",)),
    ("set_sasl_credentials", (None, "secret")),
    ("set_sasl_credentials", ("somebody", "secret")),
    ("close", (1,)),
]


@pytest.mark.parametrize(("method", "arguments"), MISTAKES)
def test_the_same_mistake_is_the_same_error(method: str, arguments: tuple[object, ...]) -> None:
    library, ours = both()
    for consumer in (library, ours):
        consumer.assign([HERE])
    try:
        expected = raised(lambda: getattr(library, method)(*arguments))
        assert is_caught_as(expected, raised(lambda: getattr(ours, method)(*arguments)))
    finally:
        library.close()
        ours.close()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_nothing_to_commit_is_the_same_error(*, asynchronous: bool) -> None:
    library, ours = both()
    expected = raised(lambda: library.commit(asynchronous=asynchronous))
    assert is_caught_as(expected, raised(lambda: ours.commit(asynchronous=asynchronous)))
    assert (expected is None) == asynchronous


@pytest.mark.parametrize("method", METHODS)
def test_a_closed_consumer_raises_the_same(method: str) -> None:
    library, ours = both()
    library.close()
    ours.close()
    arguments = [EXAMPLES[name] for name, _ in signature(method)]
    expected = raised(lambda: getattr(library, method)(*arguments))
    assert isinstance(expected, RuntimeError) or method == "close"
    assert is_caught_as(expected, raised(lambda: getattr(ours, method)(*arguments)))


@pytest.mark.parametrize(
    "config",
    [
        {"group.id": None},
        {"no.such.setting": 1},
        {"enable.auto.commit": "perhaps"},
        {"isolation.level": "x"},
        {"auto.offset.reset": "x"},
    ],
)
def test_the_same_setting_is_refused_with_the_same_error(config: dict[str, object]) -> None:
    settings = {"group.id": "g", **config}
    settings = {name: value for name, value in settings.items() if value is not None}
    theirs = raised(lambda: Consumer({"bootstrap.servers": NOWHERE, **settings}))
    service = FakeService({})
    ours = raised(lambda: FailoverConsumer(settings, clusters={"a": NOWHERE}, region="a", services=service))
    assert theirs is not None
    assert is_caught_as(theirs, ours)


@pytest.mark.parametrize(
    ("clusters", "word"),
    [
        (NOWHERE, "clusters is a mapping"),
        ({"a": [NOWHERE]}, r"clusters\['a'\] is 'host:port' or a mapping"),
        ({"a": {}}, "names no bootstrap.servers"),
    ],
)
def test_clusters_that_are_none_are_refused_with_the_reason(clusters: Any, word: str) -> None:
    with pytest.raises(ConsumerConfigError, match=word):
        FailoverConsumer({"group.id": "g"}, clusters=clusters, region="a", services=FakeService({}))


def test_a_time_that_is_no_number_is_refused_by_its_name() -> None:
    timeout: Any = "5000"
    with pytest.raises(
        ConsumerConfigError, match="service_timeout_ms must be above 0 milliseconds, not '5000'"
    ):
        FailoverConsumer(
            {"group.id": "g"},
            clusters={"a": NOWHERE},
            region="a",
            services=FakeService({}),
            service_timeout_ms=timeout,
        )


def test_a_callback_for_events_that_can_not_be_called_is_refused_at_once() -> None:
    on_event: Any = 3
    with pytest.raises(TypeError, match="on_event expects a callable, not int"):
        FailoverConsumer(
            {"group.id": "g"},
            clusters={"a": NOWHERE},
            region="a",
            services=FakeService({}),
            on_event=on_event,
        )


def test_offsets_are_stored_by_hand_only_where_that_is_set() -> None:
    library, ours = both(**{"enable.auto.offset.store": True})
    for consumer in (library, ours):
        consumer.assign([HERE])
        with pytest.raises(KafkaException) as caught:
            consumer.store_offsets(offsets=[HERE])
        assert caught.value.args[0].code() == KafkaError._INVALID_ARG
        consumer.close()


def test_a_refused_subscription_leaves_the_one_before() -> None:
    _, ours = both()
    ours.subscribe([TOPIC])
    with pytest.raises(KafkaException):
        ours.subscribe(["^("])
    subscription = ours._engine._subscription
    assert subscription is not None
    assert subscription.topics == (TOPIC,)
    ours.close()


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (ConsumerConfigError, KafkaError._INVALID_ARG),
        (NoStartOffsetError, KafkaError._AUTO_OFFSET_RESET),
        (StaleMessageError, KafkaError.ILLEGAL_GENERATION),
        (GroupMovingError, KafkaError.REBALANCE_IN_PROGRESS),
    ],
)
def test_own_errors_are_caught_as_the_librarys(kind: type[KafkaException], code: int) -> None:
    error = kind("what to do")
    assert isinstance(error, KafkaException)
    assert error.args[0].code() == code
    assert str(error) == "what to do"
    assert issubclass(ConsumerClosedError, RuntimeError)


def test_credentials_hold_for_their_region(world: World) -> None:
    world.log("a").extend(A[:2])
    world.log("b").extend(A[:2])
    consumer = world.start("a")
    world.poll_records(2)
    consumer.set_sasl_credentials("somebody", "new")
    assert world.inner[0].credentials == ("somebody", "new")
    world.move("b")
    world.move("a")
    assert "sasl.password" not in world.inner[1].config
    assert world.inner[2].config["sasl.password"] == "new"
