"""The route of `toolcrib approvals approve` and `reject`: what is decided of a tool of the running local mode."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from toolcrib import names, publishing
from toolcrib.resources import Tool, ToolCanary, ToolServer
from toolcrib.resources.tools import Approval
from toolcrib.wire.publish import PublishedTool, Revision
from toolcrib_cli.local.approvals import Approvals
from toolcrib_cli.local.folders import Folders
from toolcrib_cli.local.imported import ImportedTools
from toolcrib_operator.objects import Ref
from toolcrib_operator.world import World

_IN_EFFECT_WITHIN = 10.0
_MOST_REASON = 512


class Decisions:
    """Decides as it is told; `answer` returns when the decision is durable and in effect."""

    def __init__(
        self,
        world: World,
        folders: Folders,
        approvals: Approvals,
        imported: ImportedTools,
        published: Callable[[int], Awaitable[Revision]],
    ) -> None:
        self._world, self._folders, self._approvals = world, folders, approvals
        self._imported, self._published = imported, published
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, asked: Any) -> tuple[int, dict[str, Any]]:
        """HTTP status and answer to `{tool, digest, reject?: reason}`."""
        if not isinstance(asked, Mapping) or not all(
            isinstance(asked.get(k), str) for k in ("tool", "digest")
        ):
            return _no(400, "invalid_request", "Specify `tool` and `digest`.")
        tool_id, reason = str(asked["tool"]), asked.get("reject")
        if reason is not None and not (isinstance(reason, str) and 0 < len(reason) <= _MOST_REASON):
            return _no(400, "invalid_request", f"`reject` is a text of 1 to {_MOST_REASON} characters.")
        async with self._one_at_a_time:
            present = self._present(tool_id)
            if present is None:
                return _no(
                    404, "unknown_tool", f"There is no Tool or candidate {tool_id} with approval Manual."
                )
            if present.approval_digest != asked["digest"]:
                return _no(422, "changed", f"{tool_id} has changed since it was shown. Look at it again.")
            key = names.of_candidate(tool_id)
            kind = "Tool" if key == tool_id else "ToolCanary"
            namespace, _, name = key.partition("/")
            item = self._folders.objects.get((kind, namespace, name))
            if item is not None and "approvedDigest" in item.body["spec"]:
                said = f"{item.file}:{item.line} has an approvedDigest of its own, which decides. Change it there"
                return _no(422, "held_by_manifest", f"{said}: {present.approval_digest}.")
            try:
                if reason is None:
                    await asyncio.to_thread(self._approvals.approve, tool_id, present)
                else:
                    await asyncio.to_thread(self._approvals.reject, tool_id, present, reason)
            except OSError as error:
                return _no(500, "not_stored", f"The decision cannot be stored: {error.strerror}.")
            renew = self._imported.renew if item is None else partial(self._folders.renew, kind)
            change = renew(key)
        try:
            async with asyncio.timeout(_IN_EFFECT_WITHIN):
                await self._published(change)
        except TimeoutError:
            return _no(503, "pending", "The decision is stored, but not in effect yet.")
        return 200, {"tool": tool_id, "digest": present.approval_digest}

    def _present(self, tool_id: str) -> PublishedTool | None:
        """What there is to decide about: a tool with approval Manual, or a candidate of one."""
        if (key := names.of_candidate(tool_id)) == tool_id:
            return self._tool(tool_id)
        canary = self._resource("ToolCanary", key)
        if not isinstance(canary, ToolCanary):
            return None
        home, replacement = tool_id.partition("/")[0], canary.spec.candidate.replacement
        of = self._tool(f"{home}/{canary.spec.tool}")
        other = None if replacement is None else self._tool(f"{home}/{replacement}", any_approval=True)
        if of is None or (replacement is not None and other is None):
            return None
        return publishing.candidate(of, canary, other).tool

    def _tool(self, tool_id: str, *, any_approval: bool = False) -> PublishedTool | None:
        tool = self._resource("Tool", tool_id)
        if not isinstance(tool, Tool) or not (any_approval or tool.spec.approval is Approval.MANUAL):
            return None
        server = None
        if tool.spec.backend.mcp is not None:
            named = tool.spec.backend.mcp.server_ref.name
            found = self._resource("ToolServer", f"{tool_id.partition('/')[0]}/{named}")
            server = found if isinstance(found, ToolServer) else None
        try:
            return publishing.tool(tool, server=server)
        except ValueError:
            return None

    def _resource(self, kind: str, key: str) -> object:
        entry = self._world.get(Ref(kind, key))
        return None if entry is None else entry.resource


def _no(status: int, code: str, detail: str) -> tuple[int, dict[str, Any]]:
    return status, {"code": code, "detail": detail}
