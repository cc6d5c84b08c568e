"""Tools of ToolServers in the local mode: objects of the World that no file has, with what is approved of them.

They go when their ToolServer does, as a cluster's garbage collector has it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from toolcrib.resources import API_VERSION, Tool, ToolServer, parse
from toolcrib.resources.tools import Approval
from toolcrib_cli.local.approvals import Approvals
from toolcrib_cli.local.folders import Folders
from toolcrib_cli.local.kept_imports import KeptImports, manifest_of
from toolcrib_cli.manifests import Loaded
from toolcrib_cli.remarks import UNREAD
from toolcrib_operator.adapters.memory import MemoryApplier
from toolcrib_operator.kinds.facts import SERVER
from toolcrib_operator.kinds.imported import ImportState
from toolcrib_operator.kinds.kind import Told
from toolcrib_operator.kinds.quotas import TOOL
from toolcrib_operator.objects import Entry, Ref
from toolcrib_operator.world import World

_LOOK = 0.05
"""Seconds between two looks at imports that are awaited."""


class ImportedTools:
    """Writes imported Tools as the port `Applier` says, and knows where each comes from.

    Args:
        world: where they are.
        folders: where their ToolServers are.
        approvals: what is approved of them.
        gone: told of each that goes with its ToolServer.
    """

    def __init__(
        self, world: World, folders: Folders, approvals: Approvals, gone: Callable[[Ref], None]
    ) -> None:
        self._world, self._folders, self._approvals, self._gone = world, folders, approvals, gone
        self._applier = MemoryApplier(world)
        self._counts: dict[Ref, int] = {}
        self._news: list[str] = []
        self.state: Callable[[Ref], ImportState | None] = lambda server: None
        """What is known of a ToolServer's import."""
        self.tell: Callable[[Ref], Told | None] = lambda ref: None
        """What the status of an object says, or is about to say."""

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> dict[str, Any]:
        """The Tool as it is to be, with the digest that is approved. Raises Conflict."""
        made = await self._applier.apply(manifest, uid=uid)
        return self._with_approval(made, new=uid is None)

    async def delete(self, ref: Ref, *, uid: str) -> None:
        """Remove a Tool that its server lists no more, and its approval. Raises Conflict."""
        await self._applier.delete(ref, uid=uid)
        self._approvals.withdraw(ref.key)
        self._gone(ref)

    def renew(self, key: str) -> int:
        """Record a Tool (`namespace/name`) again: what is approved of it changed. Returns the world's change."""
        entry = self._world.get(Ref(TOOL, key))
        if entry is None or not isinstance(tool := entry.resource, Tool) or not entry.owner:
            return self._world.change
        made = manifest_of(entry, tool)
        made["metadata"]["ownerReferences"] = [owner_of(entry)]
        return self._world.upsert(TOOL, self._with_approval(made, new=False))

    def restore(self, kept: KeptImports) -> int:
        """Record the tools that an earlier run imported; how many there are."""
        return kept.restored(lambda made: self._world.upsert(TOOL, self._with_approval(dict(made), new=True)))

    def item_of(self, entry: Entry) -> Loaded | None:
        """An imported Tool as if it stood where its ToolServer does; None: it is another object's."""
        head = entry.head
        if not entry.owner or not isinstance(head, Tool) or head.spec.backend.mcp is None:
            return None
        server = self._folders.objects.get(
            (SERVER, entry.ref.namespace, head.spec.backend.mcp.server_ref.name)
        )
        if server is None:
            return None
        return Loaded(server.file, server.line, TOOL, entry.ref.namespace, entry.ref.name, {}, None)

    def wrote(self, ref: Ref) -> None:
        """The status of an object is written: of a ToolServer, perhaps that its list is imported."""
        if ref.kind != SERVER:
            return
        entry, state = self._world.get(ref), self.state(ref)
        server = None if entry is None else entry.resource
        carried = None if state is None else state.carried
        if not isinstance(server, ToolServer) or server.disabled:
            self._counts.pop(ref, None)
            return
        if carried is None or not carried.done:
            return
        count = carried.imported
        if count and server.spec.approval is Approval.MANUAL:
            self._approvals.known(ref.key)
        if self._counts.get(ref) != count:
            self._counts[ref] = count
            self._news.append(f"{ref}: {count} tool{'' if count == 1 else 's'} imported")

    def news(self) -> list[str]:
        """A line for each list that was imported since this was asked last."""
        found, self._news = self._news, []
        return found

    @property
    def pending(self) -> bool:
        """Whether a ToolServer's first list is still awaited."""
        return any(self._awaited(entry.ref) for entry in self._world.all(SERVER))

    async def settled(self, within: float, stop: asyncio.Event) -> None:
        """Return once every ToolServer's list is imported, or cannot be; at the latest after some seconds, or at `stop`."""
        until = asyncio.get_running_loop().time() + within
        while not stop.is_set() and self.pending:
            if asyncio.get_running_loop().time() > until:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await stop.wait()

    def _awaited(self, ref: Ref) -> bool:
        told = self.tell(ref)
        conditions = () if told is None else told.status.get("conditions") or ()
        return any(c["type"] == "Ready" and c["reason"] in UNREAD for c in conditions)

    async def run(self) -> None:
        """Remove Tools whose ToolServer is gone, until cancelled."""
        running, wake = asyncio.get_running_loop(), asyncio.Event()

        def woken() -> None:
            with contextlib.suppress(RuntimeError):  # a watch may end after this loop
                running.call_soon_threadsafe(wake.set)

        self._world.subscribe(woken)
        while True:
            await wake.wait()
            wake.clear()
            for ref in self._world.orphaned():
                self._world.remove(ref.kind, ref.key)
                self._gone(ref)
            for server in [s for s in self._counts if self._world.get(s) is None]:
                del self._counts[server]

    def _with_approval(self, made: dict[str, Any], *, new: bool) -> dict[str, Any]:
        if made["spec"].get("approval") != Approval.MANUAL:
            return made
        tool = parse(
            {**made, "metadata": {k: v for k, v in made["metadata"].items() if k != "ownerReferences"}}
        )
        assert isinstance(tool, Tool)
        ref = Ref(SERVER, f"{tool.metadata.namespace}/{tool.spec.server}")
        held, state = self._world.get(ref), self.state(ref)
        server = None if held is None else held.resource
        if state is not None and state.carried is not None and state.carried.imported:
            # its first list is imported, whether or not its status says so yet
            self._approvals.known(ref.key)
        found = self._approvals.applied(
            made, tool, server if isinstance(server, ToolServer) else None, new=new, imported=True
        )
        return dict(found)


def owner_of(entry: Entry) -> dict[str, Any]:
    """The owner reference of an imported Tool."""
    head = entry.head
    name = head.spec.server if isinstance(head, Tool) else None
    return {
        "apiVersion": API_VERSION, "kind": SERVER, "name": name, "uid": entry.owner, "controller": True,
    }  # fmt: skip
