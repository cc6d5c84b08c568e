"""A full snapshot on its way to one replica: in chunks, or in one body where the replica knows no chunks.

Tools come from an iterator and are encoded one at a time, so that the whole is in memory only for an older replica.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from toolcrib.snapshot import Snapshot
from toolcrib.wire.features import (
    SNAPSHOT_CHUNKS,
    enforceable,
    enforceable_binding,
    enforceable_server,
    enforceable_tool,
)
from toolcrib.wire.publish import (
    Publish,
    PublishedAccount,
    PublishedBinding,
    PublishedServer,
    PublishedTool,
    ReplicaState,
    Revision,
    SnapshotCommit,
)
from toolcrib_operator.ports import Replica

CHUNK_BYTES = 256 << 10
"""What a chunk is filled up to; a replica takes 4 MiB, for one object that is larger."""
_PAUSE = 100
"""Tools after which others on the loop get their turn, where no chunk is due yet."""

Tools = Callable[[Snapshot], AsyncIterator[PublishedTool]]
"""All tools of a snapshot, as they stand in it."""


async def held_tools(snapshot: Snapshot) -> AsyncIterator[PublishedTool]:
    """The tools that the snapshot itself holds."""
    for tool in snapshot.tools.values():
        yield tool


@dataclass(frozen=True)
class SnapshotTransfer:
    """Everything of one revision."""

    snapshot: Snapshot
    to: Revision
    tools: Tools = held_tools

    async def send(
        self,
        replica: Replica,
        features: Collection[str],
        *,
        age: Callable[[], float],
        may_act: Callable[[], bool],
    ) -> ReplicaState | None:
        """Bring `replica` to this revision.

        Args:
            replica: where to.
            features: what it knows, as it said.
            age: for `Publish.age`, asked when all the rest has been sent.
            may_act: asked before every request; None comes back once it is False.
        """
        if SNAPSHOT_CHUNKS not in features:
            step = enforceable(await self._whole(), features)
            if not may_act():
                return None
            return await replica.publish(step.model_copy(update={"age": age()}))
        stage, count, digest = secrets.token_hex(16), 0, hashlib.sha256()
        async for body in self._chunks(stage, features):
            if not may_act():
                return None
            await replica.stage(body)
            digest.update(body)
            count += 1
        if not may_act():
            return None
        return await replica.commit(
            SnapshotCommit(to=self.to, stage=stage, chunks=count, digest=digest.hexdigest(), age=age())
        )

    async def _whole(self) -> Publish:
        tools = []
        async for tool in self.tools(self.snapshot):
            tools.append(tool)
            if len(tools) % _PAUSE == 0:
                await asyncio.sleep(0)
        held = self.snapshot
        return await asyncio.to_thread(
            Publish,
            base=None,
            to=self.to,
            bindings=tuple(held.bindings.values()),
            tools=tuple(tools),
            servers=tuple(held.servers.values()),
            # none is something else than not known: then no token would be held against them
            accounts=None if held.accounts is None else tuple(held.accounts.values()),
        )

    async def _chunks(self, stage: str, features: Collection[str]) -> AsyncIterator[bytes]:
        held = self.snapshot
        chunk = _Chunk(self.to, stage, known=held.accounts is not None)
        bindings = (enforceable_binding(b, features) for b in held.bindings.values())
        for body in chunk.filled("bindings", bindings):
            yield body
        for body in chunk.filled("accounts", (held.accounts or {}).values()):
            yield body
        servers = (enforceable_server(s, features) for s in held.servers.values())
        for body in chunk.filled("servers", servers):
            yield body
        taken = 0
        async for tool in self.tools(held):
            if chunk.is_full_with(encoded := _encoded(enforceable_tool(tool, features))):
                yield chunk.close()
            chunk.add("tools", encoded)
            taken += 1
            if taken % _PAUSE == 0:
                await asyncio.sleep(0)
        yield chunk.close()


class _Chunk:
    """The bodies of a stage, one after the other."""

    def __init__(self, to: Revision, stage: str, *, known: bool) -> None:
        self._to, self._stage, self._number = to.model_dump_json().encode(), stage.encode(), 0
        self._known = known
        self._start()

    def _start(self) -> None:
        self._items: dict[str, list[bytes]] = {
            "bindings": [],
            "accounts": [],
            "servers": [],
            "tools": [],
        }
        self._size = 0

    def is_full_with(self, encoded: bytes) -> bool:
        return self._size > 0 and self._size + len(encoded) > CHUNK_BYTES

    def add(self, kind: str, encoded: bytes) -> None:
        self._items[kind].append(encoded)
        self._size += len(encoded) + 1

    def filled(
        self, kind: str, items: Iterable[PublishedBinding | PublishedAccount | PublishedServer]
    ) -> Iterator[bytes]:
        """Add all of `items`; the bodies that became full on the way."""
        for item in items:
            if self.is_full_with(encoded := _encoded(item)):
                yield self.close()
            self.add(kind, encoded)

    def close(self) -> bytes:
        """The body of what was added, and the next chunk begins."""
        lists = {kind: b"[%s]" % b",".join(given) for kind, given in self._items.items()}
        if not self._known:
            lists["accounts"] = b"null"
        body = b'{"to":%s,"stage":"%s","number":%d,"bindings":%s,"accounts":%s,"servers":%s,"tools":%s}' % (
            self._to, self._stage, self._number, lists["bindings"], lists["accounts"], lists["servers"], lists["tools"],
        )  # fmt: skip
        self._number += 1
        self._start()
        return body


def _encoded(item: BaseModel) -> bytes:
    return item.model_dump_json(by_alias=True).encode()
