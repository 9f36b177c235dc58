"""The status of a replicator: totals over leases, readiness, what the server answers."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from parallax.adapters.spark.reporting import TOKEN_HEADER, HolderReporter, StatusTarget
from parallax.adapters.spark.status_server import StatusServer
from parallax.domain.ids import RegionName, Route
from parallax.errors import ConfigError
from replicator.lease import Lease, LeaseKey, LeaseProgress, PartitionProgress, PartitionStatus
from replicator.leases.board import SILENT_AFTER_MS, LeaseReport, ProgressBoard
from replicator.leases.claims import Claims
from replicator.leases.status import REPORTS_PATH, ReplicationStatus
from tests.support import poll_until

ROUTE = Route(RegionName("a"), RegionName("b"))
TOKEN = "token"  # noqa: S105 - a test's own
KEYS = [LeaseKey(ROUTE, 0), LeaseKey(ROUTE, 1)]


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def report(
    *,
    shard: int = 0,
    epoch: int = 1,
    attempt: str = "first",
    records: int = 0,
    ended: bool = False,
    status: PartitionStatus = PartitionStatus.COPYING,
) -> LeaseReport:
    lease = Lease(ROUTE, shard, shard_count=2, layout=1, epoch=epoch, deadline_unix_ms=0)
    partition = PartitionProgress(
        topic="trips",
        partition=shard,
        records=records,
        size_bytes=records * 100,
        source_next=records,
        lag_records=7,
        replication_latency_ms=12.5,
        status=status,
        reason="too large" if status is PartitionStatus.STOPPED else "",
        record_age_ms=9.5,
    )
    progress = LeaseProgress(
        lease,
        partitions=(partition,),
        transactions=records // 10,
        aborts=1,
        index_lag_ms=3.0,
        survey_failures=2,
    )
    return LeaseReport(progress, attempt, ended)


def records_of(board: ProgressBoard) -> int:
    return sum(totals.records.value for totals in board.partitions().values())


def test_a_report_survives_json() -> None:
    before = report(records=5, status=PartitionStatus.STOPPED)
    assert LeaseReport.from_json(json.loads(json.dumps(before.to_json()))) == before


@pytest.mark.parametrize("values", [{}, {"progress": {}}, {"progress": {"lease": 3}}, {"progress": 1}])
def test_what_is_no_report_is_a_value_error(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a lease's report"):
        LeaseReport.from_json(values)


def test_totals_go_on_where_the_next_epoch_counts_from_zero() -> None:
    board = ProgressBoard(KEYS)
    board.record(report(records=40))
    board.record(report(records=100))
    board.record(report(records=3, epoch=2, attempt="second"))
    assert records_of(board) == 103
    assert board.leases()[KEYS[0]].transactions.value == 10


def test_a_lost_report_changes_nothing_that_the_next_one_tells() -> None:
    all_heard, some_lost = ProgressBoard(KEYS), ProgressBoard(KEYS)
    for records in (10, 20, 30):
        all_heard.record(report(records=records))
    some_lost.record(report(records=30))
    assert records_of(all_heard) == records_of(some_lost) == 30


def test_a_replaced_holder_is_not_heard_any_more() -> None:
    board = ProgressBoard(KEYS)
    board.record(report(records=50, attempt="first"))
    board.record(report(records=1, attempt="second"))
    board.record(report(records=60, attempt="first"))
    board.record(report(records=2, attempt="second"))
    assert records_of(board) == 52


def test_ready_only_once_every_lease_has_reported_in_its_routes_epoch() -> None:
    board = ProgressBoard(KEYS)
    assert set(board.missing()) == set(KEYS)
    board.record(report(shard=0))
    assert set(board.missing()) == {KEYS[1]}
    board.record(report(shard=1))
    assert not board.missing()
    board.record(report(shard=0, epoch=2, attempt="second"))
    assert "epoch 2" in board.missing()[KEYS[1]]


def test_a_silent_lease_is_not_ready() -> None:
    clock = FakeClock()
    board = ProgressBoard(KEYS[:1], clock)
    board.record(report())
    clock.now_s += SILENT_AFTER_MS / 1_000 + 1
    assert "silent" in board.missing()[KEYS[0]]


def test_a_lease_that_said_goodbye_is_not_active() -> None:
    board = ProgressBoard(KEYS)
    board.record(report(shard=0))
    board.record(report(shard=1))
    board.record(report(shard=1, ended=True))
    assert board.active() == [KEYS[0]]


@pytest.fixture
def board() -> ProgressBoard:
    return ProgressBoard(KEYS)


@pytest.fixture
def server(board: ProgressBoard) -> Iterator[StatusServer]:
    running = StatusServer("127.0.0.1:0", [ReplicationStatus(board, Claims(KEYS))], token=TOKEN)
    running.start()
    yield running
    running.close()


def ask(server: StatusServer, path: str, body: bytes | None = None, token: str = TOKEN) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*server.address, timeout=5)
    headers = {TOKEN_HEADER: token} if body is not None else {}
    connection.request("GET" if body is None else "POST", path, body, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def posted(server: StatusServer, what: LeaseReport) -> dict[str, Any]:
    status, text = ask(server, "/reports", json.dumps(what.to_json()).encode())
    assert status == HTTPStatus.OK, text
    return dict(json.loads(text))


def test_reports_become_metrics_with_route_topic_and_partition(server: StatusServer) -> None:
    posted(server, report(records=50))
    posted(server, report(shard=1, records=5, status=PartitionStatus.STOPPED))
    status, text = ask(server, "/metrics")
    assert status == HTTPStatus.OK
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    route = (("source", "a"), ("target", "b"))
    first = (("partition", "0"), ("route", "a->b"), *route, ("topic", "trips"))
    second = (("partition", "1"), ("route", "a->b"), *route, ("topic", "trips"))
    lease = (("route", "a->b"), ("shard", "0"), *route)
    expected = {
        ("parallax_replicator_records_total", first): 50,
        ("parallax_replicator_bytes_total", first): 5_000,
        ("parallax_replicator_lag_records", first): 7,
        ("parallax_replicator_replication_latency_ms", first): 12.5,
        ("parallax_replicator_partition_stopped", first): 0,
        ("parallax_replicator_partition_stopped", second): 1,
        ("parallax_replicator_transactions_total", lease): 5,
        ("parallax_replicator_transaction_aborts_total", lease): 1,
        ("parallax_replicator_survey_failures_total", lease): 2,
        ("parallax_replicator_index_lag_ms", lease): 3,
        ("parallax_replicator_index_lag_seconds", lease): 0.003,
        ("parallax_replicator_partition_latency_seconds", first): 0.0125,
        ("parallax_replicator_route_records_total", route): 55,
        ("parallax_replicator_route_bytes_total", route): 5_500,
        ("parallax_replicator_route_lag_records", route): 14,
        ("parallax_replicator_route_partitions", tuple(sorted((*route, ("status", "copying"))))): 1,
        ("parallax_replicator_route_partitions", tuple(sorted((*route, ("status", "stopped"))))): 1,
        ("parallax_replicator_route_partitions", tuple(sorted((*route, ("status", "waiting"))))): 0,
        ("parallax_replicator_replication_latency_seconds_count", route): 0,
    }
    assert {key: samples.get(key) for key in expected} == expected


def test_partitions_have_the_names_of_mirror_maker_where_they_are_asked_for(server: StatusServer) -> None:
    posted(server, report(records=50))
    status, text = ask(server, "/metrics?names=mm2")
    assert status == HTTPStatus.OK
    prefix = "kafka_connect_mirror_mirrorsourceconnector_"
    labels = {"source": "a", "target": "b", "topic": "trips", "partition": "0"}
    found = {
        sample.name.removeprefix(prefix): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels == labels
    }
    assert found == {
        "record_count": 50,
        "byte_count": 5_000,
        "record_age_ms": 9.5,
        "replication_latency_ms": 12.5,
    }
    assert "parallax_" not in text
    assert prefix not in ask(server, "/metrics")[1]
    assert prefix not in ask(server, "/metrics?other=mm2")[1]
    for wrong in ("burrow", "", "mm2&names=mm2"):
        assert ask(server, f"/metrics?names={wrong}")[0] == HTTPStatus.BAD_REQUEST


def test_readiness_names_what_is_missing(server: StatusServer) -> None:
    assert ask(server, "/livez")[0] == HTTPStatus.OK
    posted(server, report(shard=0))
    status, text = ask(server, "/readyz")
    assert status == HTTPStatus.SERVICE_UNAVAILABLE
    assert text == "lease a->b/1 has not reported yet\n"
    posted(server, report(shard=1))
    assert ask(server, "/readyz")[0] == HTTPStatus.OK


def test_a_stopped_partition_is_named_with_its_reason_and_the_others_are_ready(server: StatusServer) -> None:
    posted(server, report(shard=0, status=PartitionStatus.STOPPED))
    posted(server, report(shard=1))
    assert ask(server, "/readyz") == (HTTPStatus.OK, "ready\nlease a->b/trips-0 is stopped: too large\n")
    status = json.loads(ask(server, "/status")[1])
    assert (status["ready"], status["stopped"]) == (True, {"a->b/trips-0": "too large"})
    metrics = ask(server, "/metrics")[1]
    place = 'partition="0",reason="too large",route="a->b",source="a",target="b",topic="trips"'
    stop = f"parallax_replicator_stop_reason{{{place}}} 1.0"
    assert stop in metrics
    posted(server, report(shard=0))
    assert "stop_reason{" not in ask(server, "/metrics")[1]
    assert ask(server, "/readyz")[1] == "ready\n"


def test_the_log_tells_of_a_stop_once_and_of_its_end() -> None:
    board = ProgressBoard(KEYS)
    stopped = report(status=PartitionStatus.STOPPED)
    changed = replace(
        stopped,
        progress=replace(
            stopped.progress, partitions=(replace(stopped.progress.partitions[0], reason="worse"),)
        ),
    )
    with capture_logs() as logs:
        for each in (
            report(),
            stopped,
            stopped,
            report(epoch=2, attempt="next", status=PartitionStatus.WAITING),  # it does not know yet
            replace(
                stopped, progress=replace(stopped.progress, lease=replace(stopped.progress.lease, epoch=3))
            ),
            report(epoch=4, attempt="last"),
        ):
            board.record(each)
    assert [(line["event"], line.get("reason")) for line in logs] == [
        ("partition_stopped", "too large"),
        ("partition_goes_on", None),
    ]
    board = ProgressBoard(KEYS)
    with capture_logs() as logs:
        board.record(stopped)
        board.record(changed)
    assert [line["reason"] for line in logs] == ["too large", "worse"]
    assert logs[0]["lag_records"] == 7


def test_status_is_the_whole_picture(server: StatusServer) -> None:
    posted(server, report(records=50, status=PartitionStatus.STOPPED))
    status = json.loads(ask(server, "/status")[1])
    assert status["ready"] is False
    (lease,) = status["leases"]
    assert (lease["route"], lease["shard"], lease["transactions"]) == ("a->b", 0, 5)
    (partition,) = lease["partitions"]
    assert (partition["status"], partition["reason"]) == ("stopped", "too large")


def test_leases_are_told_to_end(server: StatusServer) -> None:
    assert posted(server, report()) == {"end": False}
    server.end_leases()
    assert posted(server, report()) == {"end": True}


@pytest.mark.parametrize(
    ("path", "body", "token", "expected"),
    [
        ("/reports", b"{}", TOKEN, HTTPStatus.BAD_REQUEST),
        ("/reports", b"no json", TOKEN, HTTPStatus.BAD_REQUEST),
        ("/reports", b"{}", "wrong", HTTPStatus.FORBIDDEN),
        ("/claims", b"{}", TOKEN, HTTPStatus.BAD_REQUEST),
        ("/claims", b'{"given": {"route": 3}, "copied": []}', TOKEN, HTTPStatus.BAD_REQUEST),
        ("/claims", b'{"given": 3, "copied": [{"route": {"source": "a", "target": "b"}}]}', TOKEN, 400),
        ("/claims", b'{"copied": []}', TOKEN, 400),
        ("/claims", b"{}", "wrong", HTTPStatus.FORBIDDEN),
        ("/other", b"{}", TOKEN, HTTPStatus.NOT_FOUND),
        ("/other", None, TOKEN, HTTPStatus.NOT_FOUND),
    ],
)
def test_bad_requests_are_refused(
    server: StatusServer, path: str, body: bytes | None, token: str, expected: HTTPStatus
) -> None:
    assert ask(server, path, body, token)[0] == expected


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:port", ":80"])
def test_a_bad_address_is_a_config_error(address: str) -> None:
    with pytest.raises(ConfigError, match="status_address"):
        StatusServer(address, [], token=TOKEN)


def test_a_taken_port_is_a_config_error(server: StatusServer) -> None:
    host, port = server.address
    with pytest.raises(ConfigError, match="choose another"):
        StatusServer(f"{host}:{port}", [], token=TOKEN)


def test_summaries_add_up_a_route() -> None:
    board = ProgressBoard(KEYS)
    board.record(report(shard=0, records=10))
    waiting = report(shard=1, records=5)
    board.record(replace(waiting, progress=replace(waiting.progress, waiting_for="regional-a")))
    (summary,) = board.routes()
    assert (summary.records, summary.bytes, summary.lag_records) == (15, 1_500, 14)
    assert (summary.latency_ms, summary.waiting_for) == (12.5, "regional-a")


def test_a_summary_is_made_while_partitions_appear() -> None:
    board = ProgressBoard(KEYS[:1])
    (partition,) = report().progress.partitions
    every = tuple(replace(partition, partition=number) for number in range(6_000))

    def appear() -> None:
        for count in range(100, len(every)):
            progress = replace(report().progress, partitions=every[count - 1 : count])
            board.record(LeaseReport(progress, "first"))

    board.record(LeaseReport(replace(report().progress, partitions=every[:100]), "first"))
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(appear)
            while not done.done():
                assert board.routes()[0].lag_records >= 7 * 100
        done.result()
    finally:
        sys.setswitchinterval(interval_s)


def of_holder(reporter: HolderReporter, records: int, *, ended: bool = False) -> LeaseReport:
    return report(attempt=reporter.attempt, records=records, ended=ended)


def test_the_board_gets_the_newest_report_and_the_goodbye(server: StatusServer, board: ProgressBoard) -> None:
    target = StatusTarget(*server.address, TOKEN)
    reporter = HolderReporter(target, REPORTS_PATH)
    assert not target.application_ends()
    reporter.put(of_holder(reporter, 10))
    poll_until(lambda: board.active() == [KEYS[0]], 10, "a report")
    server.end_leases()
    assert target.application_ends()
    reporter.put(of_holder(reporter, 20))
    poll_until(reporter.end_asked.is_set, 10, "the request to end")
    assert reporter.close(of_holder(reporter, 30, ended=True))
    assert board.active() == []
    assert records_of(board) == 30


def test_a_lease_without_any_report_says_no_goodbye(server: StatusServer, board: ProgressBoard) -> None:
    assert HolderReporter(StatusTarget(*server.address, TOKEN), REPORTS_PATH).close()
    assert board.leases() == {}


def test_a_driver_that_does_not_answer_does_not_hurt() -> None:
    server = StatusServer("127.0.0.1:0", [], token=TOKEN)
    target = StatusTarget(*server.address, TOKEN)
    server.close()
    reporter = HolderReporter(target, REPORTS_PATH)
    reporter.put(of_holder(reporter, 10))
    assert not target.application_ends()
    assert not reporter.end_asked.is_set()
    assert reporter.close(of_holder(reporter, 20))
