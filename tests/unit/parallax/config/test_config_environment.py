"""An environment variable sets the key that it names, and a mistake in one names the variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from parallax.config.config import Config, load
from parallax.domain.ids import RegionName
from parallax.errors import ConfigError

GOOD = """\
regions:
  eu-west:
    regional: {bootstrap_servers: "127.0.0.1:1"}
    aggregate: {bootstrap_servers: "127.0.0.1:2"}
  US.East:
    regional: {bootstrap_servers: "127.0.0.1:3"}
cassandra:
  contact_points: ["127.0.0.1:9042"]
"""


def loaded(directory: Path, environ: dict[str, str], text: str = GOOD) -> Config:
    path = directory / "parallax.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, environ)


@pytest.mark.parametrize("password", ["@abc", "12345", "null", "a: b", "[", "'quoted'", " x ", "%", "yes"])
def test_text_is_taken_as_it_is(tmp_path: Path, password: str) -> None:
    config = loaded(
        tmp_path,
        {
            "PARALLAX__CASSANDRA__PASSWORD": password,
            "PARALLAX__CASSANDRA__KEYSPACE": password,
            "PARALLAX__CASSANDRA__USERNAME": password,
        },
    )
    assert config.cassandra.password is not None
    assert config.cassandra.password.get_secret_value() == password
    assert (config.cassandra.keyspace, config.cassandra.username) == (password, password)


def test_an_empty_variable_leaves_an_optional_key_without_a_value(tmp_path: Path) -> None:
    text = GOOD + "  username: someone\n"
    assert loaded(tmp_path, {"PARALLAX__CASSANDRA__USERNAME": ""}, text).cassandra.username is None


def test_other_values_are_yaml(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {
            "PARALLAX__CASSANDRA__CONTACT_POINTS": '["x:1", "y:2"]',
            "PARALLAX__CASSANDRA__REPLICATION": "{dc1: 3}",
            "PARALLAX__SYNC__NO_COMMIT": "latest",
            "PARALLAX__DRILL__RECORDS_PER_S": "2.5",
        },
    )
    assert config.cassandra.contact_points == ("x:1", "y:2")
    assert config.cassandra.replication == {"dc1": 3}
    assert (config.sync.no_commit, config.drill.records_per_s) == ("latest", 2.5)


def test_a_section_can_be_set_before_its_keys(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        {
            "PARALLAX__SERVICE__STALE_AFTER_MS": "777",
            "PARALLAX__SERVICE": "{deadline_ms: 500, stale_after_ms: 600}",
        },
    )
    assert (config.service.stale_after_ms, config.service.deadline_ms) == (777, 500)


@pytest.mark.parametrize("region", ["EU_WEST", "eu_west", "Eu-West"])
def test_regions_are_found_by_what_a_shell_can_write(tmp_path: Path, region: str) -> None:
    environ = {
        f"PARALLAX__REGIONS__{region}__AGGREGATE__BOOTSTRAP_SERVERS": "new:1",
        "PARALLAX__REGIONS__US_EAST__REGIONAL__SECURITY__PROTOCOL": "SSL",
    }
    config = loaded(tmp_path, environ)
    assert list(config.regions) == ["eu-west", "US.East"]
    aggregate = config.region(RegionName("eu-west")).aggregate
    assert aggregate is not None
    assert aggregate.bootstrap_servers == "new:1"
    regional = config.region(RegionName("US.East")).regional
    assert regional is not None
    assert regional.security.protocol == "SSL"


def test_a_region_that_the_file_lacks_is_added(tmp_path: Path) -> None:
    config = loaded(tmp_path, {"PARALLAX__REGIONS__EDGE__REGIONAL__BOOTSTRAP_SERVERS": "new:1"})
    assert list(config.regions) == ["eu-west", "US.East", "edge"]


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"PARALLAX__CASANDRA__PASSWORD": "x"},
            "environment variable PARALLAX__CASANDRA__PASSWORD: unknown key 'casandra'; did you mean 'cassandra'?",
        ),
        (
            {"PARALLAX__SERVICE__STALE_AFTER": "777"},
            "environment variable PARALLAX__SERVICE__STALE_AFTER: unknown key 'service.stale_after'",
        ),
        (
            {"PARALLAX__SERVICE__STALE_AFTER_MS": "soon"},
            "environment variable PARALLAX__SERVICE__STALE_AFTER_MS: service.stale_after_ms: Input should be a valid",
        ),
        (
            {"PARALLAX__SERVICE__STALE_AFTER_MS": "@5"},
            "environment variable PARALLAX__SERVICE__STALE_AFTER_MS: not valid YAML: found character '@'",
        ),
        (
            {"PARALLAX__SYNC__ON_REWIND": "reject"},
            "environment variable PARALLAX__SYNC__ON_REWIND: sync.on_rewind: Input should be 'propagate' or 'refuse'",
        ),
        (
            {"PARALLAX__ROUTES": "[a->b]"},
            "environment variable PARALLAX__ROUTES: routes: route 'a->b': region 'a' has no regional cluster",
        ),
        (
            {"PARALLAX__REGIONS__EDGE__REGIONAL__REPLICATION_FACTOR": "3"},
            (
                "environment variable PARALLAX__REGIONS__EDGE__REGIONAL__REPLICATION_FACTOR: "
                "regions.edge.regional.bootstrap_servers: Field required"
            ),
        ),
        (
            {"PARALLAX__CASSANDRA__KEYSPACE__X": "1"},
            "PARALLAX__CASSANDRA__KEYSPACE__X: cassandra.keyspace: Input should be a valid string",
        ),
        (
            {"PARALLAX__CASSANDRA__CONTACT_POINTS__X": "1"},
            "PARALLAX__CASSANDRA__CONTACT_POINTS__X: 'cassandra.contact_points' is not a section",
        ),
        ({"PARALLAX__": "1"}, "environment variable PARALLAX__: not of the form PARALLAX__SECTION__KEY"),
        (
            {
                "PARALLAX__REGIONS__EU_WEST__REGIONAL__BOOTSTRAP_SERVERS": "x",
                "PARALLAX__REGIONS__eu_west__REGIONAL__BOOTSTRAP_SERVERS": "y",
            },
            (
                "environment variable PARALLAX__REGIONS__eu_west__REGIONAL__BOOTSTRAP_SERVERS: "
                "PARALLAX__REGIONS__EU_WEST__REGIONAL__BOOTSTRAP_SERVERS sets "
                "'regions.eu-west.regional.bootstrap_servers' too; keep one of them"
            ),
        ),
    ],
)
def test_a_mistake_names_the_variable(tmp_path: Path, environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, environ)
    assert message in str(caught.value)


def test_a_mistake_in_the_file_is_not_blamed_on_a_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(
            tmp_path, {"PARALLAX__SERVICE__STALE_AFTER_MS": "777"}, GOOD + "service: {deadline_ms: fast}\n"
        )
    assert "parallax.yaml:9: service.deadline_ms" in str(caught.value)


def test_a_variable_that_fits_two_regions_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace("US.East", "EU_west")
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, {"PARALLAX__REGIONS__EU_WEST__REGIONAL__BOOTSTRAP_SERVERS": "x"}, text)
    assert "may mean 'regions.eu-west' and 'regions.EU_west'; set it in the file" in str(caught.value)


def test_a_broken_value_does_not_show(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, {"PARALLAX__CASSANDRA": "{password: hunter2, x: @}"})
    assert "hunter2" not in str(caught.value)
