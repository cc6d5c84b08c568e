"""Subscriptions of one caller leave places and time to all others."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from following_server import FollowingServer, following
from imported import toolserver
from mcp_client import HANDSHAKE, STATELESS, fields_of
from published import account
from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry
from toolcrib import publishing
from toolcrib_registry.offerings import updates

EARLIER = HANDSHAKE[-1]
README = "docs://readme"
PATIENCE = 60.0
BOT, TWIN, THIRD, STRANGER = ("team", "bot"), ("team", "twin"), ("team", "third"), ("other", "agent")


@pytest.fixture(params=[STATELESS, EARLIER], ids=["server of 2026", "server of 2025"])
def server(request: pytest.FixtureRequest) -> Iterator[FollowingServer]:
    with following(request.param) as up:
        up.uris = [README, *(f"docs://page-{number}" for number in range(40))]
        yield up


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


@contextmanager
def serving(server: FollowingServer) -> Iterator[RunningRegistry]:
    mcp = {"url": server.up.url, "timeout": f"{PATIENCE:g}s"}
    published = publishing.server(toolserver("docs", server.up.url, mcp=mcp), None)
    assert published is not None
    subjects = tuple(account(*each) for each in (BOT, TWIN, THIRD, STRANGER))
    grant = binding("bot", ("docs:use",), subjects=subjects)
    with running_registry([], [grant]) as r:
        r.publish(servers=[published])
        yield r


def subscribed(
    r: RunningRegistry,
    uri: str,
    who: tuple[str, str] = BOT,
    method: str = "subscribe",
) -> dict[str, Any]:
    """The answer to `resources/subscribe` in a session, result or error."""
    body = {"jsonrpc": "2.0", "id": 1, "method": f"resources/{method}", "params": {"uri": uri}}
    headers = {**r.auth(*who), **fields_of(body, EARLIER), "mcp-session-id": "a-session"}
    answer = httpx.post(f"{r.url}/mcp/direct", json=body, headers=headers, timeout=PATIENCE / 2).json()
    found: dict[str, Any] = answer.get("result", answer.get("error"))
    return found


def refusal(answer: dict[str, Any]) -> tuple[str, str]:
    return answer["data"]["code"], answer["message"]


def test_a_caller_whose_subscriptions_hang_at_the_server_delays_nobody_else(
    server: FollowingServer, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "OPEN_SECONDS", PATIENCE)
    slow = server.uris[1:13]
    server.held = set(slow)
    with serving(server) as r:
        waits: list[Future[dict[str, Any]]] = [pool.submit(subscribed, r, uri) for uri in slow]
        wait_until(lambda: server.waiting > 0, PATIENCE)
        assert subscribed(r, README, TWIN) == {}
        assert subscribed(r, README, STRANGER) == {}
        assert not any(each.done() for each in waits)
        server.release()
        assert [each.result(PATIENCE) for each in waits] == [{}] * len(slow)


def test_a_caller_follows_a_quarter_of_what_is_followed_of_a_server_and_is_told_so(
    server: FollowingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "MOST_URIS", 32)
    with serving(server) as r:
        answers = [subscribed(r, uri) for uri in server.uris[1:34]]
        assert answers[:8] == [{}] * 8
        code, words = refusal(answers[8])
        assert code == "too_many_subscriptions"
        assert words.startswith("You follow as many resources of this server as you may. Unsubscribe")
        # others have places of their own, and join what is followed
        assert subscribed(r, README, TWIN) == {}
        assert subscribed(r, server.uris[1], TWIN) == {}
        assert subscribed(r, server.uris[2], method="unsubscribe") == {}
        assert subscribed(r, server.uris[20]) == {}


def test_the_callers_of_a_namespace_follow_half_and_another_one_finds_a_place(
    server: FollowingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "MOST_URIS", 8)
    pages = iter(server.uris)
    with serving(server) as r:
        for who, count in ((BOT, 2), (TWIN, 1)):
            assert [subscribed(r, next(pages), who) for _ in range(count)] == [{}] * count
        assert subscribed(r, next(pages), THIRD) == {}
        assert refusal(subscribed(r, next(pages), THIRD))[1].startswith("Callers of your namespace")
        assert [subscribed(r, next(pages), STRANGER) for _ in range(2)] == [{}] * 2


def test_a_place_goes_to_who_still_follows_when_the_first_one_leaves(
    server: FollowingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "MOST_URIS", 4)
    with serving(server) as r:
        assert subscribed(r, README, BOT) == subscribed(r, README, TWIN) == {}
        assert refusal(subscribed(r, server.uris[1], BOT))[0] == "too_many_subscriptions"
        assert subscribed(r, README, BOT, method="unsubscribe") == {}
        assert subscribed(r, server.uris[1], BOT) == {}
        assert refusal(subscribed(r, server.uris[2], TWIN))[0] == "too_many_subscriptions"


def test_a_namespace_has_half_of_all_streams_to_servers(
    server: FollowingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "MOST_STREAMS", 4)
    with serving(server) as r:
        for number, who in enumerate((BOT, TWIN)):
            assert subscribed(r, server.uris[number], who) == {}
        code, words = refusal(subscribed(r, server.uris[2], THIRD))
        assert (code, words.partition(", follow")[0]) == (
            "too_many_subscriptions", "Callers of your namespace, or of your issuer",
        )  # fmt: skip
        assert subscribed(r, server.uris[2], STRANGER) == {}
