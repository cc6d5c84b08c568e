"""What is approved in the local mode: on first use, then by `toolcrib approvals`. Kept in the data folder.

A Tool with `approval: Manual` and no `approvedDigest` of its own is approved as it is when it is seen first. From then on
a change is quarantined until somebody approves it. A manifest that has an `approvedDigest` decides by itself.

Of a ToolServer, the first list of tools that was imported is what is seen first: a tool that joins later is quarantined.
The candidate of a ToolCanary is a change of its Tool: it is never approved on first use.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolcrib import approvals, names, publishing
from toolcrib.resources import Tool, ToolCanary, ToolServer
from toolcrib.resources.tools import REJECTED_DIGEST, REJECTED_REASON, Approval
from toolcrib.wire.publish import PublishedTool
from toolcrib_cli.errors import CliError, Exit
from toolcrib_cli.local.store import write_durably

FILE = "approvals.json"


class Approvals:
    """The approvals of a data folder, by tool id, and of a ToolCanary by `names.candidate_id`. Threads may share it.

    Raises:
        CliError: the file cannot be read. Without it every change since would be approved.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._tools, self._servers = _read(file)
        self._first: list[str] = []
        self._unsaved = False

    def applied(
        self,
        manifest: Mapping[str, Any],
        tool: Tool,
        server: ToolServer | None,
        *,
        new: bool,
        imported: bool = False,
    ) -> Mapping[str, Any]:
        """The manifest with the digest that is approved; that of a tool never seen before is the digest of what it is.

        `save` keeps what is approved so.

        Args:
            manifest: the Tool.
            tool: the same, read.
            server: the ToolServer that its backend names. While that is missing, nothing is approved.
            new: whether its status begins now: it is told what was approved last.
            imported: whether it is of the list of `server`: it is approved on first use only if that list is the first.
        """
        spec = tool.spec
        if spec.approval is not Approval.MANUAL or spec.approved_digest is not None:
            return manifest
        with self._lock:
            record = self._tools.get(tool.tool_id)
            if record is None:
                if spec.backend.mcp is not None and server is None:
                    return manifest
                if imported and server is not None and server.server_id in self._servers:
                    return manifest
                try:
                    published = publishing.tool(tool, server=server)
                except ValueError:  # the operator refuses it
                    return manifest
                record = self._tools[tool.tool_id] = _approval(published, "first use")
                self._first.append(tool.tool_id)
        known = (
            {"status": {"approvedDefinition": record["definition"]}} if new and record["definition"] else {}
        )
        return {**manifest, "spec": {**manifest["spec"], "approvedDigest": record["approved"]}, **known}

    def applied_to_canary(self, manifest: Mapping[str, Any], canary: ToolCanary) -> Mapping[str, Any]:
        """The manifest of a ToolCanary with the digest that is approved of its candidate, if one is."""
        record = self._tools.get(
            names.candidate_id(f"{manifest['metadata']['namespace']}/{canary.metadata.name}")
        )
        if canary.spec.approved_digest is not None or record is None or record["approved"] is None:
            return manifest
        return {**manifest, "spec": {**manifest["spec"], "approvedDigest": record["approved"]}}

    def known(self, server: str) -> None:
        """The first list of a ToolServer (`namespace/name`) is imported: what joins it later is not approved.

        `save` keeps that.
        """
        with self._lock:
            if server not in self._servers:
                self._servers = self._servers | {server}
                self._unsaved = True

    def withdraw(self, tool_id: str) -> None:
        """A server lists a tool no more: if it comes back, it is new. `save` keeps that."""
        with self._lock:
            record = self._tools.get(tool_id)
            if record is not None and record["approved"] is not None:
                self._tools[tool_id] = {**record, "approved": None, "definition": None}
                self._unsaved = True

    def save(self) -> list[str]:
        """Keep what changed since this was asked last: the tools that were approved on first use. Raises OSError."""
        with self._lock:
            if self._first or self._unsaved:
                self._write(self._tools)
                self._unsaved = False
            found, self._first = self._first, []
            return sorted(found)

    def approve(self, key: str, published: PublishedTool) -> None:
        """Approve a tool or candidate as it is. Durable when it returns. Raises OSError."""
        with self._lock:
            self._write({**self._tools, key: _approval(published, "approval")})

    def reject(self, key: str, published: PublishedTool, reason: str) -> None:
        """Remember why one is not approved as it is, and withdraw the approval of just that. Raises OSError."""
        with self._lock:
            record = dict(self._tools.get(key) or {"approved": None, "definition": None})
            if record["approved"] == published.approval_digest:
                record["approved"] = None
            record["rejected"] = {"digest": published.approval_digest, "reason": reason}
            self._write({**self._tools, key: record})

    def annotations(self, key: str) -> dict[str, str]:
        """What a cluster would keep of a rejection with the object."""
        rejected = (self._tools.get(key) or {}).get("rejected")
        if rejected is None:
            return {}
        return {REJECTED_DIGEST: rejected["digest"], REJECTED_REASON: rejected["reason"]}

    def _write(self, tools: dict[str, dict[str, Any]]) -> None:
        kept = {"tools": tools, "servers": sorted(self._servers)}
        write_durably(self._file, json.dumps(kept, indent=1))
        self._tools = tools


def _approval(published: PublishedTool, by: str) -> dict[str, Any]:
    definition = approvals.remembered(published)
    return {"approved": published.approval_digest, "definition": definition, "by": by, "at": int(time.time())}


def _read(file: Path) -> tuple[dict[str, dict[str, Any]], frozenset[str]]:
    """The tools, and the ToolServers whose first list was imported."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        found, servers = kept["tools"], kept.get("servers", [])
        if not all(
            isinstance(each["approved"], str | None) and isinstance(each["definition"], str | None)
            for each in found.values()
        ) or not (isinstance(servers, list) and all(isinstance(each, str) for each in servers)):
            raise ValueError("not what was written")
    except FileNotFoundError:
        return {}, frozenset()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CliError(
            f"cannot read the approvals in {file}: {error}",
            hint="restore the file; without it, every tool is approved as it is now",
            code=Exit.USAGE,
        ) from error
    return dict(found), frozenset(servers)
