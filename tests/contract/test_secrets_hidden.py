"""A secret in every place that the configuration has for one, and nothing of it in anything that anybody can see."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel
from pyspark import cloudpickle

from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.adapters.spark.reporting import StatusTarget
from parallax.config.config import Config, load
from parallax.config.secret import Secret
from parallax.config.settings import MASK
from parallax.domain.ids import ClusterName
from parallax.errors import ParallaxError
from replicator.command import _application
from replicator.leases.query import AggregateHolder, routes_of
from syncjob.query import SyncHolder
from tests.worlds.processes import command_line, family
from tests.worlds.replication import free_port

MARKER = "hunter2"
PARALLAX = (sys.executable, "-m", "parallax")


def marked(number: int) -> str:
    return f"{MARKER}-{number}"


def values() -> dict[str, Any]:
    sasl = {
        "protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "u",
        "sasl_password": marked(1),
        "ssl_key_password": marked(2),
        "sasl_oauth": {"token_endpoint": "http://127.0.0.1:1/", "client_id": "c", "client_secret": marked(3)},
    }
    tokens = {**sasl, "sasl_mechanism": "OAUTHBEARER"}
    service = {"grpc": f"127.0.0.1:{free_port()}", "rest": f"127.0.0.1:{free_port()}"}
    return {
        "regions": {
            "a": {
                "regional": {"bootstrap_servers": "127.0.0.1:1", "security": tokens},
                "aggregate": {"bootstrap_servers": "127.0.0.1:1", "security": sasl},
                "offsetsvc": service,
            }
        },
        "cassandra": {
            "contact_points": ["127.0.0.1:1"],
            "username": "u",
            "password": marked(4),
            "tls": {"key_password": marked(5)},
            "request_timeout_ms": 500,
        },
        "replicator": {"spark_secret": marked(6), "spark_master": "spark://127.0.0.1:1"},
        "client": {"token": marked(7), "insecure": True},
        "service": {"cluster_timeout_ms": 500, "deadline_ms": 1_000},
        "console": {
            "auth": {
                "mode": "oidc",
                "oidc": {
                    "issuer": "http://127.0.0.1:1",
                    "client_id": "c",
                    "client_secret": marked(8),
                    "url": "http://127.0.0.1:1",
                },
            }
        },
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written = tmp_path / "parallax.yaml"
    written.write_text(yaml.safe_dump(values()), encoding="utf-8")
    return written


def secret_keys(model: Any, above: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kinds = [item for item in (field.annotation, *get_args(field.annotation)) if isinstance(item, type)]
        for kind in kinds:
            if issubclass(kind, Secret):
                yield above + name
            elif issubclass(kind, BaseModel):
                yield from secret_keys(kind, f"{above}{name}.")


def given(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from given(value, f"{above}{key}.")
        elif MARKER in str(value):
            yield above + key


def cluster_alike(keys: Iterator[str]) -> set[str]:
    """The keys of a cluster stand for those of every cluster."""
    return {re.sub(r"^regions\.(a\.)?(regional|aggregate|cluster)\.", "", key) for key in keys}


def test_every_secret_of_the_configuration_is_marked_here() -> None:
    assert len(cluster_alike(secret_keys(Config))) >= 7
    assert cluster_alike(secret_keys(Config)) == cluster_alike(given(values()))


@pytest.mark.parametrize(
    "arguments",
    [
        ["routes"],
        ["replicate", "--dry-run"],
        ["sync", "--once"],
        ["schema", "apply"],
        ["failover", "--region", "a", "--to", "a"],
        ["runlog", "check"],
        ["config", "view", "-o", "json"],
        ["config", "check"],
        ["doctor"],
        ["nonsense"],
    ],
)
def test_no_command_shows_one(path: Path, arguments: list[str]) -> None:
    ended = subprocess.run(
        [*PARALLAX, *arguments, "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode != 0 or arguments[0] in {"routes", "config"}
    assert MARKER not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_service_that_can_reach_nothing_shows_none(path: Path) -> None:
    rest = yaml.safe_load(path.read_text(encoding="utf-8"))["regions"]["a"]["offsetsvc"]["rest"]
    log = path.with_name("serve.log")
    with log.open("wb") as out:
        service = subprocess.Popen(
            [*PARALLAX, "serve", "--config", str(path), "--region", "a"], stdout=out, stderr=out
        )
    try:
        shown = [
            until_answered(f"http://{rest}{place}")
            for place in ("/livez", "/readyz", "/metrics", "/v1/routes", "/v1/config", "/openapi.json")
        ]
        shown += [command_line(process) for process in family(service.pid)]
    finally:
        service.terminate()
        service.wait(30)
    assert len(shown) >= 7
    assert MASK in "".join(shown)
    assert MARKER not in "".join(shown) + log.read_text(encoding="utf-8")


def until_answered(url: str) -> str:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own
                return str(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return str(error.read())
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer")


def test_what_crosses_to_executors_has_none(path: Path) -> None:
    config = load(path, {})
    status = StatusTarget("127.0.0.1", 1, "token")
    routes = routes_of(config, ["a"])  # type: ignore[list-item] # a region's name
    holders = [AggregateHolder(config, status, "a", dict.fromkeys(routes, 1)), SyncHolder(config, status)]
    for holder in holders:
        crossed = cloudpickle.dumps(holder)
        assert MARKER.encode() not in crossed
        there = pickle.loads(crossed)  # noqa: S301 - our own
        assert there.config.cassandra.secret() == marked(4)
        assert there == holder


def test_without_that_care_it_would(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Secret, "__reduce__", object.__reduce__)
    monkeypatch.setattr(Secret, "__reduce_ex__", object.__reduce_ex__)
    holder = SyncHolder(load(path, {}), StatusTarget("127.0.0.1", 1, "token"))
    assert MARKER.encode() in cloudpickle.dumps(holder)


def actions(config: Config) -> list[Callable[[], object]]:
    clusters = [config.cluster(ClusterName(name)) for name in ("regional-a", "aggregate-a")]
    return [
        *(KafkaCluster(ClusterName("x-a"), cluster, timeout_ms=300).topics for cluster in clusters),
        *(lambda cluster=cluster: client_settings(cluster, client_id="t") for cluster in clusters[:1]),
        lambda: open_store(config),
    ]


def open_store(config: Config) -> None:
    with closing(CassandraStores(config.cassandra, config.index)) as stores:
        stores.connect()


def test_no_object_or_error_shows_one(path: Path) -> None:
    config = load(path, {})
    application = _application(config, ["a"], with_sync=True)  # type: ignore[list-item] # as above
    shown = [
        repr(config),
        str(config),
        config.model_dump_json(),
        repr(application),
        repr(application.session_settings),
    ]
    shown += [repr(part) for part in (config.cassandra, config.replicator, *config.regions.values())]
    for act in actions(config):
        with pytest.raises(ParallaxError) as caught, suppress(SystemExit):
            act()
        shown.append("".join(traceback.format_exception(caught.value)))
    assert MARKER not in "\n".join(shown)
