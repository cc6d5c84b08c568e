"""Entries of a search index for tests, with everything that does not matter filled in."""

from __future__ import annotations

from typing import Any

from toolcrib_registry.search.entry import IndexEntry


def entry(tool_id: str, /, **fields: Any) -> IndexEntry:
    """A tool by its id; its agent-visible name is the object's name unless given, its digest is empty."""
    namespace, name = tool_id.split("/")
    defaults = {"tool_id": tool_id, "digest": "", "namespace": namespace, "name": name}
    return IndexEntry(**{**defaults, **fields})


def numbered(number: int, /, **fields: Any) -> IndexEntry:
    """Tool `number`: another digest and another name for each, one scope for all."""
    defaults = {"digest": f"d{number}", "name": f"tool_{number}", "scopes": ("a:use",)}
    return entry(f"{fields.get('namespace', 'ns')}/tool-{number:04d}", **{**defaults, **fields})
