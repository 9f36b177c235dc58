"""What the documentation site (mkdocs.yml, `make docs`) has besides docs/: README and others, and the reference of both APIs.

MkDocs calls the functions `on_...` by their names.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, cast

import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)
from grpc_tools import protoc
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.service import UseCases
from offsetsvc.transport.rest import create_app
from parallax.config.config import Config

ROOT = Path(__file__).resolve().parents[1]
PROTO = PurePosixPath("proto/parallax/v1")

TOP = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages of the repository's root, and what they are called on the site."""
_MADE = {
    "docs/decisions": "decisions/index.md",
    "docs/examples": "examples/index.md",
    "proto": "reference/index.md",
}
"""Folders that pages point at, and the pages that list what is in them."""

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<place>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_KINDS = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}

# The numbers of fields in descriptor.proto, by which comments are found.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _NESTED, _VALUES, _METHODS = 2, 3, 2, 2


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what is made here."""
    for name, text in sorted(pages().items()):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point at pages of the site; of what else a link names only the words are left."""
    del config
    source = page.file.src_uri
    of_top = {site: name for name, site in TOP.items()}
    here = PurePosixPath(of_top.get(source, f"docs/{source}")).parent
    known = {file.src_uri for file in files}

    def pointed(found: re.Match[str]) -> str:
        text, place, anchor = found["text"], found["place"], found["anchor"] or ""
        if "://" in place or place.startswith("mailto:"):
            return found[0]
        target = _site_path(_normal(here / place))
        return f"[{text}]({_relative(source, target)}{anchor})" if target in known else text

    text = _LINK.sub(pointed, markdown)
    return re.sub(r"(!\[[^\]]*\])\(docs/", r"\1(", text) if source in of_top else text


def pages() -> dict[str, str]:
    """Every page that is made here, by its path on the site."""
    made = {site: (ROOT / name).read_text(encoding="utf-8") for name, site in TOP.items()}
    made["decisions/index.md"] = _decisions()
    made["examples/index.md"] = _examples()
    protos = sorted((ROOT / PROTO).glob("*.proto"))
    for file in _described(protos):
        made[f"reference/{PurePosixPath(file.name).stem}.md"] = "\n".join(_proto(file))
    made["reference/rest.md"] = "\n".join(_rest(description()))
    made["reference/index.md"] = "\n".join(_references(protos))
    return made


def description() -> dict[str, Any]:
    """What the REST API says of itself (OpenAPI)."""
    one = {
        "aggregate": {"bootstrap_servers": "kafka.example:9092"},
        "regional": {"bootstrap_servers": "kafka.example:9093"},
    }
    config = Config.model_validate(
        {"regions": {"a": one}, "cassandra": {"contact_points": ["c"], "local_datacenter": "a"}}
    )

    class _Unasked:
        def __init__(self) -> None:
            self.config = config

    return create_app(cast("UseCases", _Unasked()), ServiceMetrics()).openapi()


# --- links ----------------------------------------------------------------------------------------------------------


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts[-1:] = []
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _site_path(path: str) -> str:
    """Where something of the repository is on the site."""
    if path in TOP or path in _MADE:
        return (TOP | _MADE)[path]
    if path.startswith(f"{PROTO}/"):
        return f"reference/{PurePosixPath(path).stem}.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"


def _relative(source: str, target: str) -> str:
    return "../" * (len(PurePosixPath(source).parts) - 1) + target


# --- lists ----------------------------------------------------------------------------------------------------------


def _decisions() -> str:
    names = sorted(path.name for path in (ROOT / "docs/decisions").glob("*.md"))
    rows = [f"* [{title(ROOT / 'docs/decisions' / name)}]({name})" for name in names]
    return "\n".join(
        ["# Decisions", "", "What a newcomer would question, and why it is as it is.", "", *rows, ""]
    )


def _examples() -> str:
    lines = ["# Examples", "", "What `parallax init --mode ...` prints.", ""]
    for path in sorted((ROOT / "docs/examples").glob("*.yaml")):
        lines += [f"## {path.stem}", "", "```yaml", path.read_text(encoding="utf-8").strip(), "```", ""]
    return "\n".join(lines)


def title(path: Path) -> str:
    """The first heading of a page."""
    return next(
        line.removeprefix("# ")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("# ")
    )


# --- gRPC -----------------------------------------------------------------------------------------------------------


def _references(protos: Sequence[Path]) -> Iterator[str]:
    yield from (
        "# Reference",
        "",
        "Made from the sources: `proto/`, and what the REST API says of itself.",
        "",
    )
    for path in protos:
        yield f"* [gRPC: {path.name}]({path.stem}.md)"
    yield from ("* [REST](rest.md)", "", "[API](../api.md) says how both are used.")


def _described(protos: Sequence[Path]) -> list[FileDescriptorProto]:
    """The files with their comments."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "described"
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        names = [str(path.relative_to(ROOT / "proto")) for path in protos]
        options = [
            f"-I{ROOT / 'proto'}",
            f"-I{well_known}",
            "--include_source_info",
            f"--descriptor_set_out={out}",
        ]
        if protoc.main(["protoc", *options, *names]) != 0:
            raise SystemExit("protoc failed")
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def _proto(file: FileDescriptorProto) -> Iterator[str]:
    said = {tuple(item.path): _text(item.leading_comments) for item in file.source_code_info.location}
    detached = next(
        (item.leading_comments for item in file.source_code_info.location if tuple(item.path) == (12,)), ""
    )
    yield from (f"# {PurePosixPath(file.name).name}", "", _text(detached), "")
    for number, service in enumerate(file.service):
        yield from _service(service, said, (_SERVICES, number))
    for number, message in enumerate(file.message_type):
        yield from _message(message, said, (_MESSAGES, number), "")
    for number, enum in enumerate(file.enum_type):
        yield from _enum(enum, said, (_ENUMS, number), "")


def _service(
    service: ServiceDescriptorProto, said: Mapping[tuple[int, ...], str], at: tuple[int, ...]
) -> Iterator[str]:
    yield from (
        f"## {service.name}",
        "",
        said.get(at, ""),
        "",
        "| call | asks | answers | |",
        "|---|---|---|---|",
    )
    for number, method in enumerate(service.method):
        stream = "stream of " if method.server_streaming else ""
        words = _cell(said.get((*at, _METHODS, number), ""))
        yield f"| `{method.name}` | {_bare(method.input_type)} | {stream}{_bare(method.output_type)} | {words} |"
    yield ""


def _message(
    message: DescriptorProto, said: Mapping[tuple[int, ...], str], at: tuple[int, ...], within: str
) -> Iterator[str]:
    if message.options.map_entry:
        return
    name = f"{within}{message.name}"
    yield from (f"## {name}", "", said.get(at, ""), "")
    if message.field:
        yield from ("| field | type | |", "|---|---|---|")
    for number, field in enumerate(message.field):
        yield f"| `{field.name}` | {_kind(field)} | {_cell(said.get((*at, _FIELDS, number), ''))} |"
    yield ""
    for number, nested in enumerate(message.nested_type):
        yield from _message(nested, said, (*at, _NESTED, number), f"{name}.")


def _enum(
    enum: EnumDescriptorProto, said: Mapping[tuple[int, ...], str], at: tuple[int, ...], within: str
) -> Iterator[str]:
    yield from (f"## {within}{enum.name}", "", said.get(at, ""), "", "| value | |", "|---|---|")
    for number, value in enumerate(enum.value):
        yield f"| `{value.name}` | {_cell(said.get((*at, _VALUES, number), ''))} |"
    yield ""


def _kind(field: FieldDescriptorProto) -> str:
    kind = _bare(field.type_name) if field.type_name else _KINDS[field.type]
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {kind}"
    return f"optional {kind}" if field.proto3_optional else kind


def _bare(name: str) -> str:
    return f"`{name.removeprefix('.parallax.v1.').removeprefix('.')}`"


def _text(comment: str) -> str:
    return "\n".join(line.removeprefix(" ") for line in comment.splitlines()).strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- REST -----------------------------------------------------------------------------------------------------------


def _rest(api: Mapping[str, Any]) -> Iterator[str]:
    yield from ("# REST", "", api["info"]["description"].strip(), "")
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    for tag, calls in by_tag.items():
        yield from (f"## {tag.capitalize()}", "")
        for method, path, operation in calls:
            yield from (f"### `{method} {path}`", "", operation.get("description", ""), "")
            parameters = operation.get("parameters", ())
            if parameters:
                yield from ("| parameter | where | |", "|---|---|---|")
            for item in parameters:
                where = f"{item['in']}{', required' if item.get('required') else ''}"
                yield f"| `{item['name']}` | {where} | {_cell(item.get('description', ''))} |"
            statuses = ", ".join(operation["responses"])
            yield from ("", f"Answers: {statuses}.", "")
