"""The ports without a cluster: statuses and imported Tools live in the World, replicas are given. For the local mode."""

from __future__ import annotations

import copy
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolcrib.resources.conditions import timestamp
from toolcrib_operator.errors import Conflict, Gone
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


_EVENTS = 10
"""Of one object, the last ones."""


class MemoryWriter:
    """Keeps statuses in the World (`World.get(ref).status`), and the last events of each object.

    Args:
        world: where the objects are.
        written: told of each object whose status was written, before it is in the World.
    """

    def __init__(self, world: World, written: Callable[[Ref], None] = lambda ref: None) -> None:
        self._world, self._written = world, written
        self._kept: dict[Ref, deque[Event]] = {}

    def events_of(self, ref: Ref) -> list[Event]:
        """The last events of an object, the oldest first."""
        return list(self._kept.get(ref, ()))

    def forget(self, ref: Ref) -> None:
        """The object is gone; one that is made again under its name begins without events."""
        self._kept.pop(ref, None)

    async def write_status(self, ref: Ref, *, resource_version: str, status: Mapping[str, Any]) -> Written:
        """Merge `status` into the object's. Raises Gone."""
        entry = self._world.get(ref)
        if entry is None:
            raise Gone(str(ref))
        merged = {k: v for k, v in {**entry.status, **status}.items() if v is not None}
        self._written(ref)
        return Written(resource_version, merged, entry.finalizers)

    async def write_finalizers(
        self, ref: Ref, *, resource_version: str, finalizers: Sequence[str]
    ) -> Written:
        """Say that it was done: a removed file does not wait for anybody."""
        return Written(resource_version, {}, tuple(finalizers))

    async def write_event(self, event: Event) -> None:
        """Keep it with the object, if that is still there."""
        if self._world.get(event.ref) is None:
            self._kept.pop(event.ref, None)
        else:
            self._kept.setdefault(event.ref, deque(maxlen=_EVENTS)).append(event)


class MemoryApplier:
    """Writes imported Tools into the World; they last as long as the process.

    Args:
        world: where the objects are.
        clock: seconds since the epoch: when an object was created.
    """

    def __init__(self, world: World, clock: Callable[[], float] = time.time) -> None:
        self._world, self._clock = world, clock

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> dict[str, Any]:
        """The Tool as it is to be in the World. Raises Conflict."""
        metadata = manifest["metadata"]
        there = self._world.get(Ref(manifest["kind"], f"{metadata['namespace']}/{metadata['name']}"))
        if (there is None) is not (uid is None) or (there is not None and there.uid != uid):
            raise Conflict(f"{manifest['kind']} {metadata['name']} is another one")
        created = timestamp(self._clock()) if there is None else there.created
        kept = {"uid": uid or secrets.token_hex(8), "creationTimestamp": created}
        return {**manifest, "metadata": {**metadata, **kept}}

    async def delete(self, ref: Ref, *, uid: str) -> None:
        """Remove it. Raises Conflict."""
        there = self._world.get(ref)
        if there is not None and there.uid != uid:
            raise Conflict(f"{ref} is another one")
        self._world.remove(ref.kind, ref.key)


class MemoryWorkloads:
    """Deployments and Jobs in memory: nothing runs."""

    def __init__(self) -> None:
        self.objects: dict[Ref, dict[str, Any]] = {}

    async def there(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        """Those of a namespace."""
        return [copy.deepcopy(each) for ref, each in self.objects.items() if ref.namespace == namespace]

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> dict[str, Any]:
        """Write it over what is there. Raises Conflict."""
        metadata = manifest["metadata"]
        ref = Ref(manifest["kind"], f"{metadata['namespace']}/{metadata['name']}")
        there = self.objects.get(ref)
        if (there is None) is not (uid is None) or (there is not None and there["metadata"]["uid"] != uid):
            raise Conflict(f"{ref} is another one")
        held = {} if there is None else there["metadata"]
        generation = held.get("generation", 0) + (there is None or there["spec"] != manifest["spec"])
        kept = {"uid": uid or secrets.token_hex(8), "generation": generation}
        made = copy.deepcopy({**(there or {}), **manifest, "metadata": {**held, **metadata, **kept}})
        self.objects[ref] = made
        return copy.deepcopy(made)

    async def delete(self, ref: Ref, *, uid: str) -> None:
        """Remove it. Raises Conflict."""
        there = self.objects.get(ref)
        if there is not None and there["metadata"]["uid"] != uid:
            raise Conflict(f"{ref} is another one")
        self.objects.pop(ref, None)
