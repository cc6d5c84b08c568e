"""`/v1`: pages, definitions, search, and load, for exactly what the caller may see."""

from pathlib import Path
from typing import Any

import orjson
import pydantic
import pytest

import decision_logs
from registry_harness import binding, running_registry, tool

MANY = [tool(f"tool_{i:02}", scopes=("many:use",)) for i in range(25)]
GRANT = [binding("bot", ["many:use"])]


def test_pages_follow_each_other_and_a_cursor_ends_with_the_view() -> None:
    with running_registry([*MANY, tool("hidden")], GRANT) as r:
        headers = r.auth("team", "bot")
        found: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": "10", **({"cursor": cursor} if cursor else {})}
            page = r.http.get(r.url + "/v1/tools", headers=headers, params=query).json()
            found += [t["tool_id"] for t in page["tools"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        first = r.http.get(r.url + "/v1/tools", headers=headers, params={"limit": "10"})
        held = first.json()["next_cursor"]
        same = r.http.get(
            r.url + "/v1/tools?limit=10", headers={**headers, "If-None-Match": first.headers["etag"]}
        )
        r.publish([tool("another")])
        unaffected = r.http.get(r.url + "/v1/tools", headers=headers, params={"cursor": held})
        r.publish(remove_tools=["team/tool-03"])
        stale = r.http.get(r.url + "/v1/tools", headers=headers, params={"cursor": held})
        forged = r.http.get(r.url + "/v1/tools", headers=headers, params={"cursor": "e30"})

    assert found == sorted(t.tool_id for t in MANY)
    assert (same.status_code, same.content) == (304, b"")
    assert unaffected.status_code == 200
    assert (stale.status_code, stale.json()["code"]) == (409, "cursor_stale")
    assert (forged.status_code, forged.json()["code"]) == (400, "invalid_cursor")


def test_a_definition_never_carries_backend_address_or_credential() -> None:
    secretive = tool(
        "calculator",
        backend={
            "url": "https://inner.example/x",
            "auth": {"type": "Bearer", "secret": {"namespace": "team", "name": "vault-key", "key": "k"}},
        },
        examples=("add two numbers",),
    )
    with running_registry([secretive], [binding("bot")]) as r:
        headers = r.auth("team", "bot")
        listed = r.http.get(r.url + "/v1/tools", headers=headers)
        one = r.http.get(r.url + "/v1/tools/team/calculator", headers=headers)
        described = r.http.post(r.url + "/v1/describe", headers=headers, json={"tool": "calculator"})
        loaded = r.http.post(
            r.url + "/v1/load", headers=headers, json={"tools": ["calculator", "nope", "team/calculator"]}
        )

    for answer in (listed, one, described, loaded):
        assert answer.status_code == 200
        for word in ("inner.example", "vault-key", "backend", "uid-"):
            assert word not in answer.text
    assert described.json()["examples"] == ["add two numbers"]
    (definition,) = loaded.json()["tools"]
    assert definition["inputSchema"] == {"type": "object"}
    assert definition["_meta"]["toolcrib.dev/tool-id"] == "team/calculator"
    assert loaded.json()["errors"] == [
        {"tool": "nope", "code": "tool_not_found", "detail": "Tool 'nope' not found"}
    ]


def test_a_refusal_is_logged_with_the_entry_that_denies(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    denies = [
        binding("bot", (), name="names", deny=("calc*",)),
        binding("bot", (), name="scopes", deny_scopes=("vault:use",)),
    ]
    tools = [tool("calculator"), tool("safe", scopes=("calculator:use", "vault:use")), tool("other")]
    with running_registry(tools, [binding("bot"), *denies], decision_log=str(path)) as r:
        for name in ("calculator", "safe", "other"):
            r.http.post(r.url + "/v1/call", headers=r.auth("team", "bot"), json={"tool": f"team/{name}"})

    logged = {
        record.get("tool"): record
        for line in path.read_bytes().splitlines()
        if (record := orjson.loads(line))
    }
    assert logged["team/calculator"]["binding"]["rule"] == "tools.deny: calc*"
    assert logged["team/safe"]["binding"] == {
        "ref": "AgentScopeBinding team/scopes",
        "uid": "uid-team-scopes",
        "generation": 1,
        "rule": "tools.denyScopes: vault:use",
    }
    assert "rule" not in (logged["team/other"]["binding"] or {})


def test_search_finds_within_the_view_alone() -> None:
    tools = [
        tool("calculator", description="Compute an arithmetic expression.", tags=("math",)),
        tool("abacus", description="Compute an arithmetic expression by hand.", scopes=("hidden:use",)),
        tool("weather", description="Forecast rain and wind.", scopes=("calculator:use",)),
    ]
    with running_registry(tools, [binding("bot")]) as r:
        headers = r.auth("team", "bot")
        r.admin(
            "POST", "/v1/admin/index", json={"epoch": 1, "upsert": [t.tool_id for t in tools], "remove": []}
        )
        body = {"query": "arithmetic expression"}
        found = r.http.post(r.url + "/v1/search", headers=headers, json=body).json()
        by_tag = r.http.post(r.url + "/v1/search", headers=headers, json={"tags": ["MATH"]}).json()
        nothing = r.http.post(r.url + "/v1/search", headers=headers, json={"query": "zzzz"}).json()
        r.publish(remove_bindings=["uid-team-bot"])
        revoked = r.http.post(r.url + "/v1/search", headers=headers, json=body).json()
        metrics = r.metrics()

    assert [t["tool_id"] for t in found["tools"]] == ["team/calculator"]
    assert set(found["tools"][0]) == {"tool_id", "name", "short_desc", "server", "confidence", "why"}
    assert 0 < found["tools"][0]["confidence"] <= 1
    assert found["search_mode"] == "lexical"
    assert [t["name"] for t in by_tag["tools"]] == ["calculator"]
    assert nothing["tools"] == revoked["tools"] == []
    assert 'toolcrib_searches_empty_total{mode="lexical"} 2.0' in metrics


def test_every_decision_is_logged_with_what_decided_it_and_no_token(tmp_path: Path) -> None:
    path = tmp_path / "log" / "decisions.jsonl"
    with running_registry([tool("calculator")], [binding("bot")], decision_log=str(path)) as r:
        headers = r.auth("team", "bot")
        r.http.get(r.url, headers=headers)
        r.http.post(r.url + "/v1/search", headers=headers, json={"query": "x"})
        r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "calculator"})
        r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "hidden"})

    begin, listed, searched, called, refused, end = decision_logs.records(path)
    assert (begin["action"], end["action"]) == ("audit.begin", "audit.end")
    assert [r["seq"] for r in decision_logs.all_records(path)] == list(range(1, end["seq"] + 1))
    assert (listed["action"], listed["count"], listed["subject"]) == (
        "list",
        1,
        "system:serviceaccount:team:bot",
    )
    assert (searched["action"], searched["revision"]) == ("search", "1.1")
    assert called["binding"] == {
        "ref": "AgentScopeBinding team/bot",
        "uid": "uid-team-bot",
        "generation": 1,
    }
    assert (called["allowed"], called["reason"], called["outcome"]) == (True, "granted", "no_backend")
    assert called["digest"] == tool("calculator").digest
    assert (refused["allowed"], refused["reason"], refused["tool"]) == (False, "unknown_tool", "hidden")
    assert path.stat().st_mode & 0o777 == 0o600
    assert headers["Authorization"].split()[1].encode() not in path.read_bytes()


def test_the_first_request_waits_for_no_models_of_routes_to_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    make = pydantic.TypeAdapter.__init__
    made: list[Any] = []

    def noted(self: Any, kind: Any, **options: Any) -> None:
        made.append(kind)
        make(self, kind, **options)

    with running_registry([tool("calculator")], [binding("bot")]) as r:
        monkeypatch.setattr(pydantic.TypeAdapter, "__init__", noted)
        # a path that every route is asked for
        answers = [r.http.get(r.url + "/nothing"), r.admin("GET", "/nothing")]
        pydantic.TypeAdapter(dict[str, int])
    assert [a.status_code for a in answers] == [404, 404]
    assert made == [dict[str, int]]
