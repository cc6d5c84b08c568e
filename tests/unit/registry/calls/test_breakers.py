"""A backend that fails is left alone, and tried by one call; what arguments can cause counts for nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from published import bot, tool
from toolcrib.wire.backends import PublishedBackend, PublishedMcp
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.calls import breakers
from toolcrib_registry.calls.arguments import CheckedArguments
from toolcrib_registry.calls.backends.breaking import Breaking
from toolcrib_registry.calls.backends.port import ToolAnswer
from toolcrib_registry.calls.breakers import Breakers
from toolcrib_registry.calls.errors import (
    BackendUnavailable,
    CallError,
    CredentialPending,
    ToolError,
    UpstreamError,
    UpstreamProtocol,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnreachable,
)

pytestmark = pytest.mark.anyio
KEY = "api.example.com:443 of team-a"
DOWN = UpstreamError("it failed", extra={"upstream_status": 503})


class Backend:
    """It does what a test says; `calls` reached it."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.calls = 0

    async def call(self, *_: Any, **__: Any) -> ToolAnswer:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return ToolAnswer(b"", "", is_json=True)


class Stage:
    def __init__(self, failures: int = 5) -> None:
        self.now, self.opened, self.backend = 100.0, 0, Backend()
        self.breakers = Breakers(failures=failures, on_open=self._open, clock=lambda: self.now)
        self.breaking = Breaking(self.backend, self.breakers)

    def _open(self) -> None:
        self.opened += 1

    async def call(
        self, error: BaseException | None = None, of: PublishedTool | None = None
    ) -> BaseException | None:
        self.backend.error = error
        arguments = CheckedArguments({}, b"{}")
        try:
            await self.breaking.call(of or http("team-a/a"), arguments, "r", bot())
        except (CallError, asyncio.CancelledError) as raised:
            return raised
        return None


def http(tool_id: str, host: str = "api.example.com") -> PublishedTool:
    return tool(tool_id, backend=PublishedBackend(url=f"https://{host}/{tool_id}"))


def of_server(server: str) -> PublishedTool:
    mcp = PublishedMcp(server=server, tool="x")
    return tool(
        f"{server.split('/')[0]}/x", backend=PublishedBackend(url="https://api.example.com/mcp", mcp=mcp)
    )


@pytest.mark.parametrize("error", [UpstreamUnreachable("x"), UpstreamTimeout("x"), DOWN])
async def test_the_fifth_failure_opens_it_and_calls_are_refused_with_a_time(error: CallError) -> None:
    stage = Stage()
    for _ in range(5):
        assert await stage.call(error) is error

    refused = await stage.call()

    assert isinstance(refused, BackendUnavailable)
    assert (refused.retry_after, stage.backend.calls, stage.opened, stage.breakers.open) == (10, 5, 1, 1)


@pytest.mark.parametrize(
    "error",
    [
        ToolError("x"), UpstreamError("x", extra={"upstream_status": 500}), UpstreamProtocol("x"), UpstreamTooLarge("x"),
        CredentialPending("x"), asyncio.CancelledError(),
    ],
)  # fmt: skip
async def test_what_arguments_can_cause_and_what_never_reached_it_opens_nothing(error: BaseException) -> None:
    stage = Stage()
    for _ in range(50):
        await stage.call(error)

    assert (stage.backend.calls, stage.breakers.open) == (50, 0)


async def test_a_slow_call_that_tries_keeps_the_others_out_for_no_longer_than_the_breaker() -> None:
    stage = Stage()
    for _ in range(5):
        await stage.call(DOWN)
    stage.now += 10
    assert stage.breakers.enter(KEY), "it tries, and takes its time"
    stage.now += 9.5
    refused = await stage.call()
    assert isinstance(refused, BackendUnavailable)
    assert refused.retry_after == 1

    stage.now += 0.5

    assert await stage.call() is None
    assert stage.breakers.open == 0
    stage.breakers.leave(KEY, False, tried=True)
    assert stage.breakers.open == 0, "others have been answered meanwhile"


async def test_each_opening_is_counted_those_after_a_failed_try_too() -> None:
    stage = Stage()
    for _ in range(5):
        await stage.call(DOWN)
    for _ in range(3):
        stage.now += 10
        await stage.call(DOWN)

    assert (stage.opened, stage.breakers.open) == (4, 1)


async def test_failures_must_be_half_of_the_calls_of_30_seconds() -> None:
    stage = Stage()
    for _ in range(6):
        await stage.call()
    for _ in range(5):
        await stage.call(DOWN)
    assert stage.breakers.open == 0

    await stage.call(DOWN)
    assert stage.breakers.open == 1


async def test_failures_of_long_ago_do_not_count() -> None:
    stage = Stage()
    for _ in range(4):
        await stage.call(DOWN)
    stage.now += 31
    for _ in range(4):
        await stage.call(DOWN)

    assert stage.breakers.open == 0


async def opened(error: Callable[[], BaseException] = lambda: DOWN) -> Stage:
    stage = Stage()
    for _ in range(5):
        await stage.call(error())
    stage.now += 10
    return stage


async def test_after_its_time_one_call_tries_and_success_closes_it() -> None:
    stage = await opened()
    assert await stage.call() is None
    assert stage.breakers.open == 0
    for _ in range(4):
        await stage.call(DOWN)
    assert stage.breakers.open == 0, "it begins again"


async def test_a_refused_argument_closes_it_too_since_the_backend_answered() -> None:
    stage = await opened()
    await stage.call(ToolError("x"))

    assert stage.breakers.open == 0


async def test_a_try_that_fails_opens_it_again_and_one_that_is_given_up_leaves_the_next() -> None:
    stage = await opened()
    await stage.call(DOWN)
    assert isinstance(await stage.call(), BackendUnavailable)
    stage.now += 10
    await stage.call(asyncio.CancelledError())
    assert await stage.call() is None
    assert stage.breakers.open == 0


async def test_while_one_tries_others_are_refused() -> None:
    stage = await opened()
    key = "api.example.com:443 of team-a"
    assert stage.breakers.enter(key) is True

    with pytest.raises(BackendUnavailable) as refused:
        stage.breakers.enter(key)
    assert refused.value.retry_after == 1


async def test_a_breaker_is_of_one_server_or_of_a_host_in_one_namespace() -> None:
    stage = Stage()
    for _ in range(5):
        await stage.call(DOWN, http("team-a/a"))
        await stage.call(DOWN, of_server("team-a/bad"))

    assert isinstance(await stage.call(of=http("team-a/b")), BackendUnavailable), "the same host"
    assert isinstance(await stage.call(of=of_server("team-a/bad")), BackendUnavailable)
    for other in (http("team-b/a"), http("team-a/a", "other.example.com"), of_server("team-a/good")):
        assert await stage.call(of=other) is None


async def test_the_backends_that_were_called_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakers, "_MOST", 2)
    stage = Stage()
    for _ in range(5):
        await stage.call(DOWN)
    assert stage.breakers.open == 1

    for name in ("b", "c"):
        await stage.call(of=http("team-a/a", f"{name}.example.com"))
    assert stage.breakers.open == 0


async def test_it_can_be_switched_off() -> None:
    stage = Stage(failures=0)
    for _ in range(50):
        await stage.call(DOWN)

    assert stage.backend.calls == 50
