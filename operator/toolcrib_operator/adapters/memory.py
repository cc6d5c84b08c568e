"""The ports without a cluster: statuses live in the World, replicas are given. For the local mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib_operator.errors import Gone
from toolcrib_operator.objects import Ref
from toolcrib_operator.ports import Event, Replica, Written
from toolcrib_operator.world import World


class FixedReplicas:
    """A list of replicas that does not change."""

    def __init__(self, *replicas: Replica) -> None:
        self._replicas = replicas

    async def current(self) -> Sequence[Replica]:
        """All of them."""
        return self._replicas


class MemoryWriter:
    """Keeps statuses in the World and nothing else; `World.get(ref).status` shows them."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def write_status(self, ref: Ref, *, resource_version: str, status: Mapping[str, Any]) -> Written:
        """Merge `status` into the object's. Raises Gone."""
        entry = self._world.get(ref)
        if entry is None:
            raise Gone(str(ref))
        merged = {k: v for k, v in {**entry.status, **status}.items() if v is not None}
        return Written(resource_version, merged, entry.finalizers)

    async def write_finalizers(
        self, ref: Ref, *, resource_version: str, finalizers: Sequence[str]
    ) -> Written:
        """Say that it was done: a removed file does not wait for anybody."""
        return Written(resource_version, {}, tuple(finalizers))

    async def write_event(self, event: Event) -> None:
        """Nobody reads events here."""
