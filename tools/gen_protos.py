"""Generate the protobuf code under src/*/pb, or check that it is what the .proto files give (--check)."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {
    "parallax/v1/offsets.proto": ROOT / "src/offsetsvc/pb",
    "parallax/v1/primaries.proto": ROOT / "src/offsetsvc/pb",
    "parallax/runlog/v1/runlog.proto": ROOT / "src/replicator/pb",
}


def generate(proto: str, out: Path) -> dict[str, str]:
    """The generated files of one .proto, flattened into one package, by name."""
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
    package = ".".join(Path(proto).parent.parts)
    files = {}
    for path in sorted(out.rglob("*.py*")):
        text = path.read_text(encoding="utf-8")
        text = re.sub(
            rf"^from {re.escape(package)} import (\w+_pb2)", r"from . import \1", text, flags=re.MULTILINE
        )
        files[path.name] = text
    return files


def main() -> None:
    """Write the files, or compare them with those on disk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="fail if a generated file differs; write nothing"
    )
    check = parser.parse_args().check
    drifted = []
    for proto, package in TARGETS.items():
        with tempfile.TemporaryDirectory() as scratch:
            files = generate(proto, Path(scratch))
        files["__init__.py"] = (
            f'"""Generated from proto/{Path(proto).parent} by tools/gen_protos.py; do not edit."""\n'
        )
        for name, text in files.items():
            path = package / name
            if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
                drifted.append(str(path.relative_to(ROOT)))
            elif not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if drifted:
        sys.exit(f"generated code has drifted, run 'make proto': {', '.join(drifted)}")


if __name__ == "__main__":
    main()
