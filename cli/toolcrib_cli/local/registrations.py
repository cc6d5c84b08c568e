"""Runtime registrations of the local mode: each a Tool manifest in a folder of the store, in effect at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from toolcrib import publishing
from toolcrib.errors import InvalidManifest
from toolcrib.resources import parse
from toolcrib.wire.publish import PublishedTool, Revision
from toolcrib_cli.local.store import write_durably
from toolcrib_operator.objects import Ref
from toolcrib_operator.world import World
from toolcrib_registry.policy.registration import AlreadyRegistered, RegistrationFailed, RegistrationForbidden

_IN_FORCE_WITHIN = 10.0


class Registrations:
    """A `Registrar` whose registrations survive a kill -9 once they are acknowledged."""

    def __init__(self, folder: Path, world: World, published: Callable[[int], Awaitable[Revision]]) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.folder = folder
        self._world = world
        self._published = published
        self._one_at_a_time = asyncio.Lock()

    async def register(self, tool: PublishedTool, allowed: Callable[[], bool]) -> None:
        """Return when `tool` is durable and in effect.

        Raises:
            RegistrationForbidden: `allowed()` is false once it is its turn; nothing has changed.
            AlreadyRegistered: its name is taken.
            RegistrationFailed: it could not be stored, or is no valid Tool; nothing has changed.
        """
        async with self._one_at_a_time:
            if not allowed():
                raise RegistrationForbidden(tool.name)
            if self._world.get(Ref("Tool", tool.tool_id)) is not None:
                raise AlreadyRegistered(tool.name)
            manifest = publishing.manifest(tool)
            try:
                parse(manifest, strict=True)
                file = self.folder / f"{tool.tool_id.split('/', 1)[1]}.json"
                await asyncio.to_thread(write_durably, file, json.dumps(manifest, indent=1))
            except (InvalidManifest, OSError) as error:
                raise RegistrationFailed(str(error)) from error
            change = self._world.upsert("Tool", manifest)
        try:
            async with asyncio.timeout(_IN_FORCE_WITHIN):
                await self._published(change)
        except TimeoutError as error:
            raise RegistrationFailed("stored, but not in effect yet") from error
