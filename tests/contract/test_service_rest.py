"""The REST service on a socket: every route, problems, OpenAPI, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from parallax.client.client import at_region
from parallax.client.json import to_json
from parallax.domain.ids import TopicPartition
from parallax.errors import StoreUnavailableError
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.offset_servers import serving
from tests.worlds.offset_world import GROUP, TOPIC, World

PARTITION = f"/topics/{TOPIC}/partitions/0"


@pytest.fixture(scope="module")
def world() -> World:
    made = World()
    for target in ("a", "b"):
        for _ in range(3):
            made.copy("a", target, 2)
            made.copy("b", target, 2)
    made.watermarks()
    made.commit("a", 12)
    return made


@pytest.fixture(scope="module")
def http(world: World) -> Iterator[httpx.Client]:
    with serving(world) as served, served.http() as client:
        served.gauges.refresh()
        yield client


def _json(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


def test_rest_answers_with_the_messages_of_grpc(world: World) -> None:
    to = at_region("b")
    with serving(world) as served, served.http() as http, served.client() as client:
        answers = {
            f"/v1/groups/{GROUP}{PARTITION}/failover-offset?to=b": client.get_failover_offset(
                GROUP, TOPIC, 0, to=to
            ),
            f"/v1/groups/{GROUP}/failover-offsets?to=b": client.get_group_failover_offsets(GROUP, to=to),
            f"/v1/groups/{GROUP}/positions": client.get_group_positions(GROUP),
            "/v1/routes": client.list_routes(),
            f"/v1/routes/a->b{PARTITION}/runs": client.list_runs("a->b", TOPIC, 0),
            f"/v1/routes/a->b{PARTITION}/watermarks": client.list_watermarks("a->b", TOPIC, 0),
            f"/v1/routes/a->b{PARTITION}/translation?target_next_offset=3": client.translate_offset(
                "a->b", TOPIC, 0, target_next_offset=3
            ),
            f"/v1/clusters/b{PARTITION}/records/2/origin": client.lookup_origin(TOPIC, 0, 2, at=to),
            f"/v1/groups/{GROUP}/primary": client.get_primary(GROUP),
            "/v1/primaries": client.list_primaries(),
            "/v1/regions": client.describe_regions(),
        }
        for path, message in answers.items():
            assert _json(http.get(path)) == to_json(message), path


def test_routes_that_do_not_follow_each_other_are_an_unknown_one(http: httpx.Client) -> None:
    path = f"/v1/routes/a->b{PARTITION}/translation?source_next_offset=3&then=b->a"
    answer = http.get(path)

    assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_ROUTE")


def test_failover_offset_of_a_partition(http: httpx.Client) -> None:
    answer = _json(http.get(f"/v1/groups/{GROUP}{PARTITION}/failover-offset", params={"to": "b"}))

    assert (answer["resume_offset"], answer["outcome"], answer["notes"]) == (12, "OK", ["OK"])
    assert answer["from"]["cluster"] == "aggregate-a"
    assert answer["complete_to"] is None
    assert set(answer) == {field.name for field in pb.FailoverOffset.DESCRIPTOR.fields}


def test_failover_offset_by_a_position(http: httpx.Client) -> None:
    params: dict[str, Any] = {"to": "aggregate-b", "from": "a", "next_offset": 4}
    answer = _json(http.get(f"/v1/groups/{GROUP}{PARTITION}/failover-offset", params=params))

    assert (answer["resume_offset"], answer["from"]["basis"]) == (4, "caller")


def test_failover_offset_by_timestamp() -> None:
    made = World()
    for name, region in (("a", made.cluster("a")), ("b", made.cluster("b"))):
        region.lay(TopicPartition(TOPIC, 0), [1_000, 2_000, 3_000] if name == "a" else [1_000, 1_800, 3_000])
    made.commit("a", 1)
    one = f"/v1/groups/{GROUP}{PARTITION}/failover-offset"
    params = {"to": "b", "by_timestamp": True, "margin_ms": 200}
    with serving(made) as served, served.http() as client:
        plain = _json(client.get(one, params={"to": "b"}))
        answers = [
            _json(client.get(one, params=params)),
            *_json(client.get(f"/v1/groups/{GROUP}/failover-offsets", params=params))["offsets"],
        ]
        refused = client.get(one, params={"to": "b", "margin_ms": 200})

    assert (plain["outcome"], plain["by_timestamp"]) == ("EARLIEST_FALLBACK", None)
    for answer in answers:
        assert (answer["outcome"], answer["resume_offset"]) == ("BY_TIMESTAMP", 1)
        assert answer["redelivery_records"] is None
        assert answer["by_timestamp"] == {
            "basis": "position",
            "margin_ms": 200,
            "timestamp_ms": 2_000,
            "problem": "",
            "redelivery_at_most_offsets": 2,
        }
    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_NAME")


def test_failover_offsets_of_a_group(http: httpx.Client) -> None:
    answer = _json(http.get(f"/v1/groups/{GROUP}/failover-offsets", params={"to": "b", "topic": TOPIC}))

    assert [item["resume_offset"] for item in answer["offsets"]] == [12]
    assert answer["outcome"] == "OK"


def test_positions_of_a_group(http: httpx.Client) -> None:
    answer = _json(http.get(f"/v1/groups/{GROUP}/positions"))

    here, there = answer["clusters"]
    assert [(item["next_offset"], item["lag_offsets"]) for item in here["positions"]] == [(12, 0)]
    assert there["positions"] == []


def test_routes(http: httpx.Client) -> None:
    routes = _json(http.get("/v1/routes"))["routes"]

    assert [route["route"] for route in routes] == ["a->a", "b->a", "a->b", "b->b"]
    assert routes[0]["topics"] == [{"topic": TOPIC, "partitions": 1, "freshness_ms": 0, "stopped": []}]


@pytest.mark.parametrize("route", ["a->b", "a-%3Eb"])
def test_runs_and_watermarks(http: httpx.Client, route: str) -> None:
    (lineage,) = _json(http.get(f"/v1/routes/{route}{PARTITION}/runs"))["lineages"]
    (newest,) = _json(http.get(f"/v1/routes/{route}{PARTITION}/watermarks"))["watermarks"]

    assert [run["count_records"] for run in lineage["runs"]] == [2, 2, 2, 0]
    assert (newest["source_next_offset"], newest["target_end"], newest["age_ms"]) == (6, 12, 0)


def test_translation(http: httpx.Client) -> None:
    answer = _json(http.get(f"/v1/routes/a->b{PARTITION}/translation", params={"source_next_offset": 3}))

    assert (answer["target_next_offset"], answer["via"]) == (5, "exact")


def test_origin_of_a_record(http: httpx.Client) -> None:
    answer = _json(http.get(f"/v1/clusters/aggregate-b{PARTITION}/records/2/origin"))

    assert (answer["found"], answer["route"], answer["source_record_offset"]) == (True, "b->b", 0)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"/v1/groups/nobody{PARTITION}/failover-offset?to=b", 404, "UNKNOWN_GROUP"),
        (f"/v1/groups/{GROUP}{PARTITION}/failover-offset?to=x", 404, "UNKNOWN_REGION"),
        (f"/v1/groups/{GROUP}{PARTITION}/failover-offset", 400, "INVALID_NAME"),
        (f"/v1/groups/{GROUP}{PARTITION}/failover-offset?to=b&next_offset=-1", 400, "INVALID_OFFSET"),
        (f"/v1/groups/{GROUP}/topics/{TOPIC}/partitions/9/failover-offset?to=b", 404, "UNKNOWN_PARTITION"),
        (f"/v1/groups/{GROUP}/failover-offsets?to=b&topic=tripz", 404, "UNKNOWN_TOPIC"),
        (f"/v1/groups/{GROUP}/failover-offsets?to=regional-b", 400, "INVALID_NAME"),
        (f"/v1/routes/a->x{PARTITION}/runs", 404, "UNKNOWN_ROUTE"),
        (f"/v1/routes/a->b{PARTITION}/runs?limit=1000000", 400, "INVALID_NAME"),
        (f"/v1/routes/a->b{PARTITION}/runs?start={2**63}", 400, "INVALID_NAME"),
        (f"/v1/routes/a->b{PARTITION}/translation?source_next_offset={10**22}", 400, "INVALID_NAME"),
        (f"/v1/routes/a->b{PARTITION}/translation?target_next_offset={10**22}", 400, "INVALID_NAME"),
        (f"/v1/clusters/b{PARTITION}/records/{10**22}/origin", 400, "INVALID_NAME"),
        (f"/v1/clusters/b{PARTITION}/records/-{10**22}/origin", 400, "INVALID_NAME"),
        (f"/v1/clusters/b/topics/{TOPIC}/partitions/{2**31}/records/0/origin", 400, "INVALID_NAME"),
        (f"/v1/routes/a->b{PARTITION}/runs?start=-1", 400, "INVALID_NAME"),
        (f"/v1/routes/a->b{PARTITION}/translation", 400, "INVALID_NAME"),
        (
            f"/v1/routes/a->b{PARTITION}/translation?source_next_offset=1&target_next_offset=1",
            400,
            "INVALID_NAME",
        ),
        ("/v1/nothing", 404, "NOT_FOUND"),
    ],
)
def test_errors_are_problems_with_the_codes_of_grpc(
    http: httpx.Client, path: str, status: int, code: str
) -> None:
    response = http.get(path)

    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (response.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert problem["detail"]


def test_what_is_missing_stands_in_readyz(
    world: World, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert http.get("/livez").status_code == 200
    assert _json(http.get("/readyz"))["dependencies"] == {"store": "ok", "aggregate-a": "ok"}

    def away(*_: object) -> None:
        raise StoreUnavailableError("Cassandra did not answer")

    monkeypatch.setattr(world.index, "topics", away)
    response = http.get("/readyz")

    assert response.status_code == 503
    assert response.json()["dependencies"]["store"] == "Cassandra did not answer"
    assert http.get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("[" * 100_000 + "]" * 100_000, 413),
        ("[" * 32_000 + "]" * 32_000, 400),
        ("[" * 65_000, 400),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, 400),
        ('{"reason":' + "[" * 32_000 + "]" * 32_000 + "}", 400),
    ],
    ids=["too large", "lists", "unfinished", "objects", "a field"],
)
def test_a_body_of_very_many_levels_is_the_callers_fault(http: httpx.Client, body: str, status: int) -> None:
    """Parsers that descend by recursion end in an error that does not look like one of the body."""
    url = f"/v1/groups/{GROUP}/primary"
    response = http.put(url, content=body, headers={"content-type": "application/json"})

    assert response.headers["content-type"] == "application/problem+json"
    assert (response.status_code, response.json()["status"]) == (status, status), response.text
    assert response.json()["code"] == {413: "LIMIT", 400: "INVALID_NAME"}[status]
    assert response.json()["detail"]


def test_openapi_describes_every_route(http: httpx.Client) -> None:
    described = _json(http.get("/openapi.json"))

    assert len(described["paths"]) == 31
    for path, methods in described["paths"].items():
        for operation in methods.values():
            assert operation["description"], path
            for parameter in operation.get("parameters", []):
                assert parameter["description"], (path, parameter["name"])
    schema = described["paths"]["/v1/groups/{group}/topics/{topic}/partitions/{partition}/failover-offset"]
    answer = schema["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert set(answer["properties"]) == {field.name for field in pb.FailoverOffset.DESCRIPTOR.fields}


def test_openapi_tells_the_errors_that_there_are(http: httpx.Client) -> None:
    described = _json(http.get("/openapi.json"))
    partition = "/v1/routes/{route}/topics/{topic}/partitions/{partition}"
    told = {
        (path, method): set(operation["responses"]) - {"200", "500", "401", "403"}
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }

    answers = [
        operation["responses"] for methods in described["paths"].values() for operation in methods.values()
    ]
    assert {"401", "403"} <= set.intersection(*(set(of) for of in answers if "404" in of))
    assert {key for key, statuses in told.items() if "409" in statuses} == {
        ("/v1/groups/{group}/primary", "put"),
        *((f"/v1/moves/{{move_id}}/{verb}", "post") for verb in ("execute", "cancel", "rollback")),
        ("/v1/drills", "post"),
        ("/v1/drills/{drill_id}/stop", "post"),
    }
    assert {path for (path, _), statuses in told.items() if "429" in statuses} == {
        "/v1/drills",
        "/v1/groups",
        "/v1/groups/{group}/failover-offsets",
        "/v1/moves",
        "/v1/moves/{move_id}/events",
        "/v1/moves/{move_id}/execute",
        "/v1/moves/{move_id}/rollback",
    }
    assert told[f"{partition}/runs", "get"] == {"400", "404", "503"}
    assert told["/livez", "get"] == set()
    assert set(described["components"]["schemas"]) == {
        "PrimaryBody",
        "PlanBody",
        "PartitionSort",
        "CancelBody",
        "ExecuteBody",
        "RollBackBody",
        "RunBody",
        "StopBody",
    }
    for (path, method), statuses in told.items():
        responses = described["paths"][path][method]["responses"]
        assert "422" not in statuses
        assert ("500" in responses) == (path != "/livez")
        for status in sorted({*statuses, "500"} & set(responses)):
            kind = "application/json" if path == "/readyz" and status == "503" else "application/problem+json"
            assert list(responses[status]["content"]) == [kind], (path, status)
    ready = described["paths"]["/readyz"]["get"]["responses"]
    body = ready["503"]["content"]["application/json"]["schema"]["properties"]
    assert set(body) == {"status", "dependencies"} == set(_json(http.get("/readyz")))


def test_metrics_count_requests_and_outcomes(http: httpx.Client) -> None:
    http.get(f"/v1/groups/{GROUP}{PARTITION}/failover-offset", params={"to": "b"})
    http.get("/v1/groups/nobody/positions")

    text = http.get("/metrics").text

    for line in (
        'parallax_offsetsvc_requests_total{code="OK",method="GetFailoverOffset",transport="rest"}',
        'parallax_offsetsvc_requests_total{code="UNKNOWN_GROUP",method="GetGroupPositions",transport="rest"}',
        'parallax_offsetsvc_request_duration_seconds_bucket{le="0.001",method="GetFailoverOffset"',
        'parallax_offsetsvc_outcomes_total{outcome="OK"}',
        f'parallax_offsetsvc_freshness_seconds{{source="a",target="b",topic="{TOPIC}"}}',
        f'parallax_offsetsvc_freshness_ms{{route="a->b",topic="{TOPIC}"}}',
        "parallax_offsetsvc_store_up 1.0",
    ):
        assert line in text


def test_a_scrape_is_gzipped_for_who_takes_it(http: httpx.Client) -> None:
    plain = http.get("/metrics", headers={"Accept-Encoding": "identity"})
    small = http.get("/metrics", headers={"Accept-Encoding": "gzip"})
    assert (plain.headers.get("Content-Encoding"), small.headers["Content-Encoding"]) == (None, "gzip")
    assert int(small.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 2
    assert 'parallax_build_info{component="offsetsvc"' in small.text
    assert "_created" not in small.text
