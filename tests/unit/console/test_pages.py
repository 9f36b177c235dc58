"""The console's pages over a client that tells what a test wants: every state, whatever the names are."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from structlog.testing import capture_logs

import console.web
from console.app import NAVIGATION, create_app
from console.web import HEADERS, LOOPBACK_NAMES
from parallax.errors import (
    ForbiddenError,
    ParallaxError,
    ServiceUnavailableError,
    StoreUnavailableError,
    UnknownGroupError,
    UnknownTopicError,
)
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import overview_pb2, primaries_pb2
from tests.worlds.console_reads import HOSTILE_NAMES, NOW_MS, FakeReads, decided, group_reads, lists_of

BASE = "http://127.0.0.1:7680"
PARTITION = {"route": "a->b", "topic": "trips", "partition": "0"}
EXPLAIN = {"group": "billing", "topic": "trips", "partition": "0", "to": "aggregate-b", "from": "aggregate-a"}


class Browser:
    """Asks the application without a network."""

    def __init__(self, reads: Any) -> None:
        self._app = create_app(reads, region="a", hosts=LOOPBACK_NAMES, now_ms=lambda: NOW_MS)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=BASE, verify=False) as client:  # noqa: S501
                return await client.request(method, path, **options)

        return asyncio.run(asked())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)


class Read(HTMLParser):
    """A page as a browser sees it: its elements, its text, and what it would load or run."""

    void = frozenset({"meta", "link", "input", "br", "img"})

    def __init__(self, page: httpx.Response) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page.text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def read(client: Browser, path: str, status: int = 200, **parameters: str) -> Read:
    page = client.get(path, params=parameters) if parameters else client.get(path)
    assert page.status_code == status, page.text
    return Read(page)


def shape(page: Read) -> list[str]:
    return [tag for tag, _ in page.elements]


# --- every page ----------------------------------------------------------------------------------------------------

PAGES: list[tuple[str, dict[str, str]]] = [
    *((path, {}) for path, _ in NAVIGATION),
    ("/group", {"name": "billing"}),
    ("/explain", EXPLAIN),
    ("/route", {"route": "a->b"}),
    ("/partition", PARTITION),
]
LISTS = [path for path, _ in NAVIGATION if path != "/"]


@pytest.mark.parametrize(("path", "parameters"), [*PAGES, ("/nowhere", {}), ("/group", {}), ("/healthz", {})])
def test_every_answer_has_the_headers_that_keep_others_out(path: str, parameters: dict[str, str]) -> None:
    answer = Browser(group_reads()).get(path, params=parameters)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(("path", "parameters"), PAGES)
def test_a_page_needs_nothing_that_the_policy_forbids(path: str, parameters: dict[str, str]) -> None:
    page = read(Browser(group_reads()), path, **parameters)
    for tag, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on") or key in ("style", "hx-on")], tag
        assert tag != "style"
        for key in ("src", "href", "action", "hx-get"):
            if key in attributes:
                assert re.match(r"/(?!/)|#", attributes[key]), (tag, attributes)
    assert all(script.get("src", "").startswith("/static/") for script in page.all("script"))


@pytest.mark.parametrize(("path", "parameters"), PAGES)
def test_a_page_can_be_read_without_seeing_it(path: str, parameters: dict[str, str]) -> None:
    page = read(Browser(group_reads()), path, **parameters)
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("h1")) == len(page.all("main")) == 1
    assert shape(page).count("title") >= 1
    assert page.all("a")[0] == {"class": "skip", "href": "#main"}
    labelled = {label["for"] for label in page.all("label") if "for" in label}
    for table in range(shape(page).count("table")):
        assert shape(page).count("caption") > table
    assert "find" in labelled
    assert all("scope" in heading for heading in page.all("th"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(("path", "parameters"), PAGES)
def test_a_page_stays_small(path: str, parameters: dict[str, str]) -> None:
    assert len(Browser(group_reads()).get(path, params=parameters).content) < 150_000


@pytest.mark.parametrize(("path", "parameters"), PAGES)
def test_the_live_part_is_sent_again_only_when_it_has_changed(path: str, parameters: dict[str, str]) -> None:
    client = Browser(group_reads())
    page = read(client, path, **parameters)
    (live,) = [attributes for _, attributes in page.elements if attributes.get("id") == "live"]
    assert client.get(live["hx-get"]).status_code == 204
    changed = client.get(live["hx-get"].replace("seen=", "seen=0"))
    assert changed.status_code == 200
    assert changed.text.startswith('<div id="live" ')
    assert "<html" not in changed.text
    asked = parse_qs(urlsplit(live["hx-get"]).query, keep_blank_values=True)
    assert {key: value for key, (value,) in asked.items() if key != "seen"} == parameters


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_name_breaks_a_page(name: str) -> None:
    reads = group_reads(name)
    answer = reads.told["get_failover_offset"]
    assert isinstance(answer, pb.FailoverOffset)
    reads.told |= lists_of("billing")
    client = Browser(reads)
    plain = [shape(read(client, path, **parameters)) for path, parameters in PAGES]

    answer.topic = answer.explanation = name
    reads.told["get_group_failover_offsets"] = pb.GetGroupFailoverOffsetsResponse(offsets=[answer])
    reads.told |= lists_of(name)
    reads.told["list_primaries"] = primaries_pb2.ListPrimariesResponse(primaries=[decided(name)])
    renamed = {
        "/group": {"name": name},
        "/explain": {**EXPLAIN, "group": name, "topic": name},
        "/partition": {**PARTITION, "topic": name},
    }
    for (path, parameters), tags in zip(PAGES, plain, strict=True):
        page = read(client, path, **renamed.get(path, parameters))
        # As many `text` elements as the picture needs lines for the explanation.
        assert [tag for tag in shape(page) if tag != "text"] == [tag for tag in tags if tag != "text"]
        assert not re.search("[\x00-\x09\x0b-\x1f\u202e\u2066]", "".join(page.words))
    links = [
        urlsplit(item["href"])
        for item in read(client, "/primaries").all("a")
        if item["href"].startswith("/group?")
    ]
    assert [parse_qs(found.query)["name"] for found in links] == [[name]]
    read(client, f"{links[0].path}?{links[0].query}")
    assert reads.asked[-1][1]["group"] == name


@pytest.mark.parametrize("name", ["a\u00a0b", "tab\tx", '"><b>'])
def test_forms_send_names_as_they_are(name: str) -> None:
    reads = group_reads(name)
    reads.told |= lists_of(name)
    client = Browser(reads)
    asked = {**EXPLAIN, "group": name, "topic": name, "from": name, "to": name}
    for path, parameters in (("/explain", asked), ("/moves", {"group": name}), ("/groups", {"prefix": name})):
        page = read(client, path, **parameters)
        sent = {item["name"]: item["value"] for item in page.all("input") if item.get("value")}
        assert sent.items() >= parameters.items()


# --- files ---------------------------------------------------------------------------------------------------------


def test_lists_are_files_too_and_no_cell_is_a_formula() -> None:
    reads = group_reads()
    names = ["=1+1", "+x", "-x", "@x", "plain"]
    reads.told["list_primaries"] = primaries_pb2.ListPrimariesResponse(
        primaries=[decided(name) for name in names]
    )
    client = Browser(reads)
    answer = client.get("/primaries.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert 'filename="primaries.csv"' in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["group"] for row in rows] == ["'=1+1", "'+x", "'-x", "'@x", "plain"]
    assert rows[4]["fencing_number"] == "7"
    document = client.get("/primaries.json").json()
    assert [row["group"] for row in document["rows"]] == names
    assert document["rows"][0]["fencing_number"] == 7


def test_the_picture_is_a_file_too() -> None:
    client = Browser(group_reads())
    svg = client.get("/explain.svg", params=EXPLAIN)
    assert svg.headers["content-type"].startswith("image/svg+xml")
    assert "<style>" in svg.text
    table = client.get("/explain.csv", params=EXPLAIN)
    document = client.get("/explain.json", params=EXPLAIN).json()
    assert len(table.text.splitlines()) == len(document["runs"]) + 1
    assert document["resume_offset"] == 1_034
    for form in ("svg", "csv", "json"):
        assert client.get(f"/explain.{form}", params={**EXPLAIN, "range": "9:1"}).status_code == 400


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_the_lists_within_a_page_are_files_too(name: str) -> None:
    client = Browser(group_reads(name))
    for path, parameters in (("/group", {"name": name}), ("/partition", {**PARTITION, "topic": name})):
        page = read(client, path, **parameters)
        links = [a["href"] for a in page.all("a") if urlsplit(a["href"]).path == f"{path}.csv"]
        sections = client.get(f"{path}.json", params=parameters).json()
        assert {section["heading"] for section in sections if section["rows"]} <= {
            parse_qs(urlsplit(link).query)["section"][0] for link in links
        }
        for link in links:
            rows = list(csv.DictReader(io.StringIO(client.get(link).text)))
            [heading] = parse_qs(urlsplit(link).query)["section"]
            [section] = [item for item in sections if item["heading"] == heading]
            assert len(rows) == len(section["rows"])


def test_a_list_that_is_not_there_is_told() -> None:
    client = Browser(group_reads())
    assert client.get("/group.csv?name=billing&section=nosuch").status_code == 404
    assert client.get("/group.csv?name=billing").status_code == 400


def test_what_is_answered_is_counted_by_page() -> None:
    client = Browser(group_reads())
    client.get("/groups?prefix=bill")
    client.get("/groups?prefix=x")
    client.get("/nosuch/anything")
    client.get("/static/nosuch.js")
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert 'parallax_console_requests_total{page="/groups",status="200"} 2.0' in page.text
    assert 'parallax_console_requests_total{page="other",status="404"} 1.0' in page.text
    assert 'parallax_console_requests_total{page="/static/{name}",status="404"} 1.0' in page.text
    assert 'parallax_console_request_duration_seconds_count{page="/groups"} 2.0' in page.text
    assert 'parallax_build_info{component="console"' in page.text


@pytest.mark.parametrize("path", LISTS)
def test_every_list_is_a_file_and_a_document(path: str) -> None:
    client = Browser(group_reads())
    rows = list(csv.DictReader(io.StringIO(client.get(f"{path}.csv").text)))
    document = client.get(f"{path}.json").json()
    assert len(rows) == len(document["rows"]) > 0
    assert list(rows[0]) == list(document["rows"][0])
    for row, told in zip(rows, document["rows"], strict=True):
        assert [value == "" for value in row.values()] == [value in (None, "") for value in told.values()]
    links = {item["href"] for item in read(client, path).all("a")}
    assert {f"{path}.csv", f"{path}.json"} <= links


# --- states --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "call", "empty", "words"),
    [
        (
            "/primaries",
            "list_primaries",
            primaries_pb2.ListPrimariesResponse(),
            "parallax primary GROUP --set REGION",
        ),
        ("/groups", "list_groups", overview_pb2.ListGroupsResponse(), "parallax drill"),
        ("/groups?prefix=x", "list_groups", overview_pb2.ListGroupsResponse(), "a name that begins with x"),
        ("/routes", "list_replication", overview_pb2.ListReplicationResponse(), "has no route"),
        (
            "/route?route=a-%3Eb",
            "list_replication_partitions",
            overview_pb2.ListReplicationPartitionsResponse(),
            "parallax replicate --config parallax.yaml --region REGION",
        ),
        ("/moves", "list_moves", overview_pb2.ListMovesResponse(), "parallax failover GROUP --to REGION"),
        ("/moves?group=x", "list_moves", overview_pb2.ListMovesResponse(), "Group x has never moved"),
        ("/drills", "list_drills", overview_pb2.ListDrillsResponse(), "parallax drill"),
        (
            "/sync-problems",
            "list_sync_problems",
            overview_pb2.ListSyncProblemsResponse(),
            "parallax sync --config parallax.yaml",
        ),
        (
            "/sync-problems",
            "list_sync_problems",
            overview_pb2.ListSyncProblemsResponse(job=overview_pb2.SyncJob(groups=3)),
            "Every group's offsets are published",
        ),
    ],
)
def test_an_empty_list_tells_the_command_to_run(path: str, call: str, empty: Any, words: str) -> None:
    reads = group_reads()
    reads.told[call] = empty
    assert words in read(Browser(reads), path).text


def test_an_id_is_short_for_people_and_whole_for_programs() -> None:
    reads = group_reads()
    moves = reads.told["list_moves"]
    assert isinstance(moves, overview_pb2.ListMovesResponse)
    moves.moves[0].move_id = "f7a09c768500950cca2622b692ac87c8"
    client = Browser(reads)
    shown = read(client, "/moves").text
    assert ("f7a09c76" in shown, "f7a09c7685" in shown) == (True, False)
    assert client.get("/moves.json").json()["rows"][0]["move_id"] == moves.moves[0].move_id


def test_a_list_is_turned_page_by_page_and_keeps_what_narrows_it() -> None:
    reads = group_reads("b+l & ling")
    page = read(Browser(reads), "/groups", prefix="b+")
    (onward,) = [item["href"] for item in page.all("a") if item.get("rel") == "next"]
    read(Browser(reads), onward)
    assert reads.asked[-1] == ("list_groups", {"prefix": "b+", "after": "b+l & ling", "limit": 100})
    (first,) = [
        item["href"]
        for item in read(Browser(reads), onward).all("a")
        if item["href"] == "/groups?prefix=b%2B"
    ]
    read(Browser(reads), first)
    assert reads.asked[-1][1]["after"] == ""


def test_partitions_are_narrowed_and_ordered_by_the_service() -> None:
    reads = group_reads()
    page = read(Browser(reads), "/route", route="a->b", state="stopped", sort="name", prefix="tr")
    assert reads.asked[-1] == (
        "list_replication_partitions",
        {
            "route": "a->b",
            "prefix": "tr",
            "state": overview_pb2.PARTITION_STOPPED,
            "sort": overview_pb2.BY_NAME,
            "after": "",
            "limit": 100,
        },
    )
    chosen = [item["value"] for item in page.all("option") if "selected" in item]
    assert chosen == ["stopped", "name"]
    assert "billing: mend it" in page.text


@pytest.mark.parametrize(("chosen", "asked"), [("", overview_pb2.WORST_FIRST), ("lag", overview_pb2.BY_LAG)])
def test_a_route_shows_first_what_is_stopped_or_lags_most(chosen: str, asked: int) -> None:
    """Of ten thousand partitions nobody looks for it."""
    reads = group_reads()
    read(Browser(reads), "/route", route="a->b", sort=chosen)
    assert reads.asked[-1][1]["sort"] == asked


def test_above_its_partitions_a_route_says_how_it_is() -> None:
    reads = group_reads()
    routes = reads.told["list_replication"]
    assert isinstance(routes, overview_pb2.ListReplicationResponse)
    route = next(item for item in routes.routes if item.route == "a->b")
    route.state, route.records_per_s, route.partitions_stopped = overview_pb2.ROUTE_PARTLY_STOPPED, 1_234.5, 2
    route.problems.append("trips-4: RIGHT_MISSING")
    client = Browser(reads)
    assert "now unknown" not in client.get("/route?route=a->b").text
    route.lag_history.extend(pb.LagSample(lag_records=lag) for lag in (0, 700, 90))
    page = read(client, "/route", route="a->b")
    for told in ("regional-a to aggregate-b", "partly stopped", "1,234", "2 of 2", "trips-4: RIGHT_MISSING"):
        assert told in page.text
    assert "now 90 records, at most 700" in page.text
    assert "billing: mend it" in page.text


def test_a_route_that_can_not_be_asked_about_leaves_its_partitions() -> None:
    reads = group_reads()
    page = read(Browser(reads), "/route", route="a->c")
    assert "No route of the configuration is called so." in page.text
    reads.told["list_replication"] = StoreUnavailableError("no host answered")
    page = read(Browser(reads), "/route", route="a->b")
    assert "is not known: STORE_UNAVAILABLE: no host answered" in page.text
    assert "billing: mend it" in page.text


def test_a_route_that_nobody_tells_of_is_unknown_and_not_zero() -> None:
    reads = group_reads()
    reads.told["list_replication"] = overview_pb2.ListReplicationResponse(
        routes=[
            overview_pb2.RouteReplication(
                route="a->b", source_cluster="regional-a", target_cluster="aggregate-b"
            )
        ]
    )
    client = Browser(reads)
    (row,) = client.get("/routes.json").json()["rows"]
    assert row["state"] == "unknown"
    assert {value for name, value in row.items() if name not in ("route", "state")} == {None}
    text = client.get("/routes").text
    assert text.count("\u2013") == 10


def test_the_lag_of_the_last_minutes_is_drawn_and_what_was_unknown_is_a_dash() -> None:
    reads = group_reads()
    lags = (0, 100, None, 700, 10_000)
    samples = [pb.LagSample(at_ms=number, lag_records=lag) for number, lag in enumerate(lags)]
    reads.told["list_replication"] = overview_pb2.ListReplicationResponse(
        routes=[overview_pb2.RouteReplication(route="a->b", lag_history=samples)]
    )
    client = Browser(reads)
    page = read(client, "/routes")
    assert "\u2581\u2581\u2013\u2581\u2588" in page.text
    assert "10,000 at most" in page.text
    assert client.get("/routes.json").json()["rows"][0]["lag_history"] == list(lags)
    assert ",0 100 ? 700 10000," in client.get("/routes.csv").text


def test_a_partitions_page_shows_its_rows_and_translates_offsets() -> None:
    reads = group_reads()
    page = read(Browser(reads), "/partition", **PARTITION)
    assert "500" in page.text
    assert "goes on" in page.text
    assert "run" in page.text
    told = read(Browser(reads), "/partition", **PARTITION, source="40")
    assert "Next offset source 40 is target 1,080 (exactly)." in told.text
    asked = {"route": "a->b", "topic": "trips", "partition": 0, "source_next_offset": 40}
    assert ("translate_offset", asked) in reads.asked
    told = read(Browser(reads), "/partition", **PARTITION, target="1,080")
    assert "Next offset target 1,080 is source 40 (exactly)." in told.text
    assert "whole number" in read(Browser(reads), "/partition", **PARTITION, source="-3").text
    reads.told["translate_offset"] = UnknownTopicError("no such topic")
    assert "[UNKNOWN_TOPIC] no such topic" in read(Browser(reads), "/partition", **PARTITION, target="7").text


def test_a_partitions_page_goes_on_and_tells_what_was_lost() -> None:
    class Rows(FakeReads):
        def list_runs(self, route: str, topic: str, partition: int, **options: Any) -> pb.ListRunsResponse:
            self.asked.append(
                ("list_runs", {"route": route, "topic": topic, "partition": partition, **options})
            )
            return pb.ListRunsResponse(
                lineages=[
                    pb.ListRunsResponse.LineageRuns(
                        lineage="s.t.0",
                        runs=[
                            pb.Run(source_start=10, target_start=20, count_records=5, source_leader_epoch=-1)
                        ],
                        lost=[pb.OffsetRange(start=3, end=10)],
                    )
                ],
                continue_at=25,
            )

    reads = Rows(group_reads().told)
    page = read(Browser(reads), "/partition", **PARTITION, start="20")
    assert reads.asked[0] == ("list_runs", {**PARTITION, "partition": 0, "start": 20, "limit": 100})
    assert "Lost at the source" in page.text
    (onward,) = [item for item in page.all("a") if item.get("rel") == "next"]
    assert parse_qs(urlsplit(onward["href"]).query)["start"] == ["25"]


def test_a_groups_page_draws_how_its_lag_went() -> None:
    reads = group_reads()
    positions = reads.told["get_group_positions"]
    assert isinstance(positions, pb.GetGroupPositionsResponse)
    positions.clusters[0].lag_history.extend(
        pb.LagSample(at_ms=number, lag_records=lag) for number, lag in enumerate((0, None, 3_000, 7_000))
    )
    positions.clusters[1].lag_history.extend(pb.LagSample(lag_records=5) for _ in range(2))
    page = read(Browser(reads), "/group?name=billing")
    assert "Lag at aggregate-a" in page.text
    assert "now 7,000 records, at most 7,000; unknown for 1 of 4 looks" in page.text
    assert "Lag at aggregate-b" not in page.text, "two looks tell nothing of how it went"
    positions.clusters[1].lag_history.add(lag_records=5)
    page = read(Browser(reads), "/group?name=billing")
    assert "now 5 records, at most 5" in page.text
    ids = [item["id"] for _, item in page.elements if "id" in item]
    assert len(ids) == len(set(ids))


def test_a_groups_page_says_what_its_lag_says_as_far_as_that_is_known() -> None:
    reads = group_reads()
    positions = reads.told["get_group_positions"]
    assert isinstance(positions, pb.GetGroupPositionsResponse)
    told = positions.clusters[0].lag_verdict
    for state, words in (
        (pb.LAG_STATE_UNKNOWN, ""),
        (pb.LAG_OK, "By its lag: OK"),
        (99, "By its lag: 99 (trips-3,"),
        (pb.LAG_STALL, "By its lag: STALL (trips-3, 70 behind, and 1 more not OK)"),
    ):
        told.CopyFrom(
            pb.LagVerdict(state=state, topic="trips", partition=3, lag_offsets=70, partitions_not_ok=2)
        )
        text = read(Browser(reads), "/group?name=billing").text
        assert words in text if words else "By its lag" not in text


def test_words_of_a_newer_service_are_numbers() -> None:
    reads = group_reads()
    reads.told["get_group_failover_offsets"].offsets[0].notes.append(99)  # type: ignore[union-attr] # an answer
    assert "+ 99" in read(Browser(reads), "/group?name=billing").text
    reads.told["get_failover_offset"].outcome = 99  # type: ignore[union-attr,assignment] # an answer
    assert "99" in read(Browser(reads), "/explain", **EXPLAIN).text


def test_a_last_word_tells_its_age() -> None:
    reads = group_reads()
    sync = overview_pb2.SyncJob(age_ms=3_700_000, away=["aggregate-b"], problem="Cassandra did not answer")
    reads.told["list_sync_problems"] = overview_pb2.ListSyncProblemsResponse(job=sync)
    text = read(Browser(reads), "/sync-problems").text
    for words in (
        "1 h 1 min ago",
        "it may not run any more",
        "could not ask aggregate-b",
        "Cassandra did not answer",
    ):
        assert words in text


def test_the_overview_names_what_could_not_be_asked_and_shows_the_rest() -> None:
    reads = group_reads()
    for call in ("list_replication", "list_primaries", "list_moves", "list_drills", "list_sync_problems"):
        reads.told[call] = StoreUnavailableError("no host answered")
    page = read(Browser(reads), "/")
    assert page.text.count("STORE_UNAVAILABLE: no host answered") == 5
    assert "a to b: not known" in page.text
    assert "aggregate-b" in page.text


def _facts(page: Read) -> dict[str, str]:
    """The labels and values above the overview."""
    text = page.text.split("Safe to fail over?")[0]
    labels = ("Open moves", "Groups that are dual active", "Groups with sync problems", "Last drill")
    values = re.split("|".join(labels), text)[1:]
    return {label: value.strip() for label, value in zip(labels, values, strict=True)}


def test_the_overview_begins_with_what_somebody_has_to_see_to() -> None:
    reads = group_reads()
    assert _facts(read(Browser(reads), "/")) == {
        "Open moves": "none",
        "Groups that are dual active": "none",
        "Groups with sync problems": "0 of 12",
        "Last drill": "passed, 1 h ago",
    }
    reads.told["list_moves"] = overview_pb2.ListMovesResponse(
        moves=[
            overview_pb2.MoveSummary(group="x", state="running"),
            overview_pb2.MoveSummary(group="y", state="interrupted"),
            overview_pb2.MoveSummary(group="z", state="moved", ended=True),
        ]
    )
    reads.told["list_primaries"] = primaries_pb2.ListPrimariesResponse(
        primaries=[decided("x", dual_active=True)]
    )
    reads.told["list_drills"] = overview_pb2.ListDrillsResponse()
    reads.told["list_sync_problems"] = StoreUnavailableError("no host answered")
    page = read(Browser(reads), "/")
    assert _facts(page) == {
        "Open moves": "1 running, 1 interrupted",
        "Groups that are dual active": "1",
        "Groups with sync problems": "\u2013",
        "Last drill": "never",
    }
    assert {"/moves", "/primaries", "/sync-problems", "/drills"} <= {
        item["href"] for item in page.all("a") if "href" in item
    }


def test_the_overview_says_of_how_many_moves_it_speaks_if_there_are_more() -> None:
    reads = group_reads()
    ended = overview_pb2.MoveSummary(group="z", state="moved", ended=True)
    reads.told["list_moves"] = overview_pb2.ListMovesResponse(moves=[ended] * 3, next_after="on")
    page = read(Browser(reads), "/")
    assert _facts(page)["Open moves"] == "none, of the newest 15"
    assert "The newest 15 moves were looked at" in page.text
    asked = [options["after"] for call, options in reads.asked if call == "list_moves"]
    assert asked == ["", "on", "on", "on", "on"]


def test_the_overview_draws_every_route_with_its_state_in_words() -> None:
    page = read(Browser(group_reads()), "/")
    (drawing,) = (item for item in page.all("svg") if "ways" in item["class"])
    assert drawing["role"] == "img"
    for route in ("a->a", "a->b", "b->a", "b->b"):
        assert f"{route} copying (lag 0, latency 180 ms)" in page.text


def test_more_routes_than_a_picture_can_show_are_told_by_the_list_alone() -> None:
    reads = group_reads()
    routes = reads.told["list_replication"]
    assert isinstance(routes, overview_pb2.ListReplicationResponse)
    for number in range(40):
        routes.routes.add(
            route=f"a->c{number}", source_cluster="regional-a", target_cluster=f"aggregate-c{number}"
        )
    assert not [item for item in read(Browser(reads), "/").all("svg") if "ways" in item["class"]]


def test_unknown_is_a_dash_and_zero_is_zero() -> None:
    rows = cells(Browser(group_reads()).get("/group", params={"name": "billing"}).text)
    known, unknown = rows["At aggregate-a"]
    assert known[2:4] == ["1,430", "0"]
    assert unknown[2:4] == ["\u2013", "\u2013"]


def test_what_can_not_be_read_tells_its_problem_and_no_figures() -> None:
    reads = group_reads()
    problem = overview_pb2.SyncProblem(reason="unreadable_row", problem="newer")
    reads.told |= {
        "list_sync_problems": overview_pb2.ListSyncProblemsResponse(
            groups=[overview_pb2.GroupProblems(group="g", problems=[problem], count=1)]
        ),
        "list_groups": overview_pb2.ListGroupsResponse(
            groups=[overview_pb2.GroupSummary(group="g", sync=overview_pb2.GroupSync(problem="newer"))]
        ),
        "list_moves": overview_pb2.ListMovesResponse(
            moves=[overview_pb2.MoveSummary(group="g", move_id="0192", problem="newer")]
        ),
    }
    client = Browser(reads)
    for path, names in (
        ("/sync-problems", ("outcome", "since")),
        ("/groups", ("partitions", "since")),
        ("/moves", ("partitions",)),
    ):
        assert "newer" in read(client, path).text
        (row,) = client.get(f"{path}.json").json()["rows"]
        assert [row[name] for name in names] == [None] * len(names)
    assert not any(words in read(client, "/sync-problems").text for words in (" ago", "UNSPECIFIED"))


def test_a_drill_that_can_not_be_read_leads_nowhere() -> None:
    reads = group_reads()
    drill = overview_pb2.DrillSummary(drill_id="0192", problem="newer")
    reads.told["list_drills"] = overview_pb2.ListDrillsResponse(drills=[drill])
    page = read(Browser(reads), "/drills")
    assert "newer" in page.text
    leads = {urlsplit(item["href"]).path for item in page.all("a") if "href" in item}
    assert not leads & {"/group", "/drilling"}


def test_what_was_seen_earlier_tells_its_age() -> None:
    reads = group_reads()
    positions = reads.told["get_group_positions"]
    assert isinstance(positions, pb.GetGroupPositionsResponse)
    positions.clusters[0].positions[0].observed_at_ms = NOW_MS - 90_000
    text = read(Browser(reads), "/group", name="billing").text
    assert "seen 1 min 30 s ago" in text


def test_a_cluster_that_is_away_leaves_the_others_on_the_page() -> None:
    text = read(Browser(group_reads()), "/group", name="billing").text
    assert "aggregate-c: no broker answered" in text
    assert "1,430" in text
    assert "PENDING" in text


def test_an_answer_that_can_not_be_had_leaves_the_positions() -> None:
    reads = group_reads()
    reads.told["get_group_failover_offsets"] = StoreUnavailableError("no host answered")
    reads.told["get_primary"] = ForbiddenError("you may not read it")
    text = read(Browser(reads), "/group", name="billing").text
    assert "STORE_UNAVAILABLE: no host answered" in text
    assert "What was decided is not known: you may not read it" in text
    assert "1,430" in text


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ServiceUnavailableError("no target answered"), 503, "Is parallax serve up?"),
        (StoreUnavailableError("no host"), 503, "look at Cassandra"),
        (UnknownGroupError("no such group"), 404, "no such group"),
        (ForbiddenError("may not"), 403, "the right to read"),
        (ParallaxError("odd"), 500, "odd"),
    ],
)
def test_an_error_is_a_page_with_what_to_do(error: ParallaxError, status: int, words: str) -> None:
    reads = FakeReads(dict.fromkeys(group_reads().told, error))
    page = read(Browser(reads), "/group", status, name="billing")
    assert words in page.text.replace("`", "")
    assert error.code in page.text
    assert page.all("nav")


def test_a_bug_is_a_page_too_and_tells_nothing_of_itself() -> None:
    reads = FakeReads({})
    with capture_logs() as logs:
        page = read(Browser(reads), "/primaries", 500)
    assert [(entry["event"], entry["path"]) for entry in logs] == [("console_failed", "/primaries")]
    assert "its log says how" in page.text
    assert "KeyError" not in page.text


@pytest.mark.parametrize(
    ("path", "parameters", "status"),
    [
        ("/group", {}, 400),
        ("/group", {"name": "x" * 1_001}, 400),
        ("/explain", {**EXPLAIN, "partition": "-1"}, 400),
        ("/explain", {**EXPLAIN, "partition": "one"}, 400),
        ("/explain", {**EXPLAIN, "range": "5:1"}, 400),
        ("/explain", {**EXPLAIN, "next_offset": str(2**63)}, 400),
        ("/nowhere", {}, 404),
        ("/static/..%2fapp.py", {}, 404),
        ("/static/htmx.LICENSE", {}, 404),
    ],
)
def test_what_can_not_be_asked_is_refused(path: str, parameters: dict[str, str], status: int) -> None:
    assert Browser(group_reads()).get(path, params=parameters).status_code == status


def test_nothing_can_be_changed() -> None:
    client = Browser(group_reads())
    for path, parameters in PAGES:
        for method in ("POST", "PUT", "DELETE"):
            assert client.request(method, path, params=parameters).status_code == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7680", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:7680", 200),
        ("evil.example:7680", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_a_page_of_somebody_else_gets_nothing_by_giving_its_name_this_address(host: str, status: int) -> None:
    answer = Browser(group_reads()).get("/primaries", headers={"host": host})
    assert answer.status_code == status
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


# --- what is vendored ----------------------------------------------------------------------------------------------


def test_what_is_vendored_is_what_its_page_says() -> None:
    static = Path(console.web.__file__).parent / "static"
    told = re.findall(r"\| `(\S+)` \| (\S+) \| `([0-9a-f]{64})` \|", (static / "VENDORED.md").read_text())
    assert [name for name, _, _ in told] == ["htmx.min.js"]
    for name, _, digest in told:
        assert hashlib.sha256((static / name).read_bytes()).hexdigest() == digest
    assert "Zero-Clause BSD" in (static / "htmx.LICENSE").read_text()


def test_files_may_be_kept_for_they_change_their_address() -> None:
    client = Browser(group_reads())
    page = read(client, "/primaries")
    loaded = [item["src"] for item in page.all("script")] + [item["href"] for item in page.all("link")]
    assert len(loaded) == 5
    for address in loaded:
        answer = client.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["Cache-Control"]
        assert "?v=" in address
    assert "allowEval" in page.all("meta")[3]["content"]


def cells(text: str) -> dict[str, list[list[str]]]:
    """The rows of each table, by the heading above it."""
    found: dict[str, list[list[str]]] = {}
    for section in re.findall(r"<section>.*?</section>", text, re.DOTALL):
        heading = re.findall(r"<h2>(.*?)</h2>", section)[0]
        body = (re.findall(r"<tbody>(.*?)</tbody>", section, re.DOTALL) or [""])[0]
        found[heading] = [
            [
                re.sub(r"<small>.*?</small>|<[^>]+>", "", cell).strip()
                for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)
            ]
            for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
        ]
    return found


def test_viewers_of_a_page_share_one_question_and_who_opens_it_asks_anew() -> None:
    reads = group_reads()
    client = Browser(reads)
    for _ in range(5):
        assert client.get("/groups", params={"seen": "x"}).status_code == 200
    assert [name for name, _ in reads.asked] == ["list_groups"]
    client.get("/groups")
    assert [name for name, _ in reads.asked] == ["list_groups"] * 2


def test_a_group_of_ten_thousand_partitions_is_a_page_that_a_browser_bears() -> None:
    reads = group_reads()
    positions, answers = reads.told["get_group_positions"], reads.told["get_group_failover_offsets"]
    assert isinstance(positions, pb.GetGroupPositionsResponse)
    assert isinstance(answers, pb.GetGroupFailoverOffsetsResponse)
    for cluster in positions.clusters:
        cluster.positions.extend(
            pb.GroupPosition(topic="many", partition=number, next_offset=number, high_watermark=number)
            for number in range(10_000)
        )
    answers.offsets.extend(
        pb.FailoverOffset(group="billing", topic="many", partition=number, outcome=pb.OK)
        for number in range(10_000)
    )
    page = Browser(reads).get("/group", params={"name": "billing"})
    assert len(page.content) < 150_000
    assert "more partitions: parallax offsets GROUP has all." in page.text


def test_primaries_come_page_by_page() -> None:
    reads = FakeReads(
        {
            "list_primaries": primaries_pb2.ListPrimariesResponse(
                primaries=[decided("billing")], next_after="billing"
            )
        }
    )
    page = read(Browser(reads), "/primaries", prefix="b", after="a")
    assert reads.asked == [("list_primaries", {"prefix": "b", "after": "a", "limit": 100})]
    (following,) = (item for item in page.all("a") if item.get("rel") == "next")
    assert following["href"] == "/primaries?prefix=b&after=billing"
