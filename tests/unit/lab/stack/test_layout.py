"""What a stack consists of, what its parts are called, and where they listen."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.stack.errors import SpecError, StackStateError, UnknownProcessError
from lab.stack.layout import StackLayout, port_names
from lab.stack.ports import HOST, PortReservations, is_free
from lab.stack.services import build_config, write_config
from lab.stack.settings import broker_settings
from lab.stack.spec import Mode, StackSpec
from parallax.config.config import load
from parallax.errors import ConfigError


def layout_of(spec: StackSpec, directory: Path) -> StackLayout:
    return StackLayout(spec, directory, {name: 20_000 + i for i, name in enumerate(port_names(spec))})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"regions": ()}, "regions must be one or more"),
        ({"regions": ("a", "a")}, "regions must be one or more"),
        ({"regions": ("a", "B-1")}, "'B-1' must be a lower-case letter"),
        ({"brokers": {"aggregate-c": 3}}, "no cluster 'aggregate-c'; there are regional-a"),
        ({"brokers": {"aggregate-a": 0}}, "can have 1 to 5 brokers, not 0"),
        ({"store": False}, "the services need it"),
        ({"mode": "three-way"}, "no 'three-way'; there are aggregation, two-way, active-standby"),
        ({"mode": "two-way", "secure": True}, "rights for aggregation alone, not for two-way"),
        ({"mode": "two-way", "brokers": {"regional-a": 3}}, "no cluster 'regional-a'; there are aggregate-a"),
        ({"tls": True, "secure": True}, "tls: the brokers of a secure stack speak nothing else"),
    ],
)
def test_a_contradictory_spec_is_refused(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        StackSpec(**arguments)  # type: ignore[arg-type] # wrong on purpose


def test_a_spec_survives_json() -> None:
    spec = StackSpec(
        regions=("a", "b", "c"),
        mode="two-way",
        brokers={"aggregate-b": 3},
        services=False,
        cassandra_per_region=True,
        jvm="throughput",
        heap_touched=True,
        config={"index": {"interval_ms": 100}},
    )
    assert StackSpec.from_json(spec.to_json()) == spec


def test_names_mean_processes_clusters_and_regions(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(brokers={"aggregate-a": 3}), tmp_path)
    assert layout.resolve("spark") == ("spark",)
    assert layout.resolve("aggregate-b") == ("aggregate-b",)
    assert layout.resolve("aggregate-a") == ("aggregate-a-1", "aggregate-a-2", "aggregate-a-3")
    assert layout.resolve("aggregate-a-2") == ("aggregate-a-2",)
    assert layout.resolve("region-a") == (
        "regional-a",
        "aggregate-a-1",
        "aggregate-a-2",
        "aggregate-a-3",
        "offsetsvc-a",
    )
    with pytest.raises(UnknownProcessError, match="Did you mean 'offsetsvc-b'"):
        layout.resolve("offsetsvcb")


def test_a_region_with_its_own_cassandra_loses_it_too(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(cassandra_per_region=True, services=False), tmp_path)
    assert layout.resolve("region-b") == ("regional-b", "aggregate-b", "cassandra-b")
    assert layout.cassandra_address("a") != layout.cassandra_address("b")


def test_brokers_can_be_had_without_a_store(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(regions=("a",), services=False, store=False), tmp_path)
    assert layout.infrastructure_names == ("regional-a", "aggregate-a")
    assert layout.resolve("region-a") == ("regional-a", "aggregate-a")


def test_the_status_has_each_region_with_all_addresses(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(brokers={"regional-b": 2}), tmp_path)
    status = layout.regions_status()
    assert list(status) == ["a", "b"]
    assert status["a"]["regional"] == f"{HOST}:{layout.ports['regional-a']}"
    assert status["a"]["rest"] == f"http://{HOST}:{layout.ports['offsetsvc-a/rest']}"
    assert status["a"]["cassandra"] == status["b"]["cassandra"]
    assert status["a"]["replicator"] == f"http://{HOST}:{layout.ports['spark/status']}"
    assert (
        status["b"]["regional"]
        == f"{HOST}:{layout.ports['regional-b-1']},{HOST}:{layout.ports['regional-b-2']}"
    )


def test_a_layout_is_read_back(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(), tmp_path)
    layout.save()
    assert StackLayout.load(tmp_path) == layout
    with pytest.raises(StackStateError, match="parallax stack up"):
        StackLayout.load(tmp_path / "elsewhere")


def test_the_written_config_loads(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(("a", "b", "c"), config={"index": {"interval_ms": 150}}), tmp_path)
    write_config(layout)
    config = load(layout.config_path, environ={})
    assert [str(route) for route in config.all_routes()] == [
        f"{source}->{target}" for target in "abc" for source in "abc"
    ]
    assert config.index.interval_ms == 150
    assert config.cassandra.contact_points == (layout.cassandra_address(),)
    service = config.regions["c"].offsetsvc
    assert service is not None
    assert service.grpc == layout.grpc_address("c")


def test_one_datacenter_per_region_is_replicated_over_all(tmp_path: Path) -> None:
    config = build_config(layout_of(StackSpec(cassandra_per_region=True), tmp_path))
    assert config["cassandra"]["replication"] == {"a": 1, "b": 1}
    assert len(config["cassandra"]["contact_points"]) == 2


def test_a_wrong_setting_of_the_spec_is_named(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(config={"index": {"intervall_ms": 150}}), tmp_path)
    with pytest.raises(ConfigError, match="did you mean 'interval_ms'"):
        write_config(layout)


def test_internal_topics_are_replicated_as_far_as_there_are_brokers() -> None:
    assert broker_settings("aggregate", 1)["transaction.state.log.replication.factor"] == "1"
    three = broker_settings("aggregate", 3)
    assert three["offsets.topic.replication.factor"] == three["default.replication.factor"] == "3"
    assert three["min.insync.replicas"] == "2"
    assert broker_settings("aggregate", 5)["offsets.topic.replication.factor"] == "3"


def test_two_stacks_get_different_ports_and_keep_them(tmp_path: Path) -> None:
    with PortReservations(tmp_path) as first, PortReservations(tmp_path) as second:
        ports = [first.get("x"), first.get("y"), second.get("x"), second.get("y")]
        assert len(set(ports)) == 4
        assert [first.get("x"), first.get("y")] == ports[:2]
        assert all(is_free(port) for port in ports)
    remembered = {"x": ports[0], "y": ports[1]}
    with PortReservations(tmp_path, remembered) as later:
        assert {name: later.get(name) for name in ("x", "y")} == remembered
        with PortReservations(tmp_path, remembered) as rival:
            assert rival.get("x") not in remembered.values()


def test_consoles_belong_to_their_regions(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(consoles=True), tmp_path)
    assert layout.service_names == ("offsetsvc-a", "offsetsvc-b", "spark", "console-a", "console-b")
    assert layout.resolve("region-b") == ("regional-b", "aggregate-b", "offsetsvc-b", "console-b")
    port = layout.ports["console-b/http"]
    assert layout.regions_status()["b"]["console"] == f"http://{HOST}:{port}"
    assert StackSpec.from_json(layout.spec.to_json()).consoles


def test_without_services_there_is_no_console(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(consoles=True, services=False), tmp_path)
    assert layout.service_names == ()
    assert not {"console", "replicator"} & set(layout.regions_status()["a"])


@pytest.mark.parametrize(
    ("mode", "sections", "routes", "producing"),
    [
        ("two-way", {"a": "cluster", "b": "cluster"}, {"a->b", "b->a"}, ("a", "b")),
        ("active-standby", {"a": "cluster", "b": "aggregate"}, {"a->b"}, ("a",)),
    ],
)
def test_a_stack_can_have_one_cluster_a_region(
    tmp_path: Path, mode: Mode, sections: dict[str, str], routes: set[str], producing: tuple[str, ...]
) -> None:
    layout = layout_of(StackSpec(mode=mode), tmp_path)
    assert layout.spec.producing == producing
    assert [cluster.name for cluster in layout.spec.clusters] == ["aggregate-a", "aggregate-b"]
    for region in producing:
        assert layout.bootstrap(f"regional-{region}") == layout.bootstrap(f"aggregate-{region}")
    assert layout.resolve("region-a") == ("aggregate-a", "offsetsvc-a")
    assert layout.resolve("regional-a") == ("aggregate-a",)
    write_config(layout)
    config = load(layout.config_path)
    assert {str(route) for route in config.all_routes()} == routes
    assert {route.target for route in config.all_routes()} == set(layout.spec.receiving)
    written = build_config(layout)["regions"]
    assert {region: next(iter(section)) for region, section in written.items()} == sections


def test_nobody_writes_to_a_standby(tmp_path: Path) -> None:
    layout = layout_of(StackSpec(mode="active-standby"), tmp_path)
    with pytest.raises(UnknownProcessError, match="regional-b"):
        layout.bootstrap("regional-b")
    assert set(layout.regions_status()["b"]) == {"aggregate", "grpc", "rest", "replicator", "cassandra"}
    assert list(layout.regions_status()["a"])[:2] == ["regional", "aggregate"]
