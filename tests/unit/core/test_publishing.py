"""From a manifest to what replicas hold, and back from what was registered to a manifest."""

from typing import Any

import pytest

import published
from toolcrib import approvals, publishing
from toolcrib.errors import InvalidManifest
from toolcrib.resources import (
    API_VERSION,
    AgentScopeBinding,
    ClusterAgentScopeBinding,
    LabelSelector,
    SubjectKind,
    Tool,
    parse,
)
from toolcrib.resources.canaries import ToolCanary
from toolcrib.wire.backends import PublishedBackend
from toolcrib.wire.publish import PublishedBinding, PublishedTool

HTTP = {"service": {"name": "tools", "port": 8080}, "path": "/read", "timeout": "1500ms"}


def manifest(kind: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "sample", **metadata}, "spec": spec}


def tool(metadata: dict[str, Any] | None = None, token_ip: str | None = None, **spec: Any) -> PublishedTool:
    body = manifest("Tool", {"scopes": ["a:use"], "backend": {"http": HTTP}, **spec}, **(metadata or {}))
    resource = parse(body, strict=True)
    assert isinstance(resource, Tool)
    return publishing.tool(resource, token_ip=token_ip)


def binding(kind: str = "AgentScopeBinding", namespaces: Any = None, **spec: Any) -> PublishedBinding:
    resource = parse(manifest(kind, {"subjects": [{"kind": "Agent", "name": "a", "namespace": "n"}], **spec}))
    assert isinstance(resource, AgentScopeBinding | ClusterAgentScopeBinding)
    return publishing.binding(resource, namespaces=namespaces)


def test_a_tool_is_published_with_its_names_route_and_digests() -> None:
    found = tool({"namespace": "team-a", "uid": "u1", "generation": 3}, name="read_file", server="files")

    assert (found.tool_id, found.name, found.server) == ("team-a/sample", "read_file", "files")
    assert (found.uid, found.generation, found.source) == ("u1", 3, "manifest")
    assert found.backend == PublishedBackend(
        service_namespace="team-a", service_name="tools", service_port=8080, path="/read", timeout=1.5
    )
    assert found.backend.service == "team-a/tools"
    assert found.digest.startswith("sha256:")


def test_what_is_left_out_is_filled_in() -> None:
    found = tool()

    assert (found.tool_id, found.name, found.uid) == ("default/sample", "sample", "manifest:default/sample")
    assert found.input_schema == {"type": "object"}
    assert found.annotations == {}


def test_hints_that_are_absent_stay_absent() -> None:
    assert tool(annotations={"readOnlyHint": False}).annotations == {"readOnlyHint": False}


def test_a_credential_is_published_by_reference_in_the_tools_own_namespace() -> None:
    auth = {"type": "Header", "header": "X-Key", "secretKeyRef": {"name": "s", "key": "k"}}

    found = tool({"namespace": "team-a"}, backend={"http": HTTP, "auth": auth})

    assert found.backend is not None
    assert found.backend.auth is not None
    assert str(found.backend.auth.secret) == "team-a/s/k"


@pytest.mark.parametrize(
    ("http", "said", "asserted"),
    [
        (HTTP, {}, True),
        (HTTP, {"assertion": False}, False),
        ({"url": "https://a.example"}, {}, False),
        ({"url": "https://a.example"}, {"assertion": True}, True),
    ],
)
def test_calls_of_services_carry_an_assertion_and_others_where_asked(
    http: dict[str, Any], said: dict[str, bool], asserted: bool
) -> None:
    found = tool(backend={"http": http, **said})

    assert found.backend is not None
    assert found.backend.asserted is asserted


@pytest.mark.parametrize(
    "change",
    [
        {"scopes": ["b:use"]},
        {"scopeMatch": "All"},
        {"backend": {"none": {}}},
        {"backend": {"http": {**HTTP, "timeout": "2s"}}},
        {"backend": {"http": {**HTTP, "method": "GET"}}},
        {"backend": {"http": {"url": "https://a.example"}}},
        {"backend": {"http": HTTP, "assertion": True}},
        {"backend": {"http": HTTP, "assertion": False}},
        {"backend": {"http": {**HTTP, "parameters": [{"argument": "a", "in": "query"}]}}},
        {"backend": {"http": {**HTTP, "body": "json"}}},
        {"backend": {"http": {**HTTP, "body": "none"}}},
    ],
)
def test_what_a_call_depends_on_changes_the_route_digest_alone(change: dict[str, Any]) -> None:
    assert tool(**change).digest == tool().digest
    assert tool(**change).route_digest != tool().route_digest


@pytest.mark.parametrize(
    ("http", "extra", "known"),
    [
        (
            {"service": {"name": "tools", "port": 8080}, "path": "/read/{id}", "timeout": "1500ms"},
            {},
            "sha256:9aab30eafec29e692e4d99db62f66785f01195be5b0fc71ba2c4ce5afb2f04ea",
        ),
        (
            {"url": "https://a.example/x?v=1", "method": "GET"},
            {"auth": {"type": "Header", "header": "X-Key", "secretKeyRef": {"name": "s", "key": "k"}}},
            "sha256:baf489fc70c1784cfec2feb6ec8b6cbf193543a668d6391379a958a8cb314aad",
        ),
    ],
)
def test_a_tool_that_places_no_argument_keeps_its_digests_and_so_its_approval(
    http: dict[str, Any], extra: dict[str, Any], known: str
) -> None:
    assert tool(backend={"http": http, **extra}).approval_digest == known


def test_the_order_of_parameters_means_nothing() -> None:
    listed = [{"argument": "a", "in": "query"}, {"argument": "b", "in": "header", "name": "X-B"}]

    there, back = (tool(backend={"http": {**HTTP, "parameters": ps}}) for ps in (listed, listed[::-1]))

    assert there.backend is not None
    assert [(p.argument, p.place, p.name) for p in there.backend.parameters or ()] == [
        ("a", "query", "a"),
        ("b", "header", "X-B"),
    ]
    assert there.route_digest == back.route_digest


@pytest.mark.parametrize("field", ["name", "in"])
def test_where_an_argument_goes_is_in_the_route_digest(field: str) -> None:
    one = {"argument": "a", "in": "query", "name": "b"}
    other = {**one, field: "header" if field == "in" else "c"}

    first, second = (tool(backend={"http": {**HTTP, "parameters": [p]}}) for p in (one, other))

    assert first.route_digest != second.route_digest


KEPT = "sha256:f3cf09165cbdf1b391e73a799e0cdb88823cff91cfe04fc4bbb48a0c382cb2e3"
OAUTH = {"tokenUrl": "https://idp.example/token"}
AT = {"name": "idp", "port": 8080, "path": "/token"}


@pytest.mark.parametrize(
    "change",
    [
        {"tokenUrl": "https://other.example/token"},
        {"clientIdKey": "other"},
        {"scope": "read"},
        {"resource": "https://a.example/"},
        {"clientAuthentication": "Post"},
        {"tokenUrl": None, "tokenService": AT},
    ],
)
def test_where_and_how_access_tokens_are_obtained_is_part_of_the_route(change: dict[str, Any]) -> None:
    def made(**oauth: Any) -> PublishedTool:
        auth = {
            "type": "ClientCredentials",
            "secretKeyRef": {"name": "client", "key": "secret"},
            "oauth": {**OAUTH, **oauth},
        }
        return tool(backend={"http": HTTP, "auth": auth})

    assert made(**change).route_digest != made().route_digest
    assert made(**change).digest == made().digest


def test_a_backend_without_access_tokens_keeps_the_route_digest_that_it_had_before_there_were_any() -> None:
    auth = {"type": "Bearer", "secretKeyRef": {"name": "client", "key": "secret"}}

    found = tool(backend={"http": HTTP, "auth": auth})

    assert found.route_digest == KEPT


def test_a_backend_without_a_token_service_keeps_the_route_digest_that_it_had_before_there_were_any() -> None:
    auth = {"type": "ClientCredentials", "secretKeyRef": {"name": "client", "key": "secret"}, "oauth": OAUTH}

    found = tool(backend={"http": HTTP, "auth": auth})

    assert found.route_digest == "sha256:a928383d62f2b9a617875e222cbafe9c9d213db84f49aeccdfa55be64d1cb47b"


@pytest.mark.parametrize("change", [{"name": "other"}, {"port": 1}, {"path": "/other"}])
def test_a_token_service_counts_for_the_route_by_its_name_and_not_by_its_address(
    change: dict[str, Any],
) -> None:
    def made(ip: str | None = None, **at: Any) -> PublishedTool:
        oauth = {"tokenService": AT | at}
        auth = {
            "type": "ClientCredentials",
            "secretKeyRef": {"name": "client", "key": "secret"},
            "oauth": oauth,
        }
        return tool(token_ip=ip, backend={"http": HTTP, "auth": auth})

    one, other = made("10.96.0.1"), made("10.96.0.2")
    assert one.backend != other.backend
    assert made().route_digest == one.route_digest == other.route_digest != made(**change).route_digest
    assert approvals.parts(one) == approvals.parts(other) != approvals.parts(made(**change))


def test_what_a_model_reads_changes_the_digest_alone() -> None:
    assert tool(description="other").digest != tool().digest
    assert tool(description="other").route_digest == tool().route_digest


def test_a_binding_reaches_its_own_namespace_whatever_is_asked_for() -> None:
    found = binding(scopes=["a"], namespaces=("elsewhere",))

    assert (found.namespace, found.namespaces) == ("default", ("default",))


@pytest.mark.parametrize("territory", [None, (), ("a", "b")])
def test_a_cluster_binding_reaches_what_its_selector_found(territory: tuple[str, ...] | None) -> None:
    found = binding("ClusterAgentScopeBinding", territory, scopes=["a"], namespaceSelector={})

    assert (found.namespace, found.namespaces) == (None, territory)


def test_absent_and_given_restrictions_are_told_apart() -> None:
    bare, narrow = binding(scopes=["a"]), binding(scopes=["a"], tools={"allow": ["x"]}, servers=["s"])

    assert (bare.allow, bare.deny, bare.servers) == (None, (), None)
    assert (narrow.allow, narrow.deny, narrow.servers) == (("x",), (), ("s",))


def test_dates_become_seconds() -> None:
    found = binding(scopes=["a"], notBefore="1970-01-01T00:01:00Z", expiresAt="1970-01-01T02:00:00+01:00")

    assert (found.not_before, found.expires_at) == (60.0, 3_600.0)


def test_a_subject_without_namespace_is_one_of_the_bindings_own() -> None:
    subjects = [
        {"kind": "ServiceAccount", "name": "bot"},
        {"kind": "ServiceAccount", "name": "bot", "namespace": "other"},
        {"kind": "User", "issuer": "https://i", "name": "u"},
    ]

    found = binding(subjects=subjects, scopes=["a"]).subjects

    assert [s.namespace for s in found] == ["default", "other", None]
    assert found[2].kind is SubjectKind.USER


def test_a_registered_tool_comes_back_from_its_manifest_unchanged() -> None:
    registered = publishing.with_digests(
        tool_id="runtime/echo-abc123", uid="x", namespace="runtime", name="echo", scopes=("a:use",),
        description="d", source="runtime", backend=PublishedBackend(url="http://127.0.0.1:9/echo"),
    )  # fmt: skip

    resource = parse(publishing.manifest(registered), strict=True)

    assert isinstance(resource, Tool)
    again = publishing.tool(resource)
    assert (again.digest, again.route_digest, again.source) == (
        registered.digest, registered.route_digest, "runtime",
    )  # fmt: skip


# ---- reading manifests ------------------------------------------------------------------------------------------


def test_a_newer_release_may_have_written_fields_that_this_one_does_not_know() -> None:
    body = manifest("Tool", {"scopes": ["a"], "backend": {"http": {**HTTP, "new": 1}}, "newer": True})
    body |= {"status": {"newest": {}, "conditions": []}, "extra": 1}

    assert parse(body).metadata.name == "sample"
    with pytest.raises(InvalidManifest) as refused:
        parse(body, strict=True)
    assert {f.field for f in refused.value.findings} == {"spec.backend.http.new", "spec.newer", "extra"}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (None, ""),
        ([], ""),
        ({}, "kind"),
        ({"kind": "Pod"}, "kind"),
        ({"kind": ["Tool"]}, "kind"),
        ({"kind": "Tool"}, "apiVersion"),
        ({"kind": "Tool", "apiVersion": "toolcrib.dev/v1"}, "apiVersion"),
        ({"kind": "Tool", "apiVersion": API_VERSION}, "spec"),
        (manifest("Tool", {"scopes": []}), "spec.scopes"),
        (manifest("Tool", {"scopes": ["a"]}), "spec.backend"),
        (
            manifest("AgentScopeBinding", {"subjects": [{"kind": "Agent"}], "scopes": ["a"]}),
            "spec.subjects[0]",
        ),
    ],
)
def test_a_refusal_names_the_field_as_it_is_written(body: Any, field: str, strict: bool) -> None:
    with pytest.raises(InvalidManifest) as refused:
        parse(body, strict=strict)

    assert field in [f.field for f in refused.value.findings]


def test_fields_in_pythons_spelling_are_unknown() -> None:
    with pytest.raises(InvalidManifest, match="scope_match"):
        parse(manifest("Tool", {"scopes": ["a"], "backend": {"none": {}}, "scope_match": "All"}), strict=True)


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "c"}, False),
        ({"matchLabels": {"a": ""}}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {"a": "b"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {"a": "b"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
    ],
)
def test_a_selector_selects_as_kubernetes_does(
    selector: dict[str, Any], labels: dict[str, str], selected: bool
) -> None:
    assert LabelSelector.model_validate(selector).matches(labels) is selected


@pytest.mark.parametrize(
    ("where", "resolved", "listed"),
    [
        ({"namespaces": ["n"]}, ("n",), True),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, ("n",), False),
        ({"namespaceSelector": {}}, None, False),
    ],
)
def test_only_a_written_list_of_a_cluster_binding_names_its_namespaces(
    where: dict[str, Any], resolved: tuple[str, ...] | None, listed: bool
) -> None:
    subjects = [{"kind": "Agent", "name": "a", "namespace": "n"}]
    resource = parse(
        manifest("ClusterAgentScopeBinding", {"subjects": subjects, "scopes": ["a:use"], **where})
    )
    assert isinstance(resource, ClusterAgentScopeBinding)

    assert publishing.binding(resource, namespaces=resolved).lists_namespaces is listed


@pytest.mark.parametrize(("of", "by"), [(True, False), (False, True), (False, False)])
def test_a_replacement_is_confirmed_where_either_tool_is(of: bool, by: bool) -> None:
    """Else a trial would let calls of a guarded tool through under another name."""
    names = ("pay", "pay-new")
    tools = [published.tool(f"team-a/{n}", confirm=c) for n, c in zip(names, (of, by), strict=True)]
    spec = {"tool": "pay", "share": 10, "candidate": {"replacement": "pay-new"}}
    metadata = {"name": "trial", "namespace": "team-a", "uid": "u1"}
    canary = parse({"apiVersion": API_VERSION, "kind": "ToolCanary", "metadata": metadata, "spec": spec})
    assert isinstance(canary, ToolCanary)
    assert publishing.candidate(tools[0], canary, tools[1]).tool.confirm is (of or by)
