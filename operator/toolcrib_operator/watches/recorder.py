"""One `on.event` handler a kind that only records.

There is no kopf create or update handler: each would cost three patches an object. There is no `kopf.index`
either: the World is one, and is listed before kopf starts, so that an index would only delay the first events.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Self

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from toolcrib import process
from toolcrib_operator.adapters.kube import ApiAccess, Kube
from toolcrib_operator.kinds.kind import Kind
from toolcrib_operator.objects import key_of
from toolcrib_operator.watches.resync import Resync
from toolcrib_operator.world import World

RETRIES = (0.2, 0.5, 1, 2, 3, 5, 5, 5)
"""Seconds between the attempts of a request of kopf's; after the last one kopf ends."""

PAUSE = 0.5
"""Seconds until kopf is run again after a kind has gone away under its watch."""

_GONE = 404
Operate = Callable[..., Awaitable[None]]
log = logging.getLogger(__name__)


NO_FINALIZER = "-"
"""What kopf looks for among an object's finalizers, and takes away: a name that the API server lets nobody write."""


_KOPF_READS = ("namespace", "name", "uid", "resourceVersion", "deletionTimestamp")


class _NoBase(kopf.DiffBaseStorage):
    """kopf's memory of what it has handled, which it reads from an annotation that anybody may write: none."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        return {}

    def fetch(self, *, body: Any) -> None:
        return None

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Nothing is kept."""


class _NoProgress(kopf.ProgressStorage):
    """kopf's memory of handlers under way: none."""

    def fetch(self, *, key: Any, body: Any) -> None:
        return None

    def store(self, *, key: Any, record: Any, body: Any, patch: Any) -> None:
        """Nothing is kept."""

    def purge(self, *, key: Any, body: Any, patch: Any) -> None:
        """Nothing is there."""

    def touch(self, *, body: Any, patch: Any, value: Any) -> None:
        """Nothing is kept."""

    def clear(self, *, essence: Any) -> Any:
        return essence


def keep_nothing(settings: kopf.OperatorSettings) -> None:
    """Let kopf read nothing from objects and write nothing to them.

    Anyone who may annotate an object could else write what kopf fails on: it would keep that object's events, a deletion
    among them, from the handlers, and after each failure for longer. An unexpected failure delays nothing either.
    """
    settings.persistence.diffbase_storage = _NoBase()
    settings.persistence.progress_storage = _NoProgress()
    settings.persistence.finalizer = NO_FINALIZER
    settings.queueing.error_delays = (0.0,)


class Forgetful(ResourceMemories):
    """kopf's memories of objects: none. What it would keep of each serves handlers that we do not have, and 1.5 KiB."""

    async def recall(self, raw_body: Any, **more: Any) -> ResourceMemory:
        return await super().recall(raw_body, **more | {"ephemeral": True})


class Memo:
    """What handlers get: the one World. kopf copies memos for each object, so a copy is the thing itself."""

    def __init__(self, world: World, resync: Resync) -> None:
        self.world = world
        self.resync = resync

    def __copy__(self) -> Self:
        return self


def register(registry: Any, kinds: Iterable[Kind]) -> None:
    """Add a recording handler for every kind that is watched."""
    for kind in kinds:
        if kind.watched:
            kopf.on.event(
                kind.group, kind.version, kind.plural, registry=registry, id=f"record-{kind.plural}"
            )(recorder(kind.name))


def recorder(kind: str) -> Any:
    """The handler of one kind."""

    async def record(event: Any, memo: Memo, **_: Any) -> None:
        manifest = event["object"]
        memo.resync.heard(kind)
        if event["type"] == "DELETED":
            version = manifest.get("metadata", {}).get("resourceVersion", "")
            memo.world.remove(kind, key_of(manifest), version)
        else:
            memo.world.upsert(kind, manifest)
        strip(manifest)

    return record


def strip(manifest: dict[str, Any]) -> None:
    """Take everything from an object that was recorded but what kopf needs of it.

    kopf holds on to it for a while, in cycles that only a late collection finds: parsed, a Tool of 100 KB is megabytes.
    """
    metadata = manifest.get("metadata") or {}
    manifest.clear()
    manifest["metadata"] = {key: metadata[key] for key in _KOPF_READS if key in metadata}


def connection(access: ApiAccess) -> kopf.ConnectionInfo:
    """Our access to the API server, as kopf wants it."""
    scheme, _, token = (access.authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=access.server,
        ca_path=access.ca_path,
        insecure=access.insecure,
        scheme=scheme or None,
        token=token or None,
        certificate_path=access.certificate_path,
        private_key_path=access.key_path,
    )


def watch(
    kube: Kube,
    memo: Memo,
    stop: threading.Event,
    *,
    retries: Sequence[float] = RETRIES,
    pause: float = PAUSE,
    operate: Operate = kopf.operator,
) -> None:
    """Run kopf in this thread until `stop` is set. At most once a process.

    A thread with an event loop of its own: kopf takes over the signals of the main thread, and ends every task of
    its loop that it does not know. A definition that is deleted may end kopf with a 404 before it has seen the
    deletion: then it is run again after `pause` seconds, and lists everything again. `operate` is kopf's own.

    Raises:
        Exception: kopf's own. One watch that fails for good (rights that were taken away, an error in the stream)
            ends them all.
    """
    while True:
        try:
            asyncio.run(_operate(kube, memo, stop, retries, operate))
        except Exception as error:
            if getattr(error, "status", None) != _GONE:
                raise
            log.warning("a kind was removed during its watch: watching again")
        if stop.wait(pause):
            return


async def _operate(
    kube: Kube, memo: Memo, stop: threading.Event, retries: Sequence[float], operate: Operate
) -> None:
    registry = kopf.OperatorRegistry()
    kinds = memo.world.kinds.values()
    register(registry, kinds)

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection(kube.access())

    kopf.on.login(registry=registry)(login)
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = None
    keep_nothing(settings)
    settings.queueing.idle_timeout = 0.5
    settings.watching.chunk_size = min(kind.page for kind in kinds)  # what a page holds is parsed at once
    settings.networking.error_backoffs = list(retries)
    # One of its own: kopf waits for it in a thread, which asyncio.run would wait for in turn, so that a failure
    # would look like silence. It is set when this run is over, or when everything is.
    over = threading.Event()

    def relay() -> None:
        stop.wait()
        over.set()

    threading.Thread(target=relay, name="kopf-stop", daemon=True).start()
    try:
        with process.watching("kopf"):
            await operate(
                registry=registry,
                settings=settings,
                memo=memo,
                memories=Forgetful(),
                standalone=True,
                clusterwide=True,
                stop_flag=over,
            )
    finally:
        over.set()
