"""`parallax size`: a load on the command line, and what it takes for people and programs."""

from __future__ import annotations

import json

import pytest
from click.testing import Result
from typer.testing import CliRunner

from parallax.cli.main import app
from parallax.errors import InvalidNameError

LOAD = ("--records-per-s", "50000", "--partitions", "300")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["size", *LOAD, *arguments])


def test_it_is_written_for_people_and_for_programs() -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert "replicator.shards_per_route" in result.stdout
    found = json.loads(run("-o", "json").stdout)
    assert found["load"]["partitions"] == 300
    assert (found["size"]["leases"], found["size"]["copied_bytes_per_s"]) == (2, 20_000_000)
    assert json.loads(run("--json", "--batch-bytes", "1000").stdout)["size"]["store_cores"] is None


def test_a_load_that_is_none_is_a_mistake_that_is_told() -> None:
    assert isinstance(run("--sources", "0").exception, InvalidNameError)


@pytest.mark.parametrize(
    "words",
    [
        ("--records-per-s", "nan"),
        ("--records-per-s", "inf"),
        ("--records-per-s", "1e308"),
        ("--busy", "nan"),
        ("--partitions", "1" + "0" * 400),
    ],
)
def test_what_is_no_number_of_anything_is_a_mistake_that_is_told(words: tuple[str, str]) -> None:
    assert isinstance(run(*words).exception, InvalidNameError)
