"""Changes of single resources are told to those who follow them and may read them, in both eras on both sides."""

from collections.abc import Iterator

import pytest

from following_server import UPDATED, FollowingServer, following
from imported import toolserver
from mcp_client import HANDSHAKE, STATELESS, McpClient, Notices, listening
from published import account
from realparts.processes import wait_until
from registry_harness import RunningRegistry, binding, running_registry
from toolcrib import publishing
from toolcrib.wire.publish import PublishedLimits
from toolcrib_registry.mcp import following as followed

EARLIER = HANDSHAKE[-1]
ERAS = [STATELESS, EARLIER]
README, OTHER = "docs://readme", "docs://other"
SESSION = "a-session"


@pytest.fixture(params=ERAS, ids=["server of 2026", "server of 2025"])
def server(request: pytest.FixtureRequest) -> Iterator[FollowingServer]:
    with following(request.param) as up:
        yield up


@pytest.fixture
def registry(server: FollowingServer) -> Iterator[RunningRegistry]:
    made = publishing.server(toolserver("docs", server.up.url), None)
    assert made is not None
    with running_registry([], [binding("bot", ("docs:use",), subjects=TWO)]) as running:
        running.publish(servers=[made])
        yield running


TWO = (account("team", "bot"), account("team", "twin"))


def subscribed(r: RunningRegistry, uri: str = README, who: str = "bot", method: str = "subscribe") -> object:
    """What a client of 2025-11-25 is answered."""
    client = McpClient(r, EARLIER, who=who)
    body = {"jsonrpc": "2.0", "id": 1, "method": f"resources/{method}", "params": {"uri": uri}}
    answer = client.post(body, {"mcp-session-id": SESSION}).json()
    return answer.get("result", answer.get("error"))


def told(notices: Notices, uri: str) -> bool:
    notice = notices.next()
    return (notice["method"], notice["params"]["uri"]) == (UPDATED, uri)


@pytest.mark.parametrize("uri", [README, "toolcrib://team/docs/docs%3A%2F%2Freadme"])
def test_a_client_of_2026_is_told_of_what_its_stream_names(
    registry: RunningRegistry, server: FollowingServer, uri: str
) -> None:
    with listening(McpClient(registry), follow=[uri]) as notices:
        assert notices.followed == [uri]
        for _ in range(2):
            server.change(README)
            assert told(notices, uri)
        server.change(OTHER)
        server.change(README)
        assert told(notices, uri)
    wait_until(lambda: not server.streams(), 20)


def test_a_client_of_2025_is_told_on_the_stream_of_its_session_until_it_unsubscribes(
    registry: RunningRegistry, server: FollowingServer
) -> None:
    with listening(McpClient(registry, EARLIER), session=SESSION) as notices:
        assert subscribed(registry) == {}
        assert subscribed(registry, OTHER) == {}
        server.change(README)
        assert told(notices, README)
        assert subscribed(registry, method="unsubscribe") == {}
        server.change(README)
        server.change(OTHER)
        assert told(notices, OTHER)
        assert subscribed(registry, OTHER, method="unsubscribe") == {}
        wait_until(lambda: not server.streams(), 20)


def test_what_changes_before_the_stream_of_a_session_is_there_is_told_on_it(
    registry: RunningRegistry, server: FollowingServer
) -> None:
    assert subscribed(registry) == {}
    server.change(README)
    with listening(McpClient(registry, EARLIER), session=SESSION) as notices:
        assert told(notices, README)
    with listening(McpClient(registry, EARLIER), session="another") as notices:
        server.change(README)
        assert notices.quiet(0.3)


def test_one_stream_of_the_server_serves_all_who_follow_the_same(
    registry: RunningRegistry, server: FollowingServer
) -> None:
    with (
        listening(McpClient(registry), follow=[README]) as one,
        listening(McpClient(registry, who="twin"), follow=[README, OTHER]) as other,
    ):
        wait_until(lambda: server.streams() == [{README}, {OTHER}], 20)
        server.change(README)
        assert told(one, README)
        assert told(other, README)
        server.change(OTHER)
        assert told(other, OTHER)
        assert one.quiet(0.2)


def test_hidden_and_absent_resources_are_followed_alike_not_at_all(
    registry: RunningRegistry, server: FollowingServer
) -> None:
    absent = subscribed(registry, "docs://absent")
    hidden = subscribed(registry, README, who="stranger")
    assert hidden == {**absent, "data": {"uri": README}}  # type: ignore[dict-item]
    with listening(McpClient(registry, who="stranger"), follow=[README, "docs://absent"]) as notices:
        assert notices.followed == []
        assert not server.followed
        server.change(README)
        assert notices.quiet(0.2)


def test_a_revoked_grant_ends_it(registry: RunningRegistry, server: FollowingServer) -> None:
    with listening(McpClient(registry), follow=[README]) as notices:
        registry.publish(remove_bindings=["uid-team-bot"])
        wait_until(lambda: not server.streams(), 20)
        server.change(README)
        assert notices.quiet(0.3)


def test_following_is_limited_as_a_call_is(registry: RunningRegistry, server: FollowingServer) -> None:
    limited = binding("bot", ("docs:use",), limits=PublishedLimits(per_minute=1))
    registry.publish([], [limited])
    assert subscribed(registry) == {}
    refused = subscribed(registry, OTHER)
    assert refused["data"]["code"] == "limit_exceeded"  # type: ignore[index]
    assert server.streams() == [{README}]


def test_a_server_that_does_not_tell_of_its_resources_is_not_followed(
    registry: RunningRegistry, server: FollowingServer
) -> None:
    server.follows = False
    refused = subscribed(registry)
    assert "does not tell of changes" in refused["message"]  # type: ignore[index]
    with listening(McpClient(registry), follow=[README]) as notices:
        assert notices.followed == []


def test_after_a_break_of_the_servers_stream_it_is_opened_again_and_the_resource_told(
    registry: RunningRegistry, server: FollowingServer
) -> None:
    with listening(McpClient(registry), follow=[README]) as notices:
        server.break_off()
        assert told(notices, README), "it may have changed meanwhile"
        wait_until(lambda: server.streams() == [{README}], 20)
        server.change(f"{README}/part")
        assert told(notices, README)


def test_what_nobody_listens_to_is_followed_for_a_while_only(
    registry: RunningRegistry, server: FollowingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "UNREAD_SECONDS", 0.1)
    assert subscribed(registry) == {}
    wait_until(lambda: not server.streams(), 20)


def test_how_much_is_followed_is_bounded(registry: RunningRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "MOST", 1)
    monkeypatch.setattr("toolcrib_registry.mcp.offered.MOST", 1)
    assert subscribed(registry) == subscribed(registry) == {}
    assert subscribed(registry, OTHER)["message"] == "At most 1 resources are followed at one time."  # type: ignore[index]
    many = {"notifications": {"resourceSubscriptions": [README, OTHER]}}
    assert McpClient(registry).error("subscriptions/listen", many)[:2] == (400, -32602)


def test_a_server_that_is_gone_is_an_error_and_nothing_stays(
    registry: RunningRegistry, server: FollowingServer
) -> None:
    McpClient(registry).result("resources/list")
    server.up.on.pop("subscriptions/listen", None)
    server.up.on.pop("GET", None)
    assert subscribed(registry)["data"]["code"] in ("tool_error", "upstream_protocol")  # type: ignore[index]

    async def streams() -> int:
        return len(registry.registry.deps.updates)

    assert registry.on_loop(streams) == 0
