"""Arguments that a tool's author placed: what a backend receives, and what is refused before anything is sent."""

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

from evil_upstream import Request, response, upstream
from placed_arguments import OVERRIDING
from published import bot
from published import tool as published_tool
from toolcrib.resources.backends import AuthType, Method
from toolcrib.resources.placing import BodyKind, ParameterPlace
from toolcrib.wire.backends import PublishedAuth, PublishedBackend, PublishedParameter, SecretReference
from toolcrib.wire.publish import Credential, Credentials, PublishedTool
from toolcrib_registry.adapters.outbound.http import OutboundHttp
from toolcrib_registry.calls.arguments import CheckedArguments, serialised
from toolcrib_registry.calls.backends.http import request
from toolcrib_registry.calls.backends.http.backend import HttpBackend
from toolcrib_registry.calls.backends.http.placed import MAX_FORM, filled
from toolcrib_registry.calls.backends.http.request import fill
from toolcrib_registry.calls.credentials import CredentialStore
from toolcrib_registry.calls.errors import InvalidArguments, NoBackend
from toolcrib_registry.outbound.guard import EgressPolicy

pytestmark = pytest.mark.anyio
PATH, QUERY, HEADER = ParameterPlace.PATH, ParameterPlace.QUERY, ParameterPlace.HEADER
LIMIT = 8_192


def at(place: ParameterPlace, argument: str, name: str | None = None) -> PublishedParameter:
    return PublishedParameter(argument=argument, place=place, name=name or argument)


def backend(*parameters: PublishedParameter, **fields: Any) -> PublishedBackend:
    return PublishedBackend(
        service_namespace="heist", service_name="files", service_port=80, parameters=parameters or None, **fields
    )  # fmt: skip


def tool(
    *parameters: PublishedParameter, hints: dict[str, bool] | None = None, **fields: Any
) -> PublishedTool:
    return published_tool("heist/reader", annotations=hints or {}, backend=backend(*parameters, **fields))


def given(arguments: dict[str, Any]) -> CheckedArguments:
    return CheckedArguments(arguments, serialised(arguments))


async def sent(
    one: PublishedTool, arguments: dict[str, Any], credentials: CredentialStore | None = None
) -> Request:
    async with upstream(lambda _: response(b"{}")) as up:
        policy = EgressPolicy(backends={"heist/files": f"127.0.0.1:{up.port}"})
        async with OutboundHttp(policy) as outbound:
            caller = HttpBackend(outbound, credentials or CredentialStore(), policy)
            await caller.call(one, given(arguments), "req-1", bot())
        return up.requests[0]


async def test_each_argument_goes_where_its_author_placed_it_and_the_others_into_the_body() -> None:
    one = tool(
        at(PATH, "id"), at(QUERY, "verbose"), at(HEADER, "version", "X-Api-Version"), at(QUERY, "name_in_query", "name"),
        path="/items/{id}", method=Method.PATCH,
    )  # fmt: skip

    request = await sent(
        one,
        {
            "id": "a b",
            "verbose": True,
            "version": "2022-11",
            "name_in_query": "x",
            "name": "y",
            "tags": ["z"],
        },
    )

    assert (
        request.target == "/items/a%20b?verbose=true&name=x"
        or request.target == "/items/a%20b?name=x&verbose=true"
    )
    assert request.headers["x-api-version"] == "2022-11"
    assert json.loads(request.body) == {"name": "y", "tags": ["z"]}


async def test_an_argument_fills_a_placeholder_of_another_name() -> None:
    one = tool(at(PATH, "which", "id"), path="/items/{id}")

    request = await sent(one, {"which": "7", "id": "in the body"})

    assert (request.target, json.loads(request.body)) == ("/items/7", {"id": "in the body"})


async def test_a_list_in_the_query_repeats_the_name_and_an_object_has_brackets() -> None:
    one = tool(at(QUERY, "ids", "id[]"), at(QUERY, "created"), method=Method.GET, path="/x")

    request = await sent(one, {"ids": ["a", 2], "created": {"gte": 1, "a&b": False, "no": None}})

    assert sorted(parse_qsl(request.target.partition("?")[2])) == [
        ("created[a&b]", "false"), ("created[gte]", "1"), ("id[]", "2"), ("id[]", "a"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        (BodyKind.FORM, [("a", "1"), ("b", "x"), ("b", "y"), ("c[d]", "true"), ("e[0][f]", "ö&")]),
        (BodyKind.DEEP_FORM, [("a", "1"), ("b[0]", "x"), ("b[1]", "y"), ("c[d]", "true"), ("e[0][f]", "ö&")]),
    ],
)
async def test_a_form_carries_lists_and_objects(body: BodyKind, pairs: list[tuple[str, str]]) -> None:
    request = await sent(
        tool(body=body), {"a": 1, "b": ["x", "y"], "c": {"d": True}, "e": [{"f": "ö&"}], "g": None, "h": []}
    )

    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qsl(request.body.decode()) == pairs


async def test_a_delete_may_have_a_body_and_a_post_none() -> None:
    deleted = await sent(tool(body=BodyKind.JSON, method=Method.DELETE), {"a": 1})
    posted = await sent(tool(body=BodyKind.NONE), {"a": 1})
    empty = await sent(tool(body=BodyKind.FORM), {})

    assert json.loads(deleted.body) == {"a": 1}
    assert (posted.target, posted.body, "content-type" in posted.headers) == ("/?a=1", b"", False)
    assert (empty.body, "content-type" in empty.headers) == (b"", False)


@pytest.mark.parametrize("value", ["a/b", "..", "", "a\\b", "a\nb", None, ["a"], {"a": "b"}])
async def test_a_path_value_stays_one_segment_wherever_its_argument_comes_from(value: Any) -> None:
    made = backend(at(PATH, "which", "id"), path="/items/{id}")

    with pytest.raises(InvalidArguments) as refused:
        filled(made, made.path, given({"which": value}), limit=LIMIT)

    assert refused.value.extra["errors"][0]["pointer"] == "/which"


@pytest.mark.parametrize(
    "value",
    [
        "a\r\nX-Evil: 1",
        "a\nb",
        "a\x00",
        "\x7f",
        "a\tb",
        "größe",
        "\u2028",
        " a",
        "a ",
        "x" * 4_097,
        ["a"],
        {"a": "b"},
    ],
)
async def test_a_header_value_holds_no_control_character_and_nothing_that_readers_read_differently(
    value: Any,
) -> None:
    made = backend(at(HEADER, "a", "X-A"))

    with pytest.raises(InvalidArguments) as refused:
        filled(made, made.path, given({"a": value}), limit=LIMIT)

    assert refused.value.extra["errors"][0]["pointer"] == "/a"


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "Authorization",
        "Cookie",
        "Proxy-Authorization",
        "Content-Length",
        "Toolcrib-Assertion",
        "Idempotency-Key",
        "X-Forwarded-For",
        "Forwarded",
        "Impersonate-User",
        "Proxy",
        "X_Remote_User",
        *OVERRIDING,
    ],
)
async def test_no_argument_fills_a_header_of_the_connection_or_a_credential_whatever_was_published(
    name: str,
) -> None:
    made = backend(at(HEADER, "a", name))

    with pytest.raises(NoBackend):
        filled(made, made.path, given({"a": "x"}), limit=LIMIT)


async def test_no_argument_fills_the_header_of_the_credential_whatever_was_published() -> None:
    reference = SecretReference(namespace="heist", name="key", key="token")
    store = CredentialStore()
    one = Credential(namespace="heist", name="key", key="token", hosts=("files",), value="s3cret")
    store.replace(Credentials(epoch=1, credentials=(one,)))
    auth = PublishedAuth(type=AuthType.HEADER, header="X-Key", secret=reference)

    with pytest.raises(NoBackend):
        await sent(tool(at(HEADER, "a", "x-key"), auth=auth), {"a": "mine"}, store)


@pytest.mark.parametrize("argument", ["v", "V", "v[a]", "v.b"])
async def test_no_argument_adds_a_value_to_a_parameter_that_the_author_set(argument: str) -> None:
    for made in (backend(at(QUERY, argument)), backend(body=BodyKind.NONE)):
        fixed = "/x?v=1&v_b=2"
        with pytest.raises(InvalidArguments, match="the tool sets this query parameter"):
            filled(made, fixed, given({argument: "2"}), limit=LIMIT)


async def test_no_argument_without_a_place_adds_a_value_to_a_parameter_that_another_fills() -> None:
    made = backend(at(QUERY, "limit", "per_page"), method=Method.GET)

    with pytest.raises(InvalidArguments, match="the tool sets this query parameter"):
        filled(made, "/x", given({"limit": 1, "per_page": 100}), limit=LIMIT)


async def test_a_form_is_bounded_though_names_of_nested_values_repeat() -> None:
    made = backend(body=BodyKind.FORM)
    nested = {"x" * 10_000: dict.fromkeys(map(str, range(MAX_FORM // 10_000 + 1)), "")}

    with pytest.raises(InvalidArguments, match="as a query or a form"):
        filled(made, made.path, given(nested), limit=LIMIT)


@pytest.mark.parametrize(
    ("made", "path", "arguments"),
    [
        (backend(body=BodyKind.NONE), "/x", {f"a{i}": {"k" * 500: [1] * 500} for i in range(20)}),
        (
            backend(*(at(QUERY, f"a{i}") for i in range(20))),
            "/x",
            {f"a{i}": {"k" * 500: [1] * 500} for i in range(20)},
        ),
        (backend(method=Method.GET), "/x", {"k" * 500: [1] * 500}),
        (backend(method=Method.GET), "/x/{id}", {"id": "\u65e5" * 70_000}),
        (backend(body=BodyKind.FORM), "/x", {"a": {"k" * 10_000: {str(i): {} for i in range(200)}}}),
    ],
)
async def test_what_no_request_can_hold_is_refused_before_it_is_encoded(
    made: PublishedBackend, path: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(request, "quote", lambda text, **_: written.append(text) or text)

    with pytest.raises(InvalidArguments):
        filled(made, path, given(arguments), limit=LIMIT)

    assert sum(map(len, written)) <= 2 * LIMIT


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("path", ["/", "/a/{id}", "/a?b=c", "/{id}/x?b=c"])
async def test_a_tool_that_places_nothing_is_called_as_ever(method: Method, path: str) -> None:
    checked = given({"id": "ä b", "list": [1, "x"], "no": None})
    made = filled(backend(method=method), path, checked, limit=LIMIT)

    assert (made.path, made.body) == fill(path, method, checked, limit=LIMIT)
    assert (made.headers, made.content_type) == ({}, "application/json")
