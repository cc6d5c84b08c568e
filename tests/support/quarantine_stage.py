"""An operator's loop whose imports come from a real importer over real connections, and where a person approves tools."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from imports_harness import Imports, importing
from manifests import manifest
from operator_harness import MemoryReplica
from operator_stage import Stage, staged
from toolcrib.resources.tools import Tool
from toolcrib.wire.imports import ListRequest, ServerList, ServersReport, ServersRequest
from toolcrib_operator.adapters.memory import MemoryApplier
from toolcrib_operator.kinds.statuses import condition
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import ImportSettings
from toolcrib_registry.importing.importer import Importer
from waiting import until

FAST = ImportSettings(wait=2.0, backoff=(0.02, 0.1), again=0.1)
SERVER = Ref("ToolServer", "heist/files")


class KeepingApplier(MemoryApplier):
    """Leaves `approvedDigest` to those who own it, as server-side apply does."""

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> dict[str, Any]:
        made = await super().apply(manifest, uid=uid)
        metadata = made["metadata"]
        there = self._world.get(Ref("Tool", f"{metadata['namespace']}/{metadata['name']}"))
        tool = None if there is None else there.resource
        if isinstance(tool, Tool) and tool.spec.approved_digest is not None:
            made["spec"] = {**made["spec"], "approvedDigest": tool.spec.approved_digest}
        return made


class LiveReplica(MemoryReplica):
    """A replica whose reports of servers come from an importer that reads them."""

    def __init__(self, importer: Importer, every: float | None = None) -> None:
        """
        Args:
            importer: one that works.
            every: seconds between two looks, in place of what is asked for.
        """
        super().__init__()
        self._importer, self._every = importer, every

    async def servers(self, request: ServersRequest) -> ServersReport:
        if self._every is not None:
            paced = tuple(each.model_copy(update={"every": self._every}) for each in request.servers)
            request = request.model_copy(update={"servers": paced})
        self._importer.asked(request)
        return await self._importer.report(request.after, request.wait)

    async def server_list(self, request: ListRequest) -> ServerList | None:
        body = await self._importer.listed(request.server, request.set_digest)
        return None if body is None else ServerList.model_validate(json.loads(body))


def toolserver(url: str = "https://files.example/mcp", **spec: Any) -> dict[str, Any]:
    """A ToolServer outside the cluster: its tools need approval."""
    body = {"mcp": {"url": url}, "defaults": {"scopes": ["files:use"]}}
    made = manifest("ToolServer", "files", "heist", **body | spec)
    made["metadata"]["uid"] = "uid-files"
    return made


@dataclass
class Reviewed:
    """A stage, the replica that it publishes to, and a person who looks."""

    stage: Stage
    replica: MemoryReplica

    @property
    def callable(self) -> set[str]:
        """The names of the tools that agents may see."""
        return {tool.name for tool in self.replica.snapshot.tools.values() if tool.active}

    @property
    def drifted(self) -> tuple[str, str, str]:
        """Status, reason and message of the condition; empty while there is none."""
        entry = self.stage.world.get(SERVER)
        found = None if entry is None else condition(entry.status, "Drifted")
        return ("", "", "") if found is None else (found["status"], found["reason"], found["message"])

    def status(self) -> Mapping[str, Any]:
        """That of the ToolServer."""
        entry = self.stage.world.get(SERVER)
        assert entry is not None
        return entry.status

    def approve(self, *names: str) -> None:
        """Approve these tools, or every one, as their status has them."""
        for entry in self.stage.world.all("Tool"):
            tool = entry.resource
            assert isinstance(tool, Tool)
            if names and tool.name not in names:
                continue
            spec = tool.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
            owners = [{"apiVersion": "toolcrib.dev/v1alpha1", "kind": "ToolServer", "name": "files",
                       "uid": "uid-files", "controller": True}]  # fmt: skip
            metadata = {"name": entry.ref.name, "namespace": "heist", "uid": entry.uid, "ownerReferences": owners,
                        "labels": {"toolcrib.dev/source": "import"}}  # fmt: skip
            approved = {**spec, "approvedDigest": entry.status.get("approvalDigest")}
            body = manifest("Tool", entry.ref.name, "heist", **approved) | {"metadata": metadata}
            self.stage.world.upsert("Tool", body)

    async def approved(self, *names: str) -> None:
        """Approve as often as it takes until exactly these are callable and nothing has drifted."""

        def done() -> bool:
            if self.callable == set(names) and self.drifted[1] == "NothingDrifted":
                return True
            self.approve()
            return False

        await until(done, interval=0.05)


@contextlib.asynccontextmanager
async def reviewing(replica: MemoryReplica, server: Mapping[str, Any]) -> AsyncIterator[Reviewed]:
    """An operator with this ToolServer and this replica."""
    async with staged(dict(server), replica=replica, imports=FAST, applier=KeepingApplier) as stage:
        yield Reviewed(stage, replica)


@contextlib.asynccontextmanager
async def reviewing_live(url: str, every: float | None = None) -> AsyncIterator[tuple[Reviewed, Imports]]:
    """The same with the tools of the MCP server at `url`, read by an importer."""
    async with (
        importing() as imports,
        reviewing(LiveReplica(imports.importer, every), toolserver(url)) as found,
    ):
        yield found, imports
