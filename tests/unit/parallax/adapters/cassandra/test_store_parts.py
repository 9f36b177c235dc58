"""The pure parts of the stores: newest rows, and the table of errors."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import cassandra
import cassandra.cluster
import cassandra.connection
import cassandra.pool
import cassandra.protocol
import cassandra.query
import pytest

from parallax.adapters.cassandra.codec import newest_body, newest_row
from parallax.adapters.cassandra.connection import BY_TYPE, contact_points, translated, wrong_datacenter
from parallax.adapters.cassandra.schema import keyspace_of, keyspace_statement
from parallax.config.config import Cassandra
from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.index_rows import StampedRow
from parallax.domain.runs import Run
from parallax.errors import ConfigError, StoreUnavailableError, UnreadableRowError


class TestNewestRows:
    @pytest.mark.parametrize("count", [0, 7])
    def test_what_was_stored_comes_out(self, count: int) -> None:
        row = Run(SourceOffset(1 << 62), TargetOffset(3), count, SourceOffset(5), -1)
        assert newest_row(newest_body(row, 1_800_000_000_000)) == StampedRow(row, 1_800_000_000_000)

    def test_what_is_damaged_is_refused(self) -> None:
        stored = newest_body(Run(SourceOffset(1), TargetOffset(3), 1, SourceOffset(1), -1), 5)
        with pytest.raises(UnreadableRowError):
            newest_row(stored[:-1] + b"x")


class TestErrors:
    @pytest.mark.parametrize(
        "module",
        [
            cassandra,
            cassandra.cluster,
            cassandra.connection,
            cassandra.pool,
            cassandra.query,
        ],
    )
    def test_every_error_of_the_driver_has_a_meaning(self, module: object) -> None:
        own = [
            item
            for item in vars(module).values()
            if inspect.isclass(item) and issubclass(item, Exception) and item.__module__ == module.__name__  # type: ignore[attr-defined] # it is a module
        ]
        assert own
        assert [item for item in own if item not in BY_TYPE] == []

    def test_every_answer_of_a_server_has_a_meaning(self) -> None:
        answers = [
            item
            for item in vars(cassandra.protocol).values()
            if inspect.isclass(item) and issubclass(item, Exception)
        ]
        assert answers
        unknown = [item for item in answers if not any(base in BY_TYPE for base in item.__mro__)]
        assert unknown == []

    def test_the_message_names_what_was_done_and_what_came_back(self) -> None:
        error = translated(cassandra.OperationTimedOut(), "3 request(s)")
        assert isinstance(error, StoreUnavailableError)
        assert str(error).startswith("store: 3 request(s): OperationTimedOut")

    def test_a_wrong_password_is_a_matter_of_configuration(self) -> None:
        refused = {"127.0.0.1:1": cassandra.AuthenticationFailed("bad credentials")}
        error = translated(cassandra.cluster.NoHostAvailable("none", refused), "connecting")
        assert isinstance(error, ConfigError)


class TestSettings:
    def test_a_contact_point_may_leave_out_the_port(self) -> None:
        settings = Cassandra(contact_points=("db1", "db2:19042"))
        assert contact_points(settings) == [("db1", 9042), ("db2", 19042)]

    @pytest.mark.parametrize("point", [":9042", "db:", "db:port"])
    def test_a_contact_point_that_can_not_be_is_refused(self, point: str) -> None:
        with pytest.raises(ConfigError, match=point):
            contact_points(Cassandra(contact_points=(point,)))

    @pytest.mark.parametrize("name", ["Parallax", "p; DROP", "1p", "p" * 49, ""])
    def test_a_keyspace_is_a_plain_name(self, name: str) -> None:
        with pytest.raises(ConfigError, match=r"cassandra\.keyspace"):
            keyspace_of(Cassandra(contact_points=("db",), keyspace=name))

    def test_the_keyspace_is_copied_to_every_datacenter_named(self) -> None:
        settings = Cassandra(contact_points=("db",), replication={"east": 3, "west": 2})
        assert keyspace_statement(settings).endswith(
            "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 2}"
        )

    @pytest.mark.parametrize(
        ("known", "wrong"),
        [([], False), ([None], False), (["dc1", "dc2", None], False), (["dc2", "dc3", "dc2"], True)],
    )
    def test_a_datacenter_is_wrong_if_others_are_known(self, known: list[str | None], *, wrong: bool) -> None:
        hosts = [SimpleNamespace(datacenter=name) for name in known]
        cluster = SimpleNamespace(metadata=SimpleNamespace(all_hosts=lambda: hosts))
        settings = Cassandra(contact_points=("127.0.0.1",), local_datacenter="dc1")
        found = wrong_datacenter(settings, cluster)  # type: ignore[arg-type] # what is asked of it is there
        assert (found is not None) == wrong
        if found is not None:
            assert "no datacenter 'dc1'; it has dc2, dc3" in str(found)

    def test_a_datacenter_with_a_quote_is_refused(self) -> None:
        settings = Cassandra(contact_points=("db",), replication={"e'ast": 3})
        with pytest.raises(ConfigError, match="datacenter"):
            keyspace_statement(settings)
