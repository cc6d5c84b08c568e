"""Notices that the caller's own list has changed: when they come, when none does, and how their streams end."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mcp_client import BOTH, HANDSHAKE, OWN, STATELESS, VERSIONS, McpClient, listening, message, valid_result
from realparts.processes import wait_until
from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from toolcrib.wire.publish import PublishedAccount
from toolcrib_registry.mcp import change_notices
from toolcrib_registry.policy.state import PolicyState
from toolcrib_registry.watch import stream

ERAS = [HANDSHAKE[-1], STATELESS]
CHANGED = "notifications/tools/list_changed"
GRANTS = [binding("bot", ("calculator:use", "echo:use"))]


def body(seen: Any) -> Any:
    return {**seen, "params": {k: v for k, v in seen.get("params", {}).items() if k != "_meta"}}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningRegistry]:
    with running_registry([tool("calculator")], GRANTS) as found:
        yield found


@pytest.fixture
def r(running: RunningRegistry) -> RunningRegistry:
    running.publish(
        [tool("calculator")], GRANTS, remove_tools=["team/echo", "team/hidden", "elsewhere/hidden"]
    )
    wait_until(lambda: running.registry.deps.metrics.open_streams == 0)
    return running


@pytest.mark.parametrize("version", VERSIONS)
def test_a_change_of_the_callers_list_is_told_at_once(r: RunningRegistry, version: str) -> None:
    with listening(McpClient(r, version)) as notices:
        published = time.monotonic()
        r.publish([tool("echo")])
        at, seen = notices.timed()

        assert body(seen) == {"jsonrpc": "2.0", "method": CHANGED, "params": {}}
        assert at - published < 0.5
        if version == STATELESS:
            assert seen["params"]["_meta"] == {f"{OWN}subscriptionId": "s-1"}
        names = [each["name"] for each in McpClient(r, version).listed()]
        assert names == ["calculator", "echo"], "the list is the new one by then"


@pytest.mark.parametrize("version", ERAS)
def test_nothing_is_told_of_what_changes_outside_the_list(r: RunningRegistry, version: str) -> None:
    with listening(McpClient(r, version)) as notices:
        r.publish([tool("hidden")], [binding("other", ("hidden:use",))])
        r.publish([tool("hidden", namespace="elsewhere")])
        r.publish([tool("calculator", backend=backend(9))])  # its route
        r.publish([tool("calculator", tags=("new",))])  # what no list shows
        r.publish(bindings=[binding("bot", ("calculator:use", "echo:use", "none:use"), generation=2)])
        assert notices.quiet(0.5)
        r.publish([tool("calculator", description="Another.")])
        assert body(notices.next())["method"] == CHANGED


@pytest.mark.parametrize("version", ERAS)
def test_further_changes_of_a_second_are_told_together_at_its_end(r: RunningRegistry, version: str) -> None:
    with listening(McpClient(r, version)) as notices:
        r.publish([tool("echo")])
        first, _ = notices.timed()
        for n in range(5):
            r.publish([tool("echo", description=f"The {n}th.")])
        second, _ = notices.timed()

        assert 0.9 < second - first < 1.5
        assert notices.quiet(0.3), "five changes, one notice"


def test_a_change_that_is_undone_within_the_second_is_not_told(r: RunningRegistry) -> None:
    with listening(McpClient(r)) as notices:
        r.publish([tool("echo")])
        notices.next()
        r.publish([tool("echo", description="Another.")])
        r.publish([tool("echo")])
        assert notices.quiet(1.3)


@pytest.mark.parametrize("version", ERAS)
def test_a_revoked_grant_is_a_change(r: RunningRegistry, version: str) -> None:
    with listening(McpClient(r, version)) as notices:
        r.publish(remove_bindings=["uid-team-bot"])
        assert body(notices.next())["method"] == CHANGED


@pytest.mark.parametrize("version", ERAS)
def test_a_stream_ends_at_its_tokens_expiry_and_tells_no_change(version: str) -> None:
    clock = ManualClock()
    with running_registry([tool("calculator")], GRANTS, clock=clock) as r:
        with listening(McpClient(r, version), ttl=600) as notices:
            clock.advance(599)
            assert notices.quiet(0.2)
            clock.advance(1)
            assert notices.ended(5)


@pytest.mark.parametrize("version", ERAS)
def test_a_token_that_ends_within_a_notices_second_ends_the_stream_without_another(version: str) -> None:
    clock = ManualClock()
    with running_registry([tool("calculator")], GRANTS, clock=clock) as r:
        with listening(McpClient(r, version), ttl=600) as notices:
            r.publish([tool("echo")])
            notices.next()
            r.publish([tool("echo", description="Another.")])
            clock.advance(600)
            assert notices.ended(5)


@pytest.mark.parametrize("version", ERAS)
def test_a_token_that_ends_while_its_stream_waits_for_its_turn_is_told_no_change(version: str) -> None:
    clock = ManualClock()
    with running_registry([tool("calculator")], GRANTS, clock=clock) as r:
        turn = r.registry.deps.state.turn

        async def release() -> None:
            turn.release()

        with listening(McpClient(r, version), ttl=600) as notices:
            r.on_loop(turn.acquire)
            r.publish([tool("echo")])
            wait_until(lambda: bool(getattr(turn, "_waiters", None)), 10)
            clock.advance(600)
            r.on_loop(release)
            assert notices.ended(5)


@pytest.mark.parametrize("version", ERAS)
def test_a_stream_ends_when_its_account_is_deleted(version: str) -> None:
    accounts = [PublishedAccount(namespace="team", name="bot", uid="u-1")]
    with running_registry(publish=False) as r:
        r.publish([tool("calculator")], GRANTS, accounts=accounts)
        with listening(McpClient(r, version), uid="u-1") as notices:
            deleted = time.monotonic()
            r.publish(remove_accounts=["team/bot"])
            wait_until(lambda: not notices.thread.is_alive(), 5)
            assert time.monotonic() - deleted < 5


def test_at_shutdown_the_request_of_2026_gets_its_result_and_older_streams_just_end() -> None:
    with running_registry([tool("calculator")], GRANTS) as r:
        with listening(McpClient(r)) as modern, listening(McpClient(r, HANDSHAKE[-1])) as older:
            r.on_loop(_drain(r))
            last = modern.next()
            assert last["id"] == "s-1"
            assert valid_result(last, "subscriptions/listen", STATELESS)["_meta"][f"{OWN}subscriptionId"] == (
                "s-1"
            )
            assert modern.ended(5)
            assert older.ended(5)
        # a replica that drains still answers
        assert [each["name"] for each in McpClient(r).listed()] == ["calculator"]


def _drain(r: RunningRegistry) -> Any:
    async def drain() -> None:
        r.registry.deps.state.drain()

    return drain


def test_a_quiet_stream_is_kept_alive_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream.KEEP_ALIVE == 15
    assert change_notices.BETWEEN == 1
    monkeypatch.setattr(stream, "KEEP_ALIVE", 0.05)
    with running_registry([tool("calculator")], GRANTS) as r:
        for version in ERAS:
            with listening(McpClient(r, version)) as notices:
                for _ in range(2):
                    found = notices.came.get(timeout=5)
                    assert found is not None
                    assert found[1:] == ("comment", ": keep-alive")


def test_a_client_that_wants_no_notices_of_tools_gets_none(r: RunningRegistry) -> None:
    for path, wanted in (
        ("/mcp/direct", {}),
        ("/mcp/direct", {"toolsListChanged": False}),
        ("/mcp", {"toolsListChanged": True}),
    ):
        client = McpClient(r, path=path)
        sent = message("subscriptions/listen", {"notifications": wanted}, id=7)
        headers = {**r.auth("team", "bot"), "mcp-protocol-version": STATELESS, "accept": BOTH}
        headers |= {"mcp-method": "subscriptions/listen"}
        with r.http.stream("POST", r.url + client.path, json=sent, headers=headers) as response:
            lines = response.iter_lines()
            began = json.loads(
                next(line for line in lines if line.startswith("data: ")).removeprefix("data: ")
            )
        assert began["params"] == {"notifications": {}, "_meta": {f"{OWN}subscriptionId": 7}}


def test_no_stream_is_resumed_so_no_event_has_an_id(r: RunningRegistry) -> None:
    headers = {**r.auth("team", "bot"), "accept": "text/event-stream", "last-event-id": "7"}
    with r.http.stream("GET", r.url + "/mcp/direct", headers=headers) as response:
        lines = response.iter_lines()
        assert next(lines) == ": ready"
        r.publish([tool("echo")])
        assert [next(lines) for _ in range(3)] == [
            "",
            "event: message",
            'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}',
        ]


def test_a_client_that_accepts_no_stream_gets_none(r: RunningRegistry) -> None:
    json_only = {"accept": "application/json"}
    refused = McpClient(r).post(message("subscriptions/listen", {"notifications": {}}), json_only)
    assert (refused.status_code, refused.json()["code"]) == (406, "not_acceptable")
    older = r.http.get(r.url + "/mcp/direct", headers={**r.auth("team", "bot"), **json_only})
    assert (older.status_code, older.json()["code"]) == (406, "not_acceptable")


def test_streams_of_all_kinds_share_the_places(r: RunningRegistry) -> None:
    with running_registry([tool("calculator")], GRANTS, limits={"watch_streams": 3}) as small:
        bot = small.auth("team", "bot")
        with contextlib.ExitStack() as stack:
            for version in ERAS:
                stack.enter_context(listening(McpClient(small, version)))
            watch = stack.enter_context(small.http.stream("GET", small.url + "/v1/watch", headers=bot))
            assert watch.status_code == 200
            refused = [
                McpClient(small).post(message("subscriptions/listen", {"notifications": {}})),
                small.http.get(small.url + "/mcp/direct", headers={**bot, "accept": "text/event-stream"}),
                small.http.get(small.url + "/v1/watch", headers=bot),
            ]
            assert {(each.status_code, each.json()["code"]) for each in refused} == {
                (503, "too_many_streams")
            }
            assert all(each.headers["retry-after"] == "30" for each in refused)
            assert McpClient(small).listed(), "answers need no place"
        wait_until(lambda: small.registry.deps.metrics.open_streams == 0)
        with listening(McpClient(small)):
            pass


@pytest.mark.parametrize("many", [300, pytest.param(5_000, marks=pytest.mark.long)])
def test_many_attempts_at_streams_leave_a_bound_of_them_and_others_served(many: int) -> None:
    limits = {"watch_streams": 40, "watch_streams_per_subject": 25}
    with running_registry([tool("calculator")], GRANTS, limits=limits) as r:
        headers = {**r.auth("team", "greedy"), "accept": "text/event-stream"}

        async def attempts() -> tuple[int, int]:
            pool = httpx.Limits(max_connections=60)
            async with httpx.AsyncClient(verify=False, timeout=30, limits=pool) as client:
                kept: list[httpx.Response] = []
                refused = 0

                async def one(_: int) -> None:
                    nonlocal refused
                    request = client.build_request("GET", r.url + "/mcp/direct", headers=headers)
                    answer = await client.send(request, stream=True)
                    if answer.status_code == 200:
                        kept.append(answer)
                    else:
                        refused += 1
                        await answer.aread()

                for start in range(0, many, 30):
                    await asyncio.gather(*map(one, range(start, min(start + 30, many))))
                assert r.registry.deps.metrics.open_streams == 25
                with listening(McpClient(r)) as notices:
                    r.publish([tool("echo")])
                    notices.next(5)
                for answer in kept:
                    await answer.aclose()
                return len(kept), refused

        assert asyncio.run(attempts()) == (25, many - 25)
        wait_until(lambda: r.registry.deps.metrics.open_streams == 0)


def test_a_change_wakes_streams_one_after_another_with_room_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accounts = [f"bot{n}" for n in range(30)]
    grants = [binding(name, ("calculator:use", "echo:use")) for name in accounts]
    waiting, looks = 0, PolicyState.view_at_once

    def looked(state: PolicyState, *given: Any, **options: Any) -> Any:
        nonlocal waiting
        waiting = max(waiting, len(getattr(state.turn, "_waiters", None) or ()))
        return looks(state, *given, **options)

    with running_registry([tool("calculator")], grants) as r, contextlib.ExitStack() as stack:
        streams = [stack.enter_context(listening(McpClient(r, who=name))) for name in accounts]
        monkeypatch.setattr(PolicyState, "view_at_once", looked)
        r.publish([tool("echo")])
        for each in streams:
            each.next()

    assert waiting > 10, "each has its turn"


def test_notices_are_counted(r: RunningRegistry) -> None:
    def count() -> float:
        found = re.search(r'toolcrib_watch_events_total{type="list_changed"} ([0-9.]+)', r.metrics())
        return 0.0 if found is None else float(found[1])

    before = count()
    with listening(McpClient(r)) as notices:
        r.publish([tool("echo")])
        notices.next()
    assert count() == before + 1
