"""Tools of ToolServers, kept in the data folder: a start while a server is away has them, as a cluster's API server would.

What is approved of them stands in approvals.json; a definition that was changed here is quarantined like any other.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolcrib.resources import API_VERSION, Tool, ToolServer
from toolcrib_cli.local.store import write_durably
from toolcrib_operator.kinds.facts import SERVER
from toolcrib_operator.kinds.quotas import TOOL
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.world import World

log = logging.getLogger(__name__)
FILE = "imported.json"


class KeptImports:
    """The file with the imported tools of a data folder."""

    def __init__(self, file: Path, world: World) -> None:
        self._file, self._world = file, world
        self._saved: frozenset[tuple[str, int]] | None = None

    def restored(self, write: Callable[[Mapping[str, Any]], object]) -> int:
        """Hand each kept Tool to `write` whose ToolServer is there and at the same address; how many there are."""
        found = 0
        for key, kept in _read(self._file).items():
            entry = self._world.get(Ref(SERVER, key))
            server = None if entry is None else entry.resource
            if entry is None or not isinstance(server, ToolServer) or kept["mcp"] != _address(server):
                continue
            for tool in kept["tools"]:
                owner = {"apiVersion": API_VERSION, "kind": SERVER, "name": server.metadata.name}
                owners = [{**owner, "uid": entry.uid, "controller": True}]
                write({**tool, "metadata": {**tool["metadata"], "ownerReferences": owners}})
                found += 1
        return found

    def save(self) -> None:
        """Keep the tools that there are now, if others were kept. Raises OSError."""
        imported = [entry for entry in self._world.all(TOOL) if entry.owner]
        now = frozenset((entry.ref.key, entry.generation) for entry in imported)
        if now == self._saved:
            return
        tools: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for entry in imported:
            if isinstance(tool := entry.resource, Tool):
                tools[f"{entry.ref.namespace}/{tool.spec.server}"].append(manifest_of(entry, tool))
        kept = {}
        for key, made in tools.items():
            found = self._world.get(Ref(SERVER, key))
            if found is not None and isinstance(server := found.resource, ToolServer):
                kept[key] = {"mcp": _address(server), "tools": made}
        write_durably(self._file, json.dumps(kept))
        self._saved = now


def manifest_of(entry: Entry, tool: Tool) -> dict[str, Any]:
    """An imported Tool as it is written, without its owner and without what is approved of it."""
    spec = tool.spec.model_dump(by_alias=True, mode="json", exclude_none=True, exclude_defaults=True)
    spec.pop("approvedDigest", None)
    metadata = {
        "name": tool.metadata.name, "namespace": tool.metadata.namespace, "uid": entry.uid,
        "labels": dict(entry.labels), "creationTimestamp": entry.created,
    }  # fmt: skip
    return {"apiVersion": API_VERSION, "kind": TOOL, "metadata": metadata, "spec": spec}


def _address(server: ToolServer) -> dict[str, Any]:
    return server.spec.mcp.model_dump(by_alias=True, mode="json", exclude_none=True)


def _read(file: Path) -> dict[str, Any]:
    """By ToolServer; empty where the file is not what was written: the servers are read again anyway."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        for each in kept.values():
            if not (
                isinstance(each["mcp"], dict) and all(t["metadata"] and t["spec"] for t in each["tools"])
            ):
                raise ValueError("not what was written")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        log.warning(
            "cannot read the imported tools in %s (%s): they come back once their servers answer", file, error
        )
        return {}
    return dict(kept)
