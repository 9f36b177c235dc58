"""A configuration file with a mistake says which key, on which line, and what would be right."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from parallax.config.config import load, parse
from parallax.domain.ids import ClusterName, RegionName, Route, TopicName
from parallax.errors import ConfigError, InvalidNameError, UnknownRegionError, UnknownRouteError

GOOD = """\
regions:
  a:
    regional: {bootstrap_servers: "127.0.0.1:1"}
    aggregate: {bootstrap_servers: "127.0.0.1:2"}
  b:
    regional: {bootstrap_servers: "127.0.0.1:3"}
    aggregate: {bootstrap_servers: "127.0.0.1:4"}
  edge:
    regional: {bootstrap_servers: "127.0.0.1:5"}
cassandra:
  contact_points: ["127.0.0.1:9042"]
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "parallax.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_routes_are_derived_from_the_clusters_that_exist(tmp_path: Path) -> None:
    config = load(written(tmp_path, GOOD), {})
    routes = {str(route) for route in config.all_routes()}
    assert routes == {"a->a", "b->a", "edge->a", "a->b", "b->b", "edge->b"}
    assert config.routes_into(RegionName("b"))[0] == Route(RegionName("a"), RegionName("b"))


def test_no_route_leads_into_a_region_without_an_aggregate_cluster(tmp_path: Path) -> None:
    config = load(written(tmp_path, GOOD), {})
    with pytest.raises(UnknownRouteError, match="no route leads to region 'edge'"):
        config.routes_into(RegionName("edge"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '    aggregate: {bootstrap_servers: "127.0.0.1:4"}',
            "    agregate: {bootstrap_servers: x}",
            ":7: unknown key 'regions.b.agregate'; did you mean 'aggregate'?",
        ),
        (
            "contact_points",
            "contact_point",
            "unknown key 'cassandra.contact_point'; did you mean 'contact_points'?",
        ),
        (
            "cassandra:",
            "index: {interval_ms: fast}\ncassandra:",
            ":10: index.interval_ms: Input should be a valid integer",
        ),
        ("cassandra:", "routes: [a->edge]\ncassandra:", "region 'edge' has no aggregate cluster"),
        ("cassandra:", "routes: [a->b, a->b]\ncassandra:", "route 'a->b' stands there twice: one entry may"),
        (
            "cassandra:",
            "routes:\n- a->b\n- {route: b->b, fron: regional}\ncassandra:",
            ":12: unknown key 'routes.1.fron'; did you mean 'from'?",
        ),
        ("cassandra:", "routes: [{route: a->b, from: hub}]\ncassandra:", "routes.0.from: Input should be"),
        (
            "cassandra:",
            "routes: [{route: edge->b, from: aggregate}]\ncassandra:",
            "route 'edge->b': region 'edge' has no aggregate cluster",
        ),
        (
            "cassandra:",
            "routes: [{route: a->a, from: aggregate}]\ncassandra:",
            "route 'a->a': it leads from a cluster to itself",
        ),
        (
            "cassandra:",
            "routes: [{route: a->b, copies: [c]}]\ncassandra:",
            "route 'a->b': copies: unknown region 'c'; configured: a, b, edge",
        ),
        ("cassandra:", "routes: [{route: a->b, copies: []}]\ncassandra:", "copies: an empty list copies"),
        (
            "cassandra:",
            "routes: [{route: a->b, naming: copy}]\ncassandra:",
            "routes.0.naming: naming 'copy': it takes ${topic} once",
        ),
        (
            "cassandra:",
            'routes: [{route: a->b, naming: "x/${topic}"}]\ncassandra:',
            "names of topics have ASCII letters, digits, '.', '_' and '-' alone",
        ),
        (
            "cassandra:",
            "routes: [{route: a->b, topics: {include: ['*']}}]\ncassandra:",
            "routes.0.topics.include.0: '*' is not a regular expression",
        ),
        (
            "cassandra:",
            "topics: {residency: [{match: eu.*, regions: [eu]}]}\ncassandra:",
            "residency of 'eu.*': unknown region 'eu'; configured: a, b, edge",
        ),
        (
            "    regional:",
            '    cluster: {bootstrap_servers: "127.0.0.1:9"}\n    regional:',
            "'cluster' is one Kafka in both roles: leave 'regional' and 'aggregate' out",
        ),
        ("cassandra:", "routes: [a-b]\ncassandra:", "'a-b' is not of the form 'source->target'"),
        ("cassandra:", "routes:\n- a->edge\ncassandra:", ":10: routes: route 'a->edge'"),
        ("regions:", "regions: [", "not valid YAML"),
        (
            "cassandra:",
            "sync: {no_commit: lastest}\ncassandra:",
            ":10: sync.no_commit: Input should be 'earliest' or 'latest'",
        ),
        (
            "cassandra:",
            "sync: {on_rewind: reject}\ncassandra:",
            ":10: sync.on_rewind: Input should be 'propagate' or 'refuse'",
        ),
        (
            '"127.0.0.1:1"',
            '"127.0.0.1:1", security: {protocol: SASL}',
            ":3: regions.a.regional.security.protocol: Input should be 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT' or 'SASL_SSL'",
        ),
        (
            '"127.0.0.1:1"',
            '"127.0.0.1:1", security: {sasl_mechanism: SCRAM}',
            ":3: regions.a.regional.security.sasl_mechanism: Input should be 'PLAIN', 'SCRAM-SHA-256'",
        ),
        (
            "cassandra:",
            'topics:\n  include:\n  - trips\n  - "pay(ments"\ncassandra:',
            ":13: topics.include.1: 'pay(ments' is not a regular expression: missing ), unterminated subpattern at",
        ),
        (
            "cassandra:",
            'groups: {exclude: ["*"]}\ncassandra:',
            ":10: groups.exclude.0: '*' is not a regular expression: nothing to repeat at position 0",
        ),
        (
            '"127.0.0.1:1"',
            "kafka.a.example",
            ":3: regions.a.regional.bootstrap_servers: 'kafka.a.example' is not of the",
        ),
        (
            '"127.0.0.1:1"',
            '"k1:9092, k2"',
            ":3: regions.a.regional.bootstrap_servers: ' k2' is not of the form host:port",
        ),
        ('"127.0.0.1:1"', '"k1:70000"', "'k1:70000' is not of the form host:port"),
        ('"127.0.0.1:1"', '"SSL://k1:9092"', "'SSL://k1:9092' is not of the form host:port"),
        (
            "  edge:",
            '    offsetsvc: {grpc: "offsets"}\n  edge:',
            ":8: regions.b.offsetsvc.grpc: 'offsets' is not of",
        ),
        (
            "cassandra:",
            "replicator: {status_address: '7610'}\ncassandra:",
            "replicator.status_address: '7610' is not",
        ),
        (
            "cassandra:",
            "replicator: {commit_min_interval_ms: 200}\ncassandra:",
            ":10: replicator.commit_max_interval_ms: 100 is below replicator.commit_min_interval_ms (200)",
        ),
        (
            "cassandra:",
            "replicator: {pace: throughput, commit_max_interval_ms: 10}\ncassandra:",
            ":10: replicator.commit_max_interval_ms: 10 is below what replicator.pace throughput rests (20)",
        ),
        ("cassandra:", "replicator: {pace: fast}\ncassandra:", ":10: replicator.pace: "),
        ("  edge:", "  a:", ":8: key 'a' stands there twice, first in line 2"),
        (
            "  contact_points:",
            "  keyspace: x\n  keyspace: y\n  contact_points:",
            ":12: key 'keyspace' stands there twice",
        ),
        (
            "  contact_points:",
            "  password: 12345\n  contact_points:",
            ":11: cassandra.password: has to be text, and YAML takes it for something else: put it between quotation marks",
        ),
        (
            "  contact_points:",
            "  username: yes\n  contact_points:",
            ":11: cassandra.username: has to be text, and",
        ),
        (
            "  edge:",
            "  edge->x:",
            ":8: regions.edge->x: 'edge->x' is no name for a region: it takes 1 to 64 ",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["z", "eu-west", "eu_west.2", "EU", "1a", "a" * 64])
def test_regions_have_names_that_topics_and_clusters_can_bear(tmp_path: Path, name: str) -> None:
    assert name in load(written(tmp_path, GOOD.replace("edge:", f'"{name}":')), {}).regions


@pytest.mark.parametrize("name", ["", " ", "-a", ".a", "_a", "a b", "a/b", "a->b", "ü", "a" * 65, "a\\n"])
def test_other_names_of_regions_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is no name for a region"):
        load(written(tmp_path, GOOD.replace("edge:", f'"{name}":')), {})


@pytest.mark.parametrize(
    "address", ["k1:9092", "k1:9092,k2:9092", "k1:9092, k2:9092", "[::1]:9092", "10.0.0.1:1"]
)
def test_addresses_have_a_host_and_a_port(tmp_path: Path, address: str) -> None:
    config = load(written(tmp_path, GOOD.replace('"127.0.0.1:1"', f'"{address}"')), {})
    assert config.cluster(ClusterName("regional-a")).bootstrap_servers == address


def test_a_secret_that_is_no_text_does_not_show(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(
            written(tmp_path, GOOD.replace("  contact_points", "  password: 987654321\n  contact_points")), {}
        )
    assert "987654321" not in str(caught.value)


def test_keys_that_are_taken_over_stand_there_once(tmp_path: Path) -> None:
    merged = GOOD.replace('{bootstrap_servers: "127.0.0.1:1"}', '&k {bootstrap_servers: "127.0.0.1:1"}', 1)
    merged = merged.replace(
        '{bootstrap_servers: "127.0.0.1:5"}', "{<<: *k, bootstrap_servers: '127.0.0.1:6'}"
    )
    assert (
        load(written(tmp_path, merged), {}).cluster(ClusterName("regional-edge")).bootstrap_servers
        == "127.0.0.1:6"
    )


@pytest.mark.parametrize("text", ["a: &x {b: *x}\n", "a: &x\n- [*x]\n", "a: &x {<<: *x}\n"])
def test_what_holds_itself_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"parallax\.yaml"):
        load(written(tmp_path, GOOD + text), {})


def test_a_section_may_stand_in_several_places(tmp_path: Path) -> None:
    shared = GOOD.replace('{bootstrap_servers: "127.0.0.1:1"}', '&k {bootstrap_servers: "127.0.0.1:1"}', 1)
    load(written(tmp_path, shared.replace('{bootstrap_servers: "127.0.0.1:5"}', "*k")), {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load(tmp_path / "none.yaml", {})


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected keys"):
        load(written(tmp_path, "- a\n- b\n"), {})


def test_the_environment_overrides_single_keys(tmp_path: Path) -> None:
    environ = {"PARALLAX__SERVICE__STALE_AFTER_MS": "777", "HOME": "x"}
    assert load(written(tmp_path, GOOD), environ).service.stale_after_ms == 777


def test_a_typo_in_the_environment_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown key 'service\.stale_after'; did you mean 'stale_after_ms'"
    ):
        load(written(tmp_path, GOOD), {"PARALLAX__SERVICE__STALE_AFTER": "777"})


def test_clusters_are_found_by_name(tmp_path: Path) -> None:
    config = load(written(tmp_path, GOOD), {})
    assert config.cluster(ClusterName("aggregate-b")).bootstrap_servers == "127.0.0.1:4"
    with pytest.raises(UnknownRegionError, match="unknown region 'c'; configured: a, b, edge"):
        config.cluster(ClusterName("aggregate-c"))
    with pytest.raises(UnknownRegionError, match="has no cluster 'aggregate-edge'"):
        config.cluster(ClusterName("aggregate-edge"))
    with pytest.raises(InvalidNameError, match="'agg-b' is not named"):
        config.cluster(ClusterName("agg-b"))


def test_passwords_do_not_show(tmp_path: Path) -> None:
    text = GOOD.replace('"127.0.0.1:1"', '"127.0.0.1:1", security: {sasl_password: hunter2}')
    config = load(written(tmp_path, text), {})
    assert "hunter2" not in repr(config)
    security = config.cluster(ClusterName("regional-a")).security
    assert security.sasl_password is not None
    assert security.sasl_password.get_secret_value() == "hunter2"


ONE_KAFKA = """
regions:
  a:
    cluster: {bootstrap_servers: "127.0.0.1:1", security: {sasl_password: secret}}
  b:
    cluster: {bootstrap_servers: "127.0.0.1:2"}
cassandra: {contact_points: ["127.0.0.1:9042"]}
"""


def test_one_kafka_has_both_roles_and_is_not_copied_to_itself(tmp_path: Path) -> None:
    config = load(written(tmp_path, ONE_KAFKA), {})
    assert {str(route) for route in config.all_routes()} == {"a->b", "b->a"}
    a, b = (config.cluster(ClusterName(name)) for name in ("regional-a", "aggregate-a"))
    assert a is b
    assert {str(edge.source) for edge in config.edges()} == {"regional-a", "regional-b"}
    assert {str(edge.target) for edge in config.edges()} == {"regional-a", "regional-b"}


def test_its_secrets_are_read_in_other_processes_too(tmp_path: Path) -> None:
    config = pickle.loads(pickle.dumps(load(written(tmp_path, ONE_KAFKA), {})))  # noqa: S301 - our own
    for name in ("regional-a", "aggregate-a"):
        password = config.cluster(ClusterName(name)).security.sasl_password
        assert password is not None
        assert password.get_secret_value() == "secret"


def test_a_route_narrows_the_topics_that_all_share(tmp_path: Path) -> None:
    text = """
topics: {include: ["pay.*", "trips", "x.internal"], exclude: ["pay.x"], residency: [{match: "pay.eu", regions: [a]}]}
routes:
- route: a->b
  topics: {exclude: ["trips"]}
- a->a
"""
    config = load(written(tmp_path, GOOD + text), {})
    names = [
        TopicName(x)
        for x in ("pay.y", "pay.x", "trips", "pay.eu", "pay.internal", "x.internal", "parallax.runs.a")
    ]
    chosen = {
        str(route): [name for name in names if config.topic_choice(route).chosen(name)]
        for route in config.all_routes()
    }
    assert chosen == {
        "a->b": ["pay.y", "x.internal"],
        "a->a": ["pay.y", "trips", "pay.eu", "x.internal"],
    }
    assert [name for name in names if config.topics.chosen(name)] == chosen["a->a"]


def test_built_in_excludes_go_but_for_our_own_topics_and_kafkas(tmp_path: Path) -> None:
    config = load(written(tmp_path, GOOD + "topics: {builtin_excludes: false}\n"), {})
    names = ["heartbeats", "_schemas", "__consumer_offsets", "parallax.runs.a"]
    assert [name for name in names if config.topics.chosen(name)] == ["heartbeats", "_schemas"]


def test_a_topic_counts_by_the_name_that_a_route_gives_its_copy() -> None:
    config = parse(
        {
            "regions": {
                "a": {"regional": {"bootstrap_servers": "x:1"}},
                "b": {"aggregate": {"bootstrap_servers": "y:1"}},
            },
            "cassandra": {"contact_points": ["z"]},
            "routes": [{"route": "a->b", "naming": "${source}.${topic}"}],
            "topics": {"include": ["trips"]},
        }
    )
    names = ["trips", "a.trips", "b.trips", "a.orders"]
    assert [config.chosen_anywhere(TopicName(name)) for name in names] == [True, True, False, False]
