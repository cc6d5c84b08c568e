"""A server is asked as calls of its tools are: with the same credential, from the same hosts, signed where it takes assertions."""

import asyncio

import jwt
import pytest

from imports_harness import Imports, importing, wanted
from mcp_lists import Listing, modern
from mcp_upstream import Wire, serving
from toolcrib.resources.backends import AuthType
from toolcrib.wire.backends import PublishedAuth, PublishedBackend, SecretReference
from toolcrib.wire.imports import ServerOutcome, ServerWanted
from toolcrib.wire.publish import Credential, Credentials
from toolcrib_registry.calls.assertions.keys import AssertionKeys
from toolcrib_registry.calls.assertions.signing import Assertions
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.clock import SystemClock
from toolcrib_registry.importing.routes import SUBJECT, Routes
from toolcrib_registry.outbound.guard import EgressPolicy
from waiting import until

pytestmark = pytest.mark.anyio
REFERENCE = SecretReference(namespace="team", name="files-token", key="token")
AUTH = PublishedAuth(type=AuthType.BEARER, secret=REFERENCE)


def push(imports: Imports, value: str, hosts: tuple[str, ...]) -> None:
    credential = Credential(namespace="team", name="files-token", key="token", hosts=hosts, value=value)
    imports.credentials.replace(Credentials(epoch=1, credentials=(credential,)))


async def test_the_credential_is_sent_with_each_request_and_a_new_one_is_taken_up(imports: Imports) -> None:
    listing = Listing()
    async with serving(modern(listing)) as up:
        hosts = (up.url.removesuffix("/mcp"),)
        imports.want(wanted(up, auth=AUTH))
        row = await imports.seen(ServerOutcome.CREDENTIAL_PENDING)
        assert "credential" in row.detail
        assert up.wires == []
        push(imports, "first-secret", hosts)
        await imports.until(lambda row: row.listening)
        assert {w.request.headers["authorization"] for w in up.wires} == {"Bearer first-secret"}
        asked = len(up.wires)
        push(imports, "second-secret", hosts)
        await up.arrived("subscriptions/listen", 2)
        await until(lambda: listing.streams == up.of("subscriptions/listen")[1:])
        await imports.until(lambda row: row.listening)
        assert {w.request.headers["authorization"] for w in up.wires[asked:]} == {"Bearer second-secret"}


@pytest.mark.parametrize("closed", ["credential", "egress"])
async def test_a_server_that_may_not_be_asked_any_more_is_not_listened_to(
    imports: Imports, closed: str
) -> None:
    listing = Listing()
    async with serving(modern(listing)) as up:
        push(imports, "first-secret", (up.url.removesuffix("/mcp"),))
        imports.want(wanted(up, auth=AUTH))
        before = await imports.until(lambda row: row.listening)
        if closed == "credential":
            imports.credentials.replace(Credentials(epoch=2))
            row = await imports.seen(ServerOutcome.CREDENTIAL_PENDING)
        else:
            imports.policy.current = EgressPolicy()
            row = await imports.seen(ServerOutcome.EGRESS_REFUSED)
        await until(lambda: not listing.streams)

    assert row.listening is False
    assert row.set_digest == before.set_digest


async def test_the_same_credential_pushed_again_changes_nothing(imports: Imports) -> None:
    async with serving(modern(Listing())) as up:
        push(imports, "first-secret", (up.url.removesuffix("/mcp"),))
        imports.want(wanted(up, auth=AUTH))
        await imports.until(lambda row: row.listening)
        asked = len(up.wires)
        push(imports, "first-secret", (up.url.removesuffix("/mcp"),))
        await asyncio.sleep(1.5)  # longer than the importer takes to notice another one
        assert len(up.wires) == asked


async def test_a_credential_goes_to_no_host_that_its_secret_does_not_list(imports: Imports) -> None:
    async with serving(modern(Listing())) as up:
        push(imports, "first-secret", ("files.example",))
        imports.want(wanted(up, auth=AUTH))
        row = await imports.seen(ServerOutcome.CREDENTIAL_REFUSED)

    assert "toolcrib.dev/hosts" in row.detail
    assert up.wires == []


@pytest.mark.parametrize("header", ["", 'WWW-Authenticate: Bearer resource_metadata="https://a.example/x"'])
async def test_a_credential_that_is_refused_is_said_without_it(imports: Imports, header: str) -> None:
    async def refuses(wire: Wire) -> None:
        await wire.status(401, *(header,) * bool(header))

    up = modern(Listing())
    up.on["server/discover"] = refuses
    async with serving(up):
        push(imports, "first-secret", (up.url.removesuffix("/mcp"),))
        imports.want(wanted(up, auth=AUTH))
        row = await imports.seen(ServerOutcome.AUTHENTICATION_FAILED)

    assert "Secret" in row.detail
    assert "first-secret" not in row.model_dump_json()


async def test_a_list_that_repeats_the_credential_is_not_used(imports: Imports) -> None:
    listing = Listing()
    async with serving(modern(listing)) as up:
        push(imports, "first-secret", (up.url.removesuffix("/mcp"),))
        imports.want(wanted(up, auth=AUTH))
        before = await imports.until(lambda row: row.listening)
        await listing.change([{**listing.tools[0], "description": "Send first-secret along."}])
        row = await imports.seen(ServerOutcome.PROTOCOL_ERROR)

    assert "credential" in row.detail
    assert row.set_digest == before.set_digest


async def test_a_server_whose_name_or_version_repeats_the_credential_is_not_told_of(imports: Imports) -> None:
    async with serving(modern(Listing(version="1 (Bearer first-secret)"))) as up:
        push(imports, "first-secret", (up.url.removesuffix("/mcp"),))
        imports.want(wanted(up, auth=AUTH))
        row = await imports.seen(ServerOutcome.PROTOCOL_ERROR)

    assert "first-secret" not in row.model_dump_json()
    assert row.set_digest is None


async def test_a_metadata_url_that_repeats_the_credential_is_not_told(imports: Imports) -> None:
    async def refuses(wire: Wire) -> None:
        await wire.status(
            401, 'WWW-Authenticate: Bearer resource_metadata="https://a.example/?t=first-secret"'
        )

    up = modern(Listing())
    up.on["server/discover"] = refuses
    async with serving(up):
        push(imports, "first-secret", (up.url.removesuffix("/mcp"),))
        imports.want(wanted(up, auth=AUTH))
        row = await imports.seen(ServerOutcome.AUTHENTICATION_FAILED)

    assert row.metadata_url is None


@pytest.mark.parametrize(
    ("backend", "outcome"),
    [
        (PublishedBackend(url="https://elsewhere.example/mcp"), ServerOutcome.EGRESS_REFUSED),
        (PublishedBackend(url="http://169.254.169.254/mcp"), ServerOutcome.EGRESS_REFUSED),
        (
            PublishedBackend(service_namespace="team", service_name="files", service_port=80, path="/mcp"),
            ServerOutcome.NO_ADDRESS,
        ),
        (
            PublishedBackend(service_namespace="other", service_name="files", service_port=80, path="/mcp"),
            ServerOutcome.EGRESS_REFUSED,
        ),
    ],
)
async def test_the_guard_of_calls_is_the_guard_of_imports(
    imports: Imports, backend: PublishedBackend, outcome: ServerOutcome
) -> None:
    imports.want(ServerWanted(server="team/files", backend=backend))
    row = await imports.seen(outcome)

    assert row.detail
    assert row.tried_at is None, "nothing was asked"


async def test_a_service_is_asked_once_it_has_an_address(imports: Imports) -> None:
    backend = PublishedBackend(service_namespace="team", service_name="files", service_port=80, path="/mcp")
    async with serving(modern(Listing())) as up:
        imports.want(ServerWanted(server="team/files", backend=backend))
        await imports.seen(ServerOutcome.NO_ADDRESS)
        imports.policy.open((), {"team/files": f"127.0.0.1:{up.port}"})
        await imports.seen(ServerOutcome.LISTED)


async def test_each_request_to_a_server_that_takes_assertions_has_one_of_its_own() -> None:
    clock = SystemClock()
    keys = AssertionKeys(None, clock.now, clock.elapsed)
    assertions = Assertions("https://registry.example", keys, clock.now)
    async with serving(modern(Listing())) as up:
        policy = EgressPolicy(backends={"team/files": f"127.0.0.1:{up.port}"})
        async with importing(policy, assertions) as imports:
            backend = PublishedBackend(
                service_namespace="team", service_name="files", service_port=80, path="/mcp"
            )
            imports.want(ServerWanted(server="team/files", backend=backend))
            await imports.until(lambda row: row.listening)

    sent = [wire.request.headers["toolcrib-assertion"] for wire in up.wires]
    assert len(sent) == len(set(sent)) >= 3
    for each in sent:
        claims = jwt.decode(each, options={"verify_signature": False})
        assert (claims["aud"], claims["sub"]) == ("toolservers/team/files", SUBJECT)
        assert claims["sub_iss"] == claims["iss"] == "https://registry.example"


async def test_a_route_shows_no_secret() -> None:
    credentials = CredentialStore()
    credential = Credential(
        namespace="team", name="files-token", key="token", hosts=("http://127.0.0.1:9",), value="first-secret"
    )
    credentials.replace(Credentials(epoch=1, credentials=(credential,)))
    backend = PublishedBackend(url="http://127.0.0.1:9/mcp", auth=AUTH)
    routes = Routes(EgressPolicy(loopback=True), credentials)
    route = await routes.of(ServerWanted(server="team/files", backend=backend))
    assert route.credential.headers == {"authorization": "Bearer first-secret"}
    assert "first-secret" not in repr(route)
