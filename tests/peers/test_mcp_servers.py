"""Tools of MCP servers of others, called through a registry: the Python SDK's server and FastMCP's, answering JSON and streams."""

from collections.abc import Iterator
from typing import Any

import pytest

from mcp_peers import environments, python_server
from mcp_requests import call
from realparts.required import absent
from registry_harness import RunningRegistry, binding, running_registry, tool
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib_registry.upstream.protocol import HANDSHAKE, STATELESS
from toolcrib_registry.upstream.servers import Asking, Server

pytestmark = pytest.mark.peers
TOOLS = ("add", "fails", "blocks", "asks", "grow")


@pytest.fixture(scope="module", autouse=True)
def _environment() -> None:
    try:
        environments.python("current")
    except environments.PeersMissingError as error:
        absent(error)


@pytest.fixture(scope="module", params=["sdk json", "sdk stream", "fastmcp json", "fastmcp stream"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server is."""
    with python_server.running(tmp_path_factory.mktemp("peer"), *request.param.split()) as found:
        yield found


@pytest.fixture(scope="module")
def registry(url: str) -> Iterator[RunningRegistry]:
    tools = [
        tool(
            name,
            scopes=("use",),
            backend=PublishedBackend(url=url, timeout=30, mcp=PublishedMcp(server="team/peer", tool=name)),
        )
        for name in TOOLS
    ]
    with running_registry(tools, [binding("bot", ("use",))]) as running:
        yield running


@pytest.fixture(params=["as it is", "handshake"])
def era(request: pytest.FixtureRequest, registry: RunningRegistry) -> Iterator[str]:
    """The era in which the server is spoken to: the one that it offers, or the earlier one."""
    servers = registry.registry.servers

    async def forget() -> None:
        await servers.close()

    registry.on_loop(forget)
    if request.param == "handshake":
        from toolcrib_registry.upstream import eras

        with pytest.MonkeyPatch.context() as patch:

            async def none(*_: Any) -> None:
                return None

            # as a client that does not know the stateless era
            patch.setattr(eras, "discovered", none)
            yield "handshake"
    else:
        yield "as it is"


def test_its_tools_are_called_in_either_era(registry: RunningRegistry, era: str) -> None:
    added = call(registry, "/mcp/direct", "add", {"a": 2, "b": 3})
    assert added["structuredContent"] == {"result": 5}
    assert added["content"][0]["text"] == "5"

    failed = call(registry, "/mcp/direct", "fails")
    assert failed["isError"] is True
    assert "fails" in failed["content"][0]["text"]

    first, second = call(registry, "/mcp/direct", "blocks")["content"]
    assert (first["text"], second["mimeType"]) == ("one", "image/png")


def test_what_it_asks_of_us_is_unsupported_and_the_call_goes_on(registry: RunningRegistry, era: str) -> None:
    found = call(registry, "/mcp/direct", "asks")

    assert "content" in found or found.get("resultType") == "input_required"
    if era == "handshake":
        assert found["content"][0]["text"].startswith("went on")


def test_its_list_is_read(registry: RunningRegistry, era: str, url: str) -> None:
    from toolcrib_registry.outbound.guard import check_url

    async def listed() -> Any:
        policy = registry.registry.egress.current
        return await registry.registry.servers.listed(Server("team/list", check_url(url, policy)), Asking())

    found = registry.on_loop(listed)

    assert {each["name"] for each in found.entries} == set(TOOLS)
    assert found.cut is None
    assert found.facts.version in (HANDSHAKE if era == "handshake" else (STATELESS, *HANDSHAKE))
