"""Full input schemas of tools, as far as they have been fetched. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib_runner.discovery import DiscoveredTool


class Schemas:
    """Schemas by tool; one is known only while the tool's listing is the one it was fetched for."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[DiscoveredTool, dict[str, Any] | None]] = {}

    def unlearned(self, tools: Iterable[DiscoveredTool]) -> list[DiscoveredTool]:
        """The tools whose full schema has not been learned, or not since they changed."""
        return [t for t in tools if t.name not in self._known or self._known[t.name][0] != t]

    def learn(self, tools: Iterable[DiscoveredTool], schemas: Mapping[str, dict[str, Any]]) -> None:
        """Take up full schemas; a tool that is not among them is offered as the listing describes it."""
        for tool in tools:
            self._known[tool.name] = (tool, schemas.get(tool.name))

    def of(self, tool: DiscoveredTool) -> dict[str, Any] | None:
        """The tool's schema; None where it is not known."""
        known, schema = self._known.get(tool.name, (None, None))
        return schema if known == tool else None
