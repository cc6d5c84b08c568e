"""A server that takes access tokens is asked with one, as calls of its tools are; what is wrong with it stands in its row."""

import json

import pytest

from evil_upstream import response
from imports_harness import Imports, wanted
from mcp_lists import Listing, modern
from mcp_upstream import Behave, McpUpstream, Wire, serving
from token_endpoint import SECRET, TokenEndpoint, auth, credentials, form, token_endpoint
from toolcrib.resources.backends import AuthType
from toolcrib.wire.imports import ServerOutcome
from toolcrib.wire.publish import Credentials

pytestmark = pytest.mark.anyio


def guarded(up: McpUpstream, idp: TokenEndpoint) -> McpUpstream:
    """The server, for those alone who have a token."""

    def asks(behave: Behave) -> Behave:
        async def answer(wire: Wire) -> None:
            await (behave(wire) if idp.accepts(wire.request) else wire.status(401))

        return answer

    up.on = {method: asks(behave) for method, behave in up.on.items()}
    return up


def push(imports: Imports, up: McpUpstream, idp: TokenEndpoint) -> None:
    hosts = (up.url.removesuffix("/mcp"), idp.up.url)
    imports.credentials.replace(credentials(*hosts, namespace="team"))


async def test_a_list_is_read_with_one_token_for_all_requests(imports: Imports) -> None:
    async with token_endpoint() as idp, serving(guarded(modern(Listing()), idp)) as up:
        push(imports, up, idp)
        imports.want(wanted(up, auth=auth("team", token_url=idp.url)))
        await imports.seen(ServerOutcome.LISTED)
        await imports.until(lambda row: row.listening)

    assert len(idp.requests) == 1
    assert {w.request.headers["authorization"] for w in up.wires} == {"Bearer token-1"}


async def test_a_token_that_is_no_longer_accepted_is_replaced_within_the_look(imports: Imports) -> None:
    async with token_endpoint() as idp, serving(guarded(modern(Listing()), idp)) as up:
        push(imports, up, idp)
        imports.want(wanted(up, auth=auth("team", token_url=idp.url), every=1, listen=False))
        before = await imports.seen(ServerOutcome.LISTED)
        idp.good.clear()
        row = await imports.until(lambda row: row.read_at != before.read_at)

    assert row.outcome is ServerOutcome.LISTED
    assert len(idp.requests) == 2


async def test_why_there_is_no_token_is_said_in_the_row_without_the_secret(imports: Imports) -> None:
    async with token_endpoint() as idp, serving(guarded(modern(Listing()), idp)) as up:
        idp.answers = lambda: response(
            json.dumps({"error": "invalid_client", "error_description": SECRET}).encode(), status=401
        )
        push(imports, up, idp)
        imports.want(wanted(up, auth=auth("team", token_url=idp.url)))
        row = await imports.seen(ServerOutcome.AUTHENTICATION_FAILED)

    assert "(invalid_client)" in row.detail
    assert SECRET not in row.model_dump_json()
    assert up.wires == []


async def test_a_server_is_not_listened_to_once_the_secret_of_its_tokens_is_gone(imports: Imports) -> None:
    async with token_endpoint() as idp, serving(guarded(modern(Listing()), idp)) as up:
        push(imports, up, idp)
        imports.want(wanted(up, auth=auth("team", token_url=idp.url)))
        await imports.until(lambda row: row.listening)
        imports.credentials.replace(Credentials(epoch=1))
        row = await imports.seen(ServerOutcome.CREDENTIAL_PENDING)

    assert row.listening is False


async def test_a_list_of_a_server_that_takes_tokens_of_callers_is_read_with_the_clients_own(
    imports: Imports,
) -> None:
    async with token_endpoint() as idp, serving(guarded(modern(Listing()), idp)) as up:
        push(imports, up, idp)
        exchange = auth("team", token_url=idp.url).model_copy(update={"type": AuthType.TOKEN_EXCHANGE})
        imports.want(wanted(up, auth=exchange))
        await imports.seen(ServerOutcome.LISTED)

    (asked,) = idp.requests
    assert form(asked) == {"grant_type": "client_credentials"}
