"""A real API server with the admission policies of crds/ in force, and users with exactly the rights that a test gives."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

import manifests
from manifests import binding, cluster_binding, tool
from realparts.apiserver import ApiServer
from realparts.processes import wait_until
from realparts.required import require_real
from toolcrib.confirmations import manifest_of
from toolcrib.resources.admission import FINALIZER
from toolcrib.wire.confirmations import ConfirmableCall

ROOT = Path(__file__).parents[2]
GROUP = "toolcrib.dev"
API = f"/apis/{GROUP}/v1alpha1"
RBAC = "rbac.authorization.k8s.io"
HOME, OTHER = "team-a", "team-b"
OPERATOR = "system:serviceaccount:any:toolcrib-operator"
PLURALS = {
    "Tool": "tools",
    "ToolServer": "toolservers",
    "AgentScopeBinding": "agentscopebindings",
    "ClusterAgentScopeBinding": "clusteragentscopebindings",
    "Agent": "agents",
    "AccessRequest": "accessrequests",
    "ToolCanary": "toolcanaries",
    "CallConfirmation": "callconfirmations",
}
CLIENT = {"kind": "OAuthClient", "issuer": "https://login.example", "clientId": "cli"}
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

WRITING = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
"""Not `*`, which is `approve` too."""
NO_FINALIZERS = {"metadata": {"finalizers": None}}

Manifest = dict[str, Any]
Rule = tuple[str, str, tuple[str, ...]]
"""Verb, resource and resourceNames (none: all names) in our group."""


@dataclass(frozen=True)
class Given:
    """Rights that a user holds in one namespace, or in the whole cluster (None)."""

    namespace: str | None
    rules: tuple[Rule, ...]


EVERYTHING: tuple[Rule, ...] = (("grant", "scopes", ()), ("gate", "scopes", ()), ("equip", "subjects", ()))


@dataclass(frozen=True)
class User:
    """Somebody by name, or a service account by its user name; by RBAC he may write all our objects, if he `writes`."""

    name: str
    groups: tuple[str, ...] = ()
    writes: bool = True


def all_but(verb: str) -> str:
    """A group that holds the two other verbs in the whole cluster."""
    return f"all-but-{verb}"


class Admission:
    """The server, and what people try on it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self._made = 0

    def user(self, *given: Given, groups: Iterable[str] = (), name: str | None = None) -> User:
        """A new user with these rights, in force after `settle`."""
        self._made += 1
        user = User(name or f"user-{self._made}", tuple(groups))
        for each in given:
            self.allow("User", user.name, each)
        return user

    def allow(self, kind: str, name: str, given: Given) -> None:
        """Give a User or Group rights, in force after `settle`."""
        self._made += 1
        role = f"given-{self._made}"
        self.make(
            None, "ClusterRole", {"metadata": {"name": role}, "rules": [_rule(*r) for r in given.rules]}
        )
        self.bind(kind, name, role, given.namespace)

    def bind(self, kind: str, name: str, role: str, namespace: str | None, of: str = "ClusterRole") -> None:
        """Bind a ClusterRole (or, `of`, a Role) to a User or Group, in one namespace or in the whole cluster."""
        self._made += 1
        body = {
            "metadata": {"name": f"{role}-{self._made}"},
            "roleRef": {"apiGroup": RBAC, "kind": of, "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": kind, "name": name}],
        }
        self.make(namespace, "RoleBinding" if namespace else "ClusterRoleBinding", body)

    def settle(self) -> None:
        """Wait until the API server's authorizer has seen every right given so far."""
        last = self.user(Given(HOME, EVERYTHING[:1]), Given(None, EVERYTHING[1:2]))
        wait_until(lambda: self._can(last, "grant", HOME) and self._can(last, "gate", ""), 60, 0.02)
        # it reads Roles beside ClusterRoles
        self._made += 1
        role = f"last-{self._made}"
        self.make(HOME, "Role", {"metadata": {"name": role}, "rules": [_rule("settle", "scopes", ())]})
        self.bind("User", last.name, role, HOME, "Role")
        wait_until(lambda: self._can(last, "settle", HOME), 60, 0.02)

    def _can(self, user: User, verb: str, namespace: str) -> bool:
        asked = {"group": GROUP, "resource": "scopes", "verb": verb, "namespace": namespace}
        body = {"spec": {"user": user.name, "resourceAttributes": asked}}
        answer = self.request(None, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return bool(answer.json()["status"]["allowed"])

    def request(
        self, user: User | None, method: str, path: str, body: Any = None, kind: str = "application/json",
        **query: str,
    ) -> httpx.Response:  # fmt: skip
        """One request of this user; None is the admin."""
        headers = [("Content-Type", kind)]
        if user is not None:
            groups = ("system:authenticated", *(["writers"] if user.writes else []), *user.groups)
            headers += [("Impersonate-User", user.name), *(("Impersonate-Group", g) for g in groups)]
        content = None if body is None else json.dumps(body)
        return self.server.client.request(method, path, content=content, headers=headers, params=query)

    def create(self, user: User | None, manifest: Manifest, **query: str) -> httpx.Response:
        """POST an object."""
        return self.request(user, "POST", collection(manifest), manifest, **query)

    def patch(
        self, user: User | None, manifest: Manifest, patch: Any, kind: str = MERGE, sub: str = ""
    ) -> httpx.Response:
        """PATCH an object by its manifest's name."""
        force = {"fieldManager": "test", "force": "true"} if kind == APPLY else {}
        return self.request(user, "PATCH", path_of(manifest) + sub, patch, kind, **force)

    def there(self, manifest: Manifest) -> Manifest:
        """Have the admin create it, whatever was there before; as it is on the server."""
        self.gone(manifest)
        made = self.create(None, manifest)
        assert made.status_code == 201, made.text
        found: Manifest = made.json()
        return found

    def gone(self, manifest: Manifest) -> None:
        """Have the admin delete it."""
        self.request(None, "DELETE", path_of(manifest))

    def make(self, namespace: str | None, kind: str, body: Manifest) -> None:
        """Have the admin create an RBAC object."""
        within = f"/namespaces/{namespace}" if namespace else ""
        made = self.request(None, "POST", f"/apis/{RBAC}/v1{within}/{kind.lower()}s", body)
        assert made.status_code == 201, made.text


@contextlib.contextmanager
def admission_server(extra_args: Sequence[str] = ()) -> Iterator[Admission]:
    """Started, with definitions, policies and two namespaces, and every policy in force."""
    require_real("kube-apiserver", "etcd", "kubectl")
    with ApiServer(extra_args=extra_args) as server:
        applied = server.kubectl("apply", "-f", str(ROOT / "crds"))
        assert applied.returncode == 0, applied.stderr
        served = server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        assert served.returncode == 0, served.stderr
        for namespace in (HOME, OTHER):
            server.create_namespace(namespace)
        admission = Admission(server)
        admission.make(None, "ClusterRole", {
            "metadata": {"name": "writer"},
            "rules": [{"apiGroups": [GROUP], "resources": [name + sub for name in PLURALS.values() for sub in ("", "/status")], "verbs": WRITING}],
        })  # fmt: skip
        admission.bind("Group", "writers", "writer", None)
        for verb in ("grant", "gate", "equip"):
            others = tuple(rule for rule in EVERYTHING if rule[0] != verb)
            admission.allow("Group", all_but(verb), Given(None, others))
        admission.allow("User", OPERATOR, Given(None, EVERYTHING))
        admission.settle()
        # a definition is served a moment after it says so
        for plural in PLURALS.values():
            wait_until(lambda path=f"{API}/{plural}": admission.request(None, "GET", path).is_success)  # type: ignore[misc]
        held = denying("in-force")
        held["metadata"]["finalizers"] = [FINALIZER]
        admission.there(held)
        admission.there(agent("in-force", suspended=True))
        wait_until(lambda: in_force(admission), 60, 0.2)
        yield admission


def in_force(admission: Admission) -> bool:
    """Whether each policy refuses, or warns of, what it alone is there for."""
    without = {verb: User("probe", (all_but(verb),)) for verb in ("grant", "gate", "equip")}
    dry, plain = {"dryRun": "All"}, grant("probe", ["x:use"], ["bot"])
    asked = {
        "bindings-grant": admission.create(without["grant"], plain, **dry),
        "bindings-equip": admission.create(without["equip"], plain, **dry),
        "tools-gate": admission.create(without["gate"], tool("probe", HOME), **dry),
        "tools-approve": admission.create(
            User(OPERATOR), tool("probe", HOME, approvedDigest="sha256:" + "0" * 64), **dry
        ),
        "bindings-lift": admission.request(without["grant"], "DELETE", path_of(denying("in-force")), **dry),
        "bindings-release": admission.request(
            without["grant"], "PATCH", path_of(denying("in-force")), NO_FINALIZERS, MERGE, **dry
        ),
        "operator": admission.create(User(OPERATOR), plain, **dry),
        "agents-resume": admission.request(without["grant"], "DELETE", path_of(agent("in-force")), **dry),
        "canaries-approve": admission.create(
            without["gate"], canary("probe", approvedDigest="sha256:" + "0" * 64), **dry
        ),
        "calls-confirm": admission.create(without["grant"], confirmed("probe"), **dry),
        "agents-equip": admission.create(without["equip"], agent("probe", subjects=[CLIENT]), **dry),
    }
    refused = all(f"'{name}.{GROUP}'" in answer.text for name, answer in asked.items())
    wild = admission.create(None, grant("probe", ["x:use"], ["bot"], tools={"allow": ["*"]}), **dry)
    bare = admission.create(None, tool("probe", HOME), **dry)
    warned = [("'warnings", wild), ("'tools-warnings", bare)]
    return refused and all(f"{name}.{GROUP}'" in answer.headers.get("Warning", "") for name, answer in warned)


def canary(name: str, namespace: str = HOME, **spec: Any) -> Manifest:
    """A ToolCanary of the Tool `lookup`."""
    whole = {"tool": "lookup", "candidate": {"description": "Other words"}, **spec}
    return manifests.manifest("ToolCanary", name, namespace, **whole)


def agent(name: str, namespace: str = HOME, **spec: Any) -> Manifest:
    """An Agent."""
    return manifests.manifest("Agent", name, namespace, **spec)


def confirmed(tool: str, namespace: str = HOME, by: str = "somebody", **spec: Any) -> Manifest:
    """A CallConfirmation that somebody has decided about."""
    call = ConfirmableCall(
        id="0123456789ab", tool_id=f"{namespace}/{tool}", agent="team-a/bot", issuer="https://issuer.test",
        subject="system:serviceaccount:team-a:bot", names=("system:serviceaccount:team-a:bot",), arguments="{}",
        asked_at=1_800_000_000, expires_at=1_800_000_300, seal="0" * 64,
    )  # fmt: skip
    made = manifest_of(call)
    made["spec"] |= {"decision": "Confirmed", "decidedBy": by, **spec}
    return made


def grant(
    name: str, scopes: Iterable[str], accounts: Iterable[str], namespace: str = HOME, **spec: Any
) -> Manifest:
    """An AgentScopeBinding for service accounts of its own namespace."""
    subjects = [{"kind": "ServiceAccount", "name": account} for account in accounts]
    return binding(name, scopes, namespace, subjects=subjects, **spec)


def cluster_grant(name: str, scopes: Iterable[str], accounts: Iterable[str], **spec: Any) -> Manifest:
    """A ClusterAgentScopeBinding over both namespaces, for service accounts of the first."""
    subjects = [{"kind": "ServiceAccount", "namespace": HOME, "name": account} for account in accounts]
    return cluster_binding(name, scopes, **{"namespaces": [HOME, OTHER], "subjects": subjects} | spec)


def denying(
    name: str, deny: Iterable[str] = ("secret_*", "x"), accounts: Iterable[str] = ("bot", "cat")
) -> Manifest:
    """An AgentScopeBinding that only denies."""
    manifest = grant(name, [], accounts, tools={"deny": list(deny)})
    del manifest["spec"]["scopes"]
    return manifest


def collection(manifest: Manifest) -> str:
    """Where objects of its kind and namespace are."""
    namespace = manifest["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{API}{within}/{PLURALS[manifest['kind']]}"


def path_of(manifest: Manifest) -> str:
    """The object's own path."""
    return f"{collection(manifest)}/{manifest['metadata']['name']}"


def _rule(verb: str, resource: str, names: tuple[str, ...]) -> Manifest:
    rule: Manifest = {"apiGroups": [GROUP], "resources": [resource], "verbs": [verb]}
    return rule | ({"resourceNames": list(names)} if names else {})
