"""A full snapshot on its way in: its chunks are kept apart until the commit swaps them in whole (decision 0046).

Nothing is answered from a stage. There is one at most: a newer begin replaces it, a silence ends it, and what it may
hold is bounded. A leader that is lost on the way, or a chunk of another one, changes nothing that is in effect.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any

from toolcrib import process
from toolcrib.errors import RevisionMismatch
from toolcrib.snapshot import Draft
from toolcrib.wire.publish import ReplicaState, Revision, SnapshotChunk, SnapshotCommit
from toolcrib_registry.policy.state import PolicyState

SECONDS = 60.0
"""Without a further chunk for so long, a stage is dropped."""


class StageTooLarge(Exception):
    """The chunks of one snapshot exceed what a replica takes; `limit` is in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"a snapshot may have at most {limit} bytes")


@dataclass(slots=True, eq=False)
class _Stage:
    id: str
    to: Revision
    draft: Draft
    chunks: int = 0
    objects: int = 0
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def expects(self, chunk: SnapshotChunk) -> bool:
        return (self.id, self.to, self.chunks) == (chunk.stage, chunk.to, chunk.number)

    def is_whole(self, commit: SnapshotCommit) -> bool:
        found = (self.id, self.to, self.chunks, self.digest.hexdigest())
        return found == (commit.stage, commit.to, commit.chunks, commit.digest)


class Staging:
    """The one stage of a replica.

    Args:
        state: where a commit goes.
        most: bytes of all chunks of a snapshot together.
        seconds: between two chunks at most.
    """

    def __init__(self, state: PolicyState, *, most: int, seconds: float = SECONDS) -> None:
        self._state, self._most, self._seconds = state, most, seconds
        self._stage: _Stage | None = None
        self._turn = asyncio.Lock()
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def size(self) -> int:
        """Bytes of the chunks that are staged now."""
        return 0 if self._stage is None else self._stage.size

    async def take(self, chunk: SnapshotChunk, body: bytes) -> ReplicaState:
        """Stage `chunk`; `body` is what it was read from.

        Raises:
            EpochFenced: a later leader was heard. RevisionMismatch: it continues another stage, or none.
            StageTooLarge: the stage is dropped.
        """
        async with self._turn:
            self._state.fence(chunk.to.epoch)
            if chunk.number == 0:
                self._drop()
                self._stage = _Stage(chunk.stage, chunk.to, self._state.snapshot.draft())
            stage = self._stage
            if stage is None or not stage.expects(chunk):
                raise RevisionMismatch(f"chunk {chunk.number} belongs to no staged snapshot")
            self._wait(None)
            if stage.size + len(body) > self._most:
                self._drop()
                raise StageTooLarge(self._most)
            try:
                # fingerprints and tables: off the event loop, as at every publish
                await asyncio.to_thread(
                    stage.draft.add, chunk.tools, chunk.bindings, chunk.accounts, chunk.servers
                )
                await asyncio.to_thread(stage.digest.update, body)
            except BaseException:
                self._drop()  # what is half in it could not be told from what is whole
                raise
            stage.size += len(body)
            stage.chunks += 1
            stage.objects += len(chunk.tools) + len(chunk.bindings)
            process.heap.grown(len(chunk.tools) + len(chunk.bindings))
            self._wait(self._seconds)
            return self._state.report()

    async def commit(self, commit: SnapshotCommit) -> ReplicaState:
        """Swap the staged snapshot in, if all of it is here. The stage is used up, whatever comes of it.

        Raises:
            EpochFenced: a later leader was heard. RevisionMismatch: another snapshot is staged, less of it, or none.
        """
        async with self._turn:
            self._state.fence(commit.to.epoch)
            stage = self._stage
            if stage is None or stage.id != commit.stage:
                raise RevisionMismatch("no such snapshot is staged")
            self._drop()
            if not stage.is_whole(commit):
                raise RevisionMismatch("the staged chunks are not those of the commit")
            return await self._state.swap(stage.draft, commit.to, commit.age, stage.objects)

    def _wait(self, seconds: float | None) -> None:
        """Set the deadline of the next chunk, or none."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = (
            None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._drop)
        )

    def _drop(self) -> None:
        self._wait(None)
        self._stage = None
