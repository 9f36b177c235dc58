"""What preflight finds, over clusters that are dictionaries."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Barrier

import pytest

from parallax.config.config import Config, Replicator
from parallax.domain.ids import ClusterName, RegionName, Route, TopicId, TopicName
from parallax.errors import ClusterUnavailableError, ConfigError, ParallaxError, PreflightError
from parallax.ports.clusters import TopicInfo
from replicator.copying.recovery import RunLogError, RunLogProblem
from replicator.findings import Finding, Problem, Severity
from replicator.kafka.layout_record import LayoutRecord
from replicator.kafka.run_log_check import RouteCheck, ShardCheck
from replicator.kafka.topics import (
    ANY_TIME_MS,
    FIXED_SETTINGS,
    Replication,
    compacted_plan,
    run_log_plan,
    target_topic_plan,
)
from replicator.preflight import (
    compare_topic,
    refuse_if_blocked,
    refused_findings,
    run_preflight,
    slots_finding,
    status_finding,
)

ROUTE = Route(RegionName("a"), RegionName("b"))
TRIPS = TopicName("trips")
SOURCE_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "86400000",
    "max.message.bytes": "1048588",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(ANY_TIME_MS),
    "message.timestamp.after.max.ms": "3600000",
}
TARGET_CONFIG = SOURCE_CONFIG | FIXED_SETTINGS
RUN_LOG = TopicName("parallax.runs.a")
RETENTION_MS = Replicator().run_log_retention_ms


def info(name: str, partitions: int = 3) -> TopicInfo:
    return TopicInfo(TopicName(name), TopicId(f"id-{name}"), partitions)


@dataclass
class FakeCluster:
    known: dict[TopicName, TopicInfo] = field(default_factory=dict)
    settings: dict[TopicName, Mapping[str, str]] = field(default_factory=dict)
    listing_fails: ParallaxError | None = None
    transactions_fail: ParallaxError | None = None
    brokers: int = 1
    replicas: dict[TopicName, int] = field(default_factory=dict)
    known_racks: frozenset[str] = frozenset()
    racks_fail: ParallaxError | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def cluster_id(self) -> str:
        return self.id

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        if self.listing_fails is not None:
            raise self.listing_fails
        return self.known

    def configs(self, topics: Sequence[TopicName]) -> Mapping[TopicName, Mapping[str, str]]:
        return {name: self.settings[name] for name in topics if name in self.settings}

    def replication(self) -> Replication:
        return Replication(self.brokers, self.replicas)

    def racks(self) -> Collection[str]:
        if self.racks_fail is not None:
            raise self.racks_fail
        return self.known_racks

    def check_transactions(self) -> None:
        if self.transactions_fail is not None:
            raise self.transactions_fail


def fitting() -> dict[str, FakeCluster]:
    target = FakeCluster(
        {TRIPS: info("trips"), RUN_LOG: info(RUN_LOG, 1)},
        {TRIPS: TARGET_CONFIG, RUN_LOG: {"cleanup.policy": "delete"}},
    )
    return {
        "regional-a": FakeCluster({TRIPS: info("trips")}, {TRIPS: SOURCE_CONFIG}),
        "aggregate-b": target,
    }


def config(replicas: int | None = None, **replicator: object) -> Config:
    cluster = {"bootstrap_servers": "127.0.0.1:1", "replication_factor": replicas}
    return Config.model_validate(
        {
            "regions": {"a": {"regional": cluster}, "b": {"aggregate": cluster}},
            "cassandra": {"contact_points": ["127.0.0.1:2"]},
            "replicator": replicator,
        }
    )


EVERY = ("regional-a", "regional-b", "aggregate-a", "aggregate-b")


def wide_config() -> Config:
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    region = {"regional": cluster, "aggregate": cluster}
    cassandra = {"contact_points": ["127.0.0.1:2"]}
    return Config.model_validate({"regions": {"a": region, "b": region}, "cassandra": cassandra})


def preflight(
    clusters: Mapping[str, FakeCluster], replicas: int | None = None, **replicator: object
) -> list[Finding]:
    def open_cluster(name: ClusterName) -> FakeCluster:
        return clusters[name]

    return run_preflight(config(replicas, **replicator), [ROUTE], open_cluster)


def problems(findings: Sequence[Finding]) -> list[Problem]:
    return [finding.problem for finding in findings]


def compared(target: Mapping[str, str], source: Mapping[str, str] | None = None) -> list[Problem]:
    source = SOURCE_CONFIG if source is None else source
    return problems(list(compare_topic(ROUTE, info("trips"), source, info("trips"), target)))


def test_two_ends_that_fit_give_no_finding() -> None:
    assert preflight(fitting()) == []


def test_topics_that_wait_to_be_added_are_named() -> None:
    clusters = fitting()
    clusters["regional-a"].known |= {TopicName(name): info(name) for name in ("new", "__internal")}
    made, by_hand = config(), config().model_dump() | {"topics": {"new": "manual"}}
    assert run_preflight(made, [ROUTE], lambda name: clusters[name]) == []
    found = run_preflight(Config.model_validate(by_hand), [ROUTE], lambda name: clusters[name])
    assert [(item.problem, item.severity) for item in found] == [(Problem.TOPICS_NOT_ADDED, Severity.NOTE)]
    assert "1 topics are not copied (new): aggregate-b lacks them" in found[0].message


def test_a_topic_made_by_us_fits_its_source() -> None:
    plan = target_topic_plan(TRIPS, 3, SOURCE_CONFIG, 2)
    assert plan.replicas == 2
    assert compared(plan.settings) == []
    assert plan.settings["max.message.bytes"] == SOURCE_CONFIG["max.message.bytes"]
    assert plan.settings["retention.ms"] == SOURCE_CONFIG["retention.ms"]


@pytest.mark.parametrize("down", ["regional-a", "aggregate-b"])
def test_an_unreachable_cluster_is_a_warning_that_blocks_nothing(down: str) -> None:
    clusters = fitting()
    clusters[down].listing_fails = ClusterUnavailableError(f"{down}: no answer")
    found = [item for item in preflight(clusters) if item.problem is Problem.CLUSTER_UNREACHABLE]
    assert [(item.where, item.severity, item.blocks) for item in found] == [(down, Severity.WARNING, False)]


def test_refused_transactions_block() -> None:
    clusters = fitting()
    clusters["aggregate-b"].transactions_fail = ConfigError("aggregate-b: not authorised")
    findings = preflight(clusters)
    assert problems(findings) == [Problem.TRANSACTIONS_REFUSED]
    with pytest.raises(PreflightError, match=r"TRANSACTIONS_REFUSED: aggregate-b: .*not authorised"):
        refuse_if_blocked(findings)


def test_a_source_that_is_its_own_target_blocks() -> None:
    clusters = fitting()
    clusters["regional-a"].id = clusters["aggregate-b"].id = "one"
    findings = preflight(clusters)
    (finding,) = [item for item in findings if item.problem is Problem.SAME_CLUSTER]
    assert (finding.where, finding.severity) == ("regional-a, aggregate-b", Severity.ERROR)
    with pytest.raises(
        PreflightError, match=r"SAME_CLUSTER: regional-a, aggregate-b: .*one Kafka.*of the id one"
    ):
        refuse_if_blocked(findings)


@pytest.mark.parametrize("same", [*itertools.combinations(EVERY, 2)])
def test_any_two_clusters_of_the_configuration_that_are_one_block(same: tuple[str, str]) -> None:
    clusters = fitting() | {
        name: FakeCluster() for name in EVERY if name not in ("regional-a", "aggregate-b")
    }
    for name in same:
        clusters[name].id = "one"
    found = run_preflight(wide_config(), [ROUTE], lambda name: clusters[name])
    assert [item.where for item in found if item.problem is Problem.SAME_CLUSTER] == [", ".join(same)]


def test_a_cluster_of_no_route_that_does_not_answer_is_no_matter_of_these_routes() -> None:
    def open_cluster(name: ClusterName) -> FakeCluster:
        if name in clusters:
            return clusters[name]
        raise ClusterUnavailableError(f"{name}: no answer")

    clusters = fitting()
    assert run_preflight(wide_config(), [ROUTE], open_cluster) == []


def test_clusters_are_asked_beside_each_other() -> None:
    """Each of them answers once all have been asked, and not before."""
    all_are_asked = Barrier(len(EVERY))
    clusters = fitting() | {
        name: FakeCluster() for name in EVERY if name.endswith(("regional-b", "aggregate-a"))
    }

    def open_cluster(name: ClusterName) -> FakeCluster:
        all_are_asked.wait(timeout=60)
        return clusters[name]

    assert run_preflight(wide_config(), [ROUTE], open_cluster) == []


def test_clusters_that_do_not_say_who_they_are_are_not_taken_for_one() -> None:
    clusters = fitting()
    clusters["regional-a"].id = clusters["aggregate-b"].id = ""
    assert preflight(clusters) == []


def test_a_refused_source_blocks() -> None:
    clusters = fitting()
    clusters["regional-a"].listing_fails = ConfigError("regional-a: bad credentials")
    assert [item.problem for item in preflight(clusters) if item.blocks] == [Problem.CLUSTER_REFUSED]


def test_a_target_with_too_few_partitions_is_going_to_grow() -> None:
    clusters = fitting()
    clusters["aggregate-b"].known[TRIPS] = info("trips", 2)
    (finding,) = preflight(clusters)
    assert (finding.problem, finding.topic) == (Problem.PARTITION_MISMATCH, TRIPS)
    assert finding.severity is Severity.WARNING
    assert not finding.blocks
    assert "3 partitions at the source and 2 on aggregate-b" in finding.message
    assert "gives it 3" in finding.advice
    refuse_if_blocked([finding])


@pytest.mark.parametrize("topic", [None, TRIPS])
@pytest.mark.parametrize("severity", Severity)
def test_what_is_an_error_blocks_and_nothing_else(severity: Severity, topic: TopicName | None) -> None:
    finding = Finding(severity, Problem.RUN_LOG_UNFIT, "somewhere", "what", "do", topic)
    assert finding.blocks == (severity is Severity.ERROR)


def test_more_partitions_than_the_source_are_fine() -> None:
    clusters = fitting()
    clusters["aggregate-b"].known[TRIPS] = info("trips", 9)
    assert preflight(clusters) == []


def test_a_topic_that_is_not_chosen_is_not_looked_at() -> None:
    clusters = fitting()
    clusters["regional-a"].known[TopicName("parallax.x")] = info("parallax.x", 9)
    clusters["aggregate-b"].known[TopicName("parallax.x")] = info("parallax.x", 1)
    assert preflight(clusters) == []


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("max.message.bytes", "1000", Problem.MESSAGES_TOO_LARGE),
        ("compression.type", "zstd", Problem.RECOMPRESSED),
        ("message.timestamp.type", "LogAppendTime", Problem.TIMESTAMPS_REWRITTEN),
        ("message.timestamp.before.max.ms", "1000", Problem.TIMESTAMPS_OUT_OF_BOUNDS),
        ("message.timestamp.after.max.ms", "1000", Problem.TIMESTAMPS_OUT_OF_BOUNDS),
    ],
)
def test_settings_that_do_not_fit_are_named(setting: str, value: str, expected: Problem) -> None:
    assert compared(TARGET_CONFIG | {setting: value}) == [expected]


def test_an_equal_bound_of_age_is_too_strict_for_a_later_copy() -> None:
    bounded = {"message.timestamp.before.max.ms": "60000"}
    assert compared(TARGET_CONFIG | bounded, SOURCE_CONFIG | bounded) == [Problem.TIMESTAMPS_OUT_OF_BOUNDS]


def test_a_run_log_that_is_not_there_yet_is_only_a_note() -> None:
    clusters = fitting()
    del clusters["aggregate-b"].known[RUN_LOG]
    (finding,) = preflight(clusters)
    assert (finding.problem, finding.severity) == (Problem.RUN_LOG_MISSING, Severity.NOTE)


def test_a_run_log_that_is_refused_is_named_and_the_others_start() -> None:
    layout = LayoutRecord(2, 2, settled=True, run_log=RUN_LOG, run_log_id=TopicId("log"))
    refused = str(RunLogError(RunLogProblem.RUN_LOG_HEADLESS, "aggregate-b: run log", "no snapshot"))
    shards = [ShardCheck(0), ShardCheck(1, problem=refused)]
    away = RouteCheck(ROUTE, None, None, problem="aggregate-b did not answer")  # named already, as a cluster
    (finding,) = refused_findings([RouteCheck(ROUTE, layout, TopicId("log"), shards), away])
    assert (finding.problem, finding.where, finding.blocks) == (Problem.RUN_LOG_REFUSED, "a->b", False)
    assert finding.message == refused


def test_a_compacted_run_log_blocks() -> None:
    clusters = fitting()
    clusters["aggregate-b"].settings[RUN_LOG] = {"cleanup.policy": "compact"}
    (finding,) = preflight(clusters)
    assert (finding.problem, finding.blocks) == (Problem.RUN_LOG_UNFIT, True)


def test_a_run_log_made_by_us_is_fit_for_it() -> None:
    clusters = fitting()
    clusters["aggregate-b"].settings[RUN_LOG] = dict(run_log_plan(RUN_LOG, 1, RETENTION_MS, 3).settings)
    assert preflight(clusters) == []


@pytest.mark.parametrize(
    ("setting", "value", "severity"),
    [
        ("unclean.leader.election.enable", "true", Severity.ERROR),
        ("retention.bytes", "1073741824", Severity.ERROR),
        ("max.message.bytes", "1000000", Severity.ERROR),
        ("retention.ms", "3600000", Severity.WARNING),
        ("message.timestamp.type", "CreateTime", Severity.WARNING),
        ("min.insync.replicas", "1", Severity.WARNING),
    ],
)
def test_settings_under_which_a_run_log_can_lose_entries_are_named(
    setting: str, value: str, severity: Severity
) -> None:
    clusters, plan = fitting(), run_log_plan(RUN_LOG, 1, RETENTION_MS, 3)
    clusters["aggregate-b"].settings[RUN_LOG] = {**plan.settings, setting: value}
    [finding] = preflight(clusters, replicas=3)
    assert (finding.problem, finding.severity) == (Problem.RUN_LOG_UNFIT, severity)
    assert f"{setting}={value} on aggregate-b: " in finding.message
    assert f"set {setting}={plan.settings[setting]} for 'parallax.runs.a'" in finding.advice


@pytest.mark.parametrize(("replicas", "in_sync"), [(None, None), (1, "1"), (2, "1"), (3, "2"), (5, "2")])
def test_two_replicas_must_have_an_entry_where_one_may_be_away(
    replicas: int | None, in_sync: str | None
) -> None:
    for plan in (run_log_plan(RUN_LOG, 1, RETENTION_MS, replicas), compacted_plan(RUN_LOG, replicas)):
        assert plan.settings.get("min.insync.replicas") == in_sync
        assert plan.settings["unclean.leader.election.enable"] == "false"


@pytest.mark.parametrize(("retention_ms", "found"), [("3600000", False), ("86400000", True), ("-1", True)])
def test_a_run_log_kept_shorter_than_a_topic_is_reported(retention_ms: str, *, found: bool) -> None:
    clusters = fitting()
    clusters["regional-a"].settings[TRIPS] = SOURCE_CONFIG | {"retention.ms": retention_ms}
    expected = [Problem.RUN_LOG_TOO_SHORT] if found else []
    assert problems(preflight(clusters, run_log_retention_ms=3_600_000)) == expected


def test_more_leases_than_slots_block() -> None:
    assert slots_finding(slots=4, leases=4) is None
    finding = slots_finding(slots=3, leases=4)
    assert finding is not None
    with pytest.raises(PreflightError, match=r"TOO_FEW_SLOTS: spark: 4 leases need as many task slots"):
        refuse_if_blocked([finding])


@pytest.mark.parametrize(
    ("address", "local", "found"),
    [
        ("127.0.0.1:7610", True, False),
        ("127.0.0.1:7610", False, True),
        ("localhost:7610", False, True),
        ("0.0.0.0:7610", False, False),
        ("driver.example:7610", False, False),
    ],
)
def test_executors_elsewhere_need_a_status_address_that_they_reach(
    address: str, *, local: bool, found: bool
) -> None:
    assert (status_finding(address, local=local) is not None) == found


def test_one_refusal_names_everything_that_blocks() -> None:
    first = slots_finding(slots=1, leases=2)
    assert first is not None
    second = replace(first, where="elsewhere")
    with pytest.raises(PreflightError) as caught:
        refuse_if_blocked([first, second])
    assert str(caught.value).count("TOO_FEW_SLOTS") == 2


SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


@pytest.mark.parametrize(
    ("replicas", "settings", "said"),
    [
        (3, {}, ()),
        (2, {}, ()),
        (1, {}, ("it lies on one of 3 brokers alone",)),
        (3, {"min.insync.replicas": "1"}, ("min.insync.replicas=1",)),
        (3, {"unclean.leader.election.enable": "true"}, ("unclean.leader.election.enable=true",)),
        (
            1,
            {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
            ("it lies on one of 3 brokers alone", "unclean.leader.election.enable=true"),
        ),
    ],
)
def test_a_target_topic_that_may_lose_records_is_named_with_what_to_do(
    replicas: int, settings: dict[str, str], said: tuple[str, ...]
) -> None:
    clusters = fitting()
    target = clusters["aggregate-b"]
    target.brokers, target.replicas = 3, {TRIPS: replicas, RUN_LOG: 3}
    target.settings[TRIPS] = TARGET_CONFIG | SAFE | settings
    found = [item for item in preflight(clusters) if item.problem is Problem.TARGET_MAY_LOSE]
    assert [item.message.removeprefix("aggregate-b: ").split(":")[0] for item in found] == list(said)
    assert all(item.severity is Severity.WARNING and item.topic == TRIPS for item in found)
    assert all("'trips'" in item.advice for item in found)


def test_a_run_log_on_one_of_several_brokers_is_named_and_on_the_only_one_is_not() -> None:
    clusters = fitting()
    target = clusters["aggregate-b"]
    target.settings[TRIPS] = TARGET_CONFIG | SAFE
    for brokers, named in ((1, []), (3, [RUN_LOG])):
        target.brokers, target.replicas = brokers, {TRIPS: 3, RUN_LOG: 1}
        found = [item for item in preflight(clusters) if item.problem is Problem.TARGET_MAY_LOSE]
        assert [item.topic for item in found] == named


@pytest.mark.parametrize(
    ("rack", "path", "racks", "said"),
    [
        (None, "batch", {"x", "y"}, None),
        ("x", "batch", {"x", "y"}, None),
        ("z", "batch", {"x", "y"}, "client_rack=z: no broker stands there; there are x, y"),
        ("z", "batch", set(), "client_rack=z: no broker stands there; none tells of a rack"),
        ("x", "record", {"x", "y"}, None),
        ("z", "batch", None, None),
    ],
)
def test_a_rack_where_nobody_stands_is_named(
    rack: str | None, path: str, racks: set[str] | None, said: str | None
) -> None:
    clusters = fitting()
    source = clusters["regional-a"]
    if racks is None:
        source.racks_fail = ClusterUnavailableError("regional-a: no answer")
    else:
        source.known_racks = frozenset(racks)
    clusters["aggregate-b"].racks_fail = AssertionError("nobody reads the target")  # type: ignore[assignment]
    settings = config(copy_path=path).model_dump()
    for kind, region in (("regional", "a"), ("aggregate", "b")):
        settings["regions"][region][kind]["client_rack"] = rack
    found = [
        item
        for item in run_preflight(Config.model_validate(settings), [ROUTE], lambda name: clusters[name])
        if item.problem is Problem.NO_NEARER_REPLICA
    ]
    assert [(item.where, item.severity) for item in found] == [("regional-a", Severity.WARNING)] * bool(said)
    assert said is None or found[0].message.startswith(said)
