"""MCP clients of others, each a process in an environment of its own, against a registry (`make mcp-peers`)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_peers import environments
from mcp_peers.peer import PEERS, Kind, Peer, PeerFailedError, Refused, Result, running
from mcp_peers.suite_tools import ACCOUNT, serving_suite_tools
from realparts.processes import wait_until
from realparts.required import absent
from registry_harness import RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib.wire.publish import PublishedTool

pytestmark = pytest.mark.peers

NUMBERS = {
    # no type at the root, and a boolean for a property: some clients would refuse the whole list because of either
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "note": True},
    "required": ["a", "b"],
}
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}, "note": True}, "required": ["sum"]}
UNKNOWN = "Unknown tool|not found on server"
"""As the registry says it, and as the inspector does, which asks for the list first."""
META_TOOLS = ["search_tools", "describe_tool", "call_tool", "load_tools"]


def add_or_fail(asked: Asked) -> Answer:
    if asked.path == "/broken":
        return Answer(b'{"error": "always"}', 500)
    numbers = asked.json()
    return Answer(json.dumps({"sum": numbers["a"] + numbers["b"]}).encode())


@pytest.fixture(scope="module", autouse=True)
def _environments() -> None:
    try:
        environments.node()
        for name in environments.PYTHON:
            environments.python(name)
    except environments.PeersMissingError as error:
        absent(error)


@pytest.fixture(params=PEERS.values(), ids=PEERS)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with answering(add_or_fail) as found:
        yield found


@pytest.fixture
def registry(port: int) -> Iterator[RunningRegistry]:
    """What `bot` may use: add, broken. `hidden` is for others."""
    tools = [published("add", port), published("broken", port), published("hidden", port)]
    with running_registry(tools, [binding("bot", ("add:use", "broken:use"))]) as running:
        yield running


def published(name: str, port: int) -> PublishedTool:
    description = "Adds two numbers." if name == "add" else f"The tool {name}."
    output = SUM if name == "add" else None
    return tool(
        name,
        description=description,
        input_schema=NUMBERS,
        output_schema=output,
        backend=backend(port, f"/{name}"),
    )


def wait_for_the_stream(registry: RunningRegistry, kind: Kind) -> None:
    """Clients of the 2025 era open it after they say that they are connected. List then: the stream compares with that list."""
    if kind.hears:
        wait_until(lambda: "toolcrib_watch_streams 1.0" in registry.metrics())


def hear_of_it(peer: Peer, kind: Kind) -> None:
    if kind.hears:
        peer.wait_for_change()


def test_a_client_lists_and_calls_what_its_identity_may_use(
    kind: Kind, registry: RunningRegistry, tmp_path: Path
) -> None:
    token = registry.token("team", "bot")

    with running(kind, f"{registry.url}/mcp/direct", token, tmp_path) as peer:
        assert peer.version == kind.version
        assert peer.tools() == ["add", "broken"]
        answer = peer.call("add", {"a": 1, "b": 2})
        broken = peer.call("broken", {"a": 1, "b": 2})

    assert (json.loads(answer.text), answer.failed) == ({"sum": 3}, False)
    assert broken.failed


def test_a_client_hears_of_changes_and_what_is_revoked_is_gone(
    kind: Kind, registry: RunningRegistry, port: int, tmp_path: Path
) -> None:
    grant = binding("bot", ("subtract:use",), name="subtract")
    token = registry.token("team", "bot")

    with running(kind, f"{registry.url}/mcp/direct", token, tmp_path) as peer:
        wait_for_the_stream(registry, kind)
        assert peer.tools() == ["add", "broken"]

        registry.publish([published("subtract", port)], [grant])
        hear_of_it(peer, kind)
        assert peer.tools() == ["add", "broken", "subtract"]
        assert not peer.call("subtract", {"a": 1, "b": 2}).failed

        registry.publish(remove_bindings=[grant.uid])
        hear_of_it(peer, kind)
        assert peer.tools() == ["add", "broken"]
        with pytest.raises(Refused, match=UNKNOWN):
            peer.call("subtract", {"a": 1, "b": 2})


def test_a_client_of_the_meta_tools_searches_describes_and_calls(
    kind: Kind, registry: RunningRegistry, tmp_path: Path
) -> None:
    token = registry.token("team", "bot")

    with running(kind, f"{registry.url}/mcp", token, tmp_path) as peer:
        assert peer.tools() == META_TOOLS
        found = peer.call("search_tools", {"query": "add two numbers"})
        described = peer.call("describe_tool", {"tool_id": "team/add"})
        answer = peer.call("call_tool", {"tool_id": "team/add", "args": {"a": 1, "b": 2}})
        registry.publish(remove_bindings=["uid-team-bot"])
        with pytest.raises(Refused, match=UNKNOWN):
            peer.call("call_tool", {"tool_id": "team/add", "args": {"a": 1, "b": 2}})

    assert "team/add" in found.text
    assert "Adds two numbers." in described.text
    assert (json.loads(answer.text), answer.failed) == ({"sum": 3}, False)


@pytest.mark.parametrize("kind", [k for k in PEERS.values() if k.hears], ids=lambda kind: kind.name)
def test_a_client_answers_what_a_tool_asks_where_its_revision_can_carry_it(
    kind: Kind, tmp_path: Path
) -> None:
    """Two rounds, each with a state that the client gives back. A client of before is told what was asked."""
    with serving_suite_tools() as registry:
        token = registry.token(*ACCOUNT)
        with running(kind, f"{registry.url}/mcp/direct", token, tmp_path) as peer:
            assert "test_input_required_result_multi_round" in peer.tools()
            answer = peer.call("test_input_required_result_multi_round", {})

    if kind.version == "2026-07-28":
        assert answer == Result("state-ok", failed=False)
    else:
        assert answer.failed
        assert "What is your name?" in answer.text


def test_a_client_without_a_valid_token_is_refused(
    kind: Kind, registry: RunningRegistry, tmp_path: Path
) -> None:
    """It ends, with a reason of its own; none starts a login and waits, since no OAuth issuer is configured."""
    with pytest.raises((PeerFailedError, Refused), match=r"the client ended|auth_required"):
        with running(kind, f"{registry.url}/mcp/direct", "not.a.token", tmp_path) as peer:
            peer.tools()
