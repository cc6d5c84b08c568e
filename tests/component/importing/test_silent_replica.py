"""The replica that watches MCP servers falls silent: another one is named, and no tool goes."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from manifests import manifest
from mcp_lists import Listing, definition, modern
from mcp_upstream import running
from operator_stage import Stage, staged
from registry_harness import OPERATOR, RunningRegistry, mint, running_registry
from relay import relay
from toolcrib_operator.adapters.replica_http import HttpReplica
from toolcrib_operator.objects import Ref
from toolcrib_operator.settings import ImportSettings
from waiting import until

pytestmark = pytest.mark.anyio
SERVER = Ref("ToolServer", "heist/files")
SETTINGS = ImportSettings()


def server(url: str) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "mcp": {"url": url}, "defaults": {"scopes": ["files:use"]}, "import": {"approval": "Automatic"},
    }  # fmt: skip
    made = manifest("ToolServer", "files", "heist", **spec)
    made["metadata"]["uid"] = "uid-files"
    return made


def tools(stage: Stage) -> set[str]:
    return {entry.head.spec.name for entry in stage.world.all("Tool") if entry.head is not None}  # type: ignore[union-attr]


@pytest.fixture
def registries() -> Iterator[list[RunningRegistry]]:
    with running_registry(publish=False) as first, running_registry(publish=False) as second:
        yield [first, second]


async def test_a_replica_whose_packets_are_lost_is_followed_by_another_within_15_s_and_no_tool_goes(
    tmp_path: Path, registries: list[RunningRegistry]
) -> None:
    token, listing = tmp_path / "token", Listing([definition("read"), definition("write")])
    token.write_text(mint(OPERATOR, audience="toolcrib-admin"))
    upstream = modern(listing)
    async with contextlib.AsyncExitStack() as stack:
        up = stack.enter_context(running(upstream))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        relays = [
            await stack.enter_async_context(relay(int(r.admin_url.rpartition(":")[2]))) for r in registries
        ]
        replicas = [HttpReplica(f"http://127.0.0.1:{r.port}", session, token_file=token) for r in relays]
        stage = await stack.enter_async_context(
            staged(server(up.url), replica=replicas[0], others=replicas[1:], imports=SETTINGS)  # type: ignore[arg-type]
        )
        assert stage.imports is not None
        reports = stage.imports.reports
        await until(lambda: tools(stage) == {"read", "write"} and reports.named is not None)
        first = reports.named
        lost = next(r for r, replica in zip(relays, replicas, strict=True) if replica.name == first)

        lost.silence(to_come=True)
        began = time.monotonic()
        listing.tools = [definition("read"), definition("write"), definition("added")]
        while reports.named in (None, first):
            assert time.monotonic() - began < 15
            assert tools(stage) >= {"read", "write"}
            await asyncio.sleep(0.01)
        assert time.monotonic() - began < 15
        await until(lambda: tools(stage) == {"read", "write", "added"}, seconds=15)
        assert stage.said("heist/files", "ToolServer")["Verified"] == ("True", "Verified")
