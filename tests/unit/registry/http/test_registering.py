"""A registration is judged off the event loop, one at a time, and by a caller who may still register afterwards."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from published import bot, tool
from toolcrib.wire.simple import Registration
from toolcrib_registry.http.problems import ProblemError
from toolcrib_registry.http.routes import simple
from toolcrib_registry.identity.authenticator import Asker
from toolcrib_registry.limits.large_requests import LargeRequests

pytestmark = pytest.mark.anyio
BODY = Registration(name="t", description="x", scopes=("a:use",), input_schema={"type": "object"})


async def test_many_registrations_are_judged_in_threads_one_at_a_time_and_the_power_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, most, threads, allowed = 0, 0, set[Any](), [True]

    def judged(*_: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threads.add(threading.current_thread())
        allowed[0] = False
        running -= 1
        return tool("team-a/t")

    monkeypatch.setattr(simple, "tool_of", judged)
    monkeypatch.setattr(simple, "has_power", lambda *_: allowed[0])
    state = SimpleNamespace(stale=False, snapshot=SimpleNamespace(policy=None, tools={}))
    deps: Any = SimpleNamespace(
        state=state,
        clock=SimpleNamespace(now=lambda: 0.0),
        registrar=object(),
        settings=SimpleNamespace(runtime_namespace="runtime"),
        large=LargeRequests(),
        check_address=None,
    )

    async def one() -> str:
        with pytest.raises(ProblemError) as refused:
            await simple.register(deps, Asker(identity=bot()), BODY)
        return refused.value.code

    assert set(await asyncio.gather(*(one() for _ in range(20)))) == {"not_permitted"}
    assert most == 1
    assert threading.main_thread() not in threads
