"""Access requests of the local mode: each an AccessRequest manifest in a folder of the store, beside what approves it.

The operator's own desk decides what may be asked for and what is over; here is where it writes.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolcrib.resources.conditions import timestamp
from toolcrib.wire.outbox import AccessEntry
from toolcrib_cli.local.store import write_durably
from toolcrib_operator.errors import ClusterUnavailable
from toolcrib_operator.objects import Ref
from toolcrib_operator.replicas.access import AccessRequests
from toolcrib_operator.replicas.publisher import Publisher
from toolcrib_operator.world import World
from toolcrib_registry.policy.access_requests import AccessAsked, AccessFailed, answered

_WITHIN = 10.0


class LocalAccess:
    """The registry's port to the people of this machine; `open` before it is asked."""

    def __init__(self, folder: Path, world: World) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder, self._world = folder, world
        self._desk: AccessRequests | None = None

    def open(self, publisher: Publisher) -> None:
        """Take requests for the tools that are published."""
        self._desk = AccessRequests(self._world, publisher, self, self)

    async def run(self, stop: asyncio.Event) -> None:
        """Delete what is over, until `stop`."""
        assert self._desk is not None
        await self._desk.run(stop)

    async def ask(self, asked: AccessAsked) -> str:
        """As `AccessDesk` of the registry."""
        if self._desk is None:
            raise AccessFailed("The local mode is starting. Retry shortly.")
        entry = AccessEntry(
            id=uuid.uuid4().hex,
            tool_id=asked.tool_id,
            subject=asked.subject,
            account_uid=None,  # accounts of files have none
            why=asked.why,
            seconds=_WITHIN,
        )
        return answered(await self._desk.settle(entry, time.monotonic() + _WITHIN))

    async def create(self, kind: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Write a request's file. Raises ClusterUnavailable."""
        metadata = {**manifest["metadata"], "creationTimestamp": timestamp(time.time())}
        made = {**manifest, "metadata": metadata}
        file = self._folder / f"{metadata['namespace']}.{metadata['name']}.request.json"
        try:
            await asyncio.to_thread(write_durably, file, json.dumps(made, indent=1))
        except OSError as error:
            raise ClusterUnavailable(str(error)) from error
        return made

    async def delete(self, ref: Ref, *, uid: str) -> None:
        """Remove a request's file, and that of the binding which it owns."""
        for what in ("request", "binding"):
            (self._folder / f"{ref.namespace}.{ref.name}.{what}.json").unlink(missing_ok=True)
