"""`FailoverProducer` beside the installed `confluent_kafka.Producer`: the same methods, arguments and exceptions."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from parallax import FailoverProducer, ProducerClosedError, ProducerConfigError, TransactionsUnsupportedError
from tests.worlds.producer_fakes import TOPIC, ProducerWorld

METHODS = sorted(name for name in dir(Producer) if not name.startswith("_"))
NOWHERE = "127.0.0.1:1"
CONFIG: dict[str, Any] = {"log_level": 0, "queue.buffering.max.messages": 1_000}

Call = Callable[[Any], object]

MISTAKES: dict[str, Call] = {
    "no topic": lambda p: p.produce(),
    "topic None": lambda p: p.produce(None),
    "topic of bytes": lambda p: p.produce(b"t"),
    "value int": lambda p: p.produce("t", 1),
    "value list": lambda p: p.produce("t", []),
    "value not encodable": lambda p: p.produce("t", "\ud800"),
    "value too large": lambda p: p.produce("t", b"x" * 1_000_001),
    "key float": lambda p: p.produce("t", "v", 1.0),
    "partition text": lambda p: p.produce("t", "v", "k", "0"),
    "partition None": lambda p: p.produce("t", "v", "k", None),
    "partition float": lambda p: p.produce("t", "v", "k", 1.0),
    "partition too great": lambda p: p.produce("t", "v", "k", 2**31),
    "timestamp text": lambda p: p.produce("t", "v", timestamp="now"),
    "timestamp None": lambda p: p.produce("t", "v", timestamp=None),
    "timestamp too great": lambda p: p.produce("t", "v", timestamp=2**63),
    "headers text": lambda p: p.produce("t", "v", headers="ab"),
    "headers empty text": lambda p: p.produce("t", "v", headers=""),
    "headers 0": lambda p: p.produce("t", "v", headers=0),
    "headers in a tuple": lambda p: p.produce("t", "v", headers=(("a", b"b"),)),
    "headers of text": lambda p: p.produce("t", "v", headers=["ab"]),
    "headers of three": lambda p: p.produce("t", "v", headers=[("a", "b", "c")]),
    "headers of lists": lambda p: p.produce("t", "v", headers=[["a", "b"]]),
    "header value int": lambda p: p.produce("t", "v", headers={"a": 1}),
    "header value bytearray": lambda p: p.produce("t", "v", headers=[("a", bytearray(b"b"))]),
    "unknown argument": lambda p: p.produce("t", "v", retries=3),
    "batch without messages": lambda p: p.produce_batch("t"),
    "batch None": lambda p: p.produce_batch("t", None),
    "batch in a tuple": lambda p: p.produce_batch("t", ({"value": "v"},)),
    "batch of text": lambda p: p.produce_batch("t", [{"value": "v"}, "v"]),
    "batch value int": lambda p: p.produce_batch("t", [{"value": "v"}, {"value": 1}]),
    "batch key int": lambda p: p.produce_batch("t", [{"key": 1}]),
    "batch partition text": lambda p: p.produce_batch("t", [{"partition": "0"}]),
    "batch all partitions text": lambda p: p.produce_batch("t", [{}], "0"),
    "poll text": lambda p: p.poll("1"),
    "poll None": lambda p: p.poll(None),
    "flush text": lambda p: p.flush("1"),
    "flush None": lambda p: p.flush(None),
    "purge unknown": lambda p: p.purge(everything=True),
    "list_topics int": lambda p: p.list_topics(3, 0.1),
    "list_topics within text": lambda p: p.list_topics("t", "1"),
    "list_topics unreachable": lambda p: p.list_topics("t", 0.1),
    "cluster_id within text": lambda p: p.cluster_id("1"),
    "cluster_id unreachable": lambda p: p.cluster_id(0.1),
    "credentials None": lambda p: p.set_sasl_credentials(None, None),
    "credentials without password": lambda p: p.set_sasl_credentials("u"),
    "transactions": lambda p: p.init_transactions(0.1),
    "begin": lambda p: p.begin_transaction(),
    "begin within": lambda p: p.begin_transaction(1),
    "commit": lambda p: p.commit_transaction(0.1),
    "abort": lambda p: p.abort_transaction(0.1),
    "offsets without group": lambda p: p.send_offsets_to_transaction(),
}
"""What confluent-kafka refuses. Not a non-callable callback: there it is a SystemError of a later poll."""

AFTER_CLOSE: dict[str, Call] = {
    "produce": lambda p: p.produce("t", "v"),
    "produce_batch": lambda p: p.produce_batch("t", [{"value": "v"}]),
    "poll": lambda p: p.poll(0),
    "flush": lambda p: p.flush(),
    "purge": lambda p: p.purge(),
    "list_topics": lambda p: p.list_topics(timeout=0.1),
    "cluster_id": lambda p: p.cluster_id(0.1),
    "set_sasl_credentials": lambda p: p.set_sasl_credentials("u", "p"),
    "init_transactions": lambda p: p.init_transactions(),
    "begin_transaction": lambda p: p.begin_transaction(),
    "commit_transaction": lambda p: p.commit_transaction(),
    "abort_transaction": lambda p: p.abort_transaction(),
    "send_offsets_to_transaction": lambda p: p.send_offsets_to_transaction([], None),
    "close": lambda p: p.close(),
}

CONFIGS: dict[str, Any] = {
    "no mapping": 5,
    "unknown": {"nothing": 1},
    "acks": {"acks": "x"},
    "linger": {"linger.ms": "x"},
    "queue": {"queue.buffering.max.messages": "x"},
    "message": {"message.max.bytes": "x"},
    "callback": {"on_delivery": 5},
    "error callback": {"error_cb": 5},
    "stats callback": {"stats_cb": 5},
    "throttle callback": {"throttle_cb": 5},
}


def ours(config: Any) -> FailoverProducer:
    return FailoverProducer(config, region="a", clusters={"a": NOWHERE}, close_timeout_ms=1)


def theirs(config: Any) -> Producer:
    return Producer({**config, "bootstrap.servers": NOWHERE} if isinstance(config, dict) else config)


@pytest.fixture(scope="module")
def producers() -> Iterator[tuple[Any, Any]]:
    mine, real = ours(CONFIG), theirs(CONFIG)
    yield real, mine
    real.purge()
    mine.close()


@pytest.fixture(scope="module")
def closed() -> tuple[Any, Any]:
    mine, real = ours(CONFIG), theirs(CONFIG)
    mine.close()
    real.close()
    return real, mine


def raised(call: Call, producer: Any) -> Exception | None:
    try:
        call(producer)
    except Exception as error:  # noqa: BLE001 - which one is the question
        return error
    return None


def assert_alike(real: Exception | None, mine: Exception | None) -> None:
    assert isinstance(mine, type(real)), (real, mine)
    if isinstance(real, KafkaException):
        assert isinstance(mine, KafkaException)
        assert mine.args[0].code() == real.args[0].code()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_met_alike(producers: tuple[Any, Any], mistake: str) -> None:
    real, mine = (raised(MISTAKES[mistake], producer) for producer in producers)
    assert real is not None
    assert_alike(real, mine)


@pytest.mark.parametrize("method", AFTER_CLOSE)
def test_after_close_it_is_met_alike(closed: tuple[Any, Any], method: str) -> None:
    real, mine = (raised(AFTER_CLOSE[method], producer) for producer in closed)
    assert (real is None) == (method == "close")
    assert_alike(real, mine)
    assert mine is None or isinstance(mine, ProducerClosedError)


def test_every_method_is_looked_at_after_close() -> None:
    assert sorted(AFTER_CLOSE) == METHODS


@pytest.mark.parametrize("mistake", CONFIGS)
def test_a_wrong_configuration_is_met_alike(mistake: str) -> None:
    real, mine = raised(theirs, CONFIGS[mistake]), raised(ours, CONFIGS[mistake])
    assert real is not None
    assert_alike(real, mine)


def test_a_setting_that_fits_no_failover_producer_is_a_kafka_exception_too() -> None:
    with pytest.raises(KafkaException) as caught:
        ours({"transactional.id": "x"})
    assert isinstance(caught.value, TransactionsUnsupportedError)
    assert str(caught.value).startswith("transactional.id: a transaction can't span regions")
    with pytest.raises(KafkaException) as caught:
        ours({"acks": 1})
    assert isinstance(caught.value, ProducerConfigError)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert str(caught.value).startswith("acks=1: ")


def test_a_callback_that_cannot_be_called_is_refused_at_once(producers: tuple[Any, Any]) -> None:
    for call in (
        lambda p: p.produce("t", "v", on_delivery=3),
        lambda p: p.produce("t", "v", callback=3),
        lambda p: p.produce_batch("t", [{"value": "v", "callback": 3}]),
    ):
        assert isinstance(raised(call, producers[1]), TypeError)


# --- methods and arguments --------------------------------------------------------------------------------


def stub() -> dict[str, inspect.Signature]:
    """Signatures of `Producer` by the library's type stub: those of C functions can't be inspected."""
    tree = ast.parse((Path(confluent_kafka.__file__).parent / "cimpl.pyi").read_text(encoding="utf-8"))
    (producer,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Producer")
    found = {}
    for node in producer.body:
        if isinstance(node, ast.FunctionDef) and node.name in METHODS:
            for argument in node.args.args:
                argument.annotation = None
            node.returns = None
            space: dict[str, Any] = {}
            exec(ast.unparse(node), space)  # noqa: S102 - a signature without annotations
            found[node.name] = inspect.signature(space[node.name])
    return found


def plain(signature: inspect.Signature) -> list[tuple[str, Any]]:
    return [(item.name, item.default) for item in signature.parameters.values()]


@pytest.mark.parametrize("name", [*METHODS, "__len__", "__bool__", "__enter__", "__exit__"])
def test_every_method_is_there(name: str) -> None:
    assert callable(vars(FailoverProducer)[name])


@pytest.mark.parametrize("name", METHODS)
def test_it_takes_the_same_arguments(name: str) -> None:
    mine = inspect.signature(getattr(FailoverProducer, name))
    assert plain(mine) == plain(stub()[name])
    told = re.match(r"\.\. py:function::? \w+\((.*)\)\n", getattr(Producer, name).__doc__ or "")
    if told is not None:  # one method has no docstring of that form
        names = {part.partition("=")[0].strip("[] ") for part in told[1].split(",")} - {""}
        assert names <= set(mine.parameters)


# --- what they do -----------------------------------------------------------------------------------------


def test_a_batch_is_taken_record_by_record() -> None:
    world = ProducerWorld(config={"message.max.bytes": 100, "queue.buffering.max.messages": 3})
    told: list[tuple[str, bytes | None, Any]] = []

    def hears(name: str) -> Callable[..., None]:
        return lambda _, message, report: told.append((name, message.value(), report.region))

    producer = facade(world)
    messages: list[dict[str, Any]] = [
        {"value": "1", "key": "k", "partition": 2, "timestamp": 7, "headers": {"h": b"x"}},
        {"value": b"x" * 101},
        {"value": "2", "callback": hears("own")},
        {"value": "3", "partition": None, "callback": None},
        {"value": "4"},
    ]
    taken = producer.produce_batch(TOPIC, messages, 1, hears("callback"), hears("on_delivery"))
    assert taken == 3
    errors = [message.get("_error") for message in messages]
    assert [None if error is None else error.code() for error in errors] == [
        None,
        KafkaError.MSG_SIZE_TOO_LARGE,
        None,
        None,
        KafkaError._QUEUE_FULL,
    ]
    world.pilot.round()
    world.delivery.hand_over(world.now_s)
    queue = world.clusters["a"].inners[-1].queue
    assert [item[2:5] for item in queue] == [(b"1", b"k", 2), (b"2", None, 1), (b"3", None, 1)]
    assert queue[0][6:] == (7, [("h", b"x")])
    world.settle()
    assert told == [("callback", b"1", "a"), ("own", b"2", "a"), ("callback", b"3", "a")]


def test_nothing_of_a_batch_with_a_mistake_is_taken() -> None:
    world = ProducerWorld()
    with pytest.raises(TypeError) as caught:
        facade(world).produce_batch(TOPIC, [{"value": "1"}, {"value": 2}])
    assert caught.value.__notes__ == ["in the message at index 1"]
    assert len(world.delivery.ledger) == 0


def test_the_cluster_is_that_of_the_present_region() -> None:
    world = ProducerWorld()
    world.settle()
    assert facade(world).cluster_id(1.0) == "regional-a"
    world.clusters["a"].up = False
    world.produce("x")
    while world.delivery.site.region == "a":
        assert world.now_s < 200
        world.step()
    assert facade(world).cluster_id(1.0) == "regional-b"
    world.settle()


def facade(world: ProducerWorld) -> FailoverProducer:
    """The producer of a world, whose thread is played by the test."""
    producer = FailoverProducer.__new__(FailoverProducer)
    producer._delivery, producer._engine, producer._pilot = world.delivery, world.engine, world.pilot
    return producer
