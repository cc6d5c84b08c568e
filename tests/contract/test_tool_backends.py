"""What every kind of backend promises: run on HTTP, against a real server on loopback. Another kind adds a remote."""

import json
from abc import ABC, abstractmethod
from asyncio import Event, StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from evil_upstream import Upstream, response, upstream
from published import bot, tool
from toolcrib.resources.backends import AuthType
from toolcrib.wire.publish import (
    Credential,
    Credentials,
    PublishedAuth,
    PublishedBackend,
    PublishedTool,
    SecretReference,
)
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments, serialised
from toolcrib_registry.calls.backends.http.backend import HttpBackend
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

pytestmark = pytest.mark.anyio
SECRET = "s3cret-token"
BOUNDS = CallBounds(answer_bytes=100_000, answer_depth=10)


class Remote(ABC):
    """A tool that does what it is told, and the backend that calls it."""

    backend: ToolBackend
    credentials: CredentialStore
    tool: PublishedTool

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


@pytest.fixture(params=["http"])
async def remote() -> AsyncIterator[Remote]:
    async with AsyncExitStack() as stack:

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
    assert answer.raw == json.dumps(value).encode()
    assert answer.content == (Text(json.dumps(value)),)
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
    """A refusal is an answer that says so, or an error with what the tool said."""
    try:
        answer = await remote.call()
    except ToolError as error:
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
    backend = remote.tool.backend
    assert backend is not None

    with pytest.raises(NoBackend):
        await remote.call(backend=None)
    with pytest.raises(ServicePending):
        await remote.call(backend=backend.model_copy(update={"service_name": "elsewhere"}))
    remote.credentials.replace(Credentials(epoch=2))
    with pytest.raises(CredentialPending):
        await remote.call()
    assert remote.received() == []
