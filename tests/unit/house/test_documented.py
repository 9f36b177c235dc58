"""What the pages for users have to name, and the parts that their tables repeat."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from parallax.cli.main import COMMANDS, EXIT_CODES
from parallax.consumer import errors as consumer_errors
from parallax.consumer.events import EventKind as ConsumerEvent
from parallax.consumer.events import EventQueue, FailoverEvent
from parallax.consumer.settings import Policies as ConsumerPolicies
from parallax.domain.outcome import Outcome
from parallax.failover.plan import Ending
from parallax.failover.verify.verdict import Verdict
from parallax.producer.events import ProducerEvent, ProducerEventKind
from parallax.producer.settings import ProducerPolicies
from tests.unit.house.test_imports import CORE, LAYERS, PACKAGES

DOCS = Path(__file__).parents[3] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading row that begins so."""
    lines = text[text.index(heading) :].splitlines()[2:]
    table = lines[: next((n for n, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def words(cells: list[list[str]]) -> list[str]:
    """The names in backticks in the first column."""
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell[0])]


def test_the_consumer_page_explains_every_event() -> None:
    told = words(rows(page("failover-consumer.md"), "| event |"))
    assert sorted(told) == sorted(kind.name for kind in ConsumerEvent)


def test_the_producer_page_explains_every_event() -> None:
    told = words(rows(page("failover-producer.md"), "| event |"))
    assert sorted(told) == sorted(kind.name for kind in ProducerEventKind)


def test_the_runbook_explains_every_outcome() -> None:
    told = words(rows(page("failover.md"), "| outcome in a plan |"))
    told += words(rows(page("failover.md"), "| outcome of the sync job |"))
    assert sorted(set(told)) == sorted(outcome.name for outcome in Outcome)


def leaves(text: str) -> dict[str, str]:
    """The branches of the trees of a page, with what stands at their ends."""
    found = (re.match(r"[│ ]*[├└]─ (.+?) \.{2,} +(.+)", line) for line in text.splitlines())
    return {item[1]: item[2] for item in found if item is not None}


def test_the_tree_leads_from_every_outcome_ending_and_verdict_to_something_to_do() -> None:
    tree = leaves(page("what-to-do.md"))
    named = {word for branch in tree for word in re.findall(r"[A-Za-z_]+", branch)}
    assert {outcome.name for outcome in Outcome} <= named
    assert {ending.value for ending in Ending} <= named
    assert {verdict.name.lower() for verdict in Verdict} <= named
    for branch, what in tree.items():
        assert len(what) > len("done") or "exit code 0" in branch


def test_the_tree_names_commands_that_there_are() -> None:
    told = set(re.findall(r"parallax ([a-z-]+)", page("what-to-do.md")))
    assert told <= set(COMMANDS)
    runbook = page("failover.md") + page("commands.md") + page("alerts.md")
    for option in set(re.findall(r"--[a-z-]+", page("what-to-do.md"))) - {"--sort"}:
        assert option in runbook, option


def test_the_page_of_commands_names_every_one_and_its_exit_codes() -> None:
    told = words(rows(page("commands.md"), "| command |"))
    assert sorted(told) == sorted(f"parallax {name}" for name in COMMANDS)
    codes = {cell[0] for cell in rows(page("commands.md"), "| code |")}
    assert {str(code) for code in EXIT_CODES.values()} < codes


@pytest.mark.parametrize(
    ("name", "policies"),
    [("failover-consumer.md", ConsumerPolicies()), ("failover-producer.md", ProducerPolicies())],
)
def test_the_pages_name_the_defaults(name: str, policies: ConsumerPolicies | ProducerPolicies) -> None:
    told = {cells[0].strip("`"): cells[1].strip("`") for cells in rows(page(name), "| argument |")}
    for argument in policies.__dataclass_fields__:
        default = getattr(policies, argument)
        assert told[argument] == (f'"{default}"' if isinstance(default, str) else f"{default:,}")


def test_the_consumer_page_shows_every_error() -> None:
    text = page("failover-consumer.md")
    own = [
        name
        for name, item in vars(consumer_errors).items()
        if isinstance(item, type)
        and issubclass(item, Exception)
        and item.__module__ == consumer_errors.__name__
    ]
    assert "GroupMovingError" in own
    for name in own:
        assert name in text
        assert name in (consumer_errors.__doc__ or "")


def test_the_imports_of_the_architecture_are_those_that_are_tested() -> None:
    """Every layer has a row, which names the layers that it may import."""
    table = {cells[0]: cells[2] for cells in rows(page("architecture.md"), "| folder | job |")}
    layers = {
        folder.removesuffix(".py").replace("/", "."): cell
        for folders, cell in table.items()
        for folder in re.findall(r"`([^`]+)`", folders)
    }
    assert list(layers) == list(LAYERS)
    parts = {layer.removeprefix("parallax."): {layer} for layer in LAYERS if layer.startswith("parallax.")}
    meanings = parts | {
        "nothing": set(),
        "core": CORE,
        "all of parallax": {"parallax"},
        "replicator": {"replicator"},
        "syncjob": {"syncjob"},
        "everything": set(PACKAGES),
    }
    for layer, cell in layers.items():
        assert set().union(*(meanings[word] for word in cell.split(", "))) == LAYERS[layer], layer


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        (ConsumerEvent.AGAINST_PRIMARY, "warning"),
        (ConsumerEvent.INDEX_INCOMPLETE, "warning"),
        (ConsumerEvent.METADATA_UNREADABLE, "warning"),
        (ConsumerEvent.MOVE_FAILED, "warning"),
        (ConsumerEvent.SERVICE_AWAY, "warning"),
        (ConsumerEvent.SKIPPING_ABANDONED, "warning"),
        (ConsumerEvent.MOVED, "info"),
        (ConsumerEvent.PENDING_STARTED, "info"),
        (ConsumerEvent.SERVICE_BACK, "info"),
        (ConsumerEvent.SKIPPED, "info"),
    ],
)
def test_events_that_ask_for_attention_are_warnings(kind: ConsumerEvent, level: str) -> None:
    with capture_logs() as logs:
        EventQueue(None).put(FailoverEvent(kind, "b"))
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [(kind.value, level)]


@pytest.mark.parametrize("kind", ProducerEventKind)
def test_what_a_producer_tells_is_logged_under_a_name_of_its_own(kind: ProducerEventKind) -> None:
    with capture_logs() as logs:
        ProducerEvent(kind, "b").log()
    warned = kind in (ProducerEventKind.UNFIT, ProducerEventKind.STUCK)
    expected = (f"producer_{kind.value}", "warning" if warned else "info")
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [expected]


PAGES = [
    *DOCS.glob("*.md"),
    *DOCS.glob("decisions/*.md"),
    *(DOCS.parent / name for name in ("README.md", "CONTRIBUTING.md")),
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_name_commands_that_there_are(path: Path) -> None:
    told = re.findall(r"(?:^|`)parallax ([a-z][a-z-]*)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(told) <= COMMANDS.keys()


def test_no_two_decisions_have_one_number() -> None:
    pages = list(DOCS.glob("decisions/[0-9]*.md"))
    assert len({path.name[:4] for path in pages}) == len(pages) > 0
    for path in pages:
        assert path.read_text(encoding="utf-8").startswith(f"# {path.name[:4]} "), path.name
