"""Published tools as the search index sees them, made when first needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.search.entry import IndexEntry, fingerprint

PARAMETERS = 8 * 1024
"""Characters of a tool's parameters that are searched; the 2,651 real tools have 734 at most."""


class EntryCache:
    """Remembers the entry of each published tool; a new version of the tool makes a new one."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[PublishedTool, IndexEntry]] = {}

    def of(self, tool: PublishedTool) -> IndexEntry:
        """The entry of `tool`."""
        known = self._known.get(tool.index_id)
        if known is not None and (known[0] is tool or known[0] == tool):
            return known[1]
        made = entry_of(tool)
        self._known[tool.index_id] = (tool, made)
        return made

    def keep(self, tools: Mapping[str, PublishedTool]) -> None:
        """Forget what is no longer published; `tools` by their ids in the index."""
        if len(self._known) > len(tools) + 64:
            self._known = {i: known for i, known in self._known.items() if i in tools}


def _parameters(properties: Mapping[str, Any]) -> dict[str, str]:
    """Names and descriptions, the first `PARAMETERS` characters of them."""
    found: dict[str, str] = {}
    left = PARAMETERS
    for name, inner in properties.items():
        text = inner.get("description") if isinstance(inner, dict) else None
        said = text if isinstance(text, str) else ""
        left -= len(name) + 8  # a name costs more than its letters
        if left < 0:
            break
        found[name] = said[:left]
        left -= len(found[name])
    return found


def entry_of(tool: PublishedTool) -> IndexEntry:
    """What may be searched of `tool`; its digest is the entry's fingerprint."""
    properties = tool.input_schema.get("properties")
    entry = IndexEntry(
        tool_id=tool.index_id,
        digest="",
        namespace=tool.namespace,
        name=tool.name,
        server=tool.server,
        title=tool.title or "",
        description=tool.description,
        tags=tool.tags,
        scopes=tool.scopes,
        state=tool.state.value,
        parameters=_parameters(properties) if isinstance(properties, dict) else {},
        examples=tool.examples,
    )
    return replace(entry, digest=fingerprint(entry))
