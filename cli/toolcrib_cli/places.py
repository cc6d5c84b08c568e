"""Where a field stands: files are read again for it, each once, and only those that something is said about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from toolcrib_cli import yaml_documents
from toolcrib_cli.manifests import STDIN, Loaded


class Places:
    """Lines of fields in files."""

    def __init__(self) -> None:
        self._files: dict[Path, dict[int, yaml.Node]] = {}

    def line(self, item: Loaded, field: str) -> int:
        """The line of the deepest part of `field` (`spec.scopes[1]`) that stands in the object; else that of the object."""
        if not field or item.file == STDIN:
            return item.line
        if item.file not in self._files:
            self._files[item.file] = _objects(item.file)
        node = self._files[item.file].get(item.line)
        # of a place within a schema (`spec.inputSchema/$comment`) the schema's line will do
        return item.line if node is None else yaml_documents.line_of(node, re.split("[/#]", field)[0])


def _objects(file: Path) -> dict[int, yaml.Node]:
    """The objects of a file by the line where they begin; none where it is another file by now, or gone."""
    try:
        return {node.start_mark.line + 1: node for node in _nodes(file.read_text(encoding="utf-8"))}
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}


def _nodes(text: str) -> Iterator[yaml.Node]:
    waiting = list(yaml_documents.nodes(text))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, yaml.MappingNode) and any(key.value == "items" for key, _ in node.value):
            items = yaml_documents.child(node, "items")
            waiting += items.value if isinstance(items, yaml.SequenceNode) else ()
