"""The simple discovery protocol, on the real app and a real port."""

import socket

import httpx
import pytest

from registry_harness import ISSUER, binding, mint, running_registry, tool
from toolcrib.identity import Issuer, ScopesPolicy

KEYS = {"name", "endpoint", "scopes", "description", "parameters", "returns", "host", "port"}
TOP = {
    "service",
    "version",
    "protocol",
    "authenticated",
    "scopes",
    "total_available",
    "total_registered",
    "tools",
}
SCHEMA = {
    "type": "object",
    "properties": {
        "expression": {"type": "string", "description": "What to compute."},
        "digits": {"type": ["integer", "null"]},
        "odd": True,
    },
    "required": ["expression"],
}


def test_a_caller_discovers_exactly_its_tools_with_exactly_eight_keys() -> None:
    tools = [tool("calculator", input_schema=SCHEMA, returns="A number."), tool("secret_tool")]
    with running_registry(tools, [binding("bot")], public_host="crib.example", public_port=443) as r:
        answer = r.http.get(r.url, headers=r.auth("team", "bot"))
        slash = r.http.get(r.url + "/", headers=r.auth("team", "bot"))

    body = answer.json()
    assert answer.status_code == 200
    assert set(body) == TOP
    assert body == slash.json()
    assert (body["protocol"], body["authenticated"], body["scopes"]) == ("MCP", True, ["calculator:use"])
    assert (body["total_available"], body["total_registered"]) == (1, 1)
    (entry,) = body["tools"]
    assert set(entry) == KEYS
    assert (entry["endpoint"], entry["host"], entry["port"]) == ("/tools/calculator", "crib.example", 443)
    assert entry["returns"] == "A number."
    assert entry["parameters"] == {
        "expression": {"type": "string", "description": "What to compute.", "required": True},
        "digits": {"type": "integer", "description": "", "required": False},
        "odd": {"type": "any", "description": "", "required": False},
    }


def test_without_a_token_or_with_a_bad_one_there_is_nothing() -> None:
    with running_registry([tool("calculator")], [binding("bot")], discovery={"totals": "all"}) as r:
        answers = [
            r.http.get(r.url),
            r.http.get(r.url, headers={"Authorization": "Bearer nonsense"}),
            r.http.get(r.url, headers={"Authorization": "Basic Ym90Og=="}),
            r.http.get(r.url, headers=r.auth("team", "bot", ttl=-1)),
            r.http.get(r.url, headers=r.auth("team", "bot", aud="elsewhere")),
        ]

    for answer in answers:
        assert answer.status_code == 200
        body = answer.json()
        assert (body["authenticated"], body["tools"], body["total_registered"]) == (False, [], 0)


def test_the_total_is_a_switch() -> None:
    tools = [tool("calculator"), tool("secret_tool"), tool("off", state="Disabled")]
    with running_registry(tools, [binding("bot")], discovery={"totals": "all"}) as r:
        assert r.http.get(r.url, headers=r.auth("team", "bot")).json()["total_registered"] == 2
        assert r.http.get(r.url, headers=r.auth("team", "bot")).json()["total_available"] == 1


def test_anonymous_discovery_lists_but_a_bad_token_is_not_anonymous() -> None:
    with running_registry([tool("calculator")], discovery={"anonymous": "list"}) as r:
        open_list = r.http.get(r.url).json()
        bad = r.http.get(r.url, headers={"Authorization": "Bearer nonsense"}).json()
        page = r.http.get(r.url + "/v1/tools")
        call = r.http.post(r.url + "/tools/calculator", json={})

    assert [t["name"] for t in open_list["tools"]] == ["calculator"]
    assert open_list["authenticated"] is False
    assert bad["tools"] == []
    assert [t["tool_id"] for t in page.json()["tools"]] == ["team/calculator"]
    assert call.status_code == 401


def test_an_unchanged_list_is_not_sent_again_and_a_revoke_is_seen_at_once() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        headers = r.auth("team", "bot")
        first = r.http.get(r.url, headers=headers)
        etag = first.headers["etag"]
        same = r.http.get(r.url, headers={**headers, "If-None-Match": f'W/"other", {etag}'})
        head = r.http.head(r.url, headers=headers)
        r.publish(remove_bindings=["uid-team-bot"])
        revoked = r.http.get(r.url, headers={**headers, "If-None-Match": etag})

    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(first.content))
    assert first.headers["cache-control"] == "private, no-cache"
    assert first.headers["vary"] == "Authorization"
    assert (revoked.status_code, revoked.json()["tools"]) == (200, [])


def test_what_a_caller_receives_does_not_depend_on_hidden_tools() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        headers = r.auth("team", "bot")
        paths = ("/", "/v1/tools", "/stats", "/tools/hidden", "/v1/tools/team/hidden")
        before = [r.http.get(r.url + p, headers=headers) for p in paths]
        denied = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "hidden"})
        r.publish([tool("hidden")])
        after = [r.http.get(r.url + p, headers=headers) for p in paths]
        unknown = r.http.post(r.url + "/v1/call", headers=headers, json={"tool": "hidden"})

    for old, new in zip(before, after, strict=True):
        assert (old.status_code, old.content) == (new.status_code, new.content)
        assert old.headers.get("etag") == new.headers.get("etag")
    assert (denied.status_code, denied.content) == (unknown.status_code, unknown.content)
    assert denied.status_code == 403
    assert before[3].json()["detail"] == "Tool 'hidden' not found"


def test_one_tool_has_the_eight_keys() -> None:
    with running_registry([tool("calculator")], [binding("bot")]) as r:
        listed = r.http.get(r.url, headers=r.auth("team", "bot")).json()["tools"][0]
        by_name = r.http.get(r.url + "/tools/calculator", headers=r.auth("team", "bot"))
        by_id = r.http.get(r.url + "/tools/team/calculator", headers=r.auth("team", "bot"))
        missing = r.http.get(r.url + "/tools/calculator")

    assert by_name.json() == by_id.json() == listed
    assert missing.status_code == 404
    assert missing.json()["detail"] == "Tool 'calculator' not found"


@pytest.mark.parametrize("name", ["register", "..", "."])
def test_a_name_that_no_path_can_carry_is_called_by_id(name: str) -> None:
    odd = tool(name, object_name="odd", scopes=("odd:use",))
    with running_registry([odd], [binding("bot", ["odd:use"])]) as r:
        (entry,) = r.http.get(r.url, headers=r.auth("team", "bot")).json()["tools"]

    assert (entry["name"], entry["endpoint"]) == (name, "/tools/team/odd")


def test_names_shared_by_visible_tools_are_ambiguous_and_listed_by_id() -> None:
    tools = [tool("shared", namespace=n, scopes=("s",)) for n in ("red", "blue")]
    grants = [binding("bot", ["s"], namespace=n) for n in ("red", "blue")]
    with running_registry(tools, grants) as r:
        headers = r.auth("team", "bot")
        listed = r.http.get(r.url, headers=headers).json()["tools"]
        get = r.http.get(r.url + "/tools/shared", headers=headers)
        call = r.http.post(r.url + "/tools/shared", headers=headers, json={})
        load = r.http.post(r.url + "/v1/load", headers=headers, json={"tools": ["shared", "blue/shared"]})

    assert [t["name"] for t in listed] == ["blue/shared", "red/shared"]
    assert [t["endpoint"] for t in listed] == ["/tools/blue/shared", "/tools/red/shared"]
    for answer in (get, call):
        assert (answer.status_code, answer.json()["code"]) == (409, "ambiguous_name")
        assert answer.json()["tool_ids"] == ["blue/shared", "red/shared"]
    assert [t["name"] for t in load.json()["tools"]] == ["blue/shared"]
    assert load.json()["errors"][0]["tool_ids"] == ["blue/shared", "red/shared"]


def test_server_and_name_are_accepted_wherever_a_tool_is_named() -> None:
    tools = [
        tool("read", namespace=n, server=s, object_name=f"{s}-read", scopes=("s",))
        for n, s in (("red", "files"), ("blue", "web"), ("red", "web"))
    ]
    grants = [binding("bot", ["s"], namespace=n) for n in ("red", "blue")]
    with running_registry(tools, grants) as r:
        headers = r.auth("team", "bot")

        def answers(name: str) -> list[httpx.Response]:
            return [
                r.http.get(f"{r.url}/tools/{name}", headers=headers),
                r.http.post(r.url + "/v1/describe", headers=headers, json={"tool": name}),
            ]

        described, shared, hidden = answers("files:read"), answers("web:read"), answers("vault:read")
        load = r.http.post(
            r.url + "/v1/load", headers=headers, json={"tools": ["files:read", "web:read", "vault:read"]}
        )

    assert [a.status_code for a in described] == [200, 200]
    assert {(a.status_code, a.json()["code"]) for a in shared} == {(409, "ambiguous_name")}
    assert {(a.status_code, a.json()["code"]) for a in hidden} == {(404, "tool_not_found")}
    assert [t["_meta"]["toolcrib.dev/tool-id"] for t in load.json()["tools"]] == ["red/files-read"]
    assert [e["code"] for e in load.json()["errors"]] == ["ambiguous_name", "tool_not_found"]


@pytest.mark.parametrize(
    "name",
    ["calculator", "heist.calculator", "heist__calculator", "heist.web.calculator", "heist.object"],
)
def test_a_tool_that_is_named_like_another_never_gets_the_calls_of_it(name: str) -> None:
    """An editor of `evil` creates a tool `calculator`, and one named as the other one was listed before."""
    real = tool("calculator", namespace="heist", object_name="object", server="web", scopes=("s",))
    everywhere = binding("everything", ["s"], namespace=None, subjects=binding("bot").subjects)
    own = binding("bot", ["s"], namespace="heist")
    evil = [
        tool(n, namespace="evil", object_name=f"o{i}", scopes=("s",))
        for i, n in enumerate(("calculator", name))
        if i == 0 or n != "calculator"
    ]
    with running_registry([real], [own, everywhere]) as r:
        headers = r.auth("team", "bot")
        before = r.http.get(r.url, headers=headers).json()["tools"]
        r.publish(evil)
        after = {t["name"]: t["endpoint"] for t in r.http.get(r.url, headers=headers).json()["tools"]}
        still = r.http.get(r.url + "/v1/tools/heist/object", headers=headers).json()
        called = {
            said: r.http.post(r.url + "/v1/describe", headers=headers, json={"tool": said}).json()["tool_id"]
            for said in ("calculator", "heist/object", *after)
        }

    assert [t["name"] for t in before] == ["calculator"] == [still["name"]]
    assert called["calculator"] == called["heist/object"] == "heist/object"
    assert sum(tool_id == "heist/object" for tool_id in (called[n] for n in after)) == 1
    assert "heist.calculator" not in after or called["heist.calculator"] != "heist/object"


def test_statistics_count_the_view_and_for_registrars_the_whole_catalog() -> None:
    tools = [tool("calculator"), tool("secret_tool", scopes=("secret:use", "calculator:use2"))]
    writer = binding("writer", ["registry:write"], namespace=None)
    with running_registry(tools, [binding("bot"), writer]) as r:
        mine = r.http.get(r.url + "/stats", headers=r.auth("team", "bot")).json()
        whole = r.http.get(r.url + "/stats", headers=r.auth("team", "writer")).json()
        nobody = r.http.get(r.url + "/stats").json()

    assert mine == {
        "total_tools": 1,
        "tools_by_name": ["calculator"],
        "scope_usage": {"calculator:use": 1},
        "unique_scopes": 1,
    }
    assert (whole["total_tools"], whole["unique_scopes"]) == (2, 3)
    assert whole["tools_by_name"] == ["calculator", "secret_tool"]
    assert (nobody["total_tools"], nobody["tools_by_name"]) == (0, [])


def test_statistics_name_each_tool_as_discovery_lists_it() -> None:
    tools = [tool(n, namespace=p, scopes=("s",)) for n, p in (("calc", "a"), ("calc", "b"), ("reader", "b"))]
    # a grant over all namespaces names none of them: neither `calc` holds its name
    everywhere = binding("bot", ["s"], namespace=None)
    writer = binding("writer", ["registry:write"], namespace=None)
    with running_registry(tools, [everywhere, writer]) as r:
        mine, whole = (
            r.http.get(r.url + "/stats", headers=r.auth("team", who)).json()["tools_by_name"]
            for who in ("bot", "writer")
        )
        listed = [t["name"] for t in r.http.get(r.url, headers=r.auth("team", "bot")).json()["tools"]]

    assert mine == listed == ["a/calc", "b/calc", "reader"]
    assert whole == listed, "what a registrar counts beyond its view has its id where names are shared"


@pytest.mark.parametrize("path", ["/", "/v1/tools", "/stats", "/tools/calculator"])
def test_a_replica_without_a_snapshot_says_so_instead_of_taking_every_tool_away(path: str) -> None:
    with running_registry(publish=False) as r:
        answer = r.http.get(r.url + path, headers=r.auth("team", "bot"))
        nobody = r.http.get(r.url)
        r.publish([tool("calculator")], [binding("bot")])
        after = r.http.get(r.url + path, headers=r.auth("team", "bot"))

    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert answer.headers["retry-after"] == "1"
    assert (nobody.status_code, nobody.json()["tools"]) == (200, [])
    assert after.status_code == 200


def test_without_the_keys_of_an_issuer_nothing_is_said_of_its_tokens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        port = closed.getsockname()[1]
        away = Issuer(
            issuer="https://away.test", audience=("toolcrib",), jwks_uri=f"http://127.0.0.1:{port}/jwks"
        )
        own = Issuer(issuer=ISSUER, audience=("toolcrib",), scopes=ScopesPolicy.LOCAL, cluster=True)
        with running_registry([tool("calculator")], [binding("bot")], issuers=(own, away)) as r:
            unsure = {"Authorization": f"Bearer {mint('bot', iss=away.issuer)}"}
            for answer in (
                r.http.get(r.url + "/", headers=unsure),
                r.http.get(r.url + "/v1/tools", headers=unsure),
            ):
                assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
                assert answer.headers["retry-after"]
            assert r.http.get(r.url + "/health", headers=unsure).status_code == 200
            assert r.http.get(r.url + "/", headers=r.auth("team", "bot")).json()["total_available"] == 1
