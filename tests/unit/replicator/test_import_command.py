"""`parallax import mm2`: exit codes, what is written, and that no secret is shown."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner, Result

from parallax.cli import audited
from parallax.cli.main import app
from parallax.config.config import Config, load
from parallax.domain.audit import AuditStage
from parallax.domain.ids import ClusterName, Route, SourceOffset, TargetOffset, TopicName, TopicPartition
from parallax.domain.mirror_maker_positions import MirrorMakerWorkers
from parallax.errors import ConfigError, ParallaxError, RefusedError, UnknownRouteError
from parallax.ports.audit import Auditor
from replicator import takeover_command
from replicator.copying.takeover import TakenOver, Takeover
from replicator.findings import Problem
from replicator.graph_check import check_graph
from replicator.kafka.takeover import TakeoverPlan
from tests.memory.audit import MemoryAuditLog

FILE = """\
clusters = a, b
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
a->b.enabled = true
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
"""
LOGIN = """\
a.security.protocol = SASL_SSL
a.sasl.mechanism = PLAIN
a.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";
"""


def run(directory: Path, text: str, *options: str) -> Result:
    path = directory / "mm2.properties"
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(app, ["import", "mm2", str(path), *options])


def keys(result: Result) -> dict[str, dict[str, Any]]:
    return {item["key"]: item for item in json.loads(result.stdout)["keys"]}


def test_what_is_written_loads_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    out = tmp_path / "parallax.yaml"
    result = run(tmp_path, FILE + LOGIN, "--out", str(out), "--report", "json")
    assert result.exit_code == 0, result.output
    assert "hunter2" not in result.output
    assert keys(result)["a.sasl.jaas.config"]["value"] == "(secret)"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    config = load(out, {})
    assert [str(route) for route in config.all_routes()] == ["a->b"]
    assert config.cluster(ClusterName("regional-a")).security.password() == "hunter2"


def test_a_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "parallax.yaml"
    out.write_text("mine", encoding="utf-8")
    result = run(tmp_path, FILE, "--out", str(out))
    assert isinstance(result.exception, RefusedError)
    assert out.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("line", "key", "verdict", "why"),
    [
        ("offset.lag.maxx = 1", "offset.lag.maxx", "UNKNOWN", "did you mean 'offset.lag.max'?"),
        ("a->b.topics = *", "a->b.topics", "UNSUPPORTED", "'*' is no regular expression of Python's"),
        (
            "a->b.topics = \\\\p{Alpha}+",
            "a->b.topics",
            "UNSUPPORTED",
            "no regular expression of Python's: bad escape",
        ),
        ("a->b.topics =", "a->b.topics", "UNSUPPORTED", "it chooses nothing"),
        (
            "a.consumer.ssl.key.password = x",
            "a.consumer.ssl.key.password",
            "UNSUPPORTED",
            "one identity at a cluster",
        ),
        ("b.security.protocol = TLS", "b.security.protocol", "UNSUPPORTED", "'TLS' is none of PLAINTEXT"),
        (
            "b.security.protocol = SASL_SSL\\nb.sasl.mechanism = PLAIN",
            "b.security.protocol",
            "UNSUPPORTED",
            "PLAIN needs",
        ),
        (
            "b.sasl.jaas.config = ${env:JAAS}",
            "b.sasl.jaas.config",
            "UNSUPPORTED",
            "it is filled in elsewhere",
        ),
        ("replication.factor = many", "replication.factor", "UNSUPPORTED", "'many' is no number of replicas"),
    ],
)
def test_a_key_that_is_not_obeyed_ends_with_1_until_it_is_accepted(
    tmp_path: Path, line: str, key: str, verdict: str, why: str
) -> None:
    out = tmp_path / "parallax.yaml"
    text = FILE + line.replace("\\n", "\n") + "\n"
    result = run(tmp_path, text, "--out", str(out), "--report", "json")
    told = keys(result)[key]
    assert (result.exit_code, told["verdict"], told["accepted"]) == (1, verdict, False)
    assert why in told["why"]
    assert not out.exists()
    accepted = run(tmp_path, text, "--out", str(out), "--report", "json", "--accept", key)
    assert accepted.exit_code == 0, accepted.output
    load(out, {})


@pytest.mark.parametrize("policy", ["Default", "Identity"])
@pytest.mark.parametrize("flows", ["b->a", "b->c", "b->a c->a a->c b->c", "b->c c->a"])
def test_flows_become_routes_that_copy_what_they_did_and_nothing_goes_round(
    tmp_path: Path, policy: str, flows: str
) -> None:
    text = FILE.replace("Identity", policy).replace("clusters = a, b", "clusters = a, b, c")
    text += "c.bootstrap.servers = c:9092\n" + "".join(f"{flow}.enabled = true\n" for flow in flows.split())
    out = tmp_path / "parallax.yaml"
    result = run(tmp_path, text, "--out", str(out))
    assert result.exit_code == 0, result.output
    config = load(out, {})
    assert [str(route) for route in config.all_routes()] == ["a->b", *flows.split()]
    names = [TopicName(name) for name in ("trips", "a.trips", "b.trips", "b.a.trips", "c.b.a.trips")]
    topics = dict.fromkeys(config.producing_clusters(), names)
    blocking = {item.problem for item in check_graph(config, config.all_routes(), topics) if item.blocks}
    first = config.route_topics(config.all_routes()[0])
    copies = {name: first.copy_of(name) for name in names}
    if policy == "Default":  # where topics have been is told by their names, as MirrorMaker 2 does
        assert copies["trips"] == "a.trips"
        assert (copies["b.trips"] is None, copies["c.b.a.trips"] is None) == (flows != "b->c",) * 2
        assert blocking == set()
    else:
        assert set(copies.values()) == set(names)
        assert Problem.CYCLE not in blocking


def test_what_is_kept_in_step_is_taken_over(tmp_path: Path) -> None:
    text = FILE + (
        "sync.topic.configs.interval.seconds = 60\nconfig.properties.exclude = follower\\\\..*, retention\\\\.ms\n"
        "sync.topic.acls.enabled = true\na->b.sync.topic.acls.interval.seconds = 90\n"
        "consumer.auto.offset.reset = latest\n"
    )
    out = tmp_path / "parallax.yaml"
    told = keys(run(tmp_path, text, "--out", str(out), "--report", "json"))
    assert {of["verdict"] for key, of in told.items() if "sync." in key or "config." in key} == {"MAPPED"}
    config = load(out, {})
    settings, access = config.topics.config_sync, config.topics.acl_sync
    assert (settings.enabled, settings.interval_s) == (True, 60)
    assert settings.exclude == ("follower\\..*", "retention\\.ms")
    assert (access.enabled, access.mode, access.interval_s) == (True, "mm2", 90)
    assert [route.start for route in config.route_settings()] == ["latest"]


@pytest.mark.parametrize(
    ("line", "verdict", "enabled"),
    [
        ("", "CHANGED", False),  # clusters that ask nobody
        ("sync.topic.acls.enabled = false", "MAPPED", False),
        ("b->a.enabled = true\nsync.topic.acls.enabled = true", "CHANGED", False),
        (LOGIN + LOGIN.replace("a.s", "b.s"), "MAPPED", True),
    ],
)
def test_rules_of_access_are_copied_as_it_copies_them_where_that_can_be(
    tmp_path: Path, line: str, verdict: str, *, enabled: bool
) -> None:
    out = tmp_path / "parallax.yaml"
    told = keys(run(tmp_path, f"{FILE}{line}\n", "--out", str(out), "--report", "json"))
    assert told["sync.topic.acls.enabled"]["verdict"] == verdict
    assert load(out, {}).topics.acl_sync.enabled == enabled


def test_flows_that_differ_in_what_holds_for_all_are_told(tmp_path: Path) -> None:
    text = FILE + "b->a.enabled = true\na->b.sync.topic.configs.enabled = false\n"
    text += "b->a.sync.topic.configs.enabled = true\n"
    told = keys(run(tmp_path, text, "--report", "json"))
    for flow in ("a->b", "b->a"):
        of = told[f"{flow}.sync.topic.configs.enabled"]
        assert (of["verdict"], "the first one counts" in of["why"]) == ("CHANGED", True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\n", "it has no key 'clusters'"),
        ("", "it has no key 'clusters'"),
        ("clusters = a, b\na.bootstrap.servers = a:1\n", "b.bootstrap.servers is missing"),
        ("clusters = a b\n", "line 1: clusters: 'a b' can't be the name of a region"),
        ("clusters = a\na.bootstrap.servers = a\n", "'a' is not of the form host:port"),
        ("clusters = \\u12\n", "line 1: \\u without four hexadecimal digits"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, why: str) -> None:
    result = run(tmp_path, text)
    assert isinstance(result.exception, ConfigError)
    assert why in str(result.exception)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", "mm2", str(tmp_path / "none")])
    assert isinstance(result.exception, ConfigError)
    assert "cannot be read" in str(result.exception)


def test_offsets_of_groups_are_published_where_copies_keep_their_names(tmp_path: Path) -> None:
    line = "sync.group.offsets.enabled = true\n"
    kept = run(tmp_path, FILE + line, "--report", "json")
    assert (kept.exit_code, keys(kept)["sync.group.offsets.enabled"]["verdict"]) == (0, "CHANGED")
    renamed = run(tmp_path, FILE.replace("Identity", "Default") + line, "--report", "json")
    assert (renamed.exit_code, keys(renamed)["sync.group.offsets.enabled"]["verdict"]) == (1, "UNSUPPORTED")


# --- positions --------------------------------------------------------------------------------------------------------

CONFIG = """\
regions:
  a: {cluster: {bootstrap_servers: "none:1"}}
  b: {cluster: {bootstrap_servers: "none:1"}}
cassandra: {contact_points: ["none"]}
routes: ["a->b"]
"""
ITEM = TopicPartition(TopicName("trips"), 0)


class Work:
    """A takeover that is asked nothing but whether it is one."""

    at_work: ClassVar[list[str]] = []
    kept: ClassVar[list[AuditStage]] = []
    asked: ClassVar[list[str]] = []
    audit = MemoryAuditLog()

    def __init__(self, _config: Config, route: Route, workers: MirrorMakerWorkers, _open: object) -> None:
        self.route, self.workers = route, workers

    def plan(self) -> TakeoverPlan:
        Work.asked.append("plan")
        going_on = TakenOver(ITEM, Takeover.GOES_ON, SourceOffset(60), TargetOffset(70), 40)
        return TakeoverPlan(self.route, Work.at_work, [going_on], ["heartbeats"])

    def execute(self) -> TakeoverPlan:
        Work.kept = [entry.stage for entry in Work.audit.entries()]
        return self.plan()


@pytest.fixture
def take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    Work.at_work, Work.asked, Work.audit = [], [], MemoryAuditLog()
    monkeypatch.setattr(takeover_command, "MirrorMakerTakeover", Work)
    monkeypatch.setattr(audited, "open_auditor", lambda _config: nullcontext(Auditor(Work.audit, lambda: 7)))

    def take(*options: str, text: str = FILE, config: str = CONFIG) -> Result:
        path = tmp_path / "parallax.yaml"
        path.write_text(config, encoding="utf-8")
        return run(tmp_path, text, "--positions", "--config", str(path), *options)

    return take


def test_how_each_partition_goes_on_is_shown_and_nothing_is_changed(take: Callable[..., Result]) -> None:
    result = take("-o", "json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["topic"], row["takeover"], row["source_next"], row["target_next"]) == (
        "trips",
        "goes on",
        60,
        70,
    )
    assert "nothing was changed" in result.stderr
    assert "a->b does not copy heartbeats" in result.stderr
    assert (Work.asked, Work.audit.entries()) == (["plan"], [])


def test_it_is_written_on_somebodys_word_which_is_kept_before(take: Callable[..., Result]) -> None:
    assert take("--execute", "--actor", "alice", "--reason", "ticket 7").exit_code == 0
    assert Work.kept == [AuditStage.INTENDED]
    done = Work.audit.entries()[-1]
    assert (done.call, done.stage, done.after["route"]) == ("import mm2 --positions", AuditStage.DONE, "a->b")


def test_while_mirror_maker_runs_its_positions_are_shown_and_the_exit_code_is_1(
    take: Callable[..., Result],
) -> None:
    Work.at_work = ["1 of its workers are in group a-mm2"]
    result = take()
    assert result.exit_code == 1
    assert "MirrorMaker 2 still runs: 1 of its workers are in group a-mm2" in result.stderr


@pytest.mark.parametrize(
    ("options", "text", "config", "error", "why"),
    [
        ((), FILE.replace("Identity", "Default"), CONFIG, RefusedError, "Give the route the same 'naming'"),
        (("--route", "b->a"), FILE, CONFIG, UnknownRouteError, "enables no flow b->a"),
        ((), FILE, CONFIG.replace("a->b", "b->a"), UnknownRouteError, "a->b is not configured"),
        ((), FILE + "a->b.name = ${env:NAME}\n", CONFIG, ConfigError, "give it by --connector"),
    ],
)
def test_what_can_not_be_taken_over_is_refused_before_a_cluster_is_asked(
    take: Callable[..., Result],
    options: tuple[str, ...],
    text: str,
    config: str,
    error: type[ParallaxError],
    why: str,
) -> None:
    result = take(*options, text=text, config=config)
    assert isinstance(result.exception, error)
    assert why in str(result.exception)
    assert Work.asked == []


def test_positions_need_a_configuration_and_their_options_go_with_them(tmp_path: Path) -> None:
    result = run(tmp_path, FILE, "--positions")
    assert isinstance(result.exception, ConfigError)
    assert run(tmp_path, FILE, "--execute").exit_code == 2
