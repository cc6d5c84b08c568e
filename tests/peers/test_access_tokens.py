"""The SDK's server behind the SDK's own bearer check takes access tokens that a real Dex gives to the registry's client."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dex import Dex, secret_of
from imports_harness import Imports, importing
from mcp_peers import environments, python_server
from published import bot, tool
from realparts.required import absent, require_real
from token_endpoint import auth, credentials
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib.wire.imports import ServerOutcome, ServerWanted
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.mcp.backend import McpBackend

pytestmark = [pytest.mark.peers, pytest.mark.anyio]
CLIENT = "toolcrib"
ARGUMENTS = CheckedArguments({"a": 2, "b": 3}, b'{"a":2,"b":3}')


@pytest.fixture(scope="module")
def dex() -> Iterator[Dex]:
    try:
        environments.python("current")
    except environments.PeersMissingError as error:
        absent(error)
    require_real("dex")
    with Dex([CLIENT]) as found:
        yield found


@pytest.fixture
def url(dex: Dex, tmp_path: Path) -> Iterator[str]:
    with python_server.running(tmp_path, "sdk", "json", f"issuer={dex.issuer}") as found:
        yield found


@pytest.fixture
async def imports() -> AsyncIterator[Imports]:
    async with importing() as made:
        yield made


def backend(url: str, **oauth: str) -> PublishedBackend:
    return PublishedBackend(url=url, auth=auth("team", **oauth), timeout=30)


@pytest.mark.parametrize("configured", [False, True], ids=["found by metadata", "configured"])
async def test_its_tools_are_listed_and_called_with_tokens_of_its_authorization_server(
    imports: Imports, dex: Dex, url: str, configured: bool
) -> None:
    hosts = (dex.url, f"{dex.issuer}/token", url.removesuffix("/mcp"))
    imports.credentials.replace(
        credentials(*hosts, namespace="team", client=CLIENT, secret=secret_of(CLIENT))
    )
    place = backend(url, **({"token_url": f"{dex.issuer}/token"} if configured else {}))
    imports.want(ServerWanted(server="team/peer", backend=place))

    row = await imports.seen(ServerOutcome.LISTED, "team/peer")

    assert row.server_name == "peer"
    caller = McpBackend(imports.client, imports.credentials, imports.policy, tokens=imports.tokens)
    add = tool(
        "team/add", backend=place.model_copy(update={"mcp": PublishedMcp(server="team/peer", tool="add")})
    )
    assert (await caller.call(add, ARGUMENTS, "r-1", bot())).structured == {"result": 5}


async def test_a_client_that_dex_does_not_know_is_told(imports: Imports, dex: Dex, url: str) -> None:
    hosts = (dex.url, f"{dex.issuer}/token", url.removesuffix("/mcp"))
    imports.credentials.replace(credentials(*hosts, namespace="team", client=CLIENT, secret="wrong"))
    imports.want(ServerWanted(server="team/peer", backend=backend(url)))

    row = await imports.seen(ServerOutcome.AUTHENTICATION_FAILED, "team/peer")

    assert "(invalid_client)" in row.detail


async def test_a_server_whose_login_is_for_users_is_told_where_it_is_described(
    imports: Imports, url: str
) -> None:
    imports.want(ServerWanted(server="team/peer", backend=PublishedBackend(url=url, timeout=30)))

    row = await imports.seen(ServerOutcome.LOGIN_REQUIRED, "team/peer")

    assert row.metadata_url == url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
