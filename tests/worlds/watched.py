"""A real Prometheus scrapes the pages of every kind of process, and every query of dashboards and rules has an answer.

    python -m tests.worlds.watched                          pages of a test's own; part of make test-rules
    python -m tests.worlds.watched HOST:PORT HOST:PORT ...  those of a running stack, such as the addresses of its /metrics

It needs Prometheus, and for the first of both no broker, no store and no Spark. What a query compares with (`> 10`) is left
out: that it has an answer at all is what is asked. A running stack has no answer where nothing is wrong, decided, kept in step or
chosen to be told of (`NOT_ALWAYS`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Page
from starlette.types import ASGIApp

from lab.dashboards.boards import DASHBOARDS
from offsetsvc.metrics import ServiceMetrics
from parallax.adapters.http.metrics import compressed, metrics_page
from parallax.adapters.http.server import HttpServer
from parallax.adapters.spark.status_server import StatusServer
from parallax.config.config import MetricsSettings
from parallax.errors import StoreUnavailableError
from tests.worlds.replication import free_port
from tests.worlds.scrapes import boards, console, service

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yaml"
SETTINGS = MetricsSettings(old_names=False)
WITHIN_S = 90.0
"""Scrapes are a second apart, and rates need two; the rest is for a busy machine."""

NOT_ALWAYS = (
    "parallax_replicator_stop_reason",
    "parallax_upkeep_",
    "parallax_replicator_canary_",
    "parallax_offsetsvc_dual_active",
    "parallax_offsetsvc_newest_drill_start_timestamp_seconds",
    "parallax_offsetsvc_oldest_move_start_timestamp_seconds",
    "parallax_offsetsvc_refresh_failures_total",
    "parallax_offsetsvc_issuer_keys_age_seconds",
    "parallax_offsetsvc_unaudited_reports_total",
    'code!="OK"',
    "parallax_offsetsvc_primary_groups",
    "parallax_offsetsvc_lag_groups",
    "parallax_offsetsvc_group_lag_state",
)


def queries() -> list[str]:
    """Every query of dashboards and rules, without what it compares with."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    exprs = [rule["expr"] for group in rules for rule in group["rules"]]
    exprs += [query.expr for board in DASHBOARDS for panel in board.panels for query in panel.queries]
    bare = (re.sub(r"\s*(==|>|<)\s*[\d.]+", "", re.sub(r"\$(source|target)", ".*", expr)) for expr in exprs)
    return sorted({re.sub(r"^absent\((.*)\)$", r"\1", expr) for expr in bare})


@contextmanager
def pages() -> Iterator[tuple[list[str], ServiceMetrics]]:
    """The addresses of a replicator's page with the sync job's, of an offset service's and of a console's, all in trouble."""
    metrics = service(SETTINGS)
    with ExitStack() as stack:
        status = StatusServer("127.0.0.1:0", boards(SETTINGS), token="")
        rest, seen = (
            HttpServer(_page_of(registry), address="127.0.0.1:0")
            for registry in (metrics.registry, console().registry)
        )
        for server, stop in ((status, status.close), (rest, rest.stop), (seen, seen.stop)):
            server.start()
            stack.callback(stop)
        ports = (status.address[1], rest.port, seen.port)
        yield [f"127.0.0.1:{port}" for port in ports], metrics


def _page_of(registry: CollectorRegistry) -> ASGIApp:
    def page(_request: Request) -> Response:
        kind, body = metrics_page(registry)
        return Response(body, media_type=kind)

    return compressed(Starlette(routes=[Page("/metrics", page)]))


@contextmanager
def prometheus(targets: Sequence[str]) -> Iterator[str]:
    """The address of a Prometheus that scrapes these every second, and goes by the rules of deploy/."""
    program = shutil.which("prometheus")
    if program is None:
        sys.exit("prometheus is missing: apt-get install prometheus")
    with tempfile.TemporaryDirectory(prefix="prometheus-") as folder:
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "parallax", "static_configs": [{"targets": list(targets)}]}],
        }
        path = Path(folder) / "prometheus.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        at = f"127.0.0.1:{free_port()}"
        with (Path(folder) / "log").open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={path}",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address={at}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            yield f"http://{at}"
        finally:
            process.terminate()
            process.wait(30)


def answers(address: str, expr: str) -> int:
    """How many series a query has now; 0 too while Prometheus does not answer yet."""
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310 - http, of this module's own making
            found: Mapping[str, Any] = json.load(reply)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it listens before it is ready
            return 0
        sys.exit(f"{expr}: {error.read().decode()}")
    except OSError:
        return 0
    return len(found["data"]["result"])


def unanswered(address: str, live: ServiceMetrics | None, excused: Sequence[str] = ()) -> list[str]:
    """The queries that have no answer: excused ones by then, all others in time."""
    waiting, give_up_at = queries(), time.monotonic() + WITHIN_S
    while unexcused(waiting, excused) and time.monotonic() < give_up_at:
        if live is not None:
            _ask_something(live)
        time.sleep(0.5)
        waiting = [expr for expr in waiting if not answers(address, expr)]
    return waiting


def unexcused(exprs: Sequence[str], excused: Sequence[str]) -> list[str]:
    """Those of queries that ask for no excused metric."""
    return [expr for expr in exprs if not any(part in expr for part in excused)]


def _ask_something(metrics: ServiceMetrics) -> None:
    with metrics.request("grpc", "ListRuns"):
        pass
    try:
        with metrics.request("rest", "ListRoutes"):
            raise StoreUnavailableError("away")  # noqa: TRY301 - as a call that fails
    except StoreUnavailableError:
        pass


def main(targets: Sequence[str]) -> None:
    """Exit code 1: a query has no answer."""
    with ExitStack() as stack:
        if targets:
            address, live, excused = stack.enter_context(prometheus(targets)), None, NOT_ALWAYS
        else:
            (own, live), excused = stack.enter_context(pages()), ()
            address = stack.enter_context(prometheus(own))
        silent = unanswered(address, live, excused)
    wrong = unexcused(silent, excused)
    sys.stdout.write(f"{len(queries())} queries, {len(silent)} without an answer\n")
    for expr in silent:
        sys.stdout.write(f"{'WRONG  ' if expr in wrong else 'excused'} {expr}\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
