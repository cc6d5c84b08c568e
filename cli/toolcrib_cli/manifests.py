"""Manifests in files: read with the same models as the cluster's, every problem with its file and line.

Our own kinds are parsed strictly. Namespaces, ServiceAccounts, Services and Secrets are kept where they matter to
the local mode; any other kind is named and skipped.
"""

from __future__ import annotations

import re
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

STDIN = Path("-")
"""Standard input, as a file name."""
SUFFIXES = (".yaml", ".yml", ".json")
COMPANIONS = ("Namespace", "ServiceAccount", "Service", "Secret")
MAX_FILE = 16 * 1024 * 1024
MAX_DEPTH = 100
"""Nesting of a document; libyaml's composer recurses in C and takes the process with it far below 100,000."""
MAX_NODES = 1_000_000
"""Values of a file, each alias counted as all that it stands for."""
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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


class _Loader(_Base):  # type: ignore[misc]
    """YAML as Kubernetes reads it: no timestamps, no octal or sexagesimal surprises, duplicate keys refused."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:bool")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in (
    ("tag:yaml.org,2002:int", r"^[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)$"),
    ("tag:yaml.org,2002:float", r"^[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+)$"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list("-+0123456789."))


def _mapping(loader: Any, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    result: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, f"a key must be a string, not {key!r}", key_node.start_mark
            )
        if key in result:
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
        result[key] = loader.construct_object(value_node, deep=True)
    return result


def _construct_map(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    return _mapping(loader, node)


def _construct_int(loader: Any, node: yaml.Node) -> int:
    try:
        return int(loader.construct_yaml_int(node))
    except ValueError:
        raise yaml.constructor.ConstructorError(
            None, None, "a whole number that long is refused", node.start_mark
        ) from None


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(loader.construct_scalar(node)))


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
        _check_bounds(text)
        for node in list(_documents(text)):
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


def _check_bounds(text: str) -> None:
    """Refuse what would take the stack, or multiply by aliases, before anything recurses or expands.

    Raises:
        yaml.YAMLError: it is nested too deeply, holds too much, or is no YAML.
    """
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []
    total = 0
    event: Any
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor is not None:
                sizes[anchor] = total - before
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        for much, what in (
            (len(open_) > MAX_DEPTH, f"nested deeper than {MAX_DEPTH} levels"),
            (total > MAX_NODES, f"more than {MAX_NODES} values, aliases expanded"),
        ):
            if much:
                raise yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)


def _documents(text: str) -> Iterator[yaml.Node]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield node
    finally:
        loader.dispose()


def _construct(node: yaml.Node) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _add(content: FileContent, node: yaml.Node, default_namespace: str, hidden: Hidden) -> None:
    body = _construct(node)
    if body is None:
        return
    line = node.start_mark.line + 1
    if not isinstance(body, dict):
        content.problems.append(ManifestProblem(content.file, line, Finding("", "a manifest is a mapping")))
        return
    if (
        isinstance(body.get("kind"), str)
        and body["kind"].endswith("List")
        and isinstance(body.get("items"), list)
    ):
        for item in _child(node, "items").value:
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
    else:
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
            content.problems.append(ManifestProblem(content.file, _line_of(node, finding.field), finding))
        return
    namespace = None
    if KINDS[resource.kind].namespaced:
        namespace = resource.metadata.namespace or default_namespace
        metadata = resource.metadata.model_copy(update={"namespace": namespace})
        resource = resource.model_copy(update={"metadata": metadata})
    if isinstance(resource, Tool):
        for field_name, finding in unusable(resource, hidden):
            at = _line_of(node, f"spec.{field_name}")
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
        content.problems.append(ManifestProblem(content.file, _line_of(node, wrong.field), wrong))
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


def _child(node: yaml.Node, key: str) -> Any:
    assert isinstance(node, yaml.MappingNode)
    return next(value for name, value in node.value if name.value == key)


def _line_of(node: yaml.Node, path: str) -> int:
    """The line of the deepest part of `path` (`spec.scopes[1]`) that stands in the document."""
    line = node.start_mark.line + 1
    for part in [p for p in path.replace("[", ".").replace("]", "").split(".") if p]:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == part), None)
            if pair is None:
                return line
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
        else:
            return line
    return line


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
