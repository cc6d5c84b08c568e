"""Imports MCP servers into a running registry as the operator does: the registry dials, core plans, the Tools are published.

with running_registry(bindings=[binding("bot", ("everything:use",))]) as registry:
    found = imported(registry, toolserver("everything", url))
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from registry_harness import RunningRegistry
from toolcrib import publishing
from toolcrib.imports.definitions import LeftOut
from toolcrib.imports.plan import plan
from toolcrib.resources.kinds import parse
from toolcrib.resources.meta import API_VERSION
from toolcrib.resources.servers import ToolServer
from toolcrib.resources.tools import Tool
from toolcrib.wire.imports import (
    ServerList,
    ServerOutcome,
    ServerSeen,
    ServersReport,
    ServersRequest,
    ServerWanted,
)
from toolcrib.wire.publish import PublishedTool

SECONDS = 60.0


@dataclass(frozen=True)
class Import:
    """What came of one server: what the registry knows of it, its Tools as they are published, and what was left out."""

    seen: ServerSeen
    tools: tuple[PublishedTool, ...]
    left_out: tuple[LeftOut, ...]


def toolserver(name: str, url: str, namespace: str = "team", **spec: Any) -> ToolServer:
    """A ToolServer as it stands in the cluster, whose tools take the scope `<name>:use` and need no approval."""
    defaults = {
        "mcp": {"url": url},
        "defaults": {"scopes": [f"{name}:use"]},
        "import": {"approval": "Automatic"},
    }
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1}
    found = parse(
        {"apiVersion": API_VERSION, "kind": "ToolServer", "metadata": metadata, "spec": {**defaults, **spec}}
    )
    assert isinstance(found, ToolServer)
    return found


def imported(registry: RunningRegistry, *servers: ToolServer) -> dict[str, Import]:
    """Import them, and publish their tools; by name.

    Raises:
        AssertionError: one of them was not listed in time; says what became of it.
    """
    rows = _listed(registry, servers)
    made = {server.metadata.name: _import(registry, server, rows[server.server_id]) for server in servers}
    offered = (publishing.server(server, None) for server in servers)
    registry.publish(
        [tool for each in made.values() for tool in each.tools],
        servers=[each for each in offered if each is not None],
    )
    return made


def _listed(registry: RunningRegistry, servers: tuple[ToolServer, ...]) -> dict[str, ServerSeen]:
    wanted = tuple(
        ServerWanted(server=s.server_id, backend=publishing.server_backend(s, None), every=3600)
        for s in servers
    )
    end, after = time.monotonic() + SECONDS, 0
    while True:
        request = ServersRequest(epoch=1, seconds=600, servers=wanted, wait=5, after=after)
        answer = registry.admin("POST", "/v1/admin/servers", content=request.model_dump_json())
        assert answer.status_code == 200, answer.text
        report = ServersReport.model_validate(answer.json())
        after, rows = report.counter, {row.server: row for row in report.servers}
        if all(row.outcome is ServerOutcome.LISTED for row in rows.values()) and len(rows) == len(wanted):
            return rows
        failed = [
            row for row in rows.values() if row.outcome not in (ServerOutcome.LISTED, ServerOutcome.PENDING)
        ]
        assert time.monotonic() < end, failed or report


def _import(registry: RunningRegistry, server: ToolServer, row: ServerSeen) -> Import:
    asked = {"server": row.server, "set_digest": row.set_digest}
    answer = registry.admin("POST", "/v1/admin/servers/list", json=asked)
    assert answer.status_code == 200, answer.text
    planned = plan(server, ServerList.model_validate(answer.json()), {})
    tools = []
    for each in planned.apply:
        manifest = each.manifest
        manifest["metadata"].pop("ownerReferences")
        resource = parse(manifest)
        assert isinstance(resource, Tool)
        tools.append(publishing.tool(resource, server=server))
    return Import(row, tuple(tools), planned.left_out)
