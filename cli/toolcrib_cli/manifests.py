"""Manifests in files: read with the same models as the cluster's, every problem with its file and line.

Our own kinds are parsed strictly. Namespaces, ServiceAccounts, Services and Secrets are kept where they matter to
the local mode; any other kind is named and skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from toolcrib import publishing
from toolcrib.errors import Finding, InvalidManifest, SchemaUnsafe
from toolcrib.lint import hidden_text
from toolcrib.lint.hidden_text import Hidden
from toolcrib.resources import KINDS, Tool, parse
from toolcrib.resources.conditions import ConditionReason
from toolcrib.resources.kinds import Resource
from toolcrib.schemas import safety as schema_safety
from toolcrib_cli import yaml_documents

STDIN = Path("-")
"""Standard input, as a file name."""
SUFFIXES = (".yaml", ".yml", ".json")
SESSION = "session.yaml"
"""Of a ConfigMap's data: the file of a session, which is for `toolcrib session`."""
COMPANIONS = ("Namespace", "ServiceAccount", "Service", "Secret")
MAX_FILE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """One thing wrong with one file. `line` counts from 1; 0 where the file as a whole is meant."""

    file: Path
    line: int
    finding: Finding
    refused: bool = True

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{place}: {self.finding}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """One object of a file: ours parsed, a companion as it stands."""

    file: Path
    line: int
    kind: str
    namespace: str | None
    name: str
    body: dict[str, Any]
    resource: Resource | None = None

    @property
    def key(self) -> tuple[str, str | None, str]:
        """What makes it the same object elsewhere: kind, namespace, name."""
        return (self.kind, self.namespace, self.name)

    @property
    def named(self) -> str:
        """`Kind namespace/name`, or `Kind name`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(slots=True)
class FileContent:
    """What one file holds. With a refused problem nothing of the file may be used."""

    file: Path
    objects: list[Loaded] = field(default_factory=list)
    problems: list[ManifestProblem] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        return any(p.refused for p in self.problems)


def files_in(paths: Iterable[Path]) -> list[Path]:
    """The manifest files of folders (searched in depth) and single files, in a stable order."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += [
                p
                for p in sorted(path.rglob("*"))
                if p.suffix in SUFFIXES and p.is_file() and not _hidden(p, path)
            ]
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def within(path: Path, roots: Iterable[Path]) -> bool:
    """Whether a path is one of `roots` or below one of them, by its text."""
    return any(path.is_relative_to(root) for root in roots)


def belongs(path: Path, roots: Iterable[Path]) -> bool:
    """Whether `files_in` finds this file, if it is there."""
    return any(
        path == root or (path.suffix in SUFFIXES and path.is_relative_to(root) and not _hidden(path, root))
        for root in roots
    )


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def read(file: Path, *, default_namespace: str = "default", hidden: Hidden = Hidden.REFUSE) -> FileContent:
    """Everything a file holds and everything wrong with it. Never raises for what stands in the file.

    With `hidden` REFUSE, hidden characters in the texts of a Tool are a problem.
    """
    content = FileContent(file)
    try:
        if file == STDIN:
            text = sys.stdin.read(MAX_FILE + 1)
        else:
            size = file.stat().st_size
            text = file.read_text(encoding="utf-8") if size <= MAX_FILE else "x" * (MAX_FILE + 1)
        if len(text) > MAX_FILE:
            raise ValueError(f"larger than {MAX_FILE // 1024 // 1024} MiB")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        content.problems.append(ManifestProblem(file, 0, Finding("", f"cannot be read: {reason}")))
        return content
    try:
        yaml_documents.check_bounds(text)
        for node in list(yaml_documents.nodes(text)):
            _add(content, node, default_namespace, hidden)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(str(part) for part in (error.context, error.problem) if part)
        content.problems.append(
            ManifestProblem(file, mark.line + 1 if mark else 0, Finding("", f"not valid YAML: {what}"))
        )
    except (yaml.YAMLError, RecursionError) as error:
        content.problems.append(
            ManifestProblem(file, 0, Finding("", f"not valid YAML: {str(error).splitlines()[0]}"))
        )
    return content


def _add(content: FileContent, node: yaml.Node, default_namespace: str, hidden: Hidden) -> None:
    body = yaml_documents.value(node)
    if body is None:
        return
    line = node.start_mark.line + 1
    if not isinstance(body, dict):
        content.problems.append(
            ManifestProblem(content.file, line, Finding("", "a manifest must be a mapping"))
        )
        return
    if (
        isinstance(body.get("kind"), str)
        and body["kind"].endswith("List")
        and isinstance(body.get("items"), list)
    ):
        for item in yaml_documents.child(node, "items").value:
            _add(content, item, default_namespace, hidden)
        return
    kind = body.get("kind")
    if (isinstance(kind, str) and kind in KINDS) or str(body.get("apiVersion", "")).startswith(
        "toolcrib.dev/"
    ):
        _add_ours(content, node, body, line, default_namespace, hidden)
    elif kind in COMPANIONS and body.get("apiVersion") == "v1":
        _add_companion(content, node, body, line, default_namespace)
    elif not isinstance(kind, str) or not isinstance(body.get("apiVersion"), str):
        content.problems.append(
            ManifestProblem(content.file, line, Finding("kind", "apiVersion and kind are required"))
        )
    elif not (kind == "ConfigMap" and SESSION in (body.get("data") or ())):
        metadata = body.get("metadata")
        content.skipped.append(
            f"{kind} {metadata.get('name', '') if isinstance(metadata, dict) else ''}".strip()
        )


def _add_ours(
    content: FileContent, node: yaml.Node, body: dict[str, Any], line: int, default_namespace: str,
    hidden: Hidden,
) -> None:  # fmt: skip
    try:
        resource = parse(body, strict=True)
    except InvalidManifest as error:
        for finding in error.findings:
            content.problems.append(
                ManifestProblem(content.file, yaml_documents.line_of(node, finding.field), finding)
            )
        return
    namespace = None
    if KINDS[resource.kind].namespaced:
        namespace = resource.metadata.namespace or default_namespace
        metadata = resource.metadata.model_copy(update={"namespace": namespace})
        resource = resource.model_copy(update={"metadata": metadata})
    if isinstance(resource, Tool):
        for field_name, finding in unusable(resource, hidden):
            at = yaml_documents.line_of(node, f"spec.{field_name}")
            content.problems.append(ManifestProblem(content.file, at, finding, refused=False))
    name = resource.metadata.name
    content.objects.append(Loaded(content.file, line, resource.kind, namespace, name, body, resource))


def unusable(tool: Tool, hidden: Hidden = Hidden.REFUSE) -> Iterator[tuple[str, Finding]]:
    """What the API server would store but the operator would not accept: unsafe schemas (DESIGN §5), hidden text."""
    unsafe = False
    for name, schema in (("inputSchema", tool.spec.input_schema), ("outputSchema", tool.spec.output_schema)):
        if schema is None:
            continue
        try:
            schema_safety.check(schema, arguments=name == "inputSchema")
        except SchemaUnsafe as error:
            unsafe = True
            yield name, Finding(f"spec.{name}", f"Accepted=False/SchemaUnsafe: {error}")
    if hidden is Hidden.REFUSE and not unsafe:
        for place in hidden_text.places(tool.spec):
            where, what = place.said
            said = Finding(where, f"Accepted=False/{ConditionReason.HIDDEN_TEXT}: {what}", hidden_text.HINT)
            yield place.field, said
    try:
        publishing.tool(tool)
    except ValueError as error:
        yield "", Finding("spec", f"Accepted=False/Invalid: {error}")


def _add_companion(
    content: FileContent, node: yaml.Node, body: dict[str, Any], line: int, default_namespace: str
) -> None:
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        content.problems.append(
            ManifestProblem(content.file, line, Finding("metadata.name", "required, but missing"))
        )
        return
    if (wrong := _misshapen(body, metadata)) is not None:
        content.problems.append(
            ManifestProblem(content.file, yaml_documents.line_of(node, wrong.field), wrong)
        )
        return
    namespace = None
    if body["kind"] != "Namespace":
        namespace = metadata.get("namespace") or default_namespace
    content.objects.append(Loaded(content.file, line, body["kind"], namespace, name, body))


def _misshapen(body: dict[str, Any], metadata: dict[str, Any]) -> Finding | None:
    """What the API server would not decode of what is read of a companion."""
    if not isinstance(metadata.get("namespace") or "", str):
        return Finding("metadata.namespace", "must be a string")
    maps = {f"metadata.{name}": metadata.get(name) for name in ("labels", "annotations")}
    if body["kind"] == "Secret":
        maps |= {name: body.get(name) for name in ("data", "stringData")}
    for place, found in maps.items():
        if found is not None and not (
            isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
        ):
            return Finding(place, "must be a mapping of strings", "put quotes around true, false and numbers")
    return None


def duplicates(contents: Iterable[FileContent]) -> Iterator[ManifestProblem]:
    """Objects that stand in two places: the second one is the problem."""
    first: dict[tuple[str, str | None, str], Loaded] = {}
    for content in contents:
        for item in content.objects:
            before = first.setdefault(item.key, item)
            if before is not item and not (item.kind in COMPANIONS and before.body == item.body):
                where = f"{before.file}:{before.line}"
                name = f"{item.namespace}/{item.name}" if item.namespace else item.name
                yield ManifestProblem(
                    item.file,
                    item.line,
                    Finding("metadata.name", f"{item.kind} {name} stands at {where} too"),
                )
