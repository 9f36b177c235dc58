"""Secrets are read from their files, and show themselves nowhere: neither in messages nor in what goes to other processes."""

from __future__ import annotations

import copy
import os
import pickle
import traceback
from pathlib import Path

import pytest

from parallax.config import mistakes
from parallax.config.config import Cassandra, Config, load
from parallax.config.secret import Secret
from parallax.config.security import Security
from parallax.domain.ids import ClusterName
from parallax.errors import ConfigError

MARKER = "hunter2"

FILE = """\
regions:
  eu-west:
    regional: {{bootstrap_servers: "127.0.0.1:1"}}
    aggregate:
      bootstrap_servers: "127.0.0.1:2"
      security: {{protocol: SASL_SSL, sasl_mechanism: PLAIN, sasl_username: u, {kafka}}}
cassandra:
  contact_points: [x]
  username: u
  {cassandra}
"""
AGGREGATE = ClusterName("aggregate-eu-west")


def written(
    directory: Path, *, kafka: str = f"sasl_password: {MARKER}-k", cassandra: str = f"password: {MARKER}-c"
) -> Path:
    path = directory / "parallax.yaml"
    path.write_text(FILE.format(kafka=kafka, cassandra=cassandra), encoding="utf-8")
    return path


def shown(error: BaseException) -> str:
    """All that a log or a terminal would show of it."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize(
    "password",
    [
        "@hunter2-Secret!",
        "'hunter2-Secret",
        '"hunter2-Secret',
        "%hunter2-Secret",
        "hunter2: Secret",
        "*hunter2Secret",
        "!hunter2",
        "!!hunter2 x",
        "&hunter2 *other",
        "{hunter2: x}",
        "[hunter2",
        "[hunter2]",
        '"\\hunter2"',
        "|hunter2",
        "? hunter2",
        "x\n hunter2: y",
        "2024-13-45 # hunter2",
        "hunter2\tx: y",
        "\x07hunter2",
    ],
)
@pytest.mark.parametrize(
    "place", ["  {}\n", "  password: {}\n", "  password: x\n  username: {}\n", "  {{password:{}}}\n"]
)
def test_a_mistake_beside_a_password_does_not_show_it(tmp_path: Path, password: str, place: str) -> None:
    path = tmp_path / "p.yaml"
    text = (
        f"cassandra:\n  contact_points: [x]\n{place.format('password: ' + password)}other: 1\nregions: {{}}\n"
    )
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"p\.yaml") as caught:
        load(path, {})

    assert MARKER not in shown(caught.value)


@pytest.mark.parametrize(
    "text", ["'hunter2", "*hunter2", "{password: *hunter2}", "!hunter2 x", "{password:hunter2}"]
)
def test_a_mistake_in_a_variable_does_not_show_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="environment variable PARALLAX__CASSANDRA") as caught:
        load(written(tmp_path), {"PARALLAX__CASSANDRA": text})

    assert MARKER not in shown(caught.value)


def test_a_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"parallax\.yaml:10: not valid YAML: found character .* cannot start"
    ):
        load(written(tmp_path, cassandra=f"password: @{MARKER}"), {})
    with pytest.raises(ConfigError, match=r"parallax\.yaml:10: not valid YAML: a value is not what it seems"):
        load(written(tmp_path, cassandra="password: 2024-13-45"), {})


def test_a_missing_blank_is_named_without_what_follows(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key '.*sasl_password\.\.\.'; YAML parts a key") as caught:
        load(written(tmp_path, kafka=f"sasl_password:{MARKER}"), {})

    assert MARKER not in shown(caught.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"cassandra: {password: hunter2\xff}")

    with pytest.raises(ConfigError, match="not text in UTF-8") as caught:
        load(path, {})

    assert MARKER not in shown(caught.value)


def test_the_excerpt_of_yaml_would_show_the_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above hold: with PyYAML's own message they would fail."""
    monkeypatch.setattr("parallax.config.config.yaml_mistake", lambda error, path, _text: f"{path}: {error}")
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, cassandra=f"password: @{MARKER}"), {})
    assert MARKER in shown(caught.value)

    monkeypatch.undo()
    monkeypatch.setattr(mistakes, "_name", lambda part: part)
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, kafka=f"sasl_password:{MARKER}"), {})
    assert MARKER in shown(caught.value)


class TestFiles:
    def test_a_secret_is_read_from_its_file_whenever_it_is_used(self, tmp_path: Path) -> None:
        file = tmp_path / "secret"
        file.write_text("one\n", encoding="utf-8")
        config = load(written(tmp_path, cassandra=f"password_file: {file}"), {})
        assert config.cassandra.secret() == "one"

        file.write_text("two\r\n", encoding="utf-8")
        assert config.cassandra.secret() == "two"

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (None, "cannot be read: No such file"),
            (b"", "is empty"),
            (b"\n", "is empty"),
            (b"\xff", "is not text"),
        ],
    )
    def test_a_file_without_a_secret_is_refused_by_name(
        self, tmp_path: Path, content: bytes | None, problem: str
    ) -> None:
        file = tmp_path / "secret"
        if content is not None:
            file.write_bytes(content)
        config = load(written(tmp_path, kafka=f"sasl_password_file: {file}"), {})

        with pytest.raises(ConfigError, match=f"security.sasl_password_file: {file}: {problem}"):
            config.cluster(AGGREGATE).security.password()

    def test_a_secret_stands_in_one_place(self, tmp_path: Path) -> None:
        both = "sasl_password: x, sasl_password_file: y"
        with pytest.raises(ConfigError, match="sasl_password and sasl_password_file are both set"):
            load(written(tmp_path, kafka=both), {})

    def test_a_variable_for_one_place_outweighs_the_other(self, tmp_path: Path) -> None:
        file = tmp_path / "secret"
        file.write_text("from a file", encoding="utf-8")
        by_file = {"PARALLAX__CASSANDRA__PASSWORD_FILE": str(file)}
        assert load(written(tmp_path), by_file).cassandra.secret() == "from a file"

        path = written(tmp_path, cassandra=f"password_file: {file}")
        assert load(path, {"PARALLAX__CASSANDRA__PASSWORD": "x"}).cassandra.secret() == "x"
        with pytest.raises(ConfigError, match="both set"):
            load(path, {"PARALLAX__CASSANDRA__PASSWORD": "x", **by_file})


class TestNeeded:
    @pytest.mark.parametrize(
        ("settings", "missing"),
        [
            ({"protocol": "SASL_SSL"}, "needs a sasl_mechanism"),
            ({"protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "needs a sasl_username"),
            (
                {"protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u"},
                "needs a sasl_password_file",
            ),
        ],
    )
    def test_what_a_mechanism_needs_is_named(self, settings: dict[str, str], missing: str) -> None:
        with pytest.raises(ValueError, match=missing):
            Security.model_validate(settings)

    def test_a_user_of_the_store_needs_a_password(self) -> None:
        with pytest.raises(ValueError, match="a username needs a password_file"):
            Cassandra(contact_points=("x",), username="u")


class TestCrossing:
    """A configuration goes from the driver to executors pickled, over wires and through Spark's files."""

    def test_what_crosses_holds_no_secret(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        name = "PARALLAX__REGIONS__EU_WEST__AGGREGATE__SECURITY__SASL_PASSWORD"
        monkeypatch.setenv(name, f"{MARKER}-v")
        config = load(written(tmp_path))

        crossed = pickle.dumps(config)
        assert MARKER.encode() not in crossed

        there = pickle.loads(crossed)  # noqa: S301 - our own
        assert there.cassandra.secret() == f"{MARKER}-c"
        assert there.cluster(AGGREGATE).security.password() == f"{MARKER}-v"
        assert there == config
        assert hash(there.cassandra.password) == hash(config.cassandra.password)

    def test_a_secret_inside_of_a_section_s_variable_is_found_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = f"{{contact_points: [y], username: u, password: {MARKER}-s}}"
        monkeypatch.setenv("PARALLAX__CASSANDRA", text)
        crossed = pickle.dumps(load(written(tmp_path)))

        assert MARKER.encode() not in crossed
        assert pickle.loads(crossed).cassandra.secret() == f"{MARKER}-s"  # noqa: S301 - our own

    def test_what_does_not_stand_there_is_named_when_it_is_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PARALLAX__CASSANDRA__PASSWORD", MARKER)
        path = written(tmp_path)
        crossed = pickle.dumps(load(path))
        monkeypatch.delenv("PARALLAX__CASSANDRA__PASSWORD")
        path.unlink()

        there: Config = pickle.loads(crossed)  # noqa: S301 - our own
        with pytest.raises(
            ConfigError, match=r"cassandra\.password: .* variable PARALLAX__CASSANDRA__PASSWORD"
        ):
            there.cassandra.secret()
        with pytest.raises(ConfigError, match=rf"security\.sasl_password: .* no secret in {path}"):
            there.cluster(AGGREGATE).security.password()

    def test_one_that_the_program_gave_does_not_cross(self) -> None:
        given = Cassandra(contact_points=("x",), username="u", password=Secret("x"))
        with pytest.raises(ConfigError, match="name a file that holds it"):
            pickle.dumps(given)

    def test_a_copy_keeps_it(self, tmp_path: Path) -> None:
        config = load(written(tmp_path), {})
        assert copy.deepcopy(config).cassandra.secret() == f"{MARKER}-c"
        assert config.model_copy(deep=True) == config


def test_it_shows_itself_nowhere(tmp_path: Path) -> None:
    config = load(written(tmp_path), dict(os.environ))
    secret = config.cassandra.password
    assert secret is not None
    assert (
        MARKER
        not in f"{config!r} {config} {secret} {secret!r} {config.model_dump_json()} {config.model_dump()}"
    )
