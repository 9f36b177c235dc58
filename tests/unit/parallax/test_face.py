"""``import parallax``: what an application may name, where it comes from, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

import parallax
from parallax import errors
from parallax.consumer import errors as consumer_errors
from parallax.producer import errors as producer_errors

ROOT = Path(__file__).parents[3]

SURFACE = {
    "parallax.client.client": {"OffsetClient", "at_cluster", "at_region"},
    "parallax.client.credentials": {"ServiceCredentials"},
    "parallax.consumer.aio": {"AIOFailoverConsumer"},
    "parallax.consumer.consumer": {"FailoverConsumer"},
    "parallax.consumer.errors": {
        "ConsumerClosedError",
        "ConsumerConfigError",
        "GroupMovingError",
        "NoStartOffsetError",
        "OffsetServiceAwayError",
        "StaleMessageError",
    },
    "parallax.consumer.events": {"EventKind", "FailoverEvent", "PartitionStart"},
    "parallax.errors": {
        name for name, item in vars(errors).items() if isinstance(item, type) and issubclass(item, Exception)
    },
    "parallax.producer.errors": {
        "PartitionCountError",
        "ProducerClosedError",
        "ProducerConfigError",
        "TopicRefusedError",
        "TransactionsUnsupportedError",
    },
    "parallax.producer.events": {"DownReason", "ProducerEvent", "ProducerEventKind"},
    "parallax.producer.ledger": {"ProducerCounts"},
    "parallax.producer.producer": {"FailoverProducer"},
    "parallax.producer.site": {"DeliveryReport"},
}
"""The public names by the module that defines them: what goes from here is missed by applications."""

HEAVY = ("confluent_kafka", "google.protobuf", "grpc", "structlog", "importlib.metadata")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=60
    )


def test_the_public_names_are_these() -> None:
    public = {name: module for module, names in SURFACE.items() for name in names}
    assert set(parallax.__all__) == {*public, "__version__"}
    assert dir(parallax) == parallax.__all__
    assert {name: getattr(parallax, name).__module__ for name in public} == public


@pytest.mark.parametrize("module", [consumer_errors, producer_errors])
def test_every_error_is_public(module: ModuleType) -> None:
    own = {
        name
        for name, item in vars(module).items()
        if isinstance(item, type)
        and issubclass(item, Exception)
        and item.__module__ == module.__name__
        and not name.startswith("_")
    }
    assert own == SURFACE[module.__name__]


def test_a_type_checker_sees_the_same_names() -> None:
    tree = ast.parse((ROOT / "parallax/__init__.py").read_text(encoding="utf-8"))
    imported = {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("parallax.")
        for alias in node.names
    }
    assert imported == {(module, name) for module, names in SURFACE.items() for name in names}


def test_what_has_no_such_name_says_so() -> None:
    with pytest.raises(AttributeError, match="'parallax' has no attribute 'Consumer'"):
        _ = getattr(parallax, "Consumer")  # noqa: B009 - unknown to the type checker


def test_importing_it_loads_no_library() -> None:
    loaded = python("-c", "import sys, parallax; print(*sys.modules)").stdout.split()
    assert "parallax.errors" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []
    assert {name for name in loaded if name.startswith("parallax.")} == {"parallax.errors", "parallax.moved"}


def test_importing_it_takes_less_than_50_ms() -> None:
    """Of processor time: the tests beside this one have their share of the rest."""
    timed = "import time; began = time.process_time(); import parallax; print(time.process_time() - began)"
    took_s = []
    for _ in range(10):
        took_s.append(float(python("-c", timed).stdout))
        if took_s[-1] < 0.050:
            return
    raise AssertionError(f"import parallax took {took_s} seconds")


def test_it_knows_its_version() -> None:
    version = metadata.version("parallax-kafka")
    assert parallax.__version__ == version
    assert python("-m", "parallax", "--version").stdout == f"parallax {version}\n"
