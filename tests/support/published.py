"""Published tools, bindings and identities for tests, with everything that does not matter filled in."""

from typing import Any

from toolcrib import publishing
from toolcrib.canary import assignment
from toolcrib.identity import Identity, ScopesPolicy
from toolcrib.publishing import with_digests
from toolcrib.resources.bindings import SubjectKind
from toolcrib.resources.canaries import ToolCanary
from toolcrib.resources.kinds import parse
from toolcrib.resources.meta import API_VERSION
from toolcrib.resources.servers import ToolServer
from toolcrib.wire.publish import PublishedBinding, PublishedServer, PublishedSubject, PublishedTool

CLUSTER = "https://cluster.example"
OAUTH = "https://login.example"
FAR = 4_000_000_000.0


def tool(tool_id: str = "team-a/calculator", /, **fields: Any) -> PublishedTool:
    """A tool by its id; its agent-visible name is the object's name unless given."""
    namespace, name = tool_id.split("/")
    defaults: dict[str, Any] = {
        "tool_id": tool_id,
        "uid": f"uid:{tool_id}",
        "namespace": namespace,
        "name": name,
        "scopes": ("use",),
    }
    return with_digests(**{**defaults, **fields})


def account(namespace: str = "team-a", name: str = "bot") -> PublishedSubject:
    """A service account as a subject."""
    return PublishedSubject(kind=SubjectKind.SERVICE_ACCOUNT, namespace=namespace, name=name)


def binding(name: str = "grant", namespace: str | None = "team-a", **fields: Any) -> PublishedBinding:
    """A binding for the service account team-a/bot; without namespace it is a cluster binding over all."""
    defaults: dict[str, Any] = {
        "uid": f"uid:{namespace}/{name}",
        "kind": "AgentScopeBinding" if namespace else "ClusterAgentScopeBinding",
        "namespace": namespace,
        "name": name,
        "subjects": (account(),),
        "namespaces": (namespace,) if namespace else None,
        "scopes": ("use",),
    }
    return PublishedBinding(**{**defaults, **fields})


def suspension(
    name: str = "bot", namespace: str = "team-a", *subjects: PublishedSubject, **fields: Any
) -> PublishedBinding:
    """The suspended Agent of a service account of its name, and of `subjects` besides."""
    defaults: dict[str, Any] = {
        "uid": f"uid:Agent/{namespace}/{name}",
        "kind": "Agent",
        "namespace": namespace,
        "name": name,
        "subjects": (account(namespace, name), *subjects),
        "namespaces": None,
        "deny": ("*",),
        "suspends": True,
    }
    return PublishedBinding(**{**defaults, **fields})


def server(name: str = "docs", namespace: str = "team-a", **spec: Any) -> PublishedServer:
    """What a ToolServer of `spec` publishes of its resources and prompts; they take the scope `use`."""
    whole = {"mcp": {"url": "https://x.test/mcp"}, "defaults": {"scopes": ["use"]}, **spec}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid:{namespace}/{name}", "generation": 1}
    found = parse({"apiVersion": API_VERSION, "kind": "ToolServer", "metadata": metadata, "spec": whole})
    assert isinstance(found, ToolServer)
    made = publishing.server(found, None)
    assert made is not None
    return made


def bot(namespace: str = "team-a", name: str = "bot", **fields: Any) -> Identity:
    """A service account of the cluster, decided by bindings."""
    defaults: dict[str, Any] = {
        "issuer": CLUSTER,
        "subject": f"system:serviceaccount:{namespace}:{name}",
        "expires_at": FAR,
        "policy": ScopesPolicy.BINDINGS,
        "cluster": True,
        "groups": frozenset({"system:serviceaccounts", f"system:serviceaccounts:{namespace}"}),
    }
    return Identity(**{**defaults, **fields})


def client(name: str = "cli", scopes: frozenset[str] | None = frozenset({"use"}), **fields: Any) -> Identity:
    """An OAuth client, decided by bindings and the token's scopes together."""
    defaults: dict[str, Any] = {
        "issuer": OAUTH,
        "subject": name,
        "expires_at": FAR,
        "client": name,
        "user": name,
        "scopes": scopes,
        "policy": ScopesPolicy.INTERSECTION,
    }
    return Identity(**{**defaults, **fields})


def on_trial(
    of: PublishedTool, /, *, uid: str = "uid:canary", share: int = 50, replacement: PublishedTool | None = None,
    **definition: Any,
) -> PublishedTool:  # fmt: skip
    """`of` with a ToolCanary that tries `definition`, or another tool in its place."""
    named = {"replacement": replacement.tool_id.split("/")[1]} if replacement is not None else definition
    spec = {"tool": of.tool_id.split("/")[1], "share": share, "candidate": named}
    metadata = {"name": "canary", "namespace": of.namespace, "uid": uid}
    canary = parse({"apiVersion": API_VERSION, "kind": "ToolCanary", "metadata": metadata, "spec": spec})
    assert isinstance(canary, ToolCanary)
    return of.model_copy(update={"candidate": publishing.candidate(of, canary, replacement)})


def sides(
    uid: str = "uid:canary", *, share: int = 50, issuer: str, namespace: str = "team"
) -> tuple[str, str]:
    """The names of two service accounts: one that gets the candidate of a trial, and one that does not."""
    names = [f"bot-{i}" for i in range(200)]
    got = [
        n for n in names if assignment.chosen(uid, share, issuer, f"system:serviceaccount:{namespace}:{n}")
    ]
    return got[0], next(n for n in names if n not in got)
