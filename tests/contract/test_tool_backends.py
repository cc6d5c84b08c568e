"""What every kind of backend promises: run on HTTP and on MCP of both eras, against real servers on loopback."""

import json
from abc import ABC, abstractmethod
from asyncio import Event, StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from evil_upstream import Upstream, response, upstream
from mcp_upstream import Behave, McpUpstream, Wire, handshake, serving, stateless
from published import bot, tool
from toolcrib.resources.backends import AuthType
from toolcrib.wire.backends import PublishedAuth, PublishedBackend, PublishedMcp, SecretReference
from toolcrib.wire.publish import Credential, Credentials, PublishedTool
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments, serialised
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.backends.mcp.backend import McpBackend
from toolcrib_registry.calls.backends.port import Text, ToolAnswer, ToolBackend
from toolcrib_registry.calls.bounds import CallBounds
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import (
    CallError,
    CredentialPending,
    NoBackend,
    ServicePending,
    ToolError,
    UpstreamError,
    UpstreamProtocol,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnreachable,
)
from toolcrib_registry.outbound.guard import EgressPolicy
from toolcrib_registry.upstream.client import McpClient
from toolcrib_registry.upstream.servers import Bounds

pytestmark = pytest.mark.anyio
SECRET = "s3cret-token"
BOUNDS = CallBounds(answer_bytes=100_000, answer_depth=10)


class Remote(ABC):
    """A tool that does what it is told, and the backend that calls it."""

    backend: ToolBackend
    credentials: CredentialStore
    tool: PublishedTool

    def address(self, **fields: Any) -> PublishedBackend:
        """Its backend, with other fields."""
        assert self.tool.backend is not None
        return self.tool.backend.model_copy(update=fields)

    @abstractmethod
    def says(self, value: Any) -> None:
        """Answer JSON, or text where it is one."""

    @abstractmethod
    def does(self, what: str) -> None:
        """`nothing`: answer nothing at all; `fails`, `dies`, `hangs`, `floods`, `nests`, `breaks`."""

    @abstractmethod
    def refuses(self, value: Any) -> None:
        """Answer that the call failed, and why."""

    @abstractmethod
    def received(self) -> list[Any]:
        """The arguments that came."""

    async def call(self, arguments: dict[str, Any] | None = None, **fields: Any) -> ToolAnswer:
        checked = CheckedArguments(arguments or {}, serialised(arguments or {}))
        return await self.backend.call(self.tool.model_copy(update=fields), checked, "r-1", bot())


class HttpRemote(Remote):
    WHAT = {
        "nothing": response(b"", content_type=None),
        "fails": response(b"{}", status=500),
        "dies": b"",
        "floods": response(b'"' + b"x" * 200_000 + b'"'),
        "nests": response(b"[" * 11 + b"]" * 11),
        "breaks": response(b'{"a":'),
    }

    def __init__(self, up: Upstream, outbound: OutboundHttp, policy: EgressPolicy) -> None:
        self._up = up
        self.credentials = CredentialStore()
        self.backend = HttpBackend(outbound, self.credentials, policy, BOUNDS)
        reference = SecretReference(namespace="heist", name="key", key="token")
        self.tool = tool(
            "heist/reader",
            backend=PublishedBackend(
                service_namespace="heist",
                service_name="files",
                service_port=80,
                timeout=0.5,
                auth=PublishedAuth(type=AuthType.BEARER, secret=reference),
            ),
        )
        one = Credential(namespace="heist", name="key", key="token", hosts=("files",), value=SECRET)
        self.credentials.replace(Credentials(epoch=1, credentials=(one,)))

    def says(self, value: Any) -> None:
        if isinstance(value, str):
            self._next = response(value.encode(), content_type="text/plain")
        else:
            self._next = response(json.dumps(value).encode())

    def does(self, what: str) -> None:
        self._next = None if what == "hangs" else self.WHAT[what]

    def refuses(self, value: Any) -> None:
        self._next = response(json.dumps(value).encode(), status=404)

    def received(self) -> list[Any]:
        return [json.loads(request.body) for request in self._up.requests]

    async def behave(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._next is None:
            await Event().wait()
        else:
            writer.write(self._next)
            await writer.drain()


class McpRemote(Remote):
    def __init__(self, up: McpUpstream, outbound: OutboundHttp, policy: EgressPolicy) -> None:
        self._up = up
        self.client = McpClient(outbound, Bounds(answer_bytes=100_000))
        self.credentials = CredentialStore()
        self.backend = McpBackend(self.client, self.credentials, policy, BOUNDS)
        reference = SecretReference(namespace="heist", name="key", key="token")
        self.tool = tool(
            "heist/reader",
            backend=PublishedBackend(
                service_namespace="heist",
                service_name="files",
                service_port=80,
                path="/mcp",
                timeout=1.5,
                auth=PublishedAuth(type=AuthType.BEARER, secret=reference),
                mcp=PublishedMcp(server="heist/files", tool="read it"),
            ),
        )
        one = Credential(namespace="heist", name="key", key="token", hosts=("files",), value=SECRET)
        self.credentials.replace(Credentials(epoch=1, credentials=(one,)))

    def _on(self, behave: Behave) -> None:
        self._up.on["tools/call"] = behave

    def _result(self, **fields: Any) -> None:
        async def answer(wire: Wire) -> None:
            await wire.result(**fields)

        self._on(answer)

    def says(self, value: Any) -> None:
        if isinstance(value, str):
            self._result(content=[{"type": "text", "text": value}])
        else:
            text = json.dumps(value, ensure_ascii=False)
            self._result(content=[{"type": "text", "text": text}], structuredContent=value)

    def does(self, what: str) -> None:
        async def breaks(wire: Wire) -> None:
            await wire.raw(response(b'{"a":'))

        async def fails(wire: Wire) -> None:
            await wire.status(500)

        async def dies(_: Wire) -> None:
            return

        async def hangs(_: Wire) -> None:
            await Event().wait()

        nested: Any = []
        for _ in range(12):
            nested = [nested]
        match what:
            case "nothing":
                self._result(content=[])
            case "floods":
                self._result(content=[{"type": "text", "text": "x" * 200_000}])
            case "nests":
                self._result(content=[], structuredContent=nested)
            case _:
                self._on({"fails": fails, "dies": dies, "hangs": hangs, "breaks": breaks}[what])

    def refuses(self, value: Any) -> None:
        self._result(content=[{"type": "text", "text": json.dumps(value)}], isError=True)

    def received(self) -> list[Any]:
        calls = self._up.of("tools/call")
        assert all(w.message["params"]["name"] == "read it" for w in calls)
        return [w.message["params"]["arguments"] for w in calls]


@pytest.fixture(params=["http", "mcp-2026", "mcp-2025"])
async def remote(request: pytest.FixtureRequest) -> AsyncIterator[Remote]:
    async with AsyncExitStack() as stack:
        if request.param != "http":
            server = await stack.enter_async_context(
                serving(stateless() if "2026" in request.param else handshake())
            )
            rule = EgressPolicy(backends={"heist/files": f"127.0.0.1:{server.port}"})
            outbound = await stack.enter_async_context(OutboundHttp(rule))
            of_server = McpRemote(server, outbound, rule)
            yield of_server
            await of_server.client.close()
            return

        async def behave(reader: StreamReader, writer: StreamWriter) -> None:
            await made.behave(reader, writer)

        up = await stack.enter_async_context(upstream(raw=behave))
        policy = EgressPolicy(backends={"heist/files": f"127.0.0.1:{up.port}"})
        made = HttpRemote(up, await stack.enter_async_context(OutboundHttp(policy)), policy)
        yield made


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None], "ü": "ö"}, [], 7, None, False])
async def test_json_is_passed_on_as_it_came_and_can_be_read_as_a_value_and_as_text(
    remote: Remote, value: Any
) -> None:
    remote.says(value)

    answer = await remote.call()

    assert (answer.is_json, answer.is_error, answer.structured) == (True, False, value)
    (text,) = answer.content
    assert isinstance(text, Text)
    assert json.loads(answer.raw) == json.loads(text.text) == value
    assert 0 < answer.elapsed < 5


async def test_text_is_one_block_and_has_no_structure(remote: Remote) -> None:
    remote.says("größe: 7")

    answer = await remote.call()

    assert (answer.is_json, answer.is_error, answer.structured) == (False, False, None)
    assert (answer.raw, answer.content) == ("größe: 7".encode(), (Text("größe: 7"),))


async def test_an_empty_answer_has_no_content_and_is_no_error(remote: Remote) -> None:
    remote.does("nothing")

    answer = await remote.call()

    assert (answer.content, answer.structured, answer.is_error, answer.raw) == ((), None, False, b"")


async def test_the_tool_gets_the_arguments_as_they_were_checked(remote: Remote) -> None:
    remote.says({})
    arguments = {"b": "größe", "a": [1, 2.5, None, True]}

    await remote.call(arguments)

    assert remote.received() == [arguments]


async def failed(remote: Remote) -> tuple[ToolAnswer | None, CallError | None]:
    """A refusal is an answer that says so, or an error with what the tool said; or it is withheld."""
    try:
        answer = await remote.call()
    except (ToolError, UpstreamProtocol) as error:
        return None, error
    assert answer.is_error
    return answer, None


async def test_a_tool_that_refuses_is_told_apart_and_says_why(remote: Remote) -> None:
    remote.refuses({"why": "no such file"})

    answer, error = await failed(remote)

    told = str(answer.content) if answer else json.dumps(error.extra) if error else ""
    assert "no such file" in told


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("fails", UpstreamError),
        ("dies", UpstreamUnreachable),
        ("hangs", UpstreamTimeout),
        ("floods", UpstreamTooLarge),
        ("nests", UpstreamProtocol),
        ("breaks", UpstreamProtocol),
    ],
)
async def test_what_is_no_answer_of_a_tool_is_a_typed_error(
    remote: Remote, what: str, kind: type[CallError]
) -> None:
    remote.does(what)

    with pytest.raises(kind):
        await remote.call()


@pytest.mark.parametrize("said", [{"got": f"Bearer {SECRET}"}, f"you sent {SECRET}"])
async def test_an_answer_that_repeats_the_credential_is_withheld(remote: Remote, said: Any) -> None:
    remote.says(said)

    with pytest.raises(UpstreamProtocol, match="withheld") as withheld:
        await remote.call()

    assert SECRET not in str(withheld.value) + str(withheld.value.extra)


async def test_a_refusal_that_repeats_the_credential_does_not_show_it(remote: Remote) -> None:
    remote.refuses({"got": SECRET})

    answer, error = await failed(remote)

    assert (
        SECRET not in f"{answer and answer.content} {answer and answer.raw!r} {error} {error and error.extra}"
    )


async def test_what_cannot_be_called_yet_says_what_is_missing(remote: Remote) -> None:
    remote.says({})

    with pytest.raises(NoBackend):
        await remote.call(backend=None)
    with pytest.raises(ServicePending):
        await remote.call(backend=remote.address(service_name="elsewhere"))
    remote.credentials.replace(Credentials(epoch=2))
    with pytest.raises(CredentialPending):
        await remote.call()
    assert remote.received() == []
