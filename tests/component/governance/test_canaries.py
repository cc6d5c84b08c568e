"""A tool on trial at a running registry: who gets the candidate, on every route, and what is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import decision_logs
from hash_embedder import HashEmbedder
from mcp_requests import ask
from published import account, on_trial, sides
from registry_harness import ISSUER, RunningRegistry, backend, binding, running_registry, tool
from stub_server import Answer, Asked, answering
from toolcrib.wire.canaries import CanaryCounts, SideCounts
from toolcrib.wire.publish import PublishedBinding, PublishedLimits, PublishedTool, ReplicaState

pytestmark = pytest.mark.guarantee

CHOSEN, OTHER = sides(issuer=ISSUER)
SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string"}},
    "required": ["q"],
    "additionalProperties": False,
}
OWN = tool("lookup", description="Finds a row by words.", scopes=("use",), input_schema=SCHEMA)
TRIED = on_trial(OWN, description="Searches invoices by number.", examples=["was invoice 7 paid?"])


def grants(*scopes: str, who: tuple[str, ...] = (CHOSEN, OTHER)) -> PublishedBinding:
    return binding("all", scopes or ("use",), subjects=tuple(account("team", name) for name in who))


def echo(asked: Asked) -> Answer:
    return Answer(json.dumps({"path": asked.path}).encode())


def told(r: RunningRegistry, who: str) -> dict[str, Any]:
    """What a caller reads of the tool, on every route that tells it."""
    auth = r.auth("team", who)

    def post(path: str, body: dict[str, Any]) -> Any:
        answer = r.http.post(r.url + path, headers=auth, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def get(path: str) -> Any:
        return r.http.get(r.url + path, headers=auth).json()

    listed = ask(r, "/mcp/direct", "tools/list", account=who).json()["result"]["tools"]
    searched = post("/v1/search", {"query": "lookup row invoice", "limit": 3})["tools"]
    found = {
        "discovery": get("/")["tools"],
        "list": get("/v1/tools")["tools"],
        "one": [get("/v1/tools/team/lookup")],
        "simple": [get("/tools/lookup")],
        "describe": [post("/v1/describe", {"tool": "lookup"})],
        "load": post("/v1/load", {"tools": ["lookup"]})["tools"],
        "mcp": listed,
    }
    assert [hit["tool_id"] for hit in searched] == ["team/lookup"]
    return {name: [t["description"] for t in tools] for name, tools in found.items()} | {
        "search": [searched[0]["short_desc"]]
    }


def counts(r: RunningRegistry) -> CanaryCounts:
    state = ReplicaState.model_validate(r.admin("GET", "/v1/admin/state").json())
    (found,) = state.canaries
    return found


def test_every_route_gives_a_caller_one_definition_the_candidate_or_the_tools_own() -> None:
    with running_registry([TRIED], [grants()]) as r:
        for who, text in ((CHOSEN, "Searches invoices by number."), (OTHER, "Finds a row by words.")):
            for route, texts in told(r, who).items():
                assert texts == [text], (who, route)


def test_search_finds_each_caller_the_definition_that_is_theirs_by_words_and_by_meaning() -> None:
    with running_registry([TRIED, tool("other", scopes=("use",))], [grants()], embedder=HashEmbedder()) as r:
        index = {"epoch": 1, "upsert": ["team/lookup", "team/lookup~candidate", "team/other"]}
        written = r.admin("POST", "/v1/admin/index", json=index).json()
        assert set(written["indexed"]) == {"team/lookup", "team/lookup~candidate", "team/other"}

        def best(who: str) -> dict[str, Any]:
            body = {"query": "was invoice 7 paid?", "limit": 1}
            answer = r.http.post(r.url + "/v1/search", headers=r.auth("team", who), json=body).json()
            assert answer["search_mode"] == "hybrid"
            return answer["tools"][0] if answer["tools"] else {}

        for _ in range(3):
            assert best(CHOSEN)["tool_id"] == "team/lookup"
            assert best(CHOSEN)["short_desc"] == "Searches invoices by number."
            assert best(OTHER).get("short_desc") != "Searches invoices by number."


def test_the_end_of_a_trial_gives_everyone_the_tools_own_definition() -> None:
    with running_registry([TRIED], [grants()]) as r:
        before = told(r, OTHER)
        assert told(r, CHOSEN) != before
        r.publish(tools=[OWN])
        assert told(r, CHOSEN) == told(r, OTHER) == before


def test_a_replacement_is_called_by_those_alone_who_may_use_both_tools() -> None:
    with answering(echo) as port:
        new = tool("lookup2", description="The new lookup.", scopes=("new",), backend=backend(port, "/new"))
        own = tool("lookup", description="The old one.", scopes=("use",), backend=backend(port, "/old"))
        chosen, _ = sides(issuer=ISSUER)
        tried = on_trial(own, replacement=new)

        def called(r: RunningRegistry, who: str) -> str:
            answer = r.http.post(r.url + "/tools/lookup", headers=r.auth("team", who), json={})
            assert answer.status_code == 200, answer.text
            return str(answer.json()["path"])

        both = binding("both", ("use", "new"), subjects=(account("team", chosen),))
        with running_registry([new, tried], [both, grants("use", who=(OTHER,))]) as r:
            assert (called(r, chosen), called(r, OTHER)) == ("/new", "/old")
        one = binding("both", ("use",), subjects=(account("team", chosen),))
        with running_registry([new, tried], [one]) as r:
            assert called(r, chosen) == "/old", "a trial never widens what a caller may use"
        denied = binding("no", ("new",), deny=("lookup2",), subjects=(account("team", chosen),))
        with running_registry([new, tried], [both, denied]) as r:
            assert called(r, chosen) == "/old"
        with running_registry(
            [new, tried], [binding("new", ("new",), subjects=(account("team", chosen),))]
        ) as r:
            answer = r.http.post(r.url + "/tools/lookup", headers=r.auth("team", chosen), json={})
            assert answer.status_code == 403, "the right to the replacement gives none to the tool"


@pytest.mark.parametrize("limit", ["per_minute", "per_day"])
@pytest.mark.parametrize("of_the_tool", [None, 100])
def test_a_call_of_a_replacement_is_charged_to_its_own_grant_too(limit: str, of_the_tool: int | None) -> None:
    with answering(echo) as port:
        new = tool("lookup2", description="The new lookup.", scopes=("new",), backend=backend(port, "/new"))
        own = tool("lookup", description="The old one.", scopes=("use",), backend=backend(port, "/old"))
        chosen, other = sides(issuer=ISSUER)
        everyone = (account("team", chosen), account("team", other))
        usual = None if of_the_tool is None else PublishedLimits(**{limit: of_the_tool})
        granted = [
            binding("use", ("use",), subjects=everyone, limits=usual),
            binding("new", ("new",), subjects=everyone, limits=PublishedLimits(**{limit: 2})),
        ]
        with running_registry([new, on_trial(own, replacement=new)], granted) as r:

            def statuses(who: str, name: str, times: int) -> list[int]:
                url, headers = f"{r.url}/tools/{name}", r.auth("team", who)
                return [r.http.post(url, headers=headers, json={}).status_code for _ in range(times)]

            assert statuses(chosen, "lookup", 3) == [200, 200, 429]
            assert statuses(chosen, "lookup2", 1) == [429], "both names count on one account"
            assert statuses(other, "lookup", 3) == [200, 200, 200]
            assert statuses(other, "lookup2", 3) == [200, 200, 429]


def test_a_grant_of_both_a_tool_and_its_replacement_is_charged_once() -> None:
    with answering(echo) as port:
        new = tool("lookup2", description="The new lookup.", scopes=("new",), backend=backend(port, "/new"))
        own = tool("lookup", description="The old one.", scopes=("use",), backend=backend(port, "/old"))
        chosen, _ = sides(issuer=ISSUER)
        both = binding(
            "both", ("use", "new"), subjects=(account("team", chosen),), limits=PublishedLimits(per_day=3)
        )
        with running_registry([new, on_trial(own, replacement=new)], [both]) as r:
            headers = r.auth("team", chosen)
            got = [
                r.http.post(f"{r.url}/tools/lookup", headers=headers, json={}).status_code for _ in range(4)
            ]
            assert got == [200, 200, 200, 429]


def test_a_replica_counts_what_each_side_selected_called_failed_and_corrected() -> None:
    with answering(echo) as port:
        made: PublishedTool = OWN.model_copy(update={"backend": backend(port, "/lookup")})
        tried = on_trial(made, description="Searches invoices by number.")
        with running_registry([tried], [grants()]) as r:

            def call(who: str, body: dict[str, Any]) -> int:
                return r.http.post(
                    r.url + "/tools/lookup", headers=r.auth("team", who), json=body
                ).status_code

            for who in (CHOSEN, OTHER, OTHER):
                r.http.post(r.url + "/v1/describe", headers=r.auth("team", who), json={"tool": "lookup"})
            assert [call(CHOSEN, {"wrong": 1}), call(CHOSEN, {"q": "a"}), call(CHOSEN, {"q": "a"})] == [
                400,
                200,
                200,
            ]
            assert call(OTHER, {"q": "a"}) == 200
            assert call("stranger", {"q": "a"}) == 403
            assert counts(r) == CanaryCounts(
                canary="uid:canary",
                stable=SideCounts(selected=2, called=1),
                candidate=SideCounts(selected=1, called=3, failed=1, corrected=1),
            )
            r.publish(tools=[made])
            state = ReplicaState.model_validate(r.admin("GET", "/v1/admin/state").json())
            assert state.canaries == (), "a trial that is over takes no room"


def test_limits_and_cancelled_calls_say_nothing_of_a_definition() -> None:
    none = binding("all", ("use",), subjects=(account("team", CHOSEN),), limits={"per_minute": 1})
    with answering(echo) as port:
        tried = on_trial(OWN.model_copy(update={"backend": backend(port, "/x")}), description="Other words.")
        with running_registry([tried], [none]) as r:
            for expected in (200, 429, 429):
                answer = r.http.post(r.url + "/tools/lookup", headers=r.auth("team", CHOSEN), json={"q": "a"})
                assert answer.status_code == expected
            assert counts(r).candidate == SideCounts(called=1)


def test_the_decision_log_tells_who_read_which_definition_and_is_decided_again(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    audit = {"path": str(path), "key_file": decision_logs.key_file(tmp_path)}
    with running_registry([TRIED], [grants()], audit=audit) as r:
        for who in (CHOSEN, OTHER):
            told(r, who)
    found = decision_logs.all_records(path)
    digests = {(f["subject"], f["digest"]) for f in found if f["action"] == "describe"}
    assert TRIED.candidate is not None
    assert digests == {
        (f"system:serviceaccount:team:{CHOSEN}", TRIED.candidate.tool.digest),
        (f"system:serviceaccount:team:{OTHER}", OWN.digest),
    }
    assert set(decision_logs.told(decision_logs.replayed(found))) == {"equal"}
