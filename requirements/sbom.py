"""The bill of materials of the services: build/sbom.json, CycloneDX 1.6, valid by its schema."""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation import make_schemabased_validator
from packageurl import PackageURL

from requirements.licences import LOCK, ROOT, Locked, licence_of, locked

LICENCES = LicenseFactory()
VENDORED = ROOT / "console" / "static" / "VENDORED.md"
_VENDORED_ROW = re.compile(r"^\| `\S+` \| (\S+) \| `([0-9a-f]{64})` \| (\S+) \| `(\S+)` \|$", re.MULTILINE)


def component(item: Locked) -> Component:
    """A line of the lock. One with a marker carries it as the property ``parallax:marker``."""
    purl = PackageURL("pypi", name=item.name, version=item.version)
    return Component(
        type=ComponentType.LIBRARY,
        name=item.name,
        version=item.version,
        bom_ref=str(purl),
        purl=purl,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in item.hashes],
        licenses=[LICENCES.make_from_string(licence_of(item))],
        properties=[Property(name="parallax:marker", value=item.marker)] if item.marker else [],
    )


def vendored(text: str) -> list[Component]:
    """What pages load and the packages bring with them: the rows of `VENDORED`."""
    return [
        Component(
            type=ComponentType.LIBRARY,
            name=name,
            version=version,
            bom_ref=str(purl := PackageURL("npm", name=name, version=version)),
            purl=purl,
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
            licenses=[LICENCES.make_from_string(licence)],
        )
        for version, digest, licence, name in _VENDORED_ROW.findall(text)
    ]


def bill() -> Bom:
    """Parallax, what it installs with its services, and what of it needs what."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    root = Component(
        type=ComponentType.APPLICATION,
        name=project["name"],
        version=project["version"],
        bom_ref="parallax",
        licenses=[LICENCES.make_from_string(project["license"])],
    )
    items = locked(LOCK.read_text(encoding="utf-8"))
    components = [(item, component(item)) for item in items]
    brought = vendored(VENDORED.read_text(encoding="utf-8"))
    bom = Bom(components=[*(made for _, made in components), *brought])
    bom.metadata.component = root
    bom.register_dependency(
        root, [*(made for item, made in components if root.name in item.needed_by), *brought]
    )
    for above, made in components:
        bom.register_dependency(made, [below for item, below in components if above.name in item.needed_by])
    return bom


def main() -> None:
    """Write the bill, and fail if the schema does not allow it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "sbom.json")
    out = parser.parse_args().out
    text = JsonV1Dot6(bill()).output_as_string(indent=2)
    if wrong := make_schemabased_validator(OutputFormat.JSON, SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the bill of materials breaks CycloneDX's schema: {wrong}")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
