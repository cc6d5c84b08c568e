"""Resources and prompts that a caller may not have change nothing in any answer that it gets."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote

import pytest

from imported import toolserver
from mcp_client import HANDSHAKE, STATELESS, McpClient
from offering_server import OfferingServer, offering
from registry_harness import RunningRegistry, binding, running_registry
from suites import size
from toolcrib import publishing

pytestmark = pytest.mark.guarantee
WORLDS = size(quick=8, whole=25)
URIS = [f"docs://{name}" for name in ("a", "b", "c", "d")]
TEMPLATES = ["docs://pages/{n}", "docs://{name}"]
NAMES = ["review", "plan", "sum"]
NAMESPACES = ["team", "here", "there"]
SEED = 20261127


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    grants = [binding("bot", ("shown:use",), namespace=None)]
    with running_registry([], grants) as running:
        yield running


@pytest.fixture(scope="module")
def pool() -> Iterator[list[OfferingServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(offering(OfferingServer(name=f"s{n}"))) for n in range(5)]


def filled(up: OfferingServer, draw: random.Random) -> None:
    up.resources = [{"uri": uri, "name": f"{up.name} {uri}"} for uri in draw.sample(URIS, draw.randint(0, 3))]
    up.templates = [
        {"uriTemplate": t, "name": up.name} for t in draw.sample(TEMPLATES, draw.randint(0, len(TEMPLATES)))
    ]
    up.prompts = [{"name": n, "description": up.name} for n in draw.sample(NAMES, draw.randint(0, 2))]
    up.asked.clear()


def answers(r: RunningRegistry, places: list[tuple[str, str]]) -> list[str]:
    """What the caller is answered to every question that may lead to one of the servers."""
    forms = [f"toolcrib://{ns}/{name}/{quote(uri, safe='')}" for ns, name in places for uri in URIS]
    named = [f"{ns}__{name}-{prompt}" for ns, name in places for prompt in NAMES]
    found = []
    for version in (STATELESS, HANDSHAKE[-1]):
        client = McpClient(r, version)
        asked = [("resources/list", {}), ("resources/templates/list", {}), ("prompts/list", {})]
        asked += [("resources/read", {"uri": uri}) for uri in [*URIS, "docs://pages/1", *forms]]
        asked += [("prompts/get", {"name": name}) for name in [*NAMES, *named]]
        for name in NAMES:
            ref = {"type": "ref/prompt", "name": name}
            asked.append(("completion/complete", {"ref": ref, "argument": {"name": "x", "value": "y"}}))
        for uri in [*TEMPLATES, *URIS]:
            ref = {"type": "ref/resource", "uri": uri}
            asked.append(("completion/complete", {"ref": ref, "argument": {"name": "x", "value": "y"}}))
        found += [f"{method} {params}: {client.ask(method, params).text}" for method, params in asked]
        if version != STATELESS:
            found += [
                f"subscribe {uri}: {client.ask('resources/subscribe', {'uri': uri}).text}" for uri in URIS
            ]
    return found


@pytest.mark.property
@pytest.mark.parametrize("world", range(WORLDS))
def test_no_answer_depends_on_what_is_hidden(
    registry: RunningRegistry, pool: list[OfferingServer], world: int
) -> None:
    draw = random.Random(SEED + world)
    places = [(draw.choice(NAMESPACES), f"w{world}-{n}") for n in range(len(pool))]
    made, hidden = {}, draw.sample(range(len(pool)), draw.randint(1, len(pool)))
    for number, (up, (namespace, name)) in enumerate(zip(pool, places, strict=True)):
        filled(up, draw)
        scope = "hidden:use" if number in hidden else "shown:use"
        found = publishing.server(toolserver(name, up.url, namespace, defaults={"scopes": [scope]}), None)
        assert found is not None
        made[number] = found
    shown = [server for number, server in made.items() if number not in hidden]
    registry.publish(servers=shown)
    before = answers(registry, places)
    registry.publish(servers=[made[number] for number in hidden])
    after = answers(registry, places)
    registry.publish(remove_servers=[server.server_id for server in made.values()])
    assert after == before
    assert not [asked for number in hidden for asked in pool[number].asked]
