"""How the commands find a service, and what they draw."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from parallax.cli.connecting import connect, targets_of
from parallax.cli.main import app
from parallax.cli.offset_tables import outcome_text, show_offsets, show_routes, tell
from parallax.cli.options import place, timestamp_policy
from parallax.cli.output import number, table
from parallax.client.answer import answer_from_pb
from parallax.client.client import OffsetClient
from parallax.config.config import Config
from parallax.errors import ConfigError, InvalidNameError
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.pictured import answer_of, busy_world


def test_without_a_service_the_error_says_how_to_name_one() -> None:
    with pytest.raises(ConfigError, match="--service host:port"):
        connect(None, None, None, 1_000)


def test_a_configuration_names_the_services_of_its_regions() -> None:
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    cassandra = {"contact_points": ["127.0.0.1"]}
    named = {"aggregate": cluster, "offsetsvc": {"grpc": "127.0.0.1:7000"}}

    both = Config.model_validate(
        {"regions": {"a": named, "b": {"aggregate": cluster}}, "cassandra": cassandra}
    )
    none = Config.model_validate({"regions": {"a": {"aggregate": cluster}}, "cassandra": cassandra})

    assert targets_of(both) == ["127.0.0.1:7000"]
    assert targets_of(none) == ["127.0.0.1:7600"]


def test_an_authority_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        connect(None, ["127.0.0.1:1"], tmp_path / "nowhere.pem", 1_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b", pb.Place(region="b")),
        ("aggregate-b", pb.Place(cluster="aggregate-b")),
        ("regional-b", pb.Place(cluster="regional-b")),
    ],
)
def test_a_place_is_a_region_or_a_cluster(text: str, expected: pb.Place) -> None:
    assert place(text) == expected
    assert place(None) is None


def test_timestamps_are_never_chosen_by_naming_a_margin() -> None:
    assert timestamp_policy(by_timestamp=False, margin_ms=None, timestamp_ms=None) is None
    assert timestamp_policy(by_timestamp=True, margin_ms=5, timestamp_ms=None) == pb.TimestampPolicy(
        margin_ms=5
    )
    with pytest.raises(InvalidNameError, match="go with --by-timestamp"):
        timestamp_policy(by_timestamp=False, margin_ms=None, timestamp_ms=1)


def test_what_is_read_again_by_time_is_a_bound_and_no_number() -> None:
    by_time = pb.SourcePart(region="a", position=4, via="timestamp")
    answer = pb.FailoverOffset(
        to=pb.ClusterPosition(cluster="aggregate-b", low_watermark=0, high_watermark=20),
        resume_offset=4,
        outcome=pb.BY_TIMESTAMP,
        sources=[by_time],
        by_timestamp=pb.ByTimestamp(basis="position", redelivery_at_most_offsets=16),
    )
    text = io.StringIO()

    tell(answer, Console(file=text, width=160))

    assert "an unknown number of records (of those there now at most 16)" in text.getvalue()
    assert "by record timestamps" in text.getvalue()


def test_unknown_is_not_zero() -> None:
    assert number(pb.FailoverOffset(), "freshness_ms") == "-"
    assert number(pb.FailoverOffset(freshness_ms=0), "freshness_ms") == "0"


def test_a_heading_says_what_stands_below_it() -> None:
    columns = table("topic | >records | ~why").columns
    assert [column.header for column in columns] == ["topic", "records", "why"]
    assert [column.justify for column in columns] == ["left", "right", "left"]
    assert [column.overflow for column in columns] == ["ellipsis", "ellipsis", "fold"]


def test_an_outcome_is_shown_with_the_other_notes() -> None:
    answer = pb.FailoverOffset(outcome=pb.TRIMMED, notes=[pb.TRIMMED, pb.PENDING])

    assert outcome_text(answer.outcome, answer.notes).markup == "[bold red]TRIMMED[/bold red] + PENDING"


def test_a_group_is_shown_by_partition_and_its_gravest_outcome_explained() -> None:
    sides = {
        "from": pb.ClusterPosition(cluster="aggregate-a", next_offset=15),
        "to": pb.ClusterPosition(cluster="aggregate-b", high_watermark=20),
    }
    skips = [pb.OffsetRange(start=10, end=20)]
    good = pb.FailoverOffset(topic="trips", resume_offset=5, outcome=pb.OK, skip_ranges=skips, **sides)  # type: ignore[arg-type] # `from`
    bad = pb.FailoverOffset(topic="trips", partition=1, outcome=pb.TRIMMED, explanation="Why.")
    text = io.StringIO()

    show_offsets("billing", [answer_from_pb(good), answer_from_pb(bad)], Console(file=text, width=160))

    assert "billing: aggregate-a to aggregate-b" in text.getvalue()
    (row,) = [line for line in text.getvalue().splitlines() if " OK " in line]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "trips",
        "0",
        "15",
        "5",
        "OK",
        "0",
        "10",
        "-",
        "-",
        "15",
    ]
    assert "trips-1: Why." in text.getvalue()


@pytest.mark.parametrize(
    ("resume", "positions", "marked"),
    [
        (5, {"a": 20, "b": 5}, {"b": "decides the resume offset"}),
        (5, {"a": 5, "b": 5}, {"a": "decides the resume offset", "b": "decides the resume offset"}),
        # What lies from the log start on was consumed, up to there: the position of a decides nothing.
        (
            52,
            {"a": 52, "b": 0},
            {"b": "the smallest position; all from there to the resume offset was consumed"},
        ),
        (52, {"a": None, "b": None}, {}),
    ],
)
def test_one_mark_says_how_the_resume_offset_came_about(
    resume: int, positions: dict[str, int | None], marked: dict[str, str]
) -> None:
    sources = [pb.SourcePart(region=region, position=at, via="log_start") for region, at in positions.items()]
    answer = pb.FailoverOffset(
        to=pb.ClusterPosition(cluster="aggregate-b"), resume_offset=resume, outcome=pb.OK, sources=sources
    )
    text = io.StringIO()

    tell(answer, Console(file=text, width=160))

    lines = [
        line.removeprefix("source ") for line in text.getvalue().splitlines() if line.startswith("source ")
    ]
    assert [line for line in lines if "<-" in line] == [
        f"{region} <- {mark}" for region, mark in marked.items()
    ]


def test_a_stopped_partition_keeps_its_line_among_the_routes_and_the_reason_stands_below() -> None:
    stops = [pb.StoppedPartition(partition=number, reason="PARTITION_MISMATCH: [why]") for number in (2, 3)]
    topics = [
        pb.RouteTopic(topic="trips", partitions=2, freshness_ms=300, stopped=stops),
        pb.RouteTopic(topic="orders", partitions=1, freshness_ms=200),
    ]
    routes = [
        pb.RouteInfo(route="a->b", source_cluster="regional-a", target_cluster="aggregate-b", topics=topics)
    ]
    text = io.StringIO()

    show_routes([*routes, pb.RouteInfo(route="b->b")], Console(file=text, width=160))

    rows = {cells[4]: cells for line in text.getvalue().splitlines() if len(cells := line.split("│")) > 5}
    assert [cells[7].strip() for cells in rows.values()] == ["2, 3", "", ""]
    assert "stopped: a->b trips-2, a->b trips-3: PARTITION_MISMATCH: [why]" in text.getvalue()


def test_the_story_names_every_source_and_marks_the_one_that_decides() -> None:
    held = pb.SourcePart(region="b", position=5, via="exact", consumed_next_offset=5)
    free = pb.SourcePart(
        region="a",
        via="after",
        position=20,
        pending=pb.OffsetRange(start=10, end=14),
        pending_records=4,
        never_delivered=[pb.OffsetRange(start=2, end=3)],
        redelivery_records=14,
    )
    answer = pb.FailoverOffset(
        group="billing",
        topic="trips",
        to=pb.ClusterPosition(cluster="aggregate-b", low_watermark=0, high_watermark=20),
        resume_offset=5,
        outcome=pb.PENDING,
        notes=[pb.PENDING],
        explanation="Why.",
        sources=[free, held],
        skip_ranges=[pb.OffsetRange(start=10, end=20)],
        complete_to=20,
        nearest_checkpoint_offset=1,
    )
    text = io.StringIO()

    tell(answer, Console(file=text, width=160))

    lines = text.getvalue().splitlines()
    assert next(line for line in lines if "decides the resume offset" in line).startswith("source b")
    (bar,) = [line for line in lines if line.startswith("aggregate-b 0 ")]
    cells = bar.split()[2]
    assert (cells[0], cells[-1], set(cells) <= set("=x+.")) == ("=", "x", True)
    for part in ("[10, 14)", "never delivered", "known below 20", "4 offsets earlier"):
        assert part in text.getvalue()


class _Client(OffsetClient):
    """Answers from a small world."""

    def __init__(self) -> None:
        super().__init__(["127.0.0.1:1"])
        self.answer, self.runs = answer_of(busy_world(3), 1_430)

    def get_failover_offset(self, *_: Any, **__: Any) -> pb.FailoverOffset:
        return self.answer

    def list_runs(self, *place: Any, **options: Any) -> pb.ListRunsResponse:
        return self.runs.list_runs(*place, **options)


def explained(monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.setattr("parallax.cli.offsets.connect", lambda *_: _Client())
    return CliRunner().invoke(app, ["explain", "billing", "trips", "0", "--to", "b", *options])


def test_an_answer_is_drawn_as_a_picture_or_told_as_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = explained(monkeypatch, "-o", "svg")
    assert (whole.exit_code, whole.stdout[:5], whole.stdout[-7:]) == (0, "<svg ", "</svg>\n")
    part = explained(monkeypatch, "-o", "svg", "--range", "1000:1100")
    assert part.stdout != whole.stdout
    rows = explained(monkeypatch, "-o", "csv").stdout.splitlines()
    assert rows[0].startswith("source,state,records,")
    assert len(rows) > 20
    assert json.loads(explained(monkeypatch, "-o", "json").stdout)["resume_offset"] == 1_034
    assert explained(monkeypatch, "--json").stdout == explained(monkeypatch, "-o", "json").stdout
    assert "decides the resume offset" in explained(monkeypatch).stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [(["--range", "1:5"], "goes with -o svg"), (["-o", "svg", "--range", "5:1"], "range of offsets")],
)
def test_a_range_that_shows_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, options: list[str], why: str
) -> None:
    refused = explained(monkeypatch, *options)
    assert isinstance(refused.exception, InvalidNameError)
    assert why in str(refused.exception)


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "g", "t", "0", "--to", "b", "--next-offset", str(2**63)),
        ("explain", "g", "t", str(2**31), "--to", "b"),
        ("explain", "g", "t", "0", "--to", "b", "--by-timestamp", "--margin-ms", str(2**63)),
        ("offsets", "g", "--by-timestamp", "--timestamp-ms", str(2**63)),
        ("offsets", "g", "--timeout-ms", "9" * 400),
        ("runs", "a->b", "t", "0", "--start", str(2**63)),
        ("runs", "a->b", "t", "0", "--limit", str(2**31)),
        ("primary", "g", "--set", "a", "--expect", str(2**63)),
        ("status", "--watch", "nan"),
        ("groups", "--watch", "inf"),
        ("verify", "g", "-c", "x", "--wait-s", "nan"),
        ("failover", "g", "-c", "x", "--drain-timeout-s", "inf"),
    ],
)
def test_a_number_that_none_can_hold_is_a_command_line_that_can_not_be(words: tuple[str, ...]) -> None:
    done = CliRunner(env={"PARALLAX_CONFIG": ""}).invoke(app, [*words])
    assert done.exit_code == 2, repr(done.exception)
    assert "Invalid value" in done.output
