"""Resources and prompts of MCP servers, within the caller's view: what is listed, read, got and completed by whom."""

import concurrent.futures
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_client import HANDSHAKE, McpClient, listening
from offering_server import OfferingServer, offering
from offering_world import World, prompts, uris
from published import account
from realparts.processes import wait_until
from registry_harness import RunningRegistry, running_registry
from toolcrib.wire.publish import Credential, Credentials, PublishedLimits
from toolcrib_registry.offerings import lists
from toolcrib_registry.upstream.lists import Kind

README = {"uri": "docs://readme", "name": "readme", "title": "The README"}
PAGE = {"uriTemplate": "docs://pages/{number}", "name": "page"}
REVIEW = {"name": "review", "description": "Review code", "arguments": [{"name": "code", "required": True}]}


def server() -> OfferingServer:
    return OfferingServer(resources=[README], templates=[PAGE], prompts=[REVIEW])


@pytest.fixture(scope="module")
def running() -> Iterator[RunningRegistry]:
    with running_registry([], []) as found:
        yield found


@pytest.fixture
def one() -> Iterator[OfferingServer]:
    with offering(server()) as up:
        yield up


@pytest.fixture
def other() -> Iterator[OfferingServer]:
    with offering(server()) as up:
        up.name = "other"
        yield up


@pytest.fixture
def world(running: RunningRegistry) -> Iterator[World]:
    made = World(running)
    yield made
    made.end()


def test_all_three_are_listed_read_got_and_completed(world: World, one: OfferingServer) -> None:
    world.serve(one, "docs")
    world.grant("docs:use")
    client = McpClient(world.running)

    (listed,) = client.result("resources/list")["resources"]
    assert {k: v for k, v in listed.items() if k != "_meta"} == README
    assert listed["_meta"]["toolcrib.dev/server"] == "team/docs"
    (template,) = client.result("resources/templates/list")["resourceTemplates"]
    assert template["uriTemplate"] == "docs://pages/{number}"
    assert prompts(world.running) == ["review"]
    read = client.result("resources/read", {"uri": "docs://readme"})
    assert read["contents"] == [{"uri": "docs://readme", "text": "of one"}]
    assert (
        client.result("resources/read", {"uri": "docs://pages/7"})["contents"][0]["uri"] == "docs://pages/7"
    )
    got = client.result("prompts/get", {"name": "review", "arguments": {"code": "x"}})
    assert got["messages"][0]["content"]["text"] == 'review of one: {"code": "x"}'
    ref = {"type": "ref/prompt", "name": "review"}
    asked = {"ref": ref, "argument": {"name": "code", "value": "v"}}
    assert client.result("completion/complete", asked)["completion"]["values"] == ["one:v"]


@pytest.mark.parametrize(
    ("allow", "deny", "seen"),
    [
        (None, (), True),
        (("get_*",), (), False),
        (("docs:@resources",), (), True),
        (("docs:@prompts",), (), False),
        (("docs:*",), (), True),
        (None, ("docs:*",), False),
        (None, ("@resources",), False),
    ],
)
def test_a_pattern_opens_and_closes_resources_as_it_does_a_tool(
    world: World, one: OfferingServer, allow: Any, deny: Any, seen: bool
) -> None:
    world.serve(one, "docs")
    world.grant("docs:use", allow=allow, deny=deny)
    assert uris(world.running) == (["docs://readme"] if seen else [])
    if not seen:
        assert McpClient(world.running).error("resources/read", {"uri": "docs://readme"})[1] == -32602
        assert one.of("resources/read") == []


def test_without_a_grant_nothing_is_asked_of_the_server(world: World, one: OfferingServer) -> None:
    world.serve(one, "docs")
    world.grant("elsewhere:use")
    assert (uris(world.running), prompts(world.running)) == ([], [])
    hidden = McpClient(world.running).error("prompts/get", {"name": "review"})
    assert hidden == McpClient(world.running).error("prompts/get", {"name": "absent"})
    assert one.asked == []


def test_a_revoked_grant_ends_it_at_once(world: World, one: OfferingServer) -> None:
    world.serve(one, "docs")
    world.grant("docs:use")
    assert uris(world.running) == ["docs://readme"]
    world.revoke()
    assert uris(world.running) == []
    assert McpClient(world.running).error("resources/read", {"uri": "docs://readme"})[1] == -32602


@pytest.mark.parametrize("off", ["resources", "prompts"])
def test_a_switch_of_the_server_turns_one_of_them_off(world: World, one: OfferingServer, off: str) -> None:
    world.serve(one, "docs", **{off: False})
    world.grant("docs:use")
    assert bool(uris(world.running)) is (off != "resources")
    assert bool(prompts(world.running)) is (off != "prompts")


def test_of_two_servers_with_one_uri_that_of_the_callers_namespace_has_it(
    world: World, one: OfferingServer, other: OfferingServer
) -> None:
    world.serve(one, "docs", "team")
    world.serve(other, "docs", "away")
    world.grant("docs:use", namespace=None)
    own = "toolcrib://away/docs/docs%3A%2F%2Freadme"
    assert uris(world.running) == ["docs://readme", own]
    client = McpClient(world.running)
    assert client.result("resources/read", {"uri": "docs://readme"})["contents"][0]["text"] == "of one"
    assert client.result("resources/read", {"uri": own})["contents"] == [
        {"uri": "docs://readme", "text": "of other"}
    ]


def test_where_none_is_of_the_callers_namespace_both_are_listed_by_their_servers_alone(
    world: World, one: OfferingServer, other: OfferingServer
) -> None:
    world.serve(one, "docs", "here")
    world.serve(other, "docs", "away")
    world.grant("docs:use", namespace=None)
    forms = [f"toolcrib://{place}/docs/docs%3A%2F%2Freadme" for place in ("away", "here")]
    assert uris(world.running) == forms
    assert McpClient(world.running).error("resources/read", {"uri": "docs://readme"})[1] == -32602


def test_a_server_that_is_not_visible_changes_no_name(
    world: World, one: OfferingServer, other: OfferingServer
) -> None:
    world.serve(one, "docs", "here")
    world.serve(other, "hidden", "away")
    world.grant("docs:use", namespace=None)
    assert (uris(world.running), prompts(world.running)) == (["docs://readme"], ["review"])
    assert other.asked == []


def test_a_server_that_is_down_hides_no_others_and_is_named(
    world: World, one: OfferingServer, other: OfferingServer
) -> None:
    other.down = True
    world.serve(one, "docs")
    world.serve(other, "broken", defaults={"scopes": ["docs:use"]})
    world.grant("docs:use")
    found = McpClient(world.running).result("resources/list")
    assert [each["uri"] for each in found["resources"]] == ["docs://readme"]
    assert found["_meta"]["toolcrib.dev/servers-away"] == ["team/broken"]


def test_where_no_server_answers_the_list_is_an_error_and_not_empty(
    world: World, one: OfferingServer
) -> None:
    one.down = True
    world.serve(one, "docs")
    world.grant("docs:use")
    assert McpClient(world.running).error("resources/list")[1] == -32603


def test_a_uri_with_credentials_or_of_our_own_scheme_is_not_passed_on(
    world: World, one: OfferingServer
) -> None:
    one.resources += [
        {"uri": "https://user:pass@host/x", "name": "a"},
        {"uri": "toolcrib://team/other/x", "name": "b"},
        {"uri": "no-scheme", "name": "c"},
        {"uri": "docs://unnamed"},
        "no entry",  # type: ignore[list-item]
    ]
    world.serve(one, "docs")
    world.grant("docs:use")
    assert uris(world.running) == ["docs://readme"]


def test_a_read_ends_with_its_grant(world: World, one: OfferingServer) -> None:
    one.reading = threading.Event()
    world.serve(one, "docs")
    world.grant("docs:use")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reading = pool.submit(McpClient(world.running).ask, "resources/read", {"uri": "docs://readme"})
        wait_until(lambda: one.of("resources/read") != [])
        world.revoke()
        answer = reading.result(10).json()
        one.reading.set()
    assert answer["error"]["data"] == {"code": "revoked"}


def test_limits_count_reads_and_prompts_as_calls(world: World, one: OfferingServer) -> None:
    world.serve(one, "docs")
    world.grant("docs:use", limits=PublishedLimits(per_minute=2))
    client = McpClient(world.running)
    client.result("resources/read", {"uri": "docs://readme"})
    client.result("prompts/get", {"name": "review"})
    data = client.ask("resources/read", {"uri": "docs://readme"}).json()["error"]["data"]
    assert data["code"] == "limit_exceeded"
    assert data["retryAfter"] > 0
    assert len(one.of("resources/read")) == 1


def test_a_list_is_read_once_for_all_who_ask_until_its_server_says_that_it_changed(
    world: World, one: OfferingServer
) -> None:
    one.ttl_ms, one.scopes = 300_000, ("public",)
    world.serve(one, "docs")
    world.grant("docs:use", subjects=(account("team", "bot"), account("team", "twin")))
    for name in ("bot", "twin", "bot"):
        assert McpClient(world.running, who=name).result("resources/list")["resources"]
    assert len(one.of("resources/list")) == 1
    one.resources.clear()
    world.changed("team/docs", Kind.RESOURCES)
    assert uris(world.running) == []


def test_what_a_server_listed_is_shown_while_it_does_not_answer(world: World, one: OfferingServer) -> None:
    world.serve(one, "docs")
    world.grant("docs:use")
    assert uris(world.running) == ["docs://readme"]
    one.down = True
    world.changed("team/docs", Kind.RESOURCES)
    assert uris(world.running) == ["docs://readme"]
    assert McpClient(world.running).ask("resources/read", {"uri": "docs://readme"}).json()["error"][
        "data"
    ] == {"code": "upstream_error"}


def test_each_change_of_a_servers_list_is_told_also_two_within_a_second(
    world: World, one: OfferingServer
) -> None:
    world.serve(one, "docs")
    world.grant("docs:use")
    with listening(McpClient(world.running, HANDSHAKE[-1])) as notices:
        for _ in range(2):
            world.changed("team/docs", Kind.RESOURCES)
            assert notices.next()["method"] == "notifications/resources/list_changed"
        world.changed("team/docs", Kind.PROMPTS)
        assert notices.next()["method"] == "notifications/prompts/list_changed"


def test_an_answer_or_a_list_that_repeats_the_servers_credential_is_withheld(
    world: World, one: OfferingServer
) -> None:
    secret = "a-secret-of-the-server"
    credential = Credential(
        namespace="team", name="token", key="value", hosts=(f"http://127.0.0.1:{one.port}",), value=secret
    )
    pushed = Credentials(epoch=1, credentials=(credential,)).model_dump_json()
    assert world.running.admin("POST", "/v1/admin/credentials", content=pushed).status_code == 200
    reference = {"type": "Bearer", "secretKeyRef": {"name": "token", "key": "value"}}
    world.serve(one, "docs", mcp={"url": one.url, "auth": reference})
    world.grant("docs:use")
    assert uris(world.running) == ["docs://readme"]
    one.meta = {"_meta": {"said": secret}}
    client = McpClient(world.running)
    read = client.ask("resources/read", {"uri": "docs://readme"})
    assert read.json()["error"]["data"] == {"code": "upstream_protocol"}
    one.prompts[0]["description"] = f"send {secret}"
    listed = client.ask("prompts/list")
    assert listed.json()["error"]["data"] == {"code": "upstream_protocol"}
    assert secret not in read.text + listed.text


def test_a_resource_of_a_hundred_megabytes_is_an_error_and_the_next_one_is_read(
    world: World, one: OfferingServer
) -> None:
    world.serve(one, "docs")
    world.grant("docs:use")
    client = McpClient(world.running)
    one.meta = {"text": "x" * 100_000_000}
    read = client.ask("resources/read", {"uri": "docs://readme"})
    assert read.json()["error"]["data"] == {"code": "upstream_too_large"}
    assert len(read.content) < 1_000
    one.meta = {}
    assert client.result("resources/read", {"uri": "docs://readme"})["contents"][0]["text"] == "of one"


def test_a_list_without_an_end_is_not_listed_in_part_and_hides_no_others(
    world: World, one: OfferingServer, other: OfferingServer
) -> None:
    one.endless = True
    other.resources = [{"uri": "other://readme", "name": "readme"}]
    world.serve(one, "docs")
    world.serve(other, "more")
    world.grant("docs:use", "more:use")
    listed = McpClient(world.running).result("resources/list")
    assert [each["uri"] for each in listed["resources"]] == ["other://readme"]
    assert listed["_meta"]["toolcrib.dev/servers-away"] == ["team/docs"]
    assert len(one.of("resources/list")) == 100


def test_numbers_beyond_64_bits_are_passed_on(world: World, one: OfferingServer) -> None:
    one.meta = {"_meta": {"at": 10**30}}
    world.serve(one, "docs")
    world.grant("docs:use")
    read = McpClient(world.running).result("resources/read", {"uri": "docs://readme"})
    assert read["contents"][0]["_meta"] == {"at": 10**30}


def test_what_a_server_says_of_contents_has_no_key_of_ours(world: World, one: OfferingServer) -> None:
    one.meta = {"_meta": {"toolcrib.dev/server": "team/other", "toolcrib.dev/x": 1, "a": 1}}
    world.serve(one, "docs")
    world.grant("docs:use")
    read = McpClient(world.running).result("resources/read", {"uri": "docs://readme"})
    assert read["contents"][0]["_meta"] == {"a": 1}


def test_servers_that_hang_are_named_and_hold_up_no_other_namespace(
    world: World, one: OfferingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LIST_SECONDS", 0.5)
    with silent_ports(lists.AT_A_TIME * 2) as ports:
        for port in ports:
            world.serve(OfferingServer(port=port), f"hangs-{port}", "bad", defaults={"scopes": ["docs:use"]})
        world.serve(one, "docs")
        world.grant("docs:use", namespace=None)
        found = McpClient(world.running).result("resources/list")
    assert [each["uri"] for each in found["resources"]] == ["docs://readme"]
    assert len(found["_meta"]["toolcrib.dev/servers-away"]) == len(ports)


@contextlib.contextmanager
def silent_ports(count: int) -> Iterator[list[int]]:
    """Ports that take connections and say nothing."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        yield [each.getsockname()[1] for each in sockets]
