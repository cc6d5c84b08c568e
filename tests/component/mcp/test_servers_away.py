"""A server that does not answer loses no URI and no prompt name to another namespace's, and delays nobody else's reads."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from mcp_client import HANDSHAKE, STATELESS, McpClient
from offering_server import OfferingServer, offering
from offering_world import World, prompts, uris
from published import account
from realparts.processes import wait_until
from registry_harness import RunningRegistry, running_registry
from toolcrib_registry.offerings import lists
from toolcrib_registry.upstream.lists import Kind

pytestmark = pytest.mark.guarantee
README, PAGE, REVIEW = "docs://readme", "docs://pages/{n}", "review"
OWN = {place: f"toolcrib://{place}/docs/docs%3A%2F%2Freadme" for place in ("away", "here", "team")}
KINDS = (Kind.RESOURCES, Kind.PROMPTS)


def server(name: str) -> OfferingServer:
    return OfferingServer(
        name=name,
        resources=[{"uri": README, "name": "readme"}],
        templates=[{"uriTemplate": PAGE, "name": "page"}],
        prompts=[{"name": REVIEW}],
    )


@pytest.fixture
def running() -> Iterator[RunningRegistry]:
    with running_registry(limits={"breaker_failures": 0}) as found:
        yield found


@pytest.fixture
def near() -> Iterator[OfferingServer]:
    with offering(server("near")) as up:
        yield up
        if up.listing is not None:
            up.listing.set()


@pytest.fixture
def far() -> Iterator[OfferingServer]:
    with offering(server("far")) as up:
        yield up


@pytest.fixture
def world(running: RunningRegistry) -> World:
    made = World(running)
    made.grant("docs:use", namespace=None)
    return made


@pytest.fixture
def both(world: World, near: OfferingServer, far: OfferingServer) -> World:
    """One server of the caller's own namespace, and one of another, both with the same keys."""
    world.serve(near, "docs")
    world.serve(far, "docs", "away")
    return world


def changed(world: World) -> None:
    """The near server says that its lists have changed."""
    for kind in KINDS:
        world.changed("team/docs", kind)


def error(running: RunningRegistry, method: str, params: dict[str, Any], version: str = STATELESS) -> Any:
    return McpClient(running, version).ask(method, params).json()["error"]


def get(running: RunningRegistry, name: str) -> dict[str, Any]:
    return McpClient(running).result("prompts/get", {"name": name})


def read(running: RunningRegistry, uri: str) -> dict[str, Any]:
    return McpClient(running).result("resources/read", {"uri": uri})


def completion(ref: dict[str, str]) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": "n", "value": ""}}


BY_URI = {
    "read": ("resources/read", {"uri": README}),
    "read by a template": ("resources/read", {"uri": "docs://pages/7"}),
    "completion of a template": ("completion/complete", completion({"type": "ref/resource", "uri": PAGE})),
}
BY_NAME = {
    "prompt": ("prompts/get", {"name": REVIEW}),
    "completion of a prompt": ("completion/complete", completion({"type": "ref/prompt", "name": REVIEW})),
}


@pytest.mark.parametrize("question", BY_URI | BY_NAME)
@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE[-1]])
def test_while_ones_server_is_away_at_a_start_another_namespaces_server_gets_none_of_its_keys(
    both: World, near: OfferingServer, far: OfferingServer, question: str, version: str
) -> None:
    near.down = True
    method, params = (BY_URI | BY_NAME)[question]
    refused = error(both.running, method, params, version)
    assert refused["code"] == -32602
    assert "do not answer now may have it, too: team/docs." in refused["message"]
    (forms,) = refused["data"].values()
    assert [far_or_near(form) for form in forms] == ["away", "team"], "one for each server"
    assert far.of(method) == []
    near.down = False
    changed(both)
    McpClient(both.running).result("resources/list")
    McpClient(both.running).result("prompts/list")
    assert McpClient(both.running, version).result(method, params)["_meta"]["toolcrib.dev/server"] == (
        "team/docs"
    )


def far_or_near(form: str) -> str:
    return form.removeprefix("toolcrib://").partition("__")[0].partition("/")[0]


def test_the_forms_of_an_ambiguous_key_mean_one_server_each(both: World, near: OfferingServer) -> None:
    running = both.running
    near.down = True
    assert uris(running) == [OWN["away"]]
    (name,) = prompts(running)
    assert error(running, "resources/read", {"uri": README})["data"] == {"uris": [OWN["away"], OWN["team"]]}
    forms = error(running, "prompts/get", {"name": REVIEW})["data"]["names"]
    assert forms[0] == name
    assert read(running, OWN["away"])["contents"][0]["text"] == "of far"
    assert get(running, name)["_meta"]["toolcrib.dev/server"] == "away/docs"
    near.down = False
    changed(both)
    assert uris(running) == [README, OWN["away"]]
    assert prompts(running) == sorted([REVIEW, name])
    assert read(running, OWN["team"])["_meta"]["toolcrib.dev/server"] == "team/docs"
    assert get(running, forms[1])["_meta"]["toolcrib.dev/server"] == "team/docs"


def test_two_servers_that_both_answer_leave_the_same_error(
    world: World, near: OfferingServer, far: OfferingServer
) -> None:
    world.serve(near, "docs", "here")
    world.serve(far, "docs", "away")
    refused = error(world.running, "prompts/get", {"name": REVIEW})
    assert refused["message"] == "Several servers have it. Use one of names."
    assert refused["data"]["names"] == prompts(world.running)
    refused = error(world.running, "resources/read", {"uri": README})
    assert refused["message"] == "Several servers have it. Use one of uris."
    assert refused["data"]["uris"] == uris(world.running) == [OWN["away"], OWN["here"]]


def test_a_server_that_is_away_later_keeps_its_keys_until_it_lists_others(
    both: World, near: OfferingServer, far: OfferingServer
) -> None:
    running = both.running
    assert (uris(running), REVIEW in prompts(running)) == ([README, OWN["away"]], True)
    McpClient(running).result(Kind.TEMPLATES.method)
    near.down = True
    changed(both)
    assert uris(running) == [README, OWN["away"]]
    assert REVIEW in prompts(running)
    for method, params in (BY_URI | BY_NAME).values():
        assert error(running, method, params)["data"] == {"code": "upstream_error"}, method
        assert far.of(method) == []
    near.resources, near.prompts, near.templates = [{"uri": "docs://new", "name": "new"}], [], []
    near.down = False
    changed(both)
    assert uris(running) == ["docs://new", README]
    assert read(running, README)["_meta"]["toolcrib.dev/server"] == "away/docs"
    assert prompts(running) == [REVIEW]
    assert get(running, REVIEW)["_meta"]["toolcrib.dev/server"] == "away/docs"


def test_a_server_of_another_namespace_that_is_away_takes_nothing_from_ones_own(
    both: World, far: OfferingServer
) -> None:
    far.down = True
    assert uris(both.running) == [README]
    assert prompts(both.running) == [REVIEW]
    assert read(both.running, README)["contents"][0]["text"] == "of near"
    assert read(both.running, "docs://pages/7")["contents"][0]["text"] == "of near"


READS: dict[str, Callable[[RunningRegistry], dict[str, Any]]] = {
    "read": lambda r: read(r, "far://readme"),
    "read by a template": lambda r: read(r, "far://pages/7"),
    "prompt": lambda r: get(r, "plan"),
    "completion": lambda r: McpClient(r).result(
        "completion/complete", completion({"type": "ref/prompt", "name": "plan"})
    ),
}


T = TypeVar("T")
SECONDS = 12.0
"""A busy machine answers by then what waits for nobody; a server that hangs is waited for longer in these tests."""


def while_open(up: OfferingServer, ask: Callable[[], T]) -> T:
    """The answer that comes while a server that hangs is still waited for."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        try:
            found = asked.result(SECONDS)
            wait_until(lambda: up.open > 0)
            return found
        except TimeoutError:
            assert up.listing is not None
            up.listing.set()
            raise


@pytest.fixture
def ready(world: World, near: OfferingServer, far: OfferingServer, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two servers of the caller's namespace, of which one will hang; the other has keys of its own."""
    monkeypatch.setattr(lists, "LIST_SECONDS", 60.0)
    far.resources = [{"uri": "far://readme", "name": "readme"}]
    far.templates = [{"uriTemplate": "far://pages/{n}", "name": "page"}]
    far.prompts = [{"name": "plan"}]
    world.serve(near, "docs", mcp={"url": near.url, "timeout": "30s"})
    world.serve(far, "more", defaults={"scopes": ["docs:use"]})
    return world


@pytest.mark.parametrize("question", READS)
@pytest.mark.parametrize("held", [True, False], ids=["its lists are held", "it never answered"])
def test_a_read_from_one_server_waits_for_no_other_that_hangs(
    ready: World, near: OfferingServer, question: str, held: bool
) -> None:
    running = ready.running
    if held:
        for kind in (Kind.RESOURCES, Kind.TEMPLATES, Kind.PROMPTS):
            McpClient(running).result(kind.method)
    near.listing = threading.Event()
    changed(ready)
    for _ in range(2):  # the second time, it is known to hang
        found = while_open(near, lambda: READS[question](running))
        assert found["_meta"]["toolcrib.dev/server"] == "team/more"


def test_a_list_whose_time_is_over_is_shown_while_its_server_hangs_and_read_again_behind_it(
    ready: World, near: OfferingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LEAST_SECONDS", 0.0)
    before = uris(ready.running)
    near.listing = threading.Event()
    near.resources.append({"uri": "docs://new", "name": "new"})
    for _ in range(2):
        assert while_open(near, lambda: uris(ready.running)) == before
    near.listing.set()
    wait_until(lambda: "docs://new" in uris(ready.running))


def test_the_form_that_names_a_server_asks_no_server_for_a_list(
    ready: World, near: OfferingServer, far: OfferingServer
) -> None:
    found = read(ready.running, "toolcrib://team/more/far%3A%2F%2Freadme")
    assert found["_meta"]["toolcrib.dev/server"] == "team/more"
    assert near.asked == []
    assert far.of("resources/list") == []


def test_a_server_that_hangs_for_many_callers_leaves_its_namespaces_other_servers_room(
    near: OfferingServer, far: OfferingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LIST_SECONDS", 60.0)
    callers = [f"c{number}" for number in range(lists.AT_A_TIME + 1)]
    far.resources = [{"uri": "far://readme", "name": "readme"}]
    with running_registry() as running, ThreadPoolExecutor(len(callers)) as pool:
        world = World(running)
        world.serve(near, "docs", mcp={"url": near.url, "assertion": True, "timeout": "30s"})
        world.serve(far, "more", defaults={"scopes": ["more:use"]})
        world.grant("docs:use", "more:use", subjects=tuple(account("team", who) for who in callers))
        near.listing = threading.Event()
        *crowd, last = callers
        asked = [pool.submit(uris, running, who=who) for who in crowd]
        wait_until(lambda: near.open == lists.AT_A_TIME // 2)
        client = McpClient(running, who=last)
        found = while_open(near, lambda: client.result("resources/read", {"uri": "far://readme"}))
        near.listing.set()
        assert all("docs://readme" in each.result(20) for each in asked)
    assert found["_meta"]["toolcrib.dev/server"] == "team/more"
