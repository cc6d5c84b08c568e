"""Calls of `service:` backends: the published address is dialled under the Service's own name, or nothing is."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from evil_upstream import Rebinding, response, upstream
from published import bot, tool
from realparts.pki import write_server_certificate
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.adapters.outbound.forbidden_hosts import REFRESH_SECONDS, ForbiddenNames
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import CallError, Refused, ServicePending
from toolcrib_registry.outbound.errors import EgressRefused, Unreachable
from toolcrib_registry.outbound.guard import EgressPolicy, EgressRule, Target
from toolcrib_registry.outbound.messages import OutboundRequest, OutboundResponse

pytestmark = pytest.mark.anyio


def reader(cluster_ip: str | None, port: int = 8080) -> PublishedTool:
    return tool(
        "heist/reader",
        backend=PublishedBackend(
            service_namespace="heist",
            service_name="files",
            service_port=port,
            cluster_ip=cluster_ip,
            path="/read",
        ),
    )


def place(port: int, *, scheme: str = "http", address: str | None = "127.0.0.1") -> Target:
    """A Service whose address is on this machine; by the rule of a service none on loopback would be dialled."""
    return Target(scheme, "files.heist.svc", port, "/read", EgressRule.MAPPED, frozenset(), address=address)


async def nobody(host: str, port: int) -> list[str]:
    raise AssertionError(f"{host} was looked up")


class Recorder:
    """Takes the place of the network."""

    def __init__(self) -> None:
        self.requests: list[OutboundRequest] = []

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        self.requests.append(request)
        return OutboundResponse(200, {"content-type": "application/json"}, b"{}")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("ip", "dialled"), [("10.96.0.17", "10.96.0.17"), ("fd12::17", "[fd12::17]")])
async def test_a_call_goes_to_the_published_address_and_keeps_the_services_name(
    ip: str, dialled: str
) -> None:
    policy, sent = EgressPolicy(), Recorder()
    await HttpBackend(sent, CredentialStore(), policy).call(
        reader(ip), CheckedArguments({}, b"{}"), "r", bot()
    )
    went = sent.requests[0].target

    assert (went.origin, went.authority) == (f"http://{dialled}:8080", "files.heist.svc:8080")


async def test_the_address_is_dialled_without_a_lookup_and_the_host_header_names_the_service() -> None:
    async with upstream(lambda _: response()) as up, OutboundHttp(EgressPolicy(), resolve=nobody) as outbound:
        await outbound.send(OutboundRequest(place(up.port), "POST", "/read"))

        assert up.requests[0].headers["host"] == f"files.heist.svc:{up.port}"


async def test_over_tls_the_service_is_named_and_its_certificate_is_verified(tmp_path: Path) -> None:
    write_server_certificate(tmp_path, ("files.heist.svc",))
    named: list[str | None] = []
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    tls.sni_callback = lambda _socket, name, _context: named.append(name)
    ca = str(tmp_path / "ca.crt")
    async with (
        upstream(lambda _: response(), tls=tls) as up,
        OutboundHttp(EgressPolicy(), resolve=nobody) as outbound,
    ):
        sent = OutboundRequest(place(up.port, scheme="https"), "GET", "/", ca_file=ca)
        assert (await outbound.send(sent)).status == 200
        assert named == ["files.heist.svc"]
        other = Target(
            "https", "other.heist.svc", up.port, "/", EgressRule.MAPPED, frozenset(), address="127.0.0.1"
        )
        with pytest.raises(Unreachable, match="certificate"):
            await outbound.send(OutboundRequest(other, "GET", "/", ca_file=ca))


@pytest.mark.parametrize("ip", ["127.0.0.1", "169.254.169.254", "8.8.8.8", "::1", "fd00:ec2::254", "0.0.0.0"])
async def test_an_address_that_no_service_has_is_refused_and_nobody_is_dialled(ip: str) -> None:
    async with upstream(lambda _: response()) as inside:
        error = await error_of(reader(ip, inside.port))

        assert (type(error), inside.accepts) == (Refused, 0)


async def test_without_a_published_address_nothing_is_looked_up_or_dialled() -> None:
    error = await error_of(reader(None))

    assert (type(error), error.code) == (ServicePending, "service_pending")
    assert error.retry_after == 5
    assert "files" not in error.detail, "callers are not told what stands behind a tool"


async def test_the_socket_judges_the_published_address_again() -> None:
    async with upstream(lambda _: response()) as inside, OutboundHttp(EgressPolicy()) as outbound:
        target = Target(
            "http", "files.heist.svc", inside.port, "/", EgressRule.SERVICE, frozenset(), address="127.0.0.1"
        )
        with pytest.raises(EgressRefused):
            await outbound.send(OutboundRequest(target, "GET", "/"))

        assert inside.accepts == 0


async def test_an_allowed_host_at_the_address_of_a_forbidden_name_is_refused() -> None:
    policy = EgressPolicy(allow=("*.example",), forbidden=("store.corp.net",))
    resolve = Rebinding(["34.9.9.9"])
    one = reader(None).model_copy(update={"backend": PublishedBackend(url="http://x.example:1/")})
    error = await error_of(one, policy, resolve)

    assert isinstance(error, Refused)
    assert "store" in error.detail
    assert sorted(resolve.asked) == ["store.corp.net.", "x.example."]


async def test_a_forbidden_name_is_looked_up_again_and_keeps_its_addresses_while_dns_is_away() -> None:
    now, answers = [0.0], [["34.1.1.1"], OSError("no name server"), ["34.2.2.2", "::ffff:34.3.3.3"]]

    async def resolve(host: str, port: int) -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return list(answer)

    async def look() -> set[str]:
        await names.refresh()
        assert names._looking is not None
        await names._looking
        return {str(a) for a in names.addresses}

    names = ForbiddenNames(["store.corp.net."], resolve, clock=lambda: now[0])
    assert await look() == {"34.1.1.1"}
    assert await look() == {"34.1.1.1"}
    assert len(answers) == 2, "fresh enough"
    now[0] += REFRESH_SECONDS
    assert await look() == {"34.1.1.1"}
    now[0] += REFRESH_SECONDS
    assert await look() == {"34.2.2.2", "34.3.3.3"}


async def error_of(
    one: PublishedTool, policy: EgressPolicy | None = None, resolve: Any = nobody
) -> CallError:
    policy = policy or EgressPolicy()
    async with OutboundHttp(policy, resolve=resolve) as outbound:
        with pytest.raises(CallError) as caught:
            await HttpBackend(outbound, CredentialStore(), policy).call(
                one, CheckedArguments({}, b"{}"), "r", bot()
            )
    return caught.value
