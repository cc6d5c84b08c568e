"""Approvals in the running local mode, by the key of its data folder. Loads no server part."""

from __future__ import annotations

from pathlib import Path

from toolcrib_cli.approving.shown import Shown, candidates, scanner_of, shown
from toolcrib_cli.approving.source import key_of
from toolcrib_cli.local import questions


class LocalTools:
    """Those of the running local mode of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tools(self, namespace: str | None) -> list[Shown]:
        """As `Source`."""
        answer = questions.ask(self._folder, kind=["Tool", "ToolServer", "ToolCanary"], namespace=namespace)
        objects = [each["object"] for each in answer["objects"]]
        servers = {key_of(each): each for each in objects if each["kind"] == "ToolServer"}
        bodies = [each for each in objects if each["kind"] == "Tool"]
        scanner = scanner_of(bodies)
        found = [each for body in bodies if (each := shown(body, servers, scanner)) is not None]
        return found + candidates([o for o in objects if o["kind"] == "ToolCanary"], bodies, servers)

    def approve(self, tool: Shown) -> None:
        """As `Source`; it is in effect when this returns."""
        questions.decide(self._folder, {"tool": tool.key, "digest": tool.digest})

    def reject(self, tool: Shown, reason: str) -> None:
        """As `Source`; it is in effect when this returns."""
        questions.decide(self._folder, {"tool": tool.key, "digest": tool.digest, "reject": reason})
