"""The tools of others' MCP servers are listed in either era, and a new one is seen half a second after the server told of it."""

import time
from collections.abc import AsyncIterator, Iterator

import pytest

from imports_harness import Imports, importing
from mcp_peers import environments, python_server
from realparts.required import absent
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.imports import ServerOutcome, ServerWanted
from toolcrib_registry.outbound.guard import check_url
from toolcrib_registry.upstream.protocol import HANDSHAKE, STATELESS
from toolcrib_registry.upstream.servers import Asking, Question, Server

pytestmark = [pytest.mark.peers, pytest.mark.anyio]
TOOLS = {"add", "fails", "blocks", "asks", "grow"}
VISIBLE = 0.5
NAME = "team/peer"


@pytest.fixture(autouse=True)
def _environment() -> None:
    try:
        environments.python("current")
    except environments.PeersMissingError as error:
        absent(error)


@pytest.fixture(params=["sdk json", "sdk stream", "fastmcp json", "fastmcp stream"])
def server(request: pytest.FixtureRequest) -> str:
    """Which it is, and how it answers."""
    return str(request.param)


@pytest.fixture
def url(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server is."""
    with python_server.running(tmp_path_factory.mktemp("peer"), *server.split()) as found:
        yield found


@pytest.fixture
async def imports() -> AsyncIterator[Imports]:
    async with importing() as made:
        yield made


def wanted(url: str, every: float = 3600) -> ServerWanted:
    return ServerWanted(server=NAME, backend=PublishedBackend(url=url, timeout=30), every=every)


async def grow(imports: Imports, url: str, name: str) -> None:
    """Have the server add a tool, and tell of it."""
    server = Server(NAME, check_url(url, imports.policy.current), "", "team")
    question = Question("tools/call", {"name": "grow", "arguments": {"name": name}})
    await imports.client.ask(server, Asking(), question)


async def test_its_tools_are_listed(imports: Imports, url: str, era: str) -> None:
    imports.want(wanted(url))
    row = await imports.seen(ServerOutcome.LISTED, NAME)
    found = await imports.listed(NAME)

    assert {tool.name for tool in found.tools} == TOOLS
    assert found.unusable == ()
    assert found.instructions == "Use it well."
    assert row.server_name == "peer"
    assert row.protocol_version in (HANDSHAKE if era == "handshake" else (STATELESS, *HANDSHAKE))


async def test_a_new_tool_is_seen_half_a_second_after_the_server_told_of_it(
    imports: Imports, url: str, era: str, server: str
) -> None:
    tells = server != "fastmcp json"  # FastMCP tells on the stream of the call alone, and here there is none
    imports.want(wanted(url, every=3600 if tells else 1))
    await imports.seen(ServerOutcome.LISTED, NAME)
    took = []
    for n in range(3):
        began = time.monotonic()
        await grow(imports, url, f"new-{n}")

        await imports.until(lambda row, n=n: row.tools == len(TOOLS) + n + 1, NAME)  # type: ignore[misc]
        took.append(time.monotonic() - began)

    assert min(took) < (VISIBLE if tells else 5)


async def test_one_that_wants_a_login_is_told_with_where_it_says_how(
    imports: Imports, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with python_server.running(tmp_path_factory.mktemp("peer"), "sdk", "json", "login") as url:
        imports.want(wanted(url))
        row = await imports.seen(ServerOutcome.LOGIN_REQUIRED, NAME)

    assert row.metadata_url == "https://peer.example/.well-known/oauth-protected-resource/mcp"


async def test_one_that_goes_away_is_told_and_its_list_is_kept(
    imports: Imports, tmp_path_factory: pytest.TempPathFactory, era: str
) -> None:
    home = tmp_path_factory.mktemp("peer")
    with python_server.running(home, "sdk", "json") as url:
        imports.want(wanted(url))
        before = await imports.seen(ServerOutcome.LISTED, NAME)
    after = await imports.seen(ServerOutcome.UNREACHABLE, NAME)
    assert after.set_digest == before.set_digest
