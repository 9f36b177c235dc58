"""What operators look at where there is much: lists, pages and a scrape over 10,000 groups and two routes of 10,000 partitions.

Services and console are processes of their own on a real Cassandra and real brokers; the stores are filled by their own
adapters. Processor time is that of each process, whatever else the machine does.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from urllib.parse import urlencode

import httpx
import psutil

from lab.bench import BenchError
from lab.bench.report import Measure, Round, percentile
from lab.bench.rows import BenchPlace, Play, Row
from lab.bench.rows.answers import PARTITIONS, SOURCES, TOPIC, fill_index
from lab.bench.rows.crowd import ROUTES, fill_groups, fill_routes, name_of, tell_cycle
from lab.bench.rows.history import HistorySize
from lab.bench.rows.many_groups import commit_as
from lab.bench.sides.parallax import console_spec, service_spec
from lab.bench.stage import BenchStage
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.http.metrics import metrics_page, process_registry
from parallax.config.config import MetricsSettings, load
from replicator.lease import Lease, LeaseKey, LeaseProgress, PartitionProgress, PartitionStatus
from replicator.leases.board import LeaseReport, ProgressBoard
from replicator.leases.claims import Claims
from replicator.leases.status import ReplicationStatus

_RUNS = 400
"""Of each source in each partition of the topic that is explained."""
_PAGE = 100
_ASKED = 40
"""Times that each list and page is asked for, one after another."""
_LOOK_EVERY_S = 5.0
"""As pages do (`console/templates/page.html`)."""
_ANSWER_S = 60.0
_SHARDS = 2


@dataclass(frozen=True)
class OperatorsRow(Row):
    """Lists, pages, viewers and a scrape; MirrorMaker 2 has none of them.

    Attributes:
        groups: in the stores.
        partitions: of each of two routes.
        viewers: each with a page open, which asks anew every five seconds.
        window_s: how long they look.
    """

    groups: int = 10_000
    partitions: int = 10_000
    viewers: int = 50
    window_s: float = 60.0

    @property
    def place(self) -> BenchPlace:
        """Two aggregate clusters."""
        return BenchPlace(("a", "b"))

    def play(self, play: Play) -> None:
        """Fill the stores once; start a service and a console, and look, in every round."""
        groups, partitions, window_s = (
            (200, 200, 6.0) if play.settings.smoke else (self.groups, self.partitions, self.window_s)
        )
        missing = play.missing_rounds
        if not missing:
            return
        size = HistorySize(_RUNS)
        config = fill_index(play.stage, size, play.tell)
        settings = load(config)
        with CassandraStores(settings.cassandra, settings.index) as stores:
            started = time.monotonic()
            fill_groups(stores, groups)
            play.tell(f"{groups:,} groups are in the stores after {time.monotonic() - started:.0f} s")
            end = size.end(len(SOURCES))
            commit_as(play.stage, name_of(0), TOPIC, dict.fromkeys(range(PARTITIONS), end // 2))
            for number in missing:
                fill_routes(stores, partitions)
                tell_cycle(stores, groups)
                found = _looked(play.stage, config, self.viewers, window_s, play.tell)
                found.scrape_cpu_s, found.scrape_bytes = scrape(partitions)
                play.store.add(Round("parallax", number, tuple(found.measures(self.name)), asdict(found)))


@dataclass(slots=True)
class OperatorsFigures:
    """What the row showed.

    Attributes:
        answers_ms: by what was asked of the service over REST, how long each answer took.
        pages_ms: by path, how long each page took; ``pages_bytes``, how large it was.
        console_cores, service_cores: processor time that the viewers cost, of one core.
        console_mib, service_mib: resident after it.
        looks: of the viewers; ``looks_p95_ms``, how long theirs took. ``looks_failed``: by path and what was answered, how many.
        scrape_cpu_s: of a scrape of a replicator; ``scrape_bytes``, its size.
    """

    answers_ms: dict[str, list[float]] = field(default_factory=dict)
    pages_ms: dict[str, list[float]] = field(default_factory=dict)
    pages_bytes: dict[str, int] = field(default_factory=dict)
    console_cores: float = 0.0
    service_cores: float = 0.0
    console_mib: float = 0.0
    service_mib: float = 0.0
    looks: int = 0
    looks_p95_ms: float = 0.0
    looks_failed: dict[str, int] = field(default_factory=dict)
    scrape_cpu_s: float = 0.0
    scrape_bytes: int = 0

    def measures(self, name: str) -> Iterator[Measure]:
        """The figures for the report: of lists and pages the worst."""
        lists = {key: times for key, times in self.answers_ms.items() if key != "explain"}
        yield Measure(f"{name}: lists, p95", "ms", "lower", max(_p(times, 95) for times in lists.values()))
        yield Measure(f"{name}: explain, p95", "ms", "lower", _p(self.answers_ms["explain"], 95))
        yield Measure(
            f"{name}: pages, p95", "ms", "lower", max(_p(times, 95) for times in self.pages_ms.values())
        )
        yield Measure(f"{name}: largest page", "KB", "lower", max(self.pages_bytes.values()) / 1_000)
        yield Measure(f"{name}: viewers, console", "cores", "lower", self.console_cores)
        yield Measure(f"{name}: viewers, service", "cores", "lower", self.service_cores)
        yield Measure(f"{name}: console, resident", "MiB", "lower", self.console_mib)
        yield Measure(f"{name}: service, resident", "MiB", "lower", self.service_mib)
        yield Measure(f"{name}: a scrape", "CPU s", "lower", self.scrape_cpu_s)
        yield Measure(f"{name}: a scrape, size", "KB", "lower", self.scrape_bytes / 1_000)


def _p(times_ms: Sequence[float], percent: float) -> float:
    return percentile(sorted(times_ms), percent)


def _asked() -> Mapping[str, str]:
    """Every list of the service's REST, and the answer that is explained."""
    middle = name_of(5_000)
    partitions = f"/v1/replication/{ROUTES[0]}/partitions?limit={_PAGE}"
    return {
        "groups": f"/v1/groups?limit={_PAGE}",
        "groups in the middle": f"/v1/groups?limit={_PAGE}&after={middle}",
        "groups by prefix": f"/v1/groups?limit={_PAGE}&prefix=crowd-09",
        "replication": "/v1/replication",
        "partitions": partitions,
        "partitions by lag": f"{partitions}&sort=lag",
        "partitions, the worst first": f"{partitions}&sort=worst",
        "partitions stopped": f"{partitions}&state=stopped",
        "moves": f"/v1/moves?limit={_PAGE}",
        "sync problems": f"/v1/sync/problems?limit={_PAGE}",
        "explain": f"/v1/groups/{name_of(0)}/topics/{TOPIC}/partitions/3/failover-offset?to=b",
    }


def _pages() -> Sequence[str]:
    explained = urlencode({"group": name_of(0), "topic": TOPIC, "partition": 3, "to": "b"})
    route = urlencode({"route": str(ROUTES[0])})
    return (
        "/",
        "/groups",
        f"/groups?after={name_of(5_000)}",
        f"/group?name={name_of(0)}",
        f"/explain?{explained}",
        "/routes",
        f"/route?{route}",
        "/moves",
        "/primaries",
        "/sync-problems",
    )


def _looked(
    stage: BenchStage, config: Path, viewers: int, window_s: float, tell: Callable[[str], None]
) -> OperatorsFigures:
    found = OperatorsFigures()
    with ExitStack() as clean_up:
        roots = {}
        console, url = console_spec(stage.stack, config, "b")
        for spec in (service_spec(stage.stack, config, "b"), console):
            process = stage.process(spec)
            clean_up.callback(process.stop)
            process.start()
            if process.pid is None:
                raise BenchError(f"{spec.name} does not run")
            roots[spec.name] = [process.pid]
        shown, service = roots[console.name], roots["offsetsvc-b"]
        with httpx.Client(timeout=_ANSWER_S) as client:
            for name, path in _asked().items():
                times_ms, _ = _timed(client, f"{stage.stack.layout.rest_url('b')}{path}")
                found.answers_ms[name] = times_ms
                tell(f"{name}: p50 {_p(times_ms, 50):.0f} ms, p95 {_p(times_ms, 95):.0f} ms")
            for path in _pages():
                times_ms, size = _timed(client, f"{url}{path}")
                found.pages_ms[path], found.pages_bytes[path] = times_ms, size
                tell(
                    f"page {path}: p50 {_p(times_ms, 50):.0f} ms, p95 {_p(times_ms, 95):.0f} ms, {size:,} bytes"
                )
        before = stage.cpu_s(console=shown, service=service)
        times_ms, failed = asyncio.run(_look(url, viewers, window_s))
        after = stage.cpu_s(console=shown, service=service)
        found.console_cores = (after["console"] - before["console"]) / window_s
        found.service_cores = (after["service"] - before["service"]) / window_s
        found.console_mib, found.service_mib = map(_resident_mib, (shown, service))
        found.looks, found.looks_p95_ms = len(times_ms), _p(times_ms, 95)
        found.looks_failed = dict(failed)
        for what, count in failed.items():
            tell(f"{count} looks failed: {what}")
        tell(
            f"{found.looks} looks, p95 {found.looks_p95_ms:.0f} ms: console {found.console_cores:.3f} cores and "
            f"{found.console_mib:.0f} MiB, service {found.service_cores:.3f} cores and {found.service_mib:.0f} MiB"
        )
    return found


def _timed(client: httpx.Client, url: str) -> tuple[list[float], int]:
    """How long each answer took, and the size of the last, unpacked."""
    times_ms = []
    size = 0
    for _ in range(_ASKED):
        started = time.perf_counter()
        answer = client.get(url)
        times_ms.append((time.perf_counter() - started) * 1_000)
        _require(answer)
        size = len(answer.content)
    return times_ms, size


def _require(answer: httpx.Response) -> None:
    if answer.status_code not in {httpx.codes.OK, httpx.codes.NO_CONTENT}:
        raise BenchError(f"{answer.request.url}: {answer.status_code}: {answer.text[:500]}")


async def _look(url: str, viewers: int, window_s: float) -> tuple[list[float], Counter[str]]:
    """Every viewer has one of the pages open, and asks for what has changed every five seconds; how long that took, and what failed.

    An error counts as an answer that took for ever.
    """
    times_ms: list[float] = []
    failed: Counter[str] = Counter()
    end = time.monotonic() + window_s
    limits = httpx.Limits(max_connections=viewers)

    async def look(number: int, path: str, client: httpx.AsyncClient) -> None:
        due = time.monotonic() + number * _LOOK_EVERY_S / viewers
        seen = ""
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            started = time.perf_counter()
            answer = await client.get(f"{url}{path}{'&' if '?' in path else '?'}seen={seen or 'nothing'}")
            took_ms = (time.perf_counter() - started) * 1_000
            times_ms.append(took_ms if answer.is_success else _ANSWER_S * 1_000)
            if not answer.is_success:
                failed[f"{path}: {answer.status_code}: {_error_on(answer.text)}"] += 1
            seen = answer.text.partition("seen=")[2][:16] or seen
            due += _LOOK_EVERY_S

    async with httpx.AsyncClient(timeout=_ANSWER_S, limits=limits) as client:
        await asyncio.gather(
            *(
                look(number, path, client)
                for number, path in zip(range(viewers), cycle(_pages()), strict=False)
            )
        )
    return times_ms, failed


def _error_on(page: str) -> str:
    """What an error page says, without its tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("<main")[2]).split())[:300]


def _resident_mib(roots: Sequence[int]) -> float:
    """Of process trees."""
    trees = [
        process for root in map(psutil.Process, roots) for process in (root, *root.children(recursive=True))
    ]
    return sum(process.memory_info().rss for process in trees) / 2**20


def scrape(partitions: int, clock: Callable[[], float] = time.process_time) -> tuple[float, int]:
    """The processor seconds and the size of a scrape of a replicator with two routes, with default settings."""
    board = ProgressBoard([LeaseKey(route, shard) for route in ROUTES for shard in range(_SHARDS)])
    for route in ROUTES:
        for shard in range(_SHARDS):
            lease = Lease(route, shard, shard_count=_SHARDS, layout=1, epoch=1, deadline_unix_ms=0)
            parts = tuple(
                PartitionProgress(
                    f"topic-{number // 100}", number % 100, 5, 500, 5, number, 12.5, PartitionStatus.COPYING
                )
                for number in range(shard, partitions, _SHARDS)
            )
            progress = LeaseProgress(lease, parts, transactions=1, aborts=0, index_lag_ms=0)
            board.record(LeaseReport(progress, "bench"))
    registry = process_registry("replicator")
    registry.register(ReplicationStatus(board, Claims([]), MetricsSettings()))
    metrics_page(registry)
    started = clock()
    _, page = metrics_page(registry)
    return clock() - started, len(page)
