"""`toolcrib import openapi`: what operations become, what is left out and why, and what hostile documents cannot do."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from openapi_documents import ID, SECRET, body, document, one, operation, schema, whole, why
from stub_server import Answer, answering
from toolcrib import resources
from toolcrib.schemas import safety
from toolcrib_cli import main as cli
from toolcrib_cli.errors import Exit
from toolcrib_cli.imports.openapi.documents import UnusableDocumentError
from toolcrib_cli.imports.openapi.importing import MAX_TOOLS


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"allOf": [{"type": "string"}], "nullable": True}, {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]}),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "integer", "maximum": 9, "exclusiveMaximum": True}, {"type": "integer", "exclusiveMaximum": 9}),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": False}, {"type": "integer", "minimum": 1}),
        ({"type": "string", "example": "b", "xml": {}, "x-a": 1}, {"type": "string", "examples": ["b"]}),
        ({"type": "string", "pattern": "(?=a)b"}, {"type": "string"}),
        ({"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "^a+$"}),
        ({"type": "file"}, {}),
        ({"type": "string", "description": "<p>The <b>name</b> of <owner></p>"}, {"type": "string", "description": "The name of <owner>"}),
        (
            {"type": "object", "required": ["b", "c"], "properties": {"b": {"readOnly": True}, "c": {}}},
            {"type": "object", "properties": {"c": {}}, "required": ["c"]},
        ),
    ],
)  # fmt: skip
def test_schemas_of_3_0_become_2020_12(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert schema(before) == after


def test_schemas_of_3_1_stay_as_they_are() -> None:
    given = {"type": ["string", "null"], "exclusiveMinimum": 3, "examples": ["a"], "const": "b"}

    assert schema(given, "3.1.0") == given


def test_references_lead_into_the_tools_own_schema_also_where_they_lead_back() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    spec = one(
        extra={"components": {"schemas": {"Node": node, "Unused": {}}}},
        **body({"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Node"}}}),
    )

    safety.check(spec["inputSchema"])
    assert spec["inputSchema"]["properties"]["a"] == {"$ref": "#/$defs/Node"}
    assert spec["inputSchema"]["$defs"] == {
        "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    }


@pytest.mark.parametrize(
    "reference", ["other.json#/a", "https://evil.example/schema", "file:///etc/passwd", "#a", "", 7, None]
)
def test_a_reference_out_of_the_document_leaves_the_operation_out_and_fetches_nothing(reference: Any) -> None:
    assert (
        why(**body({"type": "object", "properties": {"a": {"$ref": reference}}}))
        == "it refers to another document"
    )


def test_a_reference_that_leads_nowhere_or_in_a_circle_leaves_the_operation_out() -> None:
    circle = {
        "components": {
            "schemas": {"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}
        }
    }
    at = {"$ref": "#/components/schemas/A"}

    assert why(**body(at)) == "it has a reference that leads nowhere"
    assert why(extra=circle, **body(at)) == "its references lead in a circle"
    assert "leads back to itself" in why(extra=circle, **body({"type": "object", "properties": {"a": at}}))


def test_over_64_kib_nested_descriptions_go_first_and_then_the_operation() -> None:
    def large(names: int, text: str) -> dict[str, Any]:
        inner = {
            "type": "object",
            "properties": {f"n{i}": {"type": "string", "description": text} for i in range(names)},
        }
        return body({"type": "object", "properties": {"a": {"description": "kept", **inner}}})

    kept = one(**large(100, "x"))["inputSchema"]["properties"]["a"]
    bare = one(**large(100, "x" * 1_000))["inputSchema"]["properties"]["a"]

    assert kept["properties"]["n0"] == {"type": "string", "description": "x"}
    assert bare["properties"]["n0"] == {"type": "string"}
    assert bare["description"] == "kept"
    assert why(**large(9_000, "")) == "its schema is larger than 64 KiB, even without descriptions"


@pytest.mark.parametrize(
    "empty", [{"type": "object", "properties": {}}, {}, {"additionalProperties": False, "type": "object"}]
)
def test_an_empty_body_is_none(empty: dict[str, Any]) -> None:
    spec = one(**body(empty, "application/x-www-form-urlencoded"))

    assert spec["backend"]["http"]["body"] == "none"
    assert spec["inputSchema"] == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (body({"type": "object"}, "multipart/form-data"), "its body is multipart"),
        (body({"type": "object"}, "application/merge-patch+json"), "its body is a patch of another form than JSON fields"),
        (body({"type": "string"}, "text/plain"), "its body is text/plain"),
        (body({"type": "array", "items": {}}), "its body is not an object"),
        ({"parameters": [{"name": "a", "in": "cookie", "required": True}]}, "it needs a cookie"),
        ({"parameters": [{"name": "Host", "in": "header", "required": True}]},
         "it needs the header Host, which is reserved or overrides parts of the request"),
        ({"parameters": [{"name": "a", "in": "query", "required": True, "schema": {"type": "object"}}]}, "it has a parameter that is an object"),
        ({"x-kubernetes-action": "watch"}, "it watches: the answer has no end"),
        ({"responses": {"200": {"content": {"text/event-stream": {}}}}}, "it watches: the answer has no end"),
        ({"x-kubernetes-action": "connect"}, "it upgrades the connection"),
        ({"responses": {"101": {}}}, "it upgrades the connection"),
        ({"servers": [{"url": "/{unknown}"}]}, "it has a server of its own"),
        ({"summary": "hid\u200bden"}, "it holds hidden characters"),
        ({"parameters": ["x"]}, "a part of it is not an object"),
    ],
)  # fmt: skip
def test_what_no_tool_can_do_is_left_out_and_the_reason_said(given: dict[str, Any], reason: str) -> None:
    assert why(**given) == reason


@pytest.mark.parametrize("method", ["head", "options", "trace"])
def test_methods_that_no_tool_has_are_left_out(method: str) -> None:
    assert why(method) == f"its method is {method.upper()}"


def test_what_is_optional_and_cannot_be_sent_is_left_away() -> None:
    parameters = [
        {"name": "session", "in": "cookie"}, {"name": "Authorization", "in": "header", "required": True},
        {"name": "Cookie", "in": "header"}, {"name": "a", "in": "query", "schema": {"type": "object"}},
    ]  # fmt: skip

    assert one("get", parameters=parameters)["inputSchema"]["properties"] == {}


def test_an_argument_of_two_places_has_two_names() -> None:
    parameters = [
        ID,
        {"name": "id", "in": "query"},
        {"name": "If-Match", "in": "header", "schema": {"type": "string"}},
    ]
    spec = one(
        "put", "/x/{id}", parameters=parameters, **body({"type": "object", "properties": {"id": {}, "n": {}}})
    )

    assert spec["backend"]["http"]["parameters"] == [
        {"argument": "id_in_path", "in": "path", "name": "id"},
        {"argument": "id_in_query", "in": "query", "name": "id"},
        {"argument": "If-Match", "in": "header"},
    ]
    assert sorted(spec["inputSchema"]["properties"]) == ["If-Match", "id", "id_in_path", "id_in_query", "n"]
    assert spec["inputSchema"]["required"] == ["id_in_path"]


@pytest.mark.parametrize(
    ("fields", "sent_as", "kind"),
    [
        ({}, "a", "array"),
        ({"style": "deepObject"}, "a[]", "array"),
        ({"explode": False}, "a", "string"),
        ({"style": "pipeDelimited"}, "a", "string"),
    ],
)
def test_lists_in_a_query_are_sent_as_the_document_says(
    fields: dict[str, Any], sent_as: str, kind: str
) -> None:
    listed = {"name": "a", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}, **fields}
    spec = one("get", parameters=[listed, {"name": "b", "in": "header"}])

    placed = {p["argument"]: p.get("name", p["argument"]) for p in spec["backend"]["http"]["parameters"]}
    assert placed.get("a", "a") == sent_as
    assert spec["inputSchema"]["properties"]["a"]["type"] == kind


def test_alternatives_of_a_body_become_the_arguments_of_all() -> None:
    alternatives = [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        {"type": "array", "items": {}},
    ]
    made = one(**body({"oneOf": alternatives}))["inputSchema"]

    assert sorted(made["properties"]) == ["a", "b"]
    assert made["anyOf"] == [{"required": ["a"]}, {"required": ["b"]}]


def test_names_come_from_operation_ids_and_six_digits_where_two_meet() -> None:
    ids = ["issues/list", "Get  it!", "getUser", "GETUSER", "x" * 60, "register", None, "__a__"]
    paths = {f"/p{i}": {"get": operation(operationId=given)} for i, given in enumerate(ids)}

    names = [m["spec"]["name"] for m in whole(document(paths)).manifests]

    assert names[:2] == ["issues_list", "Get_it"]
    assert [n[:-6] for n in names[2:6]] == ["getUser-", "GETUSER-", "x" * 41 + "-", "register-"]
    assert names[6:] == ["get_p6", "a"]
    assert len({n.lower() for n in names}) == len(names)


def test_scopes_are_by_tag_or_by_the_first_segment_that_not_all_paths_share() -> None:
    paths = {
        "/v1/orders/{id}": {"get": operation(tags=["Order Items"]), "delete": operation()},
        "/v1/users": {"post": operation()},
    }
    found = {
        m["spec"]["backend"]["http"]["method"]: m["spec"]["scopes"]
        for m in whole(document(paths), name="shop").manifests
    }

    assert found == {
        "GET": ["shop:order-items:read"], "DELETE": ["shop:orders:write"], "POST": ["shop:users:write"],
    }  # fmt: skip


def test_a_title_cannot_make_scopes_of_the_registrys_own_powers() -> None:
    content = document({"/x": {"get": operation()}}, info={"title": "Registry"})

    assert whole(content).manifests[0]["spec"]["scopes"] == ["api-registry:x:read"]


@pytest.mark.parametrize(
    ("method", "hints"),
    [
        ("get", {"readOnlyHint": True, "idempotentHint": True}),
        ("put", {"readOnlyHint": False, "idempotentHint": True}),
        ("delete", {"readOnlyHint": False, "idempotentHint": True, "destructiveHint": True}),
        ("post", {"readOnlyHint": False}),
        ("patch", {"readOnlyHint": False}),
    ],
)
def test_hints_come_from_the_method(method: str, hints: dict[str, bool]) -> None:
    assert one(method)["annotations"] == hints


def test_examples_of_the_document_are_examples_of_the_schema() -> None:
    parameter = {**ID, "example": "r-1"}
    made = one("put", "/x/{id}", parameters=[parameter], **body(
        {"type": "object", "required": ["a"], "properties": {"a": {}}}, example={"a": 1, "unknown": 2}))["inputSchema"]  # fmt: skip

    assert made["examples"] == [{"id": "r-1", "a": 1}]


@pytest.mark.parametrize(
    ("schemes", "security", "auth"),
    [
        ({"a": {"type": "http", "scheme": "bearer"}}, [{"a": []}], {"type": "Bearer"}),
        ({"a": {"type": "http", "scheme": "basic"}}, [{"a": []}], {"type": "Basic"}),
        ({"a": {"type": "oauth2", "flows": {}}}, [{"a": ["x"]}], {"type": "Bearer"}),
        ({"a": {"type": "apiKey", "in": "header", "name": "X-Key"}}, [{"a": []}], {"type": "Header", "header": "X-Key"}),
        ({"a": {"type": "http", "scheme": "basic"}, "b": {"type": "http", "scheme": "bearer"}}, [{"a": []}, {"b": []}], {"type": "Bearer"}),
        ({"a": {"type": "apiKey", "in": "query", "name": "key"}}, [{"a": []}], None),
        ({"a": {"type": "apiKey", "in": "header", "name": "Host"}}, [{"a": []}], None),
        ({"a": {"type": "http", "scheme": "bearer"}}, [], None),
    ],
)  # fmt: skip
def test_security_schemes_become_a_reference_to_a_secret(schemes: Any, security: Any, auth: Any) -> None:
    spec = one(security=security, extra={"components": {"securitySchemes": schemes}})

    reference = {"secretKeyRef": {"name": "orders-credential", "key": "credential"}}
    assert spec["backend"].get("auth") == (None if auth is None else {**auth, **reference})


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [d for d in yaml.safe_load_all(self.out) if d is not None]


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command over a document, or over text as it stands."""

    def run(source: Any, *options: str, at: str = "") -> Ended:
        file = tmp_path / "source"
        file.write_text(source if isinstance(source, str) else json.dumps(source))
        with pytest.raises(SystemExit) as ended:
            cli.main(["import", "openapi", at or str(file), *options])
        said = capsys.readouterr()
        return Ended(ended.value.code if isinstance(ended.value.code, int) else 0, said.out, said.err)

    return run


def test_the_command_prints_manifests_that_the_models_take_and_counts_the_rest(run: Run) -> None:
    paths = {
        "/orders": {"get": operation(operationId="list"), "head": operation()},
        "/files/{path}": {"get": operation(operationId="read", parameters=[{**ID, "name": "path"}])},
    }
    schemes = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer", "x-value": SECRET}}}
    ended = run(document(paths, components=schemes, security=[{"key": []}]), "--name", "shop", "-n", "team-a")

    assert ended.code == Exit.OK
    for manifest in ended.documents:
        resources.parse(manifest, strict=True)
    assert [d["metadata"]["namespace"] for d in ended.documents] == ["team-a", "team-a"]
    assert "#   metadata: {name: shop-credential, namespace: team-a" in ended.out
    assert "# Left out: HEAD /orders: its method is HEAD." in ended.out
    assert SECRET not in ended.out + ended.err
    assert [line.split("\t") for line in ended.err.splitlines()] == [
        ["OPERATIONS", "WHAT BECAME OF THEM"],
        ["3", "in the document"],
        ["2", "imported"],
        ["1", "of them with a path argument that refuses /, though the API may take it"],
        ["1", "left out: its method is HEAD"],
    ]


def test_include_and_exclude_choose_by_name_operation_id_or_path(run: Run) -> None:
    paths = {
        f"/{n}": {"get": operation(operationId=f"{n}/list"), "post": operation(operationId=f"{n}/add")}
        for n in "abc"
    }

    def names(*options: str) -> list[str]:
        return [d["spec"]["name"] for d in run(document(paths), *options).documents]

    assert names("--include", "a_*") == ["a_list", "a_add"]
    assert names("--include", "GET *", "--exclude", "b/*") == ["a_list", "c_list"]
    assert names("--include", "GET /c", "--scope", "c:use") == ["c_list"]


@pytest.mark.parametrize(
    ("servers", "options", "url"),
    [
        ([{"url": "https://{r}.example.com/v1/", "variables": {"r": {"default": "eu"}}}], (), "https://eu.example.com/v1/x"),
        ([{"url": "/v1"}], ("--url", "https://a.example"), "https://a.example/x"),
        ([{"url": "https://user:pw@a.example/v1?key=s3cret"}], (), "https://a.example/v1/x"),
    ],
)  # fmt: skip
def test_the_address_comes_from_the_document_or_the_command(
    run: Run, servers: Any, options: Any, url: str
) -> None:
    ended = run(document({"/x": {"get": operation()}}, servers=servers), *options)

    assert [d["spec"]["backend"]["http"]["url"] for d in ended.documents] == [url]
    assert "s3cret" not in ended.out + ended.err


def test_a_service_takes_the_place_of_the_address(run: Run) -> None:
    content = document({"/x": {"get": operation()}}, servers=[{"url": "/v1"}])

    (made,) = run(content, "--service", "orders:8080").documents

    assert made["spec"]["backend"]["http"] == {
        "service": {"name": "orders", "port": 8080}, "path": "/v1/x", "method": "GET",
    }  # fmt: skip


def test_every_host_that_the_tools_call_is_named(run: Run) -> None:
    other = operation(operationId="other", servers=[{"url": "https://files.example.com"}])
    ended = run(document({"/x": {"get": operation()}, "/y": {"get": other}}))

    assert "# egress.allow must list api.example.com, files.example.com." in ended.out.splitlines()


@pytest.mark.parametrize("url", [f"https://bot:{SECRET}@{{region}}.example.com/v1", f"/v1?token={SECRET}"])
def test_a_credential_in_an_address_that_is_not_whole_is_not_repeated(run: Run, url: str) -> None:
    ended = run(document({"/x": {"get": operation()}}, servers=[{"url": url}]))

    assert "is not a whole address" in ended.err
    assert SECRET not in ended.out + ended.err


@pytest.mark.parametrize(
    "url", ["/v1", "https://{region}.example.com", "//a.example", "ftp://a.example", "http://[::1", 7, ""]
)
def test_an_address_that_is_not_whole_is_asked_for(run: Run, url: Any) -> None:
    ended = run(document({"/x": {"get": operation()}}, servers=[{"url": url}]))

    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert "--url" in ended.err


def test_a_document_at_an_address_is_fetched_and_its_relative_server_goes_by_it(run: Run) -> None:
    content = json.dumps(document({"/x": {"get": operation()}}, servers=[{"url": "../v2"}])).encode()
    with answering(lambda _: Answer(content)) as port:
        ended = run("", at=f"http://127.0.0.1:{port}/docs/openapi.json?token={SECRET}")

    assert [d["spec"]["backend"]["http"]["url"] for d in ended.documents] == [f"http://127.0.0.1:{port}/v2/x"]
    assert SECRET not in ended.out + ended.err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(b"x" * ((32 << 20) + 1)), "larger than 32 MiB"),
        (Answer(b"", 404), "answers 404"),
        (Answer(b"", 302, {"location": "file:///etc/passwd"}), "cannot fetch"),
    ],
)
def test_what_cannot_be_fetched_is_said_without_output(run: Run, answer: Answer, said: str) -> None:
    with answering(lambda _: answer) as port:
        ended = run("", at=f"http://127.0.0.1:{port}/?token={SECRET}#{SECRET}")

    assert ended.out == ""
    assert said in ended.err
    assert SECRET not in ended.err


@pytest.mark.parametrize(
    ("to", "fetched"), [("https://b.example/doc", True), ("http://b.example/doc", False)]
)
def test_a_download_over_https_is_not_sent_on_to_http(
    monkeypatch: pytest.MonkeyPatch, run: Run, to: str, fetched: bool
) -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        if len(asked) == 1:
            return httpx2.Response(302, headers={"location": to})
        return httpx2.Response(200, json=document({"/x": {"get": operation()}}))

    monkeypatch.setattr(httpx2, "Client", partial(httpx2.Client, transport=httpx2.MockTransport(answer)))
    ended = run("", at="https://a.example/doc")

    assert (len(ended.documents) == 1, len(asked) == 2) == (fetched, fetched)
    assert ("it redirects from https to http" in ended.err) is not fetched


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "aliases expanded"),
        ("openapi: 3.0.0\npaths: &a {x: *a}\n", "an alias within what it stands for"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("a: " * 5, "not YAML"),
        ("- " * 200 + "x", "nested deeper than"),
        ("{", "not JSON"),
        ("[]", "does not hold a JSON or YAML object"),
        ("{}", "not OpenAPI 3.0 or 3.1"),
        ("swagger: '2.0'\n", "Swagger 2.0"),
        ("openapi: 3.0.0\n", "it has no paths"),
        ("openapi: 3.2.0\npaths: {}\n", "not OpenAPI 3.0 or 3.1"),
        ("[" + "[]," * 2_000_001 + "[]]", "more than 2,000,000 objects and lists"),
        ('{"openapi": "3.0.0", "paths": {}}', "its server '/' is not a whole address"),
        ("a: 1\n---\nb: 2\n", "must hold one document"),
        ("\x00", "cannot be read"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_with_the_reason(run: Run, text: str, said: str) -> None:
    ended = run(text)

    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert said in ended.err


def test_keys_of_yaml_that_are_numbers_are_read(run: Run) -> None:
    ended = run(
        "openapi: 3.0.0\nservers: [{url: 'https://a.example'}]\n"
        "paths:\n  /x:\n    get: {responses: {200: {description: All of the orders}}}\n"
    )

    assert [d["spec"]["returns"] for d in ended.documents] == ["All of the orders"]


@pytest.mark.slow
def test_a_hundred_thousand_operations_are_refused_before_any_is_read_unless_few_are_asked_for() -> None:
    content = document({f"/p{i}": {"get": operation(operationId=f"op{i}")} for i in range(100_000)})

    with pytest.raises(
        UnusableDocumentError, match=f"100,000 operations are asked for.* {MAX_TOOLS:,} Tools"
    ):
        whole(content)
    found = whole(content, include=("op9999?",))
    assert (found.total, len(found.manifests), found.unasked) == (100_000, 10, 99_990)


def test_a_document_from_standard_input(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    content = json.dumps(document({"/x": {"get": operation()}})).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    assert len(run("", at="-").documents) == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--name", "registry"), ("--name", "a b"), ("--scope", "registry:write"), ("--scope", "a b"), ("-n", "A"),
        ("--url", f"ftp://bot:{SECRET}@a"), ("--service", "a"), ("--service", "a:0"), ("--service", "a:1", "--url", "https://a"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(run: Run, options: tuple[str, ...]) -> None:
    ended = run(document({"/x": {"get": operation()}}), *options)

    assert (ended.code, ended.out) == (Exit.USAGE, "")
    assert SECRET not in ended.err
