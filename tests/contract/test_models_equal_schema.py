"""The models and the API server (schema + CEL) give one verdict on every manifest.

`toolcrib validate` and the local mode ask the models, a cluster asks the CRDs; both come from one source. Here
thousands of manifests go to both: a table by hand, and every field of full manifests spoilt in every way.
"""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import agent_manifests
import canary_manifests
import manifests
import oauth_clients
import placed_arguments
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from toolcrib import publishing
from toolcrib.errors import InvalidManifest
from toolcrib.names import RESERVED_TOOL_NAMES
from toolcrib.resources import API_VERSION, KINDS, Tool, crd, parse

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]
Manifest = dict[str, Any]
DROP = object()


def tool(**spec: Any) -> Manifest:
    backend = {"http": {"service": {"name": "tools", "port": 8080}, "path": "/x"}}
    return manifest("Tool", {"scopes": ["a:use"], "backend": backend, **spec})


def grant(**spec: Any) -> Manifest:
    subjects = [{"kind": "ServiceAccount", "name": "bot"}]
    return manifest("AgentScopeBinding", {"subjects": subjects, "scopes": ["a:use"], **spec})


def cluster_grant(**spec: Any) -> Manifest:
    subjects = [{"kind": "ServiceAccount", "namespace": "team-a", "name": "bot"}]
    return manifest(
        "ClusterAgentScopeBinding", {"subjects": subjects, "scopes": ["a:use"], "namespaces": ["team-a"], **spec}
    )  # fmt: skip


def server(mcp: Manifest | None = None, /, **spec: Any) -> Manifest:
    way = {"service": {"name": "mcp", "port": 8080}} if mcp is None else mcp
    return manifest("ToolServer", {"mcp": way, "defaults": {"scopes": ["a:use"]}, **spec})


def served(**spec: Any) -> Manifest:
    return tool(
        backend={"mcp": {"serverRef": {"name": "files"}, "tool": "read"}}, **{"server": "files", **spec}
    )


def manifest(kind: str, spec: Manifest) -> Manifest:
    kept = {k: v for k, v in spec.items() if v is not DROP}
    return manifests.manifest(kind, "sample", "default" if KINDS[kind].namespaced else None, **kept)


def http(**fields: Any) -> Manifest:
    base = {"service": {"name": "tools", "port": 8080}}
    return tool(backend={"http": {k: v for k, v in {**base, **fields}.items() if v is not DROP}})


def over(backend: Manifest) -> Manifest:
    return tool(backend=backend)


def auth(**fields: Any) -> Manifest:
    base = {"type": "Bearer", "secretKeyRef": {"name": "token", "key": "value"}}
    made = http()
    made["spec"]["backend"]["auth"] = {k: v for k, v in {**base, **fields}.items() if v is not DROP}
    return made


def subject(**fields: Any) -> Manifest:
    return grant(subjects=[fields])


def url(text: str) -> Manifest:
    return http(service=DROP, url=text)


def labelled(**labels: Any) -> Manifest:
    made = tool()
    made["metadata"]["labels"] = {k.replace("_", "/"): v for k, v in labels.items()}
    return made


def meta(**fields: Any) -> Manifest:
    made = tool()
    made["metadata"] |= fields
    return made


S16 = [f"s{i}:use" for i in range(16)]
ISSUER = "https://login.example"
SELECT_IN = {"key": "team", "operator": "In", "values": ["a"]}

GOOD: list[Manifest] = [
    *agent_manifests.GOOD, *canary_manifests.GOOD, meta(finalizers=["nodomain"]),
    *(tool(backend={"http": {"service": {"name": "a", "port": 80}}, "assertion": on}) for on in (True, False, None)),
    tool(backend={"none": {}}), grant(tools={"allow": None, "deny": ["x"]}, servers=None), tool(), tool(scopes=S16),
    tool(scopes=["a"]), tool(scopes=["a.b_c:d/e-f"]), tool(scopes=["a" * 128]), tool(backend={"http": {"url": "https://a.test"}, "assertion": True}),
    *(tool(name=f"x{n}") for n in sorted(RESERVED_TOOL_NAMES)), tool(name="Metrics"), tool(name="search"),
    tool(name="a.b"), tool(name="a__b"), tool(replacedBy="register", state="Deprecated"), tool(annotations={"idempotentHint": True}, fallback=["b"]),
    tool(name="A.b_c-9"), tool(name="x" * 128), tool(name="-._"), tool(server="GitHub.com"), tool(title="Grüße 東京"),
    tool(description=""), tool(description="x" * 4096), tool(description="東" * 4096), tool(description="a\nb\t\u202e"),
    tool(scopeMatch="All"), tool(scopeMatch=None), tool(tags=[]), tool(tags=["a b", "東京"]), tool(tags=["x" * 64]),
    tool(examples=["a", "a"]), tool(examples=["x" * 512] * 16), tool(inputSchema={}), tool(inputSchema={"a": None}),
    tool(inputSchema={"type": "object", "properties": {"a": {"default": None, "minimum": 1.5}}}), tool(fallback=[]),
    tool(outputSchema={"type": "array"}), tool(returns=""), tool(returns="x" * 1024), tool(annotations={}),
    tool(annotations={"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}),
    tool(state="Disabled"), tool(state="Deprecated"), tool(state="Deprecated", replacedBy="b", message="old"),
    tool(state="Disabled", message="broken"), http(), http(path="/"), http(path="/{a}/b..c/%2e"), http(path="/a//b/."),
    http(timeout="5m"), http(timeout="300s"), http(timeout="300000ms"), http(timeout="1ms"), http(timeout=None),
    *map(over, placed_arguments.GOOD), *map(over, oauth_clients.TOOLS), *map(server, oauth_clients.SERVERS),
    http(method="DELETE"), http(method=None), http(service={"name": "a", "port": 65535}),
    http(service={"name": "a", "port": 80.0}),
    url("https://api.example"), url("http://api.example:8080/a?b=c#d"), url("https://[2001:db8::1]:443/"),
    url("https://1.2.3.4/"), url("https://a/" + "x" * 2000), auth(), auth(type="Basic"),
    auth(type="Header", header="X-Api-Key"), auth(secretKeyRef={"name": "a.b", "key": "._-K"}),
    labelled(a="b"), labelled(a=""), labelled(**{"x.example_a-b.c": "A_b.c-d"}), meta(annotations={"any/thing": "東\n"}),
    meta(uid="x"), meta(creationTimestamp=None), meta(generation=4), meta(resourceVersion=""), meta(labels=None),
    meta(finalizers=["x.example/y"]), meta(name="a.b-c.9"), meta(name="9"), meta(name="a" * 128),
    grant(), grant(subjects=[{"kind": "ServiceAccount", "name": "bot"}] * 16), grant(scopes=S16),
    subject(kind="ServiceAccount", namespace="team-b", name="bot"), subject(kind="Agent", name="a"),
    subject(kind="OAuthClient", issuer=ISSUER, clientId="x"), subject(kind="User", issuer=ISSUER, name="東 @ \n"),
    subject(kind="Group", issuer=ISSUER, name="system:serviceaccounts"), subject(kind="Agent", name="NOT a dns name"),
    grant(tools={"allow": ["*"]}), grant(tools={"allow": ["github:*", "read_?"], "deny": ["x"]}),
    grant(scopes=DROP, tools={"denyScopes": ["a:use"]}), grant(tools={"denyScopes": S16}), grant(tools={"denyScopes": ["A:use", "a:use"]}),
    grant(scopes=DROP, tools={"deny": ["x"], "denyScopes": ["y"], "allow": None}), cluster_grant(tools={"denyScopes": ["a" * 128]}),
    cluster_grant(scopes=DROP, tools={"denyScopes": ["a"]}), grant(tools={"allow": ["x"], "deny": None, "denyScopes": ["y"]}),
    grant(scopes=DROP, tools={"deny": ["*"]}), grant(tools={"allow": [f"p{i}" for i in range(64)]}),
    grant(servers=["github"]), grant(servers=[f"s{i}" for i in range(32)]), grant(notBefore="2027-01-01T00:00:00Z"),
    grant(expiresAt="2027-01-01T00:00:00.123456789+14:00"), grant(expiresAt="2000-01-01T00:00:00Z"),
    grant(notBefore="2027-01-01T00:00:00Z", expiresAt="2027-01-01T00:00:01Z"),
    grant(notBefore="2027-01-01T01:00:00+02:00", expiresAt="2027-01-01T00:00:00Z"),
    grant(notBefore="2027-01-01T00:00:00.1Z", expiresAt="2027-01-01T00:00:00.2Z"),
    grant(expiresAt="9999-12-31T23:59:59Z"), grant(expiresAt="2028-02-29T00:00:00Z"),
    grant(expiresAt="1970-01-01T00:00:00Z"), grant(expiresAt="2027-06-01T00:00:00-23:59"),
    cluster_grant(), cluster_grant(scopes=["registry:write", "registry:admin"]),
    cluster_grant(namespaces=DROP, namespaceSelector={}), cluster_grant(namespaces=[f"n{i}" for i in range(64)]),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchLabels": {"team": "a"}, "matchExpressions": [SELECT_IN]}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
    cluster_grant(tools={"allow": ["team-a/github:*", "*/web:read", "grep"]}), cluster_grant(servers=["team-a/github"]),
    cluster_grant(scopes=DROP, tools={"deny": ["*"]}),
    tool(name=None),
    tool(title=None),
    tool(description=None),
    tool(tags=None),
    tool(inputSchema=None),
    tool(outputSchema=None),
    tool(annotations={"readOnlyHint": None}),
    tool(annotations=None),
    http(path=None),
    labelled(a=None),
    grant(tools=None),
    grant(notBefore=None),
    {**cluster_grant(), "metadata": {"name": "sample", "namespace": "default"}},
    served(), server(), server({"url": "https://mcp.example/mcp"}), server({"url": "https://mcp.example/mcp", "assertion": True, "timeout": "5m"}),
    server({"service": {"name": "a", "port": 1}, "path": "/x", "transport": "StreamableHTTP"}), server(state="Disabled"),
    server(**{"import": {"include": ["read_*", "a b"], "exclude": [], "refreshInterval": "10s", "approval": "Manual", "shrinkGrace": "24h"}}),
    server(overrides=[]), server(overrides=[{"tool": "a"}, {"tool": "b", "scopes": ["b:use"], "annotations": {"readOnlyHint": True}}]),
]  # fmt: skip
BAD: list[Manifest] = [
    served(server=DROP), served(server="other"), tool(server="f", backend={"mcp": {"serverRef": {"name": "f"}}}),
    tool(server="f", backend={"mcp": {"serverRef": {"name": "f"}, "tool": "a"}, "none": {}}),
    tool(server="f", backend={"mcp": {"serverRef": {"name": "f"}, "tool": ""}}),
    tool(server="f", backend={"mcp": {"serverRef": {"name": "f"}, "tool": "a"}, "assertion": True}),
    server({}), server({"url": "https://a", "service": {"name": "a", "port": 1}}), server({"url": "https://a", "path": "/x"}),
    server({"service": {"name": "a", "port": 1}, "path": "/{a}"}), server({"url": "https://a", "transport": "SSE"}),
    server({"url": "https://a", "timeout": "6m"}), server({"command": "npx"}), server(defaults=DROP), server(defaults={"scopes": []}),
    server({"url": "https://a", "auth": {"type": "Header", "header": "Mcp-Session-Id", "secretKeyRef": {"name": "a", "key": "b"}}}),
    server({"url": "https://a", "auth": {"type": "Header", "header": "ACCEPT", "secretKeyRef": {"name": "a", "key": "b"}}}),
    server(defaults={"scopes": ["registry:admin"]}), server(overrides=[{"tool": "a", "scopes": ["Registry:x"]}]),
    server(overrides=[{"tool": "a"}, {"tool": "a"}]), server(overrides=[{"tool": "a*"}]), server(overrides=[{"scopes": ["a"]}]),
    server(overrides=[{"tool": f"t{i}"} for i in range(129)]), server(state="Deprecated"),
    server(**{"import": {"include": []}}), server(**{"import": {"refreshInterval": "9s"}}), server(**{"import": {"refreshInterval": "25h"}}),
    server(**{"import": {"approval": "manual"}}), server(**{"import": {"shrinkGrace": "25h"}}),
    {**server(), "metadata": {"name": "a" * 64, "namespace": "default"}},
    grant(tools={"denyScopes": []}), grant(tools={"denyScopes": [*S16, "z"]}), grant(tools={"denyScopes": ["a", "a"]}),
    grant(tools={"denyScopes": ["a b"]}), grant(tools={"denyScopes": [""]}), grant(tools={"denyScopes": "a"}),
    grant(tools={"denyScopes": ["a" * 129]}), grant(tools={"denyScopes": [None]}), grant(tools={"denyScopes": ["*"]}),
    grant(tools={"denyScopes": ["registry:write"]}), cluster_grant(tools={"denyScopes": ["x", "Registry:admin"]}),
    grant(tools={"denyScopes": None}), grant(scopes=DROP, tools={"denyScopes": ["a"], "allow": ["b"]}),
    grant(scopes=DROP, tools={"denyScopes": ["a"]}, limits={"callsPerDay": 1}), grant(tools={"deny_scopes": ["a"]}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchLabels": {}}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchLabels": {"a": None, "b": "c"}}),
    tool(scopes=DROP), tool(scopes=[]), tool(scopes=None), tool(scopes="a:use"), tool(scopes=[*S16, "z"]),
    tool(scopes=["a", "a"]), tool(scopes=[""]), tool(scopes=["a b"]), tool(scopes=["a" * 129]), tool(scopes=[":a"]),
    tool(scopes=["a:"]), tool(scopes=["ä"]), tool(scopes=[5]), tool(scopes=[None]), tool(scopes=["a\n"]),
    tool(scopes=["registry:write"]), tool(scopes=["a", "Registry:x"]), tool(scopes=["REGISTRY:ADMIN"]),
    tool(scopes=[["a"]]), tool(scopes={"a": 1}), tool(scopes=True),
    *(tool(name=n) for n in sorted(RESERVED_TOOL_NAMES)), meta(name="register"), meta(name="v1"),
    tool(name=""), tool(name="a b"), tool(name="x" * 129), tool(name="a/b"), tool(name="a:b"), tool(name="ä"),
    tool(name=5),  tool(name="a\n"), tool(name="*"), tool(server=""), tool(server="x" * 64),
    tool(server="a/b"), tool(server="a:b"), tool(server="*"), tool(title="x" * 257), tool(title=5), 
    tool(description="x" * 4097), tool(description=["a"]),  tool(description=5), tool(annotations={"readOnlyHint": True}, fallback=["a/b"]),
    tool(scopeMatch="any"), tool(scopeMatch=""), tool(scopeMatch=["Any"]), tool(scopeMatch=0),
    tool(tags=["a", "a"]), tool(tags=[""]), tool(tags=["x" * 65]), tool(tags=["a\nb"]), tool(tags=["\x7f"]),
    tool(tags=[f"t{i}" for i in range(17)]),  tool(tags="a"), tool(examples=[""]), tool(fallback=["b"]), tool(annotations={}, fallback=["b"]),
    tool(examples=["x" * 513]), tool(examples=["a"] * 17), tool(examples=[None]), tool(annotations={"readOnlyHint": False}, fallback=["b"]),
    tool(inputSchema=[]), tool(inputSchema="{}"), tool(inputSchema=True),  tool(outputSchema=5),
    tool(returns="x" * 1025),  tool(annotations={"readOnlyHint": "true"}), tool(annotations={"readOnlyHint": True}, fallback=["sample"]),
    tool(annotations={"readOnlyHint": 1}), tool(annotations={"read_only_hint": True}), tool(annotations={"title": "a"}),
     tool(state="active"), tool(state=""), tool(state="Active", replacedBy="b"), tool(annotations={"readOnlyHint": True}, fallback=list("bcdef")),
    tool(replacedBy="b"), tool(state="Disabled", replacedBy="b"), tool(state="Deprecated", replacedBy=""),
    tool(state="Deprecated", message="x" * 513), tool(backend=DROP), tool(backend=None), tool(backend={}),
    tool(backend={"auth": {"type": "Bearer", "secretKeyRef": {"name": "a", "key": "b"}}}), tool(backend={"http": {}}),
    tool(backend={"http": None}), tool(backend={"none": {"a": 1}}), tool(backend={"none": {}, "http": {}}),
    tool(backend={"none": True}), tool(backend={"none": {}, "auth": {"type": "Bearer"}}), tool(backend={"mcp": {}}), tool(backend={"http": []}),
    *map(over, placed_arguments.BAD), *map(over, oauth_clients.BAD_TOOLS), *map(server, oauth_clients.BAD_SERVERS),
    http(url="https://a.example"), http(service=DROP), http(service=DROP, url="https://a", path="/x"), http(path=""),
    http(path="x"), http(path="/a b"), http(path="/ä"), http(path="/a/../b"), http(path="/a/.."), http(path="/.."),
    http(path="/a?b=c"), http(path="/a#b"), http(path="/" + "x" * 1024), http(path="/a\n"), 
    http(method="post"), http(method="HEAD"), http(method=""), http(timeout="0s"), http(timeout="6m"),
    http(timeout="301s"), http(timeout="1h"), http(timeout="10"), http(timeout="1.5s"), http(timeout="1m30s"),
    http(timeout=""), http(timeout=10), http(timeout="99999999s"), http(timeout="-1s"), http(timeout=" 1s"),
    http(service={"name": "a", "port": 0}), http(service={"name": "a", "port": 65536}), http(service={"name": "a"}),
    http(service={"name": "a", "port": "80"}), http(service={"name": "a", "port": 80.5}), http(service={"port": 80}),
    http(service={"name": "A", "port": 80}), http(service={"name": "a.b", "port": 80}), http(service=None),
    http(service={"name": "a", "port": 80, "namespace": "b"}), http(service={"name": "a", "port": True}),
    http(service={"name": "a", "port": -(2**40)}), http(service={"name": "a", "port": 2**70}),
    http(service={"name": "-a", "port": 80}), http(service={"name": "a" * 64, "port": 80}),
    url(""), url("ftp://a"), url("//a"), url("a.example"), url("http://"), url("http://a b"), url("http://a/ b"),
    url("http://user:pw@a/"), url("HTTP://a"), url("http://ä.example"), url("http://a:999999"), url("http://a/\n"),
    url("javascript:x"), url("http://a\\b"), url("https://a/" + "x" * 2048), url("http://[::1"), url("file:///etc"),
    auth(type=DROP), auth(type="bearer"), auth(type="None"), auth(header="X-A"), auth(type="Header"),
    auth(type="Header", header=""), auth(type="Header", header="a b"), auth(type="Header", header="Host"),
    auth(type="Header", header="Toolcrib-Assertion"), auth(type="Header", header="toolcrib-ASSERTION"),
    tool(backend={"none": {}, "assertion": True}), tool(backend={"none": {}, "assertion": False}),
    tool(backend={"http": {"service": {"name": "a", "port": 80}}, "assertion": "true"}),
    auth(type="Header", header="content-LENGTH"), auth(type="Header", header="x" * 65), auth(secretKeyRef=DROP),
    auth(secretKeyRef={}), auth(secretKeyRef={"name": "a"}), auth(secretKeyRef={"name": "a", "key": ""}),
    auth(secretKeyRef={"name": "A", "key": "a"}), auth(secretKeyRef={"name": "a", "key": "a b"}), auth(value="secret"),
    auth(secretKeyRef={"name": "a", "key": "b", "namespace": "c"}), auth(secretKeyRef={"name": "a", "key": "x" * 254}),
    labelled(a=5), labelled(a=True), labelled(a="x" * 64), labelled(a="a b"), labelled(a="-a"), 
    labelled(**{"": "a"}), labelled(**{"a b": "a"}), labelled(**{"x" * 64: "a"}), labelled(**{"UP.example_a": "b"}),
    labelled(_a="b"), labelled(a_b_c="b"), meta(annotations={"a": 5}), meta(annotations={"a b": "c"}),
    meta(annotations=["a"]), meta(labels="a"), meta(name="A"), meta(name="a_b"), meta(name=""), meta(name="-a"),
    meta(name="a."), meta(name="a..b"), meta(name="a" * 254), meta(name=5), meta(name="ä"), meta(nmae="x"),
    meta(namespace="Default"), meta(name="a" * 129), meta(finalizers=["a b"]), meta(finalizers="a"),
    meta(ownerReferences=5), meta(generation="4"), meta(annotations={"a": "x" * 262_145}),
    {**tool(), "metadata": {}}, {**tool(), "metadata": None}, {**tool(), "metadata": []}, {**tool(), "spec": None},
    {**tool(), "spec": []}, {**tool(), "spec": {}}, {**tool(), "extra": 1}, {**tool(), "spec": "x"},
    {k: v for k, v in tool().items() if k != "spec"},
    grant(subjects=DROP), grant(subjects=[]), grant(subjects=None), grant(subjects=[{}]), grant(subjects=[None]),
    grant(subjects=[{"kind": "ServiceAccount", "name": "bot"}] * 17), grant(subjects={"kind": "Agent", "name": "a"}),
    subject(kind="serviceaccount", name="a"), subject(name="a"), subject(kind="ServiceAccount"),
    subject(kind="ServiceAccount", name=""), subject(kind="ServiceAccount", name="a", issuer=ISSUER),
    subject(kind="Agent", name="a", clientId="b"), subject(kind="ServiceAccount", name="a", namespace=""),
    subject(kind="ServiceAccount", name="a", namespace="A"), subject(kind="OAuthClient", clientId="a"),
    subject(kind="OAuthClient", issuer=ISSUER), subject(kind="OAuthClient", issuer=ISSUER, clientId="a", name="b"),
    subject(kind="OAuthClient", issuer=ISSUER, clientId="a", namespace="b"), subject(kind="User", name="a"),
    subject(kind="User", issuer=ISSUER), subject(kind="Group", issuer=ISSUER, name="a", namespace="b"),
    subject(kind="Group", issuer=ISSUER, name="a", clientId="b"), subject(kind="User", issuer="", name="a"),
    subject(kind="Agent", name="x" * 254), subject(kind="User", issuer="x" * 513, name="a"),
    subject(kind="Agent", name="a", apiGroup=""), subject(kind="ServiceAccount", name=None),
    grant(scopes=DROP), grant(scopes=[]), grant(scopes=None), grant(scopes=[*S16, "z"]), grant(scopes=["a", "a"]),
    grant(scopes=["registry:write"]), grant(scopes=["RegistrY:x"]), grant(scopes=DROP, tools={"allow": ["*"]}),
    grant(scopes=DROP, tools={"allow": ["a"], "deny": ["*"]}), grant(tools={}), 
    grant(tools={"allow": []}), grant(tools={"deny": []}), grant(tools={"allow": None}), grant(tools={"allow": "*"}),
    grant(tools={"allow": [""]}), grant(tools={"allow": ["a:b:c"]}), grant(tools={"allow": ["ns/a:b"]}),
    grant(tools={"allow": ["a", "a"]}), grant(tools={"allow": ["[a]"]}), grant(tools={"allow": [":a"]}),
    grant(tools={"allow": ["a:"]}), grant(tools={"allow": [f"p{i}" for i in range(65)]}), grant(tools=[]),
    grant(tools={"only": ["a"]}), grant(servers=[]), grant(servers=["a/b"]), grant(servers=["*"]),
    grant(servers=["a", "a"]), grant(servers=[f"s{i}" for i in range(33)]), grant(namespaces=["a"]),
    grant(notBefore="2027-01-01"), grant(notBefore="2027-01-01T00:00:00"), grant(notBefore="2027-02-30T00:00:00Z"),
    grant(notBefore=""),  grant(notBefore=1_800_000_000), grant(expiresAt="never"),
    grant(expiresAt="2027-01-01 00:00:00Z"), grant(expiresAt="2027-01-01T00:00:60Z"), grant(expiresAt="2027-13-01T00:00:00Z"),
    grant(expiresAt="0001-01-01T00:00:00Z"), grant(expiresAt="2027-01-01t00:00:00z"), grant(expiresAt="10000-01-01T00:00:00Z"),
    grant(expiresAt="2027-01-01T24:00:00Z"), grant(expiresAt="2027-02-29T00:00:00Z"),
    grant(notBefore="2027-01-01T00:00:00Z", expiresAt="2027-01-01T00:00:00Z"),
    grant(notBefore="2027-01-02T00:00:00Z", expiresAt="2027-01-01T00:00:00Z"),
    grant(notBefore="2027-01-01T00:00:00+01:00", expiresAt="2027-01-01T00:00:00+02:00"),
    server({"command": []}), server({"command": "a"}), server({"command": ["a\x00"]}), server({"command": ["a"], "path": "/mcp"}),
    server({"command": ["a"], "url": "https://a.example/mcp"}), server({"url": "https://a.example/mcp", "env": [{"name": "A", "value": "b"}]}),
    *(server({"command": ["a"], "env": e}) for e in ([{"name": "A"}],[{"name": "A-B", "value": ""}], [{"value": "b"}], [{"name": "A", "value": 1}])),
    cluster_grant(namespaces=DROP), cluster_grant(namespaceSelector={}), cluster_grant(namespaces=[]),
    cluster_grant(namespaces=["*"]), cluster_grant(namespaces=["A"]), cluster_grant(namespaces=["a", "a"]),
    cluster_grant(namespaces=None), cluster_grant(namespaces=DROP, namespaceSelector=None),
    cluster_grant(namespaces=[f"n{i}" for i in range(65)]), cluster_grant(namespaces=DROP, namespaceSelector={"x": 1}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchLabels": {"a": 5}}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchLabels": {"a": None}}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchLabels": {"a": "x" * 64}}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchLabels": {f"k{i}": "" for i in range(17)}}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchExpressions": []}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchExpressions": [{**SELECT_IN, "operator": "Exists"}]}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchExpressions": [{**SELECT_IN, "values": []}]}),
    cluster_grant(namespaces=DROP, namespaceSelector={"matchExpressions": [{**SELECT_IN, "key": ""}]}),
    cluster_grant(subjects=[{"kind": "ServiceAccount", "name": "bot"}]), cluster_grant(servers=["github"]),
    cluster_grant(tools={"allow": ["github:*"]}), cluster_grant(tools={"allow": ["A/github:*"]}), cluster_grant(scopes=DROP),
    cluster_grant(servers=["*/github"]), cluster_grant(tools={"allow": ["a/b"]}), *agent_manifests.BAD, *canary_manifests.BAD,
]  # fmt: skip


FULL: dict[str, Manifest] = {
    **agent_manifests.FULL, "ToolCanary": canary_manifests.FULL, "Tool": tool(
        name="read_file", server="files", title="Reader", description="Reads", scopes=["a:use", "b:use"],
        scopeMatch="Any", tags=["t"], examples=["e"], inputSchema={"type": "object", "properties": {"a": {}}},
        outputSchema={"type": "string"}, returns="text", annotations={"readOnlyHint": True}, state="Deprecated",
        replacedBy="other", message="old", fallback=["other", "spare"],
        backend={
            "http": {"service": {"name": "s", "port": 80}, "path": "/a/{b}", "method": "POST", "timeout": "10s", "body": "form",
                     "parameters": [{"argument": "a", "in": "header", "name": "X-A"}, {"argument": "b", "in": "path"}]},
            "auth": {"type": "Header", "header": "X-Key", "secretKeyRef": {"name": "n", "key": "k"}},
        },
    ),
    "ToolServer": server(
        {"service": {"name": "mcp", "port": 8080}, "path": "/mcp", "transport": "StreamableHTTP", "timeout": "30s", "assertion": True,
         "auth": {"type": "Header", "header": "X-Api-Key", "secretKeyRef": {"name": "a", "key": "b"}}},
        **{"import": {"include": ["a*"], "exclude": ["b"], "refreshInterval": "1m", "approval": "Manual", "shrinkGrace": "10m"}},
        defaults={"scopes": ["a:use"], "tags": ["x"]}, state="Active",
        overrides=[{"tool": "a", "scopes": ["b:use"], "tags": ["y"], "title": "A", "description": "Does a", "annotations": {"readOnlyHint": True}}],
    ),
    "AgentScopeBinding": grant(
        subjects=[
            {"kind": "ServiceAccount", "namespace": "b", "name": "bot"},
            {"kind": "OAuthClient", "issuer": ISSUER, "clientId": "x"},
        ],
        tools={"allow": ["files:*"], "deny": ["x"], "denyScopes": ["y"]}, servers=["files"], notBefore="2027-01-01T00:00:00Z",
        expiresAt="2028-01-01T00:00:00Z",
    ),
    "ClusterAgentScopeBinding": cluster_grant(
        namespaces=DROP, tools={"allow": ["a/files:*"], "deny": ["x"], "denyScopes": ["y"]}, servers=["a/files"],
        namespaceSelector={"matchLabels": {"a": "b"}, "matchExpressions": [SELECT_IN]},
        notBefore="2027-01-01T00:00:00Z", expiresAt="2028-01-01T00:00:00Z",
    ),
}  # fmt: skip
JUNK: list[Any] = [
    DROP, None, "", " ", "a", "A", "*", "a b", "ä", "x" * 300, "x" * 5_000, "\x00", "a\n", "registry:write",
    "2027-06-01T00:00:00Z", 0, 1, -1, 80.0, 1.5, 1e300, 2**63, True, False, [], ["a"], ["a", "a"], [None], [[]], [{}], {}, {"a": "b"},
    {"kind": "Agent", "name": "a"}, [f"v{i}" for i in range(65)],
]  # fmt: skip


def places(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every path below `node`; what stands in JSON schemas is nobody's field."""
    if path and path[-1] in ("inputSchema", "outputSchema"):
        return
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def at(node: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        node = node[key]
    return node


def spoilt(kind: str) -> Iterator[Manifest]:
    """The full manifest with one field replaced, taken away, or with an unknown neighbour."""
    full = FULL[kind]
    for path in places(full["spec"], ("spec",)):
        for value in JUNK:
            made = copy.deepcopy(full)
            holder = at(made, path[:-1])
            if value is DROP:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            yield made
        if isinstance(at(full, path), dict) and path[-1] not in (
            "inputSchema",
            "outputSchema",
            "matchLabels",
        ):
            made = copy.deepcopy(full)
            at(made, path)["unknownField"] = 1
            yield made


@pytest.fixture(scope="module")
def verdict(apiserver: ApiServer) -> Callable[[Manifest], str]:
    """What the API server says of a manifest: empty if it takes it, else its message."""
    for definition in crd.definitions().values():
        applied = apiserver.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(definition))
        assert applied.returncode == 0, applied.stderr
    for kind in KINDS.values():
        path = f"/apis/{API_VERSION}/{kind.plural}"
        wait_until(lambda path=path: apiserver.client.get(path).is_success, timeout=30)

    def ask(body: Manifest) -> str:
        kind = KINDS[body["kind"]]
        namespace = "namespaces/default/" if kind.namespaced else ""
        answer = apiserver.client.post(
            f"/apis/{API_VERSION}/{namespace}{kind.plural}",
            params={"dryRun": "All", "fieldValidation": "Strict"},
            content=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status_code in (201, 400, 409, 413, 422, 500), answer.text
        return "" if answer.status_code == 201 else str(answer.json()["message"])

    return ask


def difference(body: Manifest, ask: Callable[[Manifest], str]) -> str:
    """Empty where the models and the server agree, else both verdicts."""
    server = ask(body)
    try:
        parse(body, strict=True)
        models = ""
    except InvalidManifest as error:
        models = str(error)
    if bool(server) == bool(models):
        return ""
    return f"{json.dumps(body)[:700]}\n  server: {server[:300] or 'accepts'}\n  models: {models[:300] or 'accept'}"


def test_the_table_is_judged_alike(verdict: Callable[[Manifest], str]) -> None:
    assert len(GOOD) + len(BAD) >= 150

    differences = [d for body in GOOD + BAD if (d := difference(body, verdict))]

    assert not differences, f"{len(differences)} differ:\n" + "\n".join(differences)


def test_a_cluster_refuses_commands_which_the_local_mode_takes(verdict: Callable[[Manifest], str]) -> None:
    body = server({"command": ["uvx", "mcp-server-time"], "env": [{"name": "A", "value": "b"}]})

    assert parse(body, strict=True)
    assert "command runs in the local mode only" in verdict(body)


def test_the_table_says_what_is_good_and_what_is_bad() -> None:
    for body in GOOD:
        parse(body, strict=True)
    for body in BAD:
        with pytest.raises(InvalidManifest):
            _ = parse(body, strict=True), json.dumps(body)[:300]


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_field_spoilt_in_every_way_is_judged_alike(
    kind: str, verdict: Callable[[Manifest], str]
) -> None:
    tried = list(spoilt(kind))

    differences = [d for body in tried if (d := difference(body, verdict))]

    assert len(tried) > 250
    assert not differences, f"{len(differences)} of {len(tried)} differ:\n" + "\n".join(differences[:40])


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_files_in_crds_are_what_the_models_generate(kind: str) -> None:
    path = ROOT / "crds" / f"{KINDS[kind].plural}.yaml"

    generated = yaml.safe_dump(crd.definitions()[kind], sort_keys=False, width=110, allow_unicode=True)

    assert path.read_text() == generated, "run `make generate`"


def apply(server: ApiServer, namespace: str, body: Manifest) -> str:
    """What `kubectl apply` prints when it refuses; empty if it takes the manifest."""
    placed = copy.deepcopy(body)
    placed["metadata"] = {**placed["metadata"], "namespace": namespace}
    done = server.kubectl("apply", "-f", "-", input=json.dumps(placed))
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize(
    ("body", "field", "remedy"),
    [
        (tool(scopes=["registry:write"]), "spec", "a Tool cannot carry one"),
        (tool(scopes=[]), "spec.scopes", "should have at least 1 items"),
        (tool(scopez=["a"]), "spec.scopez", "unknown field"),
        (http(timeout="6m"), "spec.backend.http", "timeout must be at most 5m"),
        (http(url="https://a.example"), "spec.backend.http", "set either service or url"),
        (http(service={"name": "a", "port": 0}), "spec.backend.http.service.port", "greater than or equal to 1"),
        (grant(scopes=DROP), "spec", "set scopes, or tools.deny, or tools.denyScopes"),
        (grant(tools={"denyScopes": ["registry:x"]}), "spec.tools", "denyScopes cannot hold registry:* scopes"),
        (grant(tools={"allow": []}), "spec.tools.allow", "should have at least 1 items"),
        (
            grant(notBefore="2027-01-02T00:00:00Z", expiresAt="2027-01-01T00:00:00Z"),
            "spec",
            "expiresAt must be later than notBefore",
        ),
        (subject(kind="User", name="alice"), "spec.subjects[0]", "a User or Group needs issuer and name"),
        (
            cluster_grant(namespaces=DROP, namespaceSelector={"matchLabels": {"team": None}}),
            "spec.namespaceSelector.matchLabels",
            "should have at least 1 properties",
        ),
    ],
)  # fmt: skip
def test_a_refusal_at_apply_names_the_field_and_the_remedy(
    body: Manifest, field: str, remedy: str, apiserver: ApiServer, namespace: str, verdict: Any
) -> None:
    said = apply(apiserver, namespace, body)

    assert field in said
    assert remedy in said


def test_a_tool_keeps_its_name_for_life(apiserver: ApiServer, namespace: str, verdict: Any) -> None:
    assert apply(apiserver, namespace, tool()) == ""

    assert "spec.name cannot be changed" in apply(apiserver, namespace, tool(name="other"))
    assert apply(apiserver, namespace, tool(name="sample", description="the same name, written out")) == ""
    assert "spec.name cannot be changed" in apply(apiserver, namespace, tool(name="Sample"))
    assert apply(apiserver, namespace, tool(description="left out again")) == ""


SERVERS: dict[str, tuple[Manifest, Manifest]] = {
    "added": (tool(), tool(server="files")),
    "removed": (tool(server="files"), tool()),
    "changed": (tool(server="files"), tool(server="web")),
    "written in other case": (tool(server="files"), tool(server="Files")),
}


@pytest.mark.parametrize("way", ["apply", "patch", "json patch", "replace", "server-side apply"])
@pytest.mark.parametrize("what", SERVERS)
def test_a_tool_keeps_its_server_for_life_and_so_its_absence(
    what: str, way: str, apiserver: ApiServer, namespace: str, verdict: Any
) -> None:
    before, after = SERVERS[what]
    assert apply(apiserver, namespace, before) == ""
    had, wanted = before["spec"].get("server"), after["spec"].get("server")
    placed = {**after, "metadata": {**after["metadata"], "namespace": namespace}}
    named = ("tools.toolcrib.dev", "sample", "-n", namespace)

    if way == "apply":
        said = apply(apiserver, namespace, after)
    elif way == "patch":
        patch = json.dumps({"spec": {"server": wanted}})
        said = apiserver.kubectl("patch", *named, "--type=merge", "-p", patch).stderr
    elif way == "json patch":
        op = {"op": "remove"} if wanted is None else {"op": "replace" if had else "add", "value": wanted}
        patch = json.dumps([{"path": "/spec/server", **op}])
        said = apiserver.kubectl("patch", *named, "--type=json", "-p", patch).stderr
    elif way == "replace":
        said = apiserver.kubectl("replace", "-f", "-", input=json.dumps(placed)).stderr
    else:
        # the manager that owns the field leaves it out, too
        forced = (
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=kubectl-client-side-apply",
            "-f",
            "-",
        )
        said = apiserver.kubectl(*forced, input=json.dumps(placed)).stderr

    stored = apiserver.client.get(f"/apis/{API_VERSION}/namespaces/{namespace}/tools/sample").json()
    assert stored["spec"].get("server") == had
    if (what, way) != ("removed", "server-side apply"):
        assert "spec.server cannot be changed, added or removed" in said
    before["spec"]["description"] = "something else"
    assert apply(apiserver, namespace, before) == ""


def test_what_the_server_stores_reads_back_as_the_same_tool(
    apiserver: ApiServer, namespace: str, verdict: Any
) -> None:
    """Defaults, nulls and numbers: the model of the file equals the model of the object, digests included."""
    numbers = {"type": "object", "properties": {"a": {"minimum": 1.0, "maximum": 1e16, "enum": [None]}}}
    body = tool(inputSchema=numbers, title=None, tags=None, scopeMatch=None)
    body["metadata"]["namespace"] = namespace

    assert apply(apiserver, namespace, body) == ""
    stored = apiserver.client.get(f"/apis/{API_VERSION}/namespaces/{namespace}/tools/sample").json()

    ours, theirs = parse(body), parse(stored)
    assert isinstance(ours, Tool)
    assert isinstance(theirs, Tool)
    assert ours.spec == theirs.spec
    assert publishing.tool(ours).digest == publishing.tool(theirs).digest
    assert publishing.tool(ours).route_digest == publishing.tool(theirs).route_digest


def test_an_object_that_no_operator_has_seen_says_so(
    apiserver: ApiServer, namespace: str, verdict: Any
) -> None:
    assert apply(apiserver, namespace, tool()) == ""

    table = apiserver.kubectl("get", "tools.toolcrib.dev", "-n", namespace, "-o", "wide").stdout
    stored = apiserver.client.get(f"/apis/{API_VERSION}/namespaces/{namespace}/tools/sample").json()

    assert {c["type"]: c["status"] for c in stored["status"]["conditions"]} == {
        "Ready": "Unknown", "Accepted": "Unknown", "Indexed": "Unknown",
    }  # fmt: skip
    assert "Unknown" in table
    assert "Pending" in table
    assert '["a:use"]' in table
