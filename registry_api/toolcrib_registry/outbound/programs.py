"""Requests to MCP servers that are programs of this machine: the local mode brings what starts them, a cluster has nothing."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from toolcrib_registry.outbound.guard import EgressRule
from toolcrib_registry.outbound.messages import Outbound, OutboundRequest, OutboundResponse, OutboundStream


class Programs(Protocol):
    """Starts programs, and speaks with them as if they were HTTP servers."""

    @property
    def allowed(self) -> Collection[str]:
        """`namespace/server` of ToolServers whose commands may be started; `*`: all."""
        ...

    def open(self, request: OutboundRequest) -> AbstractAsyncContextManager[OutboundStream]:
        """The answer to a request whose target has a program. Raises OutboundError."""
        ...


class BesidePrograms:
    """Requests to programs go to these, all others over the network.

    Args:
        network: the guarded client.
        programs: started by the local mode.
    """

    def __init__(self, network: Outbound, programs: Programs) -> None:
        self._network, self._programs = network, programs

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        """Over the network. Raises OutboundError."""
        return await self._network.send(request)

    def open(self, request: OutboundRequest) -> AbstractAsyncContextManager[OutboundStream]:
        """The answer to a request. Raises OutboundError."""
        if request.target.reach is EgressRule.PROGRAM:
            return self._programs.open(request)
        return self._network.open(request)

    async def close(self) -> None:
        """Close the connections; programs are their owner's to end."""
        await self._network.close()
