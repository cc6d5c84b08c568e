"""Resources and prompts that a server has for one caller alone are never shown to another: lists, names, URIs, contents, values."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mcp_client import HANDSHAKE, STATELESS, McpClient
from offering_server import OfferingServer, offering
from offering_world import World, prompts, uris
from published import account
from realparts.processes import wait_until
from registry_harness import RunningRegistry, running_registry
from toolcrib_registry.upstream.lists import Kind

pytestmark = pytest.mark.guarantee
TWO = ("bot", "twin")
SHARED = {"uri": "docs://shared", "name": "shared"}


@pytest.fixture
def up() -> Iterator[OfferingServer]:
    """A server that tells its callers apart; its lists last, and by its word anybody may see them."""
    made = OfferingServer(resources=[SHARED], by_caller=True, ttl_ms=300_000, scopes=("public",))
    with offering(made) as server:
        yield server


@pytest.fixture
def running(up: OfferingServer) -> Iterator[RunningRegistry]:
    with running_registry(backends={"team/docs": f"127.0.0.1:{up.port}"}) as found:
        yield found


@pytest.fixture
def world(running: RunningRegistry) -> World:
    return World(running)


ROUTES = {
    "a Service": lambda up: {"service": {"name": "docs", "port": 80}, "path": "/mcp"},
    "a URL": lambda up: {"url": up.url, "assertion": True},
}


@pytest.fixture(params=ROUTES)
def served(request: pytest.FixtureRequest, world: World, up: OfferingServer) -> World:
    """The server by each route on which it learns who calls, granted to both accounts."""
    world.serve(up, "docs", mcp=ROUTES[request.param](up))
    grant(world)
    return world


def grant(world: World, who: Sequence[str] = TWO) -> None:
    world.grant("docs:use", subjects=tuple(account("team", name) for name in who))


def answers(running: RunningRegistry, who: str, version: str = STATELESS) -> dict[str, Any]:
    """Answers that a caller gets to every question about its own and about others' resources."""
    client, found = McpClient(running, version, who=who), dict[str, Any]()

    def ask(method: str, params: dict[str, Any] | None = None) -> None:
        answer = client.ask(method, params).json()
        found[f"{method} {params}"] = answer.get("result", answer.get("error"))

    for method in ("resources/list", "resources/templates/list", "prompts/list"):
        ask(method)
    for name in TWO:
        ask("resources/read", {"uri": f"docs://of-{name}"})
        ask("resources/read", {"uri": f"pages://of-{name}/1"})
        ask("prompts/get", {"name": f"of-{name}"})
        for ref in (
            {"type": "ref/prompt", "name": f"of-{name}"},
            {"type": "ref/resource", "uri": f"pages://of-{name}/{{n}}"},
        ):
            ask("completion/complete", {"ref": ref, "argument": {"name": "n", "value": ""}})
    ask("resources/read", {"uri": SHARED["uri"]})
    return found


def has_own_alone(found: dict[str, Any], who: str) -> bool:
    """All is there of this caller, and nothing of the other, but for the name by which it was asked for."""
    (other,) = set(TWO) - {who}
    for question, answer in found.items():
        text = str(answer)
        if f"of-{other}" in question:
            assert "message" in answer, question
            text = text.replace(f"docs://of-{other}", "").replace(f"pages://of-{other}/1", "")
        else:
            assert f"of-{who}" in text or f"for {who}" in text, question
        assert other not in text, question
    return True


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE[-1]])
@pytest.mark.parametrize("order", [TWO, TWO[::-1]], ids=["bot first", "twin first"])
def test_a_list_of_one_caller_is_never_shown_to_another(
    served: World, order: tuple[str, str], version: str
) -> None:
    for who in (*order, *order):
        assert has_own_alone(answers(served.running, who, version), who)


def test_a_list_is_still_read_once_for_each_caller(served: World, up: OfferingServer) -> None:
    for who in (*TWO, *TWO, *TWO):
        assert f"docs://of-{who}" in uris(served.running, who=who)
    assert len(up.of("resources/list")) == 2


def test_a_list_of_nothing_counts_for_what_is_kept(served: World) -> None:
    offered = served.running.registry.deps.offered
    uris(served.running)
    before = offered.size
    prompts(served.running)
    first = offered.size
    prompts(served.running, who="twin")
    assert before < first < offered.size


def test_a_caller_that_comes_back_after_a_revocation_gets_no_list_of_another(served: World) -> None:
    running = served.running
    assert has_own_alone(answers(running, "bot"), "bot")
    served.revoke()
    grant(served, ["twin"])
    assert has_own_alone(answers(running, "twin"), "twin")
    assert (uris(running), prompts(running)) == ([], [])
    assert McpClient(running).error("resources/read", {"uri": "docs://of-twin"})[1] == -32602
    grant(served)
    for who in TWO:
        assert has_own_alone(answers(running, who), who)


def test_while_the_server_does_not_answer_only_the_one_it_answered_sees_a_list(
    served: World, up: OfferingServer
) -> None:
    running = served.running
    assert has_own_alone(answers(running, "bot"), "bot")
    up.down = True
    served.changed("team/docs", Kind.RESOURCES)
    assert McpClient(running, who="twin").error("resources/list")[1] == -32603
    assert McpClient(running, who="twin").error("resources/read", {"uri": "docs://of-bot"})[1] == -32603
    assert McpClient(running, who="twin").error("prompts/get", {"name": "of-bot"})[1] == -32603
    assert uris(running) == ["docs://of-bot", "docs://shared"]
    up.down = False
    served.changed("team/docs", Kind.RESOURCES)
    assert uris(running, who="twin") == ["docs://of-twin", "docs://shared"]


def test_callers_that_wait_for_a_slow_server_at_one_time_get_their_own(
    served: World, up: OfferingServer
) -> None:
    assert both_at_once(served.running, up) == [[f"docs://of-{who}", "docs://shared"] for who in TWO]


def both_at_once(running: RunningRegistry, up: OfferingServer, waiting: int = 2) -> list[list[str]]:
    """Lists shown to two callers who asked while the server held its first answer."""
    up.listing = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        asked = []
        for number, who in enumerate(TWO, 1):
            asked.append(pool.submit(uris, running, who=who))
            wait_until(lambda number=number: up.open >= min(number, waiting))  # type: ignore[misc]
        up.listing.set()
        return [each.result(20) for each in asked]


class Numbered(OfferingServer):
    """A server that is not told who calls, and lists a resource of another number each time."""

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        found = super()._result(method, params)
        if method == "resources/list":
            found["resources"] = [{"uri": f"docs://{len(self.of(method))}", "name": "n"}]
        return found


@pytest.fixture
def numbered(world: World) -> Iterator[Numbered]:
    with offering(Numbered(ttl_ms=300_000)) as up:
        world.serve(up, "docs", mcp={"url": up.url})
        grant(world)
        yield up


@pytest.mark.parametrize(
    ("scopes", "private"),
    [
        (("private",), True),
        (("public",), False),
        ((None,), True),
        (("user",), True),
        (("public", "private"), True),
        (("private", "public"), True),
        (("public", "public"), False),
    ],
)
def test_who_may_see_a_list_is_what_its_server_says_of_each_page(
    running: RunningRegistry, numbered: Numbered, scopes: tuple[str | None, ...], private: bool
) -> None:
    numbered.scopes = scopes
    one, other = (uris(running, who=who) for who in TWO)
    assert (set(one).isdisjoint(other), one == other) == (private, not private)
    assert [uris(running, who=who) for who in TWO] == [one, other], "each is kept"
    assert len(numbered.of("resources/list")) == len(scopes) * (2 if private else 1)


def test_who_waited_for_a_list_that_turns_out_private_reads_another(
    running: RunningRegistry, numbered: Numbered
) -> None:
    first, second = both_at_once(running, numbered, waiting=1)
    assert set(first).isdisjoint(second)


def test_a_list_that_becomes_private_or_public_is_shown_accordingly(
    running: RunningRegistry, world: World, numbered: Numbered
) -> None:
    for scope in ("public", "private", "public"):
        numbered.scopes = (scope,)
        world.changed("team/docs", Kind.RESOURCES)
        one, other = (uris(running, who=who) for who in TWO)
        assert (one == other) is (scope == "public")
