"""The direction of imports, the size of modules, and what a consumer's install needs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
TESTS = Path(__file__).parents[1]
PACKAGES = {"parallax", "replicator", "offsetsvc", "syncjob", "failover", "devstack"}
MAX_LINES = 350

PORTS = {"parallax.ports", "parallax.index_ports", "parallax.decision_ports"}
BELOW_SERVICES = {"parallax.domain", *PORTS, "parallax.adapters", "parallax.runtime"}

LAYERS = {
    "parallax.domain": {"parallax.domain"},
    "parallax.ports": {"parallax.domain"},
    "parallax.index_ports": {"parallax.domain"},
    "parallax.decision_ports": {"parallax.domain"},
    "parallax.adapters": {"parallax.domain", *PORTS, "parallax.runtime"},
    "parallax.runtime": {"parallax.domain", "parallax.ports"},
    "replicator": BELOW_SERVICES,
    "offsetsvc": BELOW_SERVICES,
    "syncjob": BELOW_SERVICES,
    "failover": BELOW_SERVICES,
    # The seams: syncjob asks like any other client.
    "parallax.cli": PACKAGES,
    "devstack": PACKAGES,
}
"""What each layer may import besides itself."""

CROSSINGS = {
    "syncjob": {"offsetsvc.client", "offsetsvc.convert", "offsetsvc.credentials", "offsetsvc.pb"},
    "failover": {
        "offsetsvc.client",
        "offsetsvc.convert",
        "offsetsvc.credentials",
        "offsetsvc.failover_consumer",
        "offsetsvc.lineages",
        "offsetsvc.pb",
        "offsetsvc.primary_convert",
        "syncjob",
    },
}
"""What a service may import of another."""

CONSUMER_MODULES = ["offsetsvc.client", "offsetsvc.failover_consumer", "offsetsvc.failover_producer"]
BASE_DEPENDENCIES = {"confluent_kafka", "grpc", "google", "structlog"}


def name_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SRC.rglob("*.py"))}


def is_generated(name: str) -> bool:
    return ".pb." in f"{name}."


def imports(name: str) -> set[str]:
    """Absolute names of the modules that a module imports, wherever it does; type-checking only ones too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
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


def layer_of(name: str) -> str | None:
    return next((layer for layer in LAYERS if within(name, layer)), None)


@pytest.mark.parametrize("name", [name for name in MODULES if not is_generated(name)])
def test_imports_point_one_way(name: str) -> None:
    layer = layer_of(name)
    if layer is None:
        assert name == "parallax", f"{name} belongs to no layer"
        return
    allowed = LAYERS[layer] | {layer} | CROSSINGS.get(layer, set())
    wrong = {
        found
        for found in imports(name)
        if found.partition(".")[0] in PACKAGES and not any(within(found, package) for package in allowed)
    }
    assert not wrong, f"{name} ({layer}) must not import {sorted(wrong)}"


@pytest.mark.parametrize("name", [name for name in MODULES if within(name, "parallax.domain")])
def test_the_domain_needs_the_standard_library_alone(name: str) -> None:
    foreign = {
        found
        for found in imports(name)
        if found.partition(".")[0] not in sys.stdlib_module_names and not within(found, "parallax.domain")
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
        if found.partition(".")[0] not in PACKAGES | BASE_DEPENDENCIES | set(sys.stdlib_module_names)
    }
    assert not foreign, f"{name} needs {sorted(foreign)}, which a consumer does not install"


def test_modules_have_one_job() -> None:
    """A module that outgrows its bound has found a second one."""
    long = {
        str(path.relative_to(SRC.parent)): lines
        for path in (MODULES[name] for name in MODULES if not is_generated(name))
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert not long
