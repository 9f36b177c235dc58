"""The direction of imports: who may import whom, no circle, and what a consumer's install needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("parallax", "replicator", "offsetsvc", "syncjob", "console", "lab")

FOUNDATION = {"parallax.errors", "parallax.v1"}
CORE = FOUNDATION | {"parallax.domain", "parallax.runtime"}
CLIENTS = CORE | {"parallax.client"}
BASE = CLIENTS | {"parallax.consumer", "parallax.producer"}
SERVICES = {"parallax.config", "parallax.ports", "parallax.index", "parallax.identity", "parallax.adapters"}

LAYERS = {
    "parallax.errors": set(),
    "parallax.v1": set(),
    "parallax.moved": set(),
    "parallax.domain": {"parallax.errors"},
    "parallax.runtime": {"parallax.errors"},
    "parallax.client": CORE,
    "parallax.consumer": CLIENTS,
    "parallax.producer": CLIENTS,
    "parallax.picture": CORE,
    "parallax.testing": CLIENTS | {"parallax.consumer"},
    "parallax.ports": CORE,
    "parallax.index": CORE | {"parallax.ports"},
    "parallax.config": CORE,
    "parallax.identity": CORE | {"parallax.config"},
    "parallax.adapters": CORE | {"parallax.config", "parallax.ports", "parallax.index", "parallax.identity"},
    "parallax.wiring": CLIENTS | {"parallax.config"},
    "parallax.failover": BASE | SERVICES | {"parallax.wiring"},
    "parallax.upkeep": CORE | SERVICES,
    "parallax.cli": BASE
    | SERVICES
    | {"parallax.wiring", "parallax.failover", "parallax.upkeep", "parallax.picture"},
    "offsetsvc": {"parallax"},
    "syncjob": {"parallax"},
    "console": {"parallax"},
    "replicator": {"parallax"},
    "replicator.command": {"parallax", "replicator", "syncjob"},
    "lab": set(PACKAGES),
}
"""What each layer may import besides itself; the longest name that fits a module counts."""

CONSUMER_MODULES = [
    "parallax",
    "parallax.testing",
    "parallax.client.client",
    "parallax.consumer.consumer",
    "parallax.producer.producer",
]
BASE_DEPENDENCIES = {"confluent_kafka", "grpc", "google", "structlog"}
OPTIONAL = "opentelemetry"
"""Used where it is installed (`parallax.runtime.tracing`)."""

PLANNING_MODULES = ["replicator.leases.query", "syncjob.query"]
"""Preloaded by every kind of Spark's Python workers, also by those that plan and commit epochs."""

CLIENT_LIBRARIES = {"confluent_kafka", "kafka", "grpc", "cassandra"}


ASKING_MODULES = ["completion", "connecting", "lists", "offsets", "primary", "status"]
"""Of parallax.cli: commands that ask offset services and nobody else."""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


def imports(name: str) -> set[str]:
    """Absolute names of the modules that a module imports, wherever it does; type-checking only ones too."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} imports relatively"
            base = node.module or ""
            found |= {
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names
            }
    return found


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def is_ours(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES


def layer_of(name: str) -> str | None:
    return max((layer for layer in LAYERS if within(name, layer)), key=len, default=None)


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_one_way(name: str) -> None:
    layer = layer_of(name)
    if layer is None:
        assert name in {"parallax", "parallax.__main__"}, f"{name} belongs to no layer"
        return
    allowed = LAYERS[layer] | {layer}
    wrong = {
        found
        for found in imports(name)
        if is_ours(found) and not any(within(found, package) for package in allowed)
    }
    assert not wrong, f"{name} ({layer}) must not import {sorted(wrong)}"


def test_no_circle() -> None:
    """Nor between the modules of one layer, nor by an import within a function or for types alone."""
    below = {name: {found for found in imports(name) if found in MODULES} for name in MODULES}
    while below:
        free = {name for name, needs in below.items() if not needs & below.keys() - {name}}
        assert free, f"these import each other, directly or through others: {sorted(below)}"
        below = {name: needs for name, needs in below.items() if name not in free}


@pytest.mark.parametrize("name", [name for name in MODULES if within(name, "parallax.domain")])
def test_the_domain_needs_the_standard_library_alone(name: str) -> None:
    foreign = {
        found
        for found in imports(name)
        if found.partition(".")[0] not in sys.stdlib_module_names and not is_ours(found)
    }
    assert not foreign
    assert not imports(name) & {"time", "random", "socket", "threading", "os"}, "no clocks, chance or I/O"


def imported_with(name: str) -> set[str]:
    """All modules that importing ``name`` imports: ours transitively, others by name."""
    seen: set[str] = set()
    waiting = {name}
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if module in MODULES:
            parents = {module.rsplit(".", count)[0] for count in range(1, module.count(".") + 1)}
            waiting |= (imports(module) | parents) - seen
    return seen


@pytest.mark.parametrize("name", CONSUMER_MODULES)
def test_a_consumer_needs_the_base_install_alone(name: str) -> None:
    assert name in MODULES
    foreign = {
        found.partition(".")[0]
        for found in imported_with(name)
        if not is_ours(found)
        and found.partition(".")[0] not in BASE_DEPENDENCIES | {OPTIONAL} | set(sys.stdlib_module_names)
    }
    assert not foreign, f"{name} needs {sorted(foreign)}, which a consumer does not install"


@pytest.mark.parametrize("name", CONSUMER_MODULES)
def test_a_consumer_does_without_what_is_optional(name: str) -> None:
    program = f"import sys; sys.modules[{OPTIONAL!r}] = None; import {name}; from parallax.runtime import tracing; tracing.span('x')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("name", PLANNING_MODULES)
def test_what_plans_leases_loads_no_client(name: str) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, {name}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert name in loaded
    assert not CLIENT_LIBRARIES.intersection(loaded)


@pytest.mark.parametrize("name", ASKING_MODULES)
def test_what_asks_offset_services_loads_no_other_client(name: str) -> None:
    """Kafka's would take as long to load as all the rest of such a command."""
    unwanted = {found.partition(".")[0] for found in imported_with(f"parallax.cli.{name}")} & {
        "kafka",
        "cassandra",
    }
    assert f"parallax.cli.{name}" in MODULES
    assert not unwanted
