"""The commands that list what there is: seven ways to write it, pages, exit codes, and what they say where nothing is known."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from parallax.cli import doctor, lists, offsets, primary
from parallax.cli import main as main_module
from parallax.cli.main import app, exit_code_of
from parallax.cli.rows import OutputFormat, RowListing, collected, seconds
from parallax.client.credentials import ServiceCredentials
from parallax.domain.ids import ClusterName, GroupName, TopicPartition
from parallax.domain.lag_verdict import WINDOW
from parallax.domain.outcome import Outcome
from parallax.domain.sync_status import GroupSyncStatus, SyncCycle, SyncTrouble
from parallax.errors import (
    ClusterUnavailableError,
    ConfigError,
    DeadlineError,
    FencedError,
    ParallaxError,
    RefusedError,
)
from parallax.failover.drill import history
from parallax.failover.journal import Step, note_of
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import overview_pb2 as overview
from parallax.v1 import primaries_pb2 as primaries
from tests.contract.test_service_overview import move, part, shard
from tests.golden.stored_formats import DRILL
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import GROUP, NOW_MS, TOPIC, World

PLACES = {"PARALLAX_CONFIG": ""}


def filled() -> World:
    world = World()
    world.commit("a", 0)
    world.groups._groups.update({GROUP, GroupName("[bold]payments")})
    trouble = SyncTrouble(None, None, "failed", Outcome.OK, "no answer", "try again")
    world.status.save_groups(
        [
            GroupSyncStatus(
                GROUP,
                Outcome.UNREACHABLE,
                NOW_MS,
                NOW_MS,
                {"target_away": 2},
                troubles=(trouble,),
                count_troubles=1,
            )
        ]
    )
    world.status.save_cycle(SyncCycle("sync@host:2", NOW_MS - 1_000, 2, 1))
    reason = "RIGHT_MISSING: trips at regional-a"
    world.status.save_shards(
        [
            shard(
                0,
                part("trips", 0, lag_records=3),
                part("trips", 1, state="stopped", reason=reason, lag_records=70),
                stopped=1,
                lag_records=73,
            ),
            shard(1, part("tolls", 5)),
        ]
    )
    world.operations.save_operation(note_of(move(GROUP, 1)))
    world.operations.save_operation(note_of(replace(move(GROUP, 2, Step.FENCED), problem="interrupted")))
    history.keep(world.operations, DRILL)
    return world


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(filled()) as found:
        yield found


def run(served: Served, *arguments: str) -> Result:
    return CliRunner(env=PLACES).invoke(app, [*arguments, "--service", served.target])


def parsed(served: Served, *arguments: str) -> Any:
    result = run(served, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


VERBS = {
    "groups": ("groups",),
    "replication": ("replication",),
    "partitions": ("partitions",),
    "moves": ("moves",),
    "drills": ("drills",),
    "problems": ("sync", "problems"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_list_is_written_in_every_way(served: Served, verb: str) -> None:
    words = VERBS[verb]
    rows = parsed(served, *words)
    assert rows
    assert json.loads(run(served, *words, "--json").stdout) == rows
    assert [json.loads(line) for line in run(served, *words, "-o", "jsonl").stdout.splitlines()] == rows
    assert yaml.safe_load(run(served, *words, "-o", "yaml").stdout) == rows
    cells = list(csv.reader(io.StringIO(run(served, *words, "-o", "csv").stdout)))
    assert [len(line) for line in cells] == [len(cells[0])] * (len(rows) + 1)
    names = run(served, *words, "-o", "name").stdout.splitlines()
    assert len(names) == len(rows)
    assert all(names)
    for output in ("table", "wide"):
        result = run(served, *words, "-o", output)
        assert result.exit_code == 0, result.output
        assert "None" not in result.stdout


def test_unknown_is_a_dash_in_tables_and_empty_in_csv(served: Served) -> None:
    [header, *lines] = csv.reader(io.StringIO(run(served, "groups", "-o", "csv").stdout))
    found = {line[0]: dict(zip(header, line, strict=True)) for line in lines}
    assert (found[GROUP]["outcome"], found["[bold]payments"]["outcome"]) == ("UNREACHABLE", "")
    assert "[bold]payments" in run(served, "groups").stdout  # a name is no markup


def test_of_a_move_that_cant_be_read_no_number_of_partitions_is_told() -> None:
    world = World()
    note = note_of(move(GROUP, 1))
    world.operations.save_operation(replace(note, summary=note.summary.replace("done", "new_word")))
    with serving(world) as served:
        [header, line] = csv.reader(io.StringIO(run(served, "moves", "-o", "csv").stdout))
    found = dict(zip(header, line, strict=True))
    assert (found["group"], found["partitions"]) == (GROUP, "")


def test_stopped_partitions_say_why_and_what_to_do(served: Served) -> None:
    result = run(served, "partitions", "--stopped", "--sort", "lag")
    assert "stopped: a->b trips-1: RIGHT_MISSING" in result.stdout
    assert "what to do: give the replicator's user the right" in result.stdout
    [stopped] = parsed(served, "partitions", "--stopped")
    assert (stopped["route"], stopped["lag_records"]) == ("a->b", 70)


def test_partitions_of_all_routes_come_by_lag(served: Served) -> None:
    rows = parsed(served, "partitions", "--sort", "lag")
    assert [row["lag_records"] for row in rows] == [70, 3, None]
    assert [row["lag_records"] for row in parsed(served, "partitions", "--sort", "lag", "--limit", "1")] == [
        70
    ]


def test_partitions_of_all_routes_come_with_the_stopped_ones_first(served: Served) -> None:
    rows = parsed(served, "partitions", "--sort", "worst")
    assert [row["lag_records"] for row in rows] == [70, 3, None]
    assert rows[0]["state"] == "PARTITION_STOPPED"


def test_a_limit_says_that_there_are_more(served: Served) -> None:
    assert "there are more: --limit 0" in run(served, "moves", "--limit", "1").stdout
    assert "there are more" not in run(served, "moves", "--limit", "0").stdout
    assert len(parsed(served, "moves", "--limit", "1")) == 1


def test_pages_are_read_until_there_are_enough() -> None:
    asked: list[tuple[str, int]] = []

    def page(after: str, most: int) -> tuple[list[Any], str]:
        asked.append((after, most))
        number = int(after or "0")
        return [{"n": number}], "" if number == 4 else str(number + 1)

    assert collected(page, 0) == ([{"n": number} for number in range(5)], False)
    assert collected(page, 2) == ([{"n": 0}, {"n": 1}], True)
    assert asked[-1] == ("1", 1)


def test_what_a_page_has_beyond_the_limit_is_left_out_and_told() -> None:
    def page(after: str, most: int) -> tuple[list[dict[str, int]], str]:
        del after, most
        return [{"n": number} for number in range(5)], ""

    assert collected(page, 2) == ([{"n": 0}, {"n": 1}], True)
    assert collected(page, 5) == ([{"n": number} for number in range(5)], False)


def test_a_service_without_anything_says_what_to_run() -> None:
    with serving(World()) as served:
        assert "parallax sync" in run(served, "groups").stdout
        assert "parallax failover" in run(served, "moves").stdout
        assert "parallax drill" in run(served, "drills").stdout
        assert "has not told of itself" in run(served, "sync", "problems").stdout
        assert "unknown" in run(served, "replication").stdout
        assert parsed(served, "groups") == []


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, None),
        (0, "0.0 s"),
        (90_000, "90.0 s"),
        (180_000, "3 min"),
        (10_800_000, "3 h"),
        (200_000_000, "2 d"),
    ],
)
def test_ages_are_told_in_units_that_people_read(milliseconds: int | None, text: str | None) -> None:
    assert seconds(milliseconds) == text


# --- names and sentences that others wrote ------------------------------------------------------------------------


class _Fake:
    """Stands for the client of an offset service: each call has its one answer."""

    def __init__(self, **answers: Any) -> None:
        self.__dict__.update({call: lambda *_, __=answer, **___: __ for call, answer in answers.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def told(monkeypatch: pytest.MonkeyPatch, *words: str, **answers: Any) -> str:
    """What a command prints of these answers."""
    for module in (lists, offsets, primary):
        monkeypatch.setattr(module, "connect", lambda *_: _Fake(**answers))
    done = CliRunner(env=PLACES).invoke(app, list(words))
    assert done.exit_code == 0, repr(done.exception)
    return done.output


def of_group(name: str, reason: str = "") -> dict[str, Any]:
    """Answers about a group."""
    decision = primaries.PrimaryDecision(fencing_number=3, region="a", reason=reason)
    answer = pb.FailoverOffset(group=name, topic="t", outcome=pb.OK, explanation=reason)
    return {
        "list_groups": overview.ListGroupsResponse(groups=[overview.GroupSummary(group=name)]),
        "list_primaries": primaries.ListPrimariesResponse(
            primaries=[primaries.Primary(group=name, decision=decision)]
        ),
        "get_group_failover_offsets": pb.GetGroupFailoverOffsetsResponse(offsets=[answer]),
        "get_failover_offset": answer,
    }


OF_A_GROUP = {
    "groups": ("groups",),
    "primary": ("primary",),
    "offsets": ("offsets", "{}", "--to", "b"),
    "explain": ("explain", "{}", "t", "0", "--to", "b"),
}


@pytest.mark.parametrize("verb", OF_A_GROUP)
@pytest.mark.parametrize("name", ["[prod] billing", "x[/]y", "orders:a:billing", ":100:"])
def test_names_are_no_markup(monkeypatch: pytest.MonkeyPatch, verb: str, name: str) -> None:
    words = [word.format(name) for word in OF_A_GROUP[verb]]
    assert name in told(monkeypatch, *words, **of_group(name))


@pytest.mark.parametrize("reason", ["[inc-42] broker gone", "see [/runbooks/x]", "see runbook:x:y"])
def test_reasons_are_no_markup(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    assert reason in told(monkeypatch, "primary", **of_group("billing", reason))
    assert reason in told(monkeypatch, "explain", "g", "t", "0", "--to", "b", **of_group("g", reason))


def test_why_a_cluster_is_away_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "[thrd:k:9092/bootstrap]: k:9092/bootstrap: Connect failed"
    away = primaries.ClusterDescription(
        cluster="aggregate-a", bootstrap_servers="k:9092", health=primaries.AWAY, problem=why
    )
    region = primaries.RegionDescription(region="a", aggregate=away)
    answer = primaries.DescribeRegionsResponse(answered_in="b", regions=[region])
    assert why in told(monkeypatch, "regions", describe_regions=answer)


@pytest.mark.parametrize("verb", OF_A_GROUP)
@pytest.mark.parametrize(
    ("name", "seen"),
    [("a\x1b[2Kb", "a\\u001b[2Kb"), ("a\nb", "a\\u000ab"), ("\u202egnp", "\\u202egnp")],
)
def test_no_letter_of_a_name_moves_the_cursor(
    monkeypatch: pytest.MonkeyPatch, verb: str, name: str, seen: str
) -> None:
    words = [word.format(name) for word in OF_A_GROUP[verb]]
    out = told(monkeypatch, *words, **of_group(name, "why: \x1b[2K"))
    assert seen in out
    assert not any(letter in out for letter in "\x1b\u202e")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("out", "seen"), [(io.StringIO, "a\x1b[2K\n"), (_Terminal, "a\\u001b[2K\n")])
def test_names_alone_are_shown_to_people_and_left_to_scripts(
    monkeypatch: pytest.MonkeyPatch, out: type[io.StringIO], seen: str
) -> None:
    listing = RowListing([], lambda row: row["name"], "")
    monkeypatch.setattr(sys, "stdout", written := out())
    listing.write([{"name": "a\x1b[2K"}], OutputFormat.NAME)
    assert written.getvalue() == seen


def test_what_can_not_be_read_has_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = overview.GroupSync(problem="newer")
    answer = overview.ListGroupsResponse(groups=[overview.GroupSummary(group="g", sync=sync)])
    assert "UNSPECIFIED" not in told(monkeypatch, "groups", list_groups=answer)


@pytest.mark.parametrize("output", ["table", "json"])
def test_words_of_a_newer_service_are_numbers(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    answers = of_group("billing")
    answers["list_primaries"].primaries[0].decision.mode = 99
    answers["list_groups"].groups[0].sync.outcome = 98
    assert "99" in told(monkeypatch, "primary", "-o", output, **answers)
    assert "98" in told(monkeypatch, "groups", "-o", output, **answers)


def test_an_answer_of_a_newer_service_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = of_group("billing")
    answer = answers["get_failover_offset"]
    answer.outcome, answer.notes[:] = 99, [98]
    answer.sources.add(region="a", via="magic", position=4)
    out = told(monkeypatch, "explain", "billing", "t", "0", "--to", "b", **answers)
    assert "99 + 98" in out
    assert "magic" in out


# --- status -----------------------------------------------------------------------------------------------------------


def test_the_status_says_what_is_broken_and_what_to_do(served: Served) -> None:
    result = run(served, "status", "--json")
    assert result.exit_code == 2
    answer = json.loads(result.stdout)
    found = {item["what"]: item for item in answer["findings"]}
    assert answer["health"] == "broken"
    assert found["route a->b"]["do"] == "parallax partitions 'a->b' --stopped"
    assert found["sync job"]["do"] == "parallax sync problems"
    assert "interrupted" in found["move"]["says"]
    assert found["route b->a"]["health"] == "look"


def test_the_status_of_a_world_that_is_well() -> None:
    world = World(("a",))
    status = shard(0).status
    world.status.save_shards(
        [replace(shard(0), status=replace(status, route=world.config.all_routes()[0], shards=1))]
    )
    world.status.save_cycle(SyncCycle("sync@host:2", NOW_MS))
    history.keep(world.operations, replace(DRILL, ending=history.DrillEnding.PASSED, problem=""))
    with serving(world) as served:
        result = run(served, "status")
        assert result.exit_code == 0, result.stdout
        world.now_ms += 31_000  # nobody has told anything since
        assert run(served, "status").exit_code == 2


def test_the_status_without_a_service_is_broken() -> None:
    arguments = ["status", "--service", "127.0.0.1:1", "--timeout-ms", "300", "--json"]
    result = CliRunner(env=PLACES).invoke(app, arguments)
    assert result.exit_code == 2
    assert {item["health"] for item in json.loads(result.stdout)["findings"]} == {"broken"}


# --- configuration, doctor --------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "parallax.yaml"
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    values = {
        "regions": {"a": {"aggregate": cluster, "offsetsvc": {"grpc": "127.0.0.1:1"}}},
        "cassandra": {
            "contact_points": ["127.0.0.1:1"],
            "username": "u",
            "password": "s3cret",
            "request_timeout_ms": 300,
        },
    }
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def test_a_configuration_is_shown_without_its_secrets(file: Path) -> None:
    result = CliRunner().invoke(app, ["config", "view", "--config", str(file)])
    values = yaml.safe_load(result.stdout)
    assert values["cassandra"]["password"] == "*" * 10
    assert values["regions"]["a"]["aggregate"] == {"bootstrap_servers": "127.0.0.1:1"}
    assert "service" not in values
    more = CliRunner().invoke(app, ["config", "view", "service", "--defaults", "-c", str(file), "-o", "json"])
    assert json.loads(more.stdout)["service"]["stale_after_ms"] > 0
    rows = CliRunner().invoke(app, ["config", "view", "-c", str(file), "-o", "csv"]).stdout
    assert "s3cret" not in result.stdout + more.stdout + rows
    assert "cassandra.password" in rows


def test_the_configuration_of_a_service_is_shown(served: Served) -> None:
    result = run(served, "config", "view", "regions.a")
    assert "regions.a.aggregate.bootstrap_servers" in result.stdout


def test_a_configuration_is_checked(file: Path) -> None:
    result = CliRunner().invoke(app, ["config", "check", "--config", str(file)])
    assert (result.exit_code, "can be used: 1 regions" in result.stdout) == (0, True)
    file.write_text(file.read_text(encoding="utf-8") + "nonsense: 1\n", encoding="utf-8")
    wrong = CliRunner().invoke(app, ["config", "check", "--config", str(file)])
    assert isinstance(wrong.exception, ConfigError)


def test_the_doctor_names_each_thing_that_is_wrong_and_what_to_do(file: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--config", str(file), "--json"])
    assert result.exit_code == 2
    found = {item["what"]: item for item in json.loads(result.stdout)["findings"]}
    assert found["configuration"]["health"] == "well"
    for what in ("store", "aggregate-a", "offset service of a"):
        assert (found[what]["health"], bool(found[what]["do"])) == ("broken", True)
    file.write_text("nonsense: 1\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["doctor", "--config", str(file), "--json"])
    [finding] = json.loads(result.stdout)["findings"]
    assert "nonsense" in finding["says"]


def test_the_doctor_shows_what_variables_and_the_configuration_say(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[ServiceCredentials] = []

    def client(*_: object, credentials: ServiceCredentials, **__: object) -> None:
        shown.append(credentials)
        raise ConfigError("enough")

    monkeypatch.setattr(doctor, "OffsetClient", client)
    monkeypatch.setenv("PARALLAX_TOKEN_FILE", "/run/token")
    file.write_text(file.read_text(encoding="utf-8") + "client: {ca: /etc/ca.pem}\n", encoding="utf-8")
    CliRunner().invoke(app, ["doctor", "--config", str(file), "--json"])
    assert [(item.ca, item.token_file) for item in shown] == [("/etc/ca.pem", "/run/token")]


# --- the program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError("no"), 10),
        (FencedError("no"), 11),
        (ClusterUnavailableError("no"), 12),
        (DeadlineError("no"), 12),
        (ConfigError("no"), 1),
    ],
    ids=lambda value: getattr(value, "code", value),
)
def test_errors_have_exit_codes_that_scripts_tell_apart(error: ParallaxError, code: int) -> None:
    assert exit_code_of(error) == code


@pytest.mark.parametrize("words", [["--json"], ["-o", "json"], ["--output=json"], ["-o", "jsonl"]])
def test_where_json_was_asked_for_an_error_is_json(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["parallax", "groups", *words])
    monkeypatch.setattr(main_module, "app", lambda: (_ for _ in ()).throw(FencedError("somebody was faster")))
    monkeypatch.setattr(main_module, "configure_logging", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main_module.run()
    assert ended.value.code == 11
    assert json.loads(capsys.readouterr().err) == {
        "error": {"code": "FENCED", "message": "somebody was faster"}
    }


def test_a_shell_completes_commands() -> None:
    environment = {"_PARALLAX_COMPLETE": "complete_bash", "COMP_WORDS": "parallax part", "COMP_CWORD": "1"}
    result = CliRunner(env=environment).invoke(app, [], prog_name="parallax")
    assert result.stdout.split() == ["partitions"]


@pytest.mark.parametrize(
    "words", [("regions",), ("routes",), ("primary",), ("primary", GROUP), ("offsets", GROUP)]
)
def test_answers_that_are_no_lists_are_written_as_documents(served: Served, words: tuple[str, ...]) -> None:
    values = json.loads(run(served, *words, "--json").stdout)
    assert json.loads(run(served, *words, "-o", "json").stdout) == values
    assert yaml.safe_load(run(served, *words, "-o", "yaml").stdout) == values
    assert run(served, *words, "-o", "table").exit_code == 0


def test_entries_are_chosen_and_sorted(served: Served) -> None:
    names = run(served, "groups", "-o", "name").stdout.splitlines()
    assert run(served, "groups", "--sort", "-group", "-o", "name").stdout.splitlines() == sorted(names)[::-1]
    one = ("groups", "--filter", "sync.outcome=UNREACHABLE", "-o", "name")
    assert run(served, *one).stdout.splitlines() == [GROUP]
    assert (
        run(served, "groups", "--sort", "group", "--limit", "1", "-o", "name").stdout.splitlines()
        == sorted(names)[:1]
    )
    lags = [row["lag_records"] for row in parsed(served, "partitions", "--filter", "lag_records>0")]
    assert sorted(lags) == [3, 70]
    assert "there are more" in run(served, "groups", "--sort", "group", "--limit", "1").stdout


def test_groups_can_be_chosen_by_what_their_lag_says() -> None:
    world = filled()
    world.status.save_groups(
        [GroupSyncStatus(GROUP, Outcome.OK, NOW_MS, NOW_MS, active_at=(ClusterName("aggregate-a"),))]
    )
    world.cluster("a").lay(TopicPartition(TOPIC, 0), [0] * 10)
    with serving(world) as served:
        assert [row["lag_verdict"] for row in parsed(served, "groups", "--lag")] == [None, None]
        for _ in range(WINDOW + 1):
            served.service.lags.remember()
        chosen = parsed(served, "groups", "--lag", "--filter", "lag_verdict.state=LAG_STOP")
        assert [row["group"] for row in chosen] == [GROUP]
        assert "STOP" in run(served, "groups", "--lag").stdout
        assert "verdict" not in run(served, "groups").stdout
        rows = list(csv.reader(io.StringIO(run(served, "groups", "--lag", "-o", "csv").stdout)))
        assert [row[rows[0].index("verdict")] for row in rows[1:]] == ["", "STOP"]
