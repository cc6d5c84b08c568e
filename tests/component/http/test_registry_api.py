"""`/v0.1/servers`: the caller's servers in the form of the MCP registry API, and nothing of anybody else's."""

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

import server_json
from registry_harness import RunningRegistry, binding, running_registry, tool

OWN = "dev.toolcrib/toolcrib"
TOOLS = (
    tool("read", server="files"),
    tool("write", server="files", scopes=("write:use",)),
    tool("fetch", server="Web.x_1"),
    tool("mail", server="mail"),
    tool("open", namespace="vault", server="files", scopes=("vault:open",)),
    tool("calculator"),
)
FILES, WEB, MAIL = "dev.toolcrib.team/files", "dev.toolcrib.team/Web.x_1", "dev.toolcrib.team/mail"


@pytest.fixture(scope="module")
def registry() -> Iterator[RunningRegistry]:
    with running_registry(
        TOOLS,
        [
            binding("bot", ("read:use", "fetch:use", "mail:use", "calculator:use")),
            binding("writer", ("read:use", "write:use")),
        ],
        public_url="https://crib.example",
    ) as r:
        yield r


def get(
    registry: RunningRegistry, path: str = "", account: str | None = "bot", **params: Any
) -> httpx.Response:
    headers = {} if account is None else registry.auth("team", account)
    headers |= params.pop("headers", {})
    return registry.http.get(f"{registry.url}/v0.1/servers{path}", headers=headers, params=params)


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    jsonschema.validate(answer.json(), server_json.PAGE, format_checker=jsonschema.FormatChecker())
    return [entry["server"]["name"] for entry in answer.json()["servers"]]


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_servers_of_visible_tools_and_toolcribs_own_are_listed(registry: RunningRegistry) -> None:
    assert names(get(registry)) == [WEB, FILES, MAIL, OWN]
    assert names(get(registry, account="writer")) == [FILES, OWN]
    assert names(get(registry, account="nobody")) == [OWN]


def test_the_example_of_the_published_form_is_valid_and_a_misspelt_field_is_not() -> None:
    """The test of the test."""
    server = {"name": "io.github.user/weather", "description": "Weather.", "version": "1.0.2"}
    jsonschema.validate(server, server_json.SERVER)
    for wrong in (
        {"name": "weather"},
        {"name": "a/b/c"},
        {"description": "x" * 101},
        {"version": "latest"},
        {"version": "^1.2.3"},
        {"remote": []},
        {"remotes": [{"type": "http", "url": "https://a.test"}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(server | wrong, server_json.SERVER)


def test_toolcribs_own_endpoints_are_what_a_client_connects_to(registry: RunningRegistry) -> None:
    (own,) = (e for e in get(registry).json()["servers"] if e["server"]["name"] == OWN)

    assert own["server"]["remotes"] == [
        {"type": "streamable-http", "url": "https://crib.example/mcp"},
        {"type": "streamable-http", "url": "https://crib.example/mcp/direct"},
    ]
    assert own["_meta"] == {
        "io.modelcontextprotocol.registry/official": {"status": "active", "isLatest": True}
    }


def test_pages_lead_from_one_to_the_next(registry: RunningRegistry) -> None:
    found, params = [], {"limit": 3}
    while True:
        answer = get(registry, **params)
        found.append(names(answer))
        metadata = answer.json()["metadata"]
        assert metadata["count"] == len(found[-1])
        if "nextCursor" not in metadata:
            break
        params = {"limit": 3, "cursor": metadata["nextCursor"]}

    assert found == [[WEB, FILES, MAIL], [OWN]]


def test_a_cursor_of_another_view_is_stale_and_junk_is_none(registry: RunningRegistry) -> None:
    cursor = get(registry, limit=1).json()["metadata"]["nextCursor"]

    assert problem(get(registry, account="writer", cursor=cursor)) == (409, "cursor_stale")
    assert problem(get(registry, cursor="x")) == (400, "invalid_cursor")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"search": "FILES"}, [FILES]),
        ({"search": "web.X"}, [WEB]),
        ({"search": "vault"}, []),
        ({"search": "*"}, []),
        ({"version": "latest"}, [WEB, FILES, MAIL, OWN]),
        ({"version": "9.9.9"}, []),
        ({"include_deleted": "true"}, [WEB, FILES, MAIL, OWN]),
        # nothing has a date: what might have changed is there
        ({"updated_since": "2099-01-01T00:00:00Z"}, [WEB, FILES, MAIL, OWN]),
    ],
)
def test_a_list_is_narrowed_by_name_and_version(
    registry: RunningRegistry, params: dict[str, str], expected: list[str]
) -> None:
    assert names(get(registry, **params)) == expected


@pytest.mark.parametrize(
    "params",
    [{"limit": "0"}, {"limit": "101"}, {"limit": "x"}, {"updated_since": "yesterday"}, {"search": "x" * 257}],
)
def test_parameters_are_checked(registry: RunningRegistry, params: dict[str, str]) -> None:
    assert problem(get(registry, **params)) == (400, "invalid_request")


@pytest.mark.parametrize("name", [FILES, FILES.replace("/", "%2F"), OWN, OWN.replace("/", "%2f")])
def test_one_server_is_found_by_name_with_its_slash_encoded_or_not(
    registry: RunningRegistry, name: str
) -> None:
    (only,) = names(get(registry, f"/{name}/versions"))
    latest = get(registry, f"/{name}/versions/latest")
    jsonschema.validate(latest.json(), server_json.ANSWER)
    version = latest.json()["server"]["version"]

    assert only == latest.json()["server"]["name"] == name.replace("%2F", "/").replace("%2f", "/")
    assert get(registry, f"/{name}/versions/{version}").content == latest.content
    assert names(get(registry, version=version)) == [only]


@pytest.mark.parametrize(
    "path",
    [
        "/dev.toolcrib.vault/files/versions",
        "/dev.toolcrib.vault/files/versions/latest",
        f"/{FILES}/versions/1.0.0",
    ],
)
def test_hidden_and_absent_answer_alike(registry: RunningRegistry, path: str) -> None:
    hidden, absent = get(registry, path), get(registry, "/dev.toolcrib.nowhere/nothing/versions")

    assert problem(hidden) == (404, "not_found")
    assert hidden.content == absent.content


def test_a_tool_that_comes_or_goes_out_of_sight_changes_nothing(registry: RunningRegistry) -> None:
    before = [get(registry), get(registry, f"/{FILES}/versions/latest")]
    registry.publish([tool("hidden", server="files", scopes=("other:use",))])
    after = [get(registry), get(registry, f"/{FILES}/versions/latest")]

    assert [(a.content, a.headers["etag"]) for a in before] == [(a.content, a.headers["etag"]) for a in after]
    assert b"hidden" not in after[0].content


@pytest.mark.parametrize("path", ["", f"/{FILES}/versions", f"/{FILES}/versions/latest"])
def test_what_a_client_has_already_is_not_sent_again(registry: RunningRegistry, path: str) -> None:
    first = get(registry, path)
    again = get(registry, path, headers={"If-None-Match": first.headers["etag"]})

    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "private, no-cache"
    assert first.headers["vary"] == "Authorization"


@pytest.mark.parametrize("path", ["", f"/{FILES}/versions", f"/{FILES}/versions/latest", "/x"])
def test_without_a_token_there_is_no_list_unless_it_is_switched_on(
    registry: RunningRegistry, path: str
) -> None:
    assert problem(get(registry, path, account=None)) == (401, "unauthenticated")


def test_anonymous_callers_list_where_that_is_switched_on() -> None:
    with running_registry(TOOLS, discovery={"anonymous": "list"}) as r:
        assert names(get(r, account=None)) == ["dev.toolcrib.team/Web.x_1", FILES, MAIL,
                                               "dev.toolcrib.vault/files", OWN]  # fmt: skip
        bad = get(r, account=None, headers={"Authorization": "Bearer x"})
        assert problem(bad) == (401, "invalid_token")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_is_read_only(registry: RunningRegistry, method: str) -> None:
    for path in ("", f"/{FILES}/versions", f"/{FILES}/versions/latest"):
        answer = registry.http.request(
            method, f"{registry.url}/v0.1/servers{path}", headers=registry.auth("team", "bot")
        )
        assert problem(answer) == (405, "method_not_allowed")


def test_lists_are_counted_and_recorded(registry: RunningRegistry) -> None:
    def count() -> float:
        lines = registry.metrics().splitlines()
        return sum(
            float(line.split()[-1])
            for line in lines
            if line.startswith("toolcrib_discoveries_total{") and 'route="/v0.1/servers"' in line
        )

    before = count()
    get(registry)
    get(registry, f"/{FILES}/versions/latest")

    assert count() == before + 2
