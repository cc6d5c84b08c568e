"""Details that are easily lost: a stale policy, late revocations, quiet streams, addresses and media types."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from hash_embedder import HashEmbedder
from registry_harness import ManualClock, RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, answering
from toolcrib.names import RESERVED_TOOL_NAMES
from toolcrib.wire.publish import PublishedTool
from toolcrib_registry.compose import Registry
from toolcrib_registry.search.entry import Vector
from toolcrib_registry.watch import stream

WRITER = binding("writer", ["registry:write"], namespace=None)


class Remembering:
    """A registrar that notes what reached it."""

    def __init__(self) -> None:
        self.made: list[PublishedTool] = []

    def of(self, _: Registry) -> "Remembering":
        return self

    async def register(self, made: PublishedTool, _allowed: Callable[[], bool]) -> None:
        self.made.append(made)


def register(r: RunningRegistry, **change: Any) -> httpx.Response:
    body = {"name": "fx", "endpoint": "/fx", "scopes": ["fx:use"], "description": "Rates.", **change}
    return r.http.post(r.url + "/tools/register", headers=r.auth("team", "writer"), json=body)


def test_a_registration_by_a_policy_that_is_too_old_is_refused_until_a_leader_is_heard() -> None:
    clock, registrar = ManualClock(), Remembering()
    with running_registry(bindings=[WRITER], clock=clock, registrar=registrar.of, policy_max_age=900.0) as r:
        clock.advance(901)
        stale = register(r)
        reached = list(registrar.made)
        r.heartbeat()
        again = register(r)

    assert (stale.status_code, stale.json()["code"]) == (503, "policy_stale")
    assert stale.headers["retry-after"] == "10"
    assert reached == []
    assert again.status_code == 200
    assert [t.name for t in registrar.made] == ["fx"]


class Interrupted(HashEmbedder):
    """Before it answers a query it lets `between` happen, in a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Callable[[], object] = lambda: None

    async def embed_request(self, texts: Sequence[str]) -> Vector:
        await asyncio.to_thread(self.between)
        return await super().embed_request(texts)


def test_a_hit_that_is_revoked_while_the_index_is_asked_is_not_shown() -> None:
    embedder = Interrupted()
    tools = [tool("calculator", description="Sums."), tool("adder", description="Sums.")]
    grants = [binding("bot", name="kept"), binding("bot", ["adder:use"], name="lost")]
    with running_registry(tools, grants, embedder=embedder) as r:
        embedder.between = lambda: r.publish(remove_bindings=["uid-team-lost"])
        first = search(r, "sums at first")
        embedder.between = lambda: None
        later = search(r, "sums later")

    assert [t["tool_id"] for t in first["tools"]] == ["team/calculator"]
    assert [t["tool_id"] for t in later["tools"]] == ["team/calculator"]
    assert first["revision"] == later["revision"]


def test_both_tools_are_hits_where_nothing_is_revoked() -> None:
    tools = [tool("calculator", description="Sums."), tool("adder", description="Sums.")]
    grants = [binding("bot", name="kept"), binding("bot", ["adder:use"], name="lost")]
    with running_registry(tools, grants, embedder=Interrupted()) as r:
        found = search(r, "sums at first")

    assert {t["tool_id"] for t in found["tools"]} == {"team/calculator", "team/adder"}


def search(r: RunningRegistry, query: str) -> dict[str, Any]:
    answer = r.http.post(r.url + "/v1/search", headers=r.auth("team", "bot"), json={"query": query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_quiet_stream_is_kept_alive_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "KEEP_ALIVE", 0.05)
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        with r.http.stream("GET", r.url + "/v1/watch", headers=r.auth("team", "bot")) as response:
            lines = (line for line in response.iter_lines() if line)
            seen = [next(lines) for _ in range(5)]

    assert seen[1] == "event: snapshot"
    assert seen[3:] == [": keep-alive", ": keep-alive"]


@pytest.mark.parametrize("endpoint", ["/../admin", "/a/../../admin", "/a/..", "/..", "/fx?key=1", "/fx#part"])
def test_an_endpoint_that_leaves_its_path_is_not_registered(endpoint: str) -> None:
    registrar = Remembering()
    with running_registry(bindings=[WRITER], registrar=registrar.of) as r:
        refused = register(r, endpoint=endpoint, host="127.0.0.1", port=9)
        dots = register(r, endpoint="/a..b/...", host="127.0.0.1", port=9)

    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert refused.json()["detail"].startswith("endpoint: ")
    assert dots.status_code == 200
    assert [t.backend.url for t in registrar.made if t.backend] == ["http://127.0.0.1:9/a..b/..."]


def test_a_registry_does_not_take_itself_for_a_backend() -> None:
    """As the local mode sets it up: loopback is open, the registry's own port is not."""
    registrar = Remembering()
    own, other = 8765, 8766
    egress = {"loopback": True, "forbidden": (f"127.0.0.1:{own}", f"[::1]:{own}")}
    with running_registry(bindings=[WRITER], registrar=registrar.of, egress=egress) as r:
        refused = [register(r, host=h, port=own) for h in ("127.0.0.1", "::1", "[::ffff:127.0.0.1]")]
        taken = register(r, host="127.0.0.1", port=other)

    assert [(a.status_code, a.json()["code"]) for a in refused] == [(400, "egress_refused")] * 3
    assert "belongs to the registry" in refused[0].json()["detail"]
    assert taken.status_code == 200
    assert [t.backend.url for t in registrar.made if t.backend] == [f"http://127.0.0.1:{other}/fx"]


@pytest.fixture
def typed() -> Iterator[int]:
    """Answers `a,b` as whatever media type the path names."""
    with answering(lambda a: Answer(b"a,b", headers={"content-type": urlsplit(a.path).path[1:]})) as port:
        yield port


KINDS: Sequence[str] = ("text/csv", "text/javascript", "image/svg+xml", "application/octet-stream")


def test_text_of_any_media_type_comes_as_plain_text(typed: int) -> None:
    """A browser that is shown the answer must find nothing to run."""
    tools = [
        tool(f"t{i}", backend=backend(typed, f"/{kind}"), scopes=("calculator:use",))
        for i, kind in enumerate(KINDS)
    ]
    with running_registry(tools, [binding("bot")]) as r:
        headers = r.auth("team", "bot")
        answers = [r.http.post(f"{r.url}/tools/{t.name}", headers=headers, json={}) for t in tools]
        wrapped = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "t0"}).json()

    assert [(a.status_code, a.text) for a in answers] == [(200, "a,b")] * len(KINDS)
    assert {a.headers["content-type"] for a in answers} == {"text/plain; charset=utf-8"}
    assert (wrapped["content_type"], wrapped["result"]) == ("text/csv", "a,b")


def test_a_word_of_the_routes_cannot_be_registered_as_a_name() -> None:
    registrar = Remembering()
    with running_registry(bindings=[WRITER], registrar=registrar.of) as r:
        refused = [register(r, name=name) for name in sorted(RESERVED_TOOL_NAMES)]
        beside = register(r, name="registered")

    for answer in refused:
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        assert "reserved" in answer.json()["detail"]
    assert beside.status_code == 200
    assert [t.name for t in registrar.made] == ["registered"]
