"""Follows the notices of one server that its lists have changed, in a task of its own, and asks for them again when they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from toolcrib_registry.outbound.errors import OutboundError
from toolcrib_registry.upstream import reopening
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.errors import McpFailure, NoticesTooFast, RefusedByRpc, RefusedByStatus
from toolcrib_registry.upstream.lists import ACKNOWLEDGED, BY_NOTICE, CHANGING, Kind
from toolcrib_registry.upstream.protocol import STATELESS
from toolcrib_registry.upstream.servers import Asking, Facts, Server

log = logging.getLogger(__name__)

OPENING = 1.0
"""Seconds that a look waits for the stream, so that no change falls between the list and the stream."""
_NONE_OFFERED = (404, 405, 501)
TOO_FAST = "The server sends too many notices; its list is read at intervals instead."


class Listener:
    """The stream of one server.

    Args:
        client: asks the server.
        heard: called when the list of tools may have changed, and when a stream begins or ends.
        told: told which list has changed, at each notice.
    """

    def __init__(
        self,
        client: McpClient,
        heard: Callable[[], None],
        told: Callable[[Kind], None] = lambda kind: None,
    ) -> None:
        self._client, self._heard, self._told = client, heard, told
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._facts: Facts | None = None
        self._open = False
        self.trouble = ""
        """Why the notices of a server that sends some are not followed."""

    @property
    def promised(self) -> bool:
        """Whether the server tells of changes of its tools at present, by its own word."""
        return self._open and self._facts is not None and Kind.TOOLS in declared(self._facts)

    async def follow(self, server: Server, asking: Asking, facts: Facts) -> None:
        """Begin, if the server offers that and it has not begun; returns once the stream is open, or is not to be had now."""
        self._facts = facts
        if self._task is not None:
            return
        # in the handshake era servers send notices that they have not declared
        kinds = declared(facts)
        if facts.version == STATELESS and not kinds:
            return
        self._settled.clear()
        self._task = asyncio.create_task(self._run(server, asking, kinds))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPENING):
                await self._settled.wait()

    def stop(self) -> None:
        """Close the stream; nothing is heard from now on."""
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Close the stream, and return once it is closed."""
        self.stop()
        task, self._task, self._open, self.trouble = self._task, None, False, ""
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, server: Server, asking: Asking, kinds: tuple[Kind, ...]) -> None:
        failures = 0
        while True:
            began, refused, too_fast = time.monotonic(), False, False
            try:
                await self._followed(server, asking, kinds)
            except NoticesTooFast:
                too_fast = True
                log.warning("%s sends too many notices: its list is read at intervals", server.name)
            except (RefusedByStatus, RefusedByRpc) as failure:
                refused = isinstance(failure, RefusedByRpc) or failure.status in _NONE_OFFERED
            except (McpFailure, OutboundError):
                pass
            except Exception:
                log.exception("the notices of %s cannot be followed", server.name)
            was_open, self._open = self._open, False
            self.trouble = TOO_FAST if too_fast else ""
            self._settled.set()
            if was_open:
                self._heard()
            failures = 0 if time.monotonic() - began > reopening.LASTING and not too_fast else failures + 1
            await asyncio.sleep(reopening.until_heard(failures - 1, refused=refused, too_fast=too_fast))

    async def _followed(self, server: Server, asking: Asking, kinds: tuple[Kind, ...]) -> None:
        async with self._client.listen(server, asking, kinds) as notices:
            if self._facts is not None and self._facts.version != STATELESS:
                self._opened()
            async for notice in notices:
                if (kind := BY_NOTICE.get(notice.method)) is not None:
                    self._told(kind)
                    if kind is Kind.TOOLS:
                        self._heard()
                elif notice.method == ACKNOWLEDGED and _honoured(notice.params, kinds):
                    self._opened()

    def _opened(self) -> None:
        self._open, self.trouble = True, ""
        self._heard()
        self._settled.set()


def declared(facts: Facts) -> tuple[Kind, ...]:
    """The lists of which the server tells changes, by its own word."""
    found = ((kind, facts.capabilities.get(kind.capability)) for kind in CHANGING)
    return tuple(kind for kind, said in found if type(said) is dict and said.get("listChanged") is True)


def _honoured(params: Any, kinds: Collection[Kind]) -> bool:
    """Whether the stream brings the notices of tools, or at least some where those were not asked for."""
    notifications = params.get("notifications") if type(params) is dict else None
    if type(notifications) is not dict:
        return False
    asked = (Kind.TOOLS,) if Kind.TOOLS in kinds else kinds
    return any(notifications.get(kind.wanted) is True for kind in asked)
