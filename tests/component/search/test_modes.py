"""`search_mode`, `min_score` and `why` over HTTP: what is answered, what is refused, the same in both stores."""

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from emptied import empty
from hash_embedder import HashEmbedder
from realparts.weaviate import Weaviate
from registry_harness import RunningRegistry, binding, running_registry, tool

VERBS, THINGS = ("read", "write", "list", "delete", "send"), ("file", "issue", "city", "invoice", "mail")
TOOLS = [
    tool(
        f"{VERBS[i % 5]}_{THINGS[i // 5 % 5]}_{i}",
        description=f"To {VERBS[i * 3 % 5]} any {THINGS[i % 5]}.",
        scopes=("s",),
        server=("github", "mailer", None)[i % 3],
        tags=("blue",) if i % 4 == 0 else (),
        namespace="other" if i % 7 == 0 else "team",
        state="Deprecated" if i % 11 == 0 else "Active",
    )
    for i in range(300)
]
CUT = binding("cut", ["s"], namespace=None, deny=("delete_*", "*7"))
"""More than 200 tools are left, and no filter of a store can tell which."""


NONSENSE = "xyzzy plugh"


@contextlib.contextmanager
def indexed(**settings: Any) -> Iterator[RunningRegistry]:
    """A registry with all tools in its index."""
    with running_registry(TOOLS, [CUT], embedder=HashEmbedder(32), patient=True, **settings) as r:
        for start in range(0, len(TOOLS), 150):
            ids = [t.tool_id for t in TOOLS[start : start + 150]]
            body = {"epoch": 1, "upsert": ids}
            assert len(r.admin("POST", "/v1/admin/index", json=body, timeout=60).json()["indexed"]) == len(
                ids
            )
        yield r
        r.on_loop(lambda: empty(r.registry.store))


@pytest.fixture(scope="module")
def embedded() -> Iterator[RunningRegistry]:
    with indexed() as r:
        yield r


def ask(r: RunningRegistry, **body: Any) -> Any:
    """What is answered, without the revision."""
    found = r.http.post(r.url + "/v1/search", headers=r.auth("team", "cut"), json=body)
    assert found.status_code == 200, found.text
    return {k: v for k, v in found.json().items() if k != "revision"}


def test_each_mode_is_answered_and_named(embedded: RunningRegistry) -> None:
    answers = {
        m: ask(embedded, query="read a file", search_mode=m) for m in ("hybrid", "lexical", "dense", "compat")
    }
    default = ask(embedded, query="read a file")
    tags = ask(embedded, tags=["BLUE"], search_mode="dense", limit=3)

    assert {m: a["search_mode"] for m, a in answers.items()} == {m: m for m in answers}
    assert default == answers["hybrid"]
    assert all(not a["degraded"] and "degradation" not in a for a in answers.values())
    assert all(0 <= hit["confidence"] <= 1 and hit["why"] for a in answers.values() for hit in a["tools"])
    assert all(("score" in hit) == (m == "compat") for m, a in answers.items() for hit in a["tools"])
    loud = ask(embedded, query="read the issue on github, read the issue", search_mode="compat", limit=100)
    assert all(0 <= hit["score"] <= 1 for hit in loud["tools"])
    assert loud["tools"][0]["score"] == 1
    assert tags["search_mode"] == "filter"
    assert [set(hit) for hit in tags["tools"]] == [{"tool_id", "name", "short_desc", "server", "why"}] * 3


def test_each_wish_of_a_request_narrows_the_answer_over_http(embedded: RunningRegistry) -> None:
    def found(**wish: Any) -> dict[str, float]:
        told = ask(embedded, query="read the issue on github", limit=100, **{"min_score": 0, **wish})["tools"]
        return {hit["tool_id"]: hit["confidence"] for hit in told}

    every, tool_of = found(), {t.tool_id: t for t in TOOLS}
    middle = sorted(every.values())[50]
    sure = found(min_score=middle)
    best = found(top_k_servers=1)

    assert (len(every), {tool_of[i].state for i in every}) == (100, {"Active", "Deprecated"})
    assert {i.split("/")[0] for i in every} == {"team", "other"}
    assert {i.split("/")[0] for i in found(namespaces=["OTHER"])} == {"other"}
    assert {tool_of[i].state for i in found(states=["Deprecated"])} == {"Deprecated"}
    assert {tool_of[i].server for i in found(servers=["mailer"])} == {"mailer"}
    assert all("blue" in tool_of[i].tags for i in found(tags=["Blue"]))
    assert sure == {i: c for i, c in every.items() if c >= middle}
    assert len({(tool_of[i].namespace, tool_of[i].server) for i in best}) == 1
    assert 0 < len(sure) < len(every)
    assert 0 < len(best) < len(every)


def test_where_nothing_fits_nothing_is_answered_over_http_unless_all_is_asked_for(
    embedded: RunningRegistry,
) -> None:
    few: dict[str, Any] = {"query": NONSENSE, "namespaces": ["other"], "states": ["Deprecated"]}

    assert ask(embedded, **few)["tools"] == []
    assert max(hit["confidence"] for hit in ask(embedded, **few, min_score=0)["tools"]) < 0.01
    assert ask(embedded, **few, search_mode="compat")["tools"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"search_mode": "semantic"}, "'hybrid', 'lexical', 'dense' or 'compat'"),
        ({"min_score": 1.5}, "less than or equal to 1"),
        ({"min_score": -1}, "greater than or equal to 0"),
        ({"states": ["Disabled"]}, "'Active' or 'Deprecated'"),
        ({"namespaces": ["n"] * 33}, "at most 32 items"),
        ({"searchmode": "dense"}, "unknown field; did you mean search_mode?"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_do(
    embedded: RunningRegistry, body: dict[str, Any], said: str
) -> None:
    answer = embedded.http.post(
        embedded.url + "/v1/search", headers=embedded.auth("team", "cut"), json={"query": "x", **body}
    )

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert said in answer.json()["detail"]


def test_a_mode_without_an_embedder_is_refused_with_what_would_do() -> None:
    with running_registry(TOOLS[:3], [CUT]) as r:
        for mode in ("dense", "compat"):
            body = {"query": "x", "search_mode": mode}
            answer = r.http.post(r.url + "/v1/search", headers=r.auth("team", "cut"), json=body)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
            assert answer.json()["errors"] == [
                {
                    "field": "body.search_mode",
                    "message": f"The mode {mode} needs an embedder, and this registry has none. Use lexical or hybrid.",
                }
            ]


@pytest.mark.real
def test_both_stores_give_the_same_answers_in_every_mode(
    embedded: RunningRegistry, weaviate_server: Weaviate
) -> None:
    place = {
        "kind": "weaviate",
        "host": "127.0.0.1",
        "http_port": weaviate_server.http_port,
        "grpc_port": weaviate_server.grpc_port,
        "collection_prefix": f"Modes{secrets.token_hex(4)}",
    }
    asked: list[dict[str, Any]] = [
        {"query": query, "search_mode": mode, "limit": 20, "min_score": 0, **more}
        for mode in ("compat", "dense", "hybrid", "lexical")
        for query in ("read the issue on github", "send the invoice by mail, then list any city of the file")
        for more in ({}, {"tags": ["blue"]}, {"top_k_servers": 1})
    ]
    asked.append({"query": "list any city", "search_mode": "compat", "limit": 5, "min_score": 0.9})
    with indexed(store=place) as other:
        for body in asked:
            ours, theirs = ask(embedded, **body), ask(other, **body)
            assert ours["tools"], body
            assert [h.pop("score", 0.0) for h in theirs["tools"]] == pytest.approx(
                [h.pop("score", 0.0) for h in ours["tools"]], abs=1e-5
            ), body
            assert [h.pop("confidence") for h in theirs["tools"]] == pytest.approx(
                [h.pop("confidence") for h in ours["tools"]], abs=2e-4
            ), body
            assert theirs == ours, body
