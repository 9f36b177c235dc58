"""Generate the protobuf code under parallax/v1, or check that it is what the .proto files give (--check)."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = tuple(
    f"parallax/v1/{name}.proto" for name in ("audit", "moves", "offsets", "overview", "primaries", "runlog")
)


def generate(proto: str, out: Path) -> dict[str, str]:
    """The generated files of one .proto, by their paths below the root: code lies where the proto's path says."""
    well_known = str(resources.files("grpc_tools") / "_proto")
    arguments = [
        "protoc",
        f"-I{ROOT / 'proto'}",
        f"-I{well_known}",
        f"--python_out={out}",
        f"--pyi_out={out}",
    ]
    if "service " in (ROOT / "proto" / proto).read_text(encoding="utf-8"):
        arguments.append(f"--grpc_python_out={out}")
    if protoc.main([*arguments, proto]) != 0:
        sys.exit(f"protoc failed on {proto}")
    files = {
        str(path.relative_to(out)): path.read_text(encoding="utf-8") for path in sorted(out.rglob("*.py*"))
    }
    package = Path(proto).parent
    files[f"{package}/__init__.py"] = (
        f'"""Generated from proto/{package} by proto/generate.py; do not edit."""\n'
    )
    return files


def main() -> None:
    """Write the files, or compare them with those on disk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="fail if a generated file differs; write nothing"
    )
    check = parser.parse_args().check
    drifted = []
    for proto in PROTOS:
        with tempfile.TemporaryDirectory() as scratch:
            files = generate(proto, Path(scratch))
        for name, text in files.items():
            path = ROOT / name
            if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
                drifted.append(name)
            elif not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if drifted:
        sys.exit(f"generated code has drifted, run 'make proto': {', '.join(drifted)}")


if __name__ == "__main__":
    main()
