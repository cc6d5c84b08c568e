"""The client under test, over the real guarded pool."""

from collections.abc import AsyncIterator

import pytest

from mcp_upstream import POLICY
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.servers import Bounds

SMALL = Bounds(request_bytes=10_000, answer_bytes=200_000, events=200, list_bytes=50_000, pages=5)


@pytest.fixture
async def client() -> AsyncIterator[McpClient]:
    """With small bounds, so that a test reaches them."""
    async with OutboundHttp(POLICY) as outbound:
        made = McpClient(outbound, SMALL)
        yield made
        await made.close()
